"""Holding the kernels of pytest's tests to the checks; `plugin.py` says when."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from .._lazy import part

MARKER = (
    "nki_check(strict=False, replay=0): check every kernel that the test launches; warnings count if strict"
)


def checked(
    kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, strict: bool, replay: int, target: str
) -> list[Any]:
    """The findings of a kernel on arrays or specs; fails the test on errors, if strict on warnings too."""
    checking = part("checking")
    report = checking.report_of(kernel, args, kwargs, checking.Options(target, replay))
    _fail_on([report], is_strict=strict)
    return list(report.findings)


@contextmanager
def every_launch(strict: bool = False, replay: int = 0) -> Generator[None, Any, Any]:
    """Check what is launched in a block, and fail the test at its end."""
    checking = part("checking")
    with checking.every_launch(checking.Options(replays=replay)) as reports:
        yield
    _fail_on(reports, is_strict=strict)


def _fail_on(reports: list[Any], *, is_strict: bool) -> None:
    """Fail the test with the text of findings, if some fail."""
    checking = part("checking")
    if checking.status_of(reports, is_strict=is_strict):
        text = part("checks.terminal").text_of
        told = "\n\n".join(filter(None, map(text, checking.merged(reports))))
        pytest.fail(f"nkilab check: {part('checks.report').summary_line(reports)}\n\n{told}", pytrace=False)
