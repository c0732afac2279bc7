"""Products of a batch: operands of many come on chip in one transfer, and results leave many at once.

Where both operands have a rank, TensorE takes its values one after the other. Each by itself would be a
small transfer, a small copy out of PSUM and a small store; together they are as large as room on chip allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..language.ast import Access, Scalar
from ..tree.expr import ZERO, expr
from ..tree.nodes import PSUM, SBUF, At, Buffer, Copy, Cut, Store, View, all_of, upto
from .build import Span, point, whole
from .choose import SMALL_ROW_BYTES
from .product import is_batch
from .reach import leaving
from .stage import stage, staged_bytes
from .storage import positions

if TYPE_CHECKING:
    from .contraction import Contraction

# part of the room on chip that operands and results of the values that come together may take
SHARE = 0.3
# bytes of HBM that one transfer is to move at least before a batch is cut into several
MOST_MOVED = 1 << 20


@dataclass(frozen=True)
class Batch:
    """Products that go together.

    Args:
        variable: that they differ in.
        each: values whose operands come, and whose results go, in one transfer.
        beside: values whose results lie beside each other in a bank of PSUM.
    """

    variable: str
    each: int
    beside: int


def batch_of(nest: Contraction) -> Batch | None:
    """What goes together of a nest; None where every product is worth transfers of its own."""
    product, spans, target, einsum = nest.product, nest.spans, nest.target, nest.einsum
    rows, columns = (spans[v].most if v else 1 for v in (product.part, product.free))
    is_plain = not (einsum.condition or nest.ctx.given.is_watched or nest.stack or nest.padded)
    is_plain &= not any(isinstance(o, Scalar) for o in einsum.operands)
    is_one = bool(product.part) and rows <= nest.lanes and columns <= nest.bank
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
        each = _together(nest, variable) if is_batch(einsum, product.part, product.free, variable) else 1
        if each > 1:
            most = max(1, nest.bank // columns)
            return Batch(variable, each, max(n for n in range(1, min(each, most) + 1) if each % n == 0))
    return None


def _together(nest: Contraction, variable: str) -> int:
    """How many values of a variable go together: as many as fit, in parts that overlap if they are large."""
    product, output, extent = nest.product, nest.einsum.output, nest.spans[variable].most
    room, sizes = nest.ctx.room() * SHARE, [n for n in range(1, extent + 1) if extent % n == 0]
    last = {a.indices[-1].plain for a in (*nest.einsum.accesses, output) if a.indices}
    best = 1
    for each in sizes:
        spans = _inside(nest, variable, each)
        read = [a for a in (product.left, product.right) if a is not None and _is_loaded(nest, a)]
        held = sum(staged_bytes(nest.ctx, a, spans, product.over, nest.dtype) for a in read)
        columns = nest.spans[product.free].most if product.free else 1
        held += each * columns * 4
        is_cut = variable in last and each < extent and each * 4 < SMALL_ROW_BYTES
        if held * 2 > room or is_cut:
            continue
        if best > 1 and held * nest.lanes > MOST_MOVED * 2 and variable not in last:
            break
        best = each
    return best


def _inside(nest: Contraction, variable: str, each: int) -> dict[str, Span]:
    """Spans inside of the loops around products."""
    points = {v: point(0) for v in nest.product.outer}
    return {**nest.spans, **points, variable: whole(each, nest.spans[variable].start)}


def _is_loaded(nest: Contraction, access: Access) -> bool:
    """Whether an operand is not on chip as products want it."""
    own = nest.product.part if access is nest.product.left else nest.product.free
    return nest.ctx.chip(access.tensor) is None or nest.is_staged(access, own)


def lower_batch(nest: Contraction, batch: Batch) -> None:
    """Append the loops over a batch, and its products."""
    build, spans, variable = nest.ctx.build, nest.spans, batch.variable
    before, target, output = spans[variable], nest.target, nest.einsum.output
    with build.tiles(variable, before.most, batch.each, over=variable) as chunk:
        every = before.tile(chunk)
        nest.spans = {**spans, variable: every}
        nest.held = {}
        for n, access in enumerate((nest.product.left, nest.product.right)):
            if access is not None and _is_loaded(nest, access):
                nest.held[n] = stage(nest.ctx, access, nest.spans, nest.product.over, nest.dtype)
        rows, columns = (spans[v] if v else whole(1) for v in (nest.product.part, nest.product.free))
        extents = {variable: batch.each, nest.product.free: columns.most}
        order = [i.plain for i in output.indices if i.plain in extents and i.plain]
        made = None
        if target.hbm is not None:
            shape = (rows.most, *(extents[v] for v in order))
            made = build.buffer(f"{output.tensor.lower()}_rows", shape, target.hbm.buffer.dtype, SBUF)
        with build.tiles(variable, batch.each, batch.beside, over=variable) as group:
            shape = (rows.most, batch.beside, columns.most)
            psum = build.buffer(f"{output.tensor.lower()}_sums", shape, "float32", PSUM, "sum")
            with build.tiles(variable, batch.beside, 1, over=variable) as one:
                at = point(every.start + group.start + one.start)
                place = View(psum, (upto(rows.most), At(one.start), upto(columns.most)))
                nest.accumulated(place, {**nest.spans, variable: at})
            source = _in_order(psum, order.index(variable), len(order))
            here = {**nest.spans, variable: whole(batch.beside, every.start + group.start)}
            if target.tile is not None:
                build.add(Copy(target.tile.place(positions(output, here)), source))
            if made is not None:
                part = Cut(group.start, expr(batch.beside))
                cuts = {variable: part, nest.product.free: upto(columns.most)}
                build.add(Copy(View(made, (upto(rows.most), *(cuts[v] for v in order))), source))
        if made is not None and target.hbm is not None:
            at_hbm = tuple(positions(output, nest.spans))
            axes = [v for v in (i.plain for i in output.indices) if v in (*extents, nest.product.part) and v]
            first = axes.index(nest.product.part)
            turned = (first, *(n for n in range(len(axes)) if n != first))
            build.add(Store(View(target.hbm.buffer, at_hbm, order=turned if first else ()), all_of(made)))
    nest.spans = spans
    for storage in (target.tile, target.hbm):
        if storage is not None:
            storage.changed()


def _in_order(psum: Buffer, place: int, axes: int) -> View:
    """Results [partitions, values, columns] with the values before the columns or behind them."""
    every = all_of(psum)
    if axes == 1:
        return View(psum, (*every.index[:2], At(ZERO)))
    return every if place == 0 else View(psum, every.index, order=(0, 2, 1))
