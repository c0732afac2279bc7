"""What a point of a space sets: parameters of the kernel, fields of them, globals of modules, the launch.

A name is, in this order, a parameter of the kernel (`rows`), a field of one (`config.rows`), a word of the
launch (`grid`, `lnc`, `ranks`, `dtype`), or a global of the kernel's module (`TILE`) or of another module
that this one names (`sizes.TILE`).
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ..arguments import extents
from ..arrays import ArraySpec, framework_of
from ..dialects.kernel import Kernel
from ..dialects.program_ids import CoreCount
from ..errors import NkilabError, UsageError, did_you_mean
from ..tiles.dtypes import as_dtype
from .expressions import Value
from .space import Point, Space

LAUNCH = ("grid", "lnc", "ranks", "dtype")
HINT = (
    "name a parameter of the kernel, a field of one (config.rows), a global of its module, or grid, lnc, "
    "ranks, dtype"
)
_CONSTANTS = (int, float, str)


@dataclass(frozen=True)
class BoundCall:
    """A call of a kernel with a point."""

    kernel: Kernel  # with the grid of the point
    # args, kwargs: that it is called with
    args: tuple[object, ...]
    kwargs: dict[str, object]
    ranks: int = 1  # that run it together
    # globals to set: the namespace, the name in it, and the value
    constants: tuple[tuple[MutableMapping[str, object], str, Value], ...] = ()

    @contextmanager
    def constants_set(self) -> Iterator[None]:
        """The globals have the point's values inside, and their own again after it."""
        before = [(namespace, name, namespace[name]) for namespace, name, _ in self.constants]
        try:
            for namespace, name, value in self.constants:
                namespace[name] = value
            yield
        finally:
            for namespace, name, original in before:
                namespace[name] = original


def bound(kernel: Kernel, args: tuple[object, ...], kwargs: Mapping[str, object], point: Point) -> BoundCall:
    """A call with the values of a point.

    Args:
        kernel: with a grid of its own, which a point may replace.
        args, kwargs: of the call, besides the point.
        point: values by name.

    Raises:
        UsageError: if a value cannot be what its name stands for.
    """
    call = BoundCall(kernel, args, dict(kwargs))
    for name, value in point.items():
        call = _SETTERS[_kind_of(kernel, name)](call, name, value)
    return call


def check_names(kernel: Kernel, space: Space) -> None:
    """Refuse a space with names that stand for nothing.

    Raises:
        UsageError: at the first such name.
    """
    for name in space.names:
        if _kind_of(kernel, name):
            continue
        known = [*_parameters(kernel), *LAUNCH, *(n for n in kernel.function.__globals__ if n.isupper())]
        guess = did_you_mean(name, known)
        raise UsageError(
            f"{kernel.name} has no parameter {name}; it has {', '.join(_parameters(kernel))}",
            hint=f"{guess}; {HINT}" if guess else HINT,
        )


def setting_of(kernel: Kernel, name: str) -> str:
    """What a name of a point sets: "parameter", "field", "constant" or "launch"."""
    kind = _kind_of(kernel, name)
    return "launch" if kind in LAUNCH else kind


def _kind_of(kernel: Kernel, name: str) -> str:
    """What a name stands for: a key of `_SETTERS`; "" if for nothing."""
    parameters = _parameters(kernel)
    first, _, rest = name.partition(".")
    if name in parameters:
        return "parameter"
    if rest and first in parameters:
        return "field"
    if name in LAUNCH:
        return name
    if _namespace(kernel, name) is not None:
        return "constant"
    takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    return "parameter" if takes_all and not rest else ""


def _parameters(kernel: Kernel) -> Mapping[str, inspect.Parameter]:
    return kernel.signature.parameters


def _namespace(kernel: Kernel, name: str) -> tuple[MutableMapping[str, object], str] | None:
    """Where a constant lies that the kernel's module names, and its name there; None if there is none."""
    names: MutableMapping[str, object] = kernel.function.__globals__
    *modules, last = name.split(".")
    for module in modules:
        inner = names.get(module)
        if not isinstance(inner, ModuleType):
            return None
        names = vars(inner)
    return (names, last) if isinstance(names.get(last), _CONSTANTS) else None


def _with_parameter(call: BoundCall, name: str, value: object) -> BoundCall:
    return dataclasses.replace(call, kwargs={**call.kwargs, name: value})


def _with_field(call: BoundCall, name: str, value: Value) -> BoundCall:
    """A parameter that is a record, with one of its fields replaced."""
    base, _, field = name.partition(".")
    passed = call.kernel.signature.bind_partial(*call.args, **call.kwargs)
    parameter = passed.signature.parameters[base]
    default = None if parameter.default is inspect.Parameter.empty else parameter.default
    record = passed.arguments.get(base, default)
    if record is None:
        record = _default_record(call.kernel, name, parameter)
    changed = _replaced(record, name, field, value)
    if base not in passed.arguments:
        return _with_parameter(call, base, changed)
    passed.arguments[base] = changed
    return dataclasses.replace(call, args=passed.args, kwargs=passed.kwargs)


def _default_record(kernel: Kernel, name: str, parameter: inspect.Parameter) -> object:
    """What the class of a parameter makes without arguments.

    It is that of its annotation, else the only record class of the kernel's module that has the field.
    """
    base, _, field = name.partition(".")
    names = kernel.function.__globals__
    kind = parameter.annotation
    if isinstance(kind, str):
        kind = names.get(kind.removesuffix(" | None").strip())
    if not isinstance(kind, type) or kind is inspect.Parameter.empty:
        records = {one for one in names.values() if isinstance(one, type) and field in _fields_of(one)}
        kind = records.pop() if len(records) == 1 else None
    try:
        if kind is not None:
            return kind()
    except TypeError:
        pass
    raise UsageError(
        f"{name} is searched, and {base} is None with no class named that makes one without arguments",
        hint=f"give {base} a default in the kernel, or name its class in the annotation",
    )


def _fields_of(kind: type) -> tuple[str, ...]:
    """Names of the fields of a record class: a dataclass or a named tuple."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    fields: tuple[str, ...] = getattr(kind, "_fields", ())
    return fields


def _replaced(record: object, name: str, field: str, value: Value) -> object:
    """A copy of a record with one field replaced."""
    if not hasattr(record, field):
        fields = [n for n in dir(record) if not n.startswith("_")]
        raise UsageError(
            f"{name} is searched; a {type(record).__name__} has no {field}",
            hint=did_you_mean(field, fields) or f"it has {', '.join(fields[:8])}",
        )
    try:
        if dataclasses.is_dataclass(record) and not isinstance(record, type):
            return dataclasses.replace(record, **{field: value})
        if isinstance(record, tuple) and hasattr(record, "_replace"):
            return record._replace(**{field: value})
        changed = copy.copy(record)
        setattr(changed, field, value)
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"{name} cannot be {value!r}: {error}") from None
    return changed


def _with_constant(call: BoundCall, name: str, value: Value) -> BoundCall:
    place = _namespace(call.kernel, name)
    assert place is not None
    return dataclasses.replace(call, constants=(*call.constants, (*place, value)))


def _with_lnc(call: BoundCall, name: str, value: Value) -> BoundCall:
    cores = _whole(name, value)
    extent = cores if call.kernel.spelling == "nki" else CoreCount(cores)
    return dataclasses.replace(call, kernel=call.kernel[extent])


def _with_dtype(call: BoundCall, name: str, value: Value) -> BoundCall:
    """Every array of floating-point numbers with another type."""
    try:
        dtype = as_dtype(value)
    except NkilabError as error:
        raise UsageError(f"dtype is {value!r}: {error.problem}", hint=error.hint) from None

    def typed(argument: Any) -> Any:
        if not framework_of(argument) or not as_dtype(argument.dtype).is_float:
            return argument
        return ArraySpec(tuple(argument.shape), dtype)

    kwargs = {key: typed(argument) for key, argument in call.kwargs.items()}
    return dataclasses.replace(call, args=tuple(map(typed, call.args)), kwargs=kwargs)


def _whole(name: str, value: Value) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{name} is {value!r}; it must be a whole number of at least 1")
    return value


_SETTERS: dict[str, Callable[[BoundCall, str, Value], BoundCall]] = {
    "parameter": _with_parameter,
    "field": _with_field,
    "constant": _with_constant,
    "grid": lambda call, _, value: dataclasses.replace(call, kernel=call.kernel[extents(str(value)) or (1,)]),
    "lnc": _with_lnc,
    "ranks": lambda call, name, value: dataclasses.replace(call, ranks=_whole(name, value)),
    "dtype": _with_dtype,
}
