"""Turns that only add to one state, or combine otherwise with it: a scan along the columns."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from ..language.ast import Access, Affine, Einsum, Iterate
from ..language.operators import OPERATORS
from ..tree import nodes
from ..tree.expr import expr
from ..tree.nodes import Cut, View
from .build import Span
from .choose import is_settled
from .context import Context, part_of
from .deliver import deliver, targets_of
from .fetch import fetch
from .storage import PARTITIONS, positions
from .want import Want

# turns of one instruction
COLUMNS = 512
# operators r = r op x that an instruction of VectorE runs along a row, from the one before
SCANNED = ("add", "maximum", "minimum", "multiply")


@dataclass(frozen=True)
class Scan:
    """Lowers a block of one update and the copy that keeps every state.

    Args:
        ctx: the plan.
        turn: the variable that is iterated.
        update: of the state, in place.
        kept: the copy of each state.
        read: what a turn takes into the state.
        outer: spans that loops around it have chosen.
        part: the variable on the partitions.
    """

    ctx: Context
    turn: str
    update: Einsum
    kept: Einsum
    read: Access
    outer: dict[str, Span]
    part: str

    def lower(self) -> None:
        """Append the nest."""
        ctx, build = self.ctx, self.ctx.build
        mine = {v: s for v, s in self.outer.items() if v in self.update.variables}
        spans = ctx.spans(self.update, mine)
        build.add(nodes.Comment(f"{self.update}; {self.kept}"))
        with ExitStack() as stack:
            for variable in self.looped(spans):
                block = PARTITIONS if variable == self.part else 1
                tiles = build.tiles(variable, spans[variable].most, block, over=variable)
                spans[variable] = spans[variable].tile(stack.enter_context(tiles))
            self.turns(spans)
        state = ctx.chip(self.update.name)
        assert state is not None
        state.changed()

    def looped(self, spans: dict[str, Span]) -> list[str]:
        """Variables of the state that loops run over."""
        variables = self.update.output.variables
        return [v for v in variables if not is_settled(spans[v], self.ctx.lanes) and not spans[v].is_point]

    def turns(self, spans: dict[str, Span]) -> None:
        """All turns: as many as an instruction takes at a time, then the rest."""
        extent, build = self.ctx.cascade.sizes[self.turn.upper()], self.ctx.build
        rest = extent % COLUMNS
        if extent > rest:
            with build.tiles(self.turn, extent - rest, COLUMNS, is_sequential=True, over=self.turn) as turns:
                self.columns({**spans, self.turn: turns})
        if rest:
            self.columns({**spans, self.turn: Span(expr(extent - rest), expr(rest), rest)})

    def columns(self, spans: dict[str, Span]) -> None:
        """Some turns: what they take in turned along the columns, one scan, and the last state kept."""
        ctx, op = self.ctx, OPERATORS[self.update.map_op].alu
        rows, turns = spans[self.part], spans[self.turn]
        taken = fetch(ctx, Want(self.read, spans, self.part, self.turn, may_stay=True))
        state = ctx.chip(self.update.name)
        assert state is not None
        carry = state.view(positions(self.update.output, spans))
        made = ctx.temporary(f"{self.kept.name.lower()}_turns", rows.most, turns.most)
        states = part_of(made, rows.count, turns.count)
        is_product = op == "multiply"
        same = self.filled(0.0 if is_product else 1.0, rows, turns)
        first, second, ops = (taken, same, (op, "add")) if is_product else (same, taken, ("multiply", op))
        ctx.build.add(nodes.Scan(states, first, second, carry, *ops))
        for einsum in (self.update, self.kept):
            ctx.build.note(einsum.name, spans, self.part)
        last = View(made, (states.index[0], Cut(expr(turns.most - 1), expr(1))))
        ctx.build.add(nodes.Copy(carry, last))
        target = targets_of(ctx, self.kept, spans, self.part)
        deliver(ctx, self.kept, states, spans, self.part, self.turn, target)

    def filled(self, value: float, rows: Span, turns: Span) -> View:
        """A tile of one number, made once at the head of the kernel."""
        build = self.ctx.build
        key = ("neutral", value, turns.most)
        cache = build.scopes[0].cache
        if key not in cache:
            with build.hoisted(0):
                cache[key] = self.ctx.temporary("neutral", PARTITIONS, turns.most)
                build.add(nodes.Fill(part_of(cache[key], PARTITIONS, turns.most), value))
        return part_of(cache[key], rows.count, turns.count)


def scan_of(ctx: Context, block: Iterate, outer: dict[str, Span]) -> Scan | None:
    """A block as a scan; None if its turns do more, or lie otherwise."""
    if len(block.body) != 2 or any(ctx.given.has_instruction(e.name) for e in block.body):
        return None
    update, kept = block.body
    state = update.output
    is_copy = kept.operands == (state,) and not (kept.map_op or kept.reduce_op or kept.condition)
    others = [o for o in update.operands if o != state]
    if not is_copy or update.map_op not in SCANNED or update.reduce_op or update.condition:
        return None
    read = others[0] if others else None
    if len(update.operands) != 2 or len(others) != 1 or not isinstance(read, Access):
        return None
    held = ctx.chip(update.name)
    if held is None or held.buffer.dtype != "float32" or "chip" in ctx.homes[kept.name]:
        return None
    accesses = (read, kept.output)
    if any(a.gathers or not _is_along(a, block.variable, state) for a in accesses) or ctx.chip(read.tensor):
        return None
    part = held.part_variable(state)
    is_whole = bool(part) and len(state.indices) == len(state.variables)
    return Scan(ctx, block.variable, update, kept, read, outer, part) if is_whole else None


def _is_along(access: Access, turn: str, state: Access) -> bool:
    """Whether an access has one index of the turn, a step apart, and otherwise those of the state."""
    rest = [i for i in access.indices if turn not in i.variables]
    own = [i for i in access.indices if turn in i.variables]
    is_step = len(own) == 1 and isinstance(own[0], Affine) and own[0].terms == ((turn, 1),)
    return is_step and sorted(map(str, rest)) == sorted(map(str, state.indices))


__all__ = ["Scan", "scan_of"]
