"""Products of few columns: blocks of their rows beside each other in a bank of PSUM, copied out together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..language.ast import Scalar
from ..tree.expr import ZERO, expr
from ..tree.nodes import PSUM, At, Copy, Cut, View
from .build import whole
from .storage import positions

if TYPE_CHECKING:
    from .contraction import Contraction

# columns, at most, of which each would be copied out of PSUM by itself
NARROW = 8


def is_abreast(nest: Contraction) -> bool:
    """Compute a block of a result this way; whether that is possible."""
    place = _place(nest)
    if place is None:
        return False
    part, lanes, build = nest.product.part, nest.lanes, nest.ctx.build
    rows, columns = nest.spans[part], nest.spans[nest.product.free] if nest.product.free else whole(1)
    blocks, every = rows.most // lanes, (Cut(ZERO, expr(lanes)), Cut(ZERO, columns.count))
    name = f"{nest.einsum.name.lower()}_sums"
    psum = build.buffer(name, (lanes, blocks, columns.most), "float32", PSUM, "sum")
    with build.loop(part, blocks, over=part, step=lanes) as block:
        tile = whole(lanes, rows.start + block * lanes)
        nest.accumulated(View(psum, (every[0], At(block), every[1])), {**nest.spans, part: tile})
    build.add(Copy(place, View(psum, (every[0], Cut(ZERO, expr(blocks)), every[1]))))
    assert nest.target.tile is not None
    nest.target.tile.changed()
    return True


def _place(nest: Contraction) -> View | None:
    """Where the blocks lie on chip, if they fit beside each other into a bank of PSUM."""
    product, tile, lanes = nest.product, nest.target.tile, nest.lanes
    if tile is None or nest.target.hbm is not None or tile.buffer.memory == PSUM or nest.beside:
        return None
    rows, columns = (nest.spans[v] if v else whole(1) for v in (product.part, product.free))
    is_whole = rows.count.value == rows.most > lanes and rows.most % lanes == 0
    is_narrow = columns.most <= NARROW and rows.most // lanes * columns.most <= nest.bank
    is_plain = tile.has_blocks and not any(isinstance(o, Scalar) for o in nest.einsum.operands)
    if not (is_whole and is_narrow and is_plain and nest.is_straight()):
        return None
    spans = {**nest.spans, product.part: whole(lanes, rows.start)}
    first = tile.view(positions(nest.einsum.output, spans))
    block = first.index[1]
    if nest.tile(product.part, lanes) != lanes or not isinstance(block, At):
        return None
    blocks = Cut(block.at, expr(rows.most // lanes))
    return replace(first, index=(first.index[0], blocks, *first.index[2:]))
