"""What a kernel recorded before it broke off, which its error knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .program import Program

_KEY = "nkilab_program"


@contextmanager
def errors_know(program: Program) -> Iterator[None]:
    """Give an error of a kernel what it recorded until then."""
    try:
        yield
    except Exception as error:
        vars(error)[_KEY] = program
        raise


def program_until(error: Exception) -> Program | None:
    """The program that was recorded until an error; None if it is no kernel's, or nothing was."""
    return vars(error).get(_KEY) or None
