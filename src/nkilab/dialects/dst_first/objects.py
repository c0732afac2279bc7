"""Classes of objects that kernels define, and what instructions return."""

from __future__ import annotations

import copy
from dataclasses import MISSING, is_dataclass
from typing import Any

from ...errors import NkilabError, RuleError, SpellingError, UseError
from ...trace.session import current
from ...trace.source import place_of, user_frame
from ...tracebacks import public
from ..loops import device_loops


class NKIObject:
    """Base of the classes of kernels: like data classes, with or without the decorator.

    Annotated names are fields, and so are plain values of the class body. Without an `__init__` of its own a
    class gets one that takes them by position or keyword, annotated ones first; a field that is not given has
    its default, or None. Objects of one class with equal fields are equal.

    Source: NKI language guide, Class Support.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> NKIObject:
        """An object whose fields are not set yet."""
        initializer = vars(cls).get("__init__")
        # the decorator's own __init__ asks for every field that has no default
        if (
            is_dataclass(cls)
            and getattr(getattr(initializer, "__code__", None), "co_filename", "") == "<string>"
        ):
            cls.__init__ = NKIObject.__init__
        return super().__new__(cls)

    @public
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        cls = type(self)
        fields = _fields(cls)
        if len(args) > len(fields):
            raise _refused(cls, f"{len(args)} arguments are given; it has {len(fields)} fields")
        by_place = dict(zip(fields, args, strict=False))
        for name in kwargs.keys() & by_place.keys():
            raise _refused(cls, f"{name} is given twice")
        for name in kwargs.keys() - set(fields):
            raise _refused(cls, f"there is no field {name}; it has {', '.join(fields) or 'none'}")
        # a default such as a list belongs to one object
        defaults = {name: _default(cls, name) for name in fields}
        for name, value in (defaults | by_place | kwargs).items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Called when the fields are set."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = object.__hash__


def _fields(cls: type) -> list[str]:
    """The annotated names of a class and its bases, then its plain values; bases first."""
    annotated: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if not issubclass(base, NKIObject) or base is NKIObject:
            continue
        kinds = vars(base).get("__annotations__", {})
        annotated |= {
            n: k for n, k in kinds.items() if not str(k).startswith(("ClassVar", "typing.ClassVar"))
        }
        plain |= {n: v for n, v in vars(base).items() if n not in kinds and _is_plain(n, v)}
    return [*annotated, *(name for name in plain if name not in annotated)]


def _is_plain(name: str, value: Any) -> bool:
    """Whether a name of a class body holds a value, no function, property or class."""
    return not name.startswith("__") and not callable(value) and not hasattr(value, "__get__")


def _default(cls: type, name: str) -> Any:
    declared = getattr(cls, "__dataclass_fields__", {}).get(name)
    if declared is not None and declared.default_factory is not MISSING:
        return declared.default_factory()
    return copy.copy(getattr(cls, name, None))


class FieldError(SpellingError, TypeError):
    """The arguments do not fit the fields of a class."""


def _refused(cls: type, problem: str) -> NkilabError:
    return FieldError(problem).located(place_of(user_frame()), cls.__name__)


class NkiInstruction:
    """An instruction that a call recorded, for dependences that a schedule adds."""

    __slots__ = ("row",)

    def __init__(self, row: int) -> None:
        self.row = row

    def depends_on(self, *producers: Any) -> NkiInstruction:
        """Let this instruction run after others; returns itself.

        Instructions run in program order here, so that it has no effect on values.

        Raises:
            UseError: if a producer is no instruction.
            RuleError: if it is in a loop of the device that this instruction is not in.

        Source: nki.isa.NkiInstruction, depends_on (NKI 0.6).
        """
        for producer in producers:
            error = self._refusal(producer)
            if error is not None:
                raise error.located(place_of(user_frame()), "depends_on")
        current().program.marks.edges += [(self.row, producer.row) for producer in producers]
        return self

    def _refusal(self, producer: Any) -> NkilabError | None:
        if not isinstance(producer, NkiInstruction):
            return UseError(
                f"a producer is of type {type(producer).__name__}; it must be what a call of nki.isa returns"
            )
        session = current()
        around, mine = device_loops(session, producer.row), device_loops(session, self.row)
        if mine[: len(around)] == around:
            return None
        return RuleError(
            f"the producer, at {session.program.place_of(producer.row)}, runs in a loop of the device that "
            "the consumer is not in; its semaphore would be signalled in every iteration, or never",
            hint="depend on an instruction of the same loop, or of one around it",
            source="nki.isa.NkiInstruction, depends_on",
        )
