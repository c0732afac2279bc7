"""The terminal: how wide it is, and what goes on while a user waits, drawn as a live line.

Nothing is drawn where standard error is no terminal, for work that is done at once, and while a debugger
asks. NKILAB_PROGRESS=0 switches it off.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from shutil import get_terminal_size
from textwrap import wrap
from threading import Event, Thread
from typing import Any, TextIO

from ._lazy import rich
from .errors import printable

# Seconds before a line appears, and between two looks at the work.
_PATIENCE, _INTERVAL = 0.7, 0.15
_is_shown: ContextVar[bool] = ContextVar("nkilab_progress", default=False)


def columns(most: int = 100) -> int:
    """How wide text is: as a terminal, or COLUMNS where that is set, but 40 at least and `most` at most."""
    return max(40, min(most, get_terminal_size((most, 24)).columns))


def console_for(file: TextIO | None = None, **options: bool) -> Any:
    """A console of rich as wide as text is, which takes no word for an emoji or a number to colour.

    Args:
        file: where to; standard output if None.
        options: further ones of rich's.
    """
    return rich("console").Console(file=file, width=columns(), highlight=False, emoji=False, **options)


def say(text: str, indent: str = "    ") -> None:
    """Print lines as wide as the terminal; what follows the first of a broken one is indented further."""
    for line in printable(text).split("\n"):
        own = line[: len(line) - len(line.lstrip())]
        print("\n".join(_folded(line, own + indent)))


def _folded(line: str, indent: str) -> list[str]:
    room = columns()
    if len(line) <= room:
        return [line]
    return wrap(line, room, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


@contextmanager
def phase(
    what: str, count: Callable[[], int] | None = None, total: int | None = None, unit: str = "instructions"
) -> Iterator[None]:
    """Show that a block is at work; within another phase nothing changes.

    Args:
        what: it does: "tracing".
        count: how many units it has done so far, if that is known.
        total: how many there are, if that is known.
        unit: what is counted.
    """
    if _is_shown.get() or not is_wanted():
        yield
        return
    token = _is_shown.set(True)
    done = Event()
    drawer = Thread(target=_draw, args=(what, count, total, unit, done), daemon=True, name="nkilab progress")
    drawer.start()
    try:
        yield
    finally:
        _is_shown.reset(token)
        done.set()
        drawer.join()


@contextmanager
def quiet() -> Iterator[None]:
    """No phase within this block is shown: whoever opens it draws something of his own."""
    token = _is_shown.set(True)
    try:
        yield
    finally:
        _is_shown.reset(token)


def is_wanted() -> bool:
    """Whether somebody looks at a terminal that can redraw a line."""
    return (
        os.environ.get("NKILAB_PROGRESS") != "0"
        and os.environ.get("TERM") != "dumb"
        and sys.stderr is not None
        and sys.stderr.isatty()
    )


def _draw(what: str, count: Callable[[], int] | None, total: int | None, unit: str, done: Event) -> None:
    """Keep a line up to date until the work is done, then take it away."""
    if done.wait(_PATIENCE):
        return
    parts = rich("progress")
    progress = parts.Progress(
        parts.SpinnerColumn(),
        parts.TextColumn("nkilab: {task.description}"),
        parts.BarColumn(bar_width=24),
        parts.TextColumn("{task.fields[sentence]}"),
        parts.TimeElapsedColumn(),
        console=rich("console").Console(stderr=True),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    # a bar that cannot grow moves instead
    task = progress.add_task(what, total=None if count is None else total, sentence="")
    is_live = False
    while not done.wait(_INTERVAL):
        # a debugger that waits for its user has imported pdb
        is_free = "pdb" not in sys.modules
        if is_live and not is_free:
            progress.stop()
        if is_free and not is_live:
            progress.start()
        if is_free:
            counted = count() if count is not None else total or 0
            sentence = f"{counted:,} {unit}" if counted else ""
            progress.update(task, completed=counted if count is not None else None, sentence=sentence)
            progress.refresh()
        is_live = is_free
    if is_live:
        progress.stop()
