"""`nki.language`: the table of its names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ...errors import RuleError
from ...isa.activations import ACTIVATIONS
from ...isa.operators import OPERATORS
from ...tiles.dtypes import DTYPES
from ...tiles.tile import HBM, PSUM, SBUF, elements_text, note_look
from ...trace.builder import no_tensor
from ...trace.session import ask, current
from ...tracebacks import leave_out_ours
from .. import indexing, loops
from .. import program_ids as programs
from ..parameters import Word
from ..places import placed
from ..tile_size import tile_size
from ..versions import require, version_of
from . import creation, functions, registers
from .objects import NKIObject
from .regions import REGIONS, MemoryRegion
from .tensor import Tensor


class Function:
    """A function of nki.language, which may also be a word for `op=`."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.__name__ = self.__qualname__ = self.name = name
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        self.call = placed(name)(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.call(*args, **kwargs)
        except Exception as error:
            leave_out_ours(error)
            raise

    def __repr__(self) -> str:
        return f"nl.{self.name}"


_OF_TWO = " of two tiles of one shape, or a tile and a number"
_Compute = Callable[..., Tensor]


def _binary(name: str, compute: _Compute = functions.binary, what: str = _OF_TWO) -> _Compute:
    def call(x: Any, y: Any, dtype: Any = None) -> Tensor:
        return compute(name, x, y, dtype)

    return _documented(call, f"`x {name} y`{what}.")


def _unary(name: str, compute: _Compute = functions.unary, engine: str = "ScalarE") -> _Compute:
    def call(x: Any, dtype: Any = None) -> Tensor:
        return compute(name, x, dtype)

    return _documented(call, f"`{name}(x)`, element by element, on {engine}.")


def _reducing(name: str, operator: str) -> Callable[..., Tensor]:
    def call(x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> Tensor:
        return functions.reduction(operator, x, axis, dtype, keepdims)

    return _documented(call, f"The {name} over the last free axes, on VectorE.")


def _documented(function: Callable[..., Tensor], doc: str) -> Callable[..., Tensor]:
    function.__doc__ = doc
    return function


_SIMULATED = ("divide", "mod", "fmod")
_ON_VECTOR = ("invert", "logical_not")
_OWN_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "power": functions.power, "rsqrt": functions.rsqrt, "reciprocal": functions.reciprocal,
    "negative": functions.negative, "sin": functions.sin, "copy": functions.copy, "mean": functions.mean,
    "var": functions.var, "all": functions.all_of, "softmax": functions.softmax,
    "rms_norm": functions.rms_norm, "where": functions.where, "dropout": functions.dropout,
    "load": functions.load, "store": functions.store, "load_transpose2d": functions.load_transpose2d,
    "transpose": functions.transpose, "matmul": functions.matmul, "broadcast_to": functions.broadcast_to,
    "expand_dims": functions.expand_dims, "gather_flattened": functions.gather_flattened,
    "ndarray": creation.ndarray, "zeros": creation.zeros, "ones": creation.ones, "full": creation.full,
    "zeros_like": creation.zeros_like, "empty_like": creation.empty_like, "rand": creation.rand,
    "random_seed": creation.random_seed, "shared_constant": creation.shared_constant,
    "shared_identity_matrix": creation.shared_identity_matrix, "is_hbm": creation.memory_test(HBM),
    "is_on_chip": creation.memory_test(SBUF, PSUM), "is_psum": creation.memory_test(PSUM),
    "is_sbuf": creation.memory_test(SBUF),
}  # fmt: skip
_REDUCING = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
_BINARY = [
    n for n, op in OPERATORS.items()
    if not op.is_unary and n not in _SIMULATED and n not in _OWN_FUNCTIONS
]  # fmt: skip
_UNARY = [n for n in ACTIVATIONS if n not in _OWN_FUNCTIONS and n not in ("bypass", "prelu")]
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{n: _binary(n) for n in _BINARY},
    **{n: _binary(n, functions.simulated, ", in simulation only: no engine divides") for n in _SIMULATED},
    **{n: _unary(n) for n in _UNARY},
    **{n: _unary(n, functions.of_vector_engine, "VectorE") for n in _ON_VECTOR},
    **{n: _reducing(n, op) for n, op in _REDUCING.items()},
    **_OWN_FUNCTIONS,
}
# Operators and functions of instructions that nki.language does not call.
_WORDS = ("average", "bypass", "prelu")


@placed("no_reorder")
def no_reorder() -> AbstractContextManager[None]:
    """Instructions in this block run in program order, which is the order they have here anyway."""
    return _in_order()


@contextmanager
def _in_order() -> Iterator[None]:
    program = current().program
    first = len(program)
    yield
    program.marks.blocks.append((first, len(program)))


@placed("device_print")
def device_print(print_prefix: str, tensor: Any) -> None:
    """Print a tensor to standard output, after a prefix."""
    if not isinstance(tensor, Tensor):
        raise no_tensor("tensor", tensor, "it must be a tensor of the kernel")
    if tensor.layout.memory == PSUM:
        raise RuleError(
            "tensor is in psum; it must be in sbuf or hbm", hint="copy it to sbuf with tensor_copy first",
            source="nki.language.device_print",
        )  # fmt: skip
    if tensor.layout.memory == HBM and len(tensor.shape) == 1:
        require("printed_row", version_of(current()), "device_print")
    note_look(tensor)
    if current().has_data:
        print(f"{print_prefix}{elements_text(tensor)}")


@placed("par_dim")
def par_dim(extent: Any) -> int:
    """The extent itself: the first axis is the partition axis here."""
    ask().notice("nl.par_dim: nki takes the first axis as the partition; the mark has no effect")
    return indexing.whole_number(extent, "extent")


@placed("num_programs")
def num_programs(axes: Any = 0) -> Any:
    """Instances along an axis, along several as a tuple, or in all if `axes` is None."""
    return programs.num_programs(axes)


LANGUAGE: dict[str, Any] = {
    **{n: n for n in DTYPES}, "bool_": "bool", "DType": str,
    **{n: Word(n) for n in _WORDS},
    **{n: Function(n, f) for n, f in _FUNCTIONS.items()},
    **REGIONS, "MemoryRegion": MemoryRegion, "NkiTensor": Tensor, "NKIObject": NKIObject,
    "ds": placed("ds")(indexing.ds), "device_print": device_print, "par_dim": par_dim,
    "no_reorder": no_reorder,
    "affine_range": loops.affine_range, "sequential_range": loops.sequential_range,
    "static_range": loops.static_range, "range": range, "program_id": programs.program_id,
    "num_programs": num_programs, "program_ndim": programs.program_ndim, "tile_size": tile_size,
    **registers.LANGUAGE_NAMES,
}  # fmt: skip
