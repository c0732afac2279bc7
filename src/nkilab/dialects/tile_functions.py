"""What functions over tiles mean in both spellings: which instructions each is lowered to.

The spellings differ in how a call gets its result (`Lowering`), in which shapes they accept and in the type
of a result where nothing is said; that is decided before these functions are called.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol, TypeVar

import numpy as np

from ..errors import NkilabError, RuleError
from ..isa.activations import ACTIVATIONS
from ..isa.data_movement import DmaCopy
from ..isa.declare import REQUIRED, Instruction
from ..isa.elementwise import Memset, Reciprocal, TensorCopy, TensorScalar, TensorTensor
from ..isa.operators import OPERATORS, Operator
from ..isa.predicated import TensorCopyPredicated
from ..isa.random_numbers import Dropout, Rng
from ..isa.reduction import TensorReduce, normalized_axes
from ..isa.scalar_engine import Activation
from ..isa.tensor_engine import NcMatmul, NcTranspose
from ..tiles.dtypes import FLOAT32, UINT8, UINT32, DType, as_dtype
from ..tiles.tile import HBM, PSUM, SBUF, Layout, Storage, View, compact_strides, layout
from ..tiles.views import broadcast, derived, padding_hint, reshaped
from ..trace.builder import NothingToWriteError, record
from ..trace.session import ask, current
from ..trace.source import place_of, user_frame

V = TypeVar("V", bound=View)
PREDICATES = ("uint8", "uint16", "uint32", "bool")
# Random bits that float32 holds exactly: what is left of 32 after a shift by 8.
_DROPPED_BITS, _STEP = 8, 2.0**-24


def of_store(error: NothingToWriteError) -> NothingToWriteError:
    """The refusal to overwrite an input with what was never written, in the words of `nl.store`."""
    error.called, error.hint = "store", "read the input with nl.load; nl.store writes to dst"
    error.problem = error.problem.replace("written src", "written value")
    error.facts = tuple(fact.replace("src = ", "value = ", 1) for fact in error.facts)
    return error


class Lowering(Protocol):
    """How a spelling appends an instruction whose result is new."""

    def make(
        self, cls: type[Instruction], operands: list[Any], attributes: tuple[Any, ...],
        values: tuple[Any, ...] = (), *, dtype: DType | None = None, mask: Any = None, memory: str = "",
        shape: tuple[int, ...] | None = None,
    ) -> Any:  # fmt: skip
        """The result of an instruction, whose operands hold None in its place.

        Args:
            cls: the declaration.
            operands: as declared.
            attributes: canonical values, as declared.
            values: as declared.
            dtype: of the result; as the declaration says if None.
            mask: where it is written; None for everywhere.
            memory: of the result; as the declaration says if "".
            shape: of the result; as the declaration says if None.
        """

    def allocate(self, shape: tuple[int, ...], dtype: DType, memory: str) -> Any:
        """A tile that nothing is written to yet."""

    def settled(self, tile: Any) -> Any:
        """A result in a tile of its own, of which views may be made."""


@cache
def plain(cls: type[Instruction], **chosen: Any) -> tuple[Any, ...]:
    """The attributes of an instruction in declared order: those given, the others at their defaults."""
    attributes_by_name = {
        name: chosen.get(name, attribute.default) for name, attribute in cls.attributes.items()
    }
    assert REQUIRED not in attributes_by_name.values(), cls.name
    assert not chosen.keys() - attributes_by_name.keys(), cls.name
    return tuple(attributes_by_name.values())


def _check_tiles(cls: type[Instruction], operands: dict[str, Any]) -> None:
    """Refuse what is no layout where the declaration needs one."""
    for name, spec in cls.operands.items():
        may_be_else = spec.is_written or spec.is_optional or spec.may_be_number
        if not may_be_else and not isinstance(operands[name], Layout):
            got = "missing" if operands[name] is None else "no tile"
            raise RuleError(f"{name} is {got}; it must be [{', '.join(spec.axes)}]", source=cls.source)


def result_layout(
    cls: type[Instruction], layouts: list[Any], attributes: tuple[Any, ...], dtype: DType | None,
    memory: str, shape: tuple[int, ...] | None,
) -> Layout:  # fmt: skip
    """The layout of a result: what is given, the rest as the declaration says.

    Raises:
        RuleError: if an operand that the declaration looks at is missing or no tile.
    """
    try:
        if shape is None or dtype is None:
            layouts_by_name = dict(zip(cls.operands, layouts, strict=True))
            _check_tiles(cls, layouts_by_name)
            default = cls.fresh(layouts_by_name, dict(zip(cls.attributes, attributes, strict=True)))
            shape, dtype, memory = shape or default.shape, dtype or default.dtype, memory or default.memory
    except NkilabError as error:
        raise error.located(place_of(user_frame()), cls.name) from None
    memory = memory or list(cls.operands.values())[cls.result_slot].memories[0]
    return layout(shape, compact_strides(shape), dtype, memory, 0, 0)


def with_number(
    to: Lowering, op: Operator, tile: View, number: Any, reverse: bool, dtype: DType, mask: Any = None
) -> Any:
    """`tile <op> number`, or `number <op> tile` if reversed; the number may be a column [P, 1] or None."""
    attributes = plain(TensorScalar, op0=op, reverse0=reverse)
    operands = [None, tile, number, None]
    return to.make(TensorScalar, operands, attributes, dtype=dtype, mask=mask, memory=SBUF)


def two_tiles(to: Lowering, op: Operator, x: View, y: View, dtype: DType, mask: Any = None) -> Any:
    """`x <op> y` over tiles that broadcast; one with an element per partition is an operand of tensor_scalar.

    Raises:
        RuleError: if the shapes do not broadcast.
    """
    shape = _common(axes_of(x.layout.shape), axes_of(y.layout.shape))
    x, y = (on_partitions(to, t, shape[0]) for t in (x, y))
    for tile, vector, reverse in ((x, y, False), (y, x, True)):
        if tile.layout.shape == shape and vector.layout.free_size == 1 < tile.layout.free_size:
            return with_number(to, op, tile, vector, reverse, dtype, mask)
    x, y = broadcast(with_ndim(x, len(shape)), shape), broadcast(with_ndim(y, len(shape)), shape)
    if x.layout.memory == PSUM == y.layout.memory:
        # hw: VectorE reads one of its two inputs from PSUM
        y = to.make(TensorCopy, [None, y], plain(TensorCopy), memory=SBUF)
    attributes = plain(TensorTensor, op=op)
    return to.make(TensorTensor, [None, x, y], attributes, dtype=dtype, mask=mask, memory=SBUF)


def _common(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that two tiles broadcast to."""
    if x == y:
        return x
    try:
        return tuple(np.broadcast_shapes(x, y))
    except ValueError:
        hint = padding_hint(*sorted((x, y), key=len)) or "two axes are equal, or one of them is 1"
        raise RuleError(f"shapes {list(x)} and {list(y)} do not broadcast", hint=hint) from None


def axes_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tile: one axis is a column."""
    return shape if len(shape) > 1 else (*shape, 1)


def with_ndim(tile: V, ndim: int) -> V:
    """A tile of one axis as [P, 1], where more axes are wanted."""
    shape = tile.layout.shape
    return tile if len(shape) == ndim or len(shape) > 1 else reshaped(tile, (*shape, 1), 0)


def on_partitions(to: Lowering, tile: V, partitions: int) -> V:
    """`tile` repeated to so many partitions if it has one."""
    if tile.layout.partitions == partitions or tile.layout.partitions != 1:
        return tile
    return to.settled(across_partitions(to, tile, partitions))


def across_partitions(to: Lowering, tile: View, partitions: int, dtype: DType | None = None) -> Any:
    """A tile [1, F] repeated on so many partitions: a product with a column of ones on TensorE.

    Integers, which the array does not multiply, go through DMA.
    """
    element_type = tile.layout.dtype
    shape = (partitions, *tile.layout.shape[1:])
    if not element_type.is_float:
        return to.make(DmaCopy, [None, broadcast(tile, shape)], plain(DmaCopy), memory=SBUF, dtype=dtype)
    ones = _ones(to, partitions, element_type)
    flat = reshaped(in_sbuf(to, tile), (1, tile.layout.free_size), 0)
    width, most = flat.layout.shape[1], current().machine.limit("psum_bank_bytes") // FLOAT32.itemsize
    if width <= most:
        product = to.make(NcMatmul, [None, ones, flat], plain(NcMatmul, is_stationary_onezero=True), (False,))
        return to.make(
            TensorCopy,
            [None, product],
            plain(TensorCopy),
            memory=SBUF,
            dtype=dtype or element_type,
            shape=shape,
        )
    out = to.allocate((partitions, width), dtype or element_type, SBUF)
    for start in range(0, width, most):
        stop = min(start + most, width)
        product = to.make(
            NcMatmul,
            [None, ones, _columns(flat, start, stop)],
            plain(NcMatmul, is_stationary_onezero=True),
            (False,),
        )
        record(current(), TensorCopy, [_columns(out, start, stop), product], plain(TensorCopy), ())
    return reshaped(out, shape, 0)


def _ones(to: Lowering, columns: int, dtype: DType) -> View:
    """A row of ones [1, columns], made once per kernel."""
    session = current()
    key = ("ones", columns, dtype)
    if key not in session.keyed:
        row_of_ones = to.make(
            Memset, [None], plain(Memset), (1,), dtype=dtype, shape=(1, columns), memory=SBUF
        )
        session.flush()
        session.keyed[key] = row_of_ones
        # the compiler's own tile: no loop of the kernel's makes it
        session.program.marks.carried.add(row_of_ones.storage.number)
    return session.keyed[key]


def _columns(tile: V, start: int, stop: int) -> V:
    known = tile.layout
    return derived(
        tile, tile.offset + start * known.strides[1], (known.shape[0], stop - start), known.strides, 0
    )


def in_sbuf(to: Lowering, tile: V) -> V:
    """A tile, copied to SBUF if it lies in PSUM."""
    if tile.layout.memory != PSUM:
        return tile
    return to.make(TensorCopy, [None, tile], plain(TensorCopy), memory=SBUF)


def unary(to: Lowering, name: str, x: View, dtype: DType, mask: Any = None) -> Any:
    """An activation function over a tile, on ScalarE."""
    attributes = plain(Activation, op=ACTIVATIONS[name])
    operands = [None, x, None, 1.0, None]
    return to.make(Activation, operands, attributes, dtype=dtype, mask=mask, memory=SBUF)


def reduced(to: Lowering, operator: str, x: View, axes: Any, dtype: DType, keepdims: bool) -> Any:
    """A reduction of the last free axes on VectorE."""
    axes_of_form = TensorReduce.attributes["axis"].canonical("axis", axes)
    attributes = plain(TensorReduce, op=OPERATORS[operator], axis=axes_of_form, keepdims=keepdims)
    return to.make(TensorReduce, [None, x], attributes, dtype=dtype, memory=SBUF)


def mean(to: Lowering, x: View, axes: Any, dtype: DType, keepdims: bool) -> Any:
    """The mean over the last free axes: a sum in float32, then a product."""
    total = reduced(to, "add", x, axes, FLOAT32, keepdims)
    axes_of_form = TensorReduce.attributes["axis"].canonical("axis", axes)
    shape = x.layout.shape
    count = 1
    for axis in normalized_axes(axes_of_form, len(shape)):
        count *= shape[axis]
    return with_number(to, OPERATORS["multiply"], total, 1.0 / count, False, dtype)


def variance(to: Lowering, x: View, axes: Any, dtype: DType) -> Any:
    """The mean square of what differs from the mean over the last free axes, kept as axes of one."""
    centre = mean(to, x, axes, FLOAT32, True)
    apart = two_tiles(to, OPERATORS["subtract"], x, centre, FLOAT32)
    return mean(to, unary(to, "square", apart, FLOAT32), axes, dtype, True)


def notice_precision(called: str, compute_dtype: Any) -> None:
    """Notice that a function computes in float32 where another type is asked for."""
    element_type = None if compute_dtype is None else as_dtype(compute_dtype)
    if element_type not in (None, FLOAT32):
        ask().notice(f"nl.{called} computes in float32, not in compute_dtype={element_type}")


def softmax(to: Lowering, x: View, largest: View, total: Any, dtype: DType) -> Any:
    """exp(x - max) / sum of exp(x - max), in float32 up to the last rounding.

    Args:
        to: the spelling.
        x: the tile.
        largest: its maxima along the axes, kept as axes of one.
        total: a function from a tile to its sums along the same axes, kept as axes of one.
        dtype: of the result.
    """
    apart = two_tiles(to, OPERATORS["subtract"], x, largest, FLOAT32)
    powers = unary(to, "exp", apart, FLOAT32)
    inverse = to.make(Reciprocal, [None, total(powers)], plain(Reciprocal), dtype=FLOAT32)
    return two_tiles(to, OPERATORS["multiply"], powers, inverse, dtype)


def rms_norm(
    to: Lowering, x: View, weights: View, total: Any, count: float, epsilon: float, dtype: DType
) -> Any:
    """x / sqrt(total of squares / count + epsilon) * weights, in float32 up to the last rounding.

    `total` is a function from a tile to its sums, kept as axes of one.
    """
    squares = total(unary(to, "square", x, FLOAT32))
    attributes = plain(TensorScalar, op0=OPERATORS["multiply"], op1=OPERATORS["add"])
    operands = [None, squares, 1.0 / count, float(epsilon)]
    centre = to.make(TensorScalar, operands, attributes, dtype=FLOAT32, memory=SBUF)
    inverse = unary(to, "rsqrt", centre, FLOAT32)
    normal = two_tiles(to, OPERATORS["multiply"], x, inverse, FLOAT32)
    return two_tiles(to, OPERATORS["multiply"], normal, weights, dtype)


def where(to: Lowering, condition: View, x: View, y: Any, dtype: DType) -> Any:
    """Elements of x where condition is not 0, of y (a tile or a number) elsewhere, in a new SBUF tile."""
    if condition.layout.dtype.name not in PREDICATES:
        condition = with_number(to, OPERATORS["not_equal"], condition, 0, False, UINT8)
    is_tile = isinstance(y, View)
    shapes = (condition.layout.shape, x.layout.shape, y.layout.shape if is_tile else (1,))
    shape = tuple(np.broadcast_shapes(*shapes))
    if is_tile:
        out = to.make(TensorCopy, [None, broadcast(y, shape)], plain(TensorCopy), dtype=dtype, memory=SBUF)
    else:
        out = to.make(Memset, [None], plain(Memset), (y,), dtype=dtype, shape=shape, memory=SBUF)
    source = broadcast(x, shape)
    if x.layout.dtype is not dtype:
        source = to.make(TensorCopy, [None, source], plain(TensorCopy), dtype=dtype, memory=SBUF)
    operands = [out, source, broadcast(condition, shape)]
    record(current(), TensorCopyPredicated, operands, plain(TensorCopyPredicated), ())
    return out


def dropout(to: Lowering, x: View, probability: Any, dtype: DType) -> Any:
    """x with elements set to 0 with a probability: a number or a column [P, 1]."""
    if isinstance(probability, View):
        probability = on_partitions(to, probability, x.layout.partitions)
    kept = to.make(Dropout, [None, x, probability], plain(Dropout), memory=SBUF)
    return kept if dtype is x.layout.dtype else cast(to, kept, dtype)


def cast(to: Lowering, tile: View, dtype: DType) -> Any:
    """A copy in SBUF in another type."""
    return to.make(TensorCopy, [None, tile], plain(TensorCopy), dtype=dtype, memory=SBUF)


def uniform(to: Lowering, shape: tuple[int, ...], dtype: DType, memory: str) -> Any:
    """A tile of uniform numbers in [0, 1), multiples of 2**-24, from the random bits of VectorE."""
    bits = to.make(Rng, [None], plain(Rng, engine="vector"), dtype=UINT32, shape=shape, memory=SBUF)
    kept = with_number(to, OPERATORS["right_shift"], bits, _DROPPED_BITS, False, UINT32)
    attributes = plain(TensorScalar, op0=OPERATORS["multiply"])
    return to.make(TensorScalar, [None, kept, _STEP, None], attributes, dtype=dtype, memory=memory)


def need_two_axes(x: View) -> None:
    """Refuse to transpose a tile that has other than two axes."""
    shape = x.layout.shape
    if len(shape) != 2:
        problem = f"x is {len(shape)}-dimensional {list(shape)}; it must have two axes"
        raise RuleError(problem, key="err_exceed_max_supported_dimension")


def matmul(to: Lowering, x: View, y: View, transpose_x: bool, mask: Any = None) -> Any:
    """x @ y in PSUM, float32; x is [M, K], which TensorE transposes, or [K, M] with transpose_x."""
    x, y = in_sbuf(to, x), in_sbuf(to, y)
    if not transpose_x:
        moved = to.make(NcTranspose, [None, x], plain(NcTranspose, engine="tensor"))
        x = to.make(TensorCopy, [None, moved], plain(TensorCopy), memory=SBUF)
    return to.make(NcMatmul, [None, x, y], plain(NcMatmul), (False,), mask=mask)


def transposed(view: V) -> V:
    """A two-axis view with its axes exchanged; in HBM, where no axis is the partition."""
    known = view.layout
    return derived(view, view.offset, known.shape[::-1], known.strides[::-1], None)


def constant_storage(constant: np.ndarray, dtype: DType) -> Storage:
    """A storage in HBM with the elements of a host array, which may not be written."""
    elements = np.ascontiguousarray(constant.astype(dtype.storage))
    session = current()
    storage = session.new_storage(elements.shape, dtype, HBM, "input", "")
    if session.has_data:
        storage.allocate(elements)
    else:
        storage.written.fill()
    return storage
