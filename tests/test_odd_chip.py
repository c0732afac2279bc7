"""Sizes come from the chip's row: kernels use all of a chip that has others, and no more. Expected: NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nkilab
from nkilab import api
from nkilab.errors import LimitError, RuleError
from nkilab.isa.elementwise import TensorCopy
from nkilab.isa.uses import form_of, smallest_use
from nkilab.machine import MACHINES, machine_named
from tests.chips import ODD, SIZES, write_odd_chip
from tests.dialects.spellings import nisa2, nki1, nki2, nl1, nl2

P, BANK, MOVING = SIZES["partitions"], SIZES["psum_bank_bytes"] // 4, SIZES["moving_free_max"]
SBUF = SIZES["sbuf_bytes_per_partition"] // 4
RANDOM = np.random.default_rng(0)
TALL, WIDE, ROW = (RANDOM.standard_normal(s, dtype=np.float32) for s in ((P, P), (P, MOVING), (1, 2 * BANK)))


@pytest.fixture(autouse=True)
def odd(tmp_path: Path) -> Iterator[str]:
    """The path of its machine file, chosen for kernels that name no chip."""
    path = write_odd_chip(tmp_path)
    with api.chosen(target=path):
        yield path


@nki2.jit
def product2(lhs: Any, rhs: Any) -> Any:
    out = nl2.ndarray((lhs.shape[1], rhs.shape[1]), nl2.float32, buffer=nl2.shared_hbm)
    total = nl2.ndarray(out.shape, nl2.float32, buffer=nl2.psum)
    nisa2.nc_matmul(total, nl2.load(lhs), nl2.load(rhs))
    nl2.store(out, nl2.copy(total))
    return out


@nki1.jit
def product1(lhs: Any, rhs: Any) -> Any:
    out = nl1.ndarray((lhs.shape[1], rhs.shape[1]), nl1.float32, buffer=nl1.shared_hbm)
    nl1.store(out, nl1.matmul(nl1.load(lhs), nl1.load(rhs), transpose_x=True))
    return out


@nki2.jit
def spread2(x: Any, row: Any) -> Any:
    out = nl2.ndarray((x.shape[0], row.shape[1]), x.dtype, buffer=nl2.shared_hbm)
    nl2.store(out, nl2.broadcast_to(nl2.load(row), out.shape))
    return out


@nki1.jit
def spread1(x: Any, row: Any) -> Any:
    out = nl1.ndarray((x.shape[0], row.shape[1]), x.dtype, buffer=nl1.shared_hbm)
    nl1.store(out, nl1.load(row).broadcast_to(out.shape))
    return out


@nki2.jit
def turned2(x: Any) -> Any:
    out = nl2.ndarray((x.shape[1], x.shape[0]), x.dtype, buffer=nl2.shared_hbm)
    nl2.store(out, nl2.copy(nl2.transpose(nl2.load(x))))
    return out


@nki1.jit
def turned1(x: Any) -> Any:
    out = nl1.ndarray((x.shape[1], x.shape[0]), x.dtype, buffer=nl1.shared_hbm)
    nl1.store(out, nl1.transpose(nl1.load(x)))
    return out


@nki1.jit
def variance1(x: Any) -> Any:
    out = nl1.ndarray((x.shape[0], 1), x.dtype, buffer=nl1.shared_hbm)
    nl1.store(out, nl1.var(nl1.load(x), axis=1))
    return out


@nki2.jit
def copied2(x: Any) -> Any:
    out = nl2.ndarray(x.shape, x.dtype, buffer=nl2.shared_hbm)
    nl2.store(out, nl2.load(x))
    return out


@nki1.jit
def copied1(x: Any) -> Any:
    out = nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm)
    nl1.store(out, nl1.load(x))
    return out


def addressed(start: int) -> Any:
    """A kernel whose second tile, from a partition on, lies where its first one does."""

    @nki2.jit
    def kernel(x: Any) -> Any:
        out = nl2.ndarray((2, 32, 64), x.dtype, buffer=nl2.shared_hbm)
        first = nl2.ndarray((32, 64), x.dtype, buffer=nl2.sbuf, address=(P - 32, 0))
        second = nl2.ndarray((32, 64), x.dtype, buffer=nl2.sbuf, address=(start, 0))
        nisa2.dma_copy(first, x[0:32])
        nisa2.dma_copy(second, x[32:64])
        nisa2.dma_copy(out[0], first)
        nisa2.dma_copy(out[1], second)
        return out

    return kernel


def double_product(lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    return lhs.astype(np.float64).T @ rhs


def spread(x: np.ndarray, row: np.ndarray) -> np.ndarray:
    return np.broadcast_to(row, (len(x), row.shape[1]))


def test_the_odd_chip_has_no_size_of_another_chip() -> None:
    assert not [name for name, size in SIZES.items() if size in {m[name] for m in MACHINES.values()}]


def test_the_machine_file_and_the_row_of_the_tests_are_one_chip(odd: str) -> None:
    read = {name: fact.value for name, fact in machine_named(odd).facts().items()}
    assert read == {name: fact.value for name, fact in ODD.facts().items()}


@pytest.mark.parametrize(
    ("kernel", "args", "reference"),
    [
        (product2, (TALL, WIDE), double_product),
        (product1, (TALL, WIDE), double_product),
        (spread2, (TALL, ROW), spread),
        (spread1, (TALL, ROW), spread),
        (turned2, (TALL,), np.transpose),
        (turned1, (TALL,), np.transpose),
        (variance1, (WIDE,), lambda x: x.var(axis=1, keepdims=True, dtype=np.float64)),
        (copied2, (WIDE,), lambda x: x),
        (copied1, (WIDE,), lambda x: x),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_kernels_use_all_of_it(kernel: Any, args: tuple[Any, ...], reference: Callable[..., Any]) -> None:
    np.testing.assert_allclose(kernel(*args), reference(*args), rtol=1e-5, atol=1e-4)
    assert nkilab.estimate(kernel, *args).latency_us > 0
    assert [f.rule for f in nkilab.check(kernel, *args).verdict if f.fails] == []


def test_broadcasts_come_in_pieces_of_its_banks(odd: str) -> None:
    # a row as long as two banks, once per bank
    program = nkilab.estimate(spread2, TALL, ROW).program
    assert sum(program.forms[form].name == "nc_matmul" for form in program.form_column.tolist()) == 2


REFUSED = [
    (copied2, [(P + 1, 8)], "the first axis of src has 257 elements", "load tiles of 256 rows"),
    (copied1, [(P + 1, 8)], "limitation of 256", "load tiles of 256 rows"),
    (product2, [(8, P + 1), (8, 8)], "limitation of 256", "split the partition axis into tiles of 256"),
    (product2, [(8, 8), (8, MOVING + 1)], "N is 1025; trn2 allows 1024", "split the free axis of `moving`"),
    (turned2, [(8, P + 1)], "F is 257; trn2 allows 256", "split the free axis into tiles of 256"),
    (copied2, [(8, SBUF + 1)], "of 81924 bytes per partition; trn2 allows 81920", "split the tile along"),
]


@pytest.mark.parametrize(("kernel", "shapes", "problem", "hint"), REFUSED)
def test_kernels_are_refused_one_more(kernel: Any, shapes: Any, problem: str, hint: str) -> None:
    with pytest.raises(LimitError) as caught:
        nkilab.estimate(kernel, *(np.zeros(shape, np.float32) for shape in shapes))
    assert problem in str(caught.value)
    assert f"\n  hint: {hint}" in str(caught.value)


def test_a_tile_may_start_in_its_upper_half() -> None:
    form_of(TensorCopy, ODD, smallest_use(TensorCopy, {"P": 64, "src.start": 192}))
    with pytest.raises(RuleError, match=r"with 64 partitions; it must start at 0, 64, 128 or 192\n"):
        form_of(TensorCopy, ODD, smallest_use(TensorCopy, {"P": 64, "src.start": 32}))


def test_tile_size_is_that_of_the_chip() -> None:
    sizes = nl1.tile_size
    assert (sizes.pmax, sizes.psum_fmax, sizes.gemm_stationary_fmax) == (
        P,
        BANK,
        SIZES["stationary_free_max"],
    )
    assert (sizes.gemm_moving_fmax, sizes.bn_stats_fmax) == (BANK, SIZES["bn_stats_free_max"])


def test_tiles_at_addresses_in_its_upper_half_are_told_apart() -> None:
    x = RANDOM.standard_normal((64, 64), dtype=np.float32)
    overlapping, apart = addressed(P - 32), addressed(P - 64)
    assert [
        f.rule for f in nkilab.check(overlapping, x, replay=2).verdict if f.fails and f.origin == "hardware"
    ] == ["lifetime-conflict"]
    assert [f for f in nkilab.check(apart, x, replay=2).verdict if f.fails and f.origin == "hardware"] == []
    np.testing.assert_array_equal(apart(x), x.reshape(2, 32, 64))
