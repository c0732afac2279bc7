"""Bringing a part of a tensor on chip as a tile [partitions, columns], whichever way it lies.

A tile on chip that lies right is a view. Otherwise: a load from HBM; a transpose through PSUM where the
axis wanted on the partitions lies along the columns; a product with ones where one row is wanted on every
partition. What is fetched is fetched in the outermost scope that knows its place, and once.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from ...errors import UnsupportedError
from ..language.ast import Access, Affine, Gather
from ..tree import nodes
from ..tree.expr import ZERO, Expr, Whole, expr
from ..tree.nodes import At, Buffer, Cut, View, columns_of
from .build import Span, UnreachableError, whole
from .bulk import turned_in_bulk, turned_in_psum
from .context import Context, part_of, tensor_type
from .storage import Storage, first_rows, in_hbm, positions
from .want import Want

# part of the room on chip that a row may take which stays on all partitions while a loop reads it in pieces
ROW_SHARE = 0.4


def is_few(ctx: Context, elements: int) -> bool:
    """Whether moving elements that lie apart takes no longer than issuing another transfer."""
    machine = ctx.machine
    moved_ns = machine["dma_run_min_ns"] / machine.limit("dma_engines")
    return bool(elements * max(machine["dma_descriptor_issue_ns"], moved_ns) <= machine["dma_issue_ns"])


def fetch(ctx: Context, want: Want) -> View:
    """A view [rows, columns] of what is wanted; columns are 1 if the access does not run along `free`."""
    if want.access.gathers:
        return _picked(ctx, want) if is_along(want.access, want.free) else _gathered(ctx, want)
    held = [want.storage] if want.storage else ctx.storage_of(want.access)
    storage = next((s for s in held if not s.is_hbm), held[0])
    if not storage.is_hbm and lies_right(storage, want):
        view = storage.view(positions(want.access, want.spans))
        if want.rows.most > 1 or _starts_at_zero(view):
            return _cut_rows(view, want)
    return _cached(ctx, want, storage)


def lies_right(storage: Storage, want: Want) -> bool:
    """Whether a tile on chip has the wanted variable on the partitions."""
    q = storage.part_variable(want.access)
    if q and want.spans[q].is_point:
        q = ""
    if not want.has(want.part) and want.rows.most > storage.copies:
        return False
    return q == (want.part if want.has(want.part) else "")


def _starts_at_zero(view: View) -> bool:
    first = view.index[0]
    return isinstance(first, Cut) and first.start.value == 0


def _cached(ctx: Context, want: Want, storage: Storage) -> View:
    at, key = positions(want.access, want.spans), key_of(want, storage)
    names = nodes.names_in(at)
    # what is repeated over rows takes the whole tile's rows, so that it stays
    names |= want.rows.count.names if want.has(want.part) else frozenset()
    depth = max(ctx.build.depth_of(names), storage.depth)
    for scope in ctx.build.scopes[: depth + 1]:
        held = scope.cache.get(key)
        if held is not None and (want.may_stay or held.buffer.memory != nodes.PSUM):
            return _cut_rows(held, want)
    row, column = _whole_row(ctx, want, storage, depth), _column_of_all(ctx, want, storage)
    if row is not None:
        return _cut_rows(columns_of(row, want.columns.start, want.columns.count), want)
    if column is not None:
        return column
    with ctx.build.hoisted(depth):
        view = _made(ctx, want, storage, at)
        ctx.build.scopes[-1].cache[key] = view
    return _cut_rows(view, want)


def _whole_row(ctx: Context, want: Want, storage: Storage, depth: int) -> View | None:
    """All of a row that every partition reads piece by piece, where a loop around would load it again."""
    axis = want.access.axis_of(want.free) if want.has(want.free) else None
    is_spread = storage.is_hbm or want.rows.most > 1
    if axis is None or not is_spread or want.has(want.part) or not want.columns.start.names:
        return None
    extent = ctx.cascade.shape(want.access.tensor)[axis]
    every = {**want.spans, want.free: whole(extent)}
    is_plain = bool(want.access.indices[axis].plain)
    names = nodes.names_in(positions(want.access, every)) if is_plain else want.columns.start.names
    size = extent * ctx.bytes_of(storage.buffer.dtype)
    if depth - max(ctx.build.depth_of(names), storage.depth) < 2 or size > ctx.room() * ROW_SHARE:
        return None
    return fetch(ctx, replace(want, spans=every, storage=storage))


def _column_of_all(ctx: Context, column: Want, storage: Storage) -> View | None:
    """A column of a tile that is turned at once, where a loop would move one row after the other."""
    q = storage.part_variable(column.access)
    if not may_turn(storage, column.access, column.part, column.free) or not column.spans[q].start.names:
        return None
    rows, base = column.spans[q], storage.bases[storage.part_dim or 0]
    every = {**column.spans, q: whole(storage.lanes, base)}
    tile = fetch(ctx, replace(column, spans=every, free=q, storage=storage))
    return columns_of(tile, rows.start - base, expr(1))


def may_turn(storage: Storage, access: Access, part: str, free: str) -> bool:
    """Whether a tile may be turned at once for a nest that takes a column of the result each turn."""
    q, dim = storage.part_variable(access), storage.part_dim
    is_column = part in access.variables and free not in access.variables and q not in ("", part)
    is_plain = dim is not None and access.indices[dim].plain == q
    return is_column and is_plain and not storage.has_blocks and not storage.steps


def key_of(want: Want, storage: Storage) -> Hashable:
    """What a fetched tile is known by in the scope that holds it: by axes, as S[i, j] and S[j, i] differ."""
    part, free = (want.access.axis_of(v) if want.has(v) else None for v in (want.part, want.free))
    rows = want.rows.most if part is None else 0
    return (want.access.tensor, *positions(want.access, want.spans), (part, free, rows), storage.version)


def is_fetched(ctx: Context, want: Want) -> bool:
    """Whether a scope around holds what is wanted already."""
    caches, tensor = [scope.cache for scope in ctx.build.scopes], want.access.tensor
    if want.access.gathers or not any(key[0] == tensor for tiles in caches for key in tiles):
        return False
    try:
        keys = [key_of(want, s) for s in ctx.storages.get(tensor, ())]
    except UnreachableError:
        return False
    return any(key in tiles for key in keys for tiles in caches)


def _cut_rows(view: View, want: Want) -> View:
    is_cut = not want.has(want.part) and want.rows.count != view.cuts[0].count
    return first_rows(view, want.rows.count) if is_cut else view


def _made(ctx: Context, want: Want, storage: Storage, at: list[At | Cut]) -> View:
    if storage.is_hbm:
        return _from_hbm(ctx, want, storage, at)
    if not want.has(want.part) and want.rows.most > 1:
        row = fetch(ctx, Want(want.access, want.spans, "", want.free, storage))
        return spread(ctx, row, want.rows.most, want.columns, want.access.tensor.lower())
    q, has_part = storage.part_variable(want.access), want.has(want.part)
    is_wide = bool(q) and not want.spans[q].is_point
    if is_wide and q not in (want.free, want.part):
        raise UnsupportedError(
            f"{want.access} lies with {q} on the partitions where {want.part or 'none'} is wanted"
        )
    if has_part and want.has(want.free) and q != want.free:
        return _dealt(ctx, want, storage)
    view = storage.view(at)
    if not is_wide and not _starts_at_zero(view):
        view = _moved(ctx, view, want)
    is_one = want.rows.most == want.columns.most == 1 and not want.has(want.free)
    return view if not has_part and (is_one or not is_wide) else _turned_tiles(ctx, want, storage)


def _dealt(ctx: Context, want: Want, storage: Storage) -> View:
    """What lies on one partition, both axes along its columns, dealt out to partitions by transfers."""
    rows, columns, order = want.rows, want.columns, want.access.variables
    dtype, hint = storage.buffer.dtype, f"{want.access.tensor.lower()}_rows"
    tile = ctx.tile(hint, rows, columns, dtype)
    if order.index(want.part) < order.index(want.free):
        lying = in_sbuf(ctx, storage.view(positions(want.access, want.spans)), dtype)
        ctx.build.add(nodes.Move(tile, lying))
        return tile
    with ctx.build.pieces(want.free, columns, ctx.lanes) as block:
        straight = ctx.tile(hint, block, rows, dtype)
        spans = {**want.spans, want.free: columns.tile(block)}
        lying = in_sbuf(ctx, storage.view(positions(want.access, spans)), dtype)
        ctx.build.add(nodes.Move(straight, lying))
        turn(ctx, straight, columns_of(tile, block.start, block.count), rows.most)
    return tile


def _moved(ctx: Context, view: View, want: Want) -> View:
    """A row that lies on any partition, on the first one."""
    most = max(want.columns.most, want.rows.most)
    tile = ctx.temporary(f"{want.access.tensor.lower()}_row", 1, most, view.buffer.dtype)
    moved = part_of(tile, 1, view.cuts[1].count)
    ctx.build.add(nodes.Move(moved, view))
    return moved


def _turned_tiles(ctx: Context, want: Want, storage: Storage) -> View:
    """A transposed tile, block by block of 128 of what lies on the partitions."""
    rows, columns, spans = want.rows, want.columns, want.spans
    hint, has_free = f"{want.access.tensor.lower()}_turned", want.has(want.free)
    tile = ctx.temporary(hint, max(rows.most, 1), columns.most, storage.buffer.dtype)
    with ctx.build.pieces(want.free, columns, ctx.lanes) as block:
        own = {want.free: columns.tile(block)} if has_free else {}
        source = storage.view(positions(want.access, {**spans, **own}))
        if not has_free and not _starts_at_zero(source):
            source = _moved(ctx, source, want)
        turn(ctx, source, part_of(tile, source.cuts[1].count, block.count, block.start), rows.most)
    return part_of(tile, rows.count if want.has(want.part) else 1, columns.count)


def turn(ctx: Context, source: View, result: View, most_rows: int) -> None:
    """result [b, a] = source [a, b] through PSUM."""
    rows, columns = (cut.count for cut in source.cuts)
    source = in_sbuf(ctx, source, dtype := tensor_type(source.buffer.dtype), "straight")
    psum = ctx.temporary("turned", max(most_rows, 1), ctx.lanes, dtype, nodes.PSUM)
    transposed = part_of(psum, columns, rows)
    ctx.build.add(nodes.Transpose(transposed, source))
    ctx.build.add(nodes.Copy(result, transposed))


def in_sbuf(ctx: Context, view: View, dtype: str, hint: str = "out_tile") -> View:
    """A view that transfers and transposes may read, of a type."""
    if view.buffer.memory != nodes.PSUM and view.buffer.dtype == dtype:
        return view
    extents = [e for e, i in zip(view.buffer.shape, view.index, strict=True) if isinstance(i, Cut)]
    if len(extents) < 2:
        extents = [view.buffer.shape[0], view.buffer.shape[-1]]
    tile = ctx.build.buffer(hint, tuple(int(str(e)) for e in extents), dtype, nodes.SBUF)
    part = View(tile, tuple(nodes.upto(c.count) for c in view.cuts))
    ctx.build.add(nodes.Copy(part, view))
    return part


def spread(ctx: Context, row: View, rows: int, columns: Span, hint: str) -> View:
    """A row [1, columns] on `rows` partitions: a product with a column of ones."""
    row = in_sbuf(ctx, row, row.buffer.dtype, f"{hint}_row")
    ones = part_of(ctx.constant(1.0, row.buffer.dtype), 1, rows)
    tile = ctx.tile(f"{hint}_spread", whole(rows), columns)
    with ctx.build.pieces(hint, columns, ctx.bank) as block:
        psum = ctx.tile("spread", whole(rows), block, "float32", nodes.PSUM, "sum")
        ctx.build.add(nodes.MatMul(psum, ones, columns_of(row, block.start, block.count), ()))
        ctx.build.add(nodes.Copy(columns_of(tile, block.start, block.count), psum))
    return tile


def two_axes(
    buffer: Buffer, at: list[At | Cut], part: int | None, free: int | None, *,
    folded: tuple[int, bool] = (1, True),
) -> View:  # fmt: skip
    """A part of an HBM tensor as [partitions, columns]: axes of one are added where one is missing.

    One axis may have both (`Want.folded`).
    """
    index = list(at) or [At(ZERO)]
    if part is not None and part == free:
        return View(buffer, tuple(index), is_turned=folded[1], folded=(part, folded[0]))

    def widen(axis: int) -> int:
        held = index[axis]
        assert isinstance(held, At)
        index[axis] = Cut(held.at, expr(1))
        return axis

    spare = [axis for axis, i in enumerate(index) if isinstance(i, At)]
    for wanted in ("free", "part"):
        if (free if wanted == "free" else part) is not None:
            continue
        other = part if wanted == "free" else free
        beyond = [a for a in spare if other is not None and (a > other if wanted == "free" else a < other)]
        chosen = (beyond or spare)[-1] if spare else None
        if chosen is None:
            index.insert(0, Cut(ZERO, expr(1)))
            part, free = (None if part is None else part + 1), (None if free is None else free + 1)
            chosen = 0
        else:
            widen(chosen)
            spare.remove(chosen)
        if wanted == "free":
            free = chosen
        else:
            part = chosen
    assert part is not None
    assert free is not None
    return View(buffer, tuple(index), is_turned=part > free)


def _from_hbm(ctx: Context, want: Want, storage: Storage, at: list[At | Cut]) -> View:
    part, free = (want.access.axis_of(v) if want.has(v) else None for v in (want.part, want.free))
    hint, dtype = f"{want.access.tensor.lower()}_tile", storage.buffer.dtype
    rows, columns = want.rows, want.columns
    if want.part and part is None and rows.most > 1:
        return _repeated(ctx, want, storage, at)
    last = len(storage.buffer.shape) - 1
    is_strided = part is not None and free not in (None, part) and part == last
    if is_strided and not is_few(ctx, rows.most * columns.most) and ctx.may_turn(storage.buffer):
        return _loaded_turned(ctx, want, storage)
    tile = ctx.temporary(hint, rows.most, columns.most, dtype)
    view = part_of(tile, rows.count if part is not None else 1, columns.count)
    ctx.build.add(nodes.Load(view, two_axes(storage.buffer, at, part, free, folded=want.folded)))
    return view


def _repeated(ctx: Context, want: Want, storage: Storage, at: list[At | Cut]) -> View:
    """A row, or an element, on every partition: one transfer that reads it again and again."""
    rows, columns = want.rows.most, want.columns
    if _is_across(ctx, want, at):
        storage, at = _rows_apart(ctx, want, storage, at[-1])
    view = ctx.tile(f"{want.access.tensor.lower()}_rows", whole(rows), columns, storage.buffer.dtype)
    ctx.build.add(nodes.Load(view, View(storage.buffer, tuple(at) or (At(ZERO),), repeat=expr(rows))))
    return view


def _is_across(ctx: Context, operand: Want, at: list[At | Cut]) -> bool:
    """Whether the rows of an operand lie across the last axis, of which there are some, in HBM."""
    is_row = bool(at) and isinstance(at[-1], At) and operand.has(operand.free)
    is_row = is_row and not is_few(ctx, operand.columns.most * operand.rows.most)
    return is_row and 1 < ctx.cascade.shape(operand.access.tensor)[-1] <= ctx.lanes


def _rows_apart(
    ctx: Context, operand: Want, storage: Storage, row: At | Cut
) -> tuple[Storage, list[At | Cut]]:
    """A copy in HBM of all rows that lie across, and where the one that is wanted lies in it."""
    size, every = ctx.cascade.shape(operand.access.tensor)[-1], f"{operand.free}_every"
    access = replace(operand.access, indices=(*operand.access.indices[:-1], Affine(((every, 1),))))
    own = Want(access, {**operand.spans, every: whole(size)}, every, operand.free, storage)
    at = positions(own.access, own.spans)
    depth = max(ctx.build.depth_of(nodes.names_in(at)), storage.depth)
    key = ("rows apart", key_of(own, storage))

    def copy() -> Storage:
        view, shape = fetch(ctx, own), (size, operand.columns.most)
        name = f"{operand.access.tensor.lower()}_scratch"
        rows = ctx.build.buffer(name, shape, storage.buffer.dtype, nodes.HBM, "scratch")
        ctx.build.add(nodes.Store(part_of(rows, size, operand.columns.count), view))
        return in_hbm(rows, 2)

    return ctx.build.once(key, depth, copy), [row, Cut(ZERO, operand.columns.count)]


def _loaded_turned(ctx: Context, want: Want, storage: Storage) -> View:
    """A tile whose rows lie along the columns in HBM: loaded as it lies, then transposed."""
    columns = want.columns
    in_psum = turned_in_psum(ctx, want, storage) if want.may_stay else None
    if in_psum is not None:
        return in_psum
    tile = ctx.tile(f"{want.access.tensor.lower()}_turned", want.rows, columns, storage.buffer.dtype)

    many = (columns.count.value or 0) // ctx.lanes * ctx.lanes
    # whole blocks may come at once, what is left of them not
    pieces = [whole(many), whole(columns.most - many, expr(many))]
    for piece in pieces if ctx.lanes < many < columns.most else [Span(ZERO, columns.count, columns.most)]:
        # of one column, too, the place is that of the tensor
        span = columns.tile(piece)
        own = Want(want.access, {**want.spans, want.free: span}, want.part, want.free, storage)

        def place(rows: Span, block: Span, first: Expr = piece.start) -> View:
            return part_of(tile.buffer, rows.count, block.count, first + block.start)

        if want.rows.most <= ctx.lanes and turned_in_bulk(ctx, own, storage, place):
            continue
        with ctx.build.pieces(want.free, span, ctx.lanes) as block:
            spans = {**own.spans, want.free: span.tile(block)}
            straight = fetch(ctx, Want(want.access, spans, want.free, want.part, storage))
            turn(ctx, straight, columns_of(tile, piece.start + block.start, block.count), want.rows.most)
    return tile


def is_along(access: Access, free: str) -> bool:
    """Whether columns are chosen along the last axis: each partition has them picked out of its row."""
    *others, last = access.indices
    is_last = isinstance(last, Gather) and free in last.variables and not last.access.gathers
    return is_last and not any(isinstance(i, Gather) or free in i.variables for i in others)


def _picked(ctx: Context, want: Want) -> View:
    """What each partition picks out of its row, all of which comes on chip."""
    tensor, (*others, last) = want.access.tensor, want.access.indices
    assert isinstance(last, Gather)
    every = f"{want.free}_every"
    row = replace(want.access, indices=(*others, Affine(((every, 1),))))
    spans = {**want.spans, every: whole(ctx.cascade.shape(tensor)[-1])}
    source = fetch(ctx, replace(want, access=row, spans=spans, free=every, storage=None, may_stay=False))
    source = in_sbuf(ctx, source, source.buffer.dtype)
    view = replace(want, access=last.access, storage=None)
    chosen = fetch(ctx, replace(view, may_stay=False))

    def numbers() -> View:
        places = ctx.tile("places", want.rows, want.columns, "uint32")
        ctx.build.add(nodes.Copy(places, chosen))
        return places

    names = frozenset({chosen.buffer.name, *nodes.names_in(chosen.index)})
    key = ("places", chosen, ctx.version_of(chosen), want.rows.most)
    places = ctx.build.once(key, ctx.build.depth_of(names), numbers)
    picked = ctx.tile(f"{tensor.lower()}_columns", want.rows, want.columns, source.buffer.dtype)
    ctx.build.add(nodes.Pick(picked, source, first_rows(places, want.rows.count)))
    return picked


def _gathered(ctx: Context, operand: Want) -> View:
    """Rows that other tensors choose as a tile of its own."""
    dtype = ctx.dtypes[operand.access.tensor]
    view = ctx.tile(f"{operand.access.tensor.lower()}_rows", operand.rows, operand.columns, dtype)
    gather(ctx, operand, view)
    return view


def gather(ctx: Context, operand: Want, into: View) -> None:
    """Bring rows that other tensors choose, one per partition: of all axes up to the last chosen, joined.

    Where no partition has an index of its own, they are a slice.
    """
    access, table = operand.access, ctx.hbm(operand.access.tensor)
    assert table is not None, f"{access} is gathered from a tile"
    last = last_chosen(access, operand.part)
    is_slice = operand.has(operand.part) and max(_axes_of(access, operand.part)) > last
    first, behind = At(ZERO) if is_slice else Cut(ZERO, operand.rows.count), access.indices[last + 1 :]
    at = positions(Access(access.tensor, behind), operand.spans)
    if at and len(into.cuts) > sum(isinstance(i, Cut) for i in (first, *at)):
        *_, spare = (n for n, i in enumerate(at) if isinstance(i, At))
        at[spare] = Cut(at[spare].at, expr(1))  # type: ignore[union-attr]
    before = sum(isinstance(i, Cut) for i in at[: _axes_of(access, operand.part)[-1] - last - 1]) * is_slice
    order = (before, *(n for n in range(len(into.cuts)) if n != before)) if before else ()
    chosen = _chosen_rows(
        ctx, replace(operand, part="") if is_slice else operand, table.buffer.shape[: last + 1]
    )
    source = View(table.buffer, (*[At(ZERO)] * last, first, *at), order=order)
    ctx.build.add(nodes.Gather(into, source, last, chosen))


def _axes_of(access: Access, variable: str) -> list[int]:
    """The axes whose indices have a variable; the one before all where none has."""
    return [n for n, i in enumerate(access.indices) if variable in i.variables] or [-1]


def last_chosen(access: Access, part: str) -> int:
    """The last axis of an access that is joined to those before to be chosen from.

    Along it each partition has an index of its own, or else the index that all partitions have is last.
    """
    last, own = max(n for n, i in enumerate(access.indices) if isinstance(i, Gather)), _axes_of(access, part)
    is_slice = last < own[0] < len(access.indices) - 1
    return last if is_slice else max(last, *own)


def _chosen_rows(ctx: Context, operand: Want, joined: tuple[Whole, ...]) -> View:
    """The column of rows that are gathered, counted over axes that are joined, in 32-bit integers."""
    size, start, across, total = 1, ZERO, 0, None
    for index, extent in zip(operand.access.indices[len(joined) - 1 :: -1], joined[::-1], strict=True):
        if isinstance(index, Affine):
            start += sum((operand.spans[v].start * c for v, c in index.terms), expr(index.constant)) * size
            across += index.coefficient(operand.part) * size
        else:
            chosen = fetch(ctx, Want(index.access, operand.spans, operand.part, ""))
            own = chosen.buffer.dtype
            chosen = in_sbuf(ctx, chosen, own if own in ("int32", "uint32") else "int32", "chosen")
            chosen = chosen if size == 1 else _combined(ctx, operand, chosen, "multiply", (ZERO + size, 0))
            total = chosen if total is None else _combined(ctx, operand, total, "add", chosen)
        size *= expr(extent).value or 1
    assert total is not None
    return total if start == ZERO and not across else _combined(ctx, operand, total, "add", (start, across))


def _combined(ctx: Context, operand: Want, left: View, op: str, right: View | tuple[Expr, int]) -> View:
    """A column of 32-bit integers with another, or with start + across * partition, exactly: on GpSimdE."""
    if not isinstance(right, View):
        (start, across), right = right, ctx.tile("rows", operand.rows, whole(1), "int32")
        ctx.build.add(nodes.Count(right, start, across, 0))
    result = ctx.tile("rows", operand.rows, whole(1), "int32")
    ctx.build.add(nodes.Combine(result, left, op, right, "gpsimd"))
    return result
