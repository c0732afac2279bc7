"""Imports of the spelling that is left, and of names that are gone."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ..dialects.history import BETA1, at, history, order, replacement, spelled, story
from .changes import MUST, Change, belongs, change, stubs
from .source import JIT_MODULES, MODULES, Edit, Source, Use, split


def import_changes(source: Source, before: str, after: str) -> Iterator[Change]:
    """Imports of the spelling that is left, and of names that are gone."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from _from_changes(source, node, before, after)
        elif isinstance(node, ast.Import) and before == BETA1:
            old = [a for a in node.names if f"{a.name}.".startswith("neuronxcc.nki.")]
            yield from (_plain_change(source, node, alias, after) for alias in old)


def _plain_change(source: Source, node: ast.Import, alias: ast.alias, after: str) -> Change:
    name = alias.name.removeprefix("neuronxcc.")
    edits = []
    if alias.asname:
        bound = "" if alias.asname == name else f" as {alias.asname}"
        edits = [Edit(*source.span(alias), name + bound)]
    return _spelling(source, node, f"import {alias.name}", f"import {name}", after, edits)


def _from_changes(source: Source, node: ast.ImportFrom, before: str, after: str) -> Iterator[Change]:
    module = node.module or ""
    if before == BETA1 and module == "neuronxcc" and any(a.name == "nki" for a in node.names):
        only = node.names[0] if len(node.names) == 1 else None
        bound = f" as {only.asname}" if only is not None and only.asname not in (None, "nki") else ""
        edits = [Edit(*source.span(node), f"import nki{bound}")] if only is not None else []
        yield _spelling(source, node, "from neuronxcc import nki", "import nki", after, edits)
    elif before == BETA1 and (module == "neuronxcc.nki" or module.startswith("neuronxcc.nki.")):
        start, end = source.span(node)
        written = source.whole[start:end]
        place = written.find(b"neuronxcc.")
        names = [(split(f"{module}.{a.name}") or ("", ""))[1] for a in node.names]
        is_whole = all(at(n, after) is not None or n in MODULES for n in names)
        edits = [Edit(start + place, start + place + len("neuronxcc."), "")] if place > 0 and is_whole else []
        yield _spelling(
            source, node, f"from {module}", f"from {module.removeprefix('neuronxcc.')}", after, edits
        )
    elif before == BETA1 and module in JIT_MODULES and any(a.name == "nki_jit" for a in node.names):
        yield _spelling(source, node, f"from {module} import nki_jit", "import nki, and nki.jit", after, [])
    for alias in node.names:
        use = Use(ast.Name("", ast.Load()), *(split(f"{module}.{alias.name}") or ("", "")))
        if use.name in history() and belongs(use, before) and at(use.name, after) is None:
            why = f"NKI {after} has no {spelled(use.name)}; {story(use.name, after)}"
            yield change(
                source,
                alias,
                MUST,
                f"import of {alias.name}",
                why,
                replacement(use.name, after),
                stubs(after),
            )


def _spelling(
    source: Source, node: ast.stmt, was: str, now: str, after: str, edits: Sequence[Edit]
) -> Change:
    refused = "is an error in kernels" if order(after) >= order("0.4") else "is left behind"
    return change(
        source,
        node,
        MUST,
        was,
        f"NKI {after} is spelled nki; neuronxcc.nki {refused}",
        f"write {now}",
        "NKI 0.4 release notes",
        edits,
    )
