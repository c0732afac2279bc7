"""Tiles in the hands of functions that compute on the host: those of NumPy, PyTorch, JAX and Python itself.

A tile stands for elements that the device holds while the kernel runs; the host has none. Whoever asks for
them is refused here, with the name in `nki.language` that means the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from .._lazy import torch
from ..errors import SpellingError, shown
from ..tiles.tile import HBM, View
from ..trace.source import name_of, place_of, text_at, user_frame
from ..tracebacks import is_library, is_users_file
from .missing import CASTS, NUMBER_HINT, TO_HOST, MissingMemberError, counterpart

# What a number of NumPy on the left of a tile asks for: the operator of the tile.
_REFLECTED = {
    np.add: "__radd__", np.subtract: "__rsub__", np.multiply: "__rmul__", np.divide: "__rtruediv__",
    np.power: "__rpow__", np.mod: "__rmod__", np.floor_divide: "__rfloordiv__", np.matmul: "__rmatmul__",
    np.bitwise_and: "__rand__", np.bitwise_or: "__ror__", np.bitwise_xor: "__rxor__",
    np.left_shift: "__rlshift__", np.right_shift: "__rrshift__", np.equal: "__eq__",
    np.not_equal: "__ne__", np.less: "__gt__", np.less_equal: "__ge__", np.greater: "__lt__",
    np.greater_equal: "__le__",
}  # fmt: skip
# Python's own functions that ask for one element, by the method that each calls.
_ASKING = {"__int__": "int", "__float__": "float", "__complex__": "complex", "__index__": "index",
           "__round__": "round"}  # fmt: skip
# Those that go through the elements one by one, or take a tile apart.
_FOLDS = ("all", "any", "max", "min", "sorted", "sum")
_REDUCTIONS = ("all", "max", "mean", "min", "prod", "sum", "var")
_LOAD = "pass the array as an argument of the kernel, and load it"
_WHEN = "a tile has its elements only when the kernel runs on the device"


class HostUseError(SpellingError, TypeError):
    """The host asks for elements of a tile."""


def keep_from_host(cls: type, words: Mapping[str, Any]) -> None:
    """Refuse tensors of a class to functions of the host.

    Args:
        cls: the class of a spelling.
        words: names of its `nki.language`, which hints name.
    """

    reflected = {ufunc: getattr(cls, name) for ufunc, name in _REFLECTED.items() if hasattr(cls, name)}

    def array_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if isinstance(inputs[0], np.generic) and ufunc in reflected and method == "__call__":
            return reflected[ufunc](inputs[1], inputs[0])
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        _refuse(f"np.{name}", inputs, kwargs, words)

    def array_function(self: Any, function: Any, types: Any, args: Any, kwargs: Any) -> NoReturn:
        module = (function.__module__ or "numpy").replace("numpy", "np", 1)
        _refuse(f"{module}.{function.__name__}", args, kwargs, words)

    def torch_function(cls: type, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        name = torch("overrides").resolve_name(function) or f"torch.{function.__name__}"
        _refuse(name, args, kwargs or {}, words)

    def jax_array(self: Any) -> NoReturn:
        # a property, because JAX asks whether there is one before it knows what to do with it
        _refuse(_called(user_frame()) or "jax", [self], {}, words)

    def absolute(self: Any) -> NoReturn:
        _refuse("abs", [self], {}, words)

    iterate_own: Callable[[Any], Any] = vars(cls)["__iter__"]

    def iterate(self: Any) -> Any:
        called = _called(user_frame())
        if called in _FOLDS:
            _refuse(called, [self], {}, words)
        return iterate_own(self)

    def length(self: Any) -> int:
        called = _called(user_frame())
        if called == "torch.tensor":
            # which asks for the elements one by one
            _refuse(called, [self], {}, words)
        return int(self.shape[0])

    def reduce(self: Any) -> NoReturn:
        frame = user_frame()
        while frame.f_back is not None and frame.f_globals.get("__name__") in ("copy", "pickle"):
            frame = frame.f_back
        error = HostUseError(f"Python neither copies nor pickles a tile; {_WHEN}", hint="write nl.copy(tile)")
        name = self.storage.name or name_of(self, frame) or "(unnamed)"
        raise error.located(place_of(frame), _called(frame), [f"{name}: {self.layout}"])

    members: dict[str, Any] = {method: _asking(called) for method, called in _ASKING.items()}
    members |= {
        "__array_ufunc__": array_ufunc,
        "__array_function__": array_function,
        "__torch_function__": classmethod(torch_function),
        "__jax_array__": property(jax_array),
        "__abs__": absolute,
        "__iter__": iterate,
        "__len__": length,
        "__reduce__": reduce,
    }
    for name, member in members.items():
        setattr(cls, name, member)


def _asking(called: str) -> Callable[..., NoReturn]:
    """The method of a tensor that one of Python's functions calls for a number."""

    def method(self: View, *args: Any) -> NoReturn:
        raise HostUseError(f"it asks the host for an element; {_WHEN}", hint=NUMBER_HINT).located(
            place_of(user_frame()), called, [self.describe()]
        )

    return method


def refuse_member(tensor: View, name: str, words: Mapping[str, Any]) -> None:
    """Refuse a member that arrays of the host have and tensors of a kernel have not; others are passed over.

    Raises:
        MissingMemberError: if the name is one.
    """
    frame = user_frame()
    word = counterpart(name, words)
    if name in TO_HOST:
        problem, hint = f"it takes elements to the host; {_WHEN}", NUMBER_HINT
    elif word or name in CASTS:
        problem = f"a tensor of a kernel has no {name}; functions of nki.language take it"
        hint = _hint(word, [tensor], {}, frame) if word else "write nl.copy(tile, dtype=...)"
    else:
        return
    raise MissingMemberError(problem, hint=hint).located(
        place_of(frame), f"tensor.{name}", [tensor.describe()]
    )


def about_host_value(error: AttributeError) -> MissingMemberError | None:
    """What to tell of a line of the user's that asks a plain value of Python's for what arrays have."""
    value, trace = error.obj, error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    is_plain = value is None or isinstance(value, list | tuple | dict | str | int | float)
    if trace is None or not is_plain or not hasattr(np.ndarray, error.name or ""):
        return None
    filename = trace.tb_frame.f_code.co_filename
    if is_library(filename) or not is_users_file(filename):
        return None
    called = name_of(value, trace.tb_frame) or "it"
    kind = "None" if value is None else f"of type {type(value).__name__}"
    hint = "pass an array" if value is None else f"pass np.array({called}) to the kernel"
    if isinstance(value, list | tuple) and any(isinstance(part, View) for part in value):
        hint = f"take one of its tensors, as in {called}[0]"
    return MissingMemberError(
        f"{called} is {kind}, which has no {error.name}: only arrays that a kernel is given become tensors",
        hint=hint,
    )


def refuse_operand(tensor: View, called: str, other: Any) -> Any:
    """Refuse the other operand of an operator, unless it is of nkilab's types, whose operator is asked next.

    Raises:
        HostUseError: if it is of the host.
    """
    if type(other).__module__.startswith("nkilab."):
        return NotImplemented
    hint = _LOAD if hasattr(other, "__array__") else ""
    raise HostUseError(f"an operand is {shown(other)}; it must be a tile or a number", hint=hint).located(
        place_of(user_frame()), called, [tensor.describe()]
    )


def _refuse(
    called: str, args: Sequence[Any], kwargs: Mapping[str, Any], words: Mapping[str, Any]
) -> NoReturn:
    """Refuse a function of the host, with the call that means the same in a kernel."""
    frame, word = user_frame(), counterpart(called.rpartition(".")[2].strip("_"), words)
    operands = [*args, *kwargs.values()]
    if any(hasattr(value, "__array__") and not isinstance(value, View | np.generic) for value in operands):
        hint = _LOAD
    elif word:
        hint = _hint(word, args, kwargs, frame)
    else:
        hint = "compute on the host before the call, or with functions of nki.language and nki.isa"
    facts = dict.fromkeys(tile.describe() for tile in _tiles_in(operands))
    # no TypeError before it leaves the kernel: PyTorch and JAX would put one of their own in its place
    raise SpellingError(f"it computes on the host; {_WHEN}", hint=hint).located(
        place_of(frame), called, [*facts]
    )


def _hint(word: str, args: Sequence[Any], kwargs: Mapping[str, Any], frame: FrameType) -> str:
    """The call of a word of `nki.language` with these arguments."""
    if any(tile.layout.memory == HBM for tile in _tiles_in(args)):
        return f"load it to sbuf, then write nl.{word} of the tile"
    written = [name_of(arg, frame) or "tile" if isinstance(arg, View) else shown(arg) for arg in args]
    axis = kwargs.get("axis", kwargs.get("dim", 1 if word in _REDUCTIONS else None))
    written += [f"axis={axis}"] if axis is not None else []
    return f"write nl.{word}({', '.join(written)})"


def _called(frame: FrameType) -> str:
    """The function that a frame calls, as it is written there."""
    return text_at(frame).partition("(")[0]


def _tiles_in(values: Any) -> Iterator[View]:
    """The tensors among arguments, also those in lists and tuples."""
    for value in values:
        if isinstance(value, View):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tiles_in(value)
