"""Reductions over partitions on GpSimdE."""

from __future__ import annotations

from collections.abc import Iterator

from ...isa.declare import Step
from ..declare import POINTWISE, Candidate, Subject, plural, transformation
from ..draft import with_steps
from ..subject import by_line, rows_where


@transformation(
    "reduce_partitions",
    moves_rows=False,
    relieves=POINTWISE,
    title="reductions run along the free axis",
    what="a reduction runs over partitions",
    why="engines work on each partition alone: GpSimdE moves the data instead",
    fix="lay the axis along the free dimension, or multiply by ones on TensorE",
    source="nki.isa.tensor_partition_reduce",
)
def find(subject: Subject) -> Iterator[Candidate]:
    """Reductions over partitions, as if VectorE did them along the free axis."""
    program = subject.program
    clock = program.machine["vector_clock_ghz"]
    rows = rows_where(program, lambda form: form.name == "tensor_partition_reduce")
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
