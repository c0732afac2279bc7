"""Scans in a nest: one instruction for the columns of a tile, the last of which the next tile begins with.

The nest computes coefficients before, and consumers after, over the same columns; so only the scan is
sequential. What rows begin a tile with is a column of its own for every value of the variables inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from ..language.ast import Access, Einsum, Operand, Recurrence, Scalar
from ..plan.build import Span, point
from ..plan.context import part_of
from ..plan.deliver import deliver
from ..plan.fetch import fetch
from ..plan.values import Tile, Value
from ..plan.want import Want
from ..tree import nodes
from ..tree.expr import ZERO, Expr, expr
from ..tree.nodes import Buffer, Number, View, columns_of
from .largest import Choice

if TYPE_CHECKING:
    from ..plan.nest import Nest


class Scans:
    """The recurrences of a nest."""

    def __init__(self, nest: Nest, einsums: Sequence[Einsum]) -> None:
        self.nest, self.ctx, self.every = nest, nest.ctx, list(einsums)
        self.einsums = [e for e in einsums if not e.is_choice]
        chosen = [e for e in einsums if e.is_choice]
        self.choices = {
            o: Choice(nest, [e for e in chosen if e.operands == o]) for o in (e.operands for e in chosen)
        }
        self.carries: dict[str, Buffer] = {}
        self.states: dict[str, View] = {}
        self.firsts: dict[str, View] = {}
        self.base: dict[str, Span] = {}
        self.is_carried = False

    @property
    def variable(self) -> str:
        """The variable that they run along; "" for none."""
        return self.every[0].along[0] if self.every else ""

    @property
    def is_descending(self) -> bool:
        """Whether they begin with the last column."""
        return any(e.recurrence.is_descending for e in self.einsums if e.recurrence)

    def pieces(self) -> Iterator[None]:
        """Once per tile of the columns, in order; once if there are no recurrences."""
        nest, variable = self.nest, self.variable
        if not variable:
            yield
            return
        every, block = nest.spans[variable], nest.choice.block(variable)
        block = block or every.most
        rest = every.most % block
        self.is_carried = every.most > block
        self.begin()
        for choice in self.choices.values():
            choice.begin(every, block)
        if every.most > rest:
            tiles = self.ctx.build.tiles(
                variable, every.most - rest, block, is_sequential=True, over=variable
            )
            with tiles as span:
                start = every.most - block - span.start if self.is_descending else span.start
                nest.spans[variable] = Span(every.start + start, expr(block), block)
                yield
        if rest:
            start = ZERO if self.is_descending else expr(every.most - rest)
            nest.spans[variable] = Span(every.start + start, expr(rest), rest)
            yield
        nest.spans[variable] = every
        for einsum in (e for e in self.einsums if e.is_last and e.name in nest.targets):
            self.deliver(einsum, self.source(einsum) or einsum, self.base)
        for choice in self.choices.values():
            choice.finish()

    # what a tile hands to the next

    def inside(self, einsum: Einsum) -> list[str]:
        """Variables of a recurrence that loops inside of that over the columns run over, in several turns."""
        inner = [v for v in self.nest.looped if v in self.nest.reduced and v in einsum.variables]
        return [v for v in inner if self.turns(v) > 1]

    def turns(self, variable: str) -> int:
        """Turns of a loop inside of that over the columns."""
        return -(-self.base[variable].most // self.nest.choice.block(variable))

    def source(self, einsum: Einsum) -> Einsum | None:
        """The scan of the nest whose values a recurrence hands on; None if it lies elsewhere."""
        scans = [e for e in self.einsums if e.recurrence and e.recurrence.kind == "scan" and e is not einsum]
        is_scan = einsum.recurrence is not None and einsum.recurrence.kind == "scan"
        return None if is_scan else next((e for e in scans if e.output == einsum.operands[0]), None)

    def is_handed_on(self, einsum: Einsum) -> bool:
        """Whether a later tile, or who reads the last value, needs the last column of a recurrence."""
        is_read = any(self.source(e) is einsum and e.is_last for e in self.einsums)
        return self.source(einsum) is None and (self.is_carried or is_read or einsum.is_last)

    def has_first(self, einsum: Einsum) -> bool:
        """Whether what a scan begins with is written too."""
        is_kept = einsum.name in self.nest.targets
        return is_kept and einsum.recurrence is not None and einsum.recurrence.has_first

    def begin(self) -> None:
        """Make the columns that tiles hand on, with what the first begins with, and write that."""
        self.base = dict(self.nest.spans)
        for einsum in (e for e in self.einsums if self.is_handed_on(e) or self.has_first(e)):
            if self.begin_in_place(einsum):
                continue
            inside, rows = self.inside(einsum), self.nest.rows
            columns = prod(map(self.turns, inside))
            most = min(rows.most, self.ctx.lanes)
            carry = self.ctx.temporary(f"{einsum.name.lower()}_carry", most, columns)
            self.carries[einsum.name] = carry
            if not einsum.is_last:
                count = expr(most) if self.nest.choice.part in inside else rows.count
                self.begin_with(einsum, einsum.operands[-1], part_of(carry, count, columns))
            if self.has_first(einsum):
                self.deliver(einsum, einsum, self.before_all())

    def before_all(self) -> dict[str, Span]:
        """Spans of what stands before the first value."""
        every = self.base[self.variable]
        return {**self.base, self.variable: point(every.start + (every.most if self.is_descending else -1))}

    def begin_in_place(self, einsum: Einsum) -> bool:
        """Write what a recurrence of one tile begins with to where it is kept; whether it may stay there."""
        nest, initial = self.nest, einsum.operands[-1]
        if self.is_handed_on(einsum) or self.inside(einsum):
            return False
        place = nest.targets[einsum.name].direct(self.ctx, einsum, self.before_all(), nest.choice.part)
        if place is None or nest.targets[einsum.name].hbm is not None:
            return False
        self.firsts[einsum.name] = place
        self.begin_with(einsum, initial, place)
        return True

    def begin_with(self, einsum: Einsum, initial: Operand, carry: View) -> None:
        """Write what a recurrence begins with to its carry."""
        nest, inside = self.nest, self.inside(einsum)
        if isinstance(initial, Scalar):
            Tile(self.ctx, nest.new, nest.new_column).fill(carry, self.ctx.number(initial))
            return
        assert isinstance(initial, Access)
        if len(inside) == 1 and inside[0] in initial.variables and inside[0] != nest.choice.part:
            view = fetch(self.ctx, Want(initial, nest.spans, nest.choice.part, inside[0]))
            self.ctx.build.add(nodes.Copy(carry, view))
        else:
            with self.each(inside):
                view = fetch(self.ctx, Want(initial, nest.spans, nest.choice.part))
                self.ctx.build.add(nodes.Copy(self.carry(einsum) if inside else carry, view))

    @contextmanager
    def each(self, variables: Sequence[str]) -> Iterator[None]:
        """Loops over variables, turn by turn."""
        spans = self.nest.spans
        with ExitStack() as stack:
            for v in variables:
                tiles = self.ctx.build.tiles(v, self.base[v].most, self.nest.choice.block(v), over=v)
                spans[v] = self.base[v].tile(stack.enter_context(tiles))
            yield
        spans |= {v: self.base[v] for v in variables}

    def carry(self, einsum: Einsum, *, is_after: bool = False) -> View:
        """The column that a recurrence hands on for the present values of variables inside."""
        place: Expr = ZERO
        for v in self.inside(einsum):
            turn = (self.nest.spans[v].start - self.base[v].start) // self.nest.choice.block(v)
            place = place * self.turns(v) + turn
        view = part_of(self.carries[einsum.name], self.nest.rows.count, 1, place)
        return replace(view, turn=self.done(is_after))

    def done(self, is_after: bool) -> Expr:
        """Columns of a recurrence that come before the end of the present tile, or before its beginning."""
        own, every = self.nest.spans[self.variable], self.base[self.variable]
        first = own.start - every.start
        last = first + own.count
        if self.is_descending:
            first, last = every.most - last, every.most - first
        return last if is_after else first

    def deliver(self, einsum: Einsum, source: Einsum, spans: dict[str, Span]) -> None:
        """Write the carry of a recurrence to where an Einsum lies."""
        nest, inside = self.nest, self.inside(source)
        target, part = nest.targets[einsum.name], nest.choice.part
        if len(inside) < 2 and part not in inside:
            free = inside[0] if inside else ""
            view = part_of(self.carries[source.name], nest.rows.count, self.base[free].most if free else 1)
            view = replace(view, turn=self.done(einsum.is_last))
            deliver(self.ctx, einsum, view, spans, part, free, target)
            return
        with self.each(inside):
            own = {v: nest.spans[v] for v in inside}
            carry = self.carry(source, is_after=einsum.is_last)
            deliver(self.ctx, einsum, carry, {**spans, **own}, part, "", target)

    # one tile

    def value(self, einsum: Einsum, tile: Tile) -> Value:
        """The values of a recurrence in the present tile; the last value is delivered behind all tiles."""
        source, recurrence = self.source(einsum), einsum.recurrence
        assert recurrence is not None
        if einsum.is_choice:
            return self.choices[einsum.operands].value(einsum, tile)
        if source is not None:
            return Value(view=self.before(self.states[source.name]))
        if recurrence.kind == "scan":
            values = self.scanned(einsum, recurrence, tile)
        else:
            values = tile.view(self.nest.operand(einsum.operands[0]))
        if recurrence.kind == "before":
            states = self.behind_first(einsum, tile)
            tile.add(nodes.Copy(states, values))
            values = self.before(states)
        if self.is_handed_on(einsum):
            whole = states if recurrence.kind == "before" else values
            last = self.moved(whole, 0 if self.is_descending else self.nest.columns.most - 1, expr(1))
            tile.add(nodes.Copy(self.carry(einsum, is_after=True), last))
        return Value(view=values)

    def scanned(self, einsum: Einsum, recurrence: Recurrence, tile: Tile) -> View:
        """One scan over the columns of a tile."""
        first, second = (self.wide(o, tile) for o in einsum.operands[:2])
        if nodes.PSUM == first.buffer.memory == second.buffer.memory:
            first = tile.in_sbuf(first)
        if any(self.source(e) is einsum and not e.is_last for e in self.einsums):
            states = self.behind_first(einsum, tile)
            initial: Number = self.first_of(states)
        else:
            states, initial = self.place(einsum), self.initial(einsum, tile)
        ops = (recurrence.op0, recurrence.op1, recurrence.reverse0, recurrence.reverse1)
        self.states[einsum.name] = states
        if not self.is_descending:
            tile.add(nodes.Scan(states, first, second, initial, *ops))
            return states
        sides = [
            self.backwards(o, v, tile) for o, v in zip(einsum.operands[:2], (first, second), strict=True)
        ]
        backwards = self.nest.new(f"{einsum.name.lower()}_backwards")
        tile.add(nodes.Scan(backwards, sides[0], sides[1], initial, *ops))
        self.ctx.turn_columns(states, backwards)
        return states

    def initial(self, einsum: Einsum, tile: Tile) -> Number:
        """What a recurrence begins the present tile with."""
        if einsum.name in self.firsts and not isinstance(einsum.operands[-1], Scalar):
            return self.firsts[einsum.name]
        if einsum.name in self.carries and (self.is_carried or self.has_first(einsum)):
            return self.carry(einsum)
        return tile.scalar(self.nest.operand(einsum.operands[-1]))

    def behind_first(self, einsum: Einsum, tile: Tile) -> View:
        """Columns of a new tile behind one that has what stands before them."""
        rows, columns = self.nest.rows, self.nest.columns
        whole = self.ctx.temporary(f"{einsum.name.lower()}_states", rows.most, columns.most + 1)
        states = part_of(whole, rows.count, columns.count, 0 if self.is_descending else 1)
        initial = self.initial(einsum, tile)
        first = Value(view=initial) if isinstance(initial, View) else Value(number=initial)
        tile.into(first, self.first_of(states))
        return states

    def first_of(self, states: View) -> View:
        """The column that a scan begins with, beside those that it writes."""
        return self.moved(states, self.nest.columns.most if self.is_descending else -1, expr(1))

    def before(self, states: View) -> View:
        """The columns one iteration before those that a scan writes."""
        return self.moved(states, 1 if self.is_descending else -1, states.cuts[-1].count)

    def moved(self, view: View, by: int, count: Expr) -> View:
        """Columns that begin before or behind those of a view."""
        return columns_of(view, expr(by), count)

    def backwards(self, operand: Operand, view: View, tile: Tile) -> View:
        """An operand with its columns the other way round, if they differ."""
        if self.variable not in operand.variables:
            return view
        source = tile.in_sbuf(view)
        dst = self.nest.new("backwards", source.buffer.dtype)
        self.ctx.turn_columns(dst, source)
        return dst

    def place(self, einsum: Einsum) -> View:
        """Where a scan writes: the tile that keeps it, if it is float32 and lies right, or one of its own."""
        nest, target = self.nest, self.nest.targets.get(einsum.name)
        if target is not None and target.dtype == "float32":
            direct = target.direct(self.ctx, einsum, nest.spans, nest.choice.part)
            if direct is not None:
                return direct
        return nest.new(f"{einsum.name.lower()}_states")

    def wide(self, operand: Operand, tile: Tile) -> View:
        """An operand along all columns; what is the same in all of them is made in the outermost scope."""
        value, build = self.nest.operand(operand), self.ctx.build
        rows, columns = self.nest.rows, self.nest.columns
        if not value.is_scalar or (value.is_column and columns.most == 1):
            return tile.view(value)
        view = value.view
        names = frozenset[str]() if view is None else {view.buffer.name, *nodes.names_in(view.index)}
        version = 0 if view is None else self.ctx.version_of(view)
        depth, key = build.depth_of(frozenset(names)), (operand, view, version, rows.most, columns.most)
        cache = build.scopes[depth].cache
        if key not in cache:
            with build.hoisted(depth):
                cache[key] = self.widened(operand, value, tile)
        return part_of(cache[key], rows.count, columns.count)

    def widened(self, operand: Operand, value: Value, tile: Tile) -> Buffer:
        """A tile of a number, or of a column along all columns."""
        rows, columns = self.nest.rows.most, self.nest.columns.most
        hint = operand.tensor.lower() if isinstance(operand, Access) else "same"
        wide = self.ctx.temporary(f"{hint}_wide", rows, columns)
        every = part_of(wide, rows if value.view is None else value.view.cuts[0].count, columns)
        if value.view is None:
            tile.fill(every, tile.scalar(value))
        else:
            zeros = self.wide(Scalar(value=0.0), tile)
            tile.add(
                nodes.Scale(every, part_of(zeros.buffer, every.cuts[0].count, columns), "add", value.view)
            )
        return wide
