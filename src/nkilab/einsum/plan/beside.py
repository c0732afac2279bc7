"""Several short rows of a product side by side: one instruction for what a loop would take one by one.

A convolution has the columns of one row of an image as columns of a product: 56 of the 512 that an
instruction takes. As long as they fit into a bank of PSUM, rows that lie in one tile on chip go through
TensorE together. Where the result has few partitions, tiles of the array each take a part of all rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..language.ast import Access, Einsum, Scalar
from .build import Span, point, whole
from .context import Context
from .deliver import Target
from .product import Product, matmul_dtype, places_of
from .stage import staged_bytes
from .storage import Storage

if TYPE_CHECKING:
    from .contraction import Contraction
    from .operands import Operands


def rows_beside(
    ctx: Context, einsum: Einsum, product: Product, spans: dict[str, Span], target: Target,
    held: dict[int, Storage],
) -> tuple[str, int]:  # fmt: skip
    """The variable several of whose values go through TensorE at once, and how many; "" and 1 for none.

    Args:
        spans: of its variables, before its loops.
        held: operands that are on chip whole.
    """
    bank = ctx.bank
    columns = spans[product.free].most if product.free else bank
    right = product.right
    if ctx.given.is_watched or right is None or 2 * columns > bank or einsum.condition or not product.part:
        return "", 1
    if any(isinstance(o, Scalar) for o in einsum.operands) or spans[product.free].count.value is None:
        return "", 1
    rows = dict[str, int]()
    for variable in (v for v in reversed(product.outer) if is_row(einsum, product, v)):
        extent = spans[variable].count.value or 0
        each = max((n for n in range(1, bank // columns + 1) if extent % n == 0), default=1)
        is_there = 1 in held or _is_staged(ctx, product, right, inside(product, spans, variable, each))
        rows |= {variable: each} if is_there and _lies_straight(einsum, product, variable, target) else {}
    variable = max(rows, key=lambda v: rows[v], default="")
    return (variable, rows[variable]) if rows.get(variable, 1) > 1 else ("", 1)


def inside(product: Product, spans: dict[str, Span], variable: str, each: int) -> dict[str, Span]:
    """Spans inside of the loops around products, of which one takes several values at once."""
    points = {v: point(0) for v in product.outer}
    return {**spans, **points, variable: whole(each, spans[variable].start)}


def is_row(einsum: Einsum, product: Product, variable: str) -> bool:
    """Whether the moving operand alone has a variable, at an index before that of its columns."""
    left, right = product.left, product.right
    if right is None or (left is not None and variable in left.variables) or variable not in right.variables:
        return False
    own = [i for i in right.indices if variable in i.variables]
    is_alone = any(i.variables == (variable,) for i in einsum.output.affine)
    order = [v for i in right.indices for v in i.variables]
    is_before = product.free not in order or order.index(variable) < order.index(product.free)
    is_apart = len(own) == 1 and not {product.free, product.over} & {*own[0].variables}
    return is_alone and is_before and is_apart


def _lies_straight(einsum: Einsum, product: Product, variable: str, target: Target) -> bool:
    """Whether partitions, rows and columns of a product come in this order where they go."""
    order = [v for i in einsum.output.indices for v in i.variables]
    if target.tile is not None and target.tile.part_variable(einsum.output) != product.part:
        return False
    places = [order.index(v) for v in (product.part, variable, product.free)]
    return places[1] < places[2] and (target.hbm is None or places[0] < places[1])


def _is_staged(ctx: Context, product: Product, right: Access, spans: dict[str, Span]) -> bool:
    """Whether the moving operand is, or will be, on chip as products want it."""
    chip, dtype = ctx.chip(right.tensor), matmul_dtype(ctx, product.left, right)
    if chip is not None:
        held = (chip.part_variable(right), chip.buffer.dtype, chip.buffer.memory)
        return held == (product.over, dtype, "sbuf")
    return staged_bytes(ctx, right, spans, product.over, dtype) * 2 <= ctx.room() * 0.4


def lower_rows(nest: Contraction, each: int, comment: str, operands: Operands) -> None:
    """Append the loops over rows, so many in each product, and parts of all rows on tiles of the array."""
    rows, is_bound = nest.spans[nest.beside], nest.ending or nest.einsum.name in nest.ctx.memories
    places = [] if is_bound or 1 not in nest.padded else places_of(nest.ctx, nest.product.part, nest.spans)
    places = places or [(0, 0)]
    part = rows.most // (each * len(places)) * each
    ways = ((0, part, places), (part * len(places), rows.most - part * len(places), places[:1]))
    for start, extent, own in (way for way in ways if way[1]):
        with nest.ctx.build.tiles(nest.beside, extent, each, over=nest.beside, comment=comment) as local:
            first = rows.tile(replace(local, start=local.start + start))
            nest.panels = [replace(first, start=first.start + n * part) for n in range(len(own))]
            nest.places, nest.spans[nest.beside] = own, first
            operands.stage_padded(is_forced=True)
            nest.of_result()
