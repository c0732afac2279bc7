"""Matrices that every turn of a block multiplies, and that do not fit on chip: a part of them stays there.

What stays is loaded before the turns; each turn loads the rest, a few rows at a time. Sums go through both
by turns, so that transfers go on while products read what stays.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..language.ast import Access
from ..tree.expr import Expr
from .build import Span, whole
from .context import Context
from .product import Product
from .stage import staged_bytes

# blocks of rows that a turn may work on at once, besides those that stay
LOADED = 2
# times the room that plans may fill: beside what stays there is little else
SHARE = 1.15
# blocks that a step loads at least, of more than one: one transfer hides the start of the next
TOGETHER = 2
# part of the rows that may stay which do not, for the sake of even steps
UNEVEN = 0.05


@dataclass(frozen=True)
class Parts:
    """A sum in steps, each over rows of the moving operand that stay on chip and over others."""

    steps: int
    kept: int  # rows of a step that stay
    rest: int  # and that do not

    @property
    def stays(self) -> Span:
        """The rows that are on chip before the turns."""
        return whole(self.steps * self.kept)

    def of(self, step: Expr) -> tuple[Span, Span]:
        """The rows of a step."""
        return whole(self.kept, step * self.kept), whole(self.rest, step * self.rest + self.stays.most)


def parts_of_sum(ctx: Context, product: Product, spans: dict[str, Span], dtype: str) -> Parts | None:
    """How a sum goes through an operand that turns read again; None if all of it is alike."""
    right, every = product.right, spans[product.over]
    if right is None or not product.free or not _is_read_again(ctx, right, product, dtype):
        return None
    if every.start.value != 0 or every.count.value != every.most or every.most % ctx.lanes:
        return None
    rows, blocks = {**spans, product.over: whole(ctx.lanes)}, every.most // ctx.lanes
    fit = int(ctx.room() * SHARE) // staged_bytes(ctx, right, rows, product.over, dtype)
    most = fit - LOADED
    told = f"{right.tensor}: rows that stay on chip, of {every.most}"
    if fit >= blocks or most <= 0 or ctx.pick(told, (most, 0)) == 0:
        return None
    # many steps, as long as they divide nearly all that may stay
    even = (n for n in range(1, most + 1) if blocks % n == 0 and most % n <= most * UNEVEN)
    steps = max(n for n in even if n == 1 or blocks // n - most // n >= TOGETHER)
    kept = most // steps * ctx.lanes
    ctx.choices.append(f"{right.tensor}: {steps * kept} of {every.most} rows stay on chip over the turns")
    return Parts(steps, kept, every.most // steps - kept)


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
