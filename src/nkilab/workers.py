"""Processes that work for another one: they end with it, however it ends."""

from __future__ import annotations

import os
from functools import cache
from multiprocessing import parent_process
from threading import Thread

from .errors import EXIT_FAULT


def end_with_parent() -> None:
    """End this process as soon as the one that started it is gone, be it killed."""
    _watch_from(os.getpid())


@cache
def _watch_from(_process: int) -> None:
    """Start the watch of a process, once; one that is forked from it starts its own."""
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        # the parent holds the other end of a pipe, which the system closes with it
        parent.join()
        os._exit(EXIT_FAULT)

    Thread(target=watch, name="nkilab-parent", daemon=True).start()
