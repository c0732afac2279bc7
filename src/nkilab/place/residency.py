"""What lies in a memory that does not hold everything, while the rows of a program pass.

Where a part finds no room, the one that is used farthest ahead makes it; it is saved if HBM does not hold its
content, and read back before its next use. These functions are compiled for a long program.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from ..records import AT_ONCE, PAUSED, Entry, Job, drop_first, push
from .memory import Memory, give_back, take
from .slots import DMA
from .walk import REUSE, SPILL

NOBODY = -1
NEVER = -1
SAVE, RELOAD, LOAD_AGAIN = range(3)
# What `pass_rows` says when it did not stop at an access of a row whose operands do not fit together.
ALL_PASSED, NO_ROOM = -1, -2


class Access(Struct):
    """One access of a part."""

    # row, engine: what accesses
    row: int
    engine: int
    part: int  # that is accessed
    next: int  # the next access of the part
    # is_written, is_root: see `Slots` and `Parts`
    is_written: bool
    is_root: bool
    needs_content: bool  # whether its row needs what the part holds
    is_loaded: bool  # whether its row loads all of the part from HBM that nothing writes


class Part(Struct):
    """A part of a tile."""

    size: int  # bytes per partition
    residency: int = NOBODY  # where and how long it lies on chip, if it does
    next: int = NEVER  # its next access
    row: int = NEVER  # the last row that accesses it
    saved_by: int = NOBODY  # the node that saved it last
    is_dirty: bool = False  # whether it holds what HBM does not
    # whether it holds what the kernel loaded, which HBM still holds where it came from
    is_loaded: bool = False
    was_live: bool = False  # whether it lay on chip when the first part had to leave


class Residency(Struct):
    """A part on chip: from when to when, and where."""

    part: int = NOBODY  # that stays
    # first, last: row that brought it, row with which it left
    first: int = 0
    last: int = 0
    reload: int = NOBODY  # node that brings the content back
    # former, former_end: the reuses of the memory that say who held its bytes before
    former: int = 0
    former_end: int = 0
    transfers: int = NOBODY  # the last of the transfers after which it is idle


class Link(Struct):
    """A transfer after which a part is idle, and the one before it."""

    node: int = NOBODY
    before: int = NOBODY


class Inserted(Struct):
    """A transfer that makes room or brings content: `SAVE` or `RELOAD`, of which part, before which row."""

    kind: int = SAVE
    part: int = 0
    row: int = 0


class Progress(Struct):
    """Where the pass is.

    Args:
        rows: of the program.
        rest: rows since its last use and until its next after which a part leaves rather than others.
        access: the next one.
        stays, links, inserted, edges, farthest: how many entries of these tables are in use.
        first_spill: the row for which the first part had to leave.
    """

    rows: int
    rest: int
    access: int = 0
    residencies: int = 0
    links: int = 0
    inserted: int = 0
    edges: int = 0
    farthest: int = 0
    first_spill: int = NEVER


class State(NamedTuple):
    """The memory, the accesses, and what follows from them.

    Args:
        progress: where it is.
        accesses, parts, stays, links, inserted: tables.
        memory: in which stays are placed.
        frontier: per residency and engine that runs in order, the last row that accesses it.
        farthest: a heap of parts on chip, the one used farthest ahead on top; old entries stay in it.
        kept: parts that lie higher in the heap than one that may leave.
        later, earlier, kind: the edges.
    """

    progress: Progress
    accesses: list[Access]
    parts: list[Part]
    residencies: list[Residency]
    links: list[Link]
    inserted: list[Inserted]
    memory: Memory
    frontier: list[int]
    farthest: list[Entry]
    kept: list[int]
    later: list[int]
    earlier: list[int]
    kind: list[int]


def pass_rows(state: State) -> int:
    """Let all rows pass; returns why it stopped, or the first access of a row whose operands do not fit."""
    progress, accesses = state.progress, state.accesses
    pause = progress.access + AT_ONCE
    while progress.access < len(accesses):
        if progress.access >= pause:
            return PAUSED
        begin = end = progress.access
        size = 0
        while end < len(accesses) and accesses[end].row == accesses[begin].row:
            part = state.parts[accesses[end].part]
            size += part.size if part.row != accesses[end].row else 0
            part.row = accesses[end].row
            end += 1
        if size > state.memory.extent.size:
            return begin
        if not _has_room(state, end - begin):
            return NO_ROOM
        _pass_row(state, begin, end)
        progress.access = end
    return ALL_PASSED if progress.edges <= len(state.later) else NO_ROOM


def _has_room(state: State, accesses: int) -> bool:
    """Whether the tables held all edges so far, and hold whatever else one row may need."""
    # each access brings one part at most, for which all others may have to leave
    needed, progress = accesses + 1, state.progress
    leaving = state.memory.extent.created + 1
    return (
        progress.edges <= len(state.later)
        and progress.residencies + needed <= len(state.residencies)
        and progress.links + 2 * needed + leaving <= len(state.links)
        and progress.inserted + needed + leaving <= len(state.inserted)
        and state.memory.extent.reuses + needed + leaving + accesses <= len(state.memory.former)
    )


def _pass_row(state: State, begin: int, end: int) -> None:
    """Bring the operands of a row on chip, account for its accesses, free what is not used again."""
    progress = state.progress
    for number in range(begin, end):
        access = state.accesses[number]
        if state.parts[access.part].residency == NOBODY:
            _bring(state, access)
    for number in range(begin, end):
        _account(state, state.accesses[number])
    for number in range(begin, end):
        access = state.accesses[number]
        part = state.parts[access.part]
        if part.residency == NOBODY or access.next != part.next:
            continue
        if part.next == NEVER:
            _leave(state, access.part, access.row)
        else:
            push(state.farthest, progress.farthest, -float(state.accesses[part.next].row), access.part)
            progress.farthest += 1


def _account(state: State, access: Access) -> None:
    """Account for one access: its waits, and what the part is afterwards."""
    part = state.parts[access.part]
    residency = state.residencies[part.residency]
    if residency.reload != NOBODY:
        _wait(state, access.row, residency.reload, SPILL)
    # whoever comes back without content is overwritten by the row that brings it
    if access.is_root or (residency.first == access.row and residency.reload == NOBODY):
        _wait_for_former(state, access.row, part.residency)
    if access.engine == DMA:
        _link(state, part.residency, access.row)
    else:
        state.frontier[part.residency * DMA + access.engine] = access.row
    if access.is_loaded:
        # what it held before is gone: HBM holds what it holds now
        part.is_dirty, part.is_loaded, part.saved_by = False, True, access.row
    elif access.is_written:
        part.is_dirty, part.is_loaded = True, False
    part.next = access.next


def _bring(state: State, access: Access) -> None:
    """Give a part a place, and its content if it was saved and is needed."""
    progress, part = state.progress, state.parts[access.part]
    number = progress.residencies
    residency = state.residencies[number]
    progress.residencies += 1
    state.memory.tiles[number].size = part.size
    while state.memory.extent.free < part.size:
        _evict(state, access.row)
    residency.part, residency.first, residency.last = access.part, access.row, access.row
    residency.former = state.memory.extent.reuses
    take(state.memory, number)
    residency.former_end = state.memory.extent.reuses
    part.residency = number
    if access.needs_content and part.saved_by != NOBODY:
        kind = LOAD_AGAIN if part.is_loaded else RELOAD
        residency.reload = _insert(state, kind, access.part, access.row)
        _wait(state, residency.reload, part.saved_by, SPILL)
        _wait_for_former(state, residency.reload, number)
        _link(state, number, residency.reload)


def _evict(state: State, row: int) -> None:
    """Make room: the part used farthest ahead leaves, saved if it holds what HBM does not."""
    number = _farthest(state, row)
    part = state.parts[number]
    if state.progress.first_spill == NEVER:
        state.progress.first_spill = row
        for other in state.parts:
            other.was_live = other.residency != NOBODY
    if part.is_dirty and state.accesses[part.next].needs_content:
        node = _insert(state, SAVE, number, row)
        _wait_for_frontier(state, node, part.residency, SPILL)
        _forget_frontier(state, part.residency)
        _link(state, part.residency, node)
        part.saved_by = node
        part.is_dirty = False
    _leave(state, number, row)


def _farthest(state: State, row: int) -> int:
    """The part on chip that is used farthest ahead, of those that rest; it leaves the heap.

    What was used a moment ago stays: a reload into its place could not begin before it is needed. Where all
    that rest are used soon, the one used farthest ahead leaves, but none that this row needs.
    """
    progress, kept, chosen = state.progress, 0, NOBODY
    while progress.farthest > 0:
        key, number = state.farthest[0].key, state.farthest[0].number
        drop_first(state.farthest, progress.farthest)
        progress.farthest -= 1
        part = state.parts[number]
        if part.residency == NOBODY or -key != state.accesses[part.next].row:
            continue
        is_soon = -key - row < progress.rest
        if row - part.row >= progress.rest and not is_soon:
            chosen = number
            break
        state.kept[kept] = number
        kept += 1
        if is_soon and state.parts[state.kept[0]].row != row:
            break
    for place in range(kept):
        number = state.kept[place]
        if chosen == NOBODY and state.parts[number].row != row:
            chosen = number
        else:
            push(
                state.farthest,
                progress.farthest,
                -float(state.accesses[state.parts[number].next].row),
                number,
            )
            progress.farthest += 1
    return chosen


def _leave(state: State, number: int, row: int) -> None:
    """Free the bytes of a part."""
    part = state.parts[number]
    state.residencies[part.residency].last = state.memory.tiles[part.residency].last = row
    give_back(state.memory, part.residency)
    part.residency = NOBODY


def _insert(state: State, kind: int, part: int, row: int) -> int:
    """Insert a transfer of a whole part before a row; returns its node."""
    inserted = state.inserted[state.progress.inserted]
    inserted.kind, inserted.part, inserted.row = kind, part, row
    state.progress.inserted += 1
    return state.progress.rows + state.progress.inserted - 1


def _link(state: State, residency: int, node: int) -> None:
    """Note a transfer after which a part is idle."""
    number = state.progress.links
    state.progress.links += 1
    link = state.links[number]
    link.node, link.before = node, state.residencies[residency].transfers
    state.residencies[residency].transfers = number


def _forget_frontier(state: State, residency: int) -> None:
    """Forget after which nodes a part is idle."""
    state.residencies[residency].transfers = NOBODY
    for engine in range(DMA):
        state.frontier[residency * DMA + engine] = NOBODY


def _wait_for_former(state: State, node: int, residency: int) -> None:
    """Wait until who held the bytes before is idle."""
    for place in range(state.residencies[residency].former, state.residencies[residency].former_end):
        _wait_for_frontier(state, node, state.memory.former[place], REUSE)


def _wait_for_frontier(state: State, node: int, residency: int, kind: int) -> None:
    """Wait until the part that has or had a residency is idle."""
    for engine in range(DMA):
        if state.frontier[residency * DMA + engine] != NOBODY:
            _wait(state, node, state.frontier[residency * DMA + engine], kind)
    number = state.residencies[residency].transfers
    while number != NOBODY:
        _wait(state, node, state.links[number].node, kind)
        number = state.links[number].before


def _wait(state: State, later: int, earlier: int, kind: int) -> None:
    """Record that a node waits, if there is room."""
    place = state.progress.edges
    if place < len(state.later):
        state.later[place], state.earlier[place], state.kind[place] = later, earlier, kind
    state.progress.edges += 1


JOB = Job(pass_rows, "the placement with spills")
