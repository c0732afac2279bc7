"""Which loads SBUF makes redundant, against a window and a list of tiles followed by hand."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from msgspec.structs import replace

from nkilab.machine import MACHINES
from nkilab.machine.model import assumed
from nkilab.place.redundant import Ring, Room, loads_of, loads_of_whole_tiles, without_redundant_loads
from nkilab.place.slots import Slots, slots_of
from nkilab.tiles.tile import View
from nkilab.trace.program import Program

from .handmade import Kernel, columns, rows

# a tile of [128, 256] float32
SIZE = 1024


def machine_with(tiles: int):
    return replace(MACHINES["trn2"], sbuf_bytes_per_partition=assumed(tiles * SIZE, "a test"))


def loading(blocks: list[int], room: int = 100, window: int = 64) -> tuple[Kernel, list[View]]:
    """One tile after the other is loaded from a block of a tensor, and read at once by VectorE."""
    window_of_tiles = {"redundant_load_window_bytes": window * SIZE}
    k = Kernel(machine_with(room).with_constants(window_of_tiles, "a test"))
    source, tiles = k.hbm(128 * (max(blocks) + 1), 256), [k.tile(128, 256) for _ in blocks]
    for tile, block in zip(tiles, blocks, strict=True):
        k.load(tile, rows(source, block * 128, block * 128 + 128))
        k.copy(k.psum(128, 256), tile)
    return k, tiles


def left_out(k: Kernel, hold: Callable[[Program, Slots], Ring | Room]) -> list[int]:
    """Which of the loads are left out, by their number."""
    shorter = without_redundant_loads(k.program, hold)
    kept = {shorter.place_of(row) for row in range(len(shorter))}
    loads = [row for row in range(len(k.program)) if k.program.form_of(row).name == "dma_copy"]
    return [number for number, row in enumerate(loads) if k.program.place_of(row) not in kept]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("window", [1, 2, 3, 5])
def test_a_ring_holds_what_was_loaded_last(seed: int, window: int) -> None:
    blocks = Random(seed).choices(range(6), k=30)
    k, _ = loading(blocks, window=window)
    # a load counts from its first byte on: the window may end where it ends
    ring: list[int] = []
    expected = []
    for number, block in enumerate(blocks):
        if block in ring[max(0, len(ring) - window) :]:
            expected.append(number)
        else:
            ring.append(block)
    assert left_out(k, Ring) == expected


def test_a_load_leaves_the_window_with_its_first_byte() -> None:
    # two blocks of 1024 bytes between: 3072 from the first byte of the load on
    k, _ = loading([0, 1, 2, 0], window=3)
    assert left_out(k, Ring) == [3]
    k.program.machine = k.program.machine.with_constants({"redundant_load_window_bytes": 3071}, "a test")
    assert left_out(k, Ring) == []


@pytest.mark.parametrize(("room", "expected"), [(52, []), (53, [2])])
def test_a_ring_leaves_room_for_a_second_buffer_of_each_line(room: int, expected: list[int]) -> None:
    # 50 KiB of sums live throughout; one load lives, one stays until it is loaded again, and sums and loads
    # have a second buffer each
    k = Kernel(machine_with(room + 50))
    source, sums = k.hbm(256, 256), k.tile(128, 50 * 256)
    tiles = [k.tile(128, 256) for _ in range(3)]
    k.fill(sums)
    for tile, block in zip(tiles, [0, 1, 0], strict=True):
        k.load(tile, rows(source, block * 128, block * 128 + 128))
        k.copy(k.psum(128, 256), tile)
    k.copy(k.psum(128, 256), columns(sums, 0, 256))
    assert left_out(k, Ring) == expected


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("room", [2, 3, 4])
def test_of_tiles_that_are_used_at_once_those_stay_that_were_used_last(seed: int, room: int) -> None:
    # a tile that stays lies beside the one that lives at each row, and is held until it is loaded again
    blocks = Random(seed).choices(range(5), k=25)
    k, _ = loading(blocks, room)
    resident: list[int] = []
    last: dict[int, int] = {}
    used = [1] * (2 * len(blocks))
    expected = []
    for number, block in enumerate(blocks):
        row = 2 * number
        if block in resident:
            resident.remove(block)
            resident.append(block)
            between = range(last[block] + 1, row)
            if all(used[r] + 1 <= room for r in between):
                expected.append(number)
                for r in between:
                    used[r] += 1
                last[block] = row + 1
                continue
        else:
            resident.append(block)
            resident[:] = resident[-room:]
        last[block] = row + 1
    assert left_out(k, Room) == expected


class Sbuf:
    """What SBUF holds of some loads, followed tile by tile: those used last are kept."""

    def __init__(self, room: int, sizes: dict[int, int], lives: dict[int, tuple[int, int]]) -> None:
        self.room, self.sizes, self.lives = room, sizes, dict(lives)
        self.kept: list[tuple[int, int]] = []

    def find(self, block: int, tile: int, row: int) -> int | None:
        """The tile that holds a block that is to be loaded into a tile in a row."""
        known = next((kept for kept in self.kept if kept[0] == block), None)
        if known is None:
            self.kept.append((block, tile))
            while sum(self.sizes[kept] for _, kept in self.kept) > self.room:
                del self.kept[0]
            return None
        self.kept.remove(known)
        earlier, size = known[1], self.sizes[tile]
        first, last = self.lives[earlier]
        if all(self.used(between) + size <= self.room for between in range(last + 1, row)):
            self.kept.append(known)
            self.lives[earlier] = first, max(last, self.lives.pop(tile)[1])
            return earlier
        self.kept.append((block, tile))
        return None

    def used(self, row: int) -> int:
        """What lives in a row."""
        return sum(self.sizes[tile] for tile, (first, last) in self.lives.items() if first <= row <= last)


@pytest.mark.parametrize("seed", range(40))
def test_tiles_of_several_sizes_stay_while_there_is_room_beside_all_others(seed: int) -> None:
    # tiles of 1 to 3 KiB, read when they are loaded and some also later, beside others that are computed
    draw, room = Random(seed), 8
    k = Kernel(machine_with(room))
    sources = [k.hbm(128, 256 * draw.choice([1, 1, 2, 3])) for _ in range(5)]
    rows_of: dict[View, list[int]] = {}
    loads: list[tuple[int, int, View]] = []
    for _ in range(25):
        if draw.random() < 0.2:
            product = k.tile(128, 256)
            rows_of[product] = [k.copy(product, k.psum(128, 256))]
        block = draw.randrange(len(sources))
        tile = k.tile(*sources[block].layout.shape)
        loads.append((k.load(tile, sources[block]), block, tile))
        rows_of[tile] = [loads[-1][0]]
        for read in [tile, *draw.sample(list(rows_of)[-4:], k=1)]:
            rows_of[read].append(k.copy(k.psum(*read.layout.shape), read))
    numbers = {tile: tile.storage.number for tile in rows_of}
    sizes = {number: tile.layout.shape[1] // 256 for tile, number in numbers.items()}
    lives = {number: (rows_of[tile][0], rows_of[tile][-1]) for tile, number in numbers.items()}
    sbuf = Sbuf(room, sizes, lives)
    expected = [
        n for n, (row, block, tile) in enumerate(loads) if sbuf.find(block, numbers[tile], row) is not None
    ]
    assert left_out(k, Room) == expected


def test_who_read_a_tile_that_is_not_loaded_reads_the_one_that_stands_for_it() -> None:
    k, tiles = loading([0, 1, 0])
    shorter = without_redundant_loads(k.program, Ring)
    assert list(shorter.opcodes().items()) == [("dma_copy", 2), ("tensor_copy", 3)]
    reads = [a.storage for row in range(len(shorter)) for a in shorter.accesses(row) if a.operand == "src"]
    assert reads[-1] == reads[1] == tiles[0].storage.number


def whole_loads(k: Kernel) -> list[int]:
    return loads_of_whole_tiles(k.program, slots_of(k.program)).tolist()


def from_hbm(k: Kernel) -> list[bool]:
    return loads_of(k.program, slots_of(k.program)).tolist()


def test_a_load_fills_a_whole_tile_that_nobody_else_writes_from_what_nobody_writes() -> None:
    k = Kernel()
    x, y = k.hbm(128, 64), k.hbm(128, 64)
    whole, half, twice, changed = (k.tile(128, 64) for _ in range(4))
    k.load(whole, x)
    k.load(columns(half, 0, 32), columns(x, 0, 32))
    k.load(twice, x)
    k.load(twice, x)
    k.load(changed, y)
    k.store(y, whole)
    k.load(k.tile(128, 64), whole)
    k.copy(k.tile(128, 64), whole)
    assert whole_loads(k) == [0]
    assert from_hbm(k) == [True, True, True, True, False, False, False, False]


def test_an_upper_half_alone_is_no_whole_tile() -> None:
    # as many elements as a tile has, of a tile twice as large
    k = Kernel()
    k.load(rows(k.tile(128, 64), 64, 128), k.hbm(64, 64))
    assert whole_loads(k) == []


def test_a_program_whose_loads_all_differ_stays_as_it_is() -> None:
    k, _ = loading([0, 1, 2])
    assert left_out(k, Room) == []
    empty = Kernel().program
    assert without_redundant_loads(empty, Room) is empty
