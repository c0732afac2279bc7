"""Where an Einsum stands, for messages about it."""

from __future__ import annotations

from typing import TypeVar

from ...errors import NkilabError
from .ast import Access, Einsum

E = TypeVar("E", bound=NkilabError)


def located(error: E, einsum: Einsum, access: Access | None = None) -> E:
    """An error at an Einsum, or at one of its accesses where that has a place."""
    place = access.place if access is not None and access.place.line else einsum.place
    error.located(str(place), "einsum.expressions", (f"expression: {einsum.text or einsum}",))
    return error
