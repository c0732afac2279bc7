"""The two ways in which jobs on records run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from nkilab.records import Job

WAYS = ("plain", "compiled")


@contextmanager
def jobs_run(way: str) -> Iterator[None]:
    """Run every job in one way, however short it is."""

    def chosen(job: Job, _steps: int) -> tuple[Callable[..., Any], bool]:
        return (job.compiled, True) if way == "compiled" else (job._function, False)

    with patch.object(Job, "chosen", chosen):
        yield
