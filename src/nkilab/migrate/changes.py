"""What one line has to change, and why; changes that follow from the tables of names and parameters alone."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from msgspec import Struct

from ..dialects.history import (
    BETA1,
    VERSIONS,
    Event,
    at,
    history,
    keyword_story,
    order,
    replacement,
    spelled,
    story,
)
from .source import JIT_MODULES, MODULES, Edit, Source, Use, split

MUST, SILENT, ADVICE = "must", "silent", "advice"
# A place that a rule is about, what stands there, and the rewrite.
Place = tuple[ast.expr | ast.stmt | ast.keyword, str, Sequence[Edit]]
Find = Callable[[Source, str], Iterator[Place]]


@dataclass(frozen=True)
class Change:
    """One thing that differs between two versions at one place."""

    line: int  # of the file, from 1
    column: int  # in characters, from 1
    severity: str  # "must" (refused there), "silent" (accepted, with another meaning), "advice" (works)
    what: str  # what stands there
    why: str  # what the versions make of it
    replacement: str = ""  # what to write, imperative; "" if nothing is known
    source: str = ""  # document
    edits: tuple[Edit, ...] = ()  # the mechanical rewrite, () if there is none


def change(
    source: Source, node: ast.expr | ast.stmt | ast.keyword | ast.alias, severity: str, what: str, why: str,
    replacement: str = "", origin: str = "", edits: Sequence[Edit] = (),
) -> Change:  # fmt: skip
    """A change at a node."""
    column = len(source.lines[node.lineno - 1][: node.col_offset].decode()) + 1
    return Change(node.lineno, column, severity, what, why, replacement, origin, tuple(edits))


def crosses(before: str, after: str, version: str) -> bool:
    """Whether a change that came with `version` lies between two versions."""
    return order(before) < order(version) <= order(after)


class Rule(Struct, frozen=True):
    """One change between versions that shows in the form of a file."""

    version: str  # the first in which it holds
    severity: str  # as in `Change`
    find: Find  # gives the places, for the version that is left
    why: str  # what changed
    replacement: str  # what to write, imperative
    source: str  # document
    until: str = ""  # the last version in which it holds; "" if it stays
    only_from: tuple[str, ...] = ()  # versions that it is about; () for all before `version`

    def holds(self, before: str, after: str) -> bool:
        """Whether it lies between two versions."""
        is_past = bool(self.until) and order(after) > order(self.until)
        is_about = not self.only_from or before in self.only_from
        return crosses(before, after, self.version) and not is_past and is_about


def stubs(after: str) -> str:
    """The document that shows what a version has."""
    return f"stubs of NKI {after}" if after != VERSIONS[-1] else f"documentation of NKI {after}"


def name_changes(source: Source, before: str, after: str) -> Iterator[Change]:
    """Names that the version lacks, or has as something else, and calls whose parameters changed."""
    for use in source.uses:
        if use.name and belongs(use, before):
            yield from _use_changes(source, use, before, after)


def belongs(use: Use, before: str) -> bool:
    """Whether a use is of the spelling of the version that is left."""
    return _is_beta1(use) == (before == BETA1)


def _is_beta1(use: Use) -> bool:
    return use.spelling == "neuronxcc"


# Modules of Beta 1 that no stub shows, and what took their place.
_UNLISTED = {
    "_private": "use nki.collectives, nisa.sendrecv or nisa.core_barrier",
    "nccl": "use nki.collectives",
    "kernels": "use the kernels of nki-library",
}


# Names of which a rule tells more, from the version on that it is about.
_OF_A_RULE = {"simulate_kernel": "0.3"}


def _use_changes(source: Source, use: Use, before: str, after: str) -> Iterator[Change]:
    shown = spelled(use.name)
    if use.name not in history():
        root = use.name.partition(".")[0]
        if root in _UNLISTED and before == BETA1:
            yield change(source, use.node, MUST, shown, "NKI 0.1 removed it", _UNLISTED[root])
        elif use.name not in MODULES and root != "compiler":
            yield change(source, use.node, ADVICE, shown, "no version of NKI has it", "check the spelling")
        return
    new = at(use.name, after)
    if use.name in _OF_A_RULE and order(after) >= order(_OF_A_RULE[use.name]):
        return
    if new is None:
        why = f"NKI {after} has no {shown}; {story(use.name, after)}"
        yield change(source, use.node, MUST, shown, why, replacement(use.name, after), stubs(after))
        return
    old = at(use.name, before)
    if use.call is None:
        return
    if new.kind == "word":
        why = f"a word for op= in NKI {after}, not a function"
        write = f"use nisa.activation, tensor_tensor or tensor_scalar with op={shown}"
        yield change(source, use.node, MUST, f"{shown}(...)", why, write, stubs(after))
    elif new.kind == "function" and old is not None and old.kind == "function":
        yield from _call_changes(source, use, use.call, old, new, after)


def _call_changes(
    source: Source, use: Use, call: ast.Call, old: Event, new: Event, after: str
) -> Iterator[Change]:
    gives_result = _is_beta1(use) and use.name.startswith("isa.") and not _has_destination(old)
    if gives_result and _has_destination(new):
        yield _destination(source, use, call, old, new, after)
    elif not any(isinstance(a, ast.Starred) for a in call.args):
        yield from _moved(source, use, call, old, new, after)
    yield from _keywords(source, use, call, old, new, after)
    yield from _defaults(source, use, call, old, new, after)


def _has_destination(event: Event) -> bool:
    positional = [p.name for p in event.signature.parameters]
    return "dst" in positional[:2]


def _destination(source: Source, use: Use, call: ast.Call, old: Event, new: Event, after: str) -> Change:
    """A Beta 1 instruction returns its result; later the caller gives it."""
    shown = spelled(use.name)
    statement = source.parents.get(call)
    edits: list[Edit] = []
    target = ""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = source.text_of(statement.targets[0])
        if isinstance(statement.targets[0], ast.Subscript) and _same_order(call, old, new):
            edits = _give_destination(source, statement, call, target)
    write = f"{shown}({target or 'dst'}, ...)" + (
        "" if edits else ", with a tile of nl.ndarray for the result"
    )
    why = f"it returns its result; in NKI {after} the caller gives dst, and nothing is returned"
    return change(
        source, use.node, MUST, f"{shown}(...)", why, f"write {write}", "NKI 0.2 migration guide", edits
    )


def _same_order(call: ast.Call, old: Event, new: Event) -> bool:
    """Whether the arguments given mean the same one place further right."""
    known = {p.name for p in new.signature.parameters}
    keywords = [k.arg for k in call.keywords]
    positional = old.signature.positional[: len(call.args)]
    is_plain = not any(isinstance(a, ast.Starred) for a in call.args)
    return (
        is_plain
        and len(positional) == len(call.args)
        and all(k in known for k in keywords)
        and new.signature.positional[1 : len(positional) + 1] == positional
    )


def _give_destination(source: Source, statement: ast.Assign, call: ast.Call, target: str) -> list[Edit]:
    start, _ = source.span(statement)
    inner, _ = source.span(call)
    _, after_name = source.span(call.func)
    rest = source.whole[after_name:]
    opening = rest.find(b"(")
    if rest[:opening].strip() or "\n" in target:
        return []
    place = after_name + opening + 1
    is_last = rest[opening + 1 : opening + 2] in (b"\n", b"\r")
    separator = ("," if is_last else ", ") if call.args or call.keywords else ""
    return [Edit(start, inner, ""), Edit(place, place, target + separator)]


def _moved(source: Source, use: Use, call: ast.Call, old: Event, new: Event, after: str) -> Iterator[Change]:
    """Positional arguments that stand for another parameter now."""
    was, now = old.signature.positional, new.signature.positional
    if old.signature.is_open and not was:
        return
    moved = [
        i
        for i in range(min(len(call.args), len(was)))
        if i >= len(now) or (was[i] != now[i] and (was[i] in now or now[i] in was))
    ]
    if not moved:
        return
    first = moved[0]
    names = ", ".join(was[first : len(call.args)])
    known = {p.name for p in new.signature.parameters}
    edits = []
    if all(n in known for n in was[first : len(call.args)]):
        for argument, name in zip(call.args[first:], was[first:], strict=False):
            start, _ = source.span(argument)
            edits.append(Edit(start, start, f"{name}="))
    yield change(
        source,
        use.node,
        MUST,
        f"{spelled(use.name)}(...)",
        f"positional argument {first + 1} is {was[first]}; in NKI {after} it is "
        + (now[first] if first < len(now) else "none"),
        f"give {names} by keyword",
        stubs(after),
        edits,
    )


# A label, which every version takes on every instruction.
_LABEL = "name"
_INSTEAD = {
    "mask": "compute on slices that hold only the elements the mask lets through",
    "dtype": "leave it out and give dst the dtype",
    "platform_target": "set NEURON_PLATFORM_TARGET_OVERRIDE",
    "use_gpsimd_dma": "use dma_engine=nisa.dma_engine.gpsimd_dma or .dma",
    "imm": "use src=",
    "num_channels": "leave it out and give collective_permute_implicit its channel_ids",
    "dst_rmw_op": "use nisa.dma_compute(dst, srcs, reduce_op)",
    "unique_indices": "use nisa.dma_compute(dst, srcs, reduce_op, unique_indices=True)",
    "psumAccumulateFlag": "use accumulate=",
    "is_moving_zero": "use is_moving_onezero=",
}
RENAMED = {("isa.register_move", "imm"): "src", ("isa.nc_matmul", "is_moving_zero"): "is_moving_onezero"}
DROPPED = {
    ("isa.tensor_copy", "dtype"),
    ("collectives.collective_permute_implicit_current_processing_rank_id", "num_channels"),
}


def _keywords(
    source: Source, use: Use, call: ast.Call, old: Event, new: Event, after: str
) -> Iterator[Change]:
    """Keywords that the version does not have."""
    if new.signature.is_open:
        return
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg == _LABEL or new.signature.named(keyword.arg):
            continue
        story = keyword_story(use.name, keyword.arg, after) or f"NKI {after} has no such keyword"
        renamed = RENAMED.get((use.name, keyword.arg), "")
        edits: list[Edit] = []
        if renamed:
            start, _ = source.span(keyword)
            edits = [Edit(start, start + len(keyword.arg), renamed)]
        elif (use.name, keyword.arg) in DROPPED and not _is_beta1(use):
            edits = without(source, call, keyword)
        yield change(
            source,
            keyword,
            MUST,
            f"{spelled(use.name)}(..., {keyword.arg}=)",
            story,
            _INSTEAD.get(keyword.arg, "leave it out"),
            stubs(after),
            edits,
        )
    if not _is_beta1(use):
        yield from _absent(source, use, call, old, new, after)


def _absent(source: Source, use: Use, call: ast.Call, old: Event, new: Event, after: str) -> Iterator[Change]:
    """Parameters that are left out and have no default any more."""
    passed = {*(k.arg for k in call.keywords), *new.signature.positional[: len(call.args)]}
    is_open = None in passed or any(isinstance(a, ast.Starred) for a in call.args)
    optional = {p.name for p in old.signature.parameters if p.default} - passed
    absent = ", ".join(p.name for p in new.signature.parameters if not p.default and p.name in optional)
    if absent and not is_open:
        why = f"NKI {after} has no default for {absent}"
        yield change(
            source, use.node, MUST, f"{spelled(use.name)}(...)", why, f"give {absent}=", stubs(after)
        )


def without(
    source: Source, call: ast.Call, keyword: ast.keyword, gone: Sequence[str | None] = ()
) -> list[Edit]:
    """The edit that takes a keyword out of a call; [] where its commas cannot be told.

    Args:
        source: the file.
        call: the call.
        keyword: what is taken out.
        gone: names of keywords that are taken out besides.
    """
    start, end = source.span(keyword)
    arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    ordered = sorted(arguments, key=lambda n: (n.lineno, n.col_offset))
    place = ordered.index(keyword)
    stays_before = any(not isinstance(g, ast.keyword) or g.arg not in gone for g in ordered[:place])
    if stays_before:
        _, last = source.span(ordered[place - 1])
        between = source.whole[last:start]
        comma = between.find(b",")
        return [] if comma < 0 or b"#" in between else [Edit(last + comma, end, "")]
    if place + 1 < len(ordered):
        following, _ = source.span(ordered[place + 1])
        return [] if b"#" in source.whole[end:following] else [Edit(start, following, "")]
    closing = source.whole[end:].lstrip()
    return [Edit(start, end, "")] if closing.startswith(b")") else []


# Defaults that changed in name only, as their documents say, or that mean what the old one did.
_SAME_DEFAULT = {
    "isa.core_barrier",
    "language.num_programs",
    "language.ndarray",
    "language.zeros",
    "language.full",
    "language.ones",
    "language.zeros_like",
    "language.empty_like",
    "language.rand",
    "tensor.ap",
}


def _defaults(
    source: Source, use: Use, call: ast.Call, old: Event, new: Event, after: str
) -> Iterator[Change]:
    """Parameters that are not given and whose default is another now: nothing refuses that."""
    if use.name in _SAME_DEFAULT or any(k.arg is None for k in call.keywords):
        return
    by_place = old.signature.positional[: len(call.args)]
    passed = {*(k.arg for k in call.keywords), *by_place}
    for parameter in new.signature.parameters:
        was = old.signature.named(parameter.name)
        if was is None or not was.is_listed or parameter.name in passed:
            continue
        if not was.default or not parameter.default:
            continue
        if _meaning(was.default) != _meaning(parameter.default):
            why = f"{parameter.name} is not given: it was {was.default} and is now {parameter.default}"
            yield change(
                source,
                use.node,
                SILENT,
                f"{spelled(use.name)}(...)",
                why,
                f"give {parameter.name}=",
                stubs(after),
            )


def _meaning(text: str) -> str:
    """A default without what its spelling alone says."""
    word = text.rpartition(".")[2] if text.startswith(("np.", "nl.", "fp32")) else text
    same = {"amax": "maximum", "min": "FP32_MIN", "False": "0", "()": "None"}
    return same.get(word, word.strip("'"))


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
