"""What a declaration says of its attributes, which enter the form, and values, which never do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ..errors import RuleError, did_you_mean


class _Marker:
    def __init__(self, word: str) -> None:
        self.word = word

    def __repr__(self) -> str:
        return self.word


REQUIRED = _Marker("required")
NUMBER = _Marker("a number")


class Attribute:
    """A property that enters the form.

    Args:
        default: taken where the caller says nothing; REQUIRED if he must.
        choices: the canonical values allowed, with the spellings that stand for each; or a function
            from a spelling to a canonical value, which raises RuleError.
    """

    def __init__(self, default: Any, choices: Mapping[Any, Any] | Callable[[Any], Any], allowed: str) -> None:
        self.default = default
        self.allowed = allowed
        self._choices = choices

    def canonical(self, name: str, value: Any) -> Any:
        """The canonical value that `value` spells.

        Raises:
            RuleError: if it spells none.
        """
        if callable(self._choices):
            return self._choices(value)
        word = getattr(value, "name", value)
        try:
            return self._choices[word]
        except (KeyError, TypeError):
            hint = did_you_mean(word, filter(_is_text, self._choices)) if _is_text(word) else ""
            raise RuleError(f"{name} is {value!r}; it must be one of {self.allowed}", hint=hint) from None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def Attr(default: Any = REQUIRED, choices: Sequence[Any] = ()) -> Any:
    """Declare an attribute with a few allowed values, matched by value or by enum member name."""
    return Attribute(default, {c: c for c in choices}, ", ".join(map(str, choices)))


def Flag(default: bool = False) -> Any:
    """Declare a boolean attribute."""
    return Attribute(default, {True: True, False: False}, "True, False")


def Spelled(parse: Callable[[Any], Any], allowed: str, default: Any = REQUIRED) -> Any:
    """Declare an attribute whose spellings a function understands (operators, axes, positions)."""
    return Attribute(default, parse, allowed)


class Value(Struct, frozen=True):
    """Something that may differ from call to call and never enters the form."""

    default: Any
    allowed: str


def Immediate(default: Any = REQUIRED, allowed: str = "a number") -> Any:
    """Declare a value."""
    return Value(default, allowed)
