"""Banks of PSUM that products wait for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from ...place.walk import KINDS
from ...trace.program import Program
from ..declare import Candidate, Subject, plural, transformation
from ..subject import by_line, later_of


@transformation(
    "psum_in_flight",
    moves_rows=False,
    relieves=(),
    title="sums leave PSUM before their bank is needed",
    what="a matmul waits until a bank of PSUM has been copied to SBUF",
    why="eight banks are all there are; TensorE stands still meanwhile",
    fix="make the tile inside the loop so that banks rotate, and copy each sum to sbuf as soon as it "
    "is complete",
    source="trn1 architecture guide, PSUM: eight outstanding accumulation groups",
)
def find(subject: Subject) -> Iterator[Candidate]:
    """Matmuls that wait for a bank of PSUM to be copied out, as if they did not."""
    program, waits = subject.program, subject.plan.waits
    is_product = np.array([form.accumulates for form in program.forms], np.bool_)
    if not is_product.any():
        return
    # nodes beyond the rows are no products
    is_product = np.pad(is_product[program.form_column], (0, len(waits.start) - 1 - len(program)))
    later = later_of(waits)
    emptied = is_product[later] & ~is_product[waits.node]
    emptied &= np.isin(waits.kind, [KINDS.index(name) for name in ("reuse", "anti", "output")])
    for line, matmuls in by_line(program, np.unique(later[emptied])).items():
        yield Candidate(
            line,
            f"{plural(len(matmuls), 'matmul')} wait until a bank of PSUM has been copied out",
            float(subject.spent[matmuls].sum()),
            (("a bank for each sum", partial(_with_banks, subject, line)),),
        )


def _with_banks(subject: Subject, line: int) -> Program | float:
    """A tile for each sum; nothing changes where sums fill parts of tiles."""
    edited = subject.renewed_at(np.array([line]), np.ones(len(subject.slots.row), np.bool_))
    return subject.latency_ns if edited is None else edited
