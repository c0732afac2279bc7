"""Holding the kernels of pytest's tests to the checks; `plugin.py` says when."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from .._lazy import part

MARKER = "nki_check(replay=0): check every kernel that the test launches"


def checked(
    kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, replay: int, target: str
) -> list[Any]:
    """The findings of a kernel on arrays or specs; fails the test on them; advice does not count."""
    checking = part("checking")
    report = checking.report_of(kernel, args, kwargs, checking.Options(target, replay))
    _fail_on([report])
    return list(report.findings)


@contextmanager
def every_launch(replay: int = 0) -> Generator[None, Any, Any]:
    """Check what is launched in a block, and fail the test at its end."""
    checking = part("checking")
    with checking.every_launch(checking.Options(replays=replay)) as reports:
        yield
    _fail_on(reports)


def _fail_on(reports: list[Any]) -> None:
    """Fail the test with the text of findings, if some fail."""
    checking = part("checking")
    if checking.status_of(reports):
        text = part("checks.terminal").text_of
        text_of_findings = "\n\n".join(filter(None, map(text, checking.merged(reports))))
        pytest.fail(
            f"nkilab check: {part('checks.report').summary_line(reports)}\n\n{text_of_findings}",
            pytrace=False,
        )
