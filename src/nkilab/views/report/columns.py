"""Columns of numbers as text in a page: typed arrays one after the other, compressed, in base64."""

from __future__ import annotations

import base64
import gzip
from math import ceil, log10

import numpy as np

# The largest number of ticks that a latency has; twice that fits into 32 bits.
_MOST_TICKS = 2e9
_FINEST = 1e-3


def tick_of(latency_ns: float) -> float:
    """Nanoseconds per tick, a power of ten: times of the page are whole ticks in 32 bits."""
    return max(_FINEST, 10.0 ** ceil(log10(max(latency_ns, 1.0) / _MOST_TICKS)))


class Columns:
    """Columns under construction: little-endian typed arrays, each padded to four bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._listed: list[list[object]] = []
        self._size = 0

    def add(self, name: str, values: np.ndarray, kind: str = "u4", *, is_delta: bool = False) -> None:
        """Append a column.

        Args:
            name: in the page.
            values: whole numbers, or fractions for "f4".
            kind: "u1", "u2", "u4", "i4" or "f4".
            is_delta: whether each number is held as the difference to the one before it, modulo 2 ** 32;
                columns that ascend get smaller that way.
        """
        numbers = np.asarray(values)
        if kind != "f4":
            numbers = np.rint(numbers).astype(np.int64)
            if is_delta:
                assert kind in ("u4", "i4")
            least, most = (0, 2 ** (8 * int(kind[1])) - 1) if kind[0] == "u" else (-(2**31), 2**31 - 1)
            assert not len(numbers) or (least <= numbers.min() and numbers.max() <= most), (
                f"{name} is out of range"
            )
            numbers = np.diff(numbers, prepend=0) & 0xFFFFFFFF if is_delta else numbers
        content = numbers.astype("<u4" if is_delta else f"<{kind}").tobytes()
        self._listed.append([name, kind, len(numbers), is_delta])
        self._parts.append(content + bytes(-len(content) % 4))
        self._size += len(self._parts[-1])

    def begin(self) -> int:
        """Begin another directory; returns the bytes that stand before its first column."""
        self._listed = []
        return self._size

    @property
    def directory(self) -> list[list[object]]:
        """Per column since `begin` its name, type, length and whether it holds differences."""
        return self._listed

    def text(self) -> str:
        """All columns, gzip in base64; equal columns give equal text."""
        return base64.b64encode(gzip.compress(b"".join(self._parts), 6, mtime=0)).decode()


def narrowest(count: int) -> str:
    """The narrowest type of numbers below `count`."""
    return "u1" if count <= 1 << 8 else "u2" if count <= 1 << 16 else "u4"
