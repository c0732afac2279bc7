"""Buffers that products and loads wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

import numpy as np

from ...conformal import least_gain
from ...place.slots import DMA, distinct, slots_of
from ...place.walk import KINDS
from ...tiles.tile import SBUF
from ...trace.program import Program
from ..declare import Candidate, Subject, plural, transformation
from ..draft import Unfit
from ..subject import by_line, later_of

# kinds of waits that a tile of its own ends
_ENDED = [KINDS.index(name) for name in ("reuse", "anti", "output")]


@transformation(
    "psum_in_flight", moves_rows=False, relieves=(), title="sums leave PSUM before their bank is needed",
    what="a matmul waits until a bank of PSUM has been copied to SBUF",
    why="eight banks are all there are; TensorE stands still meanwhile",
    fix="make the tile inside the loop so that banks rotate, and copy each sum to sbuf as soon as it "
    "is complete",
    source="trn1 architecture guide, PSUM: eight outstanding accumulation groups",
)  # fmt: skip
def banks(subject: Subject) -> Iterator[Candidate]:
    """Matmuls that wait for a bank of PSUM to be copied out, as if they did not."""
    program, waits = subject.program, subject.plan.waits
    is_product = np.array([form.accumulates for form in program.forms], np.bool_)
    if not is_product.any():
        return
    # nodes beyond the rows are no products
    is_product = np.pad(is_product[program.form_column], (0, len(waits.start) - 1 - len(program)))
    later = later_of(waits)
    emptied = is_product[later] & ~is_product[waits.node] & np.isin(waits.kind, _ENDED)
    for line, matmuls in by_line(program, distinct(later[emptied])).items():
        yield Candidate(
            line,
            f"{plural(len(matmuls), 'matmul', 'wait')} until a bank of PSUM has been copied out",
            float(subject.spent[matmuls].sum()),
            (("a bank for each sum", partial(_without_waits, subject, matmuls, emptied)),),
        )


def _without_waits(subject: Subject, rows: np.ndarray, ended: np.ndarray) -> Program | float:
    """A tile for each time that the lines of some rows fill one; where they fill parts, the waits left out.

    Raises:
        Unfit: if that gains nothing that the model resolves, which is quick to tell.
    """
    waits = np.flatnonzero(ended & np.isin(later_of(subject.plan.waits), rows))
    latency = subject.without_waits(waits)
    if latency > (1 - least_gain()) * subject.latency_ns:
        raise Unfit
    lines = distinct(np.asarray(subject.program.line_column)[rows])
    edited = subject.renewed_at(lines, np.ones(len(subject.slots.row), np.bool_))
    return latency if edited is None else edited


@transformation(
    "buffers", moves_rows=False, relieves=(), title="loads and results go into buffers that nobody uses",
    what="a loop fills one tile, so that each iteration waits until what the tile held is used or stored",
    why="DMA and compute alternate instead of overlapping",
    fix="make the tile inside the loop, or rotate through two",
    source="NKI performance guide, overlap data loading with computation",
)  # fmt: skip
def buffers(subject: Subject) -> Iterator[Candidate]:
    """Transfers that wait for the last use of a tile, and results that wait for it to be stored."""
    program, waits = subject.program, subject.plan.waits
    later, slots = later_of(waits), slots_of(program)
    fills, moves = (np.zeros(len(waits.start) - 1, np.bool_) for _ in range(2))
    dst = slots.storage[np.asarray(program.operand_start)[:-1].clip(max=max(len(slots.storage) - 1, 0))]
    fills[: len(program)] = slots.kinds.lie_in(SBUF)[dst] if len(dst) else False
    moves[: len(program)] = slots.engine == DMA
    wanted = fills[later] & (moves[later] | moves[waits.node]) & np.isin(waits.kind, _ENDED[1:])
    for lines in _interleaved(by_line(program, distinct(later[wanted]))):
        every = np.concatenate(list(lines.values()))
        line = max(lines, key=lambda own: float(subject.spent[lines[own]].sum()))
        ways = [("a buffer for each of them", every)]
        if len(lines) > 1:
            ways.append((f"a buffer for each of line {program.lines[line][1]} alone", lines[line]))
        word = "load" if moves[every].all() else "result"
        yield Candidate(
            line,
            f"{plural(len(every), word)} must wait until what {_tiles(program, dst[every])} held is used up",
            float(subject.spent[every].sum()),
            tuple((words, partial(_without_waits, subject, rows, wanted)) for words, rows in ways),
        )


def _tiles(program: Program, storages: np.ndarray) -> str:
    """How many tiles there are of each type and shape: "one float32[128, 2048] and 4 bfloat16[128, 512]"."""
    records = [program.storages[own] for own in distinct(storages).tolist()]
    counts = Counter(f"{own.dtype}{list(own.shape)}" for own in records)
    return " and ".join(f"{count if count > 1 else 'one'} {words}" for words, count in counts.items())


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
