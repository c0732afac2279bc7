"""Errors get the user's line and the name he called."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

from ..errors import NkilabError, SpellingError, did_you_mean
from ..tiles.tile import View
from ..trace.session import running
from ..trace.source import assigned_name, name_of, place_of, user_frame

F = TypeVar("F", bound=Callable[..., Any])


def placed(called: str) -> Callable[[F], F]:
    """Make the errors of the decorated function name the user's line and `called`."""

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except NkilabError as error:
                raise error.located(place_of(user_frame()), called) from None
            except TypeError as error:
                trace = error.__traceback__
                if trace is None or trace.tb_next is not None:
                    raise
                # the arguments do not bind: no frame lies below this one
                raise _unbound(function, error).located(place_of(user_frame()), called) from None

        return call  # type: ignore[return-value]

    return decorate


def _unbound(function: Callable[..., Any], error: TypeError) -> SpellingError:
    """What is told where arguments do not bind: Python's sentence, or which keyword is none."""
    problem = str(error).removeprefix(f"{function.__qualname__}() ")
    found = re.fullmatch(r"got an unexpected keyword argument '(\w+)'.*", problem)
    if found is None:
        return SpellingError(problem)
    known = list(signature(function).parameters)
    return SpellingError(
        f"there is no keyword {found[1]}; it takes {', '.join(known)}",
        hint=did_you_mean(found[1], known),
    )


def described(view: View) -> str:
    """One line for messages: the name or that of the user's variable, dtype, shape and memory."""
    session = running()
    name = view.storage.name or name_of(view, user_frame())
    if not name and session is not None:
        name = assigned_name(*session.program.lines[view.storage.line])
    return f"{name or '(unnamed)'}: {view.layout}"
