"""Finding the user's line, and the names his variables have there."""

from __future__ import annotations

import linecache
import re
import sys
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from greenlet import getcurrent

from ..tracebacks import is_users_file

# a file and a line
Site = tuple[str, int]
_ASSIGNMENT = re.compile(r"\s*([A-Za-z_]\w*)\s*(?::[^=]+)?=[^=]")
# packages that call kernels, or are called with tiles; their lines tell a user nothing
_FRAMEWORKS = re.compile(r"[/\\](?:site|dist)-packages[/\\](?:torch|jax|jaxlib|numpy)[/\\]")
# Whether a file belongs to nkilab or to a framework.
_IS_PASSED_OVER: dict[str, bool] = {}
# File and line by code object and instruction: working a line out costs more than looking it up. The code is
# held, so that no other gets its identity.
SITES: dict[tuple[int, int], tuple[Site, CodeType]] = {}


def user_frame(depth: int = 1) -> FrameType:
    """The nearest frame outside nkilab and frameworks, or the outermost one."""
    frame = sys._getframe(depth + 1)
    while True:
        code = frame.f_code
        passed = _IS_PASSED_OVER.get(code.co_filename)
        if passed is None:
            passed = not is_named(code)
        if not passed:
            return frame
        if frame.f_back is None:
            return _around(frame)
        frame = frame.f_back


def _around(frame: FrameType) -> FrameType:
    """The nearest frame outside nkilab around the greenlet that a program runs in, or the outermost one."""
    place = getcurrent().parent
    while place is not None:
        outer = place.gr_frame
        while outer is not None and not is_named(outer.f_code):
            frame, outer = outer, outer.f_back
        if outer is not None:
            return outer
        place = place.parent
    return frame


def user_site(depth: int = 1) -> Site:
    """File and line of the nearest frame outside nkilab and frameworks."""
    frame = sys._getframe(depth + 1)
    known = SITES.get((id(frame.f_code), frame.f_lasti))
    if known is None:
        frame = user_frame(depth + 1)
        code = frame.f_code
        key = (id(code), frame.f_lasti)
        known = SITES.get(key) or SITES.setdefault(key, ((code.co_filename, frame.f_lineno), code))
    return known[0]


def is_users(code: CodeType) -> bool:
    """Whether code lies outside nkilab; lines of the ledger's kernels count as a user's."""
    return is_users_file(code.co_filename)


def is_named(code: CodeType) -> bool:
    """Whether messages name lines of code: it lies outside nkilab, and outside PyTorch and JAX."""
    passed = _IS_PASSED_OVER.get(code.co_filename)
    if passed is None:
        of_framework = _FRAMEWORKS.search(code.co_filename) is not None
        passed = _IS_PASSED_OVER[code.co_filename] = of_framework or not is_users(code)
    return not passed


def place_of(frame: FrameType) -> str:
    """ "file.py:41" of a frame."""
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def text_at(frame: FrameType) -> str:
    """The expression that runs in a frame as it is written, if it stands on one line, or ""."""
    first, last, start, end = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
    if first is None or first != last:
        return ""
    # columns count bytes
    return linecache.getline(frame.f_code.co_filename, first).encode()[start:end].decode(errors="replace")


def assigned_name(filename: str, lineno: int) -> str:
    """The name that a source line assigns to, or "": what a tile made there is called."""
    match = _ASSIGNMENT.match(linecache.getline(filename, lineno))
    return match[1] if match else ""


def name_of(value: Any, frame: FrameType) -> str:
    """The variable that holds `value` in a frame, or ""."""
    for name, local_value in frame.f_locals.items():
        if local_value is value:
            return name
    return ""
