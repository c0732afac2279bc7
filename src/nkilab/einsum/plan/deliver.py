"""Where results go: tiles on chip that later Einsums read, tensors in HBM, or both; turned if need be."""

from __future__ import annotations

from dataclasses import dataclass

from ..language.ast import Affine, Einsum, Iterate
from ..tree import nodes
from ..tree.expr import ZERO, Expr, expr
from ..tree.nodes import PSUM, SBUF, At, Cut, View
from .build import Span
from .context import Context, part_of
from .fetch import FEW, turn, two_axes
from .storage import Storage, positions


@dataclass(frozen=True)
class Target:
    """Where a tensor is written.

    Args:
        tile: on chip, or None.
        hbm: in HBM, or None.
    """

    tile: Storage | None
    hbm: Storage | None

    @property
    def dtype(self) -> str:
        """The type it is kept in."""
        held = self.tile or self.hbm
        assert held is not None
        return held.buffer.dtype

    def direct(
        self, ctx: Context, einsum: Einsum, spans: dict[str, Span], part: str, free: str
    ) -> View | None:
        """The view that an instruction over [part, free] may write itself; None if it lies otherwise."""
        if self.tile is None or not lies_right(self.tile, einsum, spans, part):
            return None
        view = self.tile.view(positions(einsum.output, spans))
        first = view.index[0]
        assert isinstance(first, Cut)
        return view if first.start.value == 0 or first.count.value != 1 else None


def lies_right(storage: Storage, einsum: Einsum, spans: dict[str, Span], part: str) -> bool:
    """Whether a tile on chip has the variable on the partitions that the nest has there."""
    q = storage.part_variable(einsum.output)
    if q and spans[q].is_point:
        q = ""
    has_part = bool(part) and part in einsum.output.variables and not spans[part].is_point
    return q == (part if has_part else "")


def targets_of(ctx: Context, einsum: Einsum, outer: dict[str, Span], part: str) -> Target:
    """The places of a result, made if they are not there yet.

    `ctx.homes` says which: chip, hbm or both. A new tile has `part` on the partitions.
    """
    name = einsum.name
    home = ctx.homes[name]
    tile, hbm = ctx.chip(name), ctx.hbm(name)
    if "chip" in home and tile is None:
        tile = new_tile(ctx, einsum, outer, part)
        ctx.storages.setdefault(name, []).insert(0, tile)
    if "hbm" in home and hbm is None:
        hbm = ctx.add_hbm(name, "output" if name in ctx.cascade.outputs else "scratch")
    if hbm is not None:
        hbm.depth = ctx.build.depth
    return Target(tile if "chip" in home else None, hbm if "hbm" in home else None)


def new_tile(ctx: Context, einsum: Einsum, outer: dict[str, Span], part: str) -> Storage:
    """A tile for what the present scope computes of a tensor."""
    shape = ctx.cascade.shape(einsum.name)
    dims, bases, extents = [], [], []
    for axis, (extent, index) in enumerate(zip(shape, einsum.output.indices, strict=True)):
        span = outer.get(index.plain) if index.plain else None
        is_gone = not index.plain and all(v in outer for v in index.variables)
        if (is_gone or (span is not None and span.is_point)) and is_one_element(ctx, einsum, axis):
            dims.append("gone")
        elif span is not None and span.is_point:
            dims.append("free")
            span = None
        else:
            dims.append("part" if index.plain == part and part else "free")
        bases.append(span.start if span is not None else ZERO)
        extents.append(span.most if span is not None else extent)
    dtype = ctx.chip_dtype(einsum.name)
    if ctx.memories.get(einsum.name) == PSUM:
        return ctx.add_tile(einsum.name, tuple(extents), tuple(dims), tuple(bases), "float32", memory=PSUM)
    return ctx.add_tile(einsum.name, tuple(extents), tuple(dims), tuple(bases), dtype)


def is_one_element(ctx: Context, einsum: Einsum, axis: int) -> bool:
    """Whether no more than one element along an axis is there at once: nobody asks for others later."""
    turns = {b.variable for b in ctx.cascade.steps if isinstance(b, Iterate)}
    index = einsum.output.indices[axis]
    if index.plain and index.plain not in turns:
        return True
    accesses = (a for e in ctx.cascade.einsums for a in (e.output, *e.accesses) if a.tensor == einsum.name)
    return all(str(a.indices[axis]) == str(index) for a in accesses)


def deliver(
    ctx: Context, einsum: Einsum, view: View, spans: dict[str, Span], part: str, free: str, target: Target
) -> None:
    """Write a finished [part, free] tile, in SBUF or PSUM, to where the tensor lies."""
    if target.tile is not None:
        _to_tile(ctx, einsum, view, spans, part, free, target.tile)
        target.tile.changed()
    if target.hbm is not None:
        _to_hbm(ctx, einsum, view, spans, part, free, target.hbm)
        target.hbm.changed()


def _to_tile(
    ctx: Context, einsum: Einsum, view: View, spans: dict[str, Span], part: str, free: str, tile: Storage
) -> None:
    if lies_right(tile, einsum, spans, part):
        held = tile.view(positions(einsum.output, spans))
        first = held.index[0]
        assert isinstance(first, Cut)
        if first.start.value == 0 or not tile.dims.count("part"):
            ctx.build.add(nodes.Copy(held, view))
        else:
            ctx.build.add(nodes.Move(held, _in_sbuf(ctx, view, tile.buffer.dtype)))
        return
    source = _in_sbuf(ctx, view, tile.buffer.dtype)
    q = tile.part_variable(einsum.output)
    for block, start in _blocks(ctx, spans, free):
        piece = columns_of(source, start, block.count)
        at = positions(einsum.output, {**spans, free: block} if free else spans)
        held = tile.view(at)
        if q and not spans[q].is_point and q != free:
            raise AssertionError(f"{einsum.name} lies with {q} on the partitions and is computed with {part}")
        turn(ctx, piece, held, block.most)


def _blocks(ctx: Context, spans: dict[str, Span], free: str) -> list[tuple[Span, Expr]]:
    """Tiles of at most 128 of the columns."""
    columns = spans[free] if free else Span(ZERO, ZERO + 1, 1)
    if columns.most <= ctx.lanes:
        return [(columns, ZERO)]
    total = columns.count.value
    assert total is not None, "ragged columns are cut to 128 before they are transposed"
    found = []
    for start in range(0, total, ctx.lanes):
        count = min(ctx.lanes, total - start)
        found.append((Span(columns.start + start, ZERO + count, count), ZERO + start))
    return found


def columns_of(view: View, start: Expr, count: Expr) -> View:
    """Some columns of a view [rows, columns]."""
    last = max(i for i, index in enumerate(view.index) if isinstance(index, Cut))
    held = view.index[last]
    assert isinstance(held, Cut)
    index = list(view.index)
    index[last] = Cut(held.start + start * held.step, count, held.step)
    return View(view.buffer, tuple(index))


def _in_sbuf(ctx: Context, view: View, dtype: str) -> View:
    """A view that transfers and transposes may read, of a type."""
    if view.buffer.memory != PSUM and view.buffer.dtype == dtype:
        return view
    extents = [e for e, i in zip(view.buffer.shape, view.index, strict=True) if isinstance(i, Cut)]
    if len(extents) < 2:
        extents = [view.buffer.shape[0], view.buffer.shape[-1]]
    tile = ctx.build.buffer("out_tile", tuple(int(str(e)) for e in extents), dtype, SBUF)
    made = View(tile, tuple(Cut(ZERO, c.count) for c in view.cuts))
    ctx.build.add(nodes.Copy(made, view))
    return made


def _to_hbm(
    ctx: Context, einsum: Einsum, view: View, spans: dict[str, Span], part: str, free: str, hbm: Storage
) -> None:
    at = positions(einsum.output, spans)
    source = _in_sbuf(ctx, view, hbm.buffer.dtype)
    axes = [
        next(
            (
                a
                for a, i in enumerate(einsum.output.indices)
                if v and v in i.variables and not spans[v].is_point
            ),
            None,
        )
        for v in (part, free)
    ]
    rows = spans[part].most if part else 1
    columns = spans[free].most if free else 1
    is_turned = axes[0] is not None and axes[1] is not None and axes[0] > axes[1]
    if not is_turned or rows * columns <= FEW:
        ctx.build.add(nodes.Store(two_axes(hbm.buffer, at, axes[0], axes[1]), source))
        return
    if _stored_at_once(ctx, einsum, source, spans, part, free, hbm, axes):
        return
    for block, start in _blocks(ctx, spans, free):
        piece = columns_of(source, start, block.count)
        made = part_of(
            ctx.temporary(f"{einsum.name.lower()}_turned", block.most, rows, hbm.buffer.dtype),
            block.count,
            source.cuts[0].count,
        )
        turn(ctx, piece, made, block.most)
        here = positions(einsum.output, {**spans, free: block})
        ctx.build.add(nodes.Store(two_axes(hbm.buffer, here, axes[1], axes[0]), made))


def _stored_at_once(
    ctx: Context, einsum: Einsum, source: View, spans: dict[str, Span], part: str, free: str, hbm: Storage,
    axes: list[int | None],
) -> bool:  # fmt: skip
    """Store a turned tile of several blocks of columns in one transfer; whether that is possible.

    Blocks are transposed side by side into a bank of PSUM, and copied out together.
    """
    rows, columns = spans[part], spans[free]
    index = [einsum.output.indices[a] for a in axes if a is not None]
    steps = [i.coefficient(v) for i, v in zip(index, (part, free), strict=True) if isinstance(i, Affine)]
    total, height = columns.count.value, rows.count.value
    if total is None or height is None or total % ctx.lanes or total == ctx.lanes or steps != [1, 1]:
        return False
    blocks, size = total // ctx.lanes, ctx.bytes_of(hbm.buffer.dtype)
    held = max(1, ctx.bank_bytes // (height * size))
    each = max(n for n in range(1, held + 1) if blocks % n == 0)
    build, name = ctx.build, einsum.name.lower()
    made = build.buffer(f"{name}_turned", (ctx.lanes, blocks, height), hbm.buffer.dtype, nodes.SBUF)
    every = Cut(ZERO, expr(ctx.lanes))
    with build.tiles("b", blocks, each) as group:
        psum = build.buffer("turned", (ctx.lanes, each, height), hbm.buffer.dtype, PSUM)
        with build.loop("r", each) as r:
            piece = columns_of(source, (group.start + r) * ctx.lanes, expr(ctx.lanes))
            build.add(nodes.Transpose(View(psum, (every, At(r), Cut(ZERO, expr(height)))), piece))
        whole = View(psum, (every, Cut(ZERO, expr(each)), Cut(ZERO, expr(height))))
        build.add(
            nodes.Copy(View(made, (every, Cut(group.start, expr(each)), Cut(ZERO, expr(height)))), whole)
        )
    at = positions(einsum.output, spans)
    assert axes[1] is not None
    dst = View(hbm.buffer, tuple(at), folded=(axes[1], ctx.lanes))
    build.add(nodes.Store(dst, View(made, (every, Cut(ZERO, expr(blocks)), Cut(ZERO, expr(height))))))
    return True
