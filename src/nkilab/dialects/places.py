"""Errors get the user's line and the name he called."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from ..errors import NkilabError
from ..trace.source import place_of, user_frame

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

        return call  # type: ignore[return-value]

    return decorate
