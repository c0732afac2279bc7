"""Buffers that products and loads wait for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from ...place.slots import DMA, distinct, slots_of
from ...place.walk import KINDS
from ...tiles.tile import SBUF
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
def banks(subject: Subject) -> Iterator[Candidate]:
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
    for line, matmuls in by_line(program, distinct(later[emptied])).items():
        yield Candidate(
            line,
            f"{plural(len(matmuls), 'matmul', 'wait')} until a bank of PSUM has been copied out",
            float(subject.spent[matmuls].sum()),
            (("a bank for each sum", partial(_with_banks, subject, line)),),
        )


def _with_banks(subject: Subject, line: int) -> Program | float:
    """A tile for each sum; nothing changes where sums fill parts of tiles."""
    edited = subject.renewed_at(np.array([line]), np.ones(len(subject.slots.row), np.bool_))
    return subject.latency_ns if edited is None else edited


@transformation(
    "buffers",
    moves_rows=False,
    relieves=(),
    title="loads go into buffers that nobody uses",
    what="a loop loads into one tile, so that each load waits until the last use of what the tile held",
    why="DMA and compute alternate instead of overlapping",
    fix="make the tile inside the loop, or rotate through two",
    source="NKI performance guide, overlap data loading with computation",
)
def buffers(subject: Subject) -> Iterator[Candidate]:
    """Loads that wait until the tile they fill has been used up, as if they did not."""
    program, waits = subject.program, subject.plan.waits
    later, slots = later_of(waits), slots_of(program)
    is_load = np.zeros(len(waits.start) - 1, np.bool_)
    dst = slots.storage[np.asarray(program.operand_start)[:-1].clip(max=max(len(slots.storage) - 1, 0))]
    on_chip = slots.kinds.lie_in(SBUF)[dst] if len(dst) else np.zeros(0, np.bool_)
    is_load[: len(program)] = (slots.engine == DMA) & on_chip
    wanted = is_load[later] & np.isin(waits.kind, [KINDS.index("anti"), KINDS.index("output")])
    for lines in _interleaved(by_line(program, distinct(later[wanted]))):
        every = np.concatenate(list(lines.values()))
        line = max(lines, key=lambda own: float(subject.spent[lines[own]].sum()))
        ways = [("a buffer for each load", every)]
        if len(lines) > 1:
            ways.append((f"a buffer for each load of line {program.lines[line][1]} alone", lines[line]))
        records = [program.storages[int(dst[rows[0]])] for rows in lines.values()]
        tiles = " and ".join(dict.fromkeys(f"{own.dtype}{list(own.shape)}" for own in records))
        yield Candidate(
            line,
            f"{plural(len(every), 'load')} into one {tiles} must wait until what it holds is used up",
            float(subject.spent[every].sum()),
            tuple(
                (words, partial(_with_buffers, subject, rows, np.flatnonzero(wanted & np.isin(later, rows))))
                for words, rows in ways
            ),
        )


def _with_buffers(subject: Subject, loads: np.ndarray, dropped: np.ndarray) -> Program | float:
    """A tile for each of some loads; where they fill parts of tiles, the waits left out."""
    slots, lines = subject.slots, distinct(np.asarray(subject.program.line_column)[loads])
    edited = subject.renewed_at(lines, slots.engine[slots.row] == DMA)
    return subject.without_waits(dropped) if edited is None else edited


def _interleaved(lines: dict[int, np.ndarray]) -> Iterator[dict[int, np.ndarray]]:
    """Lines whose rows take turns, as those of one loop do: together or not at all they end the waits."""
    group: dict[int, np.ndarray] = {}
    last = -1
    for line, rows in sorted(lines.items(), key=lambda own: int(own[1].min())):
        if group and int(rows.min()) > last:
            yield group
            group = {}
        group[line] = rows
        last = max(last, int(rows.max()))
    if group:
        yield group
