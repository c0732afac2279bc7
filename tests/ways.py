"""The two ways in which jobs on records run: plain, a few steps at a time, and compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from nkilab.place import memory, residency, walk
from nkilab.records import Job, to_its_end

WAYS = ("plain", "compiled")


@contextmanager
def jobs_run(way: str) -> Iterator[None]:
    """Run every job in one way, however short it is."""

    def chosen(job: Job, _steps: int) -> tuple[Callable[..., Any], bool]:
        is_compiled = way == "compiled"
        return partial(to_its_end, job.compiled if is_compiled else job._function), is_compiled

    with ExitStack() as stack:
        stack.enter_context(patch.object(Job, "chosen", chosen))
        for module in (walk, memory, residency) if way == "plain" else ():
            stack.enter_context(patch.object(module, "AT_ONCE", 7))
        yield
