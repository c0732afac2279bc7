"""Banks of PSUM that products wait for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from ...place.walk import KINDS
from ...trace.program import Program
from ..declare import Candidate, Example, Subject, plural, transformation
from ..renewal import renewed
from ..subject import by_line, later_of

_EVICTED = """
left = nl.ndarray((128, 128), nl.bfloat16, buffer=nl.sbuf)
right = nl.ndarray((128, 512), nl.bfloat16, buffer=nl.sbuf)
result = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
nisa.dma_copy(left, a)
nisa.dma_copy(right, b)
{before}for _ in range(32):
{inside}    for k in range(4):
        nisa.nc_matmul(total, left, right, accumulate=k > 0)
    nisa.tensor_copy(result, total)
nisa.dma_copy(out, result)
return out
"""
_TOTAL = "total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)\n"
_MATMUL_ARGS = {"a": "bf16[128,128]", "b": "bf16[128,512]"}


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
    wrong=Example(_EVICTED.format(before=_TOTAL, inside=""), _MATMUL_ARGS),
    right=Example(_EVICTED.format(before="", inside=f"    {_TOTAL}"), _MATMUL_ARGS),
)
def find(subject: Subject) -> Iterator[Candidate]:
    """Matmuls that wait for a bank of PSUM to be copied out, as if they did not."""
    program, timeline, waits = subject.program, subject.timeline, subject.plan.waits
    tensor = timeline.of_engine("tensor")
    is_product = np.array([form.accumulates for form in program.forms], np.bool_)
    if not len(tensor) or not is_product.any():
        return
    is_product = is_product[program.form_column]
    later = later_of(waits)
    emptied = _products(is_product, later) & ~_products(is_product, waits.node)
    emptied &= np.isin(waits.kind, [KINDS.index(name) for name in ("reuse", "anti", "output")])
    pairs = later[emptied] * len(waits.start) + waits.node[emptied]
    # from the end of what TensorE did before to the start
    until = np.maximum.accumulate((timeline.start_ns + timeline.busy_ns)[tensor])
    idle = timeline.start_ns[tensor] - np.append(0.0, until[:-1])
    cause = timeline.node[tensor] * len(waits.start) + timeline.waited_node[tensor]
    waited = np.isin(cause, pairs) & (idle > 0)
    stalls = np.bincount(timeline.row[tensor][waited], idle[waited], minlength=len(program))
    line_of = np.asarray(program.line_column, np.int64)
    for line, matmuls in by_line(program, np.flatnonzero(stalls)).items():
        dropped = np.flatnonzero(emptied & np.isin(later, np.flatnonzero(is_product & (line_of == line))))
        yield Candidate(
            line,
            f"{plural(len(matmuls), 'matmul')} wait until a bank of PSUM has been copied out",
            float(stalls[matmuls].sum()),
            (("a bank for each sum", partial(_with_banks, subject, line, dropped)),),
        )


def _with_banks(subject: Subject, line: int, dropped: np.ndarray) -> Program | float:
    """A tile for each sum; where sums fill parts of tiles, the waits left out."""
    edited = renewed(subject, np.array([line]), np.ones(len(subject.slots.row), np.bool_))
    return subject.without_waits(dropped) if edited is None else edited


def _products(is_product: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Per node whether it is a row that is a product."""
    result = nodes < len(is_product)
    result[result] = is_product[nodes[result]]
    return result
