"""`dst += x` and its like in Beta 1: matmuls accumulate, anything else writes dst again."""

from __future__ import annotations

from typing import Any

from ...errors import NkilabError
from ...isa.elementwise import TensorScalar, TensorTensor
from ...isa.operators import OPERATORS
from ...tiles.tile import PSUM, Storage
from ...tiles.views import broadcast
from ...trace.builder import record
from ...trace.session import Session, current
from ...trace.source import place_of, user_frame
from ..tile_functions import with_ndim
from .assignment import adopt
from .functions import in_sbuf, on_partitions, tile_of
from .subscripts import inside_bounds
from .tensor import Tensor, refuse_indices, settled


def in_place(name: str, dst: Tensor, value: Any) -> Tensor:
    """`dst <op>= value`: a waiting product of matmuls accumulates, anything else writes dst again."""
    session = current()
    pending = value.pending if isinstance(value, Tensor) else None
    if name == "add" and pending is not None and pending.cls.accumulates and dst.layout.memory == PSUM:
        return _accumulated(session, dst, value)
    try:
        inside_bounds(settled(dst))
        refuse_indices(f"{name} in place", {"dst": dst, "value": value})
        value = tile_of(value)
        if isinstance(value, Tensor):
            value = _as_operand(dst, inside_bounds(value))
    except NkilabError as error:
        raise error.located(place_of(user_frame()), f"{name} in place") from None
    if isinstance(value, Tensor) and value.layout.size == dst.layout.size:
        record(session, TensorTensor, [dst, dst, value], (OPERATORS[name], "unknown"), ())
    else:
        attributes = (OPERATORS[name], False, None, False, "unknown")
        record(session, TensorScalar, [dst, dst, value, None], attributes, ())
    return dst


def _as_operand(dst: Tensor, value: Tensor) -> Tensor:
    """`value` as the second operand: a column [P, 1], or as large as dst and not in PSUM together with it."""
    if value.layout.size != dst.layout.size:
        if value.layout.free_size == 1 and value.layout.partitions == dst.layout.partitions:
            return value
        value = broadcast(with_ndim(on_partitions(value, dst.shape[0]), len(dst.shape)), dst.shape)
    return in_sbuf(value) if dst.layout.memory == PSUM else value


def _accumulated(session: Session, dst: Tensor, product: Tensor) -> Tensor:
    pending = product.pending
    assert pending is not None
    session.pending = None
    product.pending = None
    pending.write(dst, (_adds(pending.target(dst)),))
    adopt(product, dst)
    return dst


def _adds(target: Tensor | None) -> bool | None:
    """Whether a product adds to what a PSUM tile holds; what nobody wrote yet is the beginning of a sum.

    Where blocks rotate through the tile it is the block that counts: each begins a sum of its own.
    None where earlier products cover a part of the target, which the instruction refuses.
    """
    if target is not None and _is_of_another_block(target.storage):
        return False
    if target is None or target.storage.initialised.of(target) != "none":
        return True
    return {"all": True, "part": None, "none": False}[target.storage.accumulated.of(target)]


def _is_of_another_block(storage: Storage) -> bool:
    """Whether a tile that blocks take in turn holds another one than the one that was just asked for."""
    marks = current().program.marks
    if storage.number not in marks.rotating:
        return False
    uses = (use for use in reversed(marks.block_uses) if use.storage == storage.number)
    asked = next(uses, None)
    written = next((use for use in uses if use.is_given), None)
    return asked is not None and written is not None and written.block != asked.block
