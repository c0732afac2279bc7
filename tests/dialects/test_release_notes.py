"""What the simulator of NKI 0.4, 0.5 and 0.6 corrected: one kernel per correction, with its result by hand.

Source: release notes of NKI 0.4.0 (Neuron 2.30), 0.5.0 (2.31) and 0.6.0 (2.32), "Bug Fixes".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.dialects.spellings import nisa2 as nisa
from tests.dialects.spellings import nki2 as nki
from tests.dialects.spellings import nl2 as nl
from tests.dialects.spellings import ramp

from nkilab.api import chosen
from nkilab.errors import NkilabWarning

F32 = np.float32
ALL_ONES = 2**32 - 1


def out_of(tile):
    """A result with the elements of a tile in SBUF or PSUM."""
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(tile))
    return out


@dataclass(frozen=True)
class Correction:
    """One line of a release note.

    Args:
        version: of the release that corrected it.
        kernel: takes `inputs` and returns one result.
        inputs: arrays.
        expected: the result, by hand.
        target: chip.
        warns: a part of the warning, if one is due.
    """

    version: str
    kernel: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]
    expected: Any
    target: str = "trn2"
    warns: str = ""


def cast_to_integers(x):
    return out_of(nl.copy(nl.load(x), dtype=nl.int8))


def replaced_from_the_last_slot_on(x, wanted):
    data, vals = nl.load(x), nl.load(wanted)
    dst = nl.ndarray(x.shape, x.dtype)
    places = nl.ndarray((1, 8), nl.uint32)
    nisa.nc_match_replace8(dst=dst, data=data, vals=vals, imm=-1.0, dst_idx=places)
    return out_of(places)


def found_one_after_another(x, wanted):
    places = nl.ndarray((1, 8), nl.uint32)
    nisa.nc_find_index8(dst=places, data=nl.load(x), vals=nl.load(wanted))
    return out_of(places)


def reduced_into_the_result(x):
    dst = nl.ndarray((2, 4), nl.float32)
    nisa.activation(
        dst=dst, op=nl.copy, data=nl.load(x), reduce_op=nl.add, reduce_res=dst[:, 0:1],
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )  # fmt: skip
    return out_of(dst)


def scales_in_a_slice(x):
    packed = nl.ndarray((32, 1), nl.float8_e4m3fn_x4)
    scales = nl.zeros((32, 3), nl.uint8)
    nisa.quantize_mx(dst=packed, src=nl.load(x), dst_scale=scales[0:4, 1:2])
    return out_of(scales[0:4, :])


def packed_numbers(x):
    packed = nl.ndarray((32, 1), nl.float8_e4m3fn_x4)
    scales = nl.zeros((32, 1), nl.uint8)
    nisa.quantize_mx(dst=packed, src=nl.load(x), dst_scale=scales[0:4, :])
    return out_of(packed.view(nl.uint32))


def two_rows_of_weights_at_once(x, w):
    acc = nl.ndarray((4, 2), nl.float32, buffer=nl.psum)
    weights, data = (nl.copy(nl.load(t), dtype=nl.float8_e4m3) for t in (w, x))
    nisa.nc_matmul(dst=acc, stationary=weights, moving=data, perf_mode=nisa.matmul_perf_mode.double_row)
    return out_of(acc)


def products_that_overlap(x, w):
    acc = nl.ndarray((2, 6), nl.float32, buffer=nl.psum)
    data, weights = nl.load(x), nl.load(w)
    for start in (0, 2):
        nisa.nc_matmul(dst=acc[:, start : start + 4], stationary=weights, moving=data)
    return out_of(acc)


def predicate_of_another_rank(x, keep):
    dst = nl.zeros((2, 2, 2, 2), nl.float32)
    nisa.tensor_copy_predicated(dst=dst, src=nl.load(x), predicate=nl.load(keep).reshape((2, 2, 2, 2)))
    return out_of(dst.reshape((2, 8)))


def selection_of_another_rank(x, keep):
    dst = nl.zeros((2, 2, 2, 2), nl.float32)
    nisa.select_reduce(
        dst=dst, predicate=nl.load(keep).reshape((2, 2, 2, 2)), on_true=nl.load(x), on_false=-5.0
    )
    return out_of(dst.reshape((2, 8)))


def range_with_a_python_float(x, low, high):
    dst = nl.ndarray(x.shape, x.dtype)
    nisa.range_select(
        dst=dst, on_true_tile=nl.load(x), comp_op0=nl.greater_equal, comp_op1=nl.less, bound0=nl.load(low),
        bound1=nl.load(high), on_false_value=float(np.finfo(np.float32).min),
    )  # fmt: skip
    return out_of(dst)


def triangle_with_a_python_float(x):
    dst = nl.ndarray(x.shape, x.dtype)
    nisa.affine_select(
        dst=dst, pattern=[[-1, 3]], offset=0, channel_multiplier=1, on_true_tile=nl.load(x),
        on_false_value=float(np.finfo(np.float32).min), cmp_op=nl.greater_equal,
    )  # fmt: skip
    return out_of(dst)


def accumulated_onto_nothing(x, w):
    acc = nl.ndarray((2, 4), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=acc, stationary=nl.load(w), moving=nl.load(x), accumulate=True)
    return out_of(acc)


def operands_of_three_axes(x, w):
    acc = nl.ndarray((2, 2, 2), nl.float32, buffer=nl.psum)
    data = nl.load(x).reshape((2, 2, 2))
    nisa.nc_matmul(dst=acc, stationary=nl.load(w), moving=data)
    return out_of(acc.reshape((2, 4)))


def counted_down(x):
    ones = nl.full((1, 1), 1, nl.int32)
    left, total = nl.full((1, 1), 3, nl.int32), nl.zeros((1, 1), nl.int32)
    register = nisa.register_alloc(3)

    def body(r):
        nisa.tensor_tensor(dst=left, data1=left, data2=ones, op=nl.subtract)
        nisa.tensor_tensor(dst=total, data1=total, data2=ones, op=nl.add)
        after = nisa.register_alloc()
        nisa.register_load(after, left)
        return after

    nl.while_loop(register, body)
    return out_of(total)


def skipped_rows(x, rows):
    dst = nl.full((4, 3), 7, nl.int32)
    tile = nl.load(rows)
    nisa.dma_copy(
        dst=dst, src=x.ap([[3, 4], [1, 3]], offset=0, vector_offset=tile, indirect_dim=0),
        oob_mode=nisa.oob_mode.skip,
    )  # fmt: skip
    return out_of(dst)


def shuffled_with_holes(x):
    dst = nl.full((32, 2), 9.0, nl.float32)
    mask = [1, 0, 255, *range(3, 32)]
    nisa.nc_stream_shuffle(dst=dst, src=nl.load(x), shuffle_mask=mask)
    return out_of(dst[0:4, :])


def gathered_into_a_view(x, places):
    dst = nl.zeros((16, 6), nl.float32)
    index = nl.load(places)
    nisa.local_gather(dst=dst[:, 1:5], src_buffer=nl.load(x), index=index, num_elem_per_idx=1,
                      num_valid_indices=4)  # fmt: skip
    return out_of(dst)


def iota_from_a_register(x):
    offset = nisa.register_alloc(5)
    dst = nl.ndarray((2, 3), nl.int32)
    nisa.iota(dst=dst, pattern=[[1, 3]], offset=offset, channel_multiplier=10)
    return out_of(dst)


def summed_on_the_way(x, y):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_compute(dst=out, srcs=[x, y], reduce_op=nl.add, scales=[1.0, 1.0])
    return out


def both_are_true(x, y):
    return out_of(nl.logical_and(nl.load(x), nl.load(y)))


def transposed_by_the_engine_asked_for(x):
    transposed = nl.ndarray((2, 2), nl.float32)
    nisa.nc_transpose(dst=transposed, data=nl.load(x), engine=nisa.engine.vector)
    return out_of(transposed)


BYTES = np.array([[-200, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 300]], F32)
DATA = np.array([[5, 7, 5, 3, 5, 0, 0, 0]], F32)
SLOTS = np.array([[5, 5, 7, 9, 9, 9, 9, 9]], F32)
PAIR = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], F32)
EYE = np.eye(2, dtype=F32)
SIXTEEN = ramp(2, 8)
EVEN = (np.arange(16).reshape(2, 8) % 2 == 0).astype(np.uint8)
LOWEST = np.finfo(np.float32).min
BF_ONES = np.ones((32, 4), ml_dtypes.bfloat16)

CORRECTIONS = [
    # ties go to the even number, what is too large to the end of the range
    Correction("0.6", cast_to_integers, (BYTES,), [[-128, -2, -2, 0, 0, 2, 2, 127]]),
    # slot 7 takes the first match; of two equal slots the later one matches first
    Correction("0.6", replaced_from_the_last_slot_on, (DATA, SLOTS),
               [[2, 0, 1, *[ALL_ONES] * 5]]),
    # of two equal slots the later one finds the second match; what is not there is all ones
    Correction("0.6", found_one_after_another, (DATA, SLOTS), [[0, 2, 1, *[ALL_ONES] * 5]]),
    # the sums 10 and 26 stand where the result begins, after the result is written
    Correction("0.6", reduced_into_the_result, (PAIR,), [[10, 2, 3, 4], [26, 6, 7, 8]]),
    # 1 is 128 times 2**-7, whose exponent byte is 127 - 7; the columns beside the slice stay
    Correction("0.6", scales_in_a_slice, (BF_ONES,), [[0, 120, 0]] * 4, target="trn3"),
    # 128 in float8_e4m3fn is 0x70, four of them in a word
    Correction("0.4", packed_numbers, (BF_ONES,), [[0x70707070]] * 32, target="trn3"),
    # 4 rows of ones, twice: each product sums 8 elements
    Correction("0.6", two_rows_of_weights_at_once, (np.ones((4, 2, 2), F32), np.ones((4, 2, 4), F32)),
               np.full((4, 2), 8.0)),
    # [1 2 3 4 . .] + [. . 1 2 3 4] in the first row
    Correction("0.6", products_that_overlap, (PAIR, EYE), [[1, 2, 4, 6, 3, 4], [5, 6, 12, 14, 7, 8]]),
    Correction("0.6", predicate_of_another_rank, (SIXTEEN, EVEN), SIXTEEN * EVEN),
    Correction("0.6", selection_of_another_rank, (SIXTEEN, EVEN), np.where(EVEN, SIXTEEN, -5)),
    Correction("0.6", range_with_a_python_float, (PAIR, np.ones((2, 1), F32), np.full((2, 1), 3, F32)),
               [[LOWEST, 2, 3, LOWEST], [LOWEST, 6, 7, LOWEST]]),
    Correction("0.6", triangle_with_a_python_float, (ramp(2, 3),), [[0, LOWEST, LOWEST], [3, 4, LOWEST]]),
    Correction("0.5", accumulated_onto_nothing, (PAIR, EYE), np.full((2, 4), np.nan),
               warns="was never written"),
    Correction("0.5", operands_of_three_axes, (PAIR, EYE), PAIR),
    Correction("0.5", counted_down, (ramp(1, 1),), [[3]]),
    # rows 1 and 0 come; 9 and 5 are no rows, so that the sevens stay, as integers
    Correction("0.4", skipped_rows, (ramp(2, 3, dtype=np.int32) + 2**30 + 1, np.array([[1], [9], [0], [5]],
               np.int32)), [[2**30 + 4, 2**30 + 5, 2**30 + 6], [7] * 3,
                            [2**30 + 1, 2**30 + 2, 2**30 + 3], [7] * 3]),
    Correction("0.4", shuffled_with_holes, (ramp(32, 2),), [[2, 3], [0, 1], [9, 9], [6, 7]]),
    # the indices 3, 2, 1, 0 stand in the first partitions of column 0
    Correction("0.4", gathered_into_a_view,
               (ramp(16, 4), np.array([[3], [2], [1], [0], *[[0]] * 12], np.uint16)),
               [[0, 4 * p + 3, 4 * p + 2, 4 * p + 1, 4 * p, 0] for p in range(16)]),
    Correction("0.4", iota_from_a_register, (ramp(1, 1),), [[5, 6, 7], [15, 16, 17]]),
    Correction("0.4", summed_on_the_way, (PAIR, PAIR), 2 * PAIR),
    Correction("0.4", both_are_true, (np.array([[0, 0, 1, 1]], F32), np.array([[0, 1, 0, 1]], F32)),
               [[0, 0, 0, 1]]),
    Correction("0.4", transposed_by_the_engine_asked_for, (PAIR[:, :2],), [[1, 5], [2, 6]]),
]  # fmt: skip


@pytest.mark.parametrize("row", CORRECTIONS, ids=[c.kernel.__name__ for c in CORRECTIONS])
def test_a_correction_of_the_release_notes_holds(row):
    with chosen(target=row.target):
        if row.warns:
            with pytest.warns(NkilabWarning, match=row.warns):
                result = nki.simulate(row.kernel)(*row.inputs)
        else:
            result = nki.simulate(row.kernel)(*row.inputs)
    np.testing.assert_array_equal(result, np.asarray(row.expected))


def test_a_tensor_of_one_axis_in_hbm_is_printed(capsys):
    """0.4: device_print takes tensors of any rank."""

    @nki.jit
    def kernel(x):
        nl.device_print("x ", x)
        return out_of(nl.load(x))

    kernel(ramp(3))
    assert capsys.readouterr().out == "x [0. 1. 2.]\n"


def test_a_kernel_takes_none():
    """0.4: None as an argument."""

    @nki.jit
    def kernel(x, y=None):
        assert y is None
        return out_of(nl.load(x))

    np.testing.assert_array_equal(kernel(PAIR, None), PAIR)


@pytest.mark.torch
def test_booleans_come_back_as_booleans():
    """0.4: torch.bool stays."""
    torch = pytest.importorskip("torch")

    @nki.jit
    def kernel(x):
        return out_of(nl.less(nl.load(x), 3, dtype=nl.bool_))

    result = kernel(torch.tensor([[1.0, 2.0, 3.0]]))
    assert result.dtype == torch.bool
    assert result.tolist() == [[True, True, False]]


@pytest.mark.jax
def test_jax_types_are_types():
    """0.4: scalar types of JAX as arguments."""
    jnp = pytest.importorskip("jax.numpy")

    @nki.jit
    def kernel(x, dtype):
        return out_of(nl.copy(nl.load(x), dtype=dtype))

    assert kernel(PAIR, jnp.bfloat16).dtype == ml_dtypes.bfloat16


def test_all_rows_of_a_compute_operand_fit_the_partitions():
    """0.6: a clear error where an operand has more than 128 partitions."""

    @nki.jit
    def kernel(x):
        nl.ndarray((129, 2), nl.float32)

    with pytest.raises(nisa.NkiValidationError, match="number of partitions 129 exceed"):
        kernel(PAIR)
