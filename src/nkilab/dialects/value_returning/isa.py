"""`neuronxcc.nki.isa`: instructions that return their result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import NkilabError, UseError
from ...isa import REGISTRY
from ...isa.data_movement import DmaCopy
from ...isa.declare import Instruction
from ...isa.elementwise import Memset, TensorCopy, TensorTensor
from ...isa.gpsimd import Iota
from ...isa.reduction import TensorReduce
from ...isa.select import AffineSelect
from ...isa.tensor_engine import NcTranspose
from ...tiles.dtypes import as_dtype
from ...tiles.views import broadcast, reshaped
from ...trace.builder import record
from ...trace.session import Session, ask, current
from ...trace.source import place_of, user_frame
from ..calls import Finish, surface
from ..enums import dge_mode, engine, nc_version, oob_mode
from ..enums import reduce_cmd as reduce_cmd
from ..indexing import allocated_shape
from ..places import placed
from .functions import inside_or_masked
from .grids import Index, Mask, box_of
from .reductions import reduced
from .signatures import LATER, OWN, PLAIN, SPELLINGS
from .subscripts import crop_operands, cropped
from .tensor import Tensor, fresh, settled
from .transfers import copy_row

EXTRA = {"dtype": None, "mask": None}

tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown


def finish(
    session: Session,
    cls: type[Instruction],
    operands: list[Any],
    attributes: tuple[Any, ...],
    values: tuple[Any, ...],
    extras: tuple[Any, ...],
    unknown: dict[str, Any],
) -> Tensor:
    """What a value-returning call does with its arguments."""
    dtype, mask = extras
    for word in unknown:
        ask().notice(f"{cls.name} ignores the keyword {word}")
    operands = [_settled(o) for o in operands]
    shape = None
    try:
        held = None if dtype is None else as_dtype(dtype)
        data = operands[1]
        if cls is TensorReduce and isinstance(data, Tensor):
            return reduced(session, data, attributes, held or data.layout.dtype, mask)
        if cls is TensorTensor:
            operands, shape = _broadcast_inputs(operands, mask)
    except NkilabError as error:
        raise error.located(place_of(user_frame()), cls.name) from None
    if cls.accumulates:
        values = (False,)
    if cls is NcTranspose and held is not None and isinstance(data, Tensor) and held is not data.layout.dtype:
        # hw: the array transposes without a cast; another instruction converts
        moved = fresh(session, cls, operands, attributes, values, mask=mask)
        return fresh(session, TensorCopy, [None, settled(moved)], ("unknown",), (), dtype=held)
    return fresh(session, cls, operands, attributes, values, dtype=held, mask=mask, shape=shape)


def _settled(operand: Any) -> Any:
    if type(operand) is Tensor:
        return operand if operand.pending is None else settled(operand)
    return operand.tensor() if hasattr(operand, "assign_to") else operand


def _broadcast_inputs(operands: list[Any], mask: Any) -> tuple[list[Any], tuple[int, ...] | None]:
    """tensor_tensor of Beta 1 repeats a [P, 1] operand along the free axes of the other."""
    _, a, b = operands
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)) or a.layout.size == b.layout.size:
        return operands, None
    a, b = inside_or_masked(a, mask), inside_or_masked(b, mask)
    shape = a.shape if a.layout.size > b.layout.size else b.shape
    return [None, _widened(a, shape), _widened(b, shape)], shape


def _widened(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    if tensor.shape == shape:
        return tensor
    if tensor.layout.free_size == 1 and tensor.layout.partitions == shape[0]:
        tensor = reshaped(tensor, (shape[0], *(1,) * (len(shape) - 1)), 0)
    return broadcast(tensor, shape)


def _finish_in_place(
    session: Session,
    cls: type[Instruction],
    operands: list[Any],
    attributes: tuple[Any, ...],
    values: tuple[Any, ...],
    extras: tuple[Any, ...],
    unknown: dict[str, Any],
) -> None:
    """What a call does whose caller gives the result."""
    _, mask = extras
    for word in unknown:
        ask().notice(f"{cls.name} ignores the keyword {word}")
    operands = [_settled(o) for o in operands]
    where = None
    dst = operands[cls.result_slot]
    if mask is not None and isinstance(dst, Tensor):
        try:
            box, where = box_of(mask, dst.shape)
        except NkilabError as error:
            raise error.located(place_of(user_frame()), cls.name) from None
        if box is None:
            return
        operands = crop_operands(cls, operands, box)
    record(session, cls, operands, attributes, values, where)


def _over_operand(operand: str) -> Finish:
    """The finish of instructions whose mask is over one of their inputs."""

    def finish_cropped(
        session: Session,
        cls: type[Instruction],
        operands: list[Any],
        attributes: tuple[Any, ...],
        values: tuple[Any, ...],
        extras: tuple[Any, ...],
        unknown: dict[str, Any],
    ) -> Tensor:
        dtype, mask = extras
        slot = list(cls.operands).index(operand)
        given = _settled(operands[slot])
        if mask is not None and isinstance(given, Tensor):
            try:
                operands[slot] = rectangle(given, mask)
            except NkilabError as error:
                raise error.located(place_of(user_frame()), cls.name) from None
        return finish(session, cls, operands, attributes, values, (dtype, None), unknown)

    return finish_cropped


def rectangle(tensor: Tensor, mask: Any) -> Tensor:
    """The part of a tensor that a mask lets through.

    Raises:
        UseError: if that is no rectangle.
    """
    box, rest = box_of(mask, tensor.shape)
    if box is None or rest is not None:
        raise UseError("the mask is not a rectangle of the tile", hint="mask whole rows or columns")
    return cropped(tensor, box)


def _surface(cls: type[Instruction]) -> Callable[..., Any]:
    spelling = SPELLINGS.get(cls.name, PLAIN)
    result = () if spelling.is_in_place else (list(cls.operands)[cls.result_slot],)
    order = spelling.order or [n for n in cls.parameters if n not in (*result, *spelling.absent)]
    ending: Finish = finish
    if spelling.is_in_place:
        ending = _finish_in_place
    elif spelling.mask_over:
        ending = _over_operand(spelling.mask_over)
    return surface(
        cls,
        order,
        ending,
        keyword_only_from=spelling.keyword_only_from,
        extra=EXTRA,
        swallows=True,
        defaults=spelling.defaults,
    )


SURFACES = {name: _surface(cls) for name, cls in REGISTRY.items() if name not in LATER | OWN}


@placed("affine_select")
def affine_select(
    pred: Any, on_true_tile: Any, on_false_value: Any, *, mask: Any = None, dtype: Any = None, **ignored: Any
) -> Tensor:
    """on_true_tile where an affine comparison of index grids holds, on_false_value elsewhere."""
    session = current()
    if not isinstance(pred, Mask) or pred.difference is None:
        raise UseError("pred is no single comparison of index grids", hint="compare two grids: i_p >= i_f")
    tile = _settled(on_true_tile)
    grid = pred.difference
    pattern = tuple(zip(grid.steps[1:], grid.shape[1:], strict=True))
    operator = AffineSelect.attributes["cmp_op"].canonical("cmp_op", pred.comparison)
    held = None if dtype is None else as_dtype(dtype)
    given = {"pattern": pattern, "cmp_op": operator}
    attributes = tuple(given.get(n, a.default) for n, a in AffineSelect.attributes.items())
    numbers = {"channel_multiplier": grid.steps[0], "on_false_value": on_false_value, "offset": grid.start}
    operands = [tile if n == "on_true_tile" else numbers.get(n) for n in AffineSelect.operands]
    values = tuple(numbers[n] for n in AffineSelect.values)
    return fresh(session, AffineSelect, operands, attributes, values, dtype=held, mask=mask)


def dma_copy(
    *,
    dst: Any,
    src: Any,
    mask: Any = None,
    dst_rmw_op: Any = None,
    oob_mode: Any = oob_mode.error,
    dge_mode: Any = dge_mode.unknown,
    **ignored: Any,
) -> None:
    """Copy src to dst with the DMA engines, between HBM and SBUF; see `nkilab explain dma_copy`."""
    session = current()
    for word in ignored:
        ask().notice(f"dma_copy ignores the keyword {word}")
    attributes = DmaCopy.attributes
    try:
        canonical = (
            attributes["dst_rmw_op"].canonical("dst_rmw_op", dst_rmw_op),
            attributes["oob_mode"].canonical("oob_mode", oob_mode),
            attributes["dge_mode"].canonical("dge_mode", dge_mode),
            "unknown",
        )
    except NkilabError as error:
        raise error.located(place_of(user_frame()), "dma_copy") from None
    copy_row(session, _settled(dst), _settled(src), mask, canonical)


@placed("memset")
def memset(
    shape: Any, value: Any, dtype: Any, *, mask: Any = None, engine: Any = engine.unknown, **ignored: Any
) -> Tensor:
    """A tile filled with a constant; its first axis is the partition."""
    session = current()
    extents, held = allocated_shape(shape), as_dtype(dtype)
    canonical = Memset.attributes["engine"].canonical("engine", engine)
    return fresh(session, Memset, [None], (canonical,), (value,), dtype=held, mask=mask, shape=extents)


@placed("iota")
def iota(expr: Any, dtype: Any, *, mask: Any = None, **ignored: Any) -> Tensor:
    """A tile of the values of an index expression; its first axis is the partition."""
    session = current()
    if not isinstance(expr, Index) or len(expr.shape) < 2:
        raise UseError(
            "expr is no index expression of two or more axes",
            hint="give it axes with None: nl.arange(n)[:, None]",
        )
    pattern = tuple(zip(expr.steps[1:], expr.shape[1:], strict=True))
    return fresh(
        session, Iota, [None], (pattern,), (expr.start, expr.steps[0]),
        dtype=as_dtype(dtype), mask=mask, shape=expr.shape,
    )  # fmt: skip


def get_nc_version() -> nc_version:
    """The generation of the chip that is modelled."""
    return nc_version(current().machine.generation)
