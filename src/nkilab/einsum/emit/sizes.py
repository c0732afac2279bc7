"""Names for the numbers of a loop tree: extents of ranks, tiles of them, and what follows from both.

The tree that comes out has the nodes of the one that goes in, with expressions over names where numbers
stood; with the names' values in place it is the same tree. A number that nothing explains stays one. Then
the tiles of its rank are fixed: another tile might need another number there, and is not offered to a search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace

from ..language.ast import Cascade
from ..room import views_of
from ..tree import nodes
from ..tree.along import floored, windowed
from ..tree.expr import ZERO, Atom, Constant, Expr, Rounded, Whole, expr, name_of
from .axes import Around, Axes, Place, Step, axes_of, axis_of, linear, pairs_of

# what tiles of a rank are called, the smallest first
KINDS = ("TILE", "BLOCK", "PANEL", "GROUP")
TAKEN = {"nl", "nisa", "nki", "np", "min", "range"}


@dataclass(frozen=True)
class Named:
    """A tree with names for its numbers."""

    kernel: nodes.Kernel  # the tree
    tiles: Mapping[str, int]  # names of tiles, and their values
    ranks: Mapping[str, int]  # the extents of the ranks of tiles, by the tiles' names
    fixed: frozenset[str]  # names of tiles that nothing but a plan changes
    # the ranks whose extents have names, by the names
    extents: Mapping[str, str] = field(default_factory=dict)

    def at(self, values: Mapping[str, int]) -> nodes.Kernel:
        """The tree of numbers alone, with some tiles of other sizes."""
        numbers = {name: n for _, group in self.kernel.constants for name, n in group.items()} | dict(values)
        known: dict[Atom, Expr] = {name: expr(n) for name, n in numbers.items()}
        kernel = mapped(replace(self.kernel, constants=()), lambda e: e.replaced(known), {})
        assert isinstance(kernel, nodes.Kernel)
        return kernel


def mapped(node: object, change: Callable[[Expr], Expr], buffers: dict[int, nodes.Buffer]) -> object:
    """A tree with another expression for each, and one buffer for each that it had."""
    match node:
        case Expr():
            return change(node)
        case tuple() | list():
            return type(node)(mapped(part, change, buffers) for part in node)
        case nodes.Buffer() if id(node) in buffers:
            return buffers[id(node)]
    if not is_dataclass(node) or isinstance(node, type):
        return node
    parts = {f.name: mapped(getattr(node, f.name), change, buffers) for f in fields(node)}
    changed = replace(node, **parts)
    if isinstance(changed, nodes.Buffer):
        buffers[id(node)] = changed
    return changed


def expressions(kernel: nodes.Kernel) -> list[Expr]:
    """Every expression of a tree."""
    values: list[Expr] = []

    def note(value: Expr) -> Expr:
        values.append(value)
        return value

    mapped(kernel, note, {})
    return values


def named(kernel: nodes.Kernel, cascade: Cascade) -> Named:
    """A tree with names for its numbers; where extents are parameters, they are the names."""
    if kernel.parameters:
        return Named(kernel, {}, {}, frozenset())
    return _Names(kernel, cascade).result()


class _Names:
    """The names of one tree."""

    def __init__(self, kernel: nodes.Kernel, cascade: Cascade) -> None:
        self.kernel, self.cascade, self.axes = kernel, cascade, Axes(kernel, cascade)
        self.buffers: dict[int, nodes.Buffer] = {}
        self.fixed: set[str] = set()
        self.halos: dict[tuple[str, int], Expr] = {}
        # positions of the statement at hand that go with others
        self.partners: dict[tuple[Place | None, Expr], list[Step]] = {}
        self.extents, self.tiles = self._extents(), self._tiles()
        # what is left of an axis behind a part that another engine takes
        self.rests: set[tuple[Place, nodes.Cut]] = set()
        self.splits: set[str | None] = set()
        views = ((s, around, view) for s, around in self.axes.statements for _, view in views_of(s))
        for statement, around, view in views:
            self._find_halos(view, around)
            if not isinstance(statement, nodes.Load | nodes.Store | nodes.Move | nodes.Fill):
                self._find_rests(view)

    def result(self) -> Named:
        """The tree with its names."""
        kernel = replace(
            self.kernel,
            arguments=tuple(self._argument(a) for a in self.kernel.arguments),
            body=self.body(self.kernel.body, {}),
            outputs=tuple(map(self.buffer, self.kernel.outputs)),
        )
        names = frozenset[str]().union(*(e.names for e in expressions(kernel)))
        sizes = self.axes.sizes
        extents: dict[str, int] = {name: sizes[rank] for rank, name in self.extents.items() if name in names}
        tiles = {name: (rank, n) for (rank, n), name in self.tiles.items() if name in names}
        values: dict[str, int] = {name: n for name, (_, n) in tiles.items()}
        groups = (("extents of ranks", extents), ("elements of them that one step takes", values))
        return Named(
            replace(kernel, constants=tuple(g for g in groups if g[1])),
            values,
            {name: sizes[rank] for name, (rank, _) in tiles.items()},
            frozenset(name for name, (rank, _) in tiles.items() if rank in self.fixed),
            {name: rank for rank, name in self.extents.items() if name in names},
        )

    # names

    def _taken(self) -> set[str]:
        loops = [s for s, _ in self.axes.statements if isinstance(s, nodes.Loop)]
        buffers = [s.buffer for s, _ in self.axes.statements if isinstance(s, nodes.Alloc)]
        return {
            *TAKEN, self.kernel.name, *(a.name for a in self.kernel.arguments), *(b.name for b in buffers),
            *(b.base.name for b in buffers if b.base),
            *(n for s in loops for n in (s.variable, s.count_name)),
        }  # fmt: skip

    def _extents(self) -> dict[str, Constant]:
        """A name for the extent of every rank."""
        self.names = self._taken()
        return {
            rank: self._fresh(size, rank.upper(), f"{rank.upper()}_SIZE")
            for rank, size in self.axes.sizes.items()
        }

    def _fresh(self, value: int, *hints: str) -> Constant:
        hints = (*hints, *(f"{hints[-1]}{n}" for n in range(2, len(self.names) + 3)))
        name = next(h for h in hints if h not in self.names and h.isidentifier())
        self.names.add(name)
        return Constant(name, value, len(self.names))

    def _tiles(self) -> dict[tuple[str, int], Constant]:
        """A name for every number of elements by which a loop goes on, or that fills the partitions."""
        units_of_ranks: set[tuple[str, int]] = set()
        for statement, _ in self.axes.statements:
            step = self.axes.step(id(statement))
            units_of_ranks |= {(step.rank, step.unit)} if step else set()
            for _, view in views_of(statement):
                step = self.axes.step(axis_of(view.buffer, view.folded[0])) if view.folded else None
                rows = expr(view.folded[1]).value if view.folded else None
                units_of_ranks |= {(step.rank, rows)} if step and rows else set()
        order = {rank: n for n, rank in enumerate(self.axes.sizes)}
        tiles: dict[str, list[int]] = {}
        for rank, unit in sorted(units_of_ranks, key=lambda one: (order[one[0]], one[1])):
            if 1 < unit < self.axes.sizes[rank]:
                tiles.setdefault(rank, []).append(unit)
        return {
            (rank, unit): self._fresh(unit, f"{rank.upper()}_{KINDS[min(n, len(KINDS) - 1)]}")
            for rank, units in tiles.items()
            for n, unit in enumerate(units)
        }

    # numbers

    def explained(self, number: int, step: Step) -> Expr | None:
        """So many positions of an axis, by names; None if nothing says why so many."""
        elements, unit, size = number * step.unit, step.unit, self.axes.sizes[step.rank]
        if number == 1 and unit == 1:
            return expr(1)
        is_ragged = unit > 1 and elements - unit < size < elements
        whole = self.elements(step.rank, size if is_ragged else elements)
        per = self.elements(step.rank, unit)
        if whole is None or per is None:
            return self.halos.get((step.rank, number)) if unit == 1 else None
        if is_ragged:
            return Rounded("//", whole * -1, per).of(whole * -1) * -1
        return whole if unit == 1 else expr(1) if whole == per else Rounded("//", whole, per).of(whole)

    def elements(self, rank: str, count: int) -> Expr | None:
        """So many elements of a rank, by a name; None if it has none."""
        left, name = self.axes.sizes[rank] - count, self.tiles.get((rank, count))
        if count > 1 and (left == 0 or (left == 1 and name is None)):
            # all, or all but the first, which states have before their iterations
            return name_of(self.extents[rank]) - left
        return expr(1) if count == 1 else None if name is None else name_of(name)

    def number(self, number: int, *steps: Step | None) -> Expr:
        """So many positions of an axis; its rank is fixed where nothing says why so many."""
        known = [step for step in steps if step is not None]
        for step in known:
            if (names := self.explained(number, step)) is not None:
                return names
        if number > 1:
            self.fixed |= {step.rank for step in known[:1]}
        return expr(number)

    def factor(self, factor: int, loop: nodes.Loop, step: Step | None) -> Expr:
        """By how much a turn of a loop goes on along an axis."""
        own, size = self.axes.step(id(loop)), abs(factor)
        sign = factor // size
        if size == 1:
            return expr(factor)
        if own is None:
            self.fixed |= {step.rank} if step else set()
            return expr(factor)
        if step is not None and own.rank == step.rank:
            names = self.explained(size, step)
            if names is not None:
                return names * sign
        tile = self.elements(own.rank, own.unit)
        if own.unit > 1 and tile is not None and size % own.unit == 0 and (step is None or step.unit == 1):
            return tile * (factor // own.unit)
        if own.unit > 1:
            self.fixed |= {own.rank, *({step.rank} if step else ())}
        return expr(factor)

    def start(self, start: Expr, step: Step | None, around: Around) -> Expr:
        """Where a view begins along an axis."""
        form = linear(start, around)
        if form is None:
            return start
        terms, added = form
        total = ZERO
        for factor, loop in terms:
            total += self.factor(factor, loop, step) * name_of(loop.variable)
        if not added:
            return total
        for factor, loop in terms:
            if added % factor == 0 and loop.apart:
                return total + self.factor(factor, loop, step) * (added // factor)
        if terms or step is None:
            # a tile further on: where it goes on from there, another tile might not
            tile = self.explained(added, step) if step is not None and added > 1 else None
            is_step = any(added % factor == 0 and abs(factor) > 1 for factor, _ in terms)
            if step is not None and (is_step or tile is not None):
                self.fixed.add(step.rank)
            return total + (added if tile is None else tile)
        return self.number(added, step)

    def counted(self, count: Expr, step: Step | None, around: Around) -> Expr:
        """How many positions something has where the turn of a loop, no ragged tile, decides that."""
        is_turn = all(name in around and around[name].variable == name for name in count.names)
        return self.start(count, step, around) if is_turn else count

    # nodes

    def body(self, body: list[nodes.Statement], around: Around) -> list[nodes.Statement]:
        """Statements with names."""
        return [self.statement(s, around) for s in body]

    def statement(self, s: nodes.Statement, around: Around) -> nodes.Statement:
        """A statement with names."""
        match s:
            case nodes.Loop():
                return self.loop(s, around)
            case nodes.Alloc(buffer):
                return nodes.Alloc(self.buffer(buffer))
            case nodes.Tally(into, added):
                return replace(
                    s, into=self.view(into, around), added=tuple(self.summed(a, around) for a in added)
                )
        self.partners = {}
        for part, known in (both for pair in pairs_of(s, around) for both in (pair, pair[::-1])):
            step = self.axes.step(known.axis)
            if step is not None and part.extent == known.extent and known.each == 1:
                self.partners.setdefault((part.axis, part.extent), []).append(step)
        changed: dict[str, object] = {name: self.view(view, around) for name, view in views_of(s)}
        if isinstance(s, nodes.Select | nodes.Count):
            changed["offset"] = self.offset(s, around)
        return replace(s, **changed)

    def loop(self, loop: nodes.Loop, around: Around) -> nodes.Loop:
        """A loop with names."""
        step = self.axes.step(id(loop))
        trips, count = expr(loop.trips), loop.count
        if trips.value is not None:
            trips = self.number(trips.value + loop.apart, step) - loop.apart
        elif step is not None:
            self.fixed.add(step.rank)
        if count is not None and count.rounded is not None and step is not None:
            count = self.ragged(loop, replace(step, unit=1), {**around, loop.variable: loop})
        total = loop.total
        if total is not None and step is not None:
            self.fixed.add(step.rank)
            total = self.counted(total, replace(step, unit=1), around)
            each = self.elements(step.rank, loop.each) or expr(loop.each)
            is_even = floored(loop.total or ZERO, loop.each) == loop.trips
            trips = total // each if is_even else -1 * ((total * -1) // each)
        own = {loop.variable: loop} | ({loop.count_name: loop} if loop.count_name else {})
        return replace(
            loop, trips=trips, total=total, count=count, body=self.body(loop.body, {**around, **own})
        )

    def ragged(self, loop: nodes.Loop, element: Step, around: Around) -> Expr:
        """How many elements a tile of a loop has, where the last has fewer."""
        assert loop.count is not None
        assert loop.count.rounded is not None
        left = loop.count.rounded.value
        total = next((factor for factors, factor in left.terms if not factors), 0)
        most = Rounded("min", ZERO, self.number(loop.most_count, element))
        rest = self.counted(left - total, element, around)  # of a tile that has fewer itself, as it is
        return most.of(self.number(total, element) + rest if total else rest)

    def buffer(self, buffer: nodes.Buffer) -> nodes.Buffer:
        """A buffer with names for its extents; the same one each time."""
        if id(buffer) not in self.buffers:
            shape: list[Whole] = []
            for number, extent in enumerate(buffer.shape):
                value = expr(extent).value
                step = self.axes.step(axis_of(buffer, number))
                shape.append(extent if value is None else self.number(value, step))
            base = buffer.base
            if base is not None:
                is_given = base.role == "output"
                declared = replace(base, shape=self._declared(base.tensor, base.shape)) if is_given else base
                base = declared if is_given else self.buffer(base)
            self.buffers[id(buffer)] = replace(buffer, shape=tuple(shape), base=base)
        return self.buffers[id(buffer)]

    def view(self, view: nodes.View, around: Around) -> nodes.View:
        """A view with names."""
        buffer = self.buffer(view.buffer)
        index: list[nodes.At | nodes.Cut] = list(
            view.index[: max(len(view.index) - len(view.buffer.shape), 0)]
        )
        for number, (axis, i) in enumerate(axes_of(view)):
            step = self.axes.step(axis)
            if isinstance(i, nodes.At):
                is_last = i.at.value and i.at + 1 == expr(view.buffer.shape[number])
                is_last = is_last and buffer.shape[number] != view.buffer.shape[number]
                index.append(
                    nodes.At(expr(buffer.shape[number]) - 1 if is_last else self.start(i.at, step, around))
                )
                continue
            value = i.count.value
            partners = self.partners.get((axis, i.count), [])
            count = (
                self.counted(i.count, step, around) if value is None else self.number(value, step, *partners)
            )
            start, extent = self.start(i.start, step, around), expr(buffer.shape[number])
            if i.start.value and i.step == 1 and i.start + i.count == expr(view.buffer.shape[number]):
                # what is left behind the first part, or the last positions
                is_rest = (axis, i) in self.rests
                start, count = (start, extent - start) if is_rest else (extent - count, count)
            index.append(nodes.Cut(start, count, i.step, i.each))
        repeat = None if view.repeat is None else self.repeated(view.repeat)
        order = tuple(n if isinstance(n, int) else self.repeated(n) for n in view.order)
        folded = view.folded
        if folded is not None:
            step = self.axes.step(axis_of(view.buffer, folded[0]))
            rows = expr(folded[1]).value
            folded = (folded[0], self.number(rows, step) if rows else folded[1])
        return replace(view, buffer=buffer, index=tuple(index), repeat=repeat, order=order, folded=folded)

    def repeated(self, count: Expr) -> Expr:
        """How often a view is repeated along an axis that it has not."""
        partners = self.partners.get((None, count), [])
        return count if count.value is None else self.number(count.value, *partners)

    def offset(self, s: nodes.Select | nodes.Count, around: Around) -> Expr:
        """What a comparison of positions adds to them."""
        ranks = {step.rank for axis, _ in axes_of(s.dst) if (step := self.axes.step(axis)) is not None}
        terms, added = linear(s.offset, around) or ([], 1)
        if added and not any(added % f == 0 and loop.apart for f, loop in terms):
            self.fixed |= ranks
        return self.start(s.offset, None, around)

    def summed(self, one: nodes.Summed, around: Around) -> nodes.Summed:
        """What is told of a sum, with names."""
        start, count = self.elements_from(one.start, one.count, around)
        whole_start, whole_count = self.elements_from(one.whole_start, one.whole_count, around)
        return replace(one, start=start, count=count, whole_start=whole_start, whole_count=whole_count)

    def elements_from(self, start: Expr, count: Expr, around: Around) -> tuple[Expr, Expr]:
        """Where elements that a sum adds begin, and how many they are, with names."""
        terms, _ = linear(start, around) or ([], 0)
        step = self.axes.step(id(terms[-1][1])) if terms else None
        if step is None:
            return start, count
        element = replace(step, unit=1)
        start = self.start(start, element, around)
        return start, count if count.value is None else self.number(count.value, element)

    def _argument(self, argument: nodes.Argument) -> nodes.Argument:
        views = (v for s, _ in self.axes.statements for _, v in views_of(s))
        buffers = (b for v in views if (b := windowed(v.buffer)).name == argument.name and b.role == "input")
        buffer = next(buffers, None)
        shape = argument.shape if buffer is None else self.buffer(buffer).shape
        if argument.declared == argument.shape:
            return replace(argument, shape=shape, declared=shape)
        return replace(argument, shape=shape, declared=self._declared(argument.name, argument.declared))

    def _declared(self, tensor: str, shape: tuple[Whole, ...]) -> tuple[Whole, ...]:
        """The shape that callers see of a tensor, by the names of its ranks where they have these extents."""
        ranks = self.cascade.tensors[tensor].ranks
        if tuple(map(self.axes.sizes.get, ranks)) != shape:
            return shape
        return tuple(self.elements(rank, self.axes.sizes[rank]) or 1 for rank in ranks)

    def _find_halos(self, view: nodes.View, around: Around) -> None:
        """Windows of an axis that loops over another rank go through: a tile of that and its edges."""
        moved = (
            (i, self.axes.step(axis), factor, self.axes.step(id(loop)))
            for axis, i in axes_of(view)
            if isinstance(i, nodes.Cut)
            for factor, loop in (linear(i.start, around) or ([], 0))[0]
        )
        for i, step, factor, own in moved:
            count = i.count.value
            if step is None or count is None or step.unit != 1:
                continue
            if own is None or own.rank == step.rank or own.unit == 1 or factor % own.unit:
                continue
            tile, apart = self.elements(own.rank, own.unit), factor // own.unit
            if tile is not None and i.step == apart and count == own.unit:
                self.halos[step.rank, count] = tile
            elif tile is not None and i.step == 1 and count > apart * (own.unit - 1):
                self.halos[step.rank, count] = tile * apart + (count - apart * own.unit)

    def _find_rests(self, view: nodes.View) -> None:
        """Axes of which two engines take a part each: the first has a name, the second is what is left."""
        for (axis, i), extent in zip(axes_of(view), view.buffer.shape, strict=False):
            step = self.axes.step(axis)
            if step is None or step.unit != 1 or not isinstance(i, nodes.Cut) or i.step != 1:
                continue
            first, count = i.start.value, i.count.value
            if not first or count is None or count == 1 or first + count != extent:
                continue
            if self.elements(step.rank, first) is None:
                split = self._fresh(first, f"{step.rank.upper()}_SPLIT")
                self.tiles[step.rank, first] = split
                self.splits.add(split)
            if self.tiles.get((step.rank, first)) in self.splits:
                self.rests.add((axis, i))
