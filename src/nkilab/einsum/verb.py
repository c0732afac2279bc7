"""`nkilab einsum`: a specification in, a kernel and what goes with it out."""

from __future__ import annotations

import pickle
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..arguments import call_arguments
from ..disk import check_outputs, write_whole
from ..documents import print_document
from ..errors import EXIT_FAULT, EXIT_FINE, UnsupportedError, UsageError, printable
from ..tune.executors import Work
from . import report
from .compiled import CompiledEinsum
from .compiler import compile
from .search import Plans, PlanTask, Search

# What stands beside the kernel: what may be turned of it, where something may; by --test, what drives it.
SPACE = "the tile sizes"
DRIVERS = {
    "test": CompiledEinsum.test_text,
    "benchmark": CompiledEinsum.benchmark_text,
    "profile": CompiledEinsum.profile_text,
}


def pairs(given: Sequence[str], option: str) -> dict[str, str]:
    """NAME=VALUE options.

    Raises:
        UsageError: if one is something else.
    """
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise UsageError(f"{option} is {text!r}; it must be NAME=VALUE")
        if name.strip() in found:
            raise UsageError(f"{option} {name.strip()} is given twice", hint="leave one of them out")
        found[name.strip()] = value.strip()
    return found


_RANGE = re.compile(r"(\d{1,18})\.\.(\d{1,18})(?::(\d{1,18}))?")


def sizes_of(given: Sequence[str]) -> dict[str, int | range]:
    """Extents of --size; of FIRST..LAST or FIRST..LAST:STEP all that it has.

    Raises:
        UsageError: if one is no positive whole number.
    """
    found: dict[str, int | range] = {}
    parts = [part for text in given for part in text.split(",")]
    for name, value in pairs(parts, "--size").items():
        if (ends := _RANGE.fullmatch(value)) and int(ends[3] or 1):
            found[name] = range(int(ends[1]), int(ends[2]) + 1, int(ends[3] or 1))
        elif value.isdecimal() and len(value) <= 18 and int(value):
            found[name] = int(value)
        else:
            raise UsageError(
                f"--size {name} is {value}; it must be a whole number of at least 1, or FIRST..LAST:STEP"
            )
    return found


def run(
    spec: str, *, output: str = "", notebook: str = "", tests: bool = False, explains: bool = False,
    sizes: Sequence[str] = (), dtypes: Sequence[str] = (), as_json: bool = False, **choices: Any,
) -> int:  # fmt: skip
    """Compile, write what is asked for, tell the rest; returns the exit status.

    Args:
        spec: path of a file, expressions, or subscripts.
        output: path for the kernel's module; its text goes to standard output if not given.
        notebook: path for the notebook.
        tests: whether to run the kernel on its probes, and to write its test and drivers beside `output`.
        explains: whether to tell the whole story.
        sizes, dtypes: NAME=VALUE.
        as_json: whether standard output has JSON alone.
        choices: of `compile`.
    """
    paths = paths_of(output, notebook, tests)
    check_outputs(paths, [spec])
    compiled = compile(spec, sizes=sizes_of(sizes), dtypes=types_of(dtypes), **choices)
    verdicts = compiled.verify() if tests else []
    texts = texts_of(compiled, paths)
    paths = {what: path for what, path in paths.items() if texts[path]}
    for path in paths.values():
        write_whole(path, texts[path].encode())
    told = [str(verdict) for verdict in verdicts]
    passes = all(verdict.is_fine for verdict in verdicts)
    if as_json:
        print_document(
            {**report.data(compiled), "written": [*paths.values()], "verdicts": told, "passes": passes}
        )
    else:
        if not output and not explains:
            print(printable(compiled.module_text), end="")
        lines = [report.explain(compiled) if explains else report.summary(compiled)]
        lines += [f"  wrote {path}" for path in paths.values()] + [f"  {line}" for line in told]
        print(printable("\n".join(lines)), file=sys.stdout if explains or output else sys.stderr)
    return EXIT_FINE if passes else EXIT_FAULT


def search_of(seconds: float, workers: str, journal: str) -> Search:
    """The search that options ask for.

    Raises:
        UsageError: if they ask for none, and say how it runs.
    """
    if not seconds and (journal or workers != "1"):
        raise UsageError("--workers and --journal belong to --search", hint="add --search SECONDS")
    return Search(seconds, workers, journal)


def plan_task(work: Work) -> PlanTask:
    """What `nkilab tune` searches of a specification, whose path stands where a kernel does.

    Raises:
        UsageError: if it is given what belongs to kernels, or is no file.
        UnsupportedError: if it has a mapping.
    """
    if work.args or work.weights or work.grid or work.version:
        raise UsageError(
            "an Einsum takes no --arg, --weights, --grid or --nki", hint="give its extents: --kw RANK=N"
        )
    path = Path(work.kernel)
    if not path.is_file():
        raise UsageError(f"there is no file {path}", hint="pass FILE.py:KERNEL, or an Einsum as YAML")
    rules = compile(path, sizes=call_arguments((), work.keywords)[1], target=work.target or "trn2")
    if rules.spec.is_mapped:
        message = f"{path.name} has a mapping, which decides; the choices of the rules are searched"
        raise UnsupportedError(message, hint="leave its mapping out, or write nkilab einsum --search")
    return PlanTask(pickle.dumps(Plans(rules)), work.goals)


def types_of(given: Sequence[str]) -> Any:
    """Types of --dtype: one for all, or by tensor; None if there are none.

    Raises:
        UsageError: if both are mixed.
    """
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    return pairs(given, "--dtype") or None


def paths_of(output: str, notebook: str, tests: bool) -> dict[str, str]:
    """What is written where, by the option that asks for it.

    Raises:
        UsageError: if the kernel's file is no module's.
    """
    paths = {}
    if output:
        path = Path(output)
        if path.suffix != ".py" or not path.stem.isidentifier():
            raise UsageError(f"the kernel is to be written to {output}; a module is named NAME.py")
        paths["-o"] = output
        paths[SPACE] = str(path.with_name(f"space_{path.stem}.yaml"))
        drivers = {f"the {kind} of --test": path.with_name(f"{kind}_{path.name}") for kind in DRIVERS}
        paths |= {what: str(driver) for what, driver in drivers.items() if tests}
    return paths | ({"--notebook": notebook} if notebook else {})


def texts_of(compiled: CompiledEinsum, paths: Mapping[str, str]) -> dict[str, str]:
    """What is to stand at each path; nothing where "" is."""
    module = Path(paths.get("-o", "")).stem
    texts = {"-o": lambda: compiled.module_text, "--notebook": compiled.notebook}
    texts[SPACE] = lambda: compiled.space_text
    texts |= {f"the {kind} of --test": partial(maker, compiled, module) for kind, maker in DRIVERS.items()}
    return {path: texts[what]() for what, path in paths.items()}
