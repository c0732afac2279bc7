"""Fixtures that every folder of tests shares."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from zlib import crc32

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


def drawn(cases: Iterable[str]) -> set[str]:
    """A quarter of the names of a law's cases, rounded up: the same ones everywhere."""
    by_sum = sorted(cases, key=lambda name: crc32(name.encode()))
    return set(by_sum[: -(-len(by_sum) // 4)])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests, and all cases of laws over many kernels, run when asked for: -m slow, -m corpus."""
    asked = config.option.markexpr or ""
    laws: dict[str, list[str]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("corpus"):
            laws[item.nodeid.partition("[")[0]].append(item.nodeid)
    first = {name for cases in laws.values() for name in drawn(cases)}
    for item in items:
        if "slow" not in asked and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: run with -m slow"))
        if "corpus" not in asked and item.get_closest_marker("corpus") and item.nodeid not in first:
            item.add_marker(pytest.mark.skip(reason="a further case of its law: run with -m corpus"))


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
