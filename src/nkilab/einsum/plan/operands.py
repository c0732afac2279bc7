"""Operands of a product that come on chip before its blocks: small, read beyond their edges, or stacked."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..language.ast import Access, Einsum
from ..tree.nodes import Select, View
from .build import Span, point
from .context import Context, part_of
from .product import Product
from .reach import leaving
from .stack import Stack, stacked, stacked_bytes, stacked_over
from .stage import stage, staged_bytes
from .storage import Storage, counted

# part of the room on chip that an operand may take to be there before all else
SMALL = 0.1
# and one that is there at once for as many turns of the loops around as fit
LARGE = 0.8
# and one of which turns of loops read parts that overlap
NEAR = 0.4


class Operands:
    """What a product reads.

    Args:
        spans: of its variables, as loops around it choose them.
        dtype: in which TensorE reads.

    `stack` is what lies on the partitions beside the values of the sum, `held` what is on
    chip, by number: 0 the stationary operand, 1 the moving one.
    """

    def __init__(
        self, ctx: Context, einsum: Einsum, product: Product, spans: dict[str, Span], dtype: str
    ) -> None:
        self.ctx, self.einsum, self.product, self.spans, self.dtype = ctx, einsum, product, spans, dtype
        self.stack = self.chosen_stack()
        self.held = dict[int, Storage]()

    def loops(self, beside: str) -> list[str]:
        """Variables of the loops around products: first those alone in an index of what has edges.

        Of others first those that both operands have, so that turns of the rest read one of these again.
        """
        if self.ctx.given.is_watched:
            return list(self.product.outer)
        accesses = [a for a in (self.product.left, self.product.right) if a is not None]
        edges = {v for a in accesses for i in leaving(self.ctx, a, self.spans) for v in i.variables}
        windows = {v for a in accesses for v in self.windows(a)}
        shared = {v for v in self.product.outer if all(v in a.variables for a in accesses)}
        last = lambda v: (v == beside, v in edges, v in windows, v not in shared)  # noqa: E731
        return sorted(self.product.outer, key=last)

    def windows(self, access: Access) -> set[str]:
        """Variables of loops whose turns read parts of an operand that overlap."""
        indices = [i for i in access.affine if len(i.variables) > 1]
        return {v for i in indices for v in i.variables if v in self.product.outer}

    def is_read_again(self, access: Access) -> bool:
        """Whether the loops that are left read what overlaps, of an operand that fits."""
        windows = self.windows(access)
        left = {v for v in self.product.outer if v in access.variables and not self.spans[v].is_point}
        # all parts of one result read it
        parts = [
            e for e in self.ctx.cascade.einsums if e.name == self.einsum.name and access.tensor in e.reads
        ]
        is_near = (bool(windows) and left <= windows) or len(parts) > 1
        is_near &= not self.ctx.given.is_watched
        return is_near and self.bytes_of(access) <= self.ctx.room() * NEAR

    def chosen_stack(self) -> Stack | None:
        """What goes to the partitions beside the values of the sum, if there is room; or None."""
        product = self.product
        if self.ctx.given.is_watched:
            return None
        found = stacked_over(self.ctx, self.einsum, product, self.spans)
        if found is None:
            return None
        assert product.right is not None
        # what lies beyond edges is known before the loops
        edges = {v for i in leaving(self.ctx, product.right, self.spans) for v in i.variables}
        inside = {**self.spans, **{v: point(0) for v in product.outer if v not in edges}}
        accesses = [a for a in (product.left, product.right) if a is not None]
        sizes = [stacked_bytes(self.ctx, a, inside, product.over, found, self.dtype) for a in accesses]
        return found if sum(sizes) <= self.ctx.room() * LARGE else None

    def stage_small(self, is_staged: Callable[[Access, str], bool]) -> None:
        """Bring an operand on chip before the loops if it is small, so that a large one does not bar it.

        Args:
            is_staged: whether products want it whole, given the variable of the result that it has.
        """
        product = self.product
        if self.ctx.given.is_watched:
            return
        for n, (access, own) in enumerate(((product.left, product.part), (product.right, product.free))):
            if access is None or n in self.held or leaving(self.ctx, access, self.spans) or not product.outer:
                continue
            if set(product.outer) & set(access.variables) or not is_staged(access, own):
                continue
            if self.bytes_of(access) <= self.ctx.room() * SMALL:
                self.place(n, access)

    def stage_padded(self, is_forced: bool) -> None:
        """Bring operands that are stacked, or read beyond edges or in windows, on chip if they fit."""
        for n, access in enumerate((self.product.left, self.product.right)):
            if access is None or n in self.held:
                continue
            is_again = self.is_read_again(access)
            if not self.stack and not leaving(self.ctx, access, self.spans) and not is_again:
                continue
            if is_again or is_forced or self.bytes_of(access) <= self.ctx.room() * LARGE:
                self.place(n, access)

    def bytes_of(self, access: Access) -> int:
        """Bytes per partition of an operand on chip."""
        over = self.product.over
        if self.stack:
            return stacked_bytes(self.ctx, access, self.spans, over, self.stack, self.dtype)
        return staged_bytes(self.ctx, access, self.spans, over, self.dtype)

    def place(self, n: int, access: Access) -> None:
        """Bring an operand on chip whole."""
        over = self.product.over
        if self.stack:
            self.held[n] = stacked(self.ctx, access, self.spans, over, self.stack, self.dtype)
        else:
            self.held[n] = stage(self.ctx, access, self.spans, over, self.dtype)


def masked(
    ctx: Context, einsum: Einsum, product: Product, own: str, view: View, spans: dict[str, Span],
    wide: Collection[str],
) -> View:  # fmt: skip
    """An operand that is 0 where the condition of an Einsum fails.

    Args:
        own: the variable of the result that the operand has.
        spans: what it covers of each variable.
        wide: variables of more than one value.
    """
    condition = einsum.condition
    if condition is None:
        return view
    asked = set(condition.variables) & set(wide)
    if not asked <= {product.over, own} or (not asked - {product.over} and own != product.part):
        return view
    rows, columns = spans[product.over].most, spans[own].most if own else 1
    tile = ctx.temporary("masked", rows, columns, view.buffer.dtype)
    made = part_of(tile, view.cuts[0].count, view.cuts[1].count)
    where = counted(condition.difference, spans, product.over, own)
    ctx.build.add(Select(made, view, *where, condition.relation, 0.0))
    return made
