"""Where results go: tiles on chip that later Einsums read, tensors in HBM, or both; turned if need be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

from ..language.ast import Einsum
from ..tree import nodes
from ..tree.expr import ZERO, expr
from ..tree.nodes import PSUM, SBUF, At, Cut, View, all_of, columns_of, upto
from .build import Span, UnreachableError, whole
from .context import Context
from .fetch import in_sbuf, is_few, turn, two_axes
from .fetch import lies_right as is_right
from .storage import Storage, first_rows, positions
from .want import Want


@dataclass(frozen=True)
class Target:
    """Where a tensor is written."""

    tile: Storage | None  # on chip, or None
    hbm: Storage | None  # in HBM, or None

    @property
    def dtype(self) -> str:
        """The type it is kept in."""
        (storage, *_) = (s for s in (self.tile, self.hbm) if s is not None)
        return storage.buffer.dtype

    def direct(self, ctx: Context, einsum: Einsum, spans: dict[str, Span], part: str) -> View | None:
        """The view that an instruction over [part, columns] may write itself; None if it lies otherwise."""
        if self.tile is None or not lies_right(self.tile, einsum, spans, part):
            return None
        view = self.tile.place(positions(einsum.output, spans))
        first = view.index[0]
        assert isinstance(first, Cut)
        return view if first.start.value == 0 or first.count.value != 1 else None


def lies_right(storage: Storage, einsum: Einsum, spans: dict[str, Span], part: str) -> bool:
    """Whether a tile on chip has the variable on the partitions that the nest has there."""
    return is_right(storage, Want(einsum.output, spans, part if part in einsum.output.variables else ""))


def targets_of(ctx: Context, einsum: Einsum, outer: dict[str, Span], part: str, copies: int = 1) -> Target:
    """The places of a result, made if they are not there yet.

    `ctx.homes` says which: chip, hbm or both. A new tile has `part` on the partitions, or its copies.
    """
    name = einsum.name
    home = ctx.homes[name]
    tile, hbm = ctx.chip(name), ctx.hbm(name)
    if "chip" in home and tile is None:
        before = name
        while (before := ctx.overwritten.get(before, "")) and ctx.chip(before) is None:
            pass
        with ctx.outside(name, outer) as others:
            tile = ctx.chip(before) or new_tile(ctx, einsum, others, part, copies)
        ctx.storages.setdefault(name, []).insert(0, tile)
    if "hbm" in home and hbm is None:
        hbm = ctx.add_hbm(name, "output" if name in ctx.cascade.outputs else "scratch")
    if hbm is not None:
        hbm.depth = ctx.build.depth
    return Target(tile if "chip" in home else None, hbm if "hbm" in home else None)


def new_tile(ctx: Context, einsum: Einsum, outer: dict[str, Span], part: str, copies: int) -> Storage:
    """A tile for what the present scope computes of a tensor."""
    shape = ctx.cascade.shape(einsum.name)
    dims, bases, extents = [], [], []
    plain = [i.plain for i in einsum.output.indices]
    if part in einsum.output.variables and part not in plain:
        # its index has another variable too: the result is transposed on its way
        part = next((v for v in plain if v and not (v in outer and outer[v].is_point)), "")
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
    memory = ctx.memories.get(einsum.name, SBUF)
    dtype = "float32" if memory == PSUM else ctx.chip_dtype(einsum.name)
    # what is written in several steps has no copies, which each would have to write
    copies = 1 if "part" in dims or len(ctx.cascade.writers(einsum.name)) > 1 else copies
    return ctx.add_tile(einsum.name, (extents, dims, bases), dtype, memory=memory, copies=copies)


def is_one_element(ctx: Context, einsum: Einsum, axis: int) -> bool:
    """Whether no more than one element along an axis is there at once: nobody asks for others later."""
    index = einsum.output.indices[axis]
    turns = [b for b in ctx.cascade.blocks if b.variable in index.variables]
    if index.plain and not turns:
        return True
    walked = [(a, b) for e, b in ctx.cascade.walk() for a in e.every_access if a.tensor == einsum.name]
    # outside of the block its variable is another one
    own = next((b for b in turns if einsum in b.body), None)
    return all(str(a.indices[axis]) == str(index) and (b is own or not turns) for a, b in walked)


def deliver(
    ctx: Context, einsum: Einsum, view: View, spans: dict[str, Span], part: str, free: str, target: Target
) -> None:
    """Write a finished [part, free] tile, in SBUF or PSUM, to where the tensor lies."""
    result = Want(einsum.output, spans, part, free)
    one = view if part else first_rows(view, expr(1))
    if target.tile is not None:
        if lies_right(target.tile, einsum, spans, part):
            source = view if target.tile.copies > 1 else one
            _copied(ctx, source, target.tile.place(positions(einsum.output, spans)), target.tile)
        else:
            _transposed(ctx, result, one, target.tile)
        target.tile.changed()
    if target.hbm is not None:
        _stored(ctx, result, one, target.hbm)
        target.hbm.changed()


def _copied(ctx: Context, view: View, place: View, tile: Storage) -> None:
    """A tile to where it lies as the nest has it: by DMA to any but the first partition."""
    first = place.index[0]
    assert isinstance(first, Cut)
    if first.start.value == 0 or not tile.dims.count("part"):
        ctx.build.add(nodes.Copy(place, view))
    else:
        ctx.build.add(nodes.Move(place, in_sbuf(ctx, view, tile.buffer.dtype)))


def _transposed(ctx: Context, result: Want, view: View, tile: Storage) -> None:
    """A tile to where it lies the other way round."""
    source, q = in_sbuf(ctx, view, tile.buffer.dtype), tile.part_variable(result.access)
    axes = [result.access.axis_of(v) if v else None for v in (result.part, result.free)]
    if q and result.spans[q].is_point and axes == sorted(a for a in axes if a is not None):
        # rows of the nest follow each other in one row of the tile
        ctx.build.add(nodes.Move(tile.place(positions(result.access, result.spans)), source))
        return
    if (not q and _columns(result).most > 1) or (q and not result.spans[q].is_point and q != result.free):
        raise UnreachableError(
            f"{result.access.tensor} lies with {q or 1} on the partitions and is computed with {result.part}"
        )
    if _turned_at_once(ctx, result, source, tile):
        return
    for piece, at, block in _blocks(ctx, result, source):
        turn(ctx, piece, replace(tile.view(at), turn=tile.turns[1]), block.most)


def _turned_at_once(ctx: Context, result: Want, source: View, tile: Storage) -> bool:
    """Turn rows into several blocks of partitions by one copy; whether that is possible."""
    total, height = _columns(result).count.value or 0, source.cuts[0].count.value or 0
    blocks = total // ctx.lanes
    is_even = tile.has_blocks and blocks > 1 and total % ctx.lanes == 0
    if not is_even or not 1 <= height <= ctx.bank_bytes // (blocks * tile.itemsize):
        return False
    psum = ctx.build.buffer("turned", (ctx.lanes, blocks, height), tile.buffer.dtype, PSUM)
    with ctx.build.loop("r", blocks) as r:
        piece = columns_of(source, r * ctx.lanes, expr(ctx.lanes))
        ctx.build.add(nodes.Transpose(View(psum, (upto(ctx.lanes), At(r), upto(height))), piece))
    _, at, _ = next(_blocks(ctx, result, source))
    place = replace(tile.view(at), turn=tile.turns[1])
    first = place.index[1]
    assert isinstance(first, At)
    index = (place.index[0], Cut(first.at, expr(blocks)), *place.index[2:])
    ctx.build.add(nodes.Copy(replace(place, index=index), all_of(psum)))
    return True


def _columns(result: Want) -> Span:
    """What the columns of a tile cover, which its tensor may not have."""
    return result.spans[result.free] if result.free else whole(1)


def _blocks(ctx: Context, result: Want, source: View) -> Iterator[tuple[View, list[At | Cut], Span]]:
    """Tiles of at most 128 columns, each with its place in the tensor and the columns that it covers.

    A loop goes through them where only loops around know how many columns there are.
    """
    columns, lanes = _columns(result), ctx.lanes
    total = columns.most if columns.most <= lanes else columns.count.value
    with ExitStack() as stack:
        if total is None:
            tiles = [stack.enter_context(ctx.build.tiles("r", columns, lanes))]
        else:
            tiles = [whole(min(lanes, total - start), start) for start in range(0, total, lanes)]
        for local in tiles:
            block = columns if total is not None and total <= lanes else columns.tile(local)
            spans = {**result.spans, result.free: block} if result.free else result.spans
            yield columns_of(source, local.start, block.count), positions(result.access, spans), block


def _stored(ctx: Context, result: Want, view: View, hbm: Storage) -> None:
    """A tile to HBM, transposed before where rows lie across there and are many."""
    source, output = in_sbuf(ctx, view, hbm.buffer.dtype), result.access
    part, free = (output.axis_of(v) if result.has(v) else None for v in (result.part, result.free))
    is_small = is_few(ctx, result.rows.most * _columns(result).most)
    if part is None or free is None or part <= free or is_small:
        at = positions(output, result.spans)
        ctx.build.add(nodes.Store(two_axes(hbm.buffer, at, part, free, folded=result.folded), source))
    elif not _stored_at_once(ctx, result, source, hbm):
        hint = f"{output.tensor.lower()}_turned"
        for piece, at, block in _blocks(ctx, result, source):
            rows = Span(ZERO, source.cuts[0].count, result.rows.most)
            made = ctx.tile(hint, block, rows, hbm.buffer.dtype)
            turn(ctx, piece, made, block.most)
            ctx.build.add(nodes.Store(two_axes(hbm.buffer, at, free, part), made))


def _stored_at_once(ctx: Context, result: Want, source: View, hbm: Storage) -> bool:
    """Store a turned tile of several blocks of columns in one transfer; whether that is possible.

    Blocks are transposed side by side into a bank of PSUM, and copied out together.
    """
    output, lanes, dtype = result.access, ctx.lanes, hbm.buffer.dtype
    axis = output.axis_of(result.free)
    steps = [
        output.affine[n].coefficient(v)
        for v, n in ((v, output.axis_of(v)) for v in (result.part, result.free)) if n is not None
    ]  # fmt: skip
    total, height = result.columns.count.value, result.rows.count.value
    if not total or not height or total % lanes or total == lanes or steps != [1, 1] or axis is None:
        return False
    blocks, most = total // lanes, max(1, ctx.bank_bytes // (height * ctx.bytes_of(dtype)))
    each = max(n for n in range(1, most + 1) if blocks % n == 0)
    build, rows = ctx.build, upto(height)
    made = build.buffer(f"{output.tensor.lower()}_turned", (lanes, blocks, height), dtype, nodes.SBUF)
    with build.tiles("b", blocks, each) as group:
        psum = build.buffer("turned", (lanes, each, height), dtype, PSUM)
        with build.loop("r", each) as r:
            piece = columns_of(source, (group.start + r) * lanes, expr(lanes))
            build.add(nodes.Transpose(View(psum, (upto(lanes), At(r), rows)), piece))
        place = View(made, (upto(lanes), Cut(group.start, expr(each)), rows))
        build.add(nodes.Copy(place, all_of(psum)))
    dst = View(hbm.buffer, tuple(positions(output, result.spans)), folded=(axis, lanes))
    build.add(nodes.Store(dst, all_of(made)))
    return True
