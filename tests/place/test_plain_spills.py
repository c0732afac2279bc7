"""Random programs that SBUF does not hold, against the rule of who leaves, and against races byte by byte.

The rule is followed here one row at a time over sets of tiles; docs/timing-model.md states it.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from nkilab.machine import MACHINES
from nkilab.machine.model import assumed
from nkilab.place import Plan, plan

from .handmade import Kernel, columns

# bytes per partition of a quarter of the largest tile
UNIT = 512


class Use(NamedTuple):
    """What a row does with a tile."""

    tile: int
    reads: bool
    writes: bool
    loads: bool = False
    halves: tuple[int, ...] = (0, 1)

    @property
    def needs_content(self) -> bool:
        return self.reads or len(self.halves) < 2


@dataclass
class Case:
    """A program, the uses of tiles of each row, and units of each tile."""

    kernel: Kernel
    uses: list[list[Use]]
    units: list[int]
    room: int
    rest: int


def random_case(seed: int, sizes: list[int]) -> Case:
    """Copies, loads and stores of tiles, whole or in part; every tile is stored at the end."""
    draw = Random(seed)
    room, rest = draw.randint(12, 20), draw.choice([0, 2, 5])
    k = Kernel(
        replace(
            MACHINES["trn2"],
            sbuf_bytes_per_partition=assumed(room * UNIT, "a test"),
            spill_rest_rows=assumed(rest, "a test"),
            tile_buffers=assumed(1000, "a test"),
        )
    )
    units = [draw.choice(sizes) for _ in range(draw.randint(6, 10))]
    tiles = [k.tile(128, count * UNIT // 4) for count in units]
    case = Case(k, [], units, room, rest)
    for number in range(len(tiles)):
        write(case, tiles, number, draw)
    for _ in range(30):
        write(case, tiles, draw.randrange(len(tiles)), draw)
        source = draw.randrange(len(tiles))
        k.store(k.hbm(*tiles[source].layout.shape), tiles[source])
        case.uses.append([Use(source, True, False)])
    for number, tile in enumerate(tiles):
        k.store(k.hbm(*tile.layout.shape), tile)
        case.uses.append([Use(number, True, False)])
    return case


def write(case: Case, tiles: list, number: int, draw: Random) -> None:
    """One row that writes a tile: from HBM, from PSUM, from another tile, or a part of it."""
    k, tile, shape = case.kernel, tiles[number], tiles[number].layout.shape
    engine = draw.choice(["vector", "scalar"])
    others = [n for n, u in enumerate(case.units) if u == case.units[number] and n != number]
    match draw.choice(["load", "make", "copy", "part", "load a part", "in place"]):
        case "load":
            k.load(tile, k.hbm(*shape))
            case.uses.append([Use(number, False, True, loads=True)])
        case "copy" if others and len(case.uses) >= len(tiles):
            other = draw.choice(others)
            k.copy(tile, tiles[other], engine)
            case.uses.append([Use(number, False, True), Use(other, True, False)])
        case "in place" if len(case.uses) >= len(tiles):
            k.copy(tile, tile, engine)
            case.uses.append([Use(number, False, True), Use(number, True, False)])
        case "load a part" if len(case.uses) >= len(tiles):
            k.load(columns(tile, 0, shape[1] // 2), k.hbm(128, shape[1] // 2))
            case.uses.append([Use(number, False, True, halves=(0,))])
        case "part" if len(case.uses) >= len(tiles):
            k.copy(columns(tile, 0, shape[1] // 2), k.psum(128, shape[1] // 2), engine)
            case.uses.append([Use(number, False, True, halves=(0,))])
        case _:
            k.copy(tile, k.psum(*shape), engine)
            case.uses.append([Use(number, False, True)])


class Sbuf:
    """What is on chip, row by row."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.here: set[int] = set()
        self.last: dict[int, int] = {}
        self.dirty: set[int] = set()
        self.loaded: set[int] = set()
        self.saved: set[int] = set()
        self.transfers: list[tuple[str, int, int]] = []

    def run(self) -> list[tuple[str, int, int]]:
        """The transfers that are inserted: kind, tile, row."""
        for row, uses in enumerate(self.case.uses):
            self.last.update((use.tile, row) for use in uses)
            for use in uses:
                if use.tile not in self.here:
                    self.bring(use.tile, row)
            for use in uses:
                self.note(use)
            self.here = {tile for tile in self.here if self.next(tile, row + 1) is not None}
        return self.transfers

    def next(self, tile: int, row: int) -> int | None:
        """The next row from one on that uses a tile."""
        later = range(row, len(self.case.uses))
        return next((r for r in later if any(use.tile == tile for use in self.case.uses[r])), None)

    def needs_content(self, tile: int, row: int) -> bool:
        return any(use.needs_content for use in self.case.uses[row] if use.tile == tile)

    def bring(self, tile: int, row: int) -> None:
        units = self.case.units
        while sum(units[other] for other in self.here) + units[tile] > self.case.room:
            self.evict(row)
        self.here.add(tile)
        if self.needs_content(tile, row) and tile in self.saved:
            kind = "load_again" if tile in self.loaded else "spill_reload"
            self.transfers.append((kind, tile, row))

    def evict(self, row: int) -> None:
        """Of those that rest the one used last leaves; else of all that this row does not need."""
        ahead = {tile: self.next(tile, row) or 0 for tile in self.here if self.last[tile] < row}
        rest = self.case.rest
        resting = [t for t in ahead if row - self.last[t] >= rest and ahead[t] - row >= rest]
        tile = max(resting or ahead, key=lambda t: (ahead[t], -t))
        self.here.remove(tile)
        if tile in self.dirty and self.needs_content(tile, ahead[tile]):
            self.transfers.append(("spill_save", tile, row))
            self.saved.add(tile)
            self.dirty.remove(tile)

    def note(self, use: Use) -> None:
        if use.loads:
            self.dirty.discard(use.tile)
            self.loaded.add(use.tile)
            self.saved.add(use.tile)
        elif use.writes:
            self.dirty.add(use.tile)
            self.loaded.discard(use.tile)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("sizes", [[4], [1, 2, 4]], ids=["equal", "mixed"])
def test_tiles_leave_and_return_by_the_rule(seed: int, sizes: list[int]) -> None:
    case = random_case(seed, sizes)
    placed = plan(case.kernel.program)
    # the tiles are the first storages
    moves = [(t.kind, t.storage, t.before_row) for t in placed.transfers]
    assert moves == Sbuf(case).run()
    for transfer in placed.transfers:
        units = case.units[transfer.storage]
        assert (transfer.descriptors, transfer.descriptor_bytes) == (128, units * UNIT)
    kinds = ("spill_save", "spill_reload", "load_again")
    moved = (placed.spill_save_bytes, placed.spill_reload_bytes, placed.loaded_again_bytes)
    for kind, total in zip(kinds, moved, strict=True):
        assert total == sum(128 * case.units[tile] * UNIT for own, tile, _ in moves if own == kind)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("sizes", [[4], [1, 2, 4]], ids=["equal", "mixed"])
def test_sbuf_holds_at_every_row_what_the_row_uses_and_never_more_than_it_has(
    seed: int, sizes: list[int]
) -> None:
    case = random_case(seed, sizes)
    sbuf = plan(case.kernel.program).sbuf
    resident = list(zip(sbuf.storage, sbuf.size, sbuf.first_row, sbuf.last_row, strict=True))
    most = 0
    for row, uses in enumerate(case.uses):
        used = {use.tile for use in uses}
        here = [(tile, size) for tile, size, begin, end in resident if begin <= row <= end]
        assert used <= {tile for tile, _ in here}
        # who leaves in this row made room for who comes
        staying = sum(size for tile, size, begin, end in resident if begin <= row < end)
        most = max(most, staying)
        assert staying <= case.room * UNIT
    peak = plan(case.kernel.program).peak_sbuf_bytes
    assert most <= peak <= case.room * UNIT


def rotating_case(seed: int) -> Case:
    """Tiles that live for a few rows each, written whole or in two halves, with room for those that live."""
    draw, room = Random(seed), 5
    machine = replace(
        MACHINES["trn2"],
        sbuf_bytes_per_partition=assumed(4 * room * UNIT, "a test"),
        tile_buffers=assumed(1000, "a test"),
    )
    case = Case(Kernel(machine), [], [4] * 25, 4 * room, 0)
    k = case.kernel
    tiles = [k.tile(128, UNIT) for _ in case.units]
    for number, tile in enumerate(tiles):
        engines = [draw.choice(["vector", "scalar"]) for _ in range(2)]
        if draw.random() < 0.3:
            for half, engine in enumerate(engines):
                here = columns(tile, half * UNIT // 2, (half + 1) * UNIT // 2)
                k.copy(here, k.psum(128, UNIT // 2), engine)
                case.uses.append([Use(number, False, True, halves=(half,))])
        elif number and draw.random() < 0.5:
            k.copy(tile, tiles[number - 1], engines[0])
            case.uses.append([Use(number, False, True), Use(number - 1, True, False)])
        else:
            k.load(tile, k.hbm(128, UNIT))
            case.uses.append([Use(number, False, True, loads=True)])
        for read in range(max(0, number - 3), number + 1):
            if draw.random() < 0.5:
                k.store(k.hbm(128, UNIT), tiles[read])
            else:
                k.copy(k.psum(128, UNIT), tiles[read], engines[0])
            case.uses.append([Use(read, True, False)])
    return case


@pytest.mark.parametrize("seed", range(8))
def test_tiles_that_take_turns_wait_for_each_other_and_for_nobody_else(seed: int) -> None:
    case = rotating_case(seed)
    placed = plan(case.kernel.program)
    assert placed.transfers == ()
    assert_no_race(case, placed)
    where: dict[int, set[tuple[str, int | None]]] = {row: set() for row in range(placed.rows)}
    for row, address, _, _ in accesses(case, placed):
        where[row].add(("sbuf", address))
    for row in where:
        own = [a for a in case.kernel.program.accesses(row) if a.layout.memory == "psum"]
        where[row] |= {("psum", placed.address_of(a.storage)) for a in own}
    reuses = [(row, other) for row in range(placed.rows) for other, kind in placed.waits.of(row)
              if kind == "reuse"]  # fmt: skip
    assert reuses
    for row, other in reuses:
        assert where[row] & where[other]


@pytest.mark.parametrize("seed", range(8))
def test_no_two_nodes_race_for_bytes_of_sbuf(seed: int) -> None:
    # equal tiles always lie in one piece: every access is known by its address
    case = random_case(seed, [4])
    assert_no_race(case, plan(case.kernel.program))


def assert_no_race(case: Case, placed: Plan) -> None:
    """Of two nodes that touch an address, of which one writes, the later one waits for the other."""
    before = ancestors(case.kernel, placed)
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    for node, address, reads, writes in accesses(case, placed):
        earlier = [writer.get(address, node), *(readers.get(address, []) if writes else [])]
        for other in earlier:
            assert other == node or before[node] >> other & 1, f"{node} and {other} at {address}"
        if writes:
            writer[address], readers[address] = node, []
        elif reads:
            readers.setdefault(address, []).append(node)


def in_order(placed: Plan) -> list[int]:
    """The nodes as the program has them: inserted transfers before their rows."""
    rows = placed.rows
    keys = [(row, 1, row) for row in range(rows)]
    keys += [(t.before_row, 0, rows + i) for i, t in enumerate(placed.transfers)]
    return [node for _, _, node in sorted(keys)]


def ancestors(k: Kernel, placed: Plan) -> dict[int, int]:
    """Per node a bit for each that ends before it begins: waits, and what stands before it on its engine."""
    before: dict[int, int] = {}
    last: dict[str, int] = {}
    for node in in_order(placed):
        earlier = [other for other, _ in placed.waits.of(node)]
        engine = k.program.form_of(node).steps[-1].engine if node < placed.rows else "dma"
        if engine != "dma":
            earlier += [last[engine]] if engine in last else []
            last[engine] = node
        before[node] = 0
        for other in earlier:
            before[node] |= before[other] | 1 << other
    return before


def accesses(case: Case, placed: Plan) -> list[tuple[int, int, bool, bool]]:
    """Node, address of half a tile, whether it reads and writes there: rows, saves, what brings content."""
    resident = list(zip(*(getattr(placed.sbuf, name).tolist() for name in
                       ("storage", "address", "first_row", "last_row", "pieces")), strict=True))  # fmt: skip
    assert all(pieces == 1 for *_, pieces in resident)
    result = []
    for node in in_order(placed):
        if node < placed.rows:
            for use in case.uses[node]:
                (at,) = {a for s, a, begin, end, _ in resident if s == use.tile and begin <= node <= end}
                result += [(node, at + half * UNIT * 2, use.reads, use.writes) for half in use.halves]
            continue
        transfer = placed.transfers[node - placed.rows]
        row, is_save = transfer.before_row, transfer.kind == "spill_save"
        (at,) = (
            a for s, a, begin, end, _ in resident
            if s == transfer.storage and (end == row if is_save else begin == row)
        )  # fmt: skip
        result += [(node, at + half * UNIT * 2, is_save, not is_save) for half in (0, 1)]
    return result
