"""A pytest plugin that holds kernels to the checks: a fixture, a marker and an option.

    def test_softmax_is_sound(nki_check):
        nki_check(softmax, np.ones((128, 512), np.float32))

    @pytest.mark.nki_check                      every kernel that the test launches
    def test_softmax(): ...

    pytest --nki-check                          every kernel of every test

Where nkilab is installed pytest finds it; else `-p nkilab.suites.checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from .._lazy import part

MARKER = "nki_check(replay=0): check every kernel that the test launches"


def pytest_addoption(parser: Any) -> None:
    """Declare the option."""
    parser.getgroup("nkilab").addoption(
        "--nki-check", action="store_true", help="fail tests whose kernels have findings of `nkilab check`"
    )


def pytest_configure(config: Any) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def nki_check() -> Callable[..., list[Any]]:
    """Check a kernel on arrays or specs; fails the test on findings; advice does not count.

    Returns:
        The findings, advice among them.
    """

    def held_to_the_checks(
        kernel: Any, *args: Any, replay: int = 0, target: str = "", **kwargs: Any
    ) -> list[Any]:
        checking = part("checking")
        report = checking.report_of(kernel, args, kwargs, checking.Options(target, replay))
        _fail_on([report])
        return list(report.findings)

    return held_to_the_checks


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Generator[None, Any, Any]:
    """Check what a marked test launches, or any test where the option is given."""
    marker = item.get_closest_marker("nki_check")
    if marker is None and not item.config.getoption("--nki-check"):
        return (yield)
    asked = marker.kwargs if marker is not None else {}
    checking = part("checking")
    watching = checking.every_launch(checking.Options(replays=asked.get("replay", 0)))
    with watching as reports:
        outcome = yield
    _fail_on(reports)
    return outcome


def _fail_on(reports: list[Any]) -> None:
    """Fail the test with the text of findings, if some fail."""
    checking = part("checking")
    if checking.status_of(reports):
        text = part("checks.terminal").text_of
        told = "\n\n".join(filter(None, map(text, checking.merged(reports))))
        pytest.fail(f"nkilab check: {part('checks.report').summary_line(reports)}\n\n{told}", pytrace=False)
