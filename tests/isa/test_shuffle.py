"""nc_stream_shuffle against rows taken by hand."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab.isa import REGISTRY
from nkilab.machine import MACHINES
from nkilab.tiles.dtypes import DTYPES
from nkilab.tiles.tile import array_of
from tests.isa.warned import heard
from tests.uses import Tile, call, form_of, new_tile, open_session, part_of, result, smallest_use

SHUFFLE, TENSOR_COPY, DMA_COPY = (REGISTRY[n] for n in ("nc_stream_shuffle", "tensor_copy", "dma_copy"))
KEEP = 255
TURN = [(i - 1) % 32 for i in range(32)]


def rows(count: int, width: int = 3) -> np.ndarray:
    return np.arange(count * width, dtype=np.float32).reshape(count, width)


@pytest.mark.parametrize("count", [32, 64, 96, 128])
def test_each_quadrant_is_shuffled_by_itself(count: int) -> None:
    got = result(SHUFFLE, (count, 3), src=rows(count), shuffle_mask=TURN)
    order = [q + (i - 1) % 32 for q in range(0, count, 32) for i in range(32)]
    np.testing.assert_array_equal(got, rows(count)[order])


def test_one_row_is_broadcast_over_a_quadrant() -> None:
    got = result(SHUFFLE, (32, 3), src=rows(1), shuffle_mask=[0] * 32)
    np.testing.assert_array_equal(got, np.repeat(rows(1), 32, axis=0))


def test_a_shuffle_in_place_reads_all_before_it_writes() -> None:
    session = open_session(MACHINES["trn2"])
    tile = new_tile(session, rows(32))
    call(session, SHUFFLE, dst=tile, src=tile, shuffle_mask=TURN)
    np.testing.assert_array_equal(array_of(tile), rows(32)[TURN])


def test_255_keeps_the_row_of_dst() -> None:
    # NKI 0.4 release notes: it is not zeroed
    session = open_session(MACHINES["trn2"])
    dst = new_tile(session, np.full((64, 3), -1.0))
    mask = [5, KEEP] * 16
    call(session, SHUFFLE, dst=dst, src=new_tile(session, rows(64)), shuffle_mask=mask)
    np.testing.assert_array_equal(array_of(dst)[0::2], rows(64)[[5] * 16 + [37] * 16])
    assert (array_of(dst)[1::2] == -1).all()


def test_a_kept_row_that_nothing_wrote_stays_unwritten() -> None:
    session = open_session(MACHINES["trn2"])
    dst, src = new_tile(session, Tile((32, 3)), name="t"), new_tile(session, rows(32))
    with heard() as texts:
        call(session, SHUFFLE, dst=dst, src=src, shuffle_mask=[*range(16), *[KEEP] * 16])
        lower = part_of(dst, (0, 0), (16, 3))
        call(session, TENSOR_COPY, dst=new_tile(session, Tile((16, 3))), src=lower)
        call(session, DMA_COPY, dst=new_tile(session, Tile((32, 3), memory="hbm")), src=dst)
    assert texts == [
        "reads t: float32[32, 3] in sbuf, which was written in part only; unwritten elements read as nan"
    ]


def test_a_shuffle_reads_dst_only_where_it_keeps_some() -> None:
    machine = MACHINES["trn2"]
    assert not form_of(SHUFFLE, machine, smallest_use(SHUFFLE, {"shuffle_mask": TURN})).reads_dst
    assert form_of(SHUFFLE, machine, smallest_use(SHUFFLE, {"shuffle_mask": [KEEP, *TURN[1:]]})).reads_dst
    # 16 rows of dst: what the mask says of the others does not matter
    beyond = [0] * 16 + [KEEP] * 16
    assert not form_of(SHUFFLE, machine, smallest_use(SHUFFLE, {"shuffle_mask": beyond})).reads_dst


@pytest.mark.parametrize("name", DTYPES)
def test_bits_move_as_they_are(name: str) -> None:
    storage = DTYPES[name].storage
    draw = np.random.default_rng(1).integers(
        0, 2 if name == "bool" else 256, (32, 2 * storage.itemsize), np.uint8
    )
    data = draw.view(storage)
    session = open_session(MACHINES["trn2"])
    dst, src = new_tile(session, Tile((32, 2), name)), new_tile(session, Tile((32, 2), name))
    src.storage.allocate(data.copy())
    src.storage.written.fill()
    call(session, SHUFFLE, dst=dst, src=src, shuffle_mask=TURN)
    assert np.ascontiguousarray(array_of(dst)).tobytes() == data[TURN].tobytes()


def test_sides_may_have_other_free_axes_and_lie_in_other_quadrants() -> None:
    session = open_session(MACHINES["trn2"])
    dst, src = new_tile(session, np.zeros((128, 2, 2))), new_tile(session, rows(64, 4))
    upper = part_of(src, (32, 0), (32, 4))
    flat = new_tile(session, np.zeros((128, 4)))
    call(session, SHUFFLE, dst=part_of(flat, (96, 0), (32, 4)), src=upper, shuffle_mask=list(range(32)))
    np.testing.assert_array_equal(array_of(flat)[96:], rows(64, 4)[32:])
    call(session, SHUFFLE, dst=dst, src=flat, shuffle_mask=list(range(32)))
    np.testing.assert_array_equal(array_of(dst).reshape(128, 4), array_of(flat))
