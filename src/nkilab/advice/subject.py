"""A kernel that advice is looked for: its program as written, and what planning and timing make of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ..isa.declare import Instruction
from ..place import Plan, plan
from ..place.blocks import with_blocks_apart
from ..place.compiler_passes import MIDDLE_END, compiled
from ..place.edges import Waits
from ..place.slots import DMA, ENGINES, Slots, distinct, slots_of
from ..tiles.tile import HBM, Layout
from ..timing import Timeline, latency_ns, simulate
from ..timing.work import Work, work_of
from ..trace.program import Program
from ..views.path import path_of
from ..views.summary import packet_time
from .draft import Draft, movable, whole_tile, with_steps
from .equal_results import Results, results_of
from .equal_values import Equals, equals_of
from .loops import Loop, loops_of

# rows of a program that is edited row by row; of a larger one the first iterations of its outermost loop
MOST_ROWS = 120_000
LEAST_SHARE = 0.8


class Subject(Struct, frozen=True, eq=False, dict=True):
    """What detectors look at."""

    written: Program  # the program as the kernel wrote it
    program: Program  # as the compiler leaves it
    # plan, timeline: of the latter
    plan: Plan
    timeline: Timeline

    @property
    def latency_ns(self) -> float:
        """Nanoseconds that it takes."""
        return self.timeline.latency_ns

    @property
    def may_be_edited(self) -> bool:
        """Whether rows may move: a large program takes too long, a rendezvous counts its rows."""
        return len(self.written) <= MOST_ROWS and not self.written.met

    @cached_property
    def part(self) -> Subject:
        """All of it; of a program that is too large the first iterations of its outermost loop."""
        if len(self.written) <= MOST_ROWS or self.written.met:
            return self
        loops = [own for own in loops_of(self.written) if 2 * own.length <= MOST_ROWS
                 and own.length * len(own.start) >= LEAST_SHARE * len(self.written)]  # fmt: skip
        if not loops:
            return self
        loop = max(loops, key=lambda own: own.length)
        count = 1 << int(np.log2(max(MOST_ROWS / 2, 2 * loop.length) // loop.length))
        first = np.arange(int(loop.start[min(count, len(loop.start) - 1)]))
        return subject_of_program(self.written.arranged(first))

    @cached_property
    def renewed(self) -> Subject:
        """The same with a tile for each time that one is written whole, so that values can be told apart."""
        slots = self.slots
        again = np.bincount(slots.storage[slots.is_written], minlength=len(self.base.storages)) > 1
        edited = renewed(self.base, slots, again[slots.storage], every=False) if self.may_be_edited else None
        return self if edited is None else replace(self, written=edited)

    @cached_property
    def renewed_ns(self) -> float:
        """Nanoseconds that `renewed` takes; 0 if there is nothing to renew."""
        return 0.0 if self.renewed is self else edited_latency_ns(self.renewed.base)

    def renewed_at(self, lines: np.ndarray, begins: np.ndarray) -> Program | None:
        """`base` with a tile for each time that some lines begin to write one; None if it cannot be."""
        at = np.isin(np.asarray(self.base.line_column)[self.slots.row], lines)
        return renewed(self.base, self.slots, begins & at) if self.may_be_edited else None

    @cached_property
    def fixed_ns(self) -> float:
        """Launch and end, which every kernel has."""
        own = self.latency_ns - float(self.timeline.end_ns.max(initial=0.0))
        return self.program.machine["kernel_start_ns"] + max(0.0, own)

    @cached_property
    def occupied_ns(self) -> dict[str, float]:
        """How long each engine works, and "dma", were the bytes spread over all DMA engines."""
        busy = {name: self.timeline.occupied_ns(name) for name in ENGINES[:DMA]}
        moving = packet_time(self.program, self.plan) / self.program.machine["dma_engines"]
        return busy | {ENGINES[DMA]: moving}

    def most_ns(self, relieved: frozenset[str]) -> float:
        """The most that a change can save by which these engines alone have less to do."""
        machine = self.program.machine
        # TensorE may warm up
        warm = machine["tensor_cold_rate"] if machine["tensor_warm_up_ns"] else 1.0
        others = [busy * (warm if name == ENGINES[0] else 1.0) for name, busy in self.occupied_ns.items()
                  if name not in relieved]  # fmt: skip
        return self.latency_ns - self.fixed_ns - max(others, default=0.0)

    def left_share(self, relieved: frozenset[str]) -> float:
        """The share of the latency that is left at least where these engines alone have less to do."""
        return max(1 - self.most_ns(relieved) / self.latency_ns, 1e-3)

    @cached_property
    def base(self) -> Program:
        """The program that edits begin with: as written, with the blocks that become tiles of their own."""
        return with_blocks_apart(self.written) if self.written.compiler == MIDDLE_END else self.written

    @cached_property
    def slots(self) -> Slots:
        """Operands of `base`."""
        return slots_of(self.base)

    @cached_property
    def work(self) -> Work:
        """What was timed."""
        return work_of(self.program, self.plan)

    @cached_property
    def equals(self) -> Equals:
        """Tiles of `base` with equal values."""
        return equals_of(self.base)

    @cached_property
    def results(self) -> Results | None:
        """What `base` leaves when it is computed on random numbers; None if it is not computed."""
        return results_of(self.base)

    @cached_property
    def loops(self) -> list[Loop]:
        """Loops of `base`."""
        return loops_of(self.base)

    @cached_property
    def spent(self) -> np.ndarray:
        """Per row of `program` how long its events last, in nanoseconds."""
        timeline = self.timeline
        own = timeline.node < len(self.program)
        lasts = (timeline.end_ns - timeline.start_ns)[own]
        return np.bincount(timeline.row[own], lasts, minlength=len(self.program))

    @cached_property
    def busy(self) -> np.ndarray:
        """Per row of `program` how long it keeps its engine."""
        timeline = self.timeline
        own = timeline.node < len(self.program)
        return np.bincount(timeline.row[own], timeline.busy_ns[own], minlength=len(self.program))

    @cached_property
    def line_spent(self) -> np.ndarray:
        """Per line how long its events last."""
        return np.bincount(self.program.line_column, self.spent, minlength=len(self.program.lines))

    @cached_property
    def line_path(self) -> np.ndarray:
        """Per line its time on the critical path."""
        path = path_of(self.program.machine, self.timeline)
        own = path.row >= 0
        lines = np.asarray(self.program.line_column, np.int64)[path.row[own]]
        return np.bincount(lines, path.duration_ns[own], minlength=len(self.program.lines))

    def weight(self, rows: np.ndarray) -> float:
        """The most that rows of `base` can cost: the time of their lines, by their share of these lines."""
        lines = np.asarray(self.base.line_column, np.int64)
        count = np.bincount(lines, minlength=len(self.base.lines))
        own = np.bincount(lines[rows], minlength=len(self.base.lines))
        spent = np.zeros(len(count))
        spent[: len(self.line_spent)] = self.line_spent[: len(count)]
        path = np.zeros(len(count))
        path[: len(self.line_path)] = self.line_path[: len(count)]
        share = own / np.maximum(count, 1)
        return float((share * np.maximum(path, np.minimum(spent, self.latency_ns) / 4)).sum())

    def rows_of(self, *names: str) -> np.ndarray:
        """Rows of `base` that run instructions of some names."""
        return rows_where(self.base, lambda form: form.name in names)

    @cached_property
    def readers(self) -> dict[int, list[int]]:
        """Per storage of `base` the rows that read it."""
        slots, result = self.slots, dict[int, list[int]]()
        reads = np.flatnonzero(slots.is_read & ~slots.is_written)
        for storage, row in zip(slots.storage[reads].tolist(), slots.row[reads].tolist(), strict=True):
            result.setdefault(storage, []).append(row)
        return result

    @cached_property
    def writers(self) -> dict[int, list[int]]:
        """Per storage of `base` the rows that write it."""
        slots, result = self.slots, dict[int, list[int]]()
        writes = np.flatnonzero(slots.is_written)
        for storage, row in zip(slots.storage[writes].tolist(), slots.row[writes].tolist(), strict=True):
            result.setdefault(storage, []).append(row)
        return result

    @cached_property
    def sole_readers(self) -> dict[int, int]:
        """Per row of `base` that alone makes a tile on chip, and all of it, the one row that reads it."""
        slots, count = self.slots, len(self.base.storages)
        reads = slots.is_read & ~slots.is_written
        first, last = np.full(count, len(self.base)), np.full(count, -1)
        np.minimum.at(first, slots.storage[reads], slots.row[reads])
        np.maximum.at(last, slots.storage[reads], slots.row[reads])
        writers = np.bincount(slots.storage[slots.is_written], minlength=count)
        results = np.bincount(slots.row[slots.is_written], minlength=len(self.base))
        fine = (writers == 1) & (first == last) & ~slots.kinds.lie_in(HBM)
        chosen = np.flatnonzero(slots.is_written & fine[slots.storage] & (results[slots.row] == 1))
        return {
            int(slots.row[at]): int(first[slots.storage[at]])
            for at in chosen.tolist()
            if whole_tile(self.base, *self.slot(at))
        }

    def slot(self, at: int) -> tuple[int, Layout, int]:
        """An operand of `base`, by its number: storage, layout, offset."""
        slots = self.slots
        return int(slots.storage[at]), slots.layouts[slots.layout[at]], int(slots.offset[at])

    def read_by(self, row: int) -> list[int]:
        """The storages that a row of `base` reads."""
        return [a.storage for a in self.base.accesses(row) if not a.is_written]

    def slots_of_operand(self, row: int, name: str) -> int:
        """The storage that an operand of a row of `base` lies in; -1 if it has none of that name."""
        return next((a.storage for a in self.base.accesses(row) if a.operand == name), -1)

    def lies_in_hbm(self, storage: int) -> bool:
        """Whether a storage is a tensor in HBM."""
        return self.base.storages[storage].memory == HBM

    def with_costs(self, changes: Sequence[tuple[np.ndarray, Callable[..., object]]]) -> float:
        """Nanoseconds of `program` with other costs of some rows, under the same plan."""
        program = self.program
        for rows, change in changes:
            program = with_steps(program, rows, change)
        return latency_ns(program, self.plan, self.work)

    def without_waits(self, dropped: np.ndarray) -> float:
        """Nanoseconds where some waits of the plan, by position, are left out."""
        waits = self.plan.waits
        keep = np.ones(len(waits.node), np.bool_)
        keep[dropped] = False
        kept = np.concatenate([[0], np.cumsum(keep)])
        fewer = Waits(kept[waits.start], waits.node[keep], waits.kind[keep])
        return latency_ns(self.program, replace(self.plan, waits=fewer), self.work)


def subject_of(written: Program, program: Program, placed: Plan, timeline: Timeline) -> Subject:
    """The subject of one program; where several run together, it is timed without the others."""
    if written.met:
        timeline = simulate(program, placed)
    return Subject(written, program, placed, timeline)


def subject_of_program(written: Program) -> Subject:
    """The subject of a program that nothing was made of yet: compiled, placed and timed."""
    program = compiled(written)
    placed = plan(program)
    return Subject(written, program, placed, simulate(program, placed))


def edited_latency_ns(program: Program) -> float:
    """Nanoseconds of an edited program: compiled, placed and timed anew."""
    program = compiled(program)
    return latency_ns(program, plan(program))


def rows_where(program: Program, fits: Callable[[Instruction], bool]) -> np.ndarray:
    """Rows of which the form is as asked for."""
    fine = np.array([fits(form) for form in program.forms], np.bool_)
    return np.flatnonzero(fine[program.form_column]) if len(fine) else np.zeros(0, np.int64)


def by_line(program: Program, rows: np.ndarray) -> dict[int, np.ndarray]:
    """Rows by the number of their source line."""
    rows = np.asarray(rows, np.int64)
    lines = np.asarray(program.line_column, np.int64)[rows]
    return {int(line): rows[lines == line] for line in distinct(lines)}


def later_of(waits: Waits) -> np.ndarray:
    """Per wait the node that waits."""
    return np.repeat(np.arange(len(waits.start) - 1), np.diff(waits.start))


def renewed(base: Program, slots: Slots, begins: np.ndarray, *, every: bool = True) -> Program | None:
    """The program where what is begun anew goes into a tile of its own each time.

    Args:
        base: the program, whose values stay: a tile is written whole where it is renewed.
        slots: its operands.
        begins: per operand whether a write there may begin anew; one that also reads never does.
        every: whether a beginning that writes a part of a tile ends it; otherwise it is none.

    Returns:
        None if there is nothing to renew.
    """
    begins = begins & slots.is_written & ~slots.is_read & movable(base)[slots.storage]
    starts = np.flatnonzero(begins)
    whole = np.array([_is_whole(base, slots, at) for at in starts.tolist()], np.bool_)
    if every and not whole.all():
        return None
    starts = starts[whole]
    if not len(starts):
        return None
    draft = Draft(base)
    for storage in distinct(slots.storage[starts]).tolist():
        own = slots.row[starts[slots.storage[starts] == storage]]
        rows = distinct(slots.row[slots.storage == storage])
        shape = base.storages[storage].shape
        tiles = [storage, storage, *(draft.new_tile(storage, shape) for _ in own[1:])]
        for row, turn in zip(rows.tolist(), np.searchsorted(own, rows, "right").tolist(), strict=True):
            # a row that begins anew still reads what the tile held before
            writes = slots.is_written[base.operand_start[row] : base.operand_start[row + 1]].tolist()
            before = tiles[turn - 1] if turn and own[turn - 1] == row else tiles[turn]
            operands = [
                (tiles[turn] if is_written else before, *o[1:]) if o[0] == storage else o
                for o, is_written in zip(draft.slots(row), writes, strict=True)
            ]
            draft.set_slots(row, operands)
    return draft.program()


def _is_whole(base: Program, slots: Slots, at: int) -> bool:
    own = slots.layouts[slots.layout[at]]
    return whole_tile(base, int(slots.storage[at]), own, int(slots.offset[at]))
