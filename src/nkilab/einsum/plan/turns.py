"""Operands that turns of a loop read small piece by piece: brought on chip for many turns at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..language.ast import Access, Einsum
from ..tree import nodes
from ..tree.expr import ZERO, expr
from ..tree.nodes import At, Cut, View, all_of
from .build import Span
from .context import Context
from .reach import leaving
from .stage import stage, staged_bytes
from .storage import Storage, positions
from .want import Want

# turns whose pieces come at once, and loops of how many turns are cut
MOST_TURNS, FEWEST_TURNS = 32, 64
# bytes from which the piece of one turn is worth a transfer of its own
WORTH = 64 * 1024
# bytes per partition that the pieces of many turns may take
MOST_BYTES = 16 * 1024


def turns_at_once(ctx: Context, einsums: Sequence[Einsum], variable: str, extent: int) -> int:
    """How many turns of a block are loaded at once; all in one where nothing is gained."""
    fits = [d for d in range(8, MOST_TURNS + 1) if extent % d == 0]
    pieces = [a for e in einsums for a in e.accesses if _is_piece(ctx, a, variable)]
    return max(fits) if fits and extent >= FEWEST_TURNS and pieces else extent


def _is_piece(ctx: Context, access: Access, variable: str) -> bool:
    """Whether a turn reads a little of an input, at the turn's own index along one axis."""
    own = [i for i in access.indices if variable in i.variables]
    if access.gathers or access.tensor not in ctx.cascade.inputs or len(own) != 1 or own[0].plain != variable:
        return False
    shape = ctx.cascade.shape(access.tensor)
    size = prod(shape) // shape[access.indices.index(own[0])]
    return size * ctx.bytes_of(ctx.dtypes[access.tensor]) < WORTH


def _chunked(ctx: Context, want: Want) -> dict[str, Span] | None:
    """The spans of what is wanted, with all turns of the present chunk."""
    held = [v for v in ctx.turns if _is_piece(ctx, want.access, v)]
    if len(held) != 1 or not want.spans[held[0]].is_point or leaving(ctx, want.access, want.spans):
        return None
    storages = ctx.storages.get(want.access.tensor, ())
    if not all(s.is_hbm for s in storages):
        return None
    return {**want.spans, held[0]: ctx.turns[held[0]]}


def piece_of(ctx: Context, want: Want) -> Storage | None:
    """A tile that holds what is wanted for many turns; None if it is loaded turn by turn."""
    spans = _chunked(ctx, want)
    if spans is None or not want.has(want.part):
        return None
    dtype = ctx.dtypes[want.access.tensor]
    wide = [v for v in want.access.variables if not want.spans[v].is_point]
    if set(wide) - {want.part, want.free} or any(spans[v].count.value is None for v in wide):
        return None
    if staged_bytes(ctx, want.access, spans, want.part, dtype) > min(MOST_BYTES, ctx.room() * 0.2):
        return None
    return stage(ctx, want.access, spans, want.part, dtype)


def rows_of(ctx: Context, want: Want) -> View | None:
    """What is wanted on every partition, as a part of a tile that holds it for many turns."""
    spans = _chunked(ctx, want)
    if spans is None or want.has(want.part) or want.rows.most == 1 or want.rows.count.value is None:
        return None
    (variable,) = (v for v in ctx.turns if spans[v] is not want.spans.get(v))
    turns, columns = spans[variable], want.columns
    wide = [v for v in want.access.variables if not want.spans[v].is_point]
    order = [v for i in want.access.indices for v in i.variables if not spans[v].is_point]
    held = want.access.tensor, variable, want.rows.most, turns.start, tuple(order), columns.count
    size = turns.most * columns.most * ctx.bytes_of(ctx.dtypes[want.access.tensor])
    if (
        set(wide) - {want.free}
        or order not in ([variable], [variable, want.free])
        or columns.count.value is None
    ):
        return None
    if size > min(MOST_BYTES, ctx.room() * 0.2):
        return None
    depth = ctx.build.depth_of(turns.start.names | columns.start.names)

    def rows() -> nodes.Buffer:
        source = ctx.storages[want.access.tensor][0].buffer
        shape = (want.rows.most, turns.most, columns.most)
        tile = ctx.build.buffer(f"{want.access.tensor.lower()}_rows", shape, source.dtype, nodes.SBUF)
        at = positions(want.access, spans)
        if want.free not in order:
            # one element a turn, as columns of one
            at = [*at, Cut(ZERO, expr(1))] if len(at) < len(source.shape) else at
        every = all_of(tile).index
        dst = View(tile, every if want.free in order else (*every[:2], At(ZERO)))
        ctx.build.add(nodes.Load(dst, View(source, tuple(at), repeat=expr(want.rows.most))))
        return tile

    tile = ctx.build.once(held, depth, rows)
    local = want.spans[variable].start - turns.start
    return View(tile, (Cut(ZERO, want.rows.count), At(local), Cut(ZERO, want.columns.count)))
