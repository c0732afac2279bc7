"""`neuronxcc.nki.language`: the table of its names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import ml_dtypes
import numpy as np

from ...errors import SpellingError, UseError
from ...isa.activations import ACTIVATIONS
from ...tiles.dtypes import NUMBERS, TFLOAT32
from ...trace.session import current
from ...trace.source import place_of, user_frame
from .. import indexing, loops
from .. import program_ids as programs
from ..foreign import refuse_operand
from ..places import placed
from ..tile_size import tile_size
from . import assignment, composites, creation, functions, grids, host, reductions, run_time
from . import program_ids as value_programs
from .assignment import in_place
from .dynamic import TileIndex
from .grids import Index
from .tensor import Tensor, settled

_BINARY = ("add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "mod", "fmod",
           "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")  # fmt: skip
_COMPARING = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal",
              "logical_and", "logical_or", "logical_xor")  # fmt: skip
_REDUCING = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}


def _binary(name: str) -> Callable[..., Tensor]:
    def call(x: Any, y: Any, *, dtype: Any = None, mask: Any = None) -> Tensor:
        return functions.binary(name, x, y, dtype, mask)

    def call_by_position(x: Any, y: Any, dtype: Any = None, mask: Any = None) -> Tensor:
        return functions.binary(name, x, y, dtype, mask)

    doc = f"`x {name} y`, element by element, in float32; also an operator token."
    return _named(call_by_position if name in ("mod", "fmod") else call, name, doc)


def _unary(name: str) -> Callable[..., Tensor]:
    def call(x: Any, *, dtype: Any = None, mask: Any = None) -> Tensor:
        return functions.unary(name, x, dtype, mask)

    return _named(call, name, f"`{name}(x)`, element by element, on ScalarE; also an operator token.")


def _reducing(name: str, operator: str) -> Callable[..., Tensor]:
    def call(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False) -> Tensor:
        return reductions.reduction(operator, x, axis, dtype, mask, keepdims)

    return _named(call, name, f"The {name} over free axes, on VectorE; also an operator token.")


def _named(function: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return _served(function)


def _served(function: Callable[..., Any], shows_first: bool = False) -> Callable[..., Any]:
    """A function of this module alone, whose wrong arguments are told as a kernel's author sees them."""
    called = function.__name__
    return placed(called, f"language.{called}", shows_first=shows_first)(function)


DTYPES: dict[str, Any] = {
    "bool_": np.bool_, "int8": np.int8, "int16": np.int16, "int32": np.int32,
    "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32,
    "float16": np.float16, "float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "tfloat32": TFLOAT32,
    "float8_e4m3": ml_dtypes.float8_e4m3, "float8_e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


class fp32:
    """float32 composites."""

    min = float(np.finfo(np.float32).min)
    max = float(np.finfo(np.float32).max)


def finfo(dtype: Any) -> Any:
    """Limits of a float type, as ml_dtypes gives them."""
    try:
        return ml_dtypes.finfo(dtype)
    except (TypeError, ValueError):
        raise UseError(f"dtype is {dtype!r}; it must be a type of floats, such as nl.float32") from None


NAMES: dict[str, Any] = {
    **DTYPES,
    **{n: _binary(n) for n in (*_BINARY, *_COMPARING)},
    **{n: _unary(n) for n in ACTIVATIONS if n not in ("copy", "reciprocal", "gelu_apprx_sigmoid_dx")},
    **{n: _reducing(n, op) for n, op in _REDUCING.items()},
    **{
        f.__name__: _served(f, shows_first=True)
        for f in (
            functions.negative, functions.invert, functions.logical_not, functions.reciprocal,
            reductions.mean, reductions.var, functions.copy, functions.transpose, functions.matmul,
            functions.broadcast_to,
        )
    },
    **{
        f.__name__: _served(f)
        for f in (
            reductions.all_of, functions.load, functions.store, functions.load_transpose2d,
            functions.expand_dims, functions.loop_reduce, functions.device_print, creation.ndarray,
            creation.zeros, creation.ones, creation.full, creation.zeros_like, creation.empty_like, finfo,
            composites.shared_constant, composites.shared_identity_matrix, composites.rand,
            composites.random_seed, composites.gather_flattened, composites.where, composites.softmax,
            composites.rms_norm, composites.dropout, grids.gemm_grid, grids.gemm_stationary_grid,
            value_programs.all_reduce, run_time.atomic_rmw,
        )
    },
    **{
        f.__name__: f
        for f in (
            creation.par_dim, grids.arange, loops.affine_range, loops.sequential_range,
            loops.static_range, programs.program_id, programs.num_programs, programs.program_ndim,
            programs.nc, programs.spmd_dim, host.static_cast, host.bfp16,
        )
    },
    "mgrid": grids.mgrid,
    "ds": placed("ds")(indexing.ds),
    "tile_size": tile_size,
    "fp32": fp32,
    "sbuf": creation.sbuf, "psum": creation.psum, "hbm": creation.hbm,
    "private_hbm": creation.private_hbm, "shared_hbm": creation.shared_hbm,
}  # fmt: skip


_OPERANDS = (Tensor, *NUMBERS)


def _operator(name: str, reverse: bool = False) -> Callable[..., Any]:
    def method(self: Tensor, other: Any) -> Any:
        if isinstance(other, Index) and name in ("add", "subtract") and (name == "add" or not reverse):
            return TileIndex(settled(self), other if name == "add" else -other)
        if not isinstance(other, _OPERANDS) and not hasattr(other, "assign_to"):
            return NotImplemented if name in ("equal", "not_equal") else refuse_operand(self, name, other)
        result = functions.binary(name, other, self) if reverse else functions.binary(name, self, other)
        partitions = {t.layout.partitions for t in (self, other) if isinstance(t, Tensor)}
        if len(partitions) > 1:
            program = current().program
            words = f"{name} repeats a tile of one partition {max(partitions)} times"
            program.marks.odd.append(("partitions", words, len(program) - 1))
        return result

    return method


def _floor_divide(self: Tensor, other: Any) -> NoReturn:
    raise SpellingError("tiles have no operator //", hint="write nl.floor(nl.divide(x, y))").located(
        place_of(user_frame()), "operator //", [self.describe()]
    )


def _in_place(name: str) -> Callable[..., Any]:
    def method(self: Tensor, other: Any) -> Any:
        return in_place(name, self, other)

    return method


_DUNDERS = {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "pow": "power",
            "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift",
            "rshift": "right_shift", "mod": "mod"}  # fmt: skip
_COMPARISON_DUNDERS = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
                       "ge": "greater_equal"}  # fmt: skip

for _dunder, _name in _DUNDERS.items():
    setattr(Tensor, f"__{_dunder}__", _operator(_name))
    setattr(Tensor, f"__r{_dunder}__", _operator(_name, reverse=True))
    setattr(Tensor, f"__i{_dunder}__", _in_place(_name))
for _dunder, _name in _COMPARISON_DUNDERS.items():
    setattr(Tensor, f"__{_dunder}__", _operator(_name))
_OTHER_DUNDERS: dict[str, Callable[..., Any]] = {
    "neg": NAMES["negative"],
    "invert": NAMES["invert"],
    "matmul": NAMES["matmul"],
    "floordiv": _floor_divide,
    "setitem": assignment.set_item,
}
for _dunder, _function in _OTHER_DUNDERS.items():
    setattr(Tensor, f"__{_dunder}__", _function)
setattr(Tensor, "broadcast_to", functions.broadcast_method)  # noqa: B010
