"""How far an access reaches over spans: beyond the edges of its tensor, or over overlapping windows."""

from __future__ import annotations

from ..language.ast import Access, Affine
from ..language.extents import bounds
from ..tree.expr import Expr, expr
from .build import Span
from .context import Context

# elements between those that are read, up to which whole rows are loaded
MOST_STRIDE = 8


def reach(index: Affine, spans: dict[str, Span]) -> tuple[Expr, int]:
    """The least position of an index over spans, and how many positions it reaches over."""
    start, most = expr(index.constant), 1
    for name, c in index.terms:
        span = spans[name]
        start = start + span.start * c
        if c < 0:
            start = start + (span.most - 1) * c
        most += abs(c) * (span.most - 1)
    return start, most


def leaves(ctx: Context, access: Access, spans: dict[str, Span]) -> bool:
    """Whether an access reads outside of its tensor, where values are 0."""
    return bool(leaving(ctx, access, spans))


def leaving(ctx: Context, access: Access, spans: dict[str, Span]) -> list[Affine]:
    """The indices of an access that run outside of its tensor, whatever loops around it choose."""
    sizes = ctx.cascade.sizes
    axes = zip(ctx.cascade.tensors[access.tensor].ranks, access.indices, strict=True)

    def is_outside(index: Affine, rank: str) -> bool:
        extents = {n: sizes.get(n.upper(), spans[n].most) for n in index.variables}
        low, high = bounds(index.at(sizes), extents)
        return low < 0 or high >= sizes[rank]

    return [i for rank, i in axes if isinstance(i, Affine) and is_outside(i, rank)]
