"""Columns in the opposite order, for scans that count down: no operand is read backwards.

TensorE transposes a block of columns, and multiplies it with ones along the other diagonal.
"""

from __future__ import annotations

from ..plan.context import Context, part_of
from ..tree import nodes
from ..tree.expr import ZERO, expr
from ..tree.nodes import View, columns_of


def reverse_columns(ctx: Context, src: View, dst: View, rows: int) -> None:
    """Write columns to a view of as many, the last first, a bank of PSUM at a time.

    Args:
        src: [rows, columns] in SBUF.
        dst: of the same type.
        rows: of the tile, at most.
    """
    total, size = src.cuts[-1].count.value, ctx.bytes_of(src.buffer.dtype)
    assert total is not None, "columns of a scan are cut to pieces of known sizes"
    bank = ctx.bank_bytes // size
    rest = total % bank
    if total > rest:
        with ctx.build.tiles("b", total - rest, bank) as block:
            _reverse_bank(ctx, columns_of(src, block.start, expr(bank)),
                          columns_of(dst, total - block.start - bank, expr(bank)), rows)  # fmt: skip
    if rest:
        _reverse_bank(
            ctx, columns_of(src, expr(total - rest), expr(rest)), columns_of(dst, ZERO, expr(rest)), rows
        )


def _reverse_bank(ctx: Context, src: View, dst: View, rows: int) -> None:
    """Reverse at most as many columns as a bank has."""
    count, dtype = src.cuts[-1].count.value or 0, src.buffer.dtype
    height, build = src.cuts[0].count, ctx.build
    starts = range(0, count, ctx.lanes)
    transposed = ctx.temporary("turned", ctx.lanes, len(starts) * rows, dtype, nodes.PSUM)
    straight = ctx.temporary("straight", ctx.lanes, len(starts) * rows, dtype)
    sums = ctx.temporary("backwards", rows, count, "float32", nodes.PSUM, "sum")
    for number, start in enumerate(starts):
        most = min(ctx.lanes, count - start)
        block, turns = (part_of(tile, most, height, number * rows) for tile in (transposed, straight))
        build.add(nodes.Transpose(block, columns_of(src, expr(start), expr(most))))
        build.add(nodes.Copy(turns, block))
        ones = part_of(ctx.diagonal(dtype, is_other=True), most, most, ctx.lanes - most)
        build.add(nodes.MatMul(part_of(sums, height, most, count - start - most), turns, ones, ()))
    build.add(nodes.Copy(dst, part_of(sums, height, count)))
