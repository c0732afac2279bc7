"""A short sum on the partitions, several times over: shifted copies of operands fill the rows of TensorE.

A convolution of three channels sums over three of 128 partitions, once for each row of its filter. Both
operands lie stacked instead: the partitions hold the channels for every row of the filter, and one product
sums over all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from ..language.ast import Access, Affine, Einsum
from ..tree import nodes
from ..tree.expr import ZERO, Expr, expr
from ..tree.nodes import At, Cut, View
from .build import Span, point, whole
from .choose import MOST_OPTIONS, ROW_NS
from .context import Context
from .product import Product, matmul_dtype, places_of
from .reach import reach
from .stage import extents_of
from .storage import Storage

# of partitions that a sum leaves idle before operands are stacked
LEAST_COPIES = 2
# what transfers of short rows move
BYTES_PER_NS = 150.0


@dataclass(frozen=True)
class Stack:
    """What lies on the partitions beside the values of a sum."""

    variable: str  # all of its values do
    more: str = ""  # another one, of which several values do; "" for none
    each: int = 1  # how many

    def __str__(self) -> str:
        return f"{self.variable} and {self.each} of {self.more}" if self.more else self.variable

    def first(self, spans: dict[str, Span], copy: tuple[int, int] = (0, 0)) -> dict[str, Span]:
        """Spans of what the partitions of one copy hold: those of a value of each variable."""
        held = {**spans, self.variable: point(copy[0])}
        if self.more:
            rest = (spans[self.more].most - 1) // self.each * self.each + 1
            held[self.more] = whole(rest, copy[1])
        return held

    def copies(self, spans: dict[str, Span]) -> Iterator[tuple[int, int]]:
        """The copies, in the order in which they lie on the partitions."""
        return ((n, m) for m in range(self.each) for n in range(spans[self.variable].most))


def stacked_over(ctx: Context, einsum: Einsum, product: Product, spans: dict[str, Span]) -> Stack | None:
    """The variables whose values lie on the partitions beside those of the sum; None for none."""
    depth = spans[product.over].count.value
    if depth is None or einsum.condition or depth * LEAST_COPIES > ctx.lanes:
        return None
    if product.left is None or product.right is None or not _may_be_stacked(ctx, product):
        return None
    found = [
        v
        for v in product.inner
        if LEAST_COPIES <= (spans[v].count.value or 0) <= ctx.lanes // depth
        and all(_is_shift(a, v) for a in (product.left, product.right))
    ]
    if not found:
        return None
    first = max(found, key=lambda v: spans[v].most)
    most = ctx.lanes // (depth * spans[first].most)
    more = max((v for v in found if v != first), key=lambda v: spans[v].most, default="")
    most = min(most, spans[more].most) if more else 1
    options = [Stack(first), *(Stack(first, more, n) for n in range(2, most + 1))]
    costs = {s: _cost_ns(ctx, einsum, product, spans, s) for s in options}
    options = sorted(options, key=lambda s: costs[s])[:MOST_OPTIONS]
    what = f"what lies on the partitions beside {product.over} for {einsum}"
    return ctx.pick(what, options, str, [costs[s] for s in options])


def _cost_ns(ctx: Context, einsum: Einsum, product: Product, spans: dict[str, Span], stack: Stack) -> float:
    """What products, or the transfers of their operands, take with a stack, whichever is longer."""
    dtype = matmul_dtype(ctx, product.left, product.right)
    passes_of_type = ctx.machine["fp32_passes"] if dtype == "float32" else 1
    inner = [spans[v].most for v in product.inner if v not in (stack.variable, stack.more)]
    passes = -(-spans[stack.more].most // stack.each) if stack.more else 1
    points = prod(spans[v].most for v in einsum.output.variables if v != product.part)
    rows = -(-spans[product.part].most // ctx.lanes) if product.part else 1
    # tiles of the array take rows beside each other, float32 twice in a row
    places = max(1, min(len(places_of(ctx, product.part, spans)), 2 if passes_of_type > 1 else ctx.lanes))
    products = prod(inner) * passes * points * rows * passes_of_type / ctx.machine["tensor_clock_ghz"]
    products /= places
    copies = spans[product.over].most * spans[stack.variable].most * stack.each
    moved = 0.0
    for access in (product.left, product.right):
        assert access is not None
        size = stacked_bytes(ctx, access, spans, product.over, stack, dtype)
        index = access.indices[-1]
        assert isinstance(index, Affine)
        run = reach(index, stack.first(spans))[1] * ctx.bytes_of(dtype)
        moved += copies * (size / BYTES_PER_NS + size / run * ROW_NS)
    return max(products, moved)


def _may_be_stacked(ctx: Context, product: Product) -> bool:
    """Whether both operands come from HBM as TensorE takes them, before all loops."""
    assert product.left is not None
    assert product.right is not None
    accesses = (product.left, product.right)
    dtype = matmul_dtype(ctx, *accesses)
    if any(not all(s.is_hbm for s in ctx.storages.get(a.tensor, ())) for a in accesses):
        return False
    if any(ctx.dtypes[a.tensor] != dtype or a.gathers for a in accesses):
        return False
    return not ctx.loops


def _is_shift(access: Access, variable: str) -> bool:
    """Whether a variable stands in one index of an access, one position apart or more."""
    own = [i for i in access.indices if variable in i.variables]
    return len(own) == 1 and isinstance(own[0], Affine) and own[0].coefficient(variable) > 0


def stacked_bytes(
    ctx: Context, access: Access, spans: dict[str, Span], over: str, stack: Stack, dtype: str
) -> int:
    """Bytes per partition that a stacked operand takes."""
    extents, dims, _, _ = _axes(access, stack.first(spans), over)
    return prod(e for e, d in zip(extents, dims, strict=True) if d == "free") * ctx.bytes_of(dtype)


def _axes(
    access: Access, spans: dict[str, Span], over: str
) -> tuple[list[int], list[str], list[Expr], list[int]]:
    """Extents, kinds, bases and steps of the axes of a tile: what no turn reads is left out, rows apart."""
    extents, dims, bases = extents_of(access, spans, over)
    steps = [1] * len(extents)
    for axis, index in enumerate(access.indices[:-1]):
        assert isinstance(index, Affine)
        wide = [index.coefficient(v) for v in index.variables if not spans[v].is_point]
        if dims[axis] == "free" and len(wide) == 1 and wide[0] > 1:
            steps[axis] = wide[0]
            extents[axis] = (extents[axis] - 1) // wide[0] + 1
    return extents, dims, bases, steps


def stacked(
    ctx: Context, access: Access, spans: dict[str, Span], over: str, stack: Stack, dtype: str
) -> Storage:
    """An operand with what each copy reads on partitions of its own; 0 beyond edges."""
    extents, dims, bases, steps = _axes(access, stack.first(spans), over)
    copies, depth = list(stack.copies(spans)), extents[dims.index("part")]
    held = list(extents)
    held[dims.index("part")] = len(copies) * depth
    made = ctx.add_tile(access.tensor, (held, dims, bases), dtype, f"{access.tensor.lower()}_stack")
    made.depth, made.steps = ctx.build.depth, tuple(steps)
    source = next(s for s in ctx.storage_of(access) if s.is_hbm)
    parts = [_inside(ctx, access, stack.first(spans, copy), made, extents) for copy in copies]
    _edged(ctx, made, parts)
    for copy, part in enumerate(parts):
        if part is not None:
            _loaded(ctx, made, source, part, copy * depth)
    return made


@dataclass(frozen=True)
class _Part:
    """What lies inside of a tensor."""

    at: tuple[At | Cut, ...]  # where it lies in HBM, per axis
    # where it begins in a tile, per axis that the tile has, and how far it reaches
    starts: tuple[tuple[int, int], ...]


def _inside(
    ctx: Context, access: Access, spans: dict[str, Span], made: Storage, extents: Sequence[int]
) -> _Part | None:
    """The elements that an access reads inside of its tensor; None if there are none."""
    at: list[At | Cut] = []
    starts: list[tuple[int, int]] = []
    axes = zip(access.indices, made.dims, made.steps, extents, ctx.cascade.shape(access.tensor), strict=True)
    for index, dim, step, most, size in axes:
        assert isinstance(index, Affine)
        start, _ = reach(index, spans)
        if dim == "gone":
            at.append(At(start))
            continue
        if start.value is None:
            # what loops choose lies inside of a tensor
            at.append(Cut(start, expr(most), step))
            starts.append((0, most))
            continue
        low = max(0, -(start.value // step))
        high = min(most, (size - 1 - start.value) // step + 1)
        if high <= low:
            return None
        at.append(Cut(start + low * step, expr(high - low), step))
        starts.append((low, high - low))
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
    place = _axis_of_parts(made)
    for axis, n in enumerate((n for n in range(len(known[0].starts)) if n != place), start=1):
        first = max(p.starts[n][0] for p in known)
        last = min(sum(p.starts[n]) for p in known)
        edges = ((0, first), (last, shape[axis] - last))
        for edge in (Cut(expr(start), expr(count)) for start, count in edges if count > 0):
            slab = (*every[:axis], edge, *every[axis + 1 :])
            ctx.build.add(nodes.Fill(View(made.buffer, slab), 0.0))


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


def of_stack(view: View, copies: Expr) -> View:
    """A view of the elements of several copies instead of those of the first."""
    first = view.index[0]
    assert isinstance(first, Cut)
    whole = Cut(first.start, copies * (first.count.value or 1), first.step)
    return replace(view, index=(whole, *view.index[1:]))
