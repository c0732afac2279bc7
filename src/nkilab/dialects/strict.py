"""Arguments that a version takes in one form only: members of enumerations, and memory regions."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

from ..tracebacks import leave_out_ours
from .enums import dma_engine, engine, oob_mode, reduce_cmd
from .versions import FORMS, accepts, require

# Not dge_mode: the vendor's own kernels for 0.3 give its numbers.
_ENUMS = tuple(e.__name__ for e in (dma_engine, engine, oob_mode, reduce_cmd))


def strict(name: str, function: Any, version: str) -> Any:
    """A function that refuses forms which the version asked for does not accept; itself where it has none.

    Args:
        name: in the tables of `history`.
        function: what is served under it.
        version: the version asked for; without one a string for a buffer is noticed once, and a number for a
            member is taken for it: looking at every call of every instruction would cost too much.
    """
    if name.startswith("isa.") and version and not accepts(FORMS["integer_enum"], version):
        return _looking_at(function, _ENUMS, int, "integer_enum", version)
    if name.startswith("language.") and not (version and accepts(FORMS["string_buffer"], version)):
        return _looking_at(function, ("buffer",), str, "string_buffer", version)
    return function


def _looking_at(function: Any, keywords: tuple[str, ...], plain: type, form: str, version: str) -> Any:
    """`function`, which looks at some of its parameters first: whether their type is just `plain`."""
    if not callable(function) or isinstance(function, type):
        return function
    try:
        names = list(signature(function).parameters)
    except (TypeError, ValueError):
        return function
    looked_at = [(names.index(k), k) for k in keywords if k in names]
    return _wrapped(function, looked_at, plain, form, version) if looked_at else function


def _wrapped(
    function: Callable[..., Any], looked_at: list[tuple[int, str]], plain: type, form: str, version: str
) -> Callable[..., Any]:
    # the way through an object that may be called costs as much as the look
    function = getattr(function, "call", function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            for place, keyword in looked_at:
                argument = args[place] if place < len(args) else kwargs.get(keyword)
                if type(argument) is plain:
                    require(form, version, function.__name__)
            return function(*args, **kwargs)
        except Exception as error:
            leave_out_ours(error)
            raise

    return call
