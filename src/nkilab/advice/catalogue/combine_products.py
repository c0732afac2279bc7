"""Products that fill a part of the systolic array only."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from ...isa.declare import Instruction, Step
from ...isa.tensor_engine import NcMatmul
from ..declare import Candidate, Subject, plural, transformation
from ..draft import with_steps
from ..subject import by_line, rows_where

# the share of the array from which on a product is not worth a word
LEAST_FULL = 0.75


@transformation(
    "combine_products",
    moves_rows=False,
    relieves=("tensor",),
    title="matmuls fill the systolic array",
    what="a matmul contracts over fewer than 128 partitions, or has fewer than 128 stationary columns",
    why="a pass takes as long with few rows and columns of the array as with all",
    fix="tile so that the contraction and the free axis of stationary are 128, or give tile_position and "
    "tile_size",
    source="trn1 architecture guide, TensorE; nki.isa.nc_matmul, tiling mode",
)
def find(subject: Subject) -> Iterator[Candidate]:
    """Products that leave rows or columns idle, as if others stood there."""
    program = subject.program
    side = program.machine.limit("partitions")
    rows = rows_where(program, lambda form: _share_of_array(form, side) < LEAST_FULL)
    for line, own in by_line(program, rows).items():
        form = program.form_of(int(own[0]))
        used, columns = _extent_of_array(form)
        share = _share_of_array(form, side)

        def filled(step: Step, share: float = share) -> Step:
            return replace(step, busy_ns=step.busy_ns * share) if step.busy_ns else step

        yield Candidate(
            line,
            f"{plural(len(own), 'matmul')} use {used} rows and {columns} columns of the {side} x {side} "
            f"array ({share:.0%})",
            float(subject.busy[own].sum()),
            (("products side by side in the array",
              lambda own=own, f=filled: subject.with_costs(with_steps(program, own, f))),),  # type: ignore[misc]
        )  # fmt: skip


def _extent_of_array(form: Instruction) -> tuple[int, int]:
    """Rows (of the contraction) and columns (of the stationary tile) that a matmul fills."""
    stationary = form.layouts[list(form.operands).index("stationary")]
    return stationary.partitions, stationary.free_size


def _share_of_array(form: Instruction, side: int) -> float:
    # several tiles share the array where the kernel positions them
    if not isinstance(form, NcMatmul) or form.is_transpose or form.tile_size or form.perf_mode != "none":
        return 1.0
    rows, columns = _extent_of_array(form)
    return min(rows, side) * min(columns, side) / side**2
