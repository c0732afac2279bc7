"""Instructions of VectorE and GpSimdE that combine, copy or fill tiles element by element."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ..errors import RuleError
from ..tiles.convert import cast, store, widen
from ..tiles.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT32, UINT32, DType, integer_bounds
from ..tiles.tile import PSUM, Layout
from . import common_rules
from .attributes import NUMBER, Attr, Flag, Immediate, Spelled
from .common_rules import ALU as ALU
from .costs import engine_step, one_input_step, two_input_step
from .declaration_parts import Example, Step
from .declare import EVERY_DTYPE, In, Instruction, Out, ScalarOrVector, call_rule, rule
from .declare import PARTITIONS as PARTITIONS
from .operators import OPERATORS, Operator, apply, operator_named


def as_shape(array: Any, shape: tuple[int, ...]) -> Any:
    """`array` under another shape of the same elements; numbers stay numbers."""
    if type(array) is not np.ndarray or array.shape == shape:
        return array
    return array.reshape(shape)


def as_column(array: Any, dims: int) -> Any:
    """A [P, 1] operand under `dims` axes, so that it broadcasts along the free ones."""
    return array.reshape(-1, *(1,) * (dims - 1)) if isinstance(array, np.ndarray) else array


def store_bits(dst: Any, bits: Any, dtype: DType) -> None:
    """Write integer results: bit for bit within one width, saturated into a narrower type."""
    if bits.dtype.itemsize > 4:
        # int32 with uint32 becomes int64 in NumPy; the engine has 32 bits
        bits = bits.astype(np.uint32)
    if bits.dtype.itemsize == dtype.itemsize:
        dst[...] = bits.view(dtype.storage)
    else:
        cast(dst, dtype, bits, INT32)


def store_number(dst: Any, number: Any, dtype: DType) -> None:
    """Write a Python number: integers exactly into integer types, saturated; all else through float32."""
    if dtype.is_integer and isinstance(number, int | np.integer):
        low, high = integer_bounds(dtype)
        dst[...] = min(max(int(number), low), high)
    else:
        store(dst, np.float32(number), dtype)


ENGINES = ("unknown", "vector", "scalar", "gpsimd")
# Operators that GpSimdE does not have in integer arithmetic.
_FLOAT_ONLY = ("power", "divide", "mod", "fmod")


def optional_operator(spelled: Any) -> Operator | None:
    """An operator, or None where it is left out."""
    return None if spelled is None else operator_named(spelled)


def widen_operand(array: Any, layout: Any) -> Any:
    """A tile or number as float32."""
    return widen(array, layout.dtype) if isinstance(layout, Layout) else np.float32(array)


def is_integer(layout: Any) -> bool:
    """Whether an operand is a tile of integers or a number."""
    return layout is None or layout is NUMBER or layout.dtype.is_integer


def memories(*layouts: Any) -> tuple[str, ...]:
    """Memories of the tiles among operands."""
    return tuple(g.memory for g in layouts if isinstance(g, Layout))


class TensorTensor(Instruction):
    """Combine two tiles element by element: dst = data1 <op> data2.

    Arithmetic is float32, rounded once; bitwise operators work on integers as they are. Arithmetic on 32-bit
    integers in SBUF runs on GpSimdE and is exact (it wraps around).
    """

    engines = ("vector", "gpsimd")
    dst = Out("P F*")
    data1 = In("P F*")
    data2 = In("P F*")
    op = Spelled(operator_named, ", ".join(OPERATORS))
    engine = Attr("unknown", ("unknown", "vector", "gpsimd"))
    example = Example({"data1": [[1, 2]], "data2": [[3, -5]]}, {"dst": [[4, -3]]}, {"op": "add"})

    one_input_in_sbuf = common_rules.one_input_in_sbuf("data1", "data2")

    @rule(
        "op takes one input; tensor_tensor takes operators of two", source=ALU,
        broken_by={"op": "reciprocal"}, hint="use activation or tensor_scalar",
    )  # fmt: skip
    def operator_is_binary(self) -> bool:
        return not self.op.is_unary

    @rule("op is bitwise and an operand is not of an integer type", broken_by={"op": "bitwise_and"})
    def bitwise_needs_integers(self) -> bool:
        return not self.op.is_bitvec or all(map(is_integer, (self.dst, self.data1, self.data2)))

    @rule(
        "it runs on gpsimd, which cannot reach psum", broken_by={"op": "power", "data1.memory": "psum"},
        hint="copy the operand to sbuf first", key="err_unsupported_memory",
    )  # fmt: skip
    def gpsimd_stays_in_sbuf(self) -> bool:
        return self.runs_on != "gpsimd" or PSUM not in memories(self.dst, self.data1, self.data2)

    @rule(
        "op is power, which runs on gpsimd alone", source=ALU, broken_by={"op": "power", "engine": "vector"}
    )
    def engine_knows_the_operator(self) -> bool:
        return not (self.op.name == "power" and self.engine == "vector")

    operator_exists = common_rules.operators_exist("op")

    @cached_property
    def is_native_integer(self) -> bool:
        """Whether it is 32-bit integer arithmetic, which GpSimdE does exactly."""
        tiles = (self.dst, self.data1, self.data2)
        is_arithmetic = not self.op.is_bitvec and self.op.name not in _FLOAT_ONLY
        return is_arithmetic and all(t.dtype in (INT32, UINT32) for t in tiles)

    @cached_property
    def runs_on(self) -> str:
        """The engine: the one asked for, else as the documentation assigns it."""
        if self.op.name == "power" or self.engine == "gpsimd":
            return "gpsimd"
        native = self.is_native_integer and PSUM not in memories(self.dst, self.data1, self.data2)
        return "gpsimd" if native and self.engine == "unknown" else "vector"

    @cached_property
    def is_one_call(self) -> bool:
        """Whether a function of NumPy does all of it: float32 throughout, one shape."""
        tiles = (self.dst, self.data1, self.data2)
        is_float32 = all(t.dtype is FLOAT32 and t.shape == self.dst.shape for t in tiles)
        return is_float32 and isinstance(self.op.function, np.ufunc)

    def compute(self, dst: Any, data1: Any, data2: Any) -> None:
        if self.is_one_call:
            self.op.function(data1, data2, out=dst)
            return
        data1, data2 = as_shape(data1, dst.shape), as_shape(data2, dst.shape)
        if self.op.is_bitvec:
            data2 = data2.view(data1.dtype) if data1.itemsize == data2.itemsize else data2
            store_bits(dst, self.op.function(data1, data2), self.dst.dtype)
        elif self.runs_on == "gpsimd" and self.is_native_integer:
            wide = self.op.function(data1.astype(np.int64), data2.astype(np.int64))
            dst[...] = wide.astype(self.dst.dtype.storage)
        else:
            result = self.op.function(widen(data1, self.data1.dtype), widen(data2, self.data2.dtype))
            store(dst, result, self.dst.dtype)

    def cost(self) -> list[Step]:
        # 2.26 costs: N with one input in PSUM, or for add, subtract and multiply in bfloat16
        tiles = (self.data1, self.data2, self.dst)
        is_half = self.op.name in ("add", "subtract", "multiply") and all(t.dtype is BFLOAT16 for t in tiles)
        is_fast = PSUM in memories(self.data1, self.data2) or is_half
        return [two_input_step(self, self.runs_on, "TENSOR_TENSOR", *tiles, is_fast_on_trn1=is_fast)]


class TensorScalar(Instruction):
    """Apply up to two operators with operands constant per partition: (data <op0> operand0) <op1> operand1.

    Operands are numbers or tiles [P, 1]. `reverse0` and `reverse1` put the operand on the left.
    """

    engines = ("vector", "scalar", "gpsimd")
    dst = Out("P F*")
    data = In("P F*")
    op0 = Spelled(operator_named, ", ".join(OPERATORS))
    operand0 = ScalarOrVector(default=None, optional=True)
    reverse0 = Flag()
    op1 = Spelled(optional_operator, "None, " + ", ".join(OPERATORS), None)
    operand1 = ScalarOrVector(default=None, optional=True)
    reverse1 = Flag()
    engine = Attr("unknown", ENGINES)
    smallest = {"operand0": 1.0}
    example = Example(
        {"data": [[1, 2], [3, 4]], "operand0": [[10], [20]], "operand1": 2},
        {"dst": [[18, 16], [34, 32]]},
        {"op0": "subtract", "op1": "multiply", "reverse0": True},
    )

    @rule(
        "op0 and op1 are of two kinds; both must be bitwise or both arithmetic",
        broken_by={
            "op0": "add",
            "op1": "bitwise_and",
            "operand1": 1,
            "operand0": 1,
            "dst.dtype": "int32",
            "data.dtype": "int32",
        },
    )
    def one_kind_of_operator(self) -> bool:
        return self.op1 is None or self.op0.is_bitvec == self.op1.is_bitvec

    @rule(
        "op0 is bitwise and an operand is not of an integer type",
        broken_by={"op0": "bitwise_or", "operand0": 1},
    )
    def bitwise_needs_integers(self) -> bool:
        return not self.op0.is_bitvec or all(
            map(is_integer, (self.dst, self.data, self.operand0, self.operand1))
        )

    @rule("an operator of two inputs has no operand", broken_by={"op1": "add"})
    def operands_are_given(self) -> bool:
        pairs = ((self.op0, self.operand0), (self.op1, self.operand1))
        return all(op is None or op.is_unary or operand is not None for op, operand in pairs)

    @rule("operand1 is given without op1", broken_by={"operand1": 2.0})
    def operator_is_given(self) -> bool:
        return self.op1 is not None or self.operand1 is None

    @rule(
        "engine is gpsimd, which runs tensor_scalar for rsqrt and power alone", broken_by={"engine": "gpsimd"}
    )
    def gpsimd_knows_the_operator(self) -> bool:
        ops = {op.name for op in (self.op0, self.op1) if op is not None}
        return self.engine != "gpsimd" or bool(ops & {"rsqrt", "power"})

    @rule(
        "it runs on gpsimd, which cannot reach psum",
        broken_by={"op0": "rsqrt", "data.memory": "psum"},
        key="err_unsupported_memory",
    )
    def gpsimd_stays_in_sbuf(self) -> bool:
        operands = (self.dst, self.data, self.operand0, self.operand1)
        return self.runs_on != "gpsimd" or PSUM not in memories(*operands)

    @rule(
        "engine is scalar; from trn2 on it runs multiply, add, and multiply then add",
        broken_by={"engine": "scalar", "op0": "subtract", "operand0": 1},
    )
    def scalar_engine_knows_the_operators(self) -> bool:
        if self.engine != "scalar":
            return True
        names = (self.op0.name, self.op1.name if self.op1 is not None else None)
        known = names in (("multiply", "add"), ("multiply", None), ("add", None))
        return known and self.machine.generation >= 3

    operators_exist = common_rules.operators_exist("op0", "op1", operand0=1.0)

    @cached_property
    def runs_on(self) -> str:
        """The engine: the one asked for, GpSimdE for operators that only it has, else VectorE."""
        if self.engine != "unknown":
            return self.engine
        ops = [op for op in (self.op0, self.op1) if op is not None]
        return "gpsimd" if any("vector" not in op.engines and op.name != "divide" for op in ops) else "vector"

    def compute(self, dst: Any, data: Any, operand0: Any, operand1: Any) -> None:
        is_bitvec = self.op0.is_bitvec
        data = as_shape(data, dst.shape)
        result = data if is_bitvec else widen(data, self.data.dtype)
        for op, operand, layout, reverse in (
            (self.op0, operand0, self.operand0, self.reverse0),
            (self.op1, operand1, self.operand1, self.reverse1),
        ):
            if op is None:
                continue
            column = as_column(operand, dst.ndim)
            if column is not None:
                column = np.asarray(column).astype(data.dtype) if is_bitvec else widen_operand(column, layout)
            result = apply(op, result, column, reverse)
        if is_bitvec:
            store_bits(dst, np.asarray(result), self.dst.dtype)
        else:
            store(dst, result, self.dst.dtype)

    def cost(self) -> list[Step]:
        later = self.machine["vector_operand_ns"]
        return [one_input_step(self, self.runs_on, "TENSOR_SCALAR", self.data, self.dst, later_ns=later)]


class ScalarTensorTensor(Instruction):
    """Apply two operators, the first with a constant per partition: (data <op0> operand0) <op1> operand1.

    `operand0` is a number or a tile [P, 1]; `operand1` has the size of `data`.
    """

    engines = ("vector",)
    dst = Out("P F*")
    data = In("P F*")
    op0 = Spelled(operator_named, ", ".join(OPERATORS))
    operand0 = ScalarOrVector()
    op1 = Spelled(operator_named, ", ".join(OPERATORS))
    operand1 = In("P F*")
    reverse0 = Flag()
    reverse1 = Flag()
    example = Example(
        {"data": [[1, 2]], "operand0": 3, "operand1": [[10, 20]]},
        {"dst": [[6, 15]]},
        {"op0": "add", "op1": "subtract", "reverse1": True},
    )

    one_input_in_sbuf = common_rules.one_input_in_sbuf("data", "operand1")

    @rule(
        "an operator is bitwise; scalar_tensor_tensor takes arithmetic ones", broken_by={"op1": "bitwise_xor"}
    )
    def operators_are_arithmetic(self) -> bool:
        return not (self.op0.is_bitvec or self.op1.is_bitvec)

    @rule("op1 takes one input; it combines two tiles", broken_by={"op1": "reciprocal"})
    def second_operator_is_binary(self) -> bool:
        return not self.op1.is_unary

    operators_exist = common_rules.operators_exist("op0", "op1")

    def compute(self, dst: Any, data: Any, operand0: Any, operand1: Any) -> None:
        data, operand1 = as_shape(data, dst.shape), as_shape(operand1, dst.shape)
        column = widen_operand(as_column(operand0, dst.ndim), self.operand0)
        result = apply(self.op0, widen(data, self.data.dtype), column, self.reverse0)
        result = apply(self.op1, result, widen(operand1, self.operand1.dtype), self.reverse1)
        store(dst, result, self.dst.dtype)

    def cost(self) -> list[Step]:
        # 2.26 costs: N for (data - operand0) * operand1 in bfloat16 of even N
        is_half = self.data.dtype is BFLOAT16 is self.operand1.dtype and self.data.free_size % 2 == 0
        is_fast = is_half and (self.op0.name, self.op1.name) == ("subtract", "multiply")
        tiles = (self.data, self.operand1, self.dst)
        return [two_input_step(self, "vector", "SCALAR_TENSOR_TENSOR", *tiles, is_fast_on_trn1=is_fast)]


class TensorCopy(Instruction):
    """Copy a tile within SBUF and PSUM; types that differ are converted through float32.

    VectorE and GpSimdE copy equal types bit for bit; ScalarE of trn1 goes through float32 always.
    """

    engines = ("vector", "scalar", "gpsimd")
    dst = Out("P F*", dtypes=EVERY_DTYPE)
    src = In("P F*", dtypes=EVERY_DTYPE)
    engine = Attr("unknown", ENGINES)
    example = Example({"src": [[1.5, -2.5]]}, {"dst": [[2, -2]]}, dtypes={"dst": "int32"})

    gpsimd_stays_in_sbuf = common_rules.gpsimd_stays_in_sbuf("dst", "src", hint="choose vector or scalar")

    @rule(
        "one type is packed and the other is not the same; packed elements are copied as they are",
        broken_by={"dst.dtype": "float8_e4m3fn_x4", "src.dtype": "uint32"},
        hint="view one side as the type of the other",
    )
    def packed_types_agree(self) -> bool:
        dst, src = self.dst.dtype, self.src.dtype
        return dst is src or not (dst.is_packed or src.is_packed)

    def compute(self, dst: Any, src: Any) -> None:
        src = as_shape(src, dst.shape)
        if self.engine == "scalar" and self.machine.generation == 2:
            store(dst, widen(src, self.src.dtype), self.dst.dtype)
        else:
            cast(dst, self.dst.dtype, src, self.src.dtype)

    def cost(self) -> list[Step]:
        engine = "vector" if self.engine == "unknown" else self.engine
        return [one_input_step(self, engine, "TENSOR_COPY", self.src, self.dst)]


class Reciprocal(Instruction):
    """Invert each element in float32: dst = 1 / data."""

    engines = ("vector",)
    dst = Out("P F*")
    data = In("P F*")
    example = Example({"data": [[2, -4]]}, {"dst": [[0.5, -0.25]]})

    def compute(self, dst: Any, data: Any) -> None:
        store(dst, np.reciprocal(widen(as_shape(data, dst.shape), self.data.dtype)), self.dst.dtype)

    def cost(self) -> list[Step]:
        # 2.26 costs say 8 cycles an element; published kernels on trn1 take less than a third of that
        cycles = self.machine["reciprocal_cycles"] * self.sizes["F*"]
        widening = 1.0 if self.machine.generation == 2 else 1.5
        return [engine_step(self.machine, "vector", "RECIPROCAL", cycles, widening=widening)]


class Memset(Instruction):
    """Fill a tile with a constant, rounded to its type."""

    engines = ("vector", "gpsimd")
    dst = Out("P F*", dtypes=EVERY_DTYPE)
    value = Immediate()
    engine = Attr("unknown", ("unknown", "vector", "gpsimd"))
    example = Example({}, {"dst": [[7, 7]]}, {"value": 7})

    gpsimd_stays_in_sbuf = common_rules.gpsimd_stays_in_sbuf("dst")

    @call_rule("value is not a number", broken_by={"value": "seven"})
    def value_is_a_number(self, value: Any) -> bool:
        return isinstance(value, int | float | np.generic)

    @classmethod
    def resolve(cls, form: Any, views: Any, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if values[0] != 0 and form.dst.dtype.is_packed:
            raise RuleError(
                f"value is {values[0]!r}; tiles of {form.dst.dtype} are filled with 0 only",
                hint="view the tile as an integer type to fill it with a pattern",
                source="nki.isa.memset",
            )
        return values

    def compute(self, dst: Any, value: Any) -> None:
        store_number(dst, value, self.dst.dtype)

    def cost(self) -> list[Step]:
        engine = "vector" if self.engine == "unknown" else self.engine
        # 2.26 costs: N, or N/2 for zero in a 16-bit type; the value is not part of the form, so N/2 always
        cycles = float(self.sizes["F*"])
        if engine == "vector" and self.dst.dtype in (BFLOAT16, FLOAT16):
            cycles /= 2
        return [engine_step(self.machine, engine, "MEMSET", cycles)]
