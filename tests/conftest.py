"""Fixtures that every folder of tests shares."""

from __future__ import annotations

import gc
import os
import signal
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import is_hypothesis_test, settings
from xdist.scheduler import WorkStealingScheduling

from nkilab.cycles import SELDOM
from nkilab.machine import MACHINES, Machine
from nkilab.trace.session import Session
from tests.examples import ALL, DRAWN
from tests.uses import open_session

# one seed for all: a property that fails fails again
for share in (DRAWN, ALL):
    settings.register_profile(
        f"{share} %", max_examples=share, derandomize=True, deadline=None, database=None
    )

# what text is as wide as where nobody says otherwise; workers of pytest-xdist have 80 columns set
os.environ.pop("COLUMNS", None)

# in the background of a shell, pytest and what tests start would not notice that they are interrupted
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what tests find over golden files")
    parser.addoption(
        "--further", action="store_true", help="only cases of laws that run nowhere without -m corpus"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose how many examples are drawn before modules of tests, which ask, are imported."""
    settings.load_profile(f"{ALL if 'corpus' in (config.option.markexpr or '') else DRAWN} %")


def drawn(cases: Iterable[str]) -> set[str]:
    """A twelfth of the names of a law's cases, rounded up: the same ones everywhere."""
    by_sum = sorted(cases, key=lambda name: crc32(name.encode()))
    return set(by_sum[: -(-len(by_sum) // 12)])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """Collect without a look for cycles, a quarter of the time: what is collected stays; then look seldom."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        # as the program itself: what a launch leaves has no cycles
        gc.set_threshold(SELDOM)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> WorkStealingScheduling:
    """Who has nothing left takes over from who has: tests of Einsums stand together and take longest."""
    return WorkStealingScheduling(config, log)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """What nobody asked for; of tests that are left out pytest itself counts no more than some."""
    asked = config.option.markexpr or ""
    marked = {"slow": "tests marked slow: -m slow", "corpus": "further cases of laws: -m corpus"}
    return [f"left out: {tests}" for mark, tests in marked.items() if mark not in asked]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests, and all cases of laws over many kernels, run when asked for: -m slow, -m corpus.

    A random test is a law as well; fewer of its examples run instead. Of a law that is marked `drawn=False`,
    as it compiles kernels for seconds, no case runs.
    """
    asked = config.option.markexpr or ""
    laws: dict[str, list[str]] = defaultdict(list)
    further = set()
    for item in items:
        mark = item.get_closest_marker("corpus")
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.corpus)
        elif mark and mark.kwargs.get("drawn", True):
            laws[item.nodeid.partition("[")[0]].append(item.nodeid)
        elif mark:
            further.add(item.nodeid)
    first = {name for cases in laws.values() for name in drawn(cases)}
    further |= {name for cases in laws.values() for name in cases} - first
    left_out = first if config.option.further else set() if "corpus" in asked else further

    def runs(item: pytest.Item) -> bool:
        return item.nodeid not in left_out and ("slow" in asked or not item.get_closest_marker("slow"))

    # a test that is skipped costs as much as a small one that runs
    config.hook.pytest_deselected(items=[item for item in items if not runs(item)])
    items[:] = filter(runs, items)


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
