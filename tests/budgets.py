"""What the source weighs, against the limits and exceptions of `budgets.toml`.

python -m tests.budgets            prints every figure beside its budget, or those of the tables named
python -m tests.budgets --lower    writes smaller figures into budgets.toml and drops exceptions nobody needs
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from .sources import ROOT, SOURCES, name_of, nodes, tree
from .vocabulary import banned_names

FILE = Path(__file__).with_name("budgets.toml")
Function = ast.FunctionDef | ast.AsyncFunctionDef
# statements whose body is one level deeper
DEEPER = (ast.For, ast.AsyncFor, ast.While, ast.If, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)


@cache
def budgets() -> dict[str, Any]:
    """The file's tables."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def stands_in(name: str, places: list[str]) -> bool:
    """Whether a module's path is one of these, or below one of these folders."""
    return any(name == place or name.startswith(f"{place}/") for place in places)


def is_kernel(name: str) -> bool:
    """Whether a module is a kernel, whose form is that of the published one."""
    return stands_in(name, budgets()["lines"]["kernel_places"])


def functions(path: Path) -> Iterator[Function]:
    """The functions of a module, wherever they stand."""
    return (node for node in nodes(path) if isinstance(node, Function))


def bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of a compound statement; `elif` and `else` stand on the level of their `if`."""
    for field in ("body", "orelse", "finalbody"):
        yield getattr(statement, field, [])
    for branch in [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]:
        yield branch.body


def depth(block: list[ast.stmt]) -> int:
    """Levels of compound statements in a block; functions and classes within count on their own."""
    return max((_depth_of(statement) for statement in block if isinstance(statement, DEEPER)), default=0)


def _depth_of(statement: ast.stmt) -> int:
    inner = [*bodies(statement)]
    has_elif = isinstance(statement, ast.If) and [type(s) for s in statement.orelse] == [ast.If]
    below = [depth(block) + 1 for block in inner if not (has_elif and block is inner[1])]
    return max([*below, depth(inner[1])] if has_elif else below)


def parameters(function: Function) -> int:
    """Parameters that a caller names or counts: not `self`, `*args` and `**kwargs`."""
    named = [*function.args.posonlyargs, *function.args.args]
    own = bool(named) and named[0].arg in ("self", "cls")
    return len(named) - own + len(function.args.kwonlyargs)


def lines_of(function: Function) -> int:
    """Lines from `def` to the end, without the docstring and without functions defined in its body."""
    first = function.body[0]
    has_docstring = ast.get_docstring(function) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    inner = sum((n.end_lineno or 0) - n.lineno + 1 for n in function.body if isinstance(n, Function))
    return (function.end_lineno or 0) - function.lineno + 1 - docstring - inner


def over_limit(kind: str) -> dict[str, int]:
    """Functions beyond a limit, as "module:function", with their figure; the larger of two of one name."""
    measure = {"nesting": lambda f: depth(f.body), "parameters": parameters, "function_lines": lines_of}[kind]
    limit, beyond = budgets()["limits"][kind], dict[str, int]()
    for path in SOURCES:
        for function in () if is_kernel(name_of(path)) and kind != "function_lines" else functions(path):
            figure, key = measure(function), f"{name_of(path)}:{function.name}"
            if figure > limit:
                beyond[key] = max(figure, beyond.get(key, 0))
    return beyond


def any_counts() -> Counter[str]:
    """How often `Any` stands in the code of each folder and module that may not use it."""
    counts: Counter[str] = Counter()
    for path in SOURCES:
        name = name_of(path)
        if not stands_in(name, budgets()["any_allowed"]["places"]):
            counts[name.split("/")[0]] += sum(isinstance(n, ast.Name) and n.id == "Any" for n in nodes(path))
    return +counts


def _imported(path: Path) -> Iterator[str]:
    """The modules of the package that a module imports, as paths below it."""
    package = path.parent.relative_to(ROOT).parts
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
            for tail in [[], *([alias.name] for alias in node.names)]:
                stem = "/".join(filter(None, [*base, *tail]))
                yield from (f"{stem}.py", f"{stem}/__init__.py" if stem else "__init__.py")


@cache
def einsum_modules() -> frozenset[str]:
    """The Einsum compiler with every module that only it imports."""
    names = {name_of(path) for path in SOURCES}
    importers: dict[str, set[str]] = {name: set() for name in names}
    for path in SOURCES:
        for target in names.intersection(_imported(path)):
            importers[target].add(name_of(path))
    compiler = {name for name in names if stands_in(name, ["einsum"])}
    while more := {n for n in names - compiler if importers[n] and importers[n] <= compiler}:
        compiler |= more
    return frozenset(compiler)


def line_counts() -> dict[str, int]:
    """Lines of the package: code, of which the Einsum compiler; kernels; tables; the report's page."""
    counts = dict.fromkeys(("code", "einsum", "kernels", "tables", "assets"), 0)
    for path in sorted(ROOT.rglob("*")):
        kind = _kind(path)
        count = len(path.read_text(encoding="utf-8").splitlines()) if kind else 0
        if kind:
            counts[kind] += count
        if kind == "code" and name_of(path) in einsum_modules():
            counts["einsum"] += count
    return counts


def _kind(path: Path) -> str:
    """Which figure a file's lines count for, "" for none."""
    if path.suffix != ".py":
        return {
            ".yaml": "tables",
            ".toml": "tables",
            ".txt": "tables",
            ".js": "assets",
            ".css": "assets",
            ".html": "assets",
        }.get(path.suffix, "")
    if name_of(path) in budgets()["lines"]["table_modules"]:
        return "tables"
    return "kernels" if is_kernel(name_of(path)) else "code"


def table_share(name: str) -> float:
    """The part of a module's lines that are tables: values assigned at its head level."""
    path = ROOT / name
    body = [n for n in tree(path).body if isinstance(n, ast.Assign | ast.AnnAssign)]
    rows = sum((n.end_lineno or 0) - n.lineno + 1 for n in body)
    return rows / len(path.read_text(encoding="utf-8").splitlines())


def banned_name_counts() -> Counter[str]:
    """How often a banned name stands by itself, by folder or module."""
    counts: Counter[str] = Counter()
    for path in SOURCES:
        counts[name_of(path).split("/")[0]] += len(banned_names(path))
    return +counts


@cache
def figures() -> dict[str, dict[str, int]]:
    """Every figure that has a recorded ceiling, by table of the file."""
    limits = {kind: over_limit(kind) for kind in budgets()["limits"] if kind != "module_lines"}
    counts = {"any": dict(any_counts()), "banned_names": dict(banned_name_counts())}
    return {"lines": line_counts(), **counts, **limits}


def _key_and_number(line: str) -> tuple[str, int] | None:
    match = re.fullmatch(r'(?P<quote>"?)([\w./:]+)(?P=quote) = ([\d_]+)\s*(#.*)?', line)
    return (match[2], int(match[3])) if match else None


def lowered(text: str) -> str:
    """The file with each ceiling as low as its figure lets it be, and without needless exceptions."""
    table, lines = "", []
    for line in text.splitlines():
        if line.startswith("["):
            table = line.strip("[]")
        entry = _key_and_number(line) if table in figures() else None
        if entry is None:
            lines.append(line)
            continue
        key, ceiling = entry
        figure = figures()[table].get(key, 0)
        smallest = -(-figure // 100) * 100 if table == "lines" else figure
        if smallest:
            lines.append(line.replace(line.split(" = ")[1].split()[0], str(min(ceiling, smallest)), 1))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the figures; with --lower, write them."""
    for table in [name for name in sys.argv[1:] if name in figures()] or figures():
        for key, figure in sorted(figures()[table].items()):
            print(f"{table:15} {key:55} {figure:6} of {budgets()[table].get(key, 'none')}")
    if "--lower" in sys.argv:
        FILE.write_text(lowered(FILE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
