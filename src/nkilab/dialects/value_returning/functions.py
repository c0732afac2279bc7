"""`nki.language` functions over tiles, each lowered to declared instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ...errors import LimitError, NkilabError, RuleError, UseError
from ...isa.data_movement import DmaCopy
from ...isa.declare import Instruction
from ...isa.elementwise import Memset, Reciprocal, TensorCopy, TensorScalar
from ...isa.gpsimd import Iota
from ...isa.operators import OPERATORS, Operator, operator_named
from ...isa.tensor_engine import NcTranspose
from ...tiles.dtypes import BOOL, FLOAT32, INT32, NUMBERS, DType, as_dtype, promoted, weak_dtype
from ...tiles.tile import HBM, PSUM, SBUF, elements_text
from ...tiles.views import broadcast, reshaped
from ...trace.builder import NothingToWriteError, no_tensor
from ...trace.session import Session, current
from ...trace.source import place_of, user_frame
from .. import tile_functions as common
from ..enums import oob_mode
from ..indexing import as_shape
from ..places import placed
from .creation import ndarray, psum, sbuf
from .direct_allocation import BIAS_KEY, TRANSPOSE_KEY, is_direct, refuse_blocks, require_automatic
from .dynamic import TileIndex
from .grids import Index, box_of
from .reductions_over_loops import LoopReduction
from .subscripts import cropped, inside_bounds
from .tensor import Tensor, checked, fresh, refuse_indices, settled, shape_given
from .transfers import PLAIN_DMA, copy_row, dma_attributes

F = TypeVar("F", bound=Callable[..., Any])
COMPARISONS = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal",
               "logical_and", "logical_or", "logical_xor", "logical_not")  # fmt: skip
TRANSFER_LIMIT = "number of partition in src{} of 'load' exceed architecture limitation of {}."


class _Results:
    """How Beta 1 gets a result: it waits for the place it is assigned to."""

    def make(
        self, cls: type[Instruction], operands: list[Any], attributes: tuple[Any, ...],
        values: tuple[Any, ...] = (), *, dtype: DType | None = None, mask: Any = None, memory: str = "",
        shape: tuple[int, ...] | None = None,
    ) -> Tensor:  # fmt: skip
        return fresh(
            current(), cls, operands, attributes, values, dtype=dtype, mask=mask, memory=memory, shape=shape
        )

    def allocate(self, shape: tuple[int, ...], dtype: DType, memory: str) -> Tensor:
        return ndarray(shape, dtype, buffer=sbuf if memory == SBUF else psum)

    def settled(self, tile: Tensor) -> Tensor:
        return settled(tile)


RESULTS = _Results()


# what NumPy makes of plain arithmetic on the host
_HOST_NUMBERS = (np.float64, np.int64, np.uint64)


def tile_of(x: Any) -> Any:
    """An argument as a settled tensor or a number.

    Raises:
        UseError: if it is neither.
    """
    if isinstance(x, Tensor):
        return settled(x)
    if isinstance(x, LoopReduction):
        return x.tensor()
    if isinstance(x, _HOST_NUMBERS):
        # counts as a Python number
        return x.item()
    if isinstance(x, NUMBERS):
        return x
    if isinstance(x, Index):
        return settled(index_tile(x, INT32))
    if isinstance(x, TileIndex):
        return settled(binary("add", x.tile, x.grid))
    refuse_blocks(x)
    raise no_tensor("an argument", x, "it must be a tile or a number")


def index_tile(expr: Index, dtype: DType, mask: Any = None) -> Tensor:
    """A tile of the values of an index grid; its first axis is the partition.

    Raises:
        UseError: if the grid has less than two axes.
    """
    if len(expr.shape) < 2:
        raise UseError(
            "expr is no index expression of two or more axes",
            hint="give it axes with None: nl.arange(n)[:, None]",
        )
    pattern = tuple(zip(expr.steps[1:], expr.shape[1:], strict=True))
    start = (expr.start, expr.steps[0])
    return fresh(current(), Iota, [None], (pattern,), start, dtype=dtype, mask=mask, shape=expr.shape)


def _need_partitions(x: Any, y: Any) -> None:
    """Refuse a row of indices beside a tile of several partitions, over which nothing spreads it."""
    for grid, tile in ((x, y), (y, x)):
        is_row = isinstance(grid, Index) and grid.shape[0] == 1
        if is_row and isinstance(tile, Tensor) and tile.layout.partitions > 1:
            raise RuleError(
                f"unexpected partition broadcast: the indices have one partition, the tile has "
                f"{tile.layout.partitions}",
                hint="use nl.mgrid, or nl.broadcast_to(indices, shape=...)",
            )


def result_dtype(value: Any, default: DType) -> DType:
    """The type that dtype= names, or the default where it is left out."""
    return default if value is None else as_dtype(value)


def binary(name: str, x: Any, y: Any, dtype: Any = None, mask: Any = None) -> Tensor:
    """`x <op> y` over tiles and numbers that broadcast; the type promotes as Beta 1 documents."""
    op = OPERATORS[name]
    try:
        _need_partitions(x, y)
        x, y = tile_of(x), tile_of(y)
        element_type = result_dtype(dtype, BOOL if name in COMPARISONS else _promoted(op, x, y))
        if not isinstance(x, Tensor) and not isinstance(y, Tensor):
            raise UseError("both arguments are numbers; one must be a tile")
        if not isinstance(y, Tensor):
            return common.with_number(RESULTS, op, x, y, False, element_type, mask)
        if not isinstance(x, Tensor):
            return common.with_number(RESULTS, op, y, x, True, element_type, mask)
        x, y = inside_or_masked(x, mask), inside_or_masked(y, mask)
        return common.two_tiles(RESULTS, op, x, y, element_type, mask)
    except NkilabError as error:
        facts = [f"{slot} = {t.describe()}" for slot, t in (("x", x), ("y", y)) if isinstance(t, Tensor)]
        raise error.located(place_of(user_frame()), name, facts) from None


def _promoted(op: Operator, x: Any, y: Any) -> DType:
    tiles = [t for t in (x, y) if isinstance(t, Tensor)]
    result = promoted(*(t.layout.dtype if isinstance(t, Tensor) else weak_dtype(t) for t in (x, y)))
    if op.name == "divide" and result.is_integer:
        # as Python's / and NumPy's; not documented, but a published kernel takes the floor of a quotient
        return FLOAT32
    if op.is_bitvec and result.is_float and len(tiles) == 1 and tiles[0].layout.dtype.is_integer:
        # uint32 and a Python integer promote to float32, in which no bit pattern is left
        return tiles[0].layout.dtype
    return result


def inside_or_masked(tile: Tensor, mask: Any) -> Tensor:
    """A tile whose grids lie inside, or that a mask will crop."""
    return tile if mask is not None else inside_bounds(tile)


def on_partitions(tile: Tensor, partitions: int) -> Tensor:
    """`tile` repeated to so many partitions if it has one."""
    return common.on_partitions(RESULTS, tile, partitions)


def unary(name: str, x: Any, dtype: Any = None, mask: Any = None) -> Tensor:
    """An activation function over a tile, on ScalarE."""
    x = inside_or_masked(a_tile(x), mask)
    element_type = result_dtype(dtype, x.layout.dtype)
    require_automatic(current(), "it becomes an activation without a bias", BIAS_KEY)
    return common.unary(RESULTS, name, x, element_type, mask)


def a_tile(x: Any) -> Tensor:
    """An argument as a settled tile.

    Raises:
        UseError: if it is a number or something else.
    """
    tile = tile_of(x)
    if not isinstance(tile, Tensor):
        raise UseError(f"the argument is the number {tile}; it must be a tile")
    return tile


def whole_tile(x: Any) -> Tensor:
    """An argument as a settled tile, none of which lies outside of its tensor.

    Raises:
        UseError: if it is something else, or reaches outside.
    """
    return inside_bounds(a_tile(x))


def negative(x: Any, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """-x, element by element."""
    x = a_tile(x)
    return binary("multiply", x, -1, dtype or x.layout.dtype, mask)


def _unary_operator(name: str, x: Any, dtype: Any, mask: Any, default: DType | None) -> Tensor:
    x = inside_or_masked(a_tile(x), mask)
    attributes = (OPERATORS[name], False, None, False, "unknown")
    kind = result_dtype(dtype, default or x.layout.dtype)
    return fresh(current(), TensorScalar, [None, x, None, None], attributes, (), dtype=kind, mask=mask)


def invert(x: Any, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """~x, bit by bit."""
    return _unary_operator("invert", x, dtype, mask, None)


def logical_not(x: Any, *, dtype: Any = bool, mask: Any = None) -> Tensor:
    """1 where x is 0, else 0."""
    return _unary_operator("logical_not", x, dtype, mask, BOOL)


def reciprocal(x: Any, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """1 / x on VectorE."""
    x = inside_or_masked(a_tile(x), mask)
    element_type = result_dtype(dtype, x.layout.dtype)
    return fresh(current(), Reciprocal, [None, x], (), (), dtype=element_type, mask=mask)


def load(src: Any, *, mask: Any = None, dtype: Any = None, mode: Any = oob_mode.error) -> Tensor:
    """A new SBUF tile with the elements of an HBM tensor; a tensor of one axis loads as [P, 1].

    Args:
        src: the tensor; its rows may be chosen by a tile of indices.
        mask: where the tile is written.
        dtype: of the tile.
        mode: what an index out of bounds does: oob_mode.error, or skip to leave its row unwritten.

    Raises:
        LimitError: if the first axis has more than 128 elements.
        RuleError: if src is not in HBM.
    """
    session = current()
    try:
        src = inside_or_masked(hbm_side("src", "load", src), mask)
        if len(src.shape) == 1:
            src = _as_column(src)
        most = session.machine.limit("partitions")
        if src.shape[0] > most:
            raise LimitError(
                TRANSFER_LIMIT.format(list(src.shape), most),
                hint=f"load tiles of {most} rows",
                key="err_num_partition_exceed_arch_limit",
            )
        element_type = result_dtype(dtype, src.layout.dtype)
        attributes = dma_attributes(oob_mode=mode)
    except NkilabError as error:
        facts = [f"src = {src.describe()}"] if isinstance(src, Tensor) else []
        raise error.located(place_of(user_frame()), "load", facts) from None
    return fresh(
        session, DmaCopy, [None, src], attributes, (), mask=mask, memory=SBUF, dtype=element_type,
        shape=src.shape,
    )  # fmt: skip


def _as_column(src: Tensor) -> Tensor:
    if src.overhang is None:
        return reshaped(src, (*src.shape, 1), None)
    raise UseError("a masked load of one axis", hint="index the tensor with two axes: t[i_p, 0]")


def filled(session: Session, value: Any, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    """A new SBUF tile filled with a number."""
    return settled(
        fresh(session, Memset, [None], ("unknown",), (value,), dtype=dtype, shape=shape, memory=SBUF)
    )


def hbm_side(name: str, called: str, tensor: Any) -> Tensor:
    """The operand of a transfer that lies in HBM.

    Raises:
        UseError: if it is no tensor.
        RuleError: if it lies on chip.
    """
    if not isinstance(tensor, Tensor):
        raise no_tensor(name, tensor, "it must be a tensor in hbm")
    settled(tensor)
    if tensor.layout.memory != HBM:
        raise RuleError(
            f"{name} is in {tensor.layout.memory}; {called} needs it in hbm", key="err_unsupported_memory",
            hint="use nl.copy or nisa.tensor_copy within the chip",
        )  # fmt: skip
    return tensor


def store(dst: Any, value: Any, *, mask: Any = None, mode: Any = oob_mode.error) -> None:
    """Write a tile to an HBM tensor; a tile in PSUM passes through SBUF, a number fills.

    Args:
        dst: the tensor; its rows may be chosen by a tile of indices.
        value: a tile or number.
        mask: where to write.
        mode: what an index out of bounds does: oob_mode.error, or skip to drop its row.
    """
    session, dst = current(), hbm_side("dst", "store", dst)
    value = tile_of(value)
    if not isinstance(value, Tensor):
        value = filled(session, value, dst.layout.dtype, common.axes_of(dst.shape))
    if value.layout.memory == HBM:
        raise RuleError("value is in hbm; store needs it in sbuf or psum", key="err_unsupported_memory")
    if value.layout.size > dst.layout.size:
        raise RuleError(
            f"the destination {list(dst.shape)} is smaller than the value {list(value.shape)}",
            key="err_store_dst_shape_smaller_than_other_shape",
        )
    if value.layout.memory == PSUM:
        value = settled(fresh(session, TensorCopy, [None, value], ("unknown",), (), memory=SBUF))
    if value.layout.size < dst.layout.size:
        value = checked("store", lambda: _spread(inside_or_masked(value, mask), dst.shape), value)
    try:
        copy_row(session, dst, value, mask, dma_attributes(oob_mode=mode))
    except NothingToWriteError as error:
        raise common.of_store(error) from None


def _spread(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A value repeated over a larger destination."""
    try:
        return broadcast(value, shape)
    except RuleError as error:
        part = ", ".join(f"0:{n}" for n in value.shape)
        if len(value.shape) == len(shape) and all(n <= m for n, m in zip(value.shape, shape, strict=True)):
            error.hint = f"store to a part of that shape: dst[{part}]"
        raise


def copy(src: Any, *, mask: Any = None, dtype: Any = None) -> Tensor:
    """A copy of a tile in a new SBUF tile."""
    src = inside_or_masked(a_tile(src), mask)
    kind = result_dtype(dtype, src.layout.dtype)
    return fresh(current(), TensorCopy, [None, src], ("unknown",), (), mask=mask, memory=SBUF, dtype=kind)


def load_transpose2d(src: Any, *, mask: Any = None, dtype: Any = None) -> Tensor:
    """A new SBUF tile [F, P] with the transpose of an HBM tensor [P, F]."""
    session = current()
    src = inside_or_masked(hbm_side("src", "load_transpose2d", src), mask)
    refuse_indices("load_transpose2d", {"src": src})
    if len(src.shape) != 2:
        raise RuleError(
            f"src is {len(src.shape)}-dimensional {list(src.shape)}; load_transpose2d takes two axes",
            key="err_exceed_max_supported_dimension",
        )
    transposed = common.transposed(_masked_to_a_rectangle(src, mask))
    most = session.machine.limit("partitions")
    if transposed.shape[0] > most:
        raise LimitError(
            f"src has {transposed.shape[0]} columns, which become partitions; "
            f"{session.machine.name} has {most}",
            key="err_num_partition_exceed_arch_limit",
        )
    return fresh(
        session, DmaCopy, [None, transposed], PLAIN_DMA, (),
        memory=SBUF, dtype=result_dtype(dtype, src.layout.dtype), shape=transposed.shape,
    )  # fmt: skip


def _masked_to_a_rectangle(src: Tensor, mask: Any) -> Tensor:
    if mask is None:
        return src
    box, rest = box_of(mask, src.shape)
    if box is None or rest is not None:
        raise UseError("the mask of load_transpose2d is not a rectangle")
    return cropped(src, box)


def transpose(x: Any, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """The transpose of a tile of two axes, up to [128, 128]."""
    session = current()
    x = a_tile(x)
    require_automatic(session, "TensorE transposes x", TRANSPOSE_KEY)
    common.need_two_axes(x)
    x, element_type = inside_or_masked(x, mask), result_dtype(dtype, x.layout.dtype)
    moved = fresh(session, NcTranspose, [None, x], ("unknown",), (), mask=mask)
    if element_type is x.layout.dtype:
        return moved
    return fresh(session, TensorCopy, [None, settled(moved)], ("unknown",), (), dtype=element_type)


def matmul(x: Any, y: Any, *, transpose_x: bool = False, mask: Any = None) -> Tensor:
    """x @ y in PSUM, float32; x is [M, K], which TensorE transposes, or [K, M] with transpose_x."""
    x, y = a_tile(x), a_tile(y)
    if not transpose_x:
        require_automatic(current(), "TensorE transposes x", TRANSPOSE_KEY)
    return common.matmul(RESULTS, x, y, transpose_x, mask)


def in_sbuf(tile: Tensor) -> Tensor:
    """A tile, copied to SBUF if it lies in PSUM."""
    return settled(common.in_sbuf(RESULTS, tile))


def broadcast_to(src: Any, *, shape: Any) -> Tensor:
    """A tile repeated to a larger shape; one partition is repeated by TensorE, free axes by their stride."""
    src, target = whole_tile(src), as_shape(shape)
    if src.layout.is_on_chip and src.layout.partitions == 1 and target[0] > 1:
        return common.across_partitions(RESULTS, broadcast(src, (1, *target[1:])), target[0])
    return broadcast(src, target)


@placed("broadcast_to", is_method=True)
def broadcast_method(self: Tensor, *extents: Any, shape: Any = None) -> Tensor:
    """A view repeated along axes of one, as NumPy broadcasts; one partition is repeated by TensorE.

    In a kernel that gives addresses, where there is no tile for the result, it stays a view.
    """
    new_shape = shape_given(extents, shape)
    if not is_direct(current()):
        return broadcast_to(self, shape=new_shape)
    return broadcast(inside_bounds(settled(self)), as_shape(new_shape))


def loop_reduce(x: Any, op: Any, loop_indices: Any, *, dtype: Any = None, mask: Any = None) -> LoopReduction:
    """Reduce a tile over the iterations of loops: the tile it is assigned to becomes op(itself, x).

    Raises:
        RuleError: if op may not reduce.
    """
    tile = inside_or_masked(a_tile(x), mask)
    operator = operator_named(op)
    if not operator.reduces:
        raise RuleError(f"op is {operator}; it may not reduce")
    return LoopReduction(tile, operator, loop_indices, None if dtype is None else as_dtype(dtype), mask)


def expand_dims(data: Any, axis: Any) -> Tensor:
    """A view with an axis of one at `axis`."""
    if not isinstance(data, Tensor):
        raise no_tensor("data", data, "it must be a tensor")
    return data.expand_dims(axis)


def device_print(prefix: str, x: Any, *, mask: Any = None) -> None:
    """Print a tile to standard output, after `prefix`, or the part of it that a mask lets through."""
    tile = a_tile(x)
    if mask is not None:
        box, rest = box_of(mask, tile.shape)
        if rest is not None:
            raise UseError("the mask of device_print is not a rectangle of the tile")
        if box is None:
            return
        tile = cropped(tile, box)
    if current().has_data:
        print(f"{prefix}{elements_text(inside_bounds(tile))}")
