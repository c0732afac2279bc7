"""The support matrix: every public name of NKI, in every version, and what nkilab makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from inspect import cleandoc
from typing import Any

from ._lazy import rich
from .dialects.dst_first.tensor import Tensor
from .dialects.gate import name_in
from .dialects.history import (
    BETA1,
    VERSIONS,
    at,
    canonical_name,
    history,
    replacement,
    spelled,
    versions_with,
)
from .dialects.serve import tables
from .dialects.support import ACCEPTED, REFUSED, SUPPORTED
from .dialects.value_returning.tensor import Tensor as ReturnedTensor
from .errors import UsageError, did_you_mean
from .isa import REGISTRY
from .pages.content import Bullets, Page, Section, Text, code
from .pages.costs import examples
from .pages.instruction import runs_of
from .progress import console_for

SCHEMA = "nkilab.ops/1"
SHOWN = VERSIONS
STATUSES = {
    "supported": "values, limits and a counterexample are asserted against an independent source",
    "unproven": "it runs, but no test asserts its values against an independent source",
    "accepted": "it runs and has no effect",
    "refused": "it raises our error",
    "missing": "nkilab does not have it yet",
}
_MARKS = {"supported": "[green]●[/]", "unproven": "[yellow]◐[/]", "accepted": "[cyan]○[/]",
          "refused": "[magenta]✕[/]", "missing": "[red]?[/]", "": "·"}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One name."""

    name: str  # in the tables of `history`
    spelled: str  # as users write it
    # per version that is shown, one of `STATUSES`, "" where the version has no such name
    status: dict[str, str]
    reasons: dict[str, str]  # why, per status but "supported" and "unproven"
    is_listed: bool  # whether a stub has it
    steps: int = 0  # of the cost of an instruction, over its examples on all chips
    assumed_steps: int = 0  # those whose cost is assumed


@dataclass(frozen=True)
class Matrix:
    """Rows of the matrix."""

    rows: tuple[Row, ...]  # in the order of the modules

    def counts(self, version: str) -> dict[str, int]:
        """How many names of a version have each status."""
        return {s: sum(r.status[version] == s for r in self.rows) for s in STATUSES}

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "schema": SCHEMA,
            "versions": list(SHOWN),
            "statuses": STATUSES,
            "counts": {v: self.counts(v) for v in SHOWN},
            "assumed_steps": sum(r.assumed_steps for r in self.rows),
            "names": [asdict(row) for row in self.rows],
        }


@cache
def _served(version: str) -> dict[str, Any]:
    """What nkilab serves in a version, by name."""
    is_beta1 = version == BETA1
    tables_served = tables("neuronxcc" if is_beta1 else "nki", version)
    served = {name_in(module, "")[:-1]: None for module in tables_served}
    served |= {
        name_in(module, name): value
        for module, table in tables_served.items()
        for name, value in table.items()
    }
    return served


def is_served(name: str, version: str) -> bool:
    """Whether nkilab serves a name, or the object that it is a member of has it."""
    served = _served(version)
    holder, _, member = name.rpartition(".")
    if name in served:
        return True
    tensor = ReturnedTensor if version == BETA1 else Tensor
    # by its list of names: asking for the member itself may compute it
    return bool(holder) and member in dir(tensor if holder == "tensor" else served.get(holder))


def status_of(name: str, version: str) -> tuple[str, str]:
    """The status of a name in a version and its reason; two empty words where it has no such name."""
    if at(name, version) is None:
        return "", ""
    spelling = BETA1 if version == BETA1 else "nki"
    if name in REFUSED[spelling]:
        return "refused", REFUSED[spelling][name]
    if not is_served(name, version):
        return "missing", ""
    if name in ACCEPTED[spelling]:
        return "accepted", ACCEPTED[spelling][name]
    return ("supported" if name in SUPPORTED[spelling] else "unproven"), ""


def _row(name: str) -> Row:
    status, reasons = {}, {}
    for version in SHOWN:
        status[version], reason = status_of(name, version)
        if reason:
            reasons[status[version]] = reason
    listed = any(e.is_listed for e in history()[name])
    cls = REGISTRY.get(name.removeprefix("isa."))
    steps = [s for e in examples(cls) for chip in e.steps for s in chip] if cls is not None else []
    assumed = sum(s.certainty == "assumed" for s in steps)
    return Row(name, spelled(name), status, reasons, listed, len(steps), assumed)


def _rank(name: str) -> tuple[int, str]:
    roots = ("isa", "language", "collectives", "tensor", "typing", "compiler")
    root = name.partition(".")[0] if "." in name else name
    return (roots.index(root) if root in roots else -1, name)


def _names() -> Iterator[str]:
    """The names that a version shown has."""
    for name in sorted(history(), key=_rank):
        if set(versions_with(name)) & set(SHOWN):
            yield name


@cache
def public_names() -> dict[str, list[str]]:
    """Names in the tables of `history` by spelling and by last word; instructions have pages."""
    names = [name for name in _names() if name.removeprefix("isa.") not in REGISTRY]
    by_words: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda name: name.count(".")):
        by_words.setdefault(name.rpartition(".")[2], []).append(name)
    return {**by_words, **{spelled(name): [name] for name in names}}


def name_page(name: str) -> Page:
    """What a public name is for, how each version of NKI spells it, and what nkilab makes of it."""
    facts: dict[str, list[str]] = {}
    # what has it comes first
    for version in sorted(VERSIONS, key=lambda version: at(name, version) is None):
        event = at(name, version)
        if event is None:
            way_out = replacement(name, version)
            said = [f"no such name{way_out and f'; {way_out}'}"]
        else:
            status, reason = status_of(name, version)
            call = f"({event.text})" if event.kind == "function" else ""
            verdict = status + (reason and f": {reason}")
            said = [code(spelled(name) + call), verdict]
        for fact in said:
            facts.setdefault(fact, []).append(version)
    purpose = _purpose(name, versions_with(name)[-1])
    bullets = Bullets(tuple(f"NKI {runs_of(versions)}: {fact}" for fact, versions in facts.items()))
    return Page(spelled(name), "name", (Section("", (*purpose, bullets)),))


def _purpose(name: str, version: str) -> Iterator[Text]:
    """The first paragraph about what nkilab serves under a name, where it has one."""
    tensor = ReturnedTensor if version == BETA1 else Tensor
    own = (
        getattr(tensor, name.removeprefix("tensor."), None)
        if name.startswith("tensor.")
        else _served(version).get(name)
    )
    if own is not None and not isinstance(own, str) and own.__doc__:
        yield Text(" ".join(cleandoc(own.__doc__).split("\n\n")[0].split()))


def matrix(words: str = "", *, only_missing: bool = False) -> Matrix:
    """The matrix, or a part of it.

    Args:
        words: a name as users write it, or a part of one; all if "".
        only_missing: leave out what is not missing anywhere.

    Raises:
        UsageError: if no name has these words.
    """
    chosen = list(_names())
    if words:
        exact = canonical_name(words)
        rows_chosen = [n for n in chosen if n == exact] or [
            n for n in chosen if words in spelled(n) or words in n
        ]
        if not rows_chosen:
            hint = did_you_mean(words, map(spelled, chosen), most=3)
            raise UsageError(f"no version of NKI has {words}", hint=hint)
        chosen = rows_chosen
    rows = map(_row, chosen)
    return Matrix(tuple(row for row in rows if not only_missing or "missing" in row.status.values()))


def print_matrix(matrix_shown: Matrix) -> None:
    """The matrix as a table on standard output, what its marks mean, and the reasons."""
    console = console_for()
    if not matrix_shown.rows:
        console.print("nothing is missing")
        return
    table = rich("table").Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("name", overflow="fold")
    for version in SHOWN:
        table.add_column(version, justify="center", no_wrap=True)
    table.add_column("assumed", justify="right", no_wrap=True)
    table.add_column("why", no_wrap=True)
    reasons: dict[str, int] = {}
    for row in matrix_shown.rows:
        texts = [*row.reasons.values()] + ([] if row.is_listed else [_UNLISTED])
        numbers = [str(reasons.setdefault(reason, len(reasons) + 1)) for reason in texts]
        costs = f"{row.assumed_steps}/{row.steps}" if row.steps else ""
        table.add_row(row.spelled, *(_MARKS[row.status[v]] for v in SHOWN), costs, ",".join(numbers))
    console.print(table)
    console.print()
    for status, meaning in STATUSES.items():
        count = sum(row.status[v] == status for row in matrix_shown.rows for v in SHOWN)
        if count:
            console.print(f"{_MARKS[status]} {status}, {count}: {meaning}")
    steps, assumed = sum(r.steps for r in matrix_shown.rows), sum(r.assumed_steps for r in matrix_shown.rows)
    if steps:
        console.print(f"assumed: steps of the examples whose cost is assumed, {assumed} of {steps}")
    for reason, number in reasons.items():
        console.print(f"{number}: {reason}")


_UNLISTED = "no stub has it; published kernels use it"
