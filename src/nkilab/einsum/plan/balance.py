"""Sharing out what VectorE and ScalarE can both do: sums of rows, and copies out of PSUM.

Both are VectorE's by rule. Where it has more to do in a part of a kernel than ScalarE and TensorE, ScalarE
takes over sums, which it adds up while it copies, and copies or blocks of them, until both are done at the
same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...machine import Machine
from ...tiles.dtypes import as_dtype
from ..hardware import Hardware, weighted
from ..room import views_of
from ..tree import nodes
from ..tree.expr import expr

# columns from which a sum takes longer than it takes to begin
BANK = 512
# VectorE is relieved where it has so many times as much to do as the other engines
MARGIN = 1.1


def columns_of(view: nodes.View) -> int:
    """Elements per partition of a view; a ragged one as many as its tile has."""
    found = 1
    held = zip(view.index, view.buffer.shape, strict=False)
    for index, extent in list(held)[1:] if len(view.index) == len(view.buffer.shape) else ():
        if isinstance(index, nodes.Cut):
            found *= index.count.value or expr(extent).value or 1
    return found


def balanced(kernel: nodes.Kernel, machine: Machine) -> nodes.Kernel:
    """A kernel in which ScalarE takes over copies, nest after nest, where VectorE has most to do."""
    for statement in kernel.body:
        if isinstance(statement, nodes.Loop):
            _Part(statement, Hardware(machine)).relieve()
    return kernel


class _Part:
    def __init__(self, loop: nodes.Loop, hardware: Hardware) -> None:
        self.loop, self.hardware = loop, hardware
        # columns of a piece of a copy
        self.least = int(hardware.machine["partitions"])
        times = hardware.total([loop])
        self.vector, self.scalar = (times.get(e, 0.0) for e in ("vector", "scalar"))
        self.others = times.get("tensor", 0.0)

    def relieve(self) -> None:
        """Move copies, those with most to do first, as long as that helps."""
        if self.vector <= MARGIN * max(self.scalar, self.others):
            return
        chained = set(_chained([self.loop]))
        for statement, times in weighted([self.loop]):
            if isinstance(statement, nodes.Reduce) and statement.op == "add" and id(statement) not in chained:
                self.summed(statement, times)
        copies = [
            (s, times)
            for s, times in weighted([self.loop])
            if isinstance(s, nodes.Copy) and not s.engine and s.src.buffer.memory == nodes.PSUM
            and as_dtype(s.dst.buffer.dtype).is_float
        ]  # fmt: skip
        for copy, times in sorted(copies, key=lambda c: -c[1] * columns_of(c[0].dst)):
            self.share(copy, times)

    def summed(self, reduce: nodes.Reduce, times: int) -> None:
        """Give a sum of rows to ScalarE, which copies them onto themselves, if both end sooner."""
        src = reduce.src
        if len(src.cuts) != 2 or not as_dtype(src.buffer.dtype).is_float:
            return
        other = nodes.Activate(src, "copy", src, total=reduce.dst)
        vector = self.vector - self.hardware.of(reduce)[1] * times
        scalar = self.scalar + self.hardware.of(other)[1] * times
        if max(vector, scalar) < max(self.vector, self.scalar):
            self.vector, self.scalar = vector, scalar
            _exchange(self.loop.body, reduce, [other])

    def share(self, copy: nodes.Copy, times: int) -> None:
        """Give as many blocks of a copy to ScalarE as lets both end soonest."""
        blocks, whole = _pieces(copy, self.least)[0], self.hardware.of(copy)[1]

        def ends(taken: int) -> tuple[float, float]:
            pieces = _split(copy, blocks - taken, self.least) if taken else [copy]
            work = dict(map(self.hardware.of, pieces))
            return (
                self.vector + (work.get("vector", 0.0) - whole) * times,
                self.scalar + work.get("scalar", 0.0) * times,
            )

        best = min(range(blocks + 1), key=lambda n: max(ends(n)))
        if max(ends(best)) * MARGIN**0.25 < max(self.vector, self.scalar):
            self.vector, self.scalar = ends(best)
            _exchange(self.loop.body, copy, _split(copy, blocks - best, self.least))


def _chained(body: list[nodes.Statement], is_sequential: bool = False) -> Iterator[int]:
    """Short sums that the rest of a turn waits for: ScalarE begins too late for them."""
    readers = [s for s in body if not isinstance(s, nodes.Loop | nodes.Store | nodes.Tally)]
    read = {id(v.buffer) for s in readers for n, v in views_of(s) if n != "dst"}
    for statement in body:
        if isinstance(statement, nodes.Loop):
            yield from _chained(statement.body, statement.is_sequential)
        elif not isinstance(statement, nodes.Reduce) or not is_sequential:
            continue
        elif columns_of(statement.src) < BANK and id(statement.dst.buffer) in read:
            yield id(statement)


def _pieces(copy: nodes.Copy, least: int) -> tuple[int, int, int]:
    """Pieces that a copy may be cut into, the axis, and how much of it each has.

    The least columns make a piece, as other instructions made them and will read them; of a copy of several
    blocks with no more columns, a block does.
    """
    cuts = copy.dst.cuts, copy.src.cuts
    axis = len(cuts[0]) - 1
    if len(cuts[0]) != len(cuts[1]) or axis not in (1, 2):
        return 1, 1, 0
    columns = cuts[0][axis].count.value or 1
    if columns == cuts[1][axis].count.value and columns % least == 0 and columns > least:
        return columns // least, axis, least
    if axis == 2 and cuts[0][1].count == cuts[1][1].count:
        return cuts[0][1].count.value or 1, 1, 1
    return 1, 1, 0


def _split(copy: nodes.Copy, first: int, least: int) -> list[nodes.Statement]:
    """A copy of which VectorE makes so many pieces, the last ones; none for 0."""
    if first == 0:
        return [replace(copy, engine="scalar")]
    pieces, axis, each = _pieces(copy, least)
    whole, rest = pieces * each, (pieces - first) * each
    return [
        nodes.Copy(_piece(copy.dst, axis, 0, rest), _piece(copy.src, axis, 0, rest), "scalar"),
        replace(
            copy,
            dst=_piece(copy.dst, axis, rest, whole - rest),
            src=_piece(copy.src, axis, rest, whole - rest),
        ),
    ]


def _piece(view: nodes.View, axis: int, start: int, count: int) -> nodes.View:
    place = [n for n, i in enumerate(view.index) if isinstance(i, nodes.Cut)][axis]
    held = view.cuts[axis]
    cut = nodes.Cut(held.start + start * held.step, expr(count), held.step)
    return replace(view, index=(*view.index[:place], cut, *view.index[place + 1 :]))


def _exchange(body: list[nodes.Statement], old: nodes.Statement, new: list[nodes.Statement]) -> None:
    for place, statement in enumerate(body):
        if statement is old:
            body[place : place + 1] = new
            return
        if isinstance(statement, nodes.Loop):
            _exchange(statement.body, old, new)
