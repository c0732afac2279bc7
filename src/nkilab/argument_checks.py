"""What callers of public functions give, held to what it may be."""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Integral, Real
from os import PathLike, fspath
from pathlib import Path
from sys import float_info
from typing import Any

from .errors import UsageError, UseError, shown


def need(name: str, value: Any, kinds: type | tuple[type, ...], kind_words: str, hint: str = "") -> None:
    """Refuse a value of another type.

    Args:
        name: of the parameter.
        value: given.
        kinds: types of which it is one.
        kind_words: what it has to be, for the message.
        hint: one thing to do.

    Raises:
        UsageError: if it is of none.
    """
    if not isinstance(value, kinds):
        raise UsageError(f"{name} is {shown(value)}; it must be {kind_words}", hint=hint)


def whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """A whole number between bounds.

    Raises:
        UsageError: if the value is none.
    """
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or value < least or (most is not None and value > most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise UsageError(f"{name} is {shown(value)}; it must be a whole number {bounds}")
    return int(value)


def seconds(name: str, value: Any) -> float:
    """A time that is not below zero and ends.

    Raises:
        UsageError: if the value is none.
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= float_info.max:
        raise UsageError(f"{name} is {shown(value)}; it must be a number of seconds, at least 0")
    return float(value)


def path(name: str, value: Any) -> Path:
    """A path that a system can have.

    Raises:
        UsageError: if the value is none.
    """
    need(name, value, (str, PathLike), "the path of a file or folder")
    if "\0" in str(fspath(value)) or not str(fspath(value)):
        raise UsageError(f"{name} is {shown(value)}; it must be the path of a file or folder")
    return Path(value)


def mapping(name: str, value: Any, kind_words: str) -> None:
    """Refuse what is no dictionary by names.

    Raises:
        UsageError: if it is none, or a key is no name.
    """
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise UsageError(f"{name} is {shown(value)}; it must be a dictionary, such as {kind_words}")


def megabytes(variable: str, default: str, what: str) -> int:
    """Bytes that may be kept, as a variable says it in megabytes; 0 keeps nothing.

    Raises:
        UseError: if it is no whole number.
    """
    text = os.environ.get(variable) or default
    if not text.isdecimal():
        problem = f"{variable} is {text!r}; it must be a whole number, the megabytes of {what} that are kept"
        raise UseError(problem, hint="set it to 256, or take it away")
    return int(text) << 20
