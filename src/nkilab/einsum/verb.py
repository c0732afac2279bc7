"""`nkilab einsum`: a specification in, a kernel and what goes with it out."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import FileError, UsageError, printable
from ..files.container import write_whole
from . import report
from .compiled import CompiledEinsum
from .compiler import compile


def pairs(given: Sequence[str], option: str) -> dict[str, str]:
    """NAME=VALUE options.

    Raises:
        UsageError: if one is something else.
    """
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise UsageError(f"{option} is {text!r}; it is NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def sizes_of(given: Sequence[str]) -> dict[str, int]:
    """Extents of --size.

    Raises:
        UsageError: if one is no positive whole number.
    """
    found = {}
    parts = [part for text in given for part in text.split(",")]
    for name, value in pairs(parts, "--size").items():
        if not value.isdecimal() or len(value) > 18 or not int(value):
            raise UsageError(f"--size {name} is {value}; it is a whole number of at least 1")
        found[name] = int(value)
    return found


def run(
    spec: str,
    *,
    output: str = "",
    notebook: str = "",
    tests: bool = False,
    explains: bool = False,
    sizes: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    as_json: bool = False,
    **choices: Any,
) -> int:
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
    compiled = compile(given_by(spec), sizes=sizes_of(sizes), dtypes=types_of(dtypes), **choices)
    verdicts = compiled.verify() if tests else []
    written = write(texts_of(compiled, output, notebook, tests))
    told = [str(verdict) for verdict in verdicts]
    if as_json:
        print(json.dumps({**report.data(compiled), "written": written, "verdicts": told}, indent=2))
    else:
        if not output and not explains:
            print(printable(compiled.module_text), end="")
        lines = [report.explain(compiled) if explains else report.summary(compiled)]
        lines += [f"  wrote {path}" for path in written] + [f"  {line}" for line in told]
        print(printable("\n".join(lines)), file=sys.stdout if explains or output else sys.stderr)
    return 0 if all(verdict.is_fine for verdict in verdicts) else 1


def given_by(spec: str) -> Any:
    """What SPEC on a command line means: expressions have brackets, subscripts an arrow, paths neither."""
    return spec if not spec.strip() or "->" in spec or ("[" in spec and "=" in spec) else Path(spec)


def types_of(given: Sequence[str]) -> Any:
    """Types of --dtype: one for all, or by tensor; None if there are none.

    Raises:
        UsageError: if both are mixed.
    """
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    return pairs(given, "--dtype") or None


def texts_of(compiled: CompiledEinsum, output: str, notebook: str, tests: bool) -> dict[Path, str]:
    """Paths and what is to stand there."""
    texts: dict[Path, str] = {}
    if output:
        path = Path(output)
        if path.suffix != ".py" or not path.stem.isidentifier():
            raise UsageError(f"the kernel is to be written to {output}; a module is named NAME.py")
        texts[path] = compiled.module_text
        makers = {"test": compiled.test_text, "benchmark": compiled.benchmark_text}
        makers["profile"] = compiled.profile_text
        for kind, maker in makers.items() if tests else ():
            texts[path.with_name(f"{kind}_{path.name}")] = maker(path.stem)
    if notebook:
        texts[Path(notebook)] = compiled.notebook()
    return texts


def write(texts: Mapping[Path, str]) -> list[str]:
    """Write files, each whole or not at all, after all their folders are found to be there.

    Raises:
        FileError: if a folder is missing or may not be written.
    """
    for path in texts:
        if not path.parent.is_dir():
            raise FileError(f"{path} cannot be written: {path.parent} is no folder")
    for path, text in texts.items():
        write_whole(path, text.encode())
    return [str(path) for path in texts]
