"""A short sum on the partitions, several times over: shifted copies of operands fill the rows of TensorE.

A convolution of three channels sums over three of 128 partitions, once for each row of its filter. Both
operands lie stacked instead: the partitions hold the channels for every row of the filter, and one product
sums over all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..language.ast import Access, Affine, Einsum
from ..tree import nodes
from ..tree.expr import ZERO, expr
from ..tree.nodes import At, Cut, View
from .build import Span, point
from .context import Context
from .product import Product, matmul_dtype
from .reach import reach
from .stage import extents_of, staged_bytes
from .storage import PARTITIONS, Storage

# of partitions that a sum leaves idle before operands are stacked
LEAST_COPIES = 2


def stacked_over(ctx: Context, einsum: Einsum, product: Product, spans: dict[str, Span]) -> str:
    """The variable whose values lie on the partitions beside those of the sum; "" for none."""
    depth = spans[product.over].count.value
    if depth is None or einsum.condition or depth * LEAST_COPIES > PARTITIONS:
        return ""
    if product.left is None or product.right is None:
        return ""
    if not _may_be_stacked(ctx, product):
        return ""
    found = [
        v
        for v in product.inner
        if LEAST_COPIES <= (spans[v].count.value or 0) <= PARTITIONS // depth
        and all(_is_shift(a, v) for a in (product.left, product.right))
    ]
    return max(found, key=lambda v: spans[v].most, default="")


def _may_be_stacked(ctx: Context, product: Product) -> bool:
    """Whether both operands come from HBM as TensorE takes them, the stationary one before all loops."""
    assert product.left is not None
    assert product.right is not None
    accesses = (product.left, product.right)
    dtype = matmul_dtype(ctx, *accesses)
    if any(not all(s.is_hbm for s in ctx.storages.get(a.tensor, ())) for a in accesses):
        return False
    if any(ctx.dtypes[a.tensor] != dtype or a.gathers for a in accesses):
        return False
    return not set(product.outer) & set(product.left.variables) and not ctx.loops


def _is_shift(access: Access, variable: str) -> bool:
    """Whether a variable stands in one index of an access, one position apart or more."""
    own = [i for i in access.indices if variable in i.variables]
    return len(own) == 1 and isinstance(own[0], Affine) and own[0].coefficient(variable) > 0


def stacked_bytes(
    ctx: Context, access: Access, spans: dict[str, Span], over: str, variable: str, dtype: str
) -> int:
    """Bytes per partition that a stacked operand takes."""
    return staged_bytes(ctx, access, {**spans, variable: point(0)}, over, dtype)


def stacked(
    ctx: Context, access: Access, spans: dict[str, Span], over: str, variable: str, dtype: str
) -> Storage:
    """An operand with what each value of a variable reads on partitions of its own; 0 beyond edges."""
    first = {**spans, variable: point(0)}
    extents, dims, bases = extents_of(access, first, over)
    copies, depth = spans[variable].most, extents[dims.index("part")]
    held = list(extents)
    held[dims.index("part")] = copies * depth
    made = ctx.add_tile(
        access.tensor, tuple(held), tuple(dims), tuple(bases), dtype, f"{access.tensor.lower()}_stack"
    )
    made.depth = ctx.build.depth
    source = next(s for s in ctx.storage_of(access) if s.is_hbm)
    parts = [_inside(ctx, access, {**spans, variable: point(n)}, made) for n in range(copies)]
    _edged(ctx, made, parts)
    for copy, part in enumerate(parts):
        if part is not None:
            _loaded(ctx, made, source, part, copy * depth)
    return made


@dataclass(frozen=True)
class _Part:
    """What lies inside of a tensor.

    Args:
        at: where it lies in HBM, per axis.
        starts: where it begins in a tile, per axis that the tile has, and how far it reaches.
    """

    at: tuple[At | Cut, ...]
    starts: tuple[tuple[int, int], ...]


def _inside(ctx: Context, access: Access, spans: dict[str, Span], made: Storage) -> _Part | None:
    """The elements that an access reads inside of its tensor; None if there are none."""
    at: list[At | Cut] = []
    starts: list[tuple[int, int]] = []
    for index, dim, size in zip(access.indices, made.dims, ctx.cascade.shape(access.tensor), strict=True):
        assert isinstance(index, Affine)
        start, most = reach(index, spans)
        if dim == "gone":
            at.append(At(start))
            continue
        if start.value is None:
            # what loops choose lies inside of a tensor
            at.append(Cut(start, expr(most)))
            starts.append((0, most))
            continue
        low, high = max(start.value, 0), min(start.value + most, size)
        if high <= low:
            return None
        at.append(Cut(expr(low), expr(high - low)))
        starts.append((low - start.value, high - low))
    return _Part(tuple(at), tuple(starts))


def _axis_of_parts(made: Storage) -> int:
    """The axis on the partitions, of those that a tile has."""
    kept = [d for d in made.dims if d != "gone"]
    return kept.index("part")


def _edged(ctx: Context, made: Storage, parts: list[_Part | None]) -> None:
    """Zeros where some part does not reach."""
    shape = [expr(e).value or 1 for e in made.buffer.shape]
    every = [Cut(ZERO, expr(e)) for e in shape]
    known = [p for p in parts if p is not None]
    if len(known) < len(parts):
        ctx.build.add(nodes.Fill(View(made.buffer, tuple(every)), 0.0))
        return
    place, axis = _axis_of_parts(made), 0
    for n in range(len(known[0].starts)):
        if n == place:
            continue
        axis += 1
        first = max(p.starts[n][0] for p in known)
        last = min(sum(p.starts[n]) for p in known)
        for start, count in ((0, first), (last, shape[axis] - last)):
            if count > 0:
                slab = [*every[:axis], Cut(expr(start), expr(count)), *every[axis + 1 :]]
                ctx.build.add(nodes.Fill(View(made.buffer, tuple(slab)), 0.0))


def _loaded(ctx: Context, made: Storage, source: Storage, part: _Part, row: int) -> None:
    """A part from HBM, on partitions from `row`."""
    place = _axis_of_parts(made)
    free = [Cut(expr(s), expr(c)) for n, (s, c) in enumerate(part.starts) if n != place]
    rows = Cut(expr(row), expr(part.starts[place][1]))
    order = (place, *(n for n in range(len(part.starts)) if n != place)) if place else ()
    at = list(part.at)
    if not free and len(at) > 1:
        # a column: an axis of which one value is read stands for it
        axis = next(n for n in reversed(range(len(at))) if isinstance(at[n], At))
        one, is_before = at[axis], axis < next(n for n, i in enumerate(at) if isinstance(i, Cut))
        assert isinstance(one, At)
        at[axis], order = Cut(one.at, expr(1)), (1, 0) if is_before else ()
        free = [Cut(ZERO, expr(1))]
    ctx.build.add(nodes.Load(View(made.buffer, (rows, *free)), View(source.buffer, tuple(at), order=order)))


def of_stack(view: View, copies: int) -> View:
    """A view of the elements of all values instead of those of the first."""
    first = view.index[0]
    assert isinstance(first, Cut)
    whole = Cut(first.start, first.count * copies, first.step)
    return replace(view, index=(whole, *view.index[1:]))


__all__ = ["of_stack", "stacked", "stacked_bytes", "stacked_over"]
