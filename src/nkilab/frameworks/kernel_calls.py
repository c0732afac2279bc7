"""Calls of kernels inside frameworks: their arrays apart, and what they return told from shapes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Self

from msgspec import Struct

from .. import api
from ..arrays import ArraySpec, dtype_of, shape_of
from ..border import bind, map_arrays
from ..dialects.kernel import Kernel
from ..errors import UsageError, UseError
from ..launches import launch
from ..trace.source import place_of, user_frame
from ..tracebacks import public


class Slot(Struct, frozen=True):
    """Where an array stands in a call or a result."""

    number: int  # of the array
    name: str = ""  # the parameter, or the place inside it

    def __repr__(self) -> str:
        return self.name or f"#{self.number}"


class Call(Struct, frozen=True):
    """A call without its arrays."""

    grid: tuple[Any, ...]  # program instances along each axis
    args: tuple[Any, ...]  # positional arguments, with slots for arrays
    kwargs: dict[str, Any]  # keyword arguments, likewise
    slots: tuple[Slot, ...]  # of the arrays, in the order of the parameters
    constants: dict[str, Any]  # parameters that hold no array, by name

    def __str__(self) -> str:
        words = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"[{', '.join(map(repr, self.grid))}]({', '.join(words)})"


class Outline(Struct, frozen=True):
    """What a call returns and writes, told from shapes alone."""

    results: Any  # of the kernel, with slots for arrays
    specs: tuple[ArraySpec, ...]  # of these arrays
    changed: tuple[str, ...] = ()  # parameters that the kernel writes
    origins: tuple[str, ...] = ()  # per array among the results the parameter that it is, or ""


def taken_apart(
    kernel: Kernel, grid: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Call, list[Any]]:
    """A call without its arrays, and the arrays.

    Raises:
        UseError: if the arguments do not fit the parameters.
    """
    try:
        bound = bind(kernel, args, kwargs)
    except UseError as error:
        raise error.located(place_of(user_frame()), kernel.name) from None
    arrays: list[Any] = []
    constants = {}
    for name, value in bound.arguments.items():
        before = len(arrays)
        bound.arguments[name] = slotted(value, name, arrays)
        if len(arrays) == before:
            constants[name] = value
    slots: list[Slot] = []
    filled((bound.args, bound.kwargs), lambda slot: slots.append(slot))
    slots.sort(key=lambda slot: slot.number)
    return Call(grid, bound.args, bound.kwargs, tuple(slots), constants), arrays


def slotted(value: Any, name: str, arrays: list[Any]) -> Any:
    """`value` with slots in place of arrays, which are added to a list."""

    def slot(array: object, place: str) -> Slot:
        arrays.append(array)
        return Slot(len(arrays) - 1, place)

    return map_arrays(value, name, slot)


def filled(value: Any, of: Callable[[Slot], Any]) -> Any:
    """`value` with what a function makes of them in place of slots."""
    if isinstance(value, Slot):
        return of(value)
    if isinstance(value, dict):
        return {k: filled(v, of) for k, v in value.items()}
    if isinstance(value, list | tuple):
        items = [filled(v, of) for v in value]
        return value._make(items) if hasattr(value, "_make") else type(value)(items)
    return value


def run(kernel: Kernel, call: Call, arrays: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Run a kernel; returns its results with slots in place of arrays, and these."""
    args, kwargs = filled((call.args, call.kwargs), lambda slot: arrays[slot.number])
    instance = kernel[call.grid] if call.grid else kernel
    results: list[Any] = []
    return slotted(instance(*args, **kwargs), "", results), results


def specs_of(kernel: Kernel, call: Call, arrays: Sequence[Any]) -> list[ArraySpec]:
    """Arrays, or what stands in for them while a framework compiles, as specs.

    Raises:
        UseError: if no tile holds one of them; names the argument.
    """
    specs = []
    for slot, array in zip(call.slots, arrays, strict=True):
        try:
            dtype = dtype_of(array, slot.name)
            specs.append(ArraySpec(shape_of(array, slot.name), dtype))
        except UseError as error:
            raise error.located(place_of(user_frame()), kernel.name) from None
    return specs


def outline_of(kernel: Kernel, call: Call, specs: Sequence[ArraySpec]) -> Outline:
    """What a call returns and writes: the kernel is traced without data.

    Raises:
        KernelError: what the kernel asks for and the machine does not allow, or only data can tell.
    """
    args, kwargs = filled((call.args, call.kwargs), lambda slot: specs[slot.number])
    instance = kernel[call.grid] if call.grid else kernel
    launched = launch(instance, args, kwargs, api.machine_for(instance), has_data=False)
    arrays: list[Any] = []
    results = slotted(launched.results, "", arrays)
    return Outline(results, tuple(arrays), launched.changed, launched.origins)


class Outlines:
    """What calls of one kernel return, each told once.

    Args:
        kernel: whose calls they are.
        reuse: a function of the user's from the arguments, as specs, to specs of the results, or None.
    """

    def __init__(self, kernel: Kernel, reuse: Callable[..., Any] | None) -> None:
        self._kernel = kernel
        self.reuse = reuse
        self._known: dict[Any, tuple[Call, Outline]] = {}

    def of(self, call: Call, specs: Sequence[ArraySpec]) -> Outline:
        """What a call returns; see `outline_of`."""
        key = (str(call), tuple((s.shape, s.dtype) for s in specs), api.machine_for(self._kernel).label)
        known = self._known.get(key)
        # constants that differ may print alike
        if known is None or known[0] != call:
            known = self._known[key] = call, self._told_of(call, specs)
        return known[1]

    def _told_of(self, call: Call, specs: Sequence[ArraySpec]) -> Outline:
        if self.reuse is None:
            return outline_of(self._kernel, call, specs)
        args, kwargs = filled((call.args, call.kwargs), lambda slot: specs[slot.number])
        return outline_given(self.reuse(*args, **kwargs))


def outline_given(results: Any) -> Outline:
    """The outline that a user's function tells by specs."""
    arrays: list[Any] = []
    slots = slotted(results, "", arrays)
    return Outline(slots, tuple(arrays))


SAVES = ("inputs", "results")


class Backward(Struct, frozen=True):
    """How gradients are made of what a forward pass saved."""

    name: str  # of the kernel of the forward pass
    function: Any  # of the user's, or a wrapped kernel; None for none
    saves: tuple[str, ...]  # what it is given before the gradients, of `SAVES`
    example: str  # how one is given, for the message where there is none

    def kept(self, inputs: Sequence[Any], results: Sequence[Any]) -> tuple[Any, ...]:
        """What is saved of a forward pass."""
        by_kind = {"inputs": inputs, "results": results}
        return tuple(array for kind in SAVES if kind in self.saves for array in by_kind[kind])

    def __call__(
        self, kept: Sequence[Any], gradients: Sequence[Any], constants: dict[str, Any],
        is_float: Sequence[bool],
    ) -> list[Any]:  # fmt: skip
        """A gradient per array of a call, None for those that are no floats.

        Raises:
            UsageError: if there is no function, or it returns another number of gradients.
        """
        if self.function is None:
            raise UsageError(f"{self.name} has no backward", hint=f"pass one: {self.example}")
        inner = getattr(self.function, "kernel", None)
        parameters = inspect.signature(self.function if inner is None else inner.function).parameters
        taken = {name: constants[name] for name in parameters if name in constants}
        answer = self.function(*kept, *gradients, **taken)
        grads = list(answer) if isinstance(answer, tuple | list) else [answer]
        if len(grads) != sum(is_float):
            raise UsageError(
                f"backward of {self.name} returns {len(grads)} gradients; "
                f"{sum(is_float)} arguments are arrays of floats",
                hint="return one per array of floats, in the order of the parameters",
            )
        rest = iter(grads)
        return [next(rest) if floats else None for floats in is_float]


class WrappedKernel:
    """A kernel as a function of a framework's arrays. Abstract: each framework says how a call runs.

    Args:
        kernel: with or without a grid.
        backward: what makes its gradients.
        results: a function from the arguments to specs of the results; None to trace the kernel for them.
    """

    def __init__(self, kernel: Kernel, backward: Backward, results: Callable[..., Any] | None) -> None:
        self.kernel = kernel
        self._backward = backward
        self._outlines = Outlines(kernel, results)
        self.__name__ = kernel.name
        self.__doc__ = kernel.function.__doc__

    @public
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays; returns new arrays, in the structure that the kernel returns."""
        return self._launched(self.kernel.grid, args, kwargs)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """The kernel with a launch grid."""
        sizes = grid if isinstance(grid, tuple) else (grid,)
        return public(lambda *args, **kwargs: self._launched(sizes, args, kwargs))

    def __copy__(self) -> Self:
        """The function itself: PyTorch knows it by its name, and models that are copies share it."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """As a shallow copy."""
        return self

    def _launched(self, grid: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a call on program instances along each axis returns."""
        raise NotImplementedError


def checked(kernel: Any, backward: Any, saves: Sequence[str], grid: Any) -> Kernel:
    """The kernel that is to be wrapped, with its grid.

    Raises:
        UsageError: if it is none, or what goes with it makes no sense.
    """
    checked_kernel = api.as_kernel(kernel)
    if isinstance(saves, str) or any(kind not in SAVES for kind in saves):
        raise UsageError(f"saves is {saves!r}; it must be a tuple of {' and '.join(map(repr, SAVES))}")
    if backward is not None and not callable(backward):
        raise UsageError(f"backward is {backward!r}; it must be a kernel or a function")
    return checked_kernel[grid] if grid else checked_kernel
