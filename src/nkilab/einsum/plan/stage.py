"""Operands that a nest reads more than once: brought on chip whole, with one axis on the partitions."""

from __future__ import annotations

from collections.abc import Hashable

from ...errors import UnsupportedError
from ..language.ast import Access, Affine
from ..tree import nodes
from ..tree.expr import ZERO, Expr, expr
from ..tree.nodes import At, Cut, View
from .build import Span, whole
from .bulk import turned_in_bulk
from .columns import dealt_out, loaded_as_rows
from .context import Context
from .fetch import FEW, fetch, lies_right, turn, two_axes
from .reach import leaves, reach
from .storage import Storage, positions, tile_shape
from .want import Want


class BeyondEdges(UnsupportedError):
    """An operand with zeros around it is to come on chip in parts."""


def widened(ctx: Context, access: Access, spans: dict[str, Span]) -> dict[str, Span] | None:
    """Spans that reach over loops inside of a loop on which an operand in HBM does not depend; else None.

    An operand that every turn of an outer loop reads again is worth being brought on chip before it.
    """
    held = ctx.storages.get(access.tensor, ())
    if not held or not held[0].is_hbm or held[0].depth or access.gathers:
        return None
    free = next(
        (n for n, (v, trips) in enumerate(ctx.loops) if trips > 1 and v not in access.variables), None
    )
    if free is None:
        return None
    inner = {v: trips for v, trips in ctx.loops[free:] if v in access.variables and trips > 1}
    if not inner or any(ctx.block_of(v) != 1 for v in inner):
        return None
    return {**spans, **{v: whole(trips) for v, trips in inner.items()}}


def extents_of(access: Access, spans: dict[str, Span], part: str) -> tuple[list[int], list[str], list[Expr]]:
    """Extents, kinds and bases of a tile that holds what an access reaches over spans."""
    extents, dims, bases = [], [], []
    for index in access.indices:
        assert isinstance(index, Affine)
        start, most = reach(index, spans)
        extents.append(most)
        bases.append(start)
        is_gone = all(spans[v].is_point for v in index.variables)
        dims.append("gone" if is_gone else "part" if index.plain == part and part else "free")
    return extents, dims, bases


def staged_bytes(ctx: Context, access: Access, spans: dict[str, Span], part: str, dtype: str) -> int:
    """Bytes per partition that a staged operand takes."""
    extents, dims, _ = extents_of(access, spans, part)
    shape, _ = tile_shape(tuple(extents), tuple(dims), ctx.lanes)
    total = 1
    for extent in shape[1:]:
        total *= extent
    return total * ctx.bytes_of(dtype)


def stage(ctx: Context, access: Access, spans: dict[str, Span], part: str, dtype: str) -> Storage:
    """A tile that holds all that an access reaches over spans, made in the outermost scope that knows them.

    Args:
        spans: of every variable; those with more than one value lie along axes of the tile.
        part: the variable on the partitions.
        dtype: of the tile.
    """
    extents, dims, bases = extents_of(access, spans, part)
    source, key = _source_of(ctx, access), _key_of(ctx, access, spans, part, dtype)
    names: frozenset[str] = frozenset().union(*(b.names for b in bases))
    for index in access.indices:
        assert isinstance(index, Affine)
        for v in index.variables:
            names |= spans[v].count.names
    depth = max(ctx.build.depth_of(names), source.depth)
    for scope in ctx.build.scopes[: depth + 1]:
        if key in scope.cache:
            held: Storage = scope.cache[key]
            return held
    with ctx.build.hoisted(depth):
        made = ctx.add_tile(
            access.tensor, tuple(extents), tuple(dims), tuple(bases), dtype, f"{access.tensor.lower()}_block"
        )
        made.depth = depth
        _filled(ctx, access, spans, part, made, source)
        ctx.build.scopes[-1].cache[key] = made
    return made


def _source_of(ctx: Context, access: Access) -> Storage:
    return next((s for s in ctx.storage_of(access) if not s.is_hbm), ctx.storage_of(access)[0])


def _key_of(ctx: Context, access: Access, spans: dict[str, Span], part: str, dtype: str) -> Hashable:
    extents, _, bases = extents_of(access, spans, part)
    axis = next((n for n, i in enumerate(access.indices) if part and i.plain == part), None)
    counts = tuple(str(spans[v].count) for v in access.variables)
    version = _source_of(ctx, access).version
    return ("stage", access.tensor, tuple(bases), tuple(extents), axis, dtype, counts, version)


def staged_before(ctx: Context, access: Access, spans: dict[str, Span], part: str) -> Storage | None:
    """The tile that an earlier nest brought on chip for the same part of an operand; None if none did."""
    if access.gathers or not all(isinstance(i, Affine) for i in access.indices):
        return None
    key = _key_of(ctx, access, spans, part, ctx.dtypes[access.tensor])
    return next((s.cache[key] for s in ctx.build.scopes if key in s.cache), None)


def _filled(
    ctx: Context, access: Access, spans: dict[str, Span], part: str, made: Storage, source: Storage
) -> None:
    if source.is_hbm and leaves(ctx, access, spans):
        _padded(ctx, access, spans, part, made, source)
        return
    # positions of the tensor themselves become the variables of a copy
    names = [f"{access.tensor.lower()}_{n}" for n in range(len(access.indices))]
    at: dict[str, Span] = {}
    for name, dim, base, index in zip(names, made.dims, made.bases, access.indices, strict=True):
        assert isinstance(index, Affine)
        start, most = reach(index, spans)
        count = spans[index.plain].count if index.plain else expr(most)
        at[name] = Span(base, expr(1), 1) if dim == "gone" else Span(start, count, most)
    plain = Access(access.tensor, tuple(Affine(((n, 1),)) for n in names))
    wide = [n for n in names if not at[n].is_point]
    part_name = next((n for n, d in zip(names, made.dims, strict=True) if d == "part"), "")
    free = [n for n in wide if n != part_name]
    _copied(ctx, plain, at, part_name, free, made, source)


def _copied_whole(
    ctx: Context,
    plain: Access,
    at: dict[str, Span],
    part: str,
    free: list[str],
    made: Storage,
    source: Storage,
) -> bool:
    """Fill a tile by one of the ways that take several blocks or rows at once; whether one does."""
    if _is_turned_at_once(plain, at, part, free, made, source) and (
        _blocks_of_a_bank(at[part], at[free[0]], made.lanes, ctx.bank_bytes // source.itemsize) > 1
    ):
        _turned_at_once(ctx, plain, at, part, free[0], made, source)
        return True
    if source.is_hbm and _is_loaded_in_blocks(plain, at, part, free, made):
        _loaded_in_blocks(ctx, plain, at, part, made, source)
        return True
    is_column = bool(part) and not free
    if source.is_hbm and is_column and loaded_as_rows(ctx, plain, at, part, made, source):
        return True
    if _is_turned_in_bulk(ctx, plain, at, part, free, made, source):
        return True
    return is_column and dealt_out(ctx, plain, at, part, made, source)


def _copied(
    ctx: Context,
    plain: Access,
    at: dict[str, Span],
    part: str,
    free: list[str],
    made: Storage,
    source: Storage,
) -> None:
    """Fill a tile, block of partitions by block, along the last of its free axes."""
    if _copied_whole(ctx, plain, at, part, free, made, source):
        return
    if part and at[part].most > ctx.lanes:
        total = at[part].count.value
        assert total is not None
        with ctx.build.tiles(part.split("_")[0][:1], total, ctx.lanes) as block:
            here = {**at, part: at[part].tile(block)}
            _copied(ctx, plain, here, part, free, made, source)
        return
    last = _last_free(plain, at, free, source)
    if source.is_hbm and _is_straight(ctx, plain, at, part, last, source):
        ctx.build.add(nodes.Load(_many(made, plain, at), View(source.buffer, tuple(positions(plain, at)))))
        return
    rest = [n for n in free if n != last]
    if rest:
        total = at[rest[0]].count.value
        assert total is not None
        with ctx.build.loop("i", total) as i:
            here = {**at, rest[0]: Span(at[rest[0]].start + i, expr(1), 1)}
            _copied(ctx, plain, here, part, [last, *rest[1:]], made, source)
        return
    _copied_tile(ctx, plain, at, part, last, made, source)


def _is_turned_in_bulk(
    ctx: Context,
    plain: Access,
    at: dict[str, Span],
    part: str,
    free: list[str],
    made: Storage,
    source: Storage,
) -> bool:
    """Fill a tile whose partitions run along the last axis in HBM; whether it is done."""
    if not source.is_hbm or not part or not free or plain.indices[-1].plain != part:
        return False
    last = _last_free(plain, at, free, source)

    def into(columns: Span, rows: Span) -> View:
        spans = {**at, part: at[part].tile(columns), last: at[last].tile(rows)}
        return made.view(positions(plain, spans))

    want = Want(plain, at, part, last, source)
    if len(free) == 1 or not all(at[n].count.value for n in free):
        return turned_in_bulk(ctx, want, source, into)
    return False


def _is_loaded_in_blocks(
    plain: Access, at: dict[str, Span], part: str, free: list[str], made: Storage
) -> bool:
    """Whether one transfer may fill several blocks of partitions: rows lie along the last axis."""
    if not part or not made.has_blocks or not free:
        return False
    total = at[part].count.value
    if total is None or total % made.lanes or any(at[n].count.value is None for n in free):
        return False
    order = [v for i in plain.indices for v in i.variables if not at[v].is_point]
    return plain.indices[-1].plain == order[-1] != part


def _loaded_in_blocks(
    ctx: Context, plain: Access, at: dict[str, Span], part: str, made: Storage, source: Storage
) -> None:
    """Fill a tile with transfers of up to a mebibyte, several blocks of partitions at once."""
    blocks = at[part].most // ctx.lanes
    row = ctx.bytes_of(source.buffer.dtype)
    for name, span in at.items():
        row *= 1 if name == part else span.most
    axis = next(a for a, i in enumerate(plain.indices) if part in i.variables)
    divisors = [d for d in range(1, blocks + 1) if blocks % d == 0]
    each = max(d for d in divisors if d == 1 or d * ctx.lanes * row <= ctx.knobs.transfer_bytes)
    with ctx.build.loop(f"{part[:1]}_blocks" if each > 1 else part[:1], blocks // each) as turn_of:
        start = at[part].start + turn_of * (each * ctx.lanes)
        here = {**at, part: Span(start, expr(each * ctx.lanes), each * ctx.lanes)}
        first = made.view(positions(plain, {**at, part: Span(start, expr(ctx.lanes), ctx.lanes)}))
        block = first.index[1]
        assert isinstance(block, At)
        dst = View(made.buffer, (first.index[0], Cut(block.at, expr(each)), *first.index[2:]))
        ctx.build.add(
            nodes.Load(dst, View(source.buffer, tuple(positions(plain, here)), folded=(axis, ctx.lanes)))
        )


def _is_turned_at_once(
    plain: Access, at: dict[str, Span], part: str, free: list[str], made: Storage, source: Storage
) -> bool:
    """Whether transposed blocks may come together into one bank of PSUM, to be copied out together."""
    if (
        source.is_hbm
        or source.buffer.memory == nodes.PSUM
        or not part
        or len(free) != 1
        or not made.has_blocks
    ):
        return False
    rows, total = at[free[0]], at[part].count.value
    if source.part_variable(plain) != free[0] or rows.count.value is None or total is None:
        return False
    if rows.most > made.lanes and rows.most % made.lanes:
        return False
    return at[part].start.value == 0 and total % made.lanes == 0


def _blocks_of_a_bank(part: Span, rows: Span, partitions: int, columns: int) -> int:
    """Transposed blocks that are copied out of a bank of PSUM together: as many as fit, in equal groups."""
    held = columns // min(rows.most, partitions)
    blocks = part.most // partitions
    return max((n for n in range(1, blocks + 1) if blocks % n == 0 and n <= held), default=0)


def _turned_at_once(
    ctx: Context, plain: Access, at: dict[str, Span], part: str, free: str, made: Storage, source: Storage
) -> None:
    """Transpose block by block into one bank of PSUM, as many rows as it holds, and copy it out at once.

    A search may have smaller copies, every second of which ScalarE makes.
    """
    blocks, most = at[part].most // ctx.lanes, at[free].most
    together = _blocks_of_a_bank(at[part], at[free], made.lanes, ctx.bank_bytes // source.itemsize)
    if together < blocks:
        with ctx.build.tiles("g", blocks * ctx.lanes, together * ctx.lanes) as group:
            here = {**at, part: at[part].tile(group)}
            _turned_at_once(ctx, plain, here, part, free, made, source)
        return
    held = ctx.bank_bytes // (blocks * ctx.lanes * source.itemsize)
    if at[free].count.value is None or most % ctx.lanes:
        held = 1
    each = max(d for d in range(1, held + 1) if d == 1 or most % (d * ctx.lanes) == 0) * ctx.lanes
    engines = ("", "scalar")
    pairs, rest = divmod(most, len(engines) * ctx.lanes)
    told = f"engines that copy {plain.tensor} transposed"
    is_paired = pairs > 0 and not rest
    if not is_paired or ctx.pick(told, ("VectorE", "VectorE and ScalarE")) == "VectorE":
        with ctx.build.tiles("r", most, each) as rows:
            _turned_rows(ctx, plain, at, part, free, made, source, rows, "")
        return
    with ctx.build.loop("r", pairs) as pair:
        for n, engine in enumerate(engines):
            start = (pair * len(engines) + n) * ctx.lanes
            rows = Span(start, expr(ctx.lanes), ctx.lanes)
            _turned_rows(ctx, plain, at, part, free, made, source, rows, engine)


def _turned_rows(
    ctx: Context,
    plain: Access,
    at: dict[str, Span],
    part: str,
    free: str,
    made: Storage,
    source: Storage,
    rows: Span,
    engine: str,
) -> None:
    """Transpose some rows, in blocks of at most 128, and have an engine copy them out."""
    blocks = at[part].most // ctx.lanes
    psum = ctx.build.buffer("turned", (ctx.lanes, blocks, rows.most), source.buffer.dtype, nodes.PSUM)
    with ctx.build.tiles("r", rows.most, ctx.lanes) as inner, ctx.build.loop("b", blocks) as b:
        count = rows.count if inner.most == rows.most else inner.count
        start = at[free].start + rows.start + inner.start
        here = {**at, free: Span(start, count, inner.most)}
        block = Span(at[part].start + b * ctx.lanes, expr(ctx.lanes), ctx.lanes)
        straight = fetch(ctx, Want(plain, {**here, part: block}, free, part, source))
        into = View(psum, (Cut(ZERO, expr(ctx.lanes)), At(b), Cut(inner.start, expr(inner.most))))
        ctx.build.add(nodes.Transpose(into, straight))
    every, columns = Cut(ZERO, expr(ctx.lanes)), Cut(ZERO, expr(rows.most))
    first = (at[part].start - made.bases[made.dims.index("part")]) // ctx.lanes
    into = View(made.buffer, (every, Cut(first, expr(blocks)), Cut(rows.start, expr(rows.most))))
    ctx.build.add(nodes.Copy(into, View(psum, (every, Cut(ZERO, expr(blocks)), columns)), engine))


def _last_free(plain: Access, at: dict[str, Span], free: list[str], source: Storage) -> str:
    """The free axis that is copied at once: the one on the partitions of a tile, else the innermost."""
    if not free:
        return ""
    ragged = [n for n in free if at[n].count.value is None]
    if ragged:
        return ragged[0]
    if not source.is_hbm:
        q = source.part_variable(plain)
        if q in free:
            return q
    order = [v for i in plain.indices for v in i.variables]
    if source.is_hbm and order[-1] not in free:
        # rows that are transposed: the more at once the better
        return max(free, key=lambda n: at[n].most)
    return max(free, key=order.index)


def _is_straight(
    ctx: Context, plain: Access, at: dict[str, Span], part: str, last: str, source: Storage
) -> bool:
    """Whether one transfer fills all axes as they lie in HBM."""
    order = [v for i in plain.indices for v in i.variables if not at[v].is_point]
    if part and (not order or order[0] != part):
        return False
    if not part or len(order) < 2:
        return len(order) > 1 and not part and False
    return True


def _many(made: Storage, plain: Access, at: dict[str, Span]) -> View:
    """The part of a tile with all its cut axes."""
    return made.view(positions(plain, at))


def _copied_tile(
    ctx: Context, plain: Access, at: dict[str, Span], part: str, last: str, made: Storage, source: Storage
) -> None:
    want = Want(plain, at, part, last, source)
    dst = made.view(positions(plain, at))
    rows, columns = want.rows, want.columns
    if source.is_hbm and part and last:
        axes = [next(a for a, i in enumerate(plain.indices) if v in i.variables) for v in (part, last)]
        if axes[0] == len(plain.indices) - 1 and rows.most * columns.most > FEW:
            _turned_into(ctx, want, made)
            return
    elif (
        not source.is_hbm
        and part
        and last
        and not lies_right(source, want)
        and source.part_variable(plain) == last
    ):
        _turned_into(ctx, want, made)
        return
    if source.is_hbm:
        axes_or = [
            next(
                (a for a, i in enumerate(plain.indices) if v and v in i.variables and not at[v].is_point),
                None,
            )
            for v in (part, last)
        ]
        index = list(positions(plain, at))
        ctx.build.add(nodes.Load(dst, two_axes(source.buffer, index, *axes_or)))
        return
    ctx.build.add(nodes.Copy(dst, fetch(ctx, want)))


def _turned_into(ctx: Context, want: Want, made: Storage) -> None:
    """Transposed blocks of at most 128 columns, straight into the tile."""
    columns = want.columns
    if columns.most <= ctx.lanes:
        _turned_block(ctx, want, made)
        return
    total = columns.count.value
    assert total is not None
    with ctx.build.tiles("b", total, ctx.lanes) as block:
        spans = {**want.spans, want.free: columns.tile(block)}
        _turned_block(ctx, Want(want.access, spans, want.part, want.free, want.storage), made)


def _turned_block(ctx: Context, want: Want, made: Storage) -> None:
    dst = made.view(positions(want.access, want.spans))
    straight = fetch(ctx, Want(want.access, want.spans, want.free, want.part, want.storage))
    turn(ctx, straight, dst, want.rows.most)


def _padded(
    ctx: Context, access: Access, spans: dict[str, Span], part: str, made: Storage, source: Storage
) -> None:
    """Zeros, and what lies inside the tensor over them."""
    shape = made.buffer.shape
    every = tuple(Cut(ZERO, expr(e)) for e in shape)
    ctx.build.add(nodes.Fill(View(made.buffer, every), 0.0))
    names = [f"{access.tensor.lower()}_{n}" for n in range(len(access.indices))]
    at: dict[str, Span] = {}
    for axis, name in enumerate(names):
        inside = _inside(ctx, access, axis, spans, made)
        if inside is None:
            return
        at[name] = inside
    plain = Access(access.tensor, tuple(Affine(((n, 1),)) for n in names))
    part_name = next((n for n, d in zip(names, made.dims, strict=True) if d == "part"), "")
    free = [n for n in names if not at[n].is_point and n != part_name]
    _copied(ctx, plain, at, part_name, free, made, source)


def _inside(ctx: Context, access: Access, axis: int, spans: dict[str, Span], made: Storage) -> Span | None:
    """The positions of an axis of a tensor that an access reaches; None if all lie outside."""
    index, base, size = access.indices[axis], made.bases[axis], ctx.cascade.shape(access.tensor)[axis]
    assert isinstance(index, Affine)
    _, most = reach(index, spans)
    if base.value is not None:
        low, high = max(base.value, 0), min(base.value + most, size)
        return Span(expr(low), expr(high - low), high - low) if high > low else None
    if made.dims[axis] == "gone":
        return Span(base, expr(1), 1)
    if index.plain:
        return Span(base, spans[index.plain].count, most)
    raise BeyondEdges(f"{access} reads outside of {access.tensor} at a place that a loop chooses")
