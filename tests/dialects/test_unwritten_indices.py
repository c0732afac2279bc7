"""What the run needs to know but nothing wrote: indices, offsets and registers of both spellings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.dialects.spellings import marked_line, nisa1, nisa2, nki1, nki2, nl1, nl2, ramp

from nkilab.checking import report_of
from nkilab.errors import UseError

ROWS = "load or compute all of it before this access"
MOVED = "pass a value to nisa.register_alloc"


def result(nl: Any, x: Any) -> tuple[Any, Any]:
    """A result and the tile that is copied there."""
    return nl.ndarray((4, 6), x.dtype, buffer=nl.shared_hbm), nl.ndarray((4, 6), x.dtype, buffer=nl.sbuf)


@nki2.jit
def rows_by_pattern(x):
    out, tile = result(nl2, x)
    idx = nl2.ndarray((4, 1), nl2.int32, buffer=nl2.sbuf)
    nisa2.dma_copy(tile, x.ap([[6, 4], [1, 6]], vector_offset=idx))  # refused
    return out


@nki2.jit
def rows_of_which_a_half_is_written(x):
    out, tile = result(nl2, x)
    idx = nl2.ndarray((4, 1), nl2.int32, buffer=nl2.sbuf)
    nisa2.memset(idx[0:2], 1)
    nisa2.dma_copy(tile, x.vector_select(0, idx))  # refused
    return out


@nki2.jit
def rows_that_are_skipped(x):
    out, tile = result(nl2, x)
    idx = nl2.ndarray((4, 1), nl2.int32, buffer=nl2.sbuf)
    nisa2.memset(idx[0:2], 1)
    nisa2.dma_copy(tile, x[idx, :], oob_mode=nisa2.oob_mode.skip)  # refused
    return out


@nki2.jit
def scattered(x):
    out, tile = result(nl2, x)
    nisa2.dma_copy(tile, x)
    idx = nl2.ndarray((4, 1), nl2.int32, buffer=nl2.sbuf)
    nisa2.dma_copy(out.vector_select(0, idx), tile)  # refused
    return out


@nki2.jit
def offset_in_a_tile(x):
    out, tile = result(nl2, x)
    idx = nl2.ndarray((1, 1), nl2.int32, buffer=nl2.sbuf)
    nisa2.dma_copy(tile[:, 0:2], x.ap([[6, 4], [1, 2]], scalar_offset=idx, indirect_dim=1))  # refused
    return out


@nki2.jit
def offset_in_a_register(x):
    out, tile = result(nl2, x)
    register = nisa2.register_alloc()
    nisa2.dma_copy(tile[:, 0:2], x.ap([[6, 4], [1, 2]], scalar_offset=register, indirect_dim=1))  # refused
    return out


@nki2.jit
def a_value_in_a_register(x):
    out, tile = result(nl2, x)
    register = nisa2.register_alloc()
    nisa2.iota(tile, [[1, 6]], offset=register)  # refused
    return out


@nki2.jit
def a_bound_in_a_register(x):
    out, tile = result(nl2, x)
    register = nisa2.register_alloc()
    for _ in nl2.dynamic_range(register):  # refused
        nisa2.dma_copy(tile, x)
    return out


@nki1.jit
def rows_of_beta1(x):
    out, _ = result(nl1, x)
    idx = nl1.ndarray((4, 1), nl1.int32, buffer=nl1.sbuf)
    nl1.store(out, nl1.load(x[idx, nl1.arange(6)[None, :]]))  # refused
    return out


@nki1.jit
def offset_of_beta1(x):
    out, _ = result(nl1, x)
    idx = nl1.ndarray((1, 1), nl1.int32, buffer=nl1.sbuf)
    i_p, i_f = nl1.mgrid[0:4, 0:2]
    tile = nl1.load(x)
    nl1.store(out[0:4, 0:2], nisa1.tensor_copy_dynamic_src(tile[i_p, idx + i_f]))  # refused
    return out


REFUSED = [
    (rows_by_pattern, "dma_copy: the index idx: int32[4, 1] in sbuf was never written", ROWS),
    (rows_of_which_a_half_is_written,
     "dma_copy: the index idx: int32[4, 1] in sbuf was written in part only", ROWS),
    (rows_that_are_skipped, "dma_copy: the index idx: int32[4, 1] in sbuf was written in part only", ROWS),
    (scattered, "dma_copy: the index idx: int32[4, 1] in sbuf was never written", ROWS),
    (offset_in_a_tile, "dma_copy: the index idx: int32[1, 1] in sbuf was never written", ROWS),
    (offset_in_a_register, "dma_copy: the register was never written", MOVED),
    (a_value_in_a_register, "iota: the register was never written", MOVED),
    (a_bound_in_a_register, "dynamic_range: the register was never written", MOVED),
    (rows_of_beta1, "dma_copy: the index idx: int32[4, 1] in sbuf was never written", ROWS),
    (offset_of_beta1, "tensor_copy: the index idx: int32[1, 1] in sbuf was never written", ROWS),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "problem", "hint"), REFUSED, ids=lambda value: getattr(value, "name", ""))
def test_an_address_that_nothing_wrote_is_refused(kernel, problem, hint):
    with pytest.raises(UseError) as caught:
        kernel(ramp(4, 6))
    first, *facts, last = str(caught.value).splitlines()
    assert first == f"{marked_line(kernel.func)}: {problem}"
    assert last == f"  hint: {hint}"
    # the operands of the instruction
    assert all(fact.startswith(("  dst = ", "  src = ")) for fact in facts)


@pytest.mark.parametrize(("kernel", "problem", "hint"), REFUSED, ids=lambda value: getattr(value, "name", ""))
def test_it_is_an_unwritten_read_to_the_checks(kernel, problem, hint):
    (finding,) = [f for f in report_of(kernel, [ramp(4, 6)], {}).findings.verdict if f.fails]
    assert (finding.rule, finding.message, finding.fix) == ("unwritten-read", problem, hint)
    assert finding.where == marked_line(kernel.func)


def test_indices_that_are_not_asked_for_need_not_be_written():
    @nki2.jit
    def kernel(x):
        out = nl2.ndarray((2, 6), x.dtype, buffer=nl2.shared_hbm)
        tile = nl2.ndarray((2, 6), x.dtype, buffer=nl2.sbuf)
        idx = nl2.ndarray((4, 1), nl2.int32, buffer=nl2.sbuf)
        nisa2.memset(idx[0:2], 3)
        nisa2.dma_copy(tile, x.ap([[6, 2], [1, 6]], vector_offset=idx))
        nisa2.dma_copy(out, tile)
        return out

    x = ramp(4, 6)
    np.testing.assert_array_equal(kernel(x), x[[3, 3]])
