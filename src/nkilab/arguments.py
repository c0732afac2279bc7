"""Arguments of kernels: as written on a command line, and of launches over several ranks."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import ArraySpec
from .disk import opened
from .errors import FileError, NkilabError, UsageError, reason_of
from .tiles.dtypes import as_dtype

_SPEC = re.compile(r"\s*([A-Za-z_]\w*)\s*\[\s*(\d{1,15}(?:\s*,\s*\d{1,15})*)\s*,?\s*\]\s*", re.ASCII)
_NAMED = re.compile(r"([A-Za-z_]\w*)=(.+)", re.S)


def argument(text: str) -> Any:
    """A spec such as f32[128,512], or the array in a file such as @idx.npy.

    Raises:
        UsageError: if it is neither, or the file cannot be read.
        FileError: if the file holds no array, or one with pickles.
    """
    if text.startswith("@"):
        return _array_in(Path(text[1:]))
    match = _SPEC.fullmatch(text)
    if not match:
        raise UsageError(f"--arg is {text!r}; write DTYPE[N,...], as in f32[128,512], or @FILE.npy")
    try:
        dtype = as_dtype(match[1])
    except NkilabError as error:
        raise UsageError(f"--arg is {text!r}: {error.problem}", hint=error.hint) from None
    return ArraySpec(tuple(int(n) for n in match[2].split(",")), dtype)


def _array_in(path: Path) -> Any:
    try:
        with opened(path) as file:
            loaded = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {reason_of(error)}", hint="save the array with numpy.save"
        ) from None
    except Exception:
        # whatever NumPy makes of a header that it did not write
        raise FileError(f"{path} holds no array", hint="save it with numpy.save, without pickles") from None
    return loaded


def call_arguments(args: Sequence[str], keywords: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of a call, from --arg and --kw.

    Raises:
        UsageError: if one is not understood.
    """
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for text in args:
        match = _NAMED.fullmatch(text)
        if match:
            named[match[1]] = argument(match[2])
        else:
            positional.append(argument(text))
    for text in keywords:
        match = _NAMED.fullmatch(text)
        if not match:
            raise UsageError(f"--kw is {text!r}; write name=value")
        named[match[1]] = literal(match[2])
    return positional, named


def literal(text: str) -> Any:
    """A Python literal, or the text itself where it is none."""
    try:
        with warnings.catch_warnings():
            # an escape that Python warns of is no concern of whoever types a word
            warnings.simplefilter("ignore")
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def extents(text: str) -> tuple[int, ...]:
    """Extents as --grid writes them, 4,8; () for an empty text.

    Raises:
        UsageError: if one is no whole number of at least 1.
    """
    if not text:
        return ()
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch("[1-9][0-9]{0,8}", word) for word in words):
        raise UsageError(f"--grid is {text!r}; write whole numbers of at least 1, as in 4,8")
    return tuple(int(word) for word in words)


def trips(arguments: Sequence[str]) -> dict[str, int]:
    """How often lines go round, as --trips writes it: kernel.py:41=8.

    Raises:
        UsageError: if one is written otherwise.
    """
    matches = [re.fullmatch(r"([^/=]+\.py:[1-9][0-9]*)=([0-9]{1,9})", text.strip()) for text in arguments]
    for text, match in zip(arguments, matches, strict=True):
        if match is None:
            raise UsageError(f"--trips is {text!r}; write FILE.py:LINE=N, as in kernel.py:41=8")
    return {match[1]: int(match[2]) for match in matches if match}


# each has its programs and clock; more than any cluster of the chips has
MOST_RANKS = 65536


class PerRank:
    """An argument that each rank has its own of.

    Args:
        values: one per rank, or a function from a rank to its value.

    Raises:
        UsageError: if it is neither.
    """

    def __init__(self, values: Sequence[Any] | Callable[[int], Any]) -> None:
        if not callable(values) and not (hasattr(values, "__len__") and hasattr(values, "__getitem__")):
            raise UsageError(
                f"per_rank takes one value per rank, or a function of the rank; got {type(values).__name__}"
            )
        self._values = values

    def of(self, rank: int, ranks: int) -> Any:
        """The value of a rank.

        Raises:
            UsageError: if there is not one for each rank.
        """
        if callable(self._values):
            return self._values(rank)
        if len(self._values) != ranks:
            raise UsageError(f"per_rank has {len(self._values)} values; the launch has {ranks} ranks")
        return self._values[rank]


# Positional and keyword arguments.
Call = tuple[tuple[Any, ...], dict[str, Any]]


def calls_of(args: tuple[Any, ...], kwargs: Mapping[str, Any], ranks: int) -> list[Call]:
    """The arguments of each rank: of a `PerRank` its own, of anything else the same."""

    def own(value: Any, rank: int) -> Any:
        return value.of(rank, ranks) if isinstance(value, PerRank) else value

    return [
        (tuple(own(a, rank) for a in args), {k: own(v, rank) for k, v in kwargs.items()})
        for rank in range(ranks)
    ]
