"""Narrower types, and products of parts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...isa.declare import Instruction
from ...isa.elementwise import TensorCopy, TensorTensor
from ...isa.operators import operator_named
from ...place.slots import ENGINES, distinct
from ...tiles.dtypes import BFLOAT16, FLOAT32
from ...trace.program import Program
from ...views.words import ENGINE_NAMES
from ..declare import POINTWISE, Candidate, Subject, plural, transformation
from ..draft import Draft, Unfit, retyped_layout, transposes
from ..subject import MOST_ROWS, rows_where

_FLOAT32_PRODUCT = "float32 takes four passes of the array, bfloat16 one"


def _wide_products(subject: Subject) -> np.ndarray:
    """Products of float32 operands."""
    return rows_where(
        subject.base,
        lambda form: form.name == "nc_matmul" and form.layouts[1].dtype is FLOAT32 and not _moves(form),
    )


def _operands(subject: Subject, rows: np.ndarray) -> set[int]:
    """Tiles that products read."""
    return {storage for row in rows.tolist() for storage in subject.read_by(row)}


def _sources(subject: Subject, tiles: set[int]) -> set[int]:
    """Tiles, and what they are loaded, copied or transposed from, as long as nothing computes in between.

    A sum in PSUM stays float32; the copy out of it converts.
    """
    base, every, fresh = subject.base, set(tiles), tiles
    while fresh:
        rows = [row for tile in fresh for row in subject.writers.get(tile, [])]
        read = [
            a for row in rows if _moves(base.form_of(row)) for a in base.accesses(row) if not a.is_written
        ]
        fresh = {a.storage for a in read if a.layout.dtype is FLOAT32 and not _is_sum(subject, a.storage)}
        fresh -= every
        every |= fresh
    return every


def _moves(form: Instruction) -> bool:
    """Whether a row of this form leaves values as they are."""
    return form.name in ("dma_copy", "tensor_copy") or transposes(form)


def _is_sum(subject: Subject, tile: int) -> bool:
    """Whether products add up in a tile."""
    forms = [subject.base.form_of(row) for row in subject.writers.get(tile, [])]
    return any(form.accumulates and not _moves(form) for form in forms)


@transformation(
    "lower_precision", narrows=True, title="operands are held in bfloat16 where that is precise enough",
    what="float32 operands are multiplied, moved or kept",
    why=f"{_FLOAT32_PRODUCT}; half the bytes move, and VectorE runs faster",
    fix="hold the operands in bfloat16; sums stay float32. Look at the error first: nkilab check --numerics",
    source="NKI performance guide, data types; nki.isa.nc_matmul",
)  # fmt: skip
def narrower(subject: Subject) -> Iterator[Candidate]:
    """Operands of float32 products, and what they are loaded from, as bfloat16."""
    rows = _wide_products(subject)
    if not len(rows):
        return
    tiles = _sources(subject, _operands(subject, rows))
    wide = {t for t in tiles if subject.base.storages[t].dtype is FLOAT32}

    def retyped(storages: set[int]) -> Program:
        draft = Draft(subject.base)
        draft.retype(dict.fromkeys(storages, BFLOAT16))
        return draft.program()

    inside = {t for t in wide if not subject.lies_in_hbm(t)}
    yield Candidate(
        int(subject.base.line_column[rows[0]]),
        f"{plural(len(rows), 'product')} of float32; {_FLOAT32_PRODUCT}", 0.6 * subject.weight(rows),
        (("operands and arguments in bfloat16", lambda: retyped(wide)),
         ("operands in bfloat16", lambda: retyped(inside))),
        rounds=True,
    )  # fmt: skip


@transformation(
    "split_precision", relieves=("tensor",), title="a float32 product is three of bfloat16",
    what="float32 products bound the kernel",
    why=f"{_FLOAT32_PRODUCT}: three products of high and low parts take three, and keep 16 bits",
    fix="split each operand into a bfloat16 and the bfloat16 of the rest, and add three products in one "
    "psum tile",
    source="NKIBench write-ups of float32 products",
)  # fmt: skip
def parts(subject: Subject) -> Iterator[Candidate]:
    """Float32 products as three products of parts, which one copy and one subtraction make for each tile."""
    rows = _wide_products(subject)
    if not len(rows) or 4 * len(rows) > 2 * MOST_ROWS:
        return
    yield Candidate(
        int(subject.base.line_column[rows[0]]),
        f"{plural(len(rows), 'product')} of float32; {_FLOAT32_PRODUCT}", 0.5 * subject.weight(rows),
        (("three products of bfloat16 parts", lambda: _split(subject, rows)),), rounds=True,
    )  # fmt: skip


def _split(subject: Subject, rows: np.ndarray) -> Program:
    base, draft = subject.base, Draft(subject.base)
    halves: dict[int, tuple[int, int]] = {}
    shifts = dict.fromkeys(_operands(subject, rows))
    for tile in shifts:
        record = base.storages[tile]
        if subject.lies_in_hbm(tile) or record.memory != "sbuf":
            raise Unfit
        high, low = (draft.new_tile(tile, record.shape, BFLOAT16) for _ in range(2))
        halves[tile] = high, low
        for row in subject.writers.get(tile, ()):
            _add_parts(draft, row, tile, halves[tile])
    for row in rows.tolist():
        _multiply_parts(draft, row, halves)
    return draft.program()


def _add_parts(draft: Draft, row: int, tile: int, parts: tuple[int, int]) -> None:
    """Insert the copy and the subtraction behind a row that writes a tile."""
    machine = draft.base.machine
    # what is written stands first, also where a row reads the tile too
    written = next(s for s in draft.slots(row) if s[0] == tile)
    half = retyped_layout(written[2], BFLOAT16)
    copy = draft.shared_form(TensorCopy, machine, (half, written[2]), ("unknown",))
    rest = draft.shared_form(
        TensorTensor, machine, (half, written[2], half), (operator_named("subtract"), "unknown")
    )
    high, low = ((part, written[1], half) for part in parts)
    draft.insert(row + 1, copy, (), [high, written])
    draft.insert(row + 1, rest, (), [low, written, high])


def _multiply_parts(draft: Draft, row: int, halves: dict[int, tuple[int, int]]) -> None:
    """Put three products in the place of one."""
    target, left, right = draft.slots(row)
    own = [retyped_layout(s[2], BFLOAT16) for s in (left, right)]
    form = draft.form_with(row, [target[2], *own])
    first = draft.base.values_of(row)
    for number, (one, other) in enumerate(((0, 0), (0, 1), (1, 0))):
        slots = [target, (halves[left[0]][one], left[1], own[0]), (halves[right[0]][other], right[1], own[1])]
        draft.insert(row, form, first if not number else (True, *first[1:]), slots)
    draft.drop([row])


@transformation(
    "shift_engine", relieves=POINTWISE, title="work is shared out between the engines",
    what="one of VectorE, ScalarE and GpSimdE is busy while another that knows the instruction idles",
    why="they run side by side",
    fix="give some of the instructions to the idle engine, by engine=nisa.engine.NAME",
    source="NKI performance guide, balance engines",
)  # fmt: skip
def engines(subject: Subject) -> Iterator[Candidate]:
    """Instructions of the busiest of three engines, every second or all of a line, on another one."""
    busy = {name: subject.timeline.occupied_ns(name) for name in ENGINES[1:4]}
    most = max(busy, key=lambda name: busy[name])
    if busy[most] < 0.3 * subject.latency_ns:
        return
    base, lines = subject.base, np.asarray(subject.base.line_column)
    rows = rows_where(base, lambda form: form.steps[0].engine == most and "engine" in form.attributes)
    own_lines = [int(n) for n in distinct(lines[rows]) if n < len(subject.line_spent)]
    for line in sorted(own_lines, key=lambda n: -subject.line_spent[n])[:3]:
        own = rows[lines[rows] == line]
        edits = [
            (f"{words} on {ENGINE_NAMES[other]}", lambda rows=chosen, to=other: _moved(subject, rows, to))
            for other in busy if other != most and busy[other] < 0.6 * busy[most]
            for words, chosen in (("all", own), ("every second one", own[1::2])) if len(chosen)
        ]  # fmt: skip
        yield Candidate(
            line,
            f"{plural(len(own), 'instruction', 'keep')} {ENGINE_NAMES[most]} busy, which works "
            f"{busy[most] / subject.latency_ns:.0%} of the time",
            0.5 * min(subject.weight(own), busy[most]), tuple(edits),
        )  # fmt: skip


def _moved(subject: Subject, rows: np.ndarray, engine: str) -> Program:
    """A program whose rows run on another engine."""
    draft = Draft(subject.base)
    for row in rows.tolist():
        draft.set_attributes(row, engine=engine)
    edited = draft.program()
    if any(edited.form_of(row).steps[0].engine != engine for row in rows.tolist()):
        raise Unfit
    return edited
