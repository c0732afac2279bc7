"""Fixtures that every folder of tests shares."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from nkilab.machine import MACHINES, Machine
from nkilab.trace.session import Session
from tests.uses import open_session

# one seed for all: a property that fails fails again
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.load_profile("fixed")

# what text is as wide as where nobody says otherwise; workers of pytest-xdist have 80 columns set
os.environ.pop("COLUMNS", None)

# in the background of a shell, pytest and what tests start would not notice that they are interrupted
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what tests find over golden files")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests run where they are asked for: pytest -m slow."""
    if "slow" not in (config.option.markexpr or ""):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: run with -m slow"))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with the file of a name in the folder `golden` beside the test, or rewrites it."""
    folder = Path(request.path).parent / "golden"

    def check(name: str, text: str) -> None:
        if request.config.getoption("--update-golden"):
            folder.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        assert text == (folder / name).read_text(encoding="utf-8")

    return check


@pytest.fixture(params=MACHINES.values(), ids=list(MACHINES))
def machine(request: pytest.FixtureRequest) -> Machine:
    """Every chip in turn."""
    return request.param


@pytest.fixture
def session() -> Session:
    """A launch on trn2 that computes; nothing is in it."""
    return open_session(MACHINES["trn2"])
