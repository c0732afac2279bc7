"""`nkilab einsum`: a specification in, a kernel and what goes with it out."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import FileError, UsageError
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
    for name, value in pairs(given, "--size").items():
        if not value.isdigit() or not int(value):
            raise UsageError(f"--size {name} is {value}; it is a whole number of at least 1")
        found[name] = int(value)
    return found


def run(
    spec: str,
    *,
    output: str = "",
    dialect: str = "nki",
    as_written: bool = False,
    strict: bool = False,
    search: float = 0.0,
    tests: bool = False,
    notebook: str = "",
    explains: bool = False,
    sizes: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    target: str = "",
    as_json: bool = False,
) -> int:
    """Compile, write what is asked for, tell the rest; returns the exit status."""
    given = spec if "[" in spec or "->" in spec else Path(spec)
    compiled = compile(
        given,
        sizes=sizes_of(sizes),
        dtypes=_types(dtypes),
        dialect=dialect,
        as_written=as_written,
        strict=strict,
        search=search,
        target=target or "trn2",
    )
    written = _written(compiled, output, notebook, tests)
    verdicts = compiled.verify() if tests else []
    told = [str(v) for v in verdicts]
    if as_json:
        print(json.dumps({**report.data(compiled), "written": written, "verdicts": told}, indent=2))
    else:
        if not output and not explains:
            print(compiled.source, end="")
        text = report.explain(compiled) if explains else report.summary(compiled)
        lines = [text, *(f"  wrote {path}" for path in written), *(f"  {line}" for line in told)]
        print("\n".join(lines), file=sys.stdout if explains else sys.stderr)
    return 0 if all(v.is_fine for v in verdicts) else 1


def _types(given: Sequence[str]) -> dict[str, str] | str | None:
    """Types of --dtype: one for all, or by name."""
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    return pairs(given, "--dtype") if given else None


def _written(compiled: CompiledEinsum, output: str, notebook: str, tests: bool) -> list[str]:
    """Write the files that are asked for, whole or not at all."""
    texts: dict[Path, str] = {}
    if output:
        path = Path(output)
        texts[path] = compiled.source
        if tests:
            texts[path.with_name(f"test_{path.name}")] = compiled.test_text(path.stem)
            texts[path.with_name(f"benchmark_{path.name}")] = compiled.benchmark_text(path.stem)
            texts[path.with_name(f"profile_{path.name}")] = compiled.profile_text(path.stem)
    if notebook:
        texts[Path(notebook)] = compiled.notebook()
    for path in texts:
        if not path.parent.is_dir():
            raise FileError(f"{path.parent} is no folder")
    for path, text in texts.items():
        path.write_text(text)
    return [str(path) for path in texts]
