"""What a program holds of calls, also where it was looked up for an earlier call, or packed meanwhile."""

from __future__ import annotations

import inspect

import ml_dtypes
import numpy as np
import pytest
from tests.dialects.spellings import nisa1, nisa2, nki1, nki2, nl1, nl2, program_of, ramp

from nkilab.trace import program as programs


@nki2.jit
def calls_of_nki(x):
    out = nl2.ndarray(x.shape, x.dtype, buffer=nl2.shared_hbm)
    acc = nl2.ndarray((3, 3), nl2.float32, buffer=nl2.psum)
    tile = nl2.ndarray(x.shape, x.dtype)
    for _ in range(3):
        nisa2.dma_copy(dst=tile, src=x)  # dma_copy
        nisa2.tensor_tensor(tile, tile, tile, nl2.add)  # tensor_tensor
        nisa2.tensor_scalar(tile, tile, nl2.multiply, 0.5)  # tensor_scalar
        nisa2.nc_matmul(acc, tile, tile)  # nc_matmul
        nisa2.memset(dst=tile[0:2, :], value=1.0, name="filled")  # memset
        nisa2.tensor_copy(tile, tile)  # tensor_copy
    nisa2.dma_copy(dst=out, src=tile)
    return out


@nki1.jit
def calls_of_beta_1(x):
    out = nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm)
    tile = nl1.ndarray(x.shape, x.dtype, buffer=nl1.sbuf)
    for _ in range(3):
        tile[...] = nl1.load(x)  # dma_copy
        tile[...] = nisa1.tensor_tensor(tile, tile, op=np.add)  # tensor_tensor
        tile[...] = tile * 0.5  # tensor_scalar
        tile[...] = nisa1.tensor_copy(tile)  # tensor_copy
        nisa1.nc_matmul(tile, tile)  # nc_matmul
    nl1.store(out, tile)
    return out


@pytest.mark.parametrize("kernel", [calls_of_nki, calls_of_beta_1])
def test_a_row_has_the_line_of_its_call_also_in_later_iterations(kernel):
    program = program_of(kernel, ramp(4, 3))
    lines, first = inspect.getsourcelines(kernel.function)
    marked = {
        line.rpartition("# ")[2].strip(): f"test_rows.py:{first + i}"
        for i, line in enumerate(lines)
        if "  # " in line
    }
    places = [(program.form_of(row).name, program.place_of(row)) for row in range(len(program) - 1)]
    for name, place in marked.items():
        # the matmul of the last iteration of Beta 1 is committed by what follows it, under its own line
        assert [where for called, where in places if called == name] == [place] * 3


@nki1.jit
def sums_over_a_loop(x):
    """Tiles of bfloat16 summed over a loop; between its halves somebody else writes the sum."""
    out = nl1.ndarray(x.shape[1:], x.dtype, buffer=nl1.shared_hbm)
    total = nl1.zeros(x.shape[1:], x.dtype, buffer=nl1.sbuf)
    for i in nl1.affine_range(x.shape[0]):
        total[...] = nl1.loop_reduce(nl1.load(x[i]), op=np.add, loop_indices=[i])
    nl1.store(out, total)
    return out


@pytest.mark.parametrize("packed", [4, 12, 40, 4 << 15])
def test_a_sum_over_a_loop_is_carried_however_many_rows_are_packed(monkeypatch, packed):
    monkeypatch.setattr(programs, "PACKED_AT_ONCE", packed)
    # 256 + 1 is no bfloat16: rounded after each iteration the sum would stay 256
    x = np.ones((9, 4, 3), ml_dtypes.bfloat16)
    x[0] = 256
    np.testing.assert_array_equal(sums_over_a_loop(x).astype(np.float32), 264)


@pytest.mark.parametrize("packed", [4, 8, 4 << 15])
def test_operands_are_counted_however_many_rows_are_packed(monkeypatch, packed):
    monkeypatch.setattr(programs, "PACKED_AT_ONCE", packed)
    program = program_of(calls_of_nki, ramp(4, 3))
    column = program.storage_column.tolist()
    assert program.operand_count == len(column)
    for since in range(len(column) + 1):
        for storage in range(len(program.storages)):
            assert program.is_named_since(since, storage) == (storage in column[since:])
    assert [program.position_of(row) for row in range(len(program))] == program.position_column.tolist()
