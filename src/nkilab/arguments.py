"""Arguments of kernels as written on a command line: f32[128,512], idx=@idx.npy, name=value."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import ArraySpec
from .errors import FileError, NkilabError, UsageError
from .tiles.dtypes import as_dtype

_SPEC = re.compile(r"^\s*([A-Za-z_]\w*)\s*\[\s*(\d+(?:\s*,\s*\d+)*)\s*,?\s*\]\s*$")
_NAMED = re.compile(r"^([A-Za-z_]\w*)=(.+)$", re.S)


def argument(text: str) -> Any:
    """A spec such as f32[128,512], or the array in a file such as @idx.npy.

    Raises:
        UsageError: if it is neither.
        FileError: if the file cannot be read as an array without pickles.
    """
    if text.startswith("@"):
        return _array_in(Path(text[1:]))
    found = _SPEC.match(text)
    if not found:
        raise UsageError(f"--arg is {text!r}; write DTYPE[N,...], as in f32[128,512], or @FILE.npy")
    try:
        dtype = as_dtype(found[1])
    except NkilabError as error:
        raise UsageError(f"--arg is {text!r}: {error.problem}") from None
    return ArraySpec(tuple(int(n) for n in found[2].split(",")), dtype)


def _array_in(path: Path) -> Any:
    if not path.is_file():
        raise FileError(f"{path} is no file", hint="save the array with numpy.save")
    try:
        loaded = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise FileError(f"{path} holds no array: {error}", hint="save it with numpy.save") from None
    if not isinstance(loaded, np.ndarray):
        raise FileError(f"{path} holds several arrays", hint="save one array as .npy")
    return loaded


def call_arguments(args: Sequence[str], keywords: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of a call, from --arg and --kw.

    Raises:
        UsageError: if one is not understood.
    """
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for text in args:
        found = _NAMED.match(text)
        if found:
            named[found[1]] = argument(found[2])
        else:
            positional.append(argument(text))
    for text in keywords:
        found = _NAMED.match(text)
        if not found:
            raise UsageError(f"--kw is {text!r}; write name=value")
        named[found[1]] = literal(found[2])
    return positional, named


def literal(text: str) -> Any:
    """A Python literal, or the text itself where it is none."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
