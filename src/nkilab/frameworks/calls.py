"""Calls of kernels inside frameworks: their arrays apart, and what they return told from shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .. import api
from ..arrays import ArraySpec, dtype_of, framework_of
from ..dialects.kernel import Kernel
from ..errors import UseError
from ..launches import bind, launch


@dataclass(frozen=True)
class Slot:
    """Where an array stands in a call or a result.

    Args:
        number: of the array.
        name: the parameter, or the place inside it.
    """

    number: int
    name: str = ""

    def __repr__(self) -> str:
        return self.name or f"#{self.number}"


@dataclass(frozen=True)
class Call:
    """A call without its arrays.

    Args:
        grid: program instances along each axis.
        args: positional arguments, with slots for arrays.
        kwargs: keyword arguments, likewise.
        slots: of the arrays, in the order of the parameters.
        constants: parameters that hold no array, by name.
    """

    grid: tuple[Any, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    slots: tuple[Slot, ...]
    constants: dict[str, Any]

    def __str__(self) -> str:
        words = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"[{', '.join(map(repr, self.grid))}]({', '.join(words)})"


@dataclass(frozen=True)
class Outline:
    """What a call returns and writes, told from shapes alone.

    Args:
        results: of the kernel, with slots for arrays.
        specs: of these arrays.
        changed: parameters that the kernel writes.
    """

    results: Any
    specs: tuple[ArraySpec, ...]
    changed: tuple[str, ...] = ()


def taken_apart(
    kernel: Kernel, grid: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Call, list[Any]]:
    """A call without its arrays, and the arrays.

    Raises:
        UseError: if the arguments do not fit the parameters.
    """
    bound = bind(kernel, args, kwargs)
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
    if framework_of(value):
        arrays.append(value)
        return Slot(len(arrays) - 1, name)
    if isinstance(value, dict):
        return {k: slotted(v, f"{name}[{k!r}]", arrays) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return _like(value, [slotted(v, f"{name}[{i}]", arrays) for i, v in enumerate(value)])
    return value


def filled(value: Any, of: Callable[[Slot], Any]) -> Any:
    """`value` with what a function makes of them in place of slots."""
    if isinstance(value, Slot):
        return of(value)
    if isinstance(value, dict):
        return {k: filled(v, of) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return _like(value, [filled(v, of) for v in value])
    return value


def _like(value: Any, items: list[Any]) -> Any:
    return value._make(items) if hasattr(value, "_make") else type(value)(items)


def run(kernel: Kernel, call: Call, arrays: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Run a kernel; returns its results with slots in place of arrays, and these."""
    args, kwargs = filled((call.args, call.kwargs), lambda slot: arrays[slot.number])
    held = kernel[call.grid] if call.grid else kernel
    results: list[Any] = []
    return slotted(held(*args, **kwargs), "", results), results


def specs_of(call: Call, arrays: Sequence[Any]) -> list[ArraySpec]:
    """Arrays, or what stands in for them while a framework compiles, as specs.

    Raises:
        UseError: if no tile holds one of them; names the argument.
    """
    specs = []
    for slot, array in zip(call.slots, arrays, strict=True):
        dtype = dtype_of(array, slot.name)
        shape = tuple(int(n) for n in array.shape)
        if not shape or 0 in shape:
            raise UseError(
                f"argument {slot.name} has shape {list(shape)}; a tensor has at least one element and axis"
            )
        specs.append(ArraySpec(shape, dtype))
    return specs


def outline_of(kernel: Kernel, call: Call, specs: Sequence[ArraySpec]) -> Outline:
    """What a call returns and writes: the kernel is traced without data.

    Raises:
        KernelError: what the kernel asks for and the machine does not allow, or only data can tell.
    """
    args, kwargs = filled((call.args, call.kwargs), lambda slot: specs[slot.number])
    held = kernel[call.grid] if call.grid else kernel
    launched = launch(held, args, kwargs, api.machine_for(held), has_data=False)
    found: list[Any] = []
    results = slotted(launched.results, "", found)
    return Outline(results, tuple(found), launched.changed)


def outline_given(results: Any) -> Outline:
    """The outline that a user's function tells by specs."""
    found: list[Any] = []
    told = slotted(results, "", found)
    return Outline(told, tuple(found))
