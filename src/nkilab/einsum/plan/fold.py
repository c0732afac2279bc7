"""Partitions seen otherwise: their blocks as columns, or summed over."""

from __future__ import annotations

from dataclasses import dataclass

from ..language.ast import Access, Einsum
from ..language.operators import OPERATORS
from ..tree import nodes
from ..tree.expr import ZERO, Expr, expr
from ..tree.nodes import View, columns_of
from .build import Span
from .choose import Choice
from .context import Context, part_of
from .deliver import Target
from .fetch import turn
from .storage import Storage


@dataclass
class Partial:
    """A reduction under way: where it lies, and whether it needs no loop, lies in place, is taken along."""

    einsum: Einsum
    into: View
    is_single: bool
    is_delivered: bool = False
    is_taken: bool = False


def across_partitions(ctx: Context, view: View, op: str, hint: str, copies: int) -> View:
    """[P, columns] reduced over its partitions, as [copies, columns] of at most 512 columns, all alike."""
    if op == "add":
        return _product_with_ones(ctx, view, copies)
    rows, columns = (cut.count for cut in view.cuts)
    most = _width(ctx, view)
    row = part_of(ctx.temporary(f"{hint}_all", 1, most), 1, columns)

    def reduced(start: Expr, count: Expr, size: int) -> None:
        psum = part_of(ctx.temporary("turned", size, ctx.lanes, "float32", nodes.PSUM), count, rows)
        ctx.build.add(nodes.Transpose(psum, columns_of(view, start, count)))
        into = part_of(ctx.temporary(hint, size, 1), count, 1) if most > 1 else row
        ctx.build.add(nodes.Reduce(into, OPERATORS[op].alu, psum))
        if most > 1:
            turn(ctx, into, columns_of(row, start, count), 1)

    if columns.value is None and most > ctx.lanes:  # of the last tile there may be fewer blocks
        with ctx.build.tiles(f"{hint}_block", Span(ZERO, columns, most), ctx.lanes) as block:
            reduced(block.start, block.count, ctx.lanes)
    else:
        for start in range(0, most, ctx.lanes):
            count = min(ctx.lanes, most - start)
            reduced(expr(start), expr(count), count)
    return _product_with_ones(ctx, row, copies) if copies > 1 else row


def _product_with_ones(ctx: Context, view: View, copies: int) -> View:
    """The sum over partitions, on as many partitions as there are copies."""
    psum = ctx.temporary("summed", copies, _width(ctx, view), "float32", nodes.PSUM, "sum")
    result = part_of(psum, copies, view.cuts[1].count)
    ctx.build.add(nodes.MatMul(result, part_of(ctx.constant(1.0), view.cuts[0].count, copies), view, ()))
    return result


def _width(ctx: Context, view: View) -> int:
    """Columns of a view at most."""
    return view.cuts[-1].count.value or min(int(str(view.buffer.shape[-1])), ctx.bank)


def common_copies(ctx: Context, einsums: list[Einsum], part: str) -> int:
    """Partitions that have all of every operand, where no variable lies on them."""
    if part or any(e.is_placed for e in einsums):
        return 1
    tiles = [ctx.chip(t) for t in {t for e in einsums for t in e.reads} - {e.name for e in einsums}]
    return min((tile.copies if tile is not None else 1 for tile in tiles), default=1)


def folded(storage: Storage, span: Span, blocks: int, *, is_written: bool = False) -> View:
    """One column per block of partitions of a tile that holds one element per partition."""
    local = span.start - storage.bases[storage.dims.index("part")]
    cut = nodes.Cut(local // storage.lanes, expr(blocks))
    index = (nodes.Cut(ZERO, expr(storage.lanes)), cut, nodes.At(ZERO))
    return View(storage.buffer, index, turn=storage.turns[is_written])


def is_folded(
    ctx: Context, einsums: list[Einsum], targets: dict[str, Target], choice: Choice, spans: dict[str, Span]
) -> bool:
    """Whether a cluster works on columns alone, of several blocks of partitions."""
    part = choice.part
    if not part or choice.free or choice.loops or spans[part].most <= ctx.lanes:
        return False
    if spans[part].count.value is None or spans[part].most % ctx.lanes:
        return False
    if any(ctx.given.is_cut([e.name], part) or ctx.given.instruction(e.name) for e in einsums):
        return False
    if any({*e.reduced} - {part} or e.is_placed for e in einsums):
        return False
    made = {e.name for e in einsums}
    read = ((ctx.chip(a.tensor), a) for e in einsums for a in e.accesses if a.tensor not in made)
    if not all(chip is not None and _is_column(chip, a, part) for chip, a in read):
        return False
    kept = [(e, targets[e.name]) for e in einsums if e.name in targets and not e.reduced]
    return all(t.hbm is None and t.tile is not None and _is_column(t.tile, e.output, part) for e, t in kept)


def _is_column(storage: Storage, access: Access, part: str) -> bool:
    if part not in access.variables:
        return storage.copies > 1 or not access.variables
    return storage.has_blocks and storage.part_variable(access) == part and "free" not in storage.dims
