"""Products of a batch: operands of many come on chip in one transfer, and results leave many at once.

Where both operands have a rank, TensorE takes its values one after the other. Each by itself would be a
small transfer, a small copy out of PSUM and a small store; together they are as large as room on chip allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..language.ast import Access, Scalar
from ..tree.expr import ZERO
from ..tree.nodes import PSUM, At, Copy, Store, View, all_of, upto
from .beside import inside, is_row
from .build import Span, point, whole
from .choose import SMALL_ROW_BYTES
from .product import is_batch
from .reach import leaving
from .stage import extents_of, stage, staged_bytes
from .storage import Storage, positions

if TYPE_CHECKING:
    from .contraction import Contraction

# part of the room on chip that operands and results of the values that come together may take
SHARE, WHOLE_SHARE = 0.5, 0.95
# bytes of HBM that one transfer is to move at least before a batch is cut into several
MOST_MOVED = 1 << 20
# how products one by one are judged beside products together
CLOSE_BY = 1.9
# bytes that lie side by side in HBM, at least, where a batch is cut along them
LEAST_ROW_BYTES = 32


@dataclass(frozen=True)
class Batch:
    """Products that go together."""

    variable: str  # that they differ in
    each: int  # values whose operands come, and whose results go, in one transfer
    beside: int  # values whose results lie beside each other in a bank of PSUM
    sides: tuple[tuple[str, int], ...]  # variables of the result, with how much of each is worked on at once


def batch_of(nest: Contraction) -> Batch | None:
    """What goes together of a nest; None where every product is worth transfers of its own."""
    product, spans, target, einsum = nest.product, nest.spans, nest.target, nest.einsum
    rows, columns = (spans[v].most if v else 1 for v in (product.part, product.free))
    is_plain = not (einsum.condition or nest.ctx.given.is_watched or nest.stack or nest.padded)
    is_plain &= not any(isinstance(o, Scalar) for o in einsum.operands)
    is_one = bool(product.part) and columns <= nest.bank
    is_one &= rows <= nest.lanes or target.tile is None
    wide = [v for v in einsum.variables if not spans[v].is_point]
    if not is_plain or not is_one or any(spans[v].count.value is None for v in wide):
        return None
    if any(leaving(nest.ctx, a, spans) for a in einsum.accesses):
        return None
    tile = target.tile
    if tile is not None and (
        tile.buffer.memory == PSUM or tile.has_blocks or tile.part_variable(einsum.output) != product.part
    ):
        return None
    for variable in reversed(product.outer):
        is_one = is_batch(nest.ctx, einsum, product.part, product.free, variable)
        ways = {sides: _together(nest, variable, sides) for sides in _sides(nest, variable)} if is_one else {}
        sides = max(ways, key=lambda s: ways[s], default=())
        each = ways.get(sides, 1)
        if each == 1:
            continue
        options, costs = ("together", "one by one"), (1.0, CLOSE_BY)
        is_high = rows > nest.lanes and not _is_last(nest, variable)
        if is_high or _is_cut(nest, variable, each, SMALL_ROW_BYTES):
            # judged equal: both are timed
            options, costs = options[::-1], (1.0, 1.0)
        if nest.ctx.pick(f"products of {einsum.name} over {variable}", options, costs=costs) == "together":
            return Batch(variable, each, _per_bank(nest, each, dict(sides).get(product.free, 1)), sides)
    return None


def _sides(nest: Contraction, variable: str) -> Iterator[tuple[tuple[str, int], ...]]:
    """Parts of the result that may be worked on at once: all of it, and less of it with longer rows."""
    spans, lanes = nest.spans, nest.lanes
    whole_sides = tuple((v, spans[v].most) for v in (nest.product.part, nest.product.free) if v)
    yield whole_sides
    chips = ((nest.ctx.chip(a.tensor), a) for a in nest.einsum.accesses)
    blocked = {chip.part_variable(a) for chip, a in chips if chip is not None and chip.has_blocks}
    if _is_last(nest, variable):
        for count in range(1, len(whole_sides) + 1):
            # what divides an extent and fills at least half of the partitions, or a block on chip
            held = ((v, n, lanes if v in blocked else lanes // 2) for v, n in whole_sides[:count])
            cut = tuple((v, next((m for m in range(lanes, b - 1, -1) if n % m == 0), n)) for v, n, b in held)
            yield (*cut, *whole_sides[count:])


def _per_bank(nest: Contraction, each: int, columns: int) -> int:
    """How many results of so many columns lie beside each other in a bank."""
    most = max(1, nest.bank // columns)
    return max(n for n in range(1, min(each, most) + 1) if each % n == 0)


def _is_cut(nest: Contraction, variable: str, each: int, least: int) -> bool:
    """Whether so many values of a variable, side by side in HBM, are fewer bytes than some."""
    return _is_last(nest, variable) and each < nest.spans[variable].most and each * 4 < least


def _is_last(nest: Contraction, variable: str) -> bool:
    """Whether values of a variable lie side by side in HBM, of an operand or the result."""
    return variable in {a.indices[-1].plain for a in (*nest.einsum.accesses, nest.einsum.output) if a.indices}


def _together(nest: Contraction, variable: str, sides: tuple[tuple[str, int], ...]) -> int:
    """How many values of a variable go together: as many as fit, in parts that overlap if they are large."""
    cut = {v: whole(n) for v, n in sides}
    product, extent = nest.product, nest.spans[variable].most
    room, sizes = nest.ctx.room() * SHARE, [n for n in range(1, extent + 1) if extent % n == 0]
    best = 1
    for each in sizes:
        spans = {**inside(nest.product, nest.spans, variable, each), **cut}
        read = [a for a in (product.left, product.right) if a is not None and _is_loaded(nest, a)]
        size = sum(staged_bytes(nest.ctx, a, spans, product.over, nest.dtype) for a in read)
        columns = spans[product.free].most if product.free else 1
        size += each * columns * nest.ctx.bytes_of(nest.target.dtype)
        is_cut = _is_cut(nest, variable, each, LEAST_ROW_BYTES)
        is_once = each == extent and not nest.ctx.build.depth and all(spans[v].most == n for v, n in sides)
        # rows that come whole are worth more than that the next part comes meanwhile
        is_whole = each == extent and _is_last(nest, variable) and size <= nest.ctx.room() * WHOLE_SHARE
        if (size * (1 if is_once else 2) > room and not is_whole) or is_cut:
            continue
        if best > 1 and size * nest.lanes > MOST_MOVED * 2 and not _is_last(nest, variable):
            break
        best = each
    return best


def _is_loaded(nest: Contraction, access: Access) -> bool:
    """Whether an operand is not on chip as products want it."""
    own = nest.product.part if access is nest.product.left else nest.product.free
    return nest.ctx.chip(access.tensor) is None or nest.is_staged(access, own)


def lower_batch(nest: Contraction, batch: Batch) -> None:
    """Append the loops over a batch, and its products."""
    ctx, spans, variable = nest.ctx, nest.spans, batch.variable
    target, part = nest.target, nest.product.part
    with ExitStack() as stack:
        for v, size in ((variable, batch.each), *batch.sides):
            block = stack.enter_context(ctx.build.tiles(v, spans[v].most, size, over=v))
            nest.spans = {**nest.spans, v: spans[v].tile(block)}
        nest.held = {
            n: stage(ctx, access, nest.spans, nest.product.over, nest.dtype)
            for n, access in enumerate((nest.product.left, nest.product.right))
            if access is not None and _is_loaded(nest, access)
        }
        rows = nest.spans[part]
        with ctx.build.tiles(part, rows.most, min(rows.most, nest.lanes), over=part) as block:
            nest.spans = {**nest.spans, part: rows.tile(block)}
            _results(nest, batch)
    nest.spans = spans
    for storage in (target.tile, target.hbm):
        if storage is not None:
            storage.changed()


def _results(nest: Contraction, batch: Batch) -> None:
    """The products of a batch for one block of rows, copied out of PSUM and stored in one transfer."""
    variable, target, output, part = batch.variable, nest.target, nest.einsum.output, nest.product.part
    rows = _rows(nest, target.hbm) if target.hbm is not None else None
    order = [i.plain for i in output.indices if i.plain in (variable, nest.product.free)]
    for psum, span in _banks(nest, variable, batch.beside):
        at = positions(output, {**nest.spans, variable: span})
        for tile in (t for t in (target.tile, rows) if t is not None):
            nest.ctx.build.add(Copy(tile.place(at), _in_order(psum, order.index(variable), len(order))))
    if rows is not None and target.hbm is not None:
        axes = [i.plain for i in output.indices if i.plain in (*order, part)]
        first = axes.index(part)
        order_in_hbm = (first, *(n for n in range(len(axes)) if n != first)) if first else ()
        at_hbm = tuple(positions(output, nest.spans))
        own = (upto(nest.spans[part].count), *all_of(rows.buffer).index[1:])
        nest.ctx.build.add(Store(View(target.hbm.buffer, at_hbm, order=order_in_hbm), View(rows.buffer, own)))


def _rows(nest: Contraction, hbm: Storage) -> Storage:
    """A tile for the results that one transfer stores."""
    output = nest.einsum.output
    axes = extents_of(output, nest.spans, nest.product.part)
    return nest.ctx.add_tile(output.tensor, axes, hbm.buffer.dtype, f"{output.tensor.lower()}_rows")


def _banks(nest: Contraction, variable: str, count: int) -> Iterator[tuple[View, Span]]:
    """Results of `count` values of a variable, in a bank of PSUM, with all values of the bank."""
    build, every, rows = nest.ctx.build, nest.spans[variable], nest.spans[nest.product.part]
    columns = nest.spans[nest.product.free].most if nest.product.free else 1
    with build.tiles(variable, every.most, count, over=variable) as group:
        shape, name = (rows.most, count, columns), f"{nest.einsum.name.lower()}_sums"
        psum = build.buffer(name, shape, "float32", PSUM, "sum")
        bank = whole(count, every.start + group.start)
        results = View(psum, (upto(rows.count), upto(count), upto(columns)))
        is_beside = _is_beside(nest, variable)
        # in one product, or one by one
        with build.tiles(variable, count, count if is_beside else 1, over=variable) as one:
            place = View(psum, (upto(rows.count), At(one.start), upto(columns)))
            span = bank if is_beside else point(bank.start + one.start)
            nest.accumulated([results if is_beside else place], [{**nest.spans, variable: span}])
        yield results, bank


def _is_beside(nest: Contraction, variable: str) -> bool:
    """Whether the moving operand alone has a variable, and has its values before the columns on chip."""
    product, right = nest.product, nest.product.right
    if right is None or not product.free or not is_row(nest.einsum, product, variable):
        return False
    return 1 in nest.held or not _is_loaded(nest, right)


def _in_order(psum: View, place: int, axes: int) -> View:
    """Results [partitions, values, columns] with the values before the columns or behind them."""
    if axes == 1:
        return replace(psum, index=(*psum.index[:2], At(ZERO)))
    return psum if place == 0 else replace(psum, order=(0, 2, 1))
