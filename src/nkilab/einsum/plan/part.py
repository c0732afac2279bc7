"""Matrices that every turn of a block multiplies, and that do not fit on chip: a part of them stays there.

What stays is loaded before the turns; each turn loads the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..language.ast import Access
from .build import Span, whole
from .context import Context
from .product import Product
from .stage import staged_bytes

# blocks of columns that a turn may work on at once, besides those that stay
LOADED = 2
# part of the room on chip that all of them may take
SHARE = 0.85


@dataclass(frozen=True)
class Columns:
    """Columns of a product."""

    span: Span | None = None  # which; None for all
    stays: bool = False  # whether the moving operand is on chip before the turns


def columns_apart(ctx: Context, product: Product, spans: dict[str, Span], dtype: str) -> list[Columns]:
    """The columns of a product, those whose moving operand stays on chip apart from the others."""
    right, free = product.right, product.free
    if right is None or not free or not _is_read_again(ctx, right, product, dtype):
        return [Columns()]
    every = spans[free]
    if every.start.value != 0 or every.count.value != every.most or every.most % ctx.bank:
        return [Columns()]
    tile = whole(ctx.bank)
    block = staged_bytes(ctx, right, {**spans, free: tile}, product.over, dtype)
    blocks, fit = every.most // ctx.bank, int(ctx.room() * SHARE) // block
    kept = (fit - LOADED) * ctx.bank
    if fit >= blocks or kept <= 0:
        return [Columns()]
    told = f"{right.tensor}: columns that stay on chip, of {every.most}"
    if ctx.pick(told, (kept, 0)) == 0:
        return [Columns()]
    ctx.choices.append(f"{right.tensor}: {kept} of {every.most} columns stay on chip over the turns")
    rest = every.most - kept
    return [Columns(whole(kept), stays=True), Columns(whole(rest, kept))]


def _is_read_again(ctx: Context, access: Access, product: Product, dtype: str) -> bool:
    """Whether every turn of a block reads all of an operand that lies in HBM as products want it."""
    turns = {b.variable for b in ctx.cascade.blocks}
    loops = [v for v, trips in ctx.loops if trips > 1]
    if not loops or set(loops) - turns or set(loops) & set(access.variables) or ctx.given.is_watched:
        return False
    if product.outer or product.inner or ctx.dtypes[access.tensor] != dtype:
        return False
    storages = ctx.storages.get(access.tensor, ())
    is_far = bool(storages) and all(s.is_hbm and s.depth < ctx.build.depth for s in storages)
    return is_far and [i.plain for i in access.indices] == [product.over, product.free]
