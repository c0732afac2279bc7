"""Partitions seen otherwise: their blocks as columns, or summed over."""

from __future__ import annotations

from ..language.ast import Access, Einsum
from ..language.operators import OPERATORS
from ..tree import nodes
from ..tree.expr import ZERO, expr
from ..tree.nodes import View
from .build import Span
from .choose import Choice
from .context import Context, part_of
from .deliver import Target
from .storage import Storage


def across_partitions(ctx: Context, view: View, op: str, hint: str) -> View:
    """[P, columns] reduced over its partitions, as [1, columns] of at most 512 columns."""
    rows, columns = view.cuts[0].count, view.cuts[1].count
    shape = view.buffer.shape
    most_rows, most_columns = int(str(shape[0])), int(str(shape[1]))
    result = ctx.temporary(f"{hint}_all", 1, most_columns)
    if op == "add":
        psum = ctx.temporary("summed", 1, most_columns, "float32", nodes.PSUM, "sum")
        ones = part_of(ctx.constant(1.0), rows, 1)
        ctx.build.add(nodes.MatMul(part_of(psum, 1, columns), ones, view, ()))
        ctx.build.add(nodes.Copy(part_of(result, 1, columns), part_of(psum, 1, columns)))
        return part_of(result, 1, columns)
    for column in range(most_columns):
        psum = ctx.temporary("turned", 1, ctx.lanes, "float32", nodes.PSUM)
        row = part_of(psum, 1, rows)
        one = View(view.buffer, (view.index[0], nodes.Cut(expr(column), expr(1))))
        ctx.build.add(nodes.Transpose(row, one))
        ctx.build.add(nodes.Reduce(part_of(result, 1, 1, column), OPERATORS[op].alu, row))
    assert most_rows <= ctx.lanes
    return part_of(result, 1, columns)


def folded(storage: Storage, span: Span, blocks: int) -> View:
    """One column per block of partitions of a tile that holds one element per partition."""
    local = span.start - storage.bases[storage.dims.index("part")]
    cut = nodes.Cut(local // storage.lanes, expr(blocks))
    return View(storage.buffer, (nodes.Cut(ZERO, expr(storage.lanes)), cut, nodes.At(ZERO)))


def is_folded(
    ctx: Context, einsums: list[Einsum], targets: dict[str, Target], choice: Choice, spans: dict[str, Span]
) -> bool:
    """Whether a cluster works on columns alone, of several blocks of partitions."""
    part = choice.part
    if not part or choice.free or choice.loops or spans[part].most <= ctx.lanes:
        return False
    if spans[part].count.value is None or spans[part].most % ctx.lanes:
        return False
    if any(ctx.given.is_cut([e.name], part) or ctx.given.has_instruction(e.name) for e in einsums):
        return False
    if any(e.reduced or e.condition or any(a.gathers for a in e.accesses) for e in einsums):
        return False
    made = {e.name for e in einsums}
    read = ((ctx.chip(a.tensor), a) for e in einsums for a in e.accesses if a.tensor not in made)
    if not all(chip is not None and _is_column(chip, a, part) for chip, a in read):
        return False
    kept = [(e, targets[e.name]) for e in einsums if e.name in targets]
    return all(t.hbm is None and t.tile is not None and _is_column(t.tile, e.output, part) for e, t in kept)


def _is_column(storage: Storage, access: Access, part: str) -> bool:
    return storage.has_blocks and storage.part_variable(access) == part and "free" not in storage.dims
