"""`nki.language` functions over tiles (0.3 and later): a new tile each, written by declared instructions.

Operands of arithmetic have one shape; a result has the type of the first tile where nothing else is said and
lies in SBUF, of `transpose` and `matmul` in PSUM.

Source: stubs of nki.language 0.3 to 0.6; release notes of NKI 0.4, "NKI Language (experimental)".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import LimitError, RuleError, UseError
from ...isa.data_movement import DmaCopy
from ...isa.declare import NUMBER, Instruction
from ...isa.elementwise import Reciprocal, ScalarTensorTensor, TensorCopy, TensorScalar
from ...isa.gather import NcNGather
from ...isa.operators import OPERATORS
from ...isa.tensor_engine import NcTranspose
from ...tiles.dtypes import FLOAT32, INT32, DType, as_dtype
from ...tiles.tile import HBM, PSUM, SBUF, whole_layout
from ...tiles.views import broadcast
from ...trace.builder import NothingToWriteError, no_tensor, record
from ...trace.session import current
from .. import tile_functions as common
from ..history import order
from ..indexing import as_shape, whole_number
from ..tile_functions import plain, result_layout
from ..versions import version_of
from . import view_methods
from .tensor import Tensor

GUIDE = "NKI 0.4 release notes, NKI Language (experimental)"
_TWO_PI = 2 * np.pi


class _Results:
    """How nki gets a result: a tile of its own, made before the instruction that writes it."""

    def make(
        self, cls: type[Instruction], operands: list[Any], attributes: tuple[Any, ...],
        values: tuple[Any, ...] = (), *, dtype: DType | None = None, mask: Any = None, memory: str = "",
        shape: tuple[int, ...] | None = None,
    ) -> Tensor:  # fmt: skip
        assert mask is None, "nki has no masks"
        layouts = [o.layout if isinstance(o, Tensor) else None if o is None else NUMBER for o in operands]
        keyed = current().keyed
        key = (cls, dtype, memory, shape, *layouts, *attributes)
        known = keyed.get(key)
        if known is None:
            known = keyed[key] = result_layout(cls, layouts, attributes, dtype, memory, shape)
        dst = self.allocate(known.shape, known.dtype, known.memory)
        slot = cls.result_slot
        record(current(), cls, [*operands[:slot], dst, *operands[slot + 1 :]], attributes, values)
        return dst

    def allocate(self, shape: tuple[int, ...], dtype: DType, memory: str) -> Tensor:
        storage = current().new_storage(shape, dtype, memory, "tile", "")
        return Tensor(storage, 0, whole_layout(storage))

    def settled(self, tile: Tensor) -> Tensor:
        return tile


RESULTS = _Results()


def a_tile(x: Any, name: str = "x") -> Tensor:
    """An argument as a tile on chip.

    Raises:
        UseError: if it is no tensor.
        RuleError: if it lies in HBM.
    """
    if not isinstance(x, Tensor):
        raise no_tensor(name, x, "it must be a tile")
    if not x.layout.is_on_chip:
        raise RuleError(
            f"{name} is in hbm; it must be in sbuf or psum", hint="load it to sbuf first, with nl.load",
            key="err_unsupported_memory",
        )  # fmt: skip
    return x


def _operand(x: Any, name: str) -> Any:
    """An argument as a tile or a number."""
    if isinstance(x, np.generic):
        return x.item()
    return x if isinstance(x, int | float) else a_tile(x, name)


def _result_dtype(dtype: Any, x: Tensor) -> DType:
    """The type that dtype= names, or that of a tile where it is left out."""
    return x.layout.dtype if dtype is None else as_dtype(dtype)


def _same_shape(name: str, **tiles: Tensor) -> None:
    """Refuse tiles of different shapes."""
    if len({t.shape for t in tiles.values()}) > 1:
        shapes = " and ".join(f"{word} is {list(t.shape)}" for word, t in tiles.items())
        raise RuleError(
            f"{shapes}; nl.{name} takes tiles of one shape",
            hint="repeat the smaller one with nl.broadcast_to, or use nisa.tensor_scalar for a column [P, 1]",
            source=GUIDE,
        )


# Builds of 0.5 give a column to tensor_scalar (two public kernels, one of them run on trn2); notes of 0.3
# and 0.4 say that nothing is repeated, and a log of 0.6 that tensor_tensor gets the column.
_COLUMNS_IN = "0.5"


def binary(name: str, x: Any, y: Any, dtype: Any) -> Tensor:
    """`x <op> y` over two tiles of one shape, a tile and a number, or a tile and a column in NKI 0.5."""
    op = OPERATORS[name]
    x, y = _operand(x, "x"), _operand(y, "y")
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        is_repeated = x.shape[0] == y.shape[0] and 1 in (x.layout.free_size, y.layout.free_size)
        if not (is_repeated and current().version == _COLUMNS_IN):
            _same_shape(name, x=x, y=y)
        result: Tensor = common.two_tiles(RESULTS, op, x, y, _result_dtype(dtype, x))
    elif isinstance(x, Tensor):
        result = common.with_number(RESULTS, op, x, y, False, _result_dtype(dtype, x))
    elif isinstance(y, Tensor):
        result = common.with_number(RESULTS, op, y, x, True, _result_dtype(dtype, y))
    else:
        raise UseError("both arguments are numbers; one must be a tile")
    return result


def simulated(name: str, x: Any, y: Any, dtype: Any) -> Tensor:
    """`x <op> y` where no engine has the operator: it runs here, with a warning per line."""
    result = binary(name, x, y, dtype)
    current().warn(
        f"nl.{name} runs in simulation only: no engine divides; multiply by nl.reciprocal(y)", f"nl.{name}"
    )
    return result


def power(x: Any, y: Any, dtype: Any = None) -> Tensor:
    """x to the power of y, two tiles of one shape, on GpSimdE."""
    x, y = _operand(x, "x"), _operand(y, "y")
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
        raise RuleError(
            "an argument is a number; nl.power takes two tiles",
            hint="use nisa.tensor_scalar(op0=nl.power) for a number", source=GUIDE,
        )  # fmt: skip
    return binary("power", x, y, dtype)


def unary(name: str, x: Any, dtype: Any) -> Tensor:
    """An activation function of a tile, on ScalarE."""
    tile = a_tile(x)
    return common.unary(RESULTS, name, tile, _result_dtype(dtype, tile))


def of_vector_engine(name: str, x: Any, dtype: Any, engine: str = "unknown") -> Tensor:
    """A unary operator of a tile, as tensor_scalar."""
    tile = a_tile(x)
    attributes = plain(TensorScalar, op0=OPERATORS[name], engine=engine)
    return RESULTS.make(
        TensorScalar, [None, tile, None, None], attributes, dtype=_result_dtype(dtype, tile), memory=SBUF
    )


def rsqrt(x: Any, dtype: Any = None) -> Tensor:
    """1 / sqrt(x), element by element, on GpSimdE, which does not reach PSUM; on ScalarE up to NKI 0.4."""
    version = version_of(current())
    if version and order(version) < order("0.5"):
        return unary("rsqrt", x, dtype)
    return of_vector_engine("rsqrt", x, dtype, "gpsimd")


def reciprocal(x: Any, dtype: Any = None) -> Tensor:
    """1 / x, element by element, on VectorE."""
    tile = a_tile(x)
    return RESULTS.make(
        Reciprocal, [None, tile], plain(Reciprocal), dtype=_result_dtype(dtype, tile), memory=SBUF
    )


def negative(x: Any, dtype: Any = None) -> Tensor:
    """-x, element by element."""
    tile = a_tile(x)
    return common.with_number(RESULTS, OPERATORS["multiply"], tile, -1, False, _result_dtype(dtype, tile))


def sin(x: Any, dtype: Any = None) -> Tensor:
    """The sine of any x: the argument less its whole periods, which ScalarE's sin takes.

    float32 leaves an error of about |x| * 2**-23 in the argument.
    """
    tile = a_tile(x)
    multiply, add = OPERATORS["multiply"], OPERATORS["add"]
    # the cast to integers rounds to the nearest
    periods = common.with_number(RESULTS, multiply, tile, 1 / _TWO_PI, False, INT32)
    attributes = plain(ScalarTensorTensor, op0=multiply, op1=add)
    rest = RESULTS.make(
        ScalarTensorTensor, [None, periods, -_TWO_PI, tile], attributes, dtype=FLOAT32, memory=SBUF
    )
    bounded = plain(TensorScalar, op0=OPERATORS["minimum"], op1=OPERATORS["maximum"])
    limit = float(np.float32(np.pi))
    rest = RESULTS.make(TensorScalar, [None, rest, limit, -limit], bounded, dtype=FLOAT32, memory=SBUF)
    return common.unary(RESULTS, "sin", rest, _result_dtype(dtype, tile))


def copy(x: Any, dtype: Any = None) -> Tensor:
    """A copy of a tile in SBUF, on VectorE: bit by bit where the type stays."""
    tile = a_tile(x)
    return common.cast(RESULTS, tile, _result_dtype(dtype, tile))


def reduction(operator: str, x: Any, axis: Any, dtype: Any, keepdims: bool) -> Tensor:
    """A reduction of the last free axes on VectorE."""
    tile = a_tile(x)
    return common.reduced(RESULTS, operator, tile, axis, _result_dtype(dtype, tile), bool(keepdims))


def mean(x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The mean over the last free axes, with the sum in float32."""
    tile = a_tile(x)
    return common.mean(RESULTS, tile, axis, _result_dtype(dtype, tile), bool(keepdims))


def var(x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The variance over the last free axes, which stay as axes of one whatever `keepdims` says."""
    tile = a_tile(x)
    return common.variance(RESULTS, tile, axis, _result_dtype(dtype, tile))


def all_of(x: Any, axis: Any, dtype: Any = None) -> Tensor:
    """1 where all elements over the last free axes are not 0."""
    return reduction("logical_and", x, axis, dtype, False)


def _totals(operator: str, axis: Any) -> Callable[[Any], Any]:
    return lambda tile: common.reduced(RESULTS, operator, tile, axis, FLOAT32, True)


def softmax(x: Any, axis: Any = -1, dtype: Any = None) -> Tensor:
    """exp(x - max) / sum of exp(x - max) over the last free axes, in float32 up to the last rounding."""
    tile = a_tile(x)
    largest = _totals("maximum", axis)(tile)
    return common.softmax(RESULTS, tile, largest, _totals("add", axis), _result_dtype(dtype, tile))


def rms_norm(
    x: Any, w: Any, axis: Any, n: Any, epsilon: float = 1e-6, dtype: Any = None, compute_dtype: Any = None
) -> Tensor:
    """x / sqrt(sum of squares over the last free axes / n + epsilon) * w; computed in float32."""
    tile, weights = a_tile(x), a_tile(w, "w")
    common.notice_precision("rms_norm", compute_dtype)
    element_type, total = _result_dtype(dtype, tile), _totals("add", axis)
    return common.rms_norm(RESULTS, tile, weights, total, n, epsilon, element_type)


def where(condition: Any, x: Any, y: Any, dtype: Any = None) -> Tensor:
    """Elements of x where condition is not 0, of y elsewhere; three tiles of one shape."""
    predicate, chosen, other = a_tile(condition, "condition"), a_tile(x), a_tile(y, "y")
    _same_shape("where", condition=predicate, x=chosen, y=other)
    return common.where(RESULTS, predicate, chosen, other, _result_dtype(dtype, chosen))


def dropout(x: Any, rate: Any, dtype: Any = None) -> Tensor:
    """x with elements set to 0 with probability `rate`, a number or a column [P, 1]."""
    tile = a_tile(x)
    return common.dropout(RESULTS, tile, _operand(rate, "rate"), _result_dtype(dtype, tile))


def load(src: Any, dtype: Any = None) -> Tensor:
    """A new SBUF tile with the elements of an HBM tensor; a tensor of one axis loads as [P, 1]."""
    src = _in_hbm("src", "load", src)
    shape = common.axes_of(src.shape)
    _fits(shape[0], f"the first axis of src has {shape[0]} elements", "load tiles of {} rows")
    return RESULTS.make(
        DmaCopy, [None, src], plain(DmaCopy), memory=SBUF, dtype=_result_dtype(dtype, src), shape=shape
    )


def _fits(partitions: int, sentence: str, hint: str) -> None:
    machine = current().machine
    most = machine.limit("partitions")
    if partitions > most:
        raise LimitError(
            f"{sentence}, which become partitions; {machine.name} has {most}", hint=hint.format(most),
            key="err_num_partition_exceed_arch_limit",
        )  # fmt: skip


def _in_hbm(name: str, called: str, tensor: Any) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise no_tensor(name, tensor, "it must be a tensor in hbm")
    if tensor.layout.memory != HBM:
        raise RuleError(
            f"{name} is in {tensor.layout.memory}; nl.{called} takes it in hbm",
            hint="use nl.copy or nisa.tensor_copy within the chip", key="err_unsupported_memory",
        )  # fmt: skip
    return tensor


def store(dst: Any, value: Any) -> None:
    """Write an SBUF tile to an HBM tensor."""
    dst, tile = _in_hbm("dst", "store", dst), a_tile(value, "value")
    if tile.layout.memory == PSUM:
        raise RuleError(
            "value is in psum, which no transfer reads; nl.store takes it in sbuf",
            hint="copy it to sbuf first, with nl.copy", key="err_unsupported_memory",
        )  # fmt: skip
    try:
        record(current(), DmaCopy, [dst, tile], plain(DmaCopy), ())
    except NothingToWriteError as error:
        raise common.of_store(error) from None


def load_transpose2d(src: Any, dtype: Any = None) -> Tensor:
    """A new SBUF tile [F, P] with the transpose of an HBM tensor [P, F]."""
    src = _in_hbm("src", "load_transpose2d", src)
    if len(src.shape) != 2:
        raise RuleError(
            f"src is {len(src.shape)}-dimensional {list(src.shape)}; it must have two axes",
            key="err_exceed_max_supported_dimension",
        )
    _fits(src.shape[1], f"src has {src.shape[1]} columns", "load at most {} columns at once")
    transposed = common.transposed(src)
    return RESULTS.make(
        DmaCopy,
        [None, transposed],
        plain(DmaCopy),
        memory=SBUF,
        dtype=_result_dtype(dtype, src),
        shape=transposed.shape,
    )


def transpose(x: Any, dtype: Any = None) -> Tensor:
    """The transpose of an SBUF tile of two axes, up to [128, 128], in PSUM; a cast moves it to SBUF."""
    tile = a_tile(x)
    common.need_two_axes(tile)
    moved = RESULTS.make(NcTranspose, [None, tile], plain(NcTranspose, engine="tensor"), memory=PSUM)
    element_type = _result_dtype(dtype, tile)
    return moved if element_type is tile.layout.dtype else common.cast(RESULTS, moved, element_type)


def matmul(x: Any, y: Any, transpose_x: bool = False) -> Tensor:
    """x @ y in PSUM, float32; x is [M, K], which TensorE transposes, or [K, M] with transpose_x."""
    return common.matmul(RESULTS, a_tile(x), a_tile(y, "y"), bool(transpose_x))


def broadcast_to(x: Any, shape: Any, dtype: Any = None) -> Tensor:
    """A tile with axes of one repeated to a shape of the same rank; x itself where nothing changes."""
    tile, target = a_tile(x), as_shape(shape)
    element_type = _result_dtype(dtype, tile)
    if tile.shape == target:
        return tile if element_type is tile.layout.dtype else common.cast(RESULTS, tile, element_type)
    if len(target) != len(tile.shape):
        raise RuleError(f"shape is {list(target)}; it must have as many axes as x, {len(tile.shape)}")
    rest = broadcast(tile, (tile.shape[0], *target[1:]))
    if target[0] == tile.shape[0]:
        return RESULTS.make(TensorCopy, [None, rest], plain(TensorCopy), dtype=element_type, memory=SBUF)
    broadcast(tile, target)  # refuses what does not broadcast
    return common.across_partitions(RESULTS, rest, target[0], element_type)


def expand_dims(x: Any, axis: Any) -> Tensor:
    """A view of a tile with an axis of one at `axis`, which may count from the end."""
    tile = a_tile(x)
    ndim, place = len(tile.shape) + 1, whole_number(axis, "axis")
    if not -ndim <= place < ndim:
        raise UseError(f"axis is {place}; the result has {ndim} axes")
    return view_methods.expand_dim(tile, place % ndim)


def gather_flattened(data: Any, indices: Any, axis: Any = 0, dtype: Any = None) -> Tensor:
    """Per partition, the elements of the flattened free axes of data that uint32 indices name."""
    if whole_number(axis, "axis") != 0:
        raise RuleError(f"axis is {axis}; it must be 0: each partition gathers from its own free elements")
    source, places = a_tile(data, "data"), a_tile(indices, "indices")
    gathered = RESULTS.make(NcNGather, [None, source, places], plain(NcNGather), memory=SBUF)
    kind = _result_dtype(dtype, source)
    return gathered if kind is source.layout.dtype else common.cast(RESULTS, gathered, kind)
