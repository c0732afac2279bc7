"""Assignment to tiles in Beta 1: a waiting result moves to its destination, anything else is copied."""

from __future__ import annotations

from math import prod
from typing import Any

from ...errors import KernelError, NkilabError, RuleError, UseError
from ...isa.data_movement import DmaCopy
from ...isa.declare import partition_step
from ...isa.elementwise import Memset, TensorCopy, TensorScalar, TensorTensor
from ...isa.operators import OPERATORS
from ...tiles.dtypes import NUMBERS
from ...tiles.tile import HBM, PSUM, SBUF, Storage
from ...tiles.views import broadcast, reshaped
from ...trace.builder import check_form, record
from ...trace.session import Session, current
from ...trace.source import place_of, user_frame
from ..tile_functions import with_ndim
from .dynamic import ON_CHIP
from .functions import filled, in_sbuf, on_partitions, tile_of
from .subscripts import cropped, inside_bounds
from .tensor import Pending, Tensor, refuse_indices, same_place, settled
from .transfers import PLAIN_DMA


def set_item(tensor: Tensor, key: Any, value: Any) -> None:
    """`tensor[key] = value`."""
    try:
        dst = tensor if key is Ellipsis and tensor.plain else tensor[key]
        if type(value) is Tensor and value.pending is not None and value.layout is dst.plain:
            # a destination just like the result was looked at when the call was made
            pending = value.pending
            pending.session.pending = value.pending = None
            pending.write(dst, pending.values)
            pending.tensor = value
            value.storage, value.offset, value.plain = dst.storage, dst.offset, dst.plain
        elif type(value) is not Tensor:
            assign(dst, value)
        elif value.pending is not None or dst.layout.memory == HBM or not same_place(dst, value):
            _assign_tensor(current(), dst, value)
    except NkilabError as error:
        raise error.located(place_of(user_frame()), "assignment") from None


def assign(dst: Tensor, value: Any) -> None:
    """`dst[...] = value`: move a waiting result there, else copy or fill.

    Raises:
        KernelError: if the value does not fit.
    """
    session = current()
    if isinstance(value, Tensor):
        _assign_tensor(session, dst, value)
    elif hasattr(value, "assign_to"):
        value.assign_to(dst)
    elif isinstance(value, NUMBERS):
        if dst.layout.memory == HBM:
            raise UseError("an HBM tensor is assigned a number", hint="store a tile with nl.store")
        _fill(session, inside_bounds(dst), value)
    else:
        raise UseError(f"a tile is assigned a {type(value).__name__}; it takes tiles and numbers")


def _fill(session: Session, dst: Tensor, value: Any) -> None:
    """Write a number; where no compute engine may start, through a tile of its own and a transfer."""
    known = dst.layout
    if known.start_partition % partition_step(known.partitions) == 0:
        record(session, Memset, [dst], ("unknown",), (value,))
        return
    record(session, DmaCopy, [dst, filled(session, value, known.dtype, dst.shape)], PLAIN_DMA, ())


def _assign_tensor(session: Session, dst: Tensor, value: Tensor) -> None:
    pending = value.pending if value.pending is session.pending else None
    # a destination just like the result was looked at when the call was made
    if pending is not None and dst.layout is value.layout and dst.overhang is None:
        _move(pending, dst, value)
        return
    _check_sides(dst, value)
    if pending is not None and _moves_to(pending, dst, value):
        _move(pending, _shaped_like(dst, value.shape), value)
        return
    settled(value)
    dst, value = inside_bounds(dst), inside_bounds(value)
    if value.layout.size != dst.layout.size:
        value = broadcast(value, dst.shape)
    off = any(t.layout.start_partition % partition_step(t.layout.partitions) for t in (dst, value))
    in_sbuf = dst.layout.memory == SBUF == value.layout.memory
    if HBM in (dst.layout.memory, value.layout.memory) or (off and in_sbuf):
        record(session, DmaCopy, [dst, value], PLAIN_DMA, ())
    else:
        record(session, TensorCopy, [dst, value], ("unknown",), ())


def _check_sides(dst: Tensor, value: Tensor) -> None:
    """Refuse destinations that the value does not fit, and addresses that the run alone knows.

    Raises:
        KernelError: which.
    """
    for side in (dst, value):
        if side.indices and side.layout.is_on_chip:
            raise UseError(
                f"{side.describe()} is copied by an assignment",
                hint="copy it with nisa.tensor_copy_dynamic_src or nisa.tensor_copy_dynamic_dst",
                key=ON_CHIP,
            )
    if dst.layout.size < value.layout.size:
        raise RuleError(
            f"the destination {list(dst.shape)} is smaller than the value {list(value.shape)}",
            key="err_store_dst_shape_smaller_than_other_shape",
        )
    to, value_layout = dst.layout, value.layout
    if (
        to.size == value_layout.size
        and to.partitions != value_layout.partitions
        and to.is_on_chip
        and value_layout.is_on_chip
    ):
        raise RuleError(
            f"the value {list(value.shape)} has {value_layout.partitions} partitions; the destination "
            f"{list(dst.shape)} has {to.partitions}",
            key="err_num_partition_mismatch",
        )


def _move(pending: Pending, target: Tensor, value: Tensor) -> None:
    """Let a waiting result be written to a place of the kernel's; `value` is a view of it from then on."""
    pending.session.pending = value.pending = None
    pending.write(target, pending.values)
    pending.tensor = target
    adopt(value, target)


def _moves_to(pending: Pending, dst: Tensor, value: Tensor) -> bool:
    """Whether the instruction of a waiting result can write `dst` itself."""
    if dst.layout.size != value.layout.size or dst.layout.memory == HBM:
        return False
    if pending.is_void:
        return True
    operands = list(pending.operands)
    target = _shaped_like(dst, value.shape)
    operands[pending.slot] = inside_bounds(target) if pending.box is None else cropped(target, pending.box)
    try:
        check_form(pending.session, pending.cls, operands, pending.attributes)
    except KernelError:
        return False
    return True


def _shaped_like(dst: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`dst` under the shape of a value of as many elements, where its strides and partitions allow one."""
    axis = dst.layout.partition_axis
    if dst.shape == shape or axis is None or dst.overhang is not None:
        return dst
    if dst.shape[axis] != shape[0] or prod(dst.shape[:axis]) != 1:
        return dst
    try:
        return reshaped(dst, shape, 0)
    except RuleError:
        return dst


def adopt(value: Tensor, place: Tensor) -> None:
    """Make the tensor that stood for a waiting result a view of where it went."""
    value.storage, value.offset, value.layout = place.storage, place.offset, place.layout
    value.plain = place.plain


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
