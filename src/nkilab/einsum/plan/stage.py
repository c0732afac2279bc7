"""Operands that a nest reads more than once: brought on chip whole, with one axis on the partitions."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from math import prod

from ...errors import UnsupportedError
from ..language.ast import Access, Affine
from ..tree import nodes
from ..tree.expr import Expr, expr
from ..tree.nodes import all_of
from .build import Span, point, whole
from .choose import SMALL_ROW_BYTES
from .context import Context
from .filling import Filling
from .reach import leaving, reach
from .storage import Storage, tile_shape

# part of the room on chip that whole rows may take of which loops read short pieces
ROWS_SHARE = 0.25
# and that an operand may take which turns of an outer loop read again, to be there before it
READ_AGAIN = 0.4


class BeyondEdges(UnsupportedError):
    """An operand with zeros around it is to come on chip in parts."""


def extents_of(access: Access, spans: dict[str, Span], part: str) -> tuple[list[int], list[str], list[Expr]]:
    """Extents, kinds and bases of a tile that holds what an access reaches over spans."""
    extents, dims, bases = [], [], []
    for index in access.affine:
        start, most = reach(index, spans)
        extents.append(most)
        bases.append(start)
        is_gone = all(spans[v].is_point for v in index.variables)
        dims.append("gone" if is_gone else "part" if _is_along(index, part) else "free")
    return extents, dims, bases


def _is_along(index: Affine, part: str) -> bool:
    """Whether an index runs along the partitions, from whatever place on."""
    return bool(part) and index.terms == ((part, 1),)


def staged_bytes(ctx: Context, access: Access, spans: dict[str, Span], part: str, dtype: str) -> int:
    """Bytes per partition that a staged operand takes."""
    extents, dims, _ = extents_of(access, spans, part)
    shape, _ = tile_shape(tuple(extents), tuple(dims), ctx.lanes)
    return prod(shape[1:]) * ctx.bytes_of(dtype)


def bytes_around(ctx: Context, access: Access, spans: dict[str, Span], part: str) -> int:
    """Bytes per partition of an operand with zeros around it, of one value of each axis that has none."""
    edges = {part, *(v for i in leaving(ctx, access, spans) for v in i.variables)}
    inside = {v: spans[v] if v in edges else point(0) for v in access.variables}
    return staged_bytes(ctx, access, inside, part, ctx.dtypes[access.tensor])


def stage(ctx: Context, access: Access, spans: dict[str, Span], part: str, dtype: str) -> Storage:
    """A tile that holds all that an access reaches over spans, made in the outermost scope that knows them.

    Args:
        spans: of every variable; those with more than one value lie along axes of the tile.
        part: the variable on the partitions.
        dtype: of the tile.
    """
    before = staged_whole(ctx, access, spans, part, dtype)
    if before is not None:
        return before
    access, spans = _in_rows(ctx, access, spans)
    extents, dims, bases = extents_of(access, spans, part)
    source, key = _source_of(ctx, access), _key_of(ctx, access, spans, part, dtype)
    rows, across = _rows_around(ctx, access, spans, part)
    if across and across == part and dtype == source.buffer.dtype:
        return stage(ctx, access, rows, part, dtype)
    if across:
        source = stage(ctx, access, rows, across, source.buffer.dtype)
    known = (*bases, *(spans[v].count for v in access.variables))
    depth = max(ctx.build.depth_of(frozenset().union(*(e.names for e in known))), source.depth)

    def block() -> Storage:
        hint = f"{access.tensor.lower()}_block"
        made = ctx.add_tile(access.tensor, (extents, dims, bases), dtype, hint)
        made.depth = depth
        _filled(ctx, access, spans, made, source)
        return made

    return ctx.build.once(key, depth, block)


def _in_rows(ctx: Context, access: Access, spans: dict[str, Span]) -> tuple[Access, dict[str, Span]]:
    """An access with all of the last axes of which it reads a part, where short rows become longer so."""
    source, shape, indices = _source_of(ctx, access), ctx.cascade.shape(access.tensor), [*access.indices]
    if not source.is_hbm or access.gathers or leaving(ctx, access, spans):
        return access, spans
    run, every = source.itemsize, dict(spans)
    for axis in reversed(range(len(shape))):
        first, most = reach(access.affine[axis], spans)
        if run * most >= SMALL_ROW_BYTES or first.value is None or 2 * most < shape[axis]:
            break
        name = f"{access.tensor.lower()}_{axis}"
        if not access.indices[axis].plain:
            indices[axis], every[name] = Affine(((name, 1),)), whole(shape[axis])
        run *= shape[axis]
    return replace(access, indices=tuple(indices)), every


def _rows_around(
    ctx: Context, access: Access, spans: dict[str, Span], part: str
) -> tuple[dict[str, Span], str]:
    """Spans of whole rows of which loops around read short pieces, and what lies on their partitions; or "".

    In `X[b, q, s]` with a loop over q, what is read of a row is as short as s: the row comes on chip at once.
    """
    source, axes = _source_of(ctx, access), [i.plain for i in access.affine]
    if not source.is_hbm or not all(axes) or leaving(ctx, access, spans):
        return spans, ""
    wide = [n for n, v in enumerate(axes) if v and not spans[v].is_point]
    looped = [v for v in axes[min(wide, default=len(axes)) :] if spans[v].is_point and spans[v].start.names]
    if not looped:
        return spans, ""
    run, last = source.itemsize, max(n for n, v in enumerate(axes) if v in looped)
    run *= prod(spans[v].most for v in axes[last + 1 :])
    rows = {**spans, **{v: whole(ctx.cascade.shape(access.tensor)[axes.index(v)]) for v in looped}}
    before = [axes[n] for n in wide if n < last]
    across = part if part in before else max(before, key=lambda v: spans[v].most)
    size = staged_bytes(ctx, access, rows, across, source.buffer.dtype)
    is_short = run < SMALL_ROW_BYTES and size <= ctx.room() * ROWS_SHARE
    return (rows, across) if is_short else (spans, "")


def _source_of(ctx: Context, access: Access) -> Storage:
    return next((s for s in ctx.storage_of(access) if not s.is_hbm), ctx.storage_of(access)[0])


def _key_of(ctx: Context, access: Access, spans: dict[str, Span], part: str, dtype: str) -> Hashable:
    extents, _, bases = extents_of(access, spans, part)
    axis = next((n for n, i in enumerate(access.affine) if _is_along(i, part)), None)
    counts = tuple(str(spans[v].count) for v in access.variables)
    version = _source_of(ctx, access).version
    return ("stage", access.tensor, tuple(bases), tuple(extents), axis, dtype, counts, version)


def staged_whole(
    ctx: Context, access: Access, spans: dict[str, Span], part: str, dtype: str
) -> Storage | None:
    """The tile that has all of an operand since an earlier nest, with the same axis on the partitions."""
    axis = next((n for n, i in enumerate(access.indices) if part and i.plain == part), None)
    is_known = not access.gathers and axis is not None and bool(ctx.storages.get(access.tensor))
    if not is_known or axis is None or leaving(ctx, access, spans):
        return None
    shape = ctx.cascade.shape(access.tensor)
    source, whole_of = _source_of(ctx, access), (ctx.lanes, -(-shape[axis] // ctx.lanes))
    for key, tile in ((k, t) for scope in ctx.build.scopes for k, t in scope.cache.items()):
        if key[:2] != ("stage", access.tensor) or key[3] != shape or key[4:6] != (axis, dtype):
            continue
        is_whole = all(base.value == 0 for base in key[2]) and key[7] == source.version
        is_aligned = spans[part].start.divides(ctx.lanes) and tile.buffer.shape[:2] == whole_of
        if is_whole and is_aligned and isinstance(tile, Storage):
            return tile
    return None


def staged_before(ctx: Context, access: Access, spans: dict[str, Span], part: str) -> Storage | None:
    """The tile that an earlier nest brought on chip for the same part of an operand; None if none did."""
    if access.gathers:
        return None
    key = _key_of(ctx, access, spans, part, ctx.dtypes[access.tensor])
    return next((s.cache[key] for s in ctx.build.scopes if key in s.cache), None)


def staged_around(ctx: Context, access: Access, spans: dict[str, Span], part: str) -> Storage | None:
    """An operand that turns of an outer loop read again, on chip before it where there is room; else None."""
    is_again = any(trips > 1 and v not in access.variables for v, trips in ctx.loops)
    is_whole = not access.gathers and not any(spans[v].start.names for v in access.variables)
    if not (is_again and is_whole) or leaving(ctx, access, spans):
        return None
    dtype = ctx.dtypes[access.tensor]
    is_small = staged_bytes(ctx, access, spans, part, dtype) <= ctx.room() * READ_AGAIN
    return stage(ctx, access, spans, part, dtype) if is_small else None


def _filled(ctx: Context, access: Access, spans: dict[str, Span], made: Storage, source: Storage) -> None:
    is_padded = source.is_hbm and leaving(ctx, access, spans)
    if is_padded:
        ctx.build.add(nodes.Fill(all_of(made.buffer), 0.0))
    at: list[Span] = []
    for axis in range(len(access.indices)):
        reached = (_inside if is_padded else _reached)(ctx, access, axis, spans, made)
        if reached is None:
            return
        at.append(reached)
    # positions of the tensor themselves become the variables of a copy
    names = [f"{access.tensor.lower()}_{n}" for n in range(len(access.indices))]
    plain = Access(access.tensor, tuple(Affine(((n, 1),)) for n in names))
    part = next((n for n, d in zip(names, made.dims, strict=True) if d == "part"), "")
    known = dict(zip(names, at, strict=True))
    free = tuple(n for n in names if not known[n].is_point and n != part)
    filling = Filling(ctx, plain, known, part, free, made, source)
    if filling.rows_before:
        straight = stage(ctx, plain, known, filling.rows_before, source.buffer.dtype)
        filling = replace(filling, source=straight)
    filling.lower()


def _reached(ctx: Context, access: Access, axis: int, spans: dict[str, Span], made: Storage) -> Span:
    """The positions of an axis of a tensor that an access reaches."""
    index = access.affine[axis]
    start, most = reach(index, spans)
    count = spans[index.plain].count if index.plain else expr(most)
    return point(made.bases[axis]) if made.dims[axis] == "gone" else Span(start, count, most)


def _inside(ctx: Context, access: Access, axis: int, spans: dict[str, Span], made: Storage) -> Span | None:
    """The positions of an axis of a tensor that an access reaches; None if all lie outside."""
    index, base, size = access.affine[axis], made.bases[axis], ctx.cascade.shape(access.tensor)[axis]
    _, most = reach(index, spans)
    if base.value is not None:
        low, high = max(base.value, 0), min(base.value + most, size)
        return whole(high - low, low) if high > low else None
    if made.dims[axis] == "gone":
        return point(base)
    if index.plain:
        return Span(base, spans[index.plain].count, most)
    raise BeyondEdges(f"{access} reads outside of {access.tensor} at a place that a loop chooses")
