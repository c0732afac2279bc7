"""Gathers and top-k against NumPy written out per core, cycles from the manuals, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nkilab.isa import REGISTRY
from nkilab.machine import MACHINES
from nkilab.tiles.tile import array_of
from tests.uses import Tile, call, form_of, new_tile, open_session, refused, result, smallest_use

LOCAL_GATHER, NC_N_GATHER, TOPK = REGISTRY["local_gather"], REGISTRY["nc_n_gather"], REGISTRY["topk"]


def gathered(source: np.ndarray, index: np.ndarray, valid: int, each: int) -> np.ndarray:
    """local_gather, element by element as its page says it."""
    out = np.zeros((source.shape[0], valid * each), source.dtype)
    for p in range(source.shape[0]):
        core = p // 16
        flat = index[16 * core : 16 * core + 16].flatten(order="F")
        for k in range(valid):
            for j in range(each):
                out[p, k * each + j] = source[p, int(flat[k]) + j]
    return out


@pytest.mark.parametrize(("valid", "each"), [(64, 1), (50, 1), (64, 4), (7, 8)])
def test_each_core_follows_its_own_indices(valid: int, each: int) -> None:
    draw = np.random.default_rng(1)
    source = draw.standard_normal((48, 40)).astype(np.float32)
    index = draw.integers(0, 33, (48, 4)).astype(np.uint16)
    got = result(
        LOCAL_GATHER, (48, valid * each), src_buffer=source, index=(index, "uint16"),
        num_elem_per_idx=each, num_valid_indices=valid,
    )  # fmt: skip
    np.testing.assert_array_equal(got, gathered(source, index, valid, each))


def test_a_gather_of_runs_reads_the_free_axes_as_one() -> None:
    # the shapes of the public test of local_gather: rows of four, index times four
    draw = np.random.default_rng(2)
    source = draw.standard_normal((32, 10, 4)).astype(np.float32)
    index = np.tile(draw.integers(0, 10, (16, 2)), (2, 1)).astype(np.uint16)
    got = result(
        LOCAL_GATHER, (32, 2, 16, 4), src_buffer=source, index=(index * 4, "uint16"), num_elem_per_idx=4
    )
    flat = index[:16].flatten(order="F")
    np.testing.assert_array_equal(got, source[:, flat].reshape(32, 2, 16, 4))


def test_a_gather_keeps_the_bits_of_integers() -> None:
    source = np.array([[2**31 - 1, -(2**31) + 1, 7]], np.int32)
    got = result(
        NC_N_GATHER, Tile((1, 2), "int32"), data=(source, "int32"), indices=(np.array([[1, 0]]), "uint32")
    )
    np.testing.assert_array_equal(got, [[-(2**31) + 1, 2**31 - 1]])


def test_gathering_within_partitions_is_take_along_the_flattened_axis() -> None:
    draw = np.random.default_rng(3)
    data = draw.standard_normal((32, 4, 16)).astype(np.float32)
    indices = draw.integers(0, 64, (32, 5, 2))
    got = result(NC_N_GATHER, (32, 5, 2), data=data, indices=(indices, "uint32"))
    flat = np.take_along_axis(data.reshape(32, -1), indices.reshape(32, -1), axis=1)
    np.testing.assert_array_equal(got, flat.reshape(32, 5, 2))


def test_an_index_beyond_the_row_reads_as_unwritten() -> None:
    data = np.array([[1.0, 2.0]], np.float32)
    got = result(NC_N_GATHER, (1, 3), data=data, indices=(np.array([[0, 2, 2**32 - 1]]), "uint32"))
    np.testing.assert_array_equal(got, [[1, np.nan, np.nan]])


def largest(source: np.ndarray, count: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """topk of an array [16, X] by sorting pairs; the earlier of equal values is the larger."""
    snake = [(float(source[k % 16, k // 16]), -k) for k in range(n)]
    best = sorted(snake)[-count:]
    return np.array([v for v, _ in best]), np.array([-k for _, k in best])


def test_topk_finds_the_largest_of_each_snake() -> None:
    draw = np.random.default_rng(4)
    # few distinct values, all exact in bfloat16: many are equal
    source = draw.integers(-20, 20, (32, 5)).astype(np.float32)
    session = open_session(MACHINES["trn2"])
    val, idx = new_tile(session, Tile((32, 9), "bfloat16")), new_tile(session, Tile((32, 9), "uint32"))
    call(session, TOPK, val_dst=val, idx_dst=idx, src=new_tile(session, source, "bfloat16"), n=70)
    for core in range(2):
        values, places = largest(source[16 * core : 16 * core + 16], 9, 70)
        for p in range(16 * core, 16 * core + 16):
            np.testing.assert_array_equal(array_of(val)[p].astype(np.float32), values)
            np.testing.assert_array_equal(array_of(idx)[p], places)


# hand: 2.26 costs, 150 + n e / C with C = ((28 + 4 e) / (4 e)) / min(4 / bytes, e); float32, 256 indices:
# e = 1: C = 8, 256 / 8 = 32; e = 4: C = 44 / 16 = 2.75, 1024 / 2.75 = 372.36
CYCLES: list[tuple[Any, dict[str, Any], float]] = [
    (LOCAL_GATHER, {}, 150 + 32),
    (LOCAL_GATHER, {"num_elem_per_idx": 4, "D": 1024}, 150 + 1024 / 2.75),
    # topk page: 4 n + K
    (TOPK, {}, 4 * 42 + 8),
    (TOPK, {"n": 100, "K": 64}, 464),
]


@pytest.mark.parametrize(("cls", "changes", "cycles"), CYCLES)
def test_a_gather_takes_the_documented_cycles(cls: Any, changes: dict[str, Any], cycles: float) -> None:
    (step,) = form_of(cls, MACHINES["trn2"], smallest_use(cls, changes)).steps
    assert step.engine == "gpsimd"
    assert step.busy_ns == pytest.approx(cycles / 1.2)


def test_another_group_of_512_gathered_elements_starts_up_again() -> None:
    few, more = (
        form_of(NC_N_GATHER, MACHINES["trn2"], smallest_use(NC_N_GATHER, {"I": n})).steps[0].busy_ns
        for n in (512, 513)
    )
    assert more - few == pytest.approx(151 / 1.2)


def test_a_value_returning_gather_has_the_shape_of_the_public_test() -> None:
    layouts = {"src_buffer": Tile((128, 512, 4)).layout(), "index": Tile((128, 4), "uint16").layout()}
    whole = LOCAL_GATHER.fresh(layouts, {"num_elem_per_idx": 4, "num_valid_indices": 64})
    part = LOCAL_GATHER.fresh(layouts, {"num_elem_per_idx": 1, "num_valid_indices": 50})
    assert (whole.shape, part.shape) == ((128, 4, 16, 4), (128, 50, 1))
    assert whole.dtype.name == "float32"


REFUSED = [
    (
        LOCAL_GATHER, {"dst.dtype": "bfloat16"},
        "dst and src_buffer differ in type; a gather does not cast\n"
        "  hint: gather first and cast with tensor_copy\n  source: nki.isa.local_gather",
    ),
    (
        LOCAL_GATHER, {"P": 20},
        "the number of partitions is no multiple of 16, which one GpSimd core reaches\n"
        "  source: nki.isa.local_gather, tile size",
    ),
    (
        LOCAL_GATHER, {"num_valid_indices": 0},
        "num_valid_indices is not between 1 and the elements of index in 16 partitions\n"
        "  source: nki.isa.local_gather, num_valid_indices",
    ),
    (
        LOCAL_GATHER, {"I": 257, "D": 4112},
        "there are more than 4096 indices per GpSimd core\n"
        "  hint: split the indices over several calls\n  source: nki.isa.local_gather, tile size",
    ),
    (
        LOCAL_GATHER, {"num_valid_indices": 100},
        "dst does not hold num_valid_indices * num_elem_per_idx elements per partition\n"
        "  source: release notes of NKI 0.6, known issues",
    ),
    (LOCAL_GATHER, {"num_elem_per_idx": 3}, "num_elem_per_idx is 3; it must be one of 1, 2, 4, 8, 16, 32"),
    (LOCAL_GATHER, {"num_valid_indices": 2.5}, "num_valid_indices is 2.5; it must be an integer"),
    (
        LOCAL_GATHER, {"index.dtype": "int32"},
        "index is int32; it must be uint16\n  source: nki.isa.local_gather",
    ),
    (
        NC_N_GATHER, {"dst.dtype": "bfloat16"},
        "dst and data differ in type; a gather does not cast\n"
        "  hint: gather first and cast with tensor_copy\n  source: nki.isa.nc_n_gather, data types",
    ),
    (
        NC_N_GATHER, {"data.memory": "psum"},
        "data is in psum; it must be in sbuf\n  hint: copy it to sbuf first, with tensor_copy\n"
        "  source: nki.isa.nc_n_gather\n  key: err_unsupported_memory",
    ),
    (TOPK, {"n": 7}, "n is not between 8 and 65535\n  source: nki.isa.topk, constraints"),
    (
        TOPK, {"P": 24},
        "the number of partitions is no multiple of 16, over which a snake runs\n"
        "  source: nki.isa.topk, constraints",
    ),
    (
        TOPK, {"n": 257},
        "src holds fewer than n elements in 16 partitions\n  source: nki.isa.topk, constraints",
    ),
    (TOPK, {"K": 43}, "more values are asked for than the snake has\n  source: nki.isa.topk, constraints"),
    (
        TOPK, {"K": 32768, "n": 40000, "X": 2500},
        "32768 or more values are asked for\n  source: nki.isa.topk, constraints",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("cls", "changes", "message"), REFUSED)
def test_a_gather_that_may_not_be_is_refused(cls: Any, changes: dict[str, Any], message: str) -> None:
    assert refused(cls, changes) == message
