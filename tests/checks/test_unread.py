"""Which part of an input nothing reads, against elements that are marked one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nkilab.checks.unread import _unread

SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)


@st.composite
def reads(draw: st.DrawFn) -> tuple[tuple[int, ...], list[list[slice]]]:
    """A shape and some blocks of it."""
    shape = draw(SHAPES)
    blocks = []
    for _ in range(draw(st.integers(1, 4))):
        low = [draw(st.integers(0, size - 1)) for size in shape]
        blocks.append([slice(n, draw(st.integers(n + 1, size))) for n, size in zip(low, shape, strict=True)])
    return shape, blocks


@given(reads())
def test_the_first_unread_element_begins_a_block_that_nothing_reads(
    case: tuple[tuple[int, ...], list[list[slice]]],
) -> None:
    shape, blocks = case
    is_read = np.zeros(shape, np.bool_)
    for block in blocks:
        is_read[tuple(block)] = True
    itemsize = 4
    low, high = (
        np.array(
            [
                [*(getattr(b, side) for b in block[:-1]), getattr(block[-1], side) * itemsize]
                for block in blocks
            ]
        )
        for side in ("start", "stop")
    )
    block = _unread(shape, itemsize, (low, high))
    if is_read.all():
        assert block == ()
    else:
        assert [start for start, _ in block] == np.argwhere(~is_read)[0].tolist()
        assert not is_read[tuple(slice(*ends) for ends in block)].any()


def test_a_block_is_as_large_as_it_can_be_along_its_axes() -> None:
    # rows 2 and 3 of four, columns all
    assert _unread((4, 8), 4, (np.array([[0, 0]]), np.array([[2, 32]]))) == ((2, 4), (0, 8))
    # columns 6 and 7 of the first two rows; the rows below are read to the end
    assert _unread((4, 8), 4, (np.array([[0, 0], [2, 0]]), np.array([[2, 24], [4, 32]]))) == ((0, 2), (6, 8))


def test_what_was_not_loaded_is_not_missed() -> None:
    # rows 0 and 1 are loaded, columns 0 to 3 of them are read
    loaded = np.array([[0, 0]]), np.array([[2, 32]])
    read = np.array([[0, 0]]), np.array([[2, 16]])
    assert _unread((4, 8), 4, read, loaded) == ((0, 2), (4, 8))
    assert _unread((4, 8), 4, loaded, loaded) == ()
