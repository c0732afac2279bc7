"""Function tables that ScalarE loads again and again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ...timing.work import TABLELESS
from ..declare import Candidate, Subject, transformation
from ..draft import with_steps


@transformation(
    "table_reload",
    moves_rows=False,
    relieves=("scalar",),
    title="activation functions of one table stand together",
    what="ScalarE alternates between functions that need different tables",
    why="loading a table takes more than a microsecond, longer than most instructions",
    fix="do all calls of one function before the first call of the next",
    source="trn1 architecture guide, ScalarE; measured table loads",
)
def find(subject: Subject) -> Iterator[Candidate]:
    """Loads of function tables beyond one per table."""
    program = subject.program
    tables = [next((s.table for s in f.steps if s.table not in TABLELESS), "") for f in program.forms]
    rows = np.flatnonzero(np.array(list(map(bool, tables)), np.bool_)[program.form_column])
    if len(rows) < 2:
        return
    names = [tables[n] for n in program.form_column[rows].tolist()]
    switches = [i for i in range(1, len(names)) if names[i] != names[i - 1]]
    extra = len(switches) + 1 - len(set(names))
    if extra < 1:
        return
    first = {names[i]: i for i in reversed(range(len(names)))}
    # each table is loaded once, where it is first used
    kept = rows[[i for i in range(len(names)) if i not in first.values()]]

    def once() -> float:
        return subject.with_costs(with_steps(program, kept, lambda step: replace(step, table="")))

    yield Candidate(
        int(program.line_column[rows[switches[-1]]]),
        f"ScalarE loads a function table {len(switches) + 1} times for {len(set(names))} tables: "
        f"{', '.join(dict.fromkeys(names))}",
        extra * program.machine["activation_table_load_ns"],
        (("each table loaded once", once),),
    )
