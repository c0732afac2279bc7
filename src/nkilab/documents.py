"""The one JSON document of a verb: standard output, or a file, holds it alone, whatever goes wrong."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TextIO

from .disk import write_whole


@dataclass
class Place:
    """Where a document goes."""

    path: str  # of a file; "" for a stream
    stream: TextIO  # standard output, as it was when the verb began
    is_filled: bool = False  # whether the document is there


_place: ContextVar[Place | None] = ContextVar("nkilab_document", default=None)


@contextmanager
def one_document(path: str | None) -> Iterator[Place | None]:
    """While a verb works: all that standard output gets is what `print_document` prints.

    Args:
        path: of the file that gets the document; "" for standard output, None where no JSON is asked for.
    """
    place = None if path is None else Place(path, sys.stdout)
    before = _place.set(place)
    try:
        # what a user's module prints is not the result
        with redirect_stdout(sys.stderr) if path == "" else nullcontext():
            yield place
    finally:
        _place.reset(before)


def print_document(document: object) -> None:
    """Write a document where this verb's goes. JSON has no number that is none: it is null there."""
    text = json.dumps(_finite(document), indent=2, allow_nan=False)
    place = _place.get()
    if place is not None:
        place.is_filled = True
    if place is not None and place.path:
        write_whole(place.path, text.encode())
    else:
        print(text, file=place.stream if place else sys.stdout, flush=True)


def _finite(value: object) -> object:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(one) for key, one in value.items()}
        case list() | tuple():
            return [_finite(one) for one in value]
    return value
