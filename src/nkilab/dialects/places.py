"""Errors get the user's line and the name he called."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

from ..errors import NkilabError, SpellingError
from ..tiles.tile import View, elements_text, note_look
from ..trace.session import running
from ..trace.source import assigned_name, name_of, place_of, user_frame
from ..tracebacks import leave_out_ours
from .generated_functions import refuse_unknown
from .history import BETA1

# What to do about a parameter of functions of `nki.language` that is not given, or given twice.
_LEFT_OUT = {
    "axis": "write axis=1: free axes are reduced, the partition axis 0 is not",
    "dtype": "the shape is one tuple, as in nl.zeros((128, 512), dtype=nl.float32)",
}

F = TypeVar("F", bound=Callable[..., Any])


def placed(
    called: str, name: str = "", *, is_method: bool = False, shows_first: bool = False
) -> Callable[[F], F]:
    """Make the errors of the decorated function name the user's line and `called`.

    Args:
        called: as messages call the function.
        name: of a function of Beta 1 in the tables of `history`, by which keywords that it does not have are
            judged; "" for other functions.
        is_method: whether the first argument is a tensor whose method it is; errors show it.
        shows_first: whether errors show the first argument of a function, if it is a tensor.
    """

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                try:
                    return as_meant(error, args, kwargs)
                except Exception as refusal:
                    leave_out_ours(refusal)
                    raise

        def as_meant(error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            """Raise an error with its place; call again without keywords that only had to be noticed."""
            if isinstance(error, NkilabError):
                first = next(iter((*args, *kwargs.values())), None) if is_method or shows_first else None
                facts = [first.describe()] if isinstance(first, View) else []
                raise error.located(place_of(user_frame()), called, facts) from None
            trace = error.__traceback__
            if not isinstance(error, TypeError) or trace is None or trace.tb_next is not None:
                raise
            # the arguments do not bind: no frame lies below that of the call
            known = list(signature(function).parameters)[is_method:]
            unknown = {word: value for word, value in kwargs.items() if word not in known}
            if not unknown:
                problem = str(error).removeprefix(f"{function.__qualname__}() ")
                hint = next((hint for word, hint in _LEFT_OUT.items() if f"'{word}'" in problem), "")
                hint = hint or f"it takes {', '.join(known)}"
                raise SpellingError(problem, hint=hint).located(place_of(user_frame()), called) from None
            refuse_unknown(called, unknown, known, name, BETA1 if name else "")
            # what is left was noticed
            return call(*args, **{word: value for word, value in kwargs.items() if word in known})

        # for who looks at arguments in a call of his own
        call.apart = function, as_meant  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


def described(view: View) -> str:
    """One line for messages: the name or that of the user's variable, dtype, shape and memory."""
    session = running()
    name = view.storage.name or name_of(view, user_frame())
    if not name and session is not None:
        name = assigned_name(*session.program.lines[view.storage.line])
    return f"{name or '(unnamed)'}: {view.layout}"


def printed(view: View) -> str:
    """A tensor as Python prints it: `described`, and its elements, or why there are none."""
    note_look(view)
    if view.storage.is_known:
        return f"<{described(view)}>\n{elements_text(view)}"
    session = running()
    why = "" if session is None else ", never written" if session.has_data else ", whose shape alone is known"
    return f"<{described(view)}{why}>"
