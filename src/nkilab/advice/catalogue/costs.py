"""What other costs of the same rows would save: the edit changes nothing but what some rows cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from msgspec.structs import replace

from ...isa.declare import Instruction, Step
from ...isa.tensor_engine import NcMatmul
from ...timing.work import TABLELESS
from ..declare import POINTWISE, Candidate, Subject, plural, transformation
from ..subject import by_line, rows_where

# the share of the array from which on a product is not worth a word
LEAST_FULL = 0.75


def _by_line(
    subject: Subject, rows: np.ndarray, spent: np.ndarray, words: str,
    described: Callable[[Instruction, int], tuple[str, Callable[[Step], Step]]],
) -> Iterator[Candidate]:  # fmt: skip
    """Rows with other steps, at the line that spends most on them.

    `described` says of a form and its rows on a line what is told of them, and what their steps become.
    """
    lines = by_line(subject.program, rows)
    if not lines:
        return
    each = {line: described(subject.program.form_of(int(own[0])), len(own)) for line, own in lines.items()}
    most = max(lines, key=lambda line: float(spent[lines[line]].sum()))
    others = f"; {len(rows) - len(lines[most])} more at {plural(len(lines) - 1, 'other line')}"
    changes = [(lines[line], change) for line, (_, change) in each.items()]
    yield Candidate(
        most, each[most][0] + others * (len(lines) > 1), float(spent[rows].sum()),
        ((words, partial(subject.with_costs, changes)),),
    )  # fmt: skip


@transformation(
    "combine_products", moves_rows=False, relieves=("tensor",), title="matmuls fill the systolic array",
    what="a matmul contracts over fewer than 128 partitions, or has fewer than 128 stationary columns",
    why="a pass takes as long with few rows and columns of the array as with all",
    fix="tile so that the contraction and the free axis of stationary are 128, or give tile_position and "
    "tile_size",
    source="trn1 architecture guide, TensorE; nki.isa.nc_matmul, tiling mode",
)  # fmt: skip
def partial_products(subject: Subject) -> Iterator[Candidate]:
    """Products that leave rows or columns idle, as if others stood there."""
    side = subject.program.machine.limit("partitions")
    rows = rows_where(subject.program, lambda form: _share_of_array(form, side) < LEAST_FULL)

    def described(form: Instruction, count: int) -> tuple[str, Callable[[Step], Step]]:
        (used, columns), share = _extent_of_array(form), _share_of_array(form, side)
        array = f"{used} rows and {columns} columns of the {side} x {side} array ({share:.0%})"
        return f"{plural(count, 'matmul', 'use')} {array}", lambda step: replace(
            step, busy_ns=step.busy_ns * share
        )

    yield from _by_line(subject, rows, subject.busy, "products side by side in the array", described)


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


# hw: below this a DMA engine spends more on descriptors than on bytes (DMA guide, "Descriptor size")
EFFICIENT_BYTES = 2048


@transformation(
    "contiguous_rows", moves_rows=False, relieves=("dma",), title="transfers move runs of 2 KiB and more",
    what="a transfer moves contiguous runs of less than 2 KiB, so that descriptors cost more than bytes",
    why="each run takes a descriptor, whose cost does not depend on its length",
    fix="load wider rows, or lay the tensor out so that a tile's rows are contiguous",
    source="DMA bandwidth guide, descriptor size",
)  # fmt: skip
def short_runs(subject: Subject) -> Iterator[Candidate]:
    """Transfers in many runs, as if each run were of 2 KiB, or of all its bytes where these are fewer."""
    rows = rows_where(subject.program, lambda form: any(map(_is_short, form.steps)))

    def described(form: Instruction, count: int) -> tuple[str, Callable[[Step], Step]]:
        size = min(s.descriptor_bytes for s in form.steps if s.engine == "dma")
        runs = f"in runs of {size} bytes; DMA is efficient from {EFFICIENT_BYTES} on"
        return f"{plural(count, 'transfer')} {runs}", _long

    yield from _by_line(subject, rows, subject.spent, "runs of 2 KiB", described)


def _is_short(step: Step) -> bool:
    return step.engine == "dma" and step.descriptors > 1 and step.descriptor_bytes < EFFICIENT_BYTES


def _long(step: Step) -> Step:
    if not _is_short(step):
        return step
    size = min(EFFICIENT_BYTES, step.moved_bytes)
    return replace(step, descriptors=max(1, -(-step.moved_bytes // size)), descriptor_bytes=size)


@transformation(
    "reduce_partitions", moves_rows=False, relieves=POINTWISE, title="reductions run along the free axis",
    what="a reduction runs over partitions",
    why="engines work on each partition alone: GpSimdE moves the data instead",
    fix="lay the axis along the free dimension, or multiply by ones on TensorE",
    source="nki.isa.tensor_partition_reduce",
)  # fmt: skip
def over_partitions(subject: Subject) -> Iterator[Candidate]:
    """Reductions over partitions, as if VectorE did them along the free axis."""
    clock = subject.program.machine["vector_clock_ghz"]
    rows = rows_where(subject.program, lambda form: form.name == "tensor_partition_reduce")

    def described(form: Instruction, count: int) -> tuple[str, Callable[[Step], Step]]:
        elements = form.layouts[-1].partitions
        along = Step("vector", "TENSOR_REDUCE", busy_ns=max(elements, 64) / clock)
        return f"{plural(count, 'reduction')} over {elements} partitions on GpSimdE", lambda _: along

    yield from _by_line(subject, rows, subject.busy, "reductions on VectorE, along the free axis", described)


@transformation(
    "table_reload", moves_rows=False, relieves=("scalar",),
    title="activation functions of one table stand together",
    what="ScalarE alternates between functions that need different tables",
    why="loading a table takes more than a microsecond, longer than most instructions",
    fix="do all calls of one function before the first call of the next",
    source="trn1 architecture guide, ScalarE; measured table loads",
)  # fmt: skip
def table_loads(subject: Subject) -> Iterator[Candidate]:
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
    once = partial(subject.with_costs, [(kept, lambda step: replace(step, table=""))])
    yield Candidate(
        int(program.line_column[rows[switches[-1]]]),
        f"ScalarE loads a function table {len(switches) + 1} times for {len(set(names))} tables: "
        f"{', '.join(dict.fromkeys(names))}",
        extra * program.machine["activation_table_load_ns"],
        (("each table loaded once", once),),
    )
