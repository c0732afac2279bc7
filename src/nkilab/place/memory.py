"""A memory that tiles are placed in: segments in a ring, next-fit, so that freed space is reused last."""

from __future__ import annotations

_NOBODY = -1


class Ring:
    """A memory as a list of segments, each free or taken, each remembering who held it last.

    Taking starts where the last taking ended and goes round: short-lived tiles rotate through everything that
    is free, which is as much multi-buffering as the memory allows. A tile for which no run of free segments
    is long enough while enough is free in all is placed in pieces: a compiler that sees the whole program
    would have placed its neighbours closer together.

    Args:
        size: of the memory, in units (bytes per partition, or banks).
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.free = size
        self.peak = 0
        self._start = [0]
        self._length = [size]
        self._next = [0]
        self._holder = [_NOBODY]
        self._is_free = [True]
        self._unused: list[int] = []
        self._cursor = 0
        self._held: dict[int, list[int]] = {}

    def take(self, holder: int, size: int) -> tuple[list[tuple[int, int]], list[int]] | None:
        """Place a tile.

        Args:
            holder: who takes the space.
            size: in units of the memory.

        Returns:
            The pieces (start, size), one unless the memory is scattered, and the former holders of their
            bytes; None if not enough is free.
        """
        if size > self.free:
            return None
        run = self._run(size) or self._scattered(size)
        former, held = [], []
        left = size
        for segment in run:
            if self._length[segment] > left:
                self._split(segment, left)
            left -= self._length[segment]
            former.append(self._holder[segment])
            self._holder[segment], self._is_free[segment] = holder, False
            held.append(segment)
        self._cursor = self._next[run[-1]]
        self._held[holder] = held
        self.free -= size
        self.peak = max(self.peak, self.size - self.free)
        pieces = [(self._start[s], self._length[s]) for s in held]
        return _joined(pieces), sorted(set(former) - {_NOBODY})

    def give_back(self, holder: int) -> None:
        """Free what `holder` took; it stays known as the last holder of those bytes."""
        for segment in self._held.pop(holder):
            self._is_free[segment] = True
            self.free += self._length[segment]
            self._absorb(segment)

    def _run(self, size: int) -> list[int]:
        """Neighbouring free segments from the cursor on that hold `size`; empty if there are none."""
        run: list[int] = []
        length = 0
        segment = self._cursor
        # once round, and on to complete a run that began before the end of the round
        for _ in range(2 * (len(self._start) - len(self._unused))):
            if not self._is_free[segment] or (run and self._start[segment] == 0):
                run, length = [], 0
            if self._is_free[segment]:
                run.append(segment)
                length += self._length[segment]
            if length >= size and run:
                return run
            segment = self._next[segment]
        return []

    def _scattered(self, size: int) -> list[int]:
        run: list[int] = []
        segment = self._cursor
        while size > 0:
            if self._is_free[segment]:
                run.append(segment)
                size -= self._length[segment]
            segment = self._next[segment]
        return run

    def _split(self, segment: int, length: int) -> None:
        """Cut `segment` after `length`; the rest becomes a segment of its own."""
        rest = self._unused.pop() if self._unused else len(self._start)
        if rest == len(self._start):
            for column in (self._start, self._length, self._next, self._holder):
                column.append(0)
            self._is_free.append(True)
        self._start[rest] = self._start[segment] + length
        self._length[rest] = self._length[segment] - length
        self._next[rest], self._next[segment] = self._next[segment], rest
        self._holder[rest], self._is_free[rest] = self._holder[segment], self._is_free[segment]
        self._length[segment] = length

    def _absorb(self, segment: int) -> None:
        """Join `segment` with the free segments after it that had the same holder."""
        follower = self._next[segment]
        while (
            follower != segment
            and self._start[follower] > self._start[segment]
            and self._is_free[follower]
            and self._holder[follower] == self._holder[segment]
        ):
            self._length[segment] += self._length[follower]
            self._next[segment] = self._next[follower]
            if self._cursor == follower:
                self._cursor = segment
            self._unused.append(follower)
            follower = self._next[segment]


def _joined(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """`pieces` with neighbours made one."""
    result: list[tuple[int, int]] = []
    for start, length in pieces:
        if result and sum(result[-1]) == start:
            result[-1] = (result[-1][0], result[-1][1] + length)
        else:
            result.append((start, length))
    return result
