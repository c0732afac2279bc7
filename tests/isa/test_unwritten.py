"""Reads of elements that nothing wrote: their value, one warning per line, and the bits that tell."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab.dialects.indexing import basic as sliced
from nkilab.isa import REGISTRY
from nkilab.machine import MACHINES
from nkilab.tiles.dtypes import DTYPES
from nkilab.tiles.tile import array_of
from nkilab.tiles.views import reinterpreted
from tests.isa.warned import heard
from tests.uses import Tile, call, new_tile, open_session, part_of

TENSOR_COPY, MEMSET, DMA_COPY = REGISTRY["tensor_copy"], REGISTRY["memset"], REGISTRY["dma_copy"]
ACTIVATION, TENSOR_TENSOR = REGISTRY["activation"], REGISTRY["tensor_tensor"]


@pytest.mark.parametrize("name", DTYPES)
def test_a_tile_never_written_reads_nan_or_the_most_negative_integer(name: str) -> None:
    session = open_session(MACHINES["trn2"])
    src, dst = new_tile(session, Tile((4, 8), name), name="acc"), new_tile(session, Tile((4, 8), name))
    with heard(__file__) as texts:
        call(session, TENSOR_COPY, dst=dst, src=src)
    dtype = DTYPES[name]
    if dtype.is_packed:
        lowest = (2 ** (8 * dtype.itemsize) - 1,)  # every bit is set
        assert (np.ascontiguousarray(array_of(dst)).view(np.uint8) == 0xFF).all()
    elif dtype.is_float:
        assert np.isnan(array_of(dst).astype(np.float32)).all()
    else:
        lowest = {"int8": -128, "int16": -32768, "int32": -(2**31)}.get(name, 0)
        assert (array_of(dst) == lowest).all()
    value = "nan" if dtype.is_float else "False" if name == "bool" else str(lowest)
    assert texts == [
        f"reads acc: {name}[4, 8] in sbuf, which was never written; unwritten elements read as {value}"
    ]


def test_a_line_warns_once_and_another_line_again() -> None:
    session = open_session(MACHINES["trn2"])
    src, dst = new_tile(session, Tile((4, 8))), new_tile(session, Tile((4, 8)))
    with heard(__file__) as texts:
        for _ in range(3):
            call(session, TENSOR_COPY, dst=dst, src=src)
        call(session, TENSOR_COPY, dst=dst, src=src)
    assert len(texts) == 2


def test_a_tile_that_holds_nan_because_it_was_written_gives_no_warning() -> None:
    session = open_session(MACHINES["trn2"])
    src = new_tile(session, Tile((4, 8)))
    dst = new_tile(session, Tile((4, 8)))
    with heard(__file__) as texts:
        call(session, MEMSET, dst=src, value=float("nan"))
        call(session, TENSOR_COPY, dst=dst, src=src)
    assert np.isnan(array_of(dst)).all()
    assert texts == []


def test_reading_the_written_part_gives_no_warning_and_its_values() -> None:
    session = open_session(MACHINES["trn2"])
    tile, dst = new_tile(session, Tile((4, 8))), new_tile(session, Tile((4, 3)))
    with heard(__file__) as texts:
        call(session, MEMSET, dst=part_of(tile, (0, 2), (4, 3)), value=5)
        call(session, TENSOR_COPY, dst=dst, src=part_of(tile, (0, 2), (4, 3)))
    assert (array_of(dst) == 5).all()
    assert texts == []


def test_copying_more_than_was_written_keeps_what_was_and_hands_on_the_rest() -> None:
    session = open_session(MACHINES["trn2"])
    tile, dst = new_tile(session, Tile((2, 4)), name="row"), new_tile(session, Tile((2, 4)))
    call(session, MEMSET, dst=part_of(tile, (0, 1), (2, 2)), value=5)
    with heard(__file__) as texts:
        call(session, TENSOR_COPY, dst=dst, src=tile)
    np.testing.assert_array_equal(array_of(dst), [[np.nan, 5, 5, np.nan]] * 2)
    assert dst.storage.written.missing(dst).tolist() == [[True, False, False, True]] * 2
    assert texts == []


def test_a_tile_written_in_pieces_is_written() -> None:
    session = open_session(MACHINES["trn2"])
    tile, dst = new_tile(session, Tile((4, 8))), new_tile(session, Tile((4, 8)))
    with heard(__file__) as texts:
        for column in range(0, 8, 2):
            call(session, MEMSET, dst=part_of(tile, (0, column), (4, 2)), value=column)
        call(session, TENSOR_COPY, dst=dst, src=tile)
    assert array_of(dst)[0].tolist() == [0, 0, 2, 2, 4, 4, 6, 6]
    assert texts == []


def test_a_tile_written_as_two_interleaved_halves_is_written() -> None:
    # float32 bits of 1.0 are 0x3f80, 0x0000: the upper uint16 stands second
    session = open_session(MACHINES["trn2"])
    tile, dst = new_tile(session, Tile((4, 8))), new_tile(session, Tile((4, 8)))
    halves = reinterpreted(tile, DTYPES["uint16"])
    with heard(__file__) as texts:
        for first, value in ((0, 0), (1, 0x3F80)):
            half = sliced(halves, (slice(0, 4, 1), slice(first, 16, 2)))
            call(session, MEMSET, dst=half, value=value)
        call(session, TENSOR_COPY, dst=dst, src=tile)
    assert (array_of(dst) == 1).all()
    assert texts == []


def test_a_masked_write_leaves_the_rest_as_it_was() -> None:
    session = open_session(MACHINES["trn2"])
    tile = new_tile(session, np.full((2, 4), 7.0))
    mask = np.array([[True, False, True, False], [False, False, False, True]])
    call(session, MEMSET, mask, dst=tile, value=1)
    np.testing.assert_array_equal(array_of(tile), np.where(mask, 1, 7))


def test_a_masked_write_writes_where_the_mask_is_true_only() -> None:
    session = open_session(MACHINES["trn2"])
    tile, dst = new_tile(session, Tile((2, 4)), name="t"), new_tile(session, Tile((2, 4)))
    mask = np.array([[True, True, False, False]])
    call(session, MEMSET, mask, dst=tile, value=1)
    with heard(__file__) as texts:
        call(session, TENSOR_COPY, dst=new_tile(session, Tile((2, 2))), src=part_of(tile, (0, 0), (2, 2)))
        call(session, TENSOR_COPY, dst=dst, src=tile)
    np.testing.assert_array_equal(array_of(dst), [[1, 1, np.nan, np.nan]] * 2)
    assert dst.storage.written.missing(dst).tolist() == [[False, False, True, True]] * 2
    assert texts == []


def test_a_transfer_that_adds_reads_dst() -> None:
    session = open_session(MACHINES["trn2"])
    dst, src = new_tile(session, Tile((2, 4), memory="hbm"), name="out"), new_tile(session, np.ones((2, 4)))
    with heard(__file__) as texts:
        call(session, DMA_COPY, dst=dst, src=src, dst_rmw_op="add")
    assert np.isnan(array_of(dst)).all()
    assert texts == [
        "reads out: float32[2, 4] in hbm, which was never written; unwritten elements read as nan"
    ]


def test_two_kinds_of_warning_on_one_line_are_both_heard() -> None:
    session = open_session(MACHINES["trn2"])
    bias = new_tile(session, Tile((1, 1)), name="bias")
    data, dst = new_tile(session, [[-1.0]]), new_tile(session, Tile((1, 1)))
    with heard(__file__) as texts:
        for scale in (bias, 1.0):
            call(session, ACTIVATION, dst=dst, op="log", data=data, scale=scale)
    assert [text.split(",")[0].split(":")[0] for text in texts] == ["reads bias", "activation"]


def test_an_operand_read_twice_by_one_instruction_warns_once() -> None:
    session = open_session(MACHINES["trn2"])
    tile = new_tile(session, Tile((1, 4)))
    with heard(__file__) as texts:
        call(session, TENSOR_TENSOR, dst=new_tile(session, Tile((1, 4))), data1=tile, data2=tile, op="add")
    assert len(texts) == 1


def test_shapes_alone_neither_compute_nor_warn() -> None:
    session = open_session(MACHINES["trn2"], has_data=False)
    src, dst = new_tile(session, Tile((4, 8))), new_tile(session, Tile((4, 8)))
    with heard(__file__) as texts:
        call(session, TENSOR_COPY, dst=dst, src=src)
    assert texts == []
    assert dst.storage.data is None
    assert len(session.program) == 1


def test_a_masked_read_of_what_the_same_mask_wrote_gives_no_warning() -> None:
    session = open_session(MACHINES["trn2"])
    tile, dst = new_tile(session, Tile((2, 4))), new_tile(session, np.full((2, 4), 7.0))
    mask = np.array([[True, True, True, False]])
    with heard(__file__) as texts:
        call(session, MEMSET, mask, dst=tile, value=1)
        call(session, TENSOR_COPY, mask, dst=dst, src=tile)
    np.testing.assert_array_equal(array_of(dst), [[1, 1, 1, 7]] * 2)
    assert texts == []


def test_a_masked_copy_beyond_what_was_written_hands_on_the_rest() -> None:
    session = open_session(MACHINES["trn2"])
    tile, dst = new_tile(session, Tile((2, 4)), name="t"), new_tile(session, np.full((2, 4), 7.0))
    with heard(__file__) as texts:
        call(session, MEMSET, np.array([[True, True, False, False]]), dst=tile, value=1)
        call(session, TENSOR_COPY, np.array([[True, True, True, False]]), dst=dst, src=tile)
    np.testing.assert_array_equal(array_of(dst), [[1, 1, np.nan, 7]] * 2)
    assert dst.storage.written.missing(dst).tolist() == [[False, False, True, False]] * 2
    assert texts == []


def test_a_mask_over_dst_leaves_a_second_result_whole() -> None:
    session = open_session(MACHINES["trn2"])
    dst, res = new_tile(session, Tile((2, 4))), new_tile(session, Tile((2, 1)))
    data, sums = new_tile(session, np.ones((2, 4))), new_tile(session, Tile((2, 1)))
    mask = np.array([[True, True, True, False]] * 2)
    with heard(__file__) as texts:
        call(
            session, REGISTRY["activation_reduce"], mask, dst=dst, op="copy", data=data,
            reduce_op="add", reduce_res=res,
        )  # fmt: skip
        call(session, TENSOR_COPY, dst=sums, src=res)
    assert array_of(sums)[:, 0].tolist() == [4, 4]
    assert texts == []
