"""A transformation of the compiler: loads of what SBUF still holds are left out.

A load of a whole tile from HBM that nobody writes is redundant if an equal one came before and what it loaded
has not been overwritten: the tile is the earlier one.

How long a loaded tile stays differs. In the stand-alone compiler of `nki` it is a ring, a window in bytes per
partition that new loads overwrite, oldest first; a tile that is found there does not become younger. In the
middle end of Beta 1 what was used longest ago goes first, of all that fits into SBUF, and a tile stays only
if there is room for it beside all others until it is loaded again.

Evidence (docs/timing-model.md): published transfer counts of tiled products on trn2 lie between those of
rings of 40 and of 80 KiB; published byte counts of products under Beta 1 on trn1 follow the second rule.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from math import prod
from typing import Protocol

import numpy as np

from ..isa.data_movement import DmaCopy
from ..tiles.tile import HBM, SBUF
from ..trace.program import Program
from .direct_allocation import has_address
from .lifetimes import Lives
from .slots import Slots, slots_of

# a load: its instruction, the tensor in HBM, and where in it
Key = tuple[int, int, int]


class Hold(Protocol):
    """Which loaded tiles SBUF still holds."""

    def find(self, key: Key, tile: int, row: int) -> int | None:
        """The tile that `row` need not load again into `tile`; if None, it is loaded, and held from here."""


class Ring:
    """The tiles loaded last, oldest first: a window in bytes per partition, that they leave by their first.

    A tile is loaded again, too, where SBUF has no room for it until then beside all others, and beside a
    second buffer of each place in the source.

    Args:
        program: whose tiles they are.
        slots: of the program.
    """

    def __init__(self, program: Program, slots: Slots) -> None:
        self._lives, self._sizes, self._most = lives_in_sbuf(program, slots)
        buffers = zip((s.line for s in program.storages), slots.kinds.of_storage.tolist(), strict=True)
        self._most -= sum(dict(zip(buffers, self._sizes, strict=True)).values())
        self._loads: dict[Key, tuple[int, float]] = {}
        self._loaded, self._window = 0.0, program.machine["redundant_load_window_bytes"]

    def find(self, key: Key, tile: int, row: int) -> int | None:
        """See `Hold.find`."""
        known = self._loads.get(key)
        is_held = known and self._loaded - known[1] <= self._window
        if known and is_held and self._lives.extend(known[0], tile, row, self._most):
            return known[0]
        self._loads[key] = (tile, self._loaded)
        self._loaded += self._sizes[tile]
        return None


class Room:
    """The tiles used last, as many as fit into SBUF, if it has room for them beside all others.

    Args:
        program: whose tiles they are.
        slots: of the program.
    """

    def __init__(self, program: Program, slots: Slots) -> None:
        self._lives, self._sizes, self._most = lives_in_sbuf(program, slots)
        self._left = self._most
        self._resident: OrderedDict[Key, int] = OrderedDict()

    def find(self, key: Key, tile: int, row: int) -> int | None:
        """See `Hold.find`."""
        known = self._resident.pop(key, None)
        if known is not None:
            self._resident[key] = known
            if self._lives.extend(known, tile, row, self._most):
                return known
        else:
            self._left -= self._sizes[tile]
        self._resident[key] = tile
        while self._left < 0:
            self._left += self._sizes[self._resident.popitem(last=False)[1]]
        return None


def lives_in_sbuf(program: Program, slots: Slots) -> tuple[Lives, list[int], int]:
    """The lives of tiles in SBUF, their bytes per partition, and how many it has."""
    sizes = [s.bytes_per_partition if s.memory == SBUF else 0 for s in program.storages]
    return Lives(program, slots, sizes), sizes, program.machine.limit("sbuf_bytes_per_partition")


def without_redundant_loads(program: Program, hold: Callable[[Program, Slots], Hold]) -> Program:
    """A program without the loads of what SBUF still holds.

    Args:
        program: as it is so far.
        hold: what decides how long a loaded tile stays: makes a `Ring` or a `Room`.

    Returns:
        The program itself if there are none.
    """
    if not len(program):
        return program
    slots = slots_of(program)
    loads = loads_of_whole_tiles(program, slots)
    if not len(loads):
        return program
    removed, stands_for = _redundant_loads(program, slots, loads, hold(program, slots))
    return program.without(removed, stands_for)


def loads_of_whole_tiles(program: Program, slots: Slots) -> np.ndarray:
    """Rows that load a whole tile, which nothing else writes, from HBM that nothing writes.

    Not into tiles at addresses: what they hold is the kernel's to decide.
    """
    writes = np.bincount(slots.storage[slots.is_written], minlength=len(program.storages))
    form_loads = np.array([_is_load(form) for form in program.forms], np.bool_)
    rows = np.flatnonzero(form_loads[program.form_column])
    start = program.operand_start
    dst, src = slots.storage[start[rows]], slots.storage[start[rows] + 1]
    fixed = (writes[dst] == 1) & (writes[src] == 0) & ~has_address(program)[dst]
    counts_of_kind = np.array([prod(s.shape) for s in slots.kinds.samples], np.int64)[
        slots.kinds.of_storage[dst]
    ]
    loaded = np.array([g.size for g in slots.layouts], np.int64)[slots.layout[start[rows]]]
    return rows[fixed & (counts_of_kind == loaded) & (slots.offset[start[rows]] == 0)]


def loads_of(program: Program, slots: Slots) -> np.ndarray:
    """Per row, whether it loads from HBM that nothing writes."""
    writes = np.bincount(slots.storage[slots.is_written], minlength=len(program.storages))
    form_loads = np.array([_is_load(form, has_gaps=True) for form in program.forms], np.bool_)
    loads = form_loads[program.form_column]
    rows = np.flatnonzero(loads)
    loads[rows] = writes[slots.storage[program.operand_start[rows] + 1]] == 0
    return loads


def _is_load(form: object, *, has_gaps: bool = False) -> bool:
    if not isinstance(form, DmaCopy):
        return False
    dst, src = form.layouts
    return (
        dst.memory == SBUF and src.memory == HBM and (dst.is_compact or has_gaps)
        and not dst.indices and not src.indices
        and form.dst_rmw_op is None
    )  # fmt: skip


def _redundant_loads(
    program: Program, slots: Slots, loads: np.ndarray, hold: Hold
) -> tuple[list[int], dict[int, int]]:
    """Loads that are redundant, and per tile they fill the earlier tile that holds the same."""
    start = program.operand_start
    removed: list[int] = []
    stands_for: dict[int, int] = {}
    forms = program.form_column[loads].tolist()
    places = start[loads].tolist()
    for row, form, at in zip(loads.tolist(), forms, places, strict=True):
        tile, source, offset = int(slots.storage[at]), int(slots.storage[at + 1]), int(slots.offset[at + 1])
        earlier = hold.find((form, source, offset), tile, row)
        if earlier is not None:
            removed.append(row)
            stands_for[tile] = earlier
    return removed, stands_for
