"""How far an access reaches over spans: beyond the edges of its tensor, or over overlapping windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..language.ast import Access, Affine, Einsum, Index
from ..tree.expr import Expr, expr
from .build import Span, whole
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


def leaving(ctx: Context, access: Access, spans: dict[str, Span]) -> list[Affine]:
    """The indices of an access that run outside of its tensor, where values are 0, whatever loops choose."""
    sizes = ctx.cascade.sizes
    axes = zip(ctx.cascade.tensors[access.tensor].ranks, access.indices, strict=True)

    def is_outside(index: Affine, rank: str) -> bool:
        if v := index.plain:
            return sizes.get(v.upper(), spans[v].most) > sizes[rank]
        extents = {n: sizes.get(n.upper(), spans[n].most) for n in index.variables}
        low, high = index.at(sizes).ends(extents)
        return low < 0 or high >= sizes[rank]

    return [i for rank, i in axes if isinstance(i, Affine) and is_outside(i, rank)]


def beyond_edges(ctx: Context, einsums: Iterable[Einsum]) -> list[Affine]:
    """The indices with which some Einsums read inputs beyond their edges."""
    inputs = ((e, a) for e in einsums for a in e.accesses if a.tensor in ctx.cascade.inputs and not a.gathers)
    return [index for e, a in inputs for index in leaving(ctx, a, ctx.spans(e, {}))]


def constants(accesses: Sequence[Access], number: int) -> tuple[int, int]:
    """The least and the greatest constant of an index."""
    constants = [i.constant for a in accesses if isinstance(i := a.indices[number], Affine)]
    return min(constants), max(constants)


def around(access: Access, like: Sequence[Access]) -> tuple[Access, dict[str, Span]]:
    """An access that reaches over all that differ from it in constants, and how far along each axis."""
    indices, more = list[Index](), dict[str, Span]()
    for number, index in enumerate(access.affine):
        low, high = constants(like, number)
        name = f"{access.tensor.lower()}_around_{number}" if high > low else ""
        more |= {name: whole(1 + high - low)} if name else {}
        indices.append(replace(index, terms=(*index.terms, *([(name, 1)] if name else [])), constant=low))
    return replace(access, indices=tuple(indices)), more
