"""Whether the tests of a folder notice small changes of its modules: `python -m tests.mutation.run timing`.

Each mutant runs in a process of its own, which imports the package with one module changed and runs the tests of
the folder until one fails: first those that reach the changed line. Jobs on records run as they stand. What
numba compiles in a changed module is kept nowhere.

Neither mutmut nor cosmic-ray does this here: the first puts a dispatcher in place of each function, which jobs
cannot be compiled with, and leaves constants alone; the second starts Python anew for each mutant, some seconds
every time.
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from types import CodeType
from typing import Any

# loaded once, before any process is forked; the package itself is not
import coverage
import hypothesis.strategies
import ml_dtypes  # noqa: F401
import numba.extending  # noqa: F401
import pytest

from .mutants import PACKAGE, Mutant, mutants_of

ROOT = PACKAGE.parents[1]
# By folder of the package the tests that have to notice.
FOLDERS = {
    "timing": ["tests/timing"],
    "tiles": ["tests/tiles"],
    "place": ["tests/place"],
}
WANTED = 0.9
_EQUIVALENT = Path(__file__).with_name("equivalent.txt")
# seconds of a processor that a test may take before it counts as one that never ends, and those to import all
_LEAST, _IMPORT, _MEMORY = 2.0, 30.0, 8 << 30


def equivalent() -> dict[str, str]:
    """The mutants that no test could notice, and why."""
    blocks = _EQUIVALENT.read_text(encoding="utf-8").strip().split("\n\n")
    return dict(block.split("\n    ", 1) for block in blocks if not block.startswith("#"))


@dataclass
class Reached:
    """What a run without a change says of each test: the lines that it reaches, and seconds."""

    by_line: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def of(self, mutant: Mutant) -> set[str]:
        """The tests that reach the line of a mutant."""
        return set().union(*(self.by_line.get((mutant.path, line), ()) for line in mutant.lines))


class Order:
    """Plugin of pytest: jobs run as they stand, the tests that may fail stand first, none runs for long."""

    def __init__(self, first: set[str], seconds: dict[str, float]) -> None:
        self.first, self.seconds = first, seconds

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [i for i in items if getattr(i, "callspec", None) is None or not _is_compiled(i)]
        items.sort(key=lambda i: (i.nodeid not in self.first, self.seconds.get(i.nodeid, 0.0)))

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        signal.setitimer(signal.ITIMER_PROF, _LEAST + 10 * self.seconds.get(item.nodeid, 0.0))


def _is_compiled(item: Any) -> bool:
    return item.callspec.params.get("way") == "compiled"


class Watch:
    """Plugin of pytest: notes which lines each test reaches, and how long it takes."""

    def __init__(self, reached: Reached, lines: coverage.Coverage) -> None:
        self.reached, self.lines = reached, lines

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self.lines.switch_context(item.nodeid)
        began = process_time()
        try:
            return (yield)
        finally:
            self.reached.seconds[item.nodeid] = process_time() - began


class Changed(MetaPathFinder, SourceFileLoader):
    """Imports the module of a mutant with its change."""

    def __init__(self, mutant: Mutant) -> None:
        SourceFileLoader.__init__(self, mutant.module, str(PACKAGE / mutant.path))
        self.mutant = mutant

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        return spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, _name: str) -> CodeType:
        return compile(self.mutant.tree(), self.path, "exec")


def _tests(folder: str, *plugins: object) -> int:
    # what is loaded before the fork, hypothesis, has no assertions to rewrite
    quiet = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    arguments = [*FOLDERS[folder], "-x", *quiet]
    return int(pytest.main(arguments, plugins=list(plugins)))


def reached_by(folder: str, scratch: Path) -> Reached:
    """Run the tests of a folder without a change; they must pass."""
    kept = scratch / "reached"

    def watch() -> int:
        lines = coverage.Coverage(data_file=None, include=[f"{PACKAGE / folder}/*"])
        reached = Reached()
        lines.start()
        status = _tests(folder, Order(set(), {}), Watch(reached, lines))
        lines.stop()
        data = lines.get_data()
        for path in data.measured_files():
            short = Path(path).relative_to(PACKAGE).as_posix()
            for line, tests in data.contexts_by_lineno(path).items():
                reached.by_line[short, line] = {t for t in tests if t}
        kept.write_bytes(pickle.dumps(reached))
        return status

    _, status = os.waitpid(_forked(watch, scratch), 0)
    if status:
        sys.exit(f"{(scratch / 'output').read_text()}\nthe tests of {folder} fail without a change")
    return pickle.loads(kept.read_bytes())


def _forked(run: Callable[[], int], cache: Path) -> int:
    """A process that runs a function and exits with what it returns.

    Args:
        run: what it does.
        cache: the folder of its compiled code, and of what it prints.
    """
    process = os.fork()
    if process:
        return process
    status = 99
    try:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        signal.setitimer(signal.ITIMER_PROF, _IMPORT)
        cache.mkdir(parents=True, exist_ok=True)
        output = os.open(cache / "output", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.environ.update(NUMBA_CACHE_DIR=str(cache), NKILAB_CACHE_DIR=str(cache))
        numba.config.CACHE_DIR = str(cache)
        status = run()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _started(folder: str, mutant: Mutant, reached: Reached, scratch: Path) -> int:
    """A process that runs the tests of a folder on a mutant."""
    is_compiled = "numba" in (PACKAGE / mutant.path).read_text(encoding="utf-8")
    cache = scratch / str(mutant.place) / str(mutant.variant) if is_compiled else scratch

    def run() -> int:
        sys.meta_path.insert(0, Changed(mutant))
        return _tests(folder, Order(reached.of(mutant), reached.seconds))

    return _forked(run, cache)


def survivors(folder: str, mutants: list[Mutant], jobs: int) -> list[Mutant]:
    """The mutants that no test of the folder notices."""
    alive: list[Mutant] = []
    with TemporaryDirectory() as name:
        scratch = Path(name)
        reached = reached_by(folder, scratch)
        running: dict[int, Mutant] = {}
        for mutant in mutants:
            running[_started(folder, mutant, reached, scratch)] = mutant
            if len(running) == jobs:
                alive += _ended(running)
        while running:
            alive += _ended(running)
    return sorted(alive, key=mutants.index)


def _ended(running: dict[int, Mutant]) -> list[Mutant]:
    """Wait until the tests of one mutant have ended: nothing if one failed, else the mutant."""
    process, status = os.wait()
    mutant = running.pop(process)
    if status:
        return []
    print(f"  survived: {mutant.path}:{mutant.lines[0]} {mutant.what}", flush=True)
    return [mutant]


def sample(folder: str, count: int, seed: int) -> list[Mutant]:
    """Mutants of a folder, drawn by a seed."""
    mutants = mutants_of(folder)
    return random.Random(seed).sample(mutants, min(count, len(mutants)))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="*", default=list(FOLDERS), choices=list(FOLDERS))
    parser.add_argument("--count", type=int, default=200, help="mutants per folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    parser.add_argument("--only", default="", help="mutants of this text alone")
    options = parser.parse_args()
    os.chdir(ROOT)
    known, is_enough = equivalent(), True
    for folder in options.folders:
        drawn = [m for m in sample(folder, options.count, options.seed) if options.only in str(m)]
        judged = [m for m in drawn if str(m) not in known]
        killed = len(judged) - len(survivors(folder, judged, options.jobs))
        share = killed / max(1, len(judged))
        is_enough &= share >= WANTED
        print(
            f"{folder}, seed {options.seed}: {len(drawn)} mutants, {len(drawn) - len(judged)} equivalent, "
            f"{killed} of {len(judged)} killed: {share:.1%}"
        )
    return 0 if is_enough else 1


if __name__ == "__main__":
    sys.exit(main())
