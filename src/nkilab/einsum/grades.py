"""The one table of what may be wrong with a specification, with grades; and what the checks found.

An error has no meaning, or gives a wrong result: it stops. A repair is redundant or contradictory, but what
is meant follows from the rest: it is compiled, and the report says what was taken; `--strict` refuses it.
Advice is right but slow, or is done in another way than the words say. The checks are in `checks/`; each
names a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Any

from msgspec import Struct
from msgspec.structs import replace as replaced
from msgspec.toml import decode

from ..errors import SpecError
from .language.nodes import Node
from .language.spec import Execution, Fusion, Placement


class Grade(Enum):
    """How grave a finding is."""

    ERROR = "error"
    REPAIR = "repair"
    ADVICE = "advice"


class Row(Struct, frozen=True):
    """One thing that may be wrong."""

    grade: Grade  # of it
    says: str  # the sentence, with fields in braces
    change: str  # the smallest change that repairs it, with fields in braces
    at: str = ""  # keys below what it is found in, and at the end a word of a list, with fields in braces
    taken: str = ""  # for repairs, what is compiled instead
    faults: tuple[int, ...] = ()  # numbers of the faults of the published example that it answers
    source: str = ""  # the rule of the machine or language behind it
    id: str = ""  # its name


@cache
def table() -> dict[str, Row]:
    """The rows of `grades.toml`, by name."""
    text = files(__package__).joinpath("grades.toml").read_bytes()
    return {name: replaced(row, id=name) for name, row in decode(text, type=dict[str, Row]).items()}


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Args:
        row: of the table.
        node: key and place.
        problem: the sentence, filled in.
        change: the smallest change, filled in; "" for none.
        taken: what is compiled instead, filled in.
    """

    row: Row
    node: Node
    problem: str
    change: str = ""
    taken: str = ""

    @property
    def grade(self) -> Grade:
        """Error, repair or advice."""
        return self.row.grade

    @property
    def place(self) -> str:
        """file:line:column."""
        return str(self.node.place)

    def __str__(self) -> str:
        parts = [part for part in (self.place, self.node.path, self.problem) if part]
        return ": ".join(parts)

    @property
    def text(self) -> str:
        """All of it, over a few lines."""
        lines = [str(self)]
        if self.taken:
            lines.append(f"  taken: {self.taken}")
        if self.change:
            lines.append(f"  hint: {self.change}")
        return "\n".join(lines)

    def data(self) -> dict[str, Any]:
        """For JSON."""
        place = self.node.place
        return {
            "id": self.row.id, "grade": self.grade.value, "faults": list(self.row.faults), "file": place.file,
            "line": place.line, "column": place.column, "key": self.node.path, "problem": self.problem,
            "change": self.change, "taken": self.taken,
        }  # fmt: skip


def found(row: str, subject: Node | Placement | Execution | Fusion, **values: Any) -> Finding:
    """A finding of a row, its sentences filled in by what it is found in, and by values."""
    fault, node = table()[row], subject if isinstance(subject, Node) else subject.node
    known = values if isinstance(subject, Node) else {**vars(subject), **values}
    words = {name: _shown(value) for name, value in known.items()}
    sentences = (text.format_map(words) for text in (fault.says, fault.change, fault.taken))
    keys = (key.format_map(words) for key in fault.at.split(".") if key)
    return Finding(fault, node.within(*keys), *sentences)


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def enforce(findings: Iterable[Finding], *, strict: bool = False) -> None:
    """Refuse a specification that has errors, under `strict` also one that needs repairs.

    Raises:
        SpecError: at the first of them; the others stand below it.
    """
    grades = (Grade.ERROR, Grade.REPAIR) if strict else (Grade.ERROR,)
    grave = [f for f in findings if f.grade in grades]
    if not grave:
        return
    first, rest = grave[0], grave[1:]
    facts = [f"also {f}{f' ({f.change})' if f.change else ''}" for f in rest]
    error = SpecError(first.problem, hint=first.change, source=first.row.source)
    raise error.located(first.place, first.node.path, facts)
