"""Python's search for cycles is made seldom in a block, and as before once the last block is closed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from threading import Event, Thread

import pytest

from nkilab import einsum
from nkilab.cycles import SELDOM, seldom_collected


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 11, 12)
    yield
    gc.set_threshold(*before)


def test_blocks_of_two_threads_end_in_any_order() -> None:
    is_open, is_over = Event(), Event()

    def other() -> None:
        with seldom_collected():
            is_open.set()
            is_over.wait(10)

    thread = Thread(target=other)
    with seldom_collected():
        thread.start()
        assert is_open.wait(10)
    assert gc.get_threshold() == (SELDOM, 11, 12)  # the other's is open still
    is_over.set()
    thread.join()
    assert gc.get_threshold() == (700, 11, 12)


@pytest.mark.parametrize(("first", "inside"), [(0, 0), (10 * SELDOM, 10 * SELDOM), (1, SELDOM)])
def test_who_searches_never_or_more_seldom_still_does(first: int, inside: int) -> None:
    gc.set_threshold(first, 11, 12)
    with seldom_collected():
        assert gc.get_threshold() == (inside, 11, 12)


def test_an_error_of_compiling_leaves_it_as_it_was() -> None:
    with pytest.raises(Exception, match="exp"):
        einsum.compile("Z[m] = A[m] + exp(exq(A[m]))", sizes={"M": 128})
    assert gc.get_threshold() == (700, 11, 12)
