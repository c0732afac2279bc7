"""A pytest plugin that runs a random sample of what a suite collects, and reports every outcome.

Tests may skip themselves only when they run. More than the sample are drawn, in a random order, and run; the
sample is the first N of that order that do not skip themselves.

Options:
    --sample N: N tests drawn at random from what is collected and not skipped.
    --sample-seed S: of the draw; a fresh one is chosen and printed if it is left out.
    --sample-without TEXT: leave out tests whose id has TEXT; may be repeated.
    --outcomes FILE: write one JSON line per test: id, outcome, seconds, first line of the error.

Those of limits.py come with it.
"""

from __future__ import annotations

import json
import random
import time
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from .limits import RESIDENT_GIB

pytest_plugins = ["nkilab.suites.limits"]
SEED = "nkilab_sample_seed"
# Drawn beyond the sample, as a share of it, in place of tests that skip themselves.
RESERVE = 0.3


def pytest_addoption(parser: Any) -> None:
    """Declare the options."""
    group = parser.getgroup("nkilab")
    group.addoption("--sample", type=int, default=0, metavar="N", help="run N tests drawn at random")
    group.addoption("--sample-seed", type=int, default=None, metavar="S", help="seed of the draw")
    group.addoption("--sample-without", action="append", default=[], metavar="TEXT", help="ids to leave out")
    group.addoption("--outcomes", default="", metavar="FILE", help="one JSON line per test")


def pytest_configure(config: Any) -> None:
    """Choose the seed where none is given; workers have that of the controller."""
    seed = getattr(config, "workerinput", {}).get(SEED)
    if seed is not None:
        config.option.sample_seed = seed
    elif config.option.sample and config.option.sample_seed is None:
        config.option.sample_seed = random.SystemRandom().randrange(2**31)
    if config.option.outcomes and seed is None:
        Path(config.option.outcomes).write_text("", "utf-8")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hand the seed to a worker of pytest-xdist."""
    node.workerinput[SEED] = node.config.option.sample_seed or 0


def pytest_report_header(config: Any) -> str | None:
    """Print the seed."""
    if not config.option.sample:
        return None
    return f"sample: {config.option.sample} tests, seed {config.option.sample_seed}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Keep the sample and its reserve, in the order of the draw."""
    if not config.option.sample:
        return
    without = config.option.sample_without
    drawable = [
        item
        for item in sorted(items, key=lambda item: item.nodeid)
        if not item.get_closest_marker("skip") and not any(text in item.nodeid for text in without)
    ]
    random.Random(config.option.sample_seed).shuffle(drawable)
    count = ceil(config.option.sample * (1 + RESERVE))
    chosen = set(map(id, drawable[:count]))
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
    items[:] = drawable[:count]
    config.stash[DRAWN] = [item.nodeid for item in items]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    """Learn the order of the draw from a worker of pytest-xdist."""
    node.config.stash[DRAWN] = list(ids)


DRAWN = pytest.StashKey[list[str]]()


def pytest_runtest_logreport(report: Any) -> None:
    """Append a line to the outcomes, in the controller."""
    if _outcomes is None or (report.when != "call" and report.passed):
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    message = crash.message if crash is not None else str(report.longrepr or "")
    line = {
        "id": report.nodeid,
        "outcome": report.outcome,
        "when": report.when,
        "seconds": round(report.duration, 2),
        "resident_gib": dict(report.user_properties).get(RESIDENT_GIB),
        "error": message if report.failed else message[:200],
        "ended": time.strftime("%H:%M:%S"),
    }
    with _outcomes.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


_outcomes: Path | None = None


def pytest_sessionstart(session: Any) -> None:
    """Open the outcomes, in the controller."""
    global _outcomes
    config = session.config
    if config.option.outcomes and not hasattr(config, "workerinput"):
        _outcomes = Path(config.option.outcomes).absolute()


def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
    """Tell the share of the sample that passed, and its slowest ten."""
    if not config.option.sample:
        return
    stats = terminalreporter.stats
    failed = {r.nodeid for key in ("failed", "error") for r in stats.get(key, [])}
    skipped = {r.nodeid for r in stats.get("skipped", [])}
    ran = [r for key in ("passed", "failed") for r in stats.get(key, []) if r.when == "call"]
    seconds = {r.nodeid: r.duration for r in ran}
    order = config.stash.get(DRAWN, None) or sorted(seconds)
    counted = [name for name in order if name in seconds and name not in skipped][: config.option.sample]
    passed = [name for name in counted if name not in failed]
    terminalreporter.section(f"sample, seed {config.option.sample_seed}")
    share = f"{len(passed) / len(counted):.1%}" if counted else "none ran"
    terminalreporter.line(
        f"{len(passed)} of {len(counted)} passed: {share}; {len(skipped)} skipped themselves"
    )
    terminalreporter.line(f"{sum(seconds[name] for name in counted):.0f} s of tests; the slowest ten:")
    for name in sorted(counted, key=lambda name: -seconds[name])[:10]:
        terminalreporter.line(f"{seconds[name]:8.1f} s  {name}")
