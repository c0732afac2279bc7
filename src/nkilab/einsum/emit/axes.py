"""Which rank each axis of a buffer, and each loop, runs over, and in steps of how many of its elements.

A tensor in HBM has its ranks by declaration. From there they spread: to the axes of tiles that are loaded,
stored, computed element by element or multiplied, and to the loops whose turns go through an axis tile by
tile without gaps. An axis that counts blocks has the elements of a block as its unit.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..language.ast import Cascade
from ..room import views_of
from ..tree import nodes
from ..tree.along import in_order, windowed
from ..tree.expr import Expr, Whole, expr

Place = Hashable
Around = Mapping[str, nodes.Loop]


class Part(NamedTuple):
    """What a view leaves of an axis."""

    axis: Place | None  # it; None for a repetition
    extent: Expr  # how many positions
    each: int = 1  # how many of the axis's elements each of them is
    is_window: bool = False  # whether it is moved along the axis otherwise than by as much as it is long


class Run(NamedTuple):
    """Loops that go through an axis without gaps, the outermost first, each with its factor."""

    axis: Place  # it
    loops: list[tuple[int, nodes.Loop]]  # at least one
    is_whole: bool  # whether they go through all of it


def axis_of(buffer: nodes.Buffer, number: int) -> Place:
    """The key of an axis."""
    return id(buffer), number


def axes_of(view: nodes.View) -> Iterator[tuple[Place, nodes.At | nodes.Cut]]:
    """The axes of a view's buffer with their indices."""
    skipped = len(view.index) - len(view.buffer.shape)
    for number, index in enumerate(view.index[max(skipped, 0) :]):
        yield axis_of(view.buffer, number), index


def parts_of(view: nodes.View, around: Around) -> list[Part]:
    """What a view leaves, in the order in which it is moved."""
    cuts = [(axis, i) for axis, i in axes_of(view) if isinstance(i, nodes.Cut)]
    parts = [
        Part(axis, i.count, i.step, chain(i, around) is None) if cut is i else Part(None, cut.count)
        for axis, i in cuts
        for cut in i.axes
    ]

    def folded(part: Part, rows: Whole) -> list[Part]:
        return [Part(part.axis, expr(rows)), Part(part.axis, part.extent // rows, expr(rows).value or 1)]

    return in_order(view, parts, folded, lambda count: Part(None, count))


def named(loops: Iterable[nodes.Loop]) -> Around:
    """Loops by their variables and the counts of their ragged tiles."""
    return {name: loop for loop in loops for name in (loop.variable, loop.count_name) if name}


def linear(start: Expr, around: Around) -> tuple[list[tuple[int, nodes.Loop]], int] | None:
    """Loops with their factors, the largest first, and what is added to their sum; None if it is no sum."""
    terms, added = [], 0
    for factors, factor in start.terms:
        if not factors:
            added = factor
        elif len(factors) == 1 and isinstance(factors[0], str) and factors[0] in around:
            terms.append((factor, around[factors[0]]))
        else:
            return None
    return sorted(terms, key=lambda term: -abs(term[0])), added


@dataclass(frozen=True)
class Step:
    """The rank of an axis or loop, and how many of its elements one position is."""

    rank: str
    unit: int


class Axes:
    """The ranks of a tree's axes and loops."""

    def __init__(self, kernel: nodes.Kernel, cascade: Cascade) -> None:
        # in the order in which the tree meets them, which no name decides
        self.sizes: dict[str, int] = {}
        self.steps: dict[Place, Step] = {}
        self.statements = [(s, named(loops)) for s, loops in nodes.walked(kernel.body)]
        # equal ranks: one index runs over both
        self.same: dict[str, str] = {}
        for statement, _ in self.statements:
            for _, view in views_of(statement):
                self._declare(view.buffer, cascade)
                self._declare(windowed(view.buffer), cascade)
        for argument in (a for a in kernel.arguments if a.declared != a.shape and a.declared):
            for rank in cascade.tensors[argument.name].ranks:
                self.sizes.setdefault(rank, cascade.sizes[rank])
        # what is stored says best what a loop runs over, and what is gone through whole says more than parts
        ordered = sorted(self.statements, key=lambda s: not isinstance(s[0], nodes.Store))
        # a comparison in place goes where its condition decides, not through all of an axis
        views = (
            (v, around) for s, around in ordered if not isinstance(s, nodes.Select) for _, v in views_of(s)
        )
        runs = [run for v, around in views for run in runs_of(v, around)]
        # positions of two axes go together: as many, and more than one
        every = (pair for s, around in ordered for pair in pairs_of(s, around))
        pairs = [(one, two) for one, two in every if one.extent == two.extent and one.extent.value != 1]
        self._spread(
            [run for run in runs if run.is_whole],
            [p for p in pairs if not (p[0].is_window or p[1].is_window)],
        )
        self._spread(runs, pairs)

    def _spread(self, runs: Sequence[Run], pairs: Sequence[tuple[Part, Part]]) -> None:
        """Ranks go from axes to loops and other axes until nothing new is known."""
        known = -1
        while known < len(self.steps):
            known = len(self.steps)
            for run in runs:
                self._through(run)
            for one, other in pairs:
                self._pair(one, other)

    def step(self, place: Place) -> Step | None:
        """The rank and unit of an axis or loop, where known."""
        step = self.steps.get(place)
        return None if step is None else Step(self.root(step.rank), step.unit)

    def root(self, rank: str) -> str:
        """The first of the ranks that are the same."""
        while rank in self.same:
            rank = self.same[rank]
        return rank

    def _declare(self, buffer: nodes.Buffer, cascade: Cascade) -> None:
        """The ranks of a tensor in HBM: as declared, or several as one, or parts of one."""
        tensor = cascade.tensors.get(buffer.tensor or buffer.name)
        if tensor is None or buffer.memory != nodes.HBM or axis_of(buffer, 0) in self.steps:
            return
        shape = [expr(extent).value or 0 for extent in buffer.shape]
        parts = (
            (axis, "".join(ranks) + (str(number) if len(axes) > 1 else ""))
            for axes, ranks in aligned(shape, [(r, cascade.sizes.get(r, 0)) for r in tensor.ranks])
            for number, axis in enumerate(axes)
        )
        for axis, rank in parts:
            if self.sizes.setdefault(rank, shape[axis]) == shape[axis]:
                self.steps[axis_of(buffer, axis)] = Step(rank, 1)

    def _pair(self, one: Part, other: Part) -> None:
        """Two axes, position by position."""
        for part, known in ((one, other), (other, one)):
            step = self.steps.get(known.axis)
            if step is not None and part.axis is not None:
                self._set(part.axis, step.rank, step.unit * known.each, part.each)

    def _set(self, place: Place, rank: str, unit: int, divisor: int) -> None:
        """The step of a place of which `divisor` positions are a unit of elements of a rank."""
        if unit % divisor:
            return
        known = self.steps.setdefault(place, Step(rank, unit // divisor))
        first, second = self.root(known.rank), self.root(rank)
        is_same = known.unit * divisor == unit and self.sizes[first] == self.sizes[second]
        if first != second and is_same:
            names = [r for r in self.sizes if r in (first, second)]
            self.same[names[1]] = names[0]

    def _through(self, run: Run) -> None:
        """The loops that go through an axis without gaps."""
        known = self.steps.get(run.axis)
        for factor, loop in reversed(run.loops):
            step = self.steps.get(id(loop))
            if known is not None:
                self._set(id(loop), known.rank, known.unit * factor, 1)
            elif step is not None:
                self._set(run.axis, step.rank, step.unit, factor)


def runs_of(view: nodes.View, around: Around) -> Iterator[Run]:
    """The axes of a view that loops go through without gaps."""
    for (axis, index), extent in zip(axes_of(view), view.buffer.shape, strict=False):
        loops = chain(index, around)
        if loops:
            factor, loop = loops[0]
            span, whole = factor * (expr(loop.trips).value or 0), expr(extent).value or 0
            span += factor * loop.apart
            is_whole = span - factor < whole <= span
            yield Run(axis, loops, is_whole)


def chain(index: nodes.At | nodes.Cut, around: Around) -> list[tuple[int, nodes.Loop]] | None:
    """The loops that go through an axis tile by tile without gaps, the outermost first; None if others do."""
    cut = index if isinstance(index, nodes.Cut) else nodes.Cut(index.at, expr(1))
    terms = linear(cut.start, around)
    if terms is None or cut.step != 1:
        return None
    span = count_in(cut.count, around)
    for factor, loop in reversed(terms[0]):
        if factor != span:
            return None
        span *= expr(loop.trips).value or 0
    return terms[0]


def count_in(count: Expr, around: Around) -> int:
    """How many positions a full tile has; 0 if that is no number."""
    names = tuple(count.names)
    is_ragged = len(names) == 1 and str(count) == names[0] and names[0] in around
    return around[names[0]].most_count if is_ragged else count.value or 0


def pairs_of(s: nodes.Statement, around: Around) -> Iterator[tuple[Part, Part]]:
    """Axes that a statement goes through together."""
    match s:
        case nodes.MatMul(dst, stationary, moving, _):
            written, still, moved = (parts_of(view, around) for view in (dst, stationary, moving))
            yield from ((still[0], moved[0]), (written[0], still[-1]))
            yield from zip(written[1:], moved[1:], strict=False) if len(written) == len(moved) else ()
        case nodes.Transpose(dst, src):
            written, read = parts_of(dst, around), parts_of(src, around)
            yield from ((written[0], read[-1]), (written[-1], read[0]))
        case nodes.Gather(dst, table, _, rows):
            written, read = parts_of(dst, around), parts_of(table, around)
            yield written[0], (read if s.is_slice else parts_of(rows, around))[0]
            yield from zip(written[1:], read[1:], strict=False)
        case nodes.Loop() | nodes.Alloc() | nodes.Comment():
            return
        case _:
            views = [parts_of(view, around) for _, view in views_of(s)]
            for other in views[1:] if views and views[0] else ():
                is_reduced = isinstance(s, nodes.Reduce) or len(other) == len(views[0])
                yield from zip(views[0], other if is_reduced else other[:1], strict=False)


def aligned(shape: Sequence[int], ranks: Sequence[tuple[str, int]]) -> Iterator[tuple[list[int], list[str]]]:
    """The least groups of neighbouring axes and ranks that have as many elements."""
    axes: list[int] = []
    names: list[str] = []
    place = 0
    on_axes, on_ranks = 1, 1
    for axis, extent in enumerate(shape):
        axes, on_axes = [*axes, axis], on_axes * extent
        while place < len(ranks) and (on_ranks < on_axes or not names):
            names, on_ranks, place = [*names, ranks[place][0]], on_ranks * ranks[place][1], place + 1
        if on_axes == on_ranks:
            yield axes, names
            axes, names = [], []
