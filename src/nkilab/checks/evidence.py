"""What a run leaves for the checks: programs, what placing and timing make of them, and the user's text."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property

import numpy as np
from msgspec import Struct, field
from msgspec.structs import force_setattr

from ..cores import Rendezvous
from ..dialects.kernel import Kernel
from ..place import DEPENDENCES, Dependence, Plan, plan
from ..place.boxes import Boxes, Overlaps, boxes_of, overlaps_of
from ..place.compiler_passes import compiled
from ..place.edges import Within, waits_of
from ..place.equal_programs import is_moved
from ..place.slots import Slots, slots_of
from ..tiles.tile import HBM
from ..timing import Timeline, simulate
from ..timing.work import LOAD, ON_CHIP, STORE, Work, work_of
from ..trace.program import Program, StorageRecord
from ..trace.run_notes import Marks
from ..trace.session import MemoryKey
from ..trace.source import assigned_name
from .declare import Rule
from .finding import Finding, Site
from .scope import version_compiled
from .sources import Sources


class Track:
    """One program of a launch, and what follows from it alone, worked out when it is first asked for."""

    def __init__(self, program: Program, rank: int = 0) -> None:
        self.program = program
        self.rank = rank
        # the first program of the launch, if this is another one
        self.first: Track | None = None

    @property
    def marks(self) -> Marks:
        """The notes of the run."""
        return self.program.marks

    @cached_property
    def slots(self) -> Slots:
        """Every tile operand."""
        return slots_of(self.program)

    @cached_property
    def boxes(self) -> Boxes:
        """What the operands touch."""
        return boxes_of(self.program, self.slots)

    @cached_property
    def overlaps(self) -> Overlaps:
        """Which boxes share elements."""
        return overlaps_of(self.boxes, self.slots)

    @cached_property
    def within(self) -> Within:
        """The accesses of the program, and who waits for whom within tensors."""
        if self._twin is not None:
            return self._twin.within
        return Within(self.slots, self.boxes, waits_of(self.program, self.slots, self.boxes, self.overlaps))

    @cached_property
    def compiled(self) -> Program:
        """The program as the vendor's compiler leaves it."""
        return compiled(self.program)

    @property
    def is_as_compiled(self) -> bool:
        """Whether the compiler changes nothing."""
        return self.compiled is self.program

    @cached_property
    def plan(self) -> Plan:
        """Where the tiles of `compiled` lie, and who waits for whom.

        Raises:
            LimitError: if they do not fit.
        """
        if self._twin is not None and self._twin.is_as_compiled and self.is_as_compiled:
            return self._twin.plan
        return plan(self.compiled, self.within if self.is_as_compiled else None)

    @cached_property
    def work(self) -> Work:
        """What is to be timed."""
        return work_of(self.compiled, self.plan)

    @cached_property
    def timeline(self) -> Timeline:
        """When it all happens."""
        if self._twin is not None and self.plan is self._twin.plan:
            return self._twin.timeline
        return simulate(self.compiled, self.plan, self.work)

    @cached_property
    def _twin(self) -> Track | None:
        """The first program, if this one is the same but for its places in HBM, which overlap as there.

        Cores run one kernel on parts of their own; what does not depend on the part is worked out once.
        """
        first = self.first
        if first is None or not is_moved(self.program, self.slots, first.program, first.slots):
            return None
        mine, theirs = self.overlaps, first.overlaps
        columns = [(self.boxes.of_slot, first.boxes.of_slot), (mine.start, theirs.start)]
        columns += [(mine.other, theirs.other), (mine.covers, theirs.covers)]
        return first if all(np.array_equal(*pair) for pair in columns) else None

    def site(self, row: int) -> Site:
        """The user's line of a row."""
        return Site(*self.program.lines[int(self.program.line_column[row])])

    def _record(self, storage: int) -> StorageRecord:
        """A tile of the program, or one that the compiler made of a block."""
        known = self.program.storages
        return known[storage] if storage < len(known) else self.compiled.storages[storage]

    def birthplace(self, storage: int) -> Site:
        """The line that made a tile."""
        return Site(*self.program.lines[self._record(storage).line])

    def finding(self, rule: Rule, message: str, row: int, storage: int) -> Finding:
        """A finding of a row, beside the line that made a tile."""
        return rule.finding(message, self.site(row), self.birthplace(storage), "made here")

    def name(self, storage: int) -> str:
        """What the user calls a tile, or "a tile"."""
        record = self._record(storage)
        where = "a tensor" if record.memory == "hbm" else "a tile"
        return record.name or assigned_name(*self.program.lines[record.line]) or where

    def describe(self, storage: int) -> str:
        """A tile by name, type, shape and memory."""
        record = self._record(storage)
        return f"{self.name(storage)}: {record.dtype}{list(record.shape)} in {record.memory}"

    def called(self, row: int) -> str:
        """The instruction of a row, by name."""
        return self.program.form_of(row).name

    @cached_property
    def loops_of_position(self) -> list[tuple[tuple[int, int], ...]]:
        """Per loop position the loops around it, outermost first: number and iteration."""
        loops: list[tuple[tuple[int, int], ...]] = []
        for outer, loop, value in self.program.positions:
            loops.append(() if loop < 0 else (*loops[outer], (loop, value)))
        return loops

    @cached_property
    def queue_of_form(self) -> np.ndarray:
        """Per form which queues carry it, if it is a transfer: loads, stores, on chip."""
        queues = []
        for form in self.program.forms:
            in_hbm = [spec.is_written for _, spec, layout in form.tile_slots() if layout.memory == HBM]
            queues.append(STORE if any(in_hbm) else LOAD if in_hbm else ON_CHIP)
        return np.array(queues, np.int64)

    @cached_property
    def slot_start(self) -> np.ndarray:
        """Per row where its operands begin in `slots`."""
        return np.array(self.program.operand_start, np.int64)


class Evidence(Struct, frozen=True):
    """Everything that checks look at."""

    kernel: Kernel  # that ran
    tracks: tuple[Track, ...]  # one per core
    # per memory that all programs see, the number of its storage in each program
    memories: Mapping[MemoryKey, tuple[int | None, ...]] = field(default_factory=dict)
    rendezvous: tuple[Rendezvous, ...] = ()  # where the programs met
    # which kinds of pairs the vendor's framework orders
    table: Mapping[str, Dependence] = field(default_factory=lambda: DEPENDENCES)
    command: str = ""  # the command line that makes the same check, to be shown
    sources: Sources = field(default_factory=Sources)  # the user's files
    # rank and row of transfers that stored to shared memory what lay there already
    repeated: Collection[tuple[int, int]] = ()
    masked: Collection[tuple[int, int]] = ()  # rank and row of calls that write where a mask says

    def __post_init__(self) -> None:
        # a collective of one rank is a rendezvous that nobody else comes to
        together = tuple(m for m in self.rendezvous if 1 < len(m.rows) == len(self.tracks))
        for track in self.tracks[1:]:
            track.first = self.tracks[0]
        force_setattr(self, "rendezvous", together)

    @property
    def definition(self) -> Site:
        """Where the kernel begins: its `def`."""
        return definition_of(self.kernel)

    @property
    def generation(self) -> int:
        """Of the chip that it ran on; 0 where nothing ran."""
        return self.tracks[0].program.machine.generation if self.tracks else 0

    def refuses(self, rule: Rule) -> bool:
        """Whether the build refuses what breaks a rule, of the version and chip that the kernel ran for."""
        version = version_compiled(self.kernel)
        return rule.refusal is not None and rule.refusal.applies(version, self.generation)

    def orders(self, kind: str) -> bool:
        """Whether the table has a kind of pair and orders it."""
        return kind in self.table and self.table[kind].is_ordered

    def leaves_open(self, kind: str) -> bool:
        """Whether the table has a kind of pair and does not order it."""
        return kind in self.table and not self.table[kind].is_ordered


def definition_of(kernel: Kernel) -> Site:
    """Where a kernel begins."""
    code = getattr(kernel.function, "__code__", None)
    return Site(code.co_filename, code.co_firstlineno) if code is not None else Site()
