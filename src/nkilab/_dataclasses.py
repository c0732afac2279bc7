"""`dataclass` as the standard library has it, but quick to declare.

There a frozen class costs 0.7 ms, because the text of six methods is compiled, and a verb on a small kernel
loads a hundred of them. Here a method is compiled when it is first called.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from dataclasses import asdict as asdict
from dataclasses import field as field
from dataclasses import fields as fields
from dataclasses import replace as replace
from functools import partial
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

# a class that is declared here, an instance, or what one has
Record = Any


def _dataclass(
    cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, **options: bool
) -> Record:
    """What `dataclasses.dataclass` does, without `order` and fields that `__init__` leaves out."""
    if cls is None:
        return partial(_dataclass, frozen=frozen, eq=eq, **options)
    cls = dataclasses.dataclass(cls, init=False, repr=False, eq=False, **options)
    methods: dict[str, Record] = {"__init__": _late(cls, "__init__", partial(_init, is_frozen=frozen))}
    methods |= {"__repr__": _shown} | (_fixed(cls) if frozen else {})
    if eq:
        methods |= {"__eq__": _late(cls, "__eq__", _eq)}
        methods |= {"__hash__": _late(cls, "__hash__", _hash) if frozen else None}
    for name, method in methods.items():
        if vars(cls).get(name) is None:
            setattr(cls, name, method)
    return cls


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass


def _late(cls: type, name: str, text: Callable[..., str]) -> Callable[..., object]:
    """A method that its first call compiles, from the text for a class and its defaults by field."""

    def first(self: Record, *args: Record, **kwargs: Record) -> Record:
        defaults = {
            f.name: f.default if f.default_factory is MISSING else f.default_factory for f in fields(cls)
        }
        names = {"_defaults": defaults, "_set": object.__setattr__}
        exec(text(cls), names)
        method: Record = names[name]
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)
        return method(self, *args, **kwargs)

    return first


def _init(cls: Record, *, is_frozen: bool) -> str:
    by_name = [_parameter(f) for f in fields(cls) if f.kw_only]
    plain = [_parameter(f) for f in fields(cls) if not f.kw_only]
    parameters = ", ".join(["self", *plain, *["*"] * bool(by_name), *by_name])
    body = [
        f"_set(self, {f.name!r}, {_value(f)})" if is_frozen else f"self.{f.name} = {_value(f)}"
        for f in fields(cls)
    ]
    body.append("self.__post_init__()" if hasattr(cls, "__post_init__") else "pass")
    return "\n ".join([f"def __init__({parameters}):", *body])


def _parameter(field: Field[Record]) -> str:
    is_needed = field.default is MISSING and field.default_factory is MISSING
    return field.name if is_needed else f"{field.name}=_defaults[{field.name!r}]"


def _value(field: Field[Record]) -> str:
    name, default = field.name, f"_defaults[{field.name!r}]"
    return name if field.default_factory is MISSING else f"{default}() if {name} is {default} else {name}"


def _values(cls: Record, owner: str) -> str:
    return "".join(f"{owner}.{f.name}, " for f in fields(cls) if f.compare)


def _eq(cls: Record) -> str:
    is_equal = f"({_values(cls, 'self')}) == ({_values(cls, 'other')})"
    is_alike = "other.__class__ is self.__class__"
    return f"def __eq__(self, other):\n return {is_equal} if {is_alike} else NotImplemented"


def _hash(cls: Record) -> str:
    return f"def __hash__(self):\n return hash(({_values(cls, 'self')}))"


@recursive_repr()
def _shown(self: Record) -> str:
    values = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({values})"


def _fixed(cls: Record) -> dict[str, Callable[..., None]]:
    def __setattr__(self: Record, name: str, value: object) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Record, name: str) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}
