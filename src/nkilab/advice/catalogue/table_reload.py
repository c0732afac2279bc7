"""Function tables that ScalarE loads again and again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ...timing.work import TABLELESS
from ..declare import Candidate, Example, Subject, transformation
from ..draft import with_steps

_FUNCTIONS = """
tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
out = nl.ndarray((16, 128, 512), nl.float32, buffer=nl.shared_hbm)
nisa.dma_copy(tile, x)
{body}
return out
"""
_SWITCHING = """
for i in range(8):
    one = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    two = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    nisa.activation(one, op=nl.exp, data=tile)
    nisa.activation(two, op=nl.tanh, data=tile)
    nisa.dma_copy(out[2 * i], one)
    nisa.dma_copy(out[2 * i + 1], two)
"""
_GROUPED = """
for i in range(8):
    one = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    nisa.activation(one, op=nl.exp, data=tile)
    nisa.dma_copy(out[i], one)
for i in range(8, 16):
    two = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    nisa.activation(two, op=nl.tanh, data=tile)
    nisa.dma_copy(out[i], two)
"""


@transformation(
    "table_reload",
    moves_rows=False,
    relieves=("scalar",),
    title="activation functions of one table stand together",
    what="ScalarE alternates between functions that need different tables",
    why="loading a table takes more than a microsecond, longer than most instructions",
    fix="do all calls of one function before the first call of the next",
    source="trn1 architecture guide, ScalarE; measured table loads",
    wrong=Example(_FUNCTIONS.format(body=_SWITCHING), {"x": "f32[128,512]"}),
    right=Example(_FUNCTIONS.format(body=_GROUPED), {"x": "f32[128,512]"}),
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
