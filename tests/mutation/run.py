"""Whether the tests of a folder notice small changes of its modules: `python -m tests.mutation.run timing`.

The tests are imported once, then each mutant runs in a process of its own: its function gets the changed
code, and the tests that reach the changed line run until one fails. A change outside of functions, or in what
numba compiles, is imported afresh. Jobs on records run as they stand; compiled code is kept for one mutant.

Neither mutmut nor cosmic-ray does this here: the first puts a dispatcher in place of each function, which
jobs cannot be compiled with, and leaves constants alone; the second starts Python anew for each mutant.
"""

from __future__ import annotations

import argparse
import gc
import os
import pickle
import random
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from types import CodeType, FunctionType
from typing import Any

# loaded once, before any process is forked; the package itself is not
import coverage
import hypothesis.strategies  # noqa: F401
import ml_dtypes  # noqa: F401
import numba.extending
import pytest
from _pytest.runner import runtestprotocol

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
# seconds of a processor after which a test, and the import of all, counts as one that never ends; bytes
_LEAST, _IMPORT, _MEMORY = 2.0, 60.0, 8 << 30
Items = list[pytest.Item]
# by line of a module the tests that reach it, and the seconds of each test
Reached = tuple[dict[tuple[str, int], set[str]], dict[str, float]]


def equivalent() -> dict[str, str]:
    """The mutants that no test could notice, and why."""
    blocks = _EQUIVALENT.read_text(encoding="utf-8").strip().split("\n\n")
    return dict(block.split("\n    ", 1) for block in blocks if not block.startswith("#"))


class Collected:
    """Plugin of pytest that hands over the tests that were collected, but those that compile jobs."""

    def __init__(self, act: Callable[[Items], None]) -> None:
        self.act = act

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if not session.testsfailed:
            self.act([item for item in session.items if _way(item) != "compiled"])
        return True


def _way(item: Any) -> str | None:
    return item.callspec.params.get("way") if hasattr(item, "callspec") else None


def _collected(folder: str, act: Callable[[Items], None]) -> int:
    """Collect the tests of a folder for a function; the exit status of pytest."""
    # what is loaded before the fork, hypothesis, has no assertions to rewrite
    quiet = ["-qq", "-s", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    quiet += ["-m", "corpus or not corpus"]
    return int(pytest.main([*FOLDERS[folder], *quiet], plugins=[Collected(act)]))


def _notice(items: Items, seconds: dict[str, float]) -> int:
    """Run tests until one fails: 1, else 0."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        signal.setitimer(signal.ITIMER_PROF, _LEAST + 10 * seconds.get(item.nodeid, 0.0))
        if any(report.failed for report in runtestprotocol(item, log=False, nextitem=following)):
            return 1
    return 0


def _chosen(items: Items, mutant: Mutant, reached: Reached) -> Items:
    """The tests that reach the line of a mutant, the short ones first; all, if it runs on import alone."""
    by_line, seconds = reached
    chosen = set().union(*(by_line.get((mutant.path, line), ()) for line in mutant.lines))
    some = [item for item in items if item.nodeid in chosen] or items
    return sorted(some, key=lambda item: seconds.get(item.nodeid, 0.0))


def _watched(folder: str, items: Items, scratch: Path) -> Reached:
    """What each test reaches without a change, in a process of its own: nothing is cached by another one."""
    by_line: dict[tuple[str, int], set[str]] = {}
    seconds: dict[str, float] = {}
    kept = scratch / "reached"
    for item in items:
        _, status = os.waitpid(_forked(partial(_watch, folder, item, kept), scratch / "log"), 0)
        if status:
            sys.exit(f"{(scratch / 'log').read_text()}\n{item.nodeid} fails without a change")
        lines, seconds[item.nodeid] = pickle.loads(kept.read_bytes())
        for line in lines:
            by_line.setdefault(line, set()).add(item.nodeid)
    return by_line, seconds


def _watch(folder: str, item: pytest.Item, kept: Path) -> int:
    """Run a test; write down its lines and seconds."""
    began = process_time()
    watch = coverage.Coverage(data_file=None, config_file=False, include=[f"{PACKAGE / folder}/*"])
    watch.set_option("run:disable_warnings", ["no-data-collected"])
    watch.start()
    status = _notice([item], {item.nodeid: _IMPORT})
    watch.stop()
    data = watch.get_data()
    short = {path: Path(path).relative_to(PACKAGE).as_posix() for path in data.measured_files()}
    lines = {(short[path], line) for path in short for line in data.lines(path) or ()}
    kept.write_bytes(pickle.dumps((lines, process_time() - began)))
    return status


def _functions() -> dict[tuple[str, str, int], list[FunctionType]]:
    """The functions that are loaded, by file, name and line."""
    functions: dict[tuple[str, str, int], list[FunctionType]] = {}
    for function in gc.get_objects():
        if isinstance(function, FunctionType):
            functions.setdefault(_key(function.__code__), []).append(function)
    return functions


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of the functions of a module and of its classes."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            if "<locals>" not in inner.co_qualname:
                yield from _codes(inner)


def _patch(mutant: Mutant, functions: dict[tuple[str, str, int], list[FunctionType]]) -> None:
    """Give the functions of a module the code that they have with a change."""
    for code in _codes(compile(mutant.tree(), str(PACKAGE / mutant.path), "exec")):
        for function in functions.get(_key(code), ()):
            function.__code__ = code


class Changed(MetaPathFinder, SourceFileLoader):
    """Imports the module of a mutant with its change."""

    def __init__(self, mutant: Mutant) -> None:
        SourceFileLoader.__init__(self, mutant.module, str(PACKAGE / mutant.path))
        self.mutant = mutant

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        return spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, _name: str) -> CodeType:
        return compile(self.mutant.tree(), self.path, "exec")


def _forked(run: Callable[[], int], log: Path | None) -> int:
    """A process that runs a function, exits with what that returns, and prints here or into a file."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        signal.setitimer(signal.ITIMER_PROF, _IMPORT)
        if log is not None:
            output = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
        status = run()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _unnoticed(mutants: list[Mutant], start: Callable[[Mutant], int], jobs: int) -> list[Mutant]:
    """The mutants whose process ends well."""
    alive: list[Mutant] = []
    running: dict[int, Mutant] = {}
    for mutant in [*mutants, *[None] * jobs]:
        if mutant is not None:
            running[start(mutant)] = mutant
        if running and (mutant is None or len(running) == jobs):
            process, status = os.wait()
            ended = running.pop(process)
            if not status:
                alive.append(ended)
                print(f"{ended.path}:{ended.lines[0]} {ended.what}", flush=True)
    return alive


def survivors(folder: str, mutants: list[Mutant], jobs: int) -> list[Mutant]:
    """The mutants that no test of the folder notices."""
    with TemporaryDirectory() as name:
        scratch = Path(name)
        _keep_compiled_code_in(name)
        kept, log = scratch / "kept", scratch / "log"

        def in_place(items: Items) -> None:
            reached = _watched(folder, items, scratch)
            functions = _functions()

            def start(mutant: Mutant) -> int:
                def run() -> int:
                    _patch(mutant, functions)
                    return _notice(_chosen(items, mutant, reached), reached[1])

                return _forked(run, log)

            inside = [m for m in mutants if _is_in_place(m, reached)]
            kept.write_bytes(pickle.dumps((reached, _unnoticed(inside, start, jobs))))

        _, status = os.waitpid(_forked(lambda: _collected(folder, in_place), None), 0)
        if status:
            sys.exit(status)
        reached, alive = pickle.loads(kept.read_bytes())

        def start(mutant: Mutant) -> int:
            def act(items: Items) -> None:
                os._exit(_notice(_chosen(items, mutant, reached), reached[1]))

            def run() -> int:
                if _is_compiled(mutant):
                    _keep_compiled_code_in(f"{name}/{hash(mutant)}")
                sys.meta_path.insert(0, Changed(mutant))
                return _collected(folder, act)

            return _forked(run, log)

        return alive + _unnoticed([m for m in mutants if not _is_in_place(m, reached)], start, jobs)


def _keep_compiled_code_in(folder: str) -> None:
    os.environ.update(NUMBA_CACHE_DIR=folder, NKILAB_CACHE_DIR=folder)
    numba.config.CACHE_DIR = folder


def _is_in_place(mutant: Mutant, reached: Reached) -> bool:
    """Whether a mutant can be tried by giving a function other code: tests run it as it stands."""
    is_run = any((mutant.path, line) in reached[0] for line in mutant.lines)
    return is_run and mutant.is_in_function and not _is_compiled(mutant)


def _is_compiled(mutant: Mutant) -> bool:
    text = (PACKAGE / mutant.path).read_text(encoding="utf-8")
    return "numba" in text or "code_cache" in text


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
        alive = survivors(folder, judged, options.jobs)
        killed = len(judged) - len(alive)
        is_enough &= killed >= WANTED * len(judged)
        print(
            f"{folder}, seed {options.seed}: {len(drawn)} mutants, {len(drawn) - len(judged)} equivalent, "
            f"{killed} of {len(judged)} killed: {killed / max(1, len(judged)):.1%}",
            flush=True,
        )
    return 0 if is_enough else 1


if __name__ == "__main__":
    sys.exit(main())
