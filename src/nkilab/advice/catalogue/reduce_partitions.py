"""Reductions over partitions on GpSimdE."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...isa.declare import Step
from ..declare import POINTWISE, Candidate, Example, Subject, plural, transformation
from ..draft import with_steps
from ..subject import by_line

_OVER_ROWS = """
tile = nl.load(x)
out = nl.ndarray((1, 2048), x.dtype, buffer=nl.shared_hbm)
nl.store(out, nisa.tensor_partition_reduce(nl.add, tile))
return out
"""
_OVER_COLUMNS = """
tile = nl.load(x)
out = nl.ndarray((128, 1), x.dtype, buffer=nl.shared_hbm)
nl.store(out, nisa.tensor_reduce(nl.add, tile, axis=1))
return out
"""


@transformation(
    "reduce_partitions",
    moves_rows=False,
    relieves=POINTWISE,
    title="reductions run along the free axis",
    what="a reduction runs over partitions",
    why="engines work on each partition alone: GpSimdE moves the data instead",
    fix="lay the axis along the free dimension, or multiply by ones on TensorE",
    source="nki.isa.tensor_partition_reduce",
    wrong=Example(_OVER_ROWS, {"x": "f32[128,2048]"}, "neuronxcc"),
    right=Example(_OVER_COLUMNS, {"x": "f32[128,2048]"}, "neuronxcc"),
)
def find(subject: Subject) -> Iterator[Candidate]:
    """Reductions over partitions, as if VectorE did them along the free axis."""
    program = subject.program
    slow = np.array([form.name == "tensor_partition_reduce" for form in program.forms], np.bool_)
    clock = program.machine["vector_clock_ghz"]
    rows = np.flatnonzero(slow[program.form_column]) if slow.any() else np.zeros(0, np.int64)
    for line, own in by_line(program, rows).items():
        elements = program.form_of(int(own[0])).layouts[-1].partitions
        along = Step("vector", "TENSOR_REDUCE", busy_ns=max(elements, 64) / clock)
        yield Candidate(
            line,
            f"{plural(len(own), 'reduction')} over {elements} partitions on GpSimdE",
            float(subject.busy[own].sum()),
            (("reductions on VectorE, along the free axis",
              lambda own=own, to=along: subject.with_costs(with_steps(program, own, lambda _: to))),),  # type: ignore[misc]
        )  # fmt: skip
