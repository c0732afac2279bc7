"""A pytest plugin that runs tests which ran out of memory once more, after all others and alone.

Options:
    --again-alone GIB: run them again in one process, with so much memory resident.
    --ids FILE: run the tests whose ids are the lines of the file, in their order, and no others.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from .marks import AGAIN, OUT_OF_MEMORY

pytest_plugins = ["nkilab.suites.limits"]
_SHORT = pytest.StashKey[list[str]]()
# The folder that ids are relative to: a worker of pytest-xdist may find another one than its controller.
_ROOT = pytest.StashKey[str]()
DIED = "its process died"
ROOT = "nkilab_root"


def pytest_addoption(parser: Any) -> None:
    """Declare the options."""
    group = parser.getgroup("nkilab")
    group.addoption(
        "--again-alone",
        type=float,
        default=0,
        metavar="GIB",
        help="run tests that ran out of memory again, after all others, alone and with so much",
    )
    group.addoption("--ids", default="", metavar="FILE", help="run the tests whose ids are the lines of FILE")


def pytest_configure(config: Any) -> None:
    """Find the file; the controller counts which tests ran out of memory."""
    if config.option.ids:
        if not Path(config.option.ids).is_file():
            raise pytest.UsageError(f"--ids: {config.option.ids} is no file")
        config.option.ids = str(Path(config.option.ids).absolute())
    if config.option.again_alone and not config.option.limit_gib:
        raise pytest.UsageError("--again-alone needs --limit-gib")
    config.stash[AGAIN] = {}
    config.stash[_ROOT] = str(config.rootpath)
    if hasattr(config, "workeroutput"):
        config.workeroutput[ROOT] = str(config.rootpath)
    if config.option.again_alone and not hasattr(config, "workerinput"):
        config.stash[_SHORT] = []
        config.pluginmanager.register(_Counter(config.stash[_SHORT]))


class _Counter:
    """Notes which tests ran out of memory."""

    def __init__(self, short: list[str]) -> None:
        self._short = short

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" and report.failed and OUT_OF_MEMORY in map(tuple, report.user_properties):
            self._short.append(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Keep the tests of the file."""
    if not config.option.ids:
        return
    order = {name: i for i, name in enumerate(Path(config.option.ids).read_text("utf-8").splitlines())}
    kept = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])
    missing = sorted(order.keys() - {item.nodeid for item in kept})
    if missing:
        raise pytest.UsageError(f"--ids: {len(missing)} tests are not collected, such as {missing[0]}")
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in order])
    items[:] = kept


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Learn from a worker of pytest-xdist what its ids are relative to."""
    node.config.stash[_ROOT] = getattr(node, "workeroutput", {}).get(ROOT, node.config.stash[_ROOT])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: Any) -> None:
    """Run tests again; the workers are gone by now."""
    config = session.config
    short = config.stash.get(_SHORT, [])
    if not short or session.shouldstop or session.shouldfail:
        return
    writer = config.get_terminal_writer()
    writer.line()
    writer.sep("-", f"{len(short)} ran out of memory: again, alone, {config.option.again_alone:g} GiB")
    with tempfile.TemporaryDirectory(prefix="nkilab-again-") as folder:
        while short:
            lines = _outcomes_of(_run(config, Path(folder), short), short)
            config.stash[AGAIN].update(lines)
            short = [name for name in short if name not in lines]


def _outcomes_of(lines: dict[str, dict[str, Any]], names: list[str]) -> dict[str, dict[str, Any]]:
    """The outcomes, with one for the first test that has none: it ended the process."""
    died = next((name for name in names if name not in lines), None)
    if died is None:
        return lines
    return lines | {died: {"id": died, "outcome": "failed", "when": "call", "seconds": 0.0, "error": DIED}}


def _run(config: Any, folder: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """Run tests by the command of this run, in one process; returns the outcomes by id."""
    ids, outcomes = folder / "ids", folder / "outcomes.jsonl"
    ids.write_text("\n".join(names), "utf-8")
    outcomes.write_text("", "utf-8")
    # by "=": pytest looks for its root folder in what it does not know yet to be an option's value
    options = [f"--ids={ids}", f"--outcomes={outcomes}", "--again-alone=0"]
    options.append(f"--rootdir={config.stash[_ROOT]}")
    options.append(f"--limit-gib={config.option.again_alone:g}")
    if config.pluginmanager.hasplugin("xdist"):
        options.append("-n0")
    command = [sys.executable, *sys.orig_argv[1:], *options]
    status = subprocess.run(command, cwd=config.invocation_params.dir, check=False).returncode
    if status == pytest.ExitCode.USAGE_ERROR:
        raise pytest.UsageError(f"the tests that ran out of memory cannot run again: {' '.join(command)}")
    lines = [json.loads(line) for line in outcomes.read_text("utf-8").splitlines()]
    by_test: dict[str, dict[str, Any]] = {}
    for line in lines:
        # a failure of set-up or teardown is one of the test
        if line["id"] not in by_test or line["outcome"] == "failed":
            by_test[line["id"]] = line
    return by_test
