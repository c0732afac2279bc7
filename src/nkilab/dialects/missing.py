"""Names that do not exist: what is told of them, with the nearest that does."""

from __future__ import annotations

from collections.abc import Iterable
from enum import EnumMeta
from typing import Any, NoReturn

from ..errors import SpellingError, did_you_mean
from ..trace.source import place_of, user_frame


class MissingMemberError(SpellingError, AttributeError):
    """A module, a tensor or an enumeration has no such name."""


def refuse_name(owner: str, name: str, known: Iterable[str], problem: str = "") -> NoReturn:
    """Refuse a name, and tell the nearest known one, or all where none is near.

    Args:
        owner: what has no such name, for messages.
        name: the name.
        known: those that exist.
        problem: the sentence; that `owner` has no such name if "".

    Raises:
        MissingMemberError: always, but for names with an underscore in front, which Python asks for.
    """
    if name.startswith("_"):
        raise AttributeError(f"{owner} has no attribute {name!r}")
    listed = sorted(n for n in known if not n.startswith("_"))
    hint = did_you_mean(name, listed)
    told = problem or f"{owner} has no {name}"
    raise MissingMemberError(told + ("" if hint else f"; it has {', '.join(listed)}"), hint=hint).located(
        place_of(user_frame()), owner
    )


class NamedMeta(EnumMeta):
    """Of enumerations that tell the nearest member where one does not exist."""

    def __getattr__(cls, name: str) -> Any:
        members: dict[str, Any] = cls.__dict__.get("_member_map_", {})
        refuse_name(cls.__name__, name, members)
