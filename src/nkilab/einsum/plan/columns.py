"""Tiles of one element per partition, in blocks: filled from rows that TensorE transposes."""

from __future__ import annotations

from ...tiles.dtypes import as_dtype
from ..language.ast import Access
from ..tree import nodes
from ..tree.expr import ZERO, expr
from ..tree.nodes import At, Cut, View
from .build import Span
from .context import Context, part_of
from .fetch import turn
from .storage import Storage, positions


def loaded_as_rows(
    ctx: Context, plain: Access, at: dict[str, Span], part: str, made: Storage, source: Storage
) -> bool:
    """Fill blocks of one element per partition from rows of 128, transposed; whether that is possible."""
    span, axis = at[part], next(a for a, i in enumerate(plain.indices) if i.plain == part)
    blocks, rest = divmod(span.count.value or 0, ctx.lanes)
    dtype = source.buffer.dtype
    if rest or not 1 < blocks <= ctx.lanes or axis != len(plain.indices) - 1 or dtype in ("int32", "uint32"):
        return False
    rows = part_of(ctx.temporary(f"{plain.tensor.lower()}_rows", blocks, ctx.lanes, dtype), blocks, ctx.lanes)
    index = tuple(positions(plain, at))
    ctx.build.add(nodes.Load(rows, View(source.buffer, index, is_turned=True, folded=(axis, ctx.lanes))))
    into = View(made.buffer, (Cut(ZERO, expr(ctx.lanes)), Cut(ZERO, expr(blocks)), At(ZERO)))
    turn(ctx, rows, into, ctx.lanes)
    return True


def dealt_out(
    ctx: Context, plain: Access, at: dict[str, Span], part: str, made: Storage, source: Storage
) -> bool:
    """Fill blocks of one element per partition from a row on chip, transposed into one bank of PSUM; whether
    that is possible."""
    blocks, rest = divmod(at[part].count.value or 0, ctx.lanes)
    size = as_dtype(source.buffer.dtype).storage.itemsize
    is_row = not source.is_hbm and source.buffer.memory == nodes.SBUF and not source.part_variable(plain)
    if not is_row or rest or not 1 < blocks <= ctx.bank_bytes // size or at[part].start.value != 0:
        return False
    start = source.view(positions(plain, at)).index[0]
    if not isinstance(start, Cut) or start.start.value != 0 or not made.has_blocks:
        return False
    psum = ctx.temporary("turned", ctx.lanes, blocks, source.buffer.dtype, nodes.PSUM)
    with ctx.build.loop("b", blocks) as b:
        here = {**at, part: Span(at[part].start + b * ctx.lanes, expr(ctx.lanes), ctx.lanes)}
        row = source.view(positions(plain, here))
        ctx.build.add(nodes.Transpose(part_of(psum, ctx.lanes, 1, b), row))
    every = (Cut(ZERO, expr(ctx.lanes)), Cut(ZERO, expr(blocks)))
    ctx.build.add(nodes.Copy(View(made.buffer, (*every, At(ZERO))), View(psum, every)))
    return True
