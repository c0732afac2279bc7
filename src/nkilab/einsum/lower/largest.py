"""The largest values of rows, and their places, eight at once.

max8 finds the eight largest of a row, nc_find_index8 where they stand, the first of equal ones first, and
nc_match_replace8 takes them out before the next eight. Each tile of the columns gives as many as are asked
for; of those of several tiles, which stand in the order of the tiles, the largest are found once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..language.ast import Einsum
from ..plan.build import Span, whole
from ..plan.context import part_of
from ..plan.deliver import deliver
from ..plan.values import Tile, Value
from ..tree import nodes
from ..tree.expr import ZERO, Expr
from ..tree.nodes import Buffer, View

if TYPE_CHECKING:
    from ..plan.nest import Nest

# values that an instruction finds, and columns that it needs; types with something less than all numbers
AT_ONCE, SIGNED, NOTHING = 8, ("float32", "bfloat16", "float16"), float("-inf")


class Choice:
    """What Einsums of a nest choose of one operand."""

    def __init__(self, nest: Nest, einsums: Sequence[Einsum]) -> None:
        self.nest, self.ctx, self.einsums = nest, nest.ctx, einsums
        counts = {e.name: nest.ctx.cascade.extent(e.along[1], e) if e.along[1:] else 1 for e in einsums}
        self.counts, self.count = counts, max(counts.values())
        self.each = -(-self.count // AT_ONCE) * AT_ONCE  # values that a tile gives
        self.has_places = any(e.recurrence and e.recurrence.kind == "places" for e in einsums)

    def begin(self, every: Span, block: int) -> None:
        """Make the places of what tiles of so many columns give, before the first."""
        self.every, self.block, self.tiles = every, block, -(-every.most // block)
        self.values, self.places = (self.tile(hint, self.each * self.tiles) for hint in ("largest", "places"))

    def tile(self, hint: str, columns: int, dtype: str = "float32") -> Buffer:
        return self.ctx.temporary(hint, self.nest.rows.most, columns, dtype)

    def part(self, buffer: Buffer, start: Expr, columns: int) -> View:
        """Some columns of a tile of the present rows."""
        return part_of(buffer, self.nest.rows.count, columns, start)

    def value(self, einsum: Einsum, tile: Tile) -> Value:
        """Have the present tile of the columns give its largest; returns what they are chosen of."""
        value, add = self.nest.operand(einsum.operands[0]), self.ctx.build.add
        if self.einsums[0] is einsum:
            start = self.nest.spans[einsum.along[0]].start - self.every.start
            at = start // self.block * self.each
            self.choose(self.searched(tile.widened(value) if value.is_scalar else value, tile), at)
            if self.tiles > 1 and self.has_places:
                first, here = self.tile("first", self.each), self.part(self.places, at, self.each)
                add(nodes.Count(self.part(first, ZERO, self.each), start, 0, 0))
                add(nodes.Combine(here, here, "add", self.part(first, ZERO, self.each)))
        return value

    def searched(self, value: Value, tile: Tile) -> View:
        """A value as the instructions read it: in SBUF, of a type that has -inf, eight columns at least."""
        view, columns = tile.in_sbuf(tile.view(value)), self.nest.columns.most
        if view.buffer.dtype in SIGNED and columns >= AT_ONCE:
            return view
        wide = self.part(self.tile("searched", max(columns, AT_ONCE)), ZERO, max(columns, AT_ONCE))
        self.ctx.build.add(nodes.Fill(wide, NOTHING))
        self.ctx.build.add(nodes.Copy(self.part(wide.buffer, ZERO, columns), view))
        return wide

    def choose(self, source: View, at: Expr) -> None:
        """Write the largest of some columns, and their places among these, eight by eight."""
        if self.each == AT_ONCE:
            self.eight(source, at)
            return
        columns = source.cuts[-1].count.value or 0
        rest = self.part(self.tile("rest", columns, source.buffer.dtype), ZERO, columns)
        self.eight(source, at, rest)
        with self.ctx.build.tiles("r", self.each - AT_ONCE, AT_ONCE, is_sequential=True) as span:
            self.eight(rest, at + span.start + AT_ONCE, rest)

    def eight(self, source: View, at: Expr, rest: View | None = None) -> None:
        """Write the eight largest and their places, and what is left without them."""
        values, add = self.part(self.values, at, AT_ONCE), self.ctx.build.add
        add(nodes.Largest(values, source))
        if self.has_places:
            numbers = self.part(self.tile("found", AT_ONCE, "uint32"), ZERO, AT_ONCE)
            add(nodes.Find(numbers, source, values))
            add(nodes.Copy(self.part(self.places, at, AT_ONCE), numbers))
        if rest is not None:
            add(nodes.TakeOut(rest, source, values, NOTHING))

    def finish(self) -> None:
        """Find the largest of all tiles, and write what is asked for to where it lies."""
        if self.tiles > 1:
            self.choose_of_all(self.part(self.values, ZERO, self.each * self.tiles), self.places)
        for einsum in (e for e in self.einsums if e.name in self.nest.targets):
            assert einsum.recurrence is not None
            source = self.values if einsum.recurrence.kind == "largest" else self.places
            count, counted = self.counts[einsum.name], einsum.recurrence.counted
            view, spans = self.part(source, ZERO, count), {**self.nest.spans, counted: whole(count)}
            target = self.nest.targets[einsum.name]
            deliver(self.ctx, einsum, view, spans, self.nest.choice.part, counted, target)

    def choose_of_all(self, values: View, places: Buffer) -> None:
        """Choose of what the tiles of the columns gave, each of which stands at a place in the row."""
        columns, most = self.each * self.tiles, self.nest.rows.most
        self.values, self.places = (self.tile(hint, self.each) for hint in ("largest", "places"))
        self.choose(values, ZERO)
        if not self.has_places:
            return
        numbers = self.part(self.ctx.positions((ZERO, 0, 1), (most, columns)), ZERO, columns)
        chosen, every = (self.part(b, ZERO, columns) for b in (self.tile("chosen", columns), places))
        with self.ctx.build.loop("k", self.count) as k:
            at = self.part(self.places, k, 1)
            self.ctx.build.add(nodes.ScaleCombine(chosen, numbers, "equal", at, "multiply", every))
            self.ctx.build.add(nodes.Reduce(at, "add", chosen))
