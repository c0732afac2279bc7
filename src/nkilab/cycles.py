"""Python's search for cycles that nothing reaches, made seldom while much is made and little dropped."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

# objects made from one search to the next
SELDOM = 200_000
_LOCK, _BEFORE = Lock(), list[tuple[int, int, int]]()


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Search seldom inside a block; after the last block that is open, of any thread, as before."""
    with _LOCK:
        _BEFORE.append(_BEFORE[0] if _BEFORE else gc.get_threshold())
        first, *others = _BEFORE[0]  # where that is 0, Python does not search
        gc.set_threshold(first and max(SELDOM, first), *others)
    try:
        yield
    finally:
        _as_before()


def _as_before() -> None:
    with _LOCK:
        before = _BEFORE.pop()
        if not _BEFORE:
            gc.set_threshold(*before)
