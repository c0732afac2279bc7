"""Who waits for whom. The expected waits are read off the programs by hand."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from nkilab.place import DEPENDENCES, dependences
from nkilab.place.slots import DMA, slots_of
from nkilab.tiles.tile import View, layout
from nkilab.trace.program import Program

from .handmade import Kernel, columns, part, reshaped, rows


def test_a_read_waits_for_the_write_before_it() -> None:
    k = Kernel()
    a, b = k.tile(128, 64), k.tile(128, 64)
    k.fill(a)
    k.copy(b, a)
    assert dependences(k.program).of(1) == [(0, "flow")]


def test_every_write_waits_for_all_that_it_overlaps_however_many_they_are() -> None:
    # each view of 20 columns begins one column behind the one before it: none covers another
    k = Kernel()
    tile = k.tile(128, 32)
    for first in range(12):
        k.fill(columns(tile, first, first + 20))
    waits = dependences(k.program)
    for row in range(12):
        assert waits.of(row) == [(earlier, "output") for earlier in range(row)]


def test_a_write_waits_for_the_reads_and_the_write_before_it() -> None:
    k = Kernel()
    a, b, c = (k.tile(128, 64) for _ in range(3))
    k.fill(a)
    k.copy(b, a, "vector")
    k.copy(c, a, "scalar")
    k.fill(a)
    assert dependences(k.program).of(3) == [(0, "output"), (1, "anti"), (2, "anti")]


def test_of_several_reads_of_one_engine_only_the_last_is_waited_for() -> None:
    k = Kernel()
    a, b = k.tile(128, 64), k.tile(128, 64)
    k.fill(a)
    for _ in range(3):
        k.copy(b, a, "scalar")
    k.fill(a)
    assert dependences(k.program).of(4) == [(0, "output"), (3, "anti")]


def test_every_reading_transfer_is_waited_for() -> None:
    k = Kernel()
    a, out = k.tile(128, 64), k.hbm(256, 64)
    k.fill(a)
    k.store(rows(out, 0, 128), a)
    k.store(rows(out, 128, 256), a)
    k.fill(a)
    assert dependences(k.program).of(3) == [(0, "output"), (1, "anti"), (2, "anti")]


def test_what_a_later_write_covered_is_not_waited_for() -> None:
    k = Kernel()
    a, b = k.tile(128, 64), k.tile(128, 32)
    k.fill(columns(a, 0, 32))
    k.fill(a)
    k.copy(b, columns(a, 0, 32))
    assert dependences(k.program).of(2) == [(1, "flow")]


def test_what_a_later_write_covered_in_part_is_waited_for() -> None:
    k = Kernel()
    a, b = k.tile(128, 64), k.tile(128, 64)
    k.fill(a)
    k.fill(columns(a, 0, 32))
    k.copy(b, a)
    waits = dependences(k.program)
    assert waits.of(1) == [(0, "output")]
    assert waits.of(2) == [(0, "flow"), (1, "flow")]


def test_disjoint_columns_of_one_tensor_are_not_ordered() -> None:
    k = Kernel()
    a, out = k.tile(128, 64), k.hbm(128, 128)
    k.fill(a)
    k.store(columns(out, 0, 64), a)
    k.store(columns(out, 64, 128), a)
    waits = dependences(k.program)
    assert waits.of(1) == [(0, "flow")]
    assert waits.of(2) == [(0, "flow")]


def test_even_and_odd_columns_are_not_ordered() -> None:
    k = Kernel()
    a = k.tile(128, 64)
    k.fill(columns(a, 0, 64, 2))
    k.fill(columns(a, 1, 64, 2))
    k.fill(columns(a, 2, 64, 2))
    waits = dependences(k.program)
    assert waits.of(1) == []
    assert waits.of(2) == [(0, "output")]


def test_disjoint_blocks_of_a_three_dimensional_tile_are_not_ordered() -> None:
    k = Kernel()
    a, b = k.tile(128, 4, 64), k.tile(128, 1, 64)
    for block in range(4):
        k.fill(part(a, (0, 128), (block, block + 1), (0, 64)))
    k.copy(b, part(a, (0, 128), (2, 3), (0, 64)))
    waits = dependences(k.program)
    assert [waits.of(row) for row in range(4)] == [[], [], [], []]
    assert waits.of(4) == [(2, "flow")]


def test_a_reshape_along_the_axes_of_a_tensor_stays_precise() -> None:
    # [256, 64] seen as [4, 64, 64]: block 1 is rows 64 to 127
    k = Kernel()
    a, b, out = k.tile(64, 64), k.tile(1, 64, 64), k.hbm(256, 64)
    blocks = reshaped(out, 4, 64, 64)
    k.store(rows(out, 0, 64), a)
    k.store(rows(out, 64, 128), a)
    k.load(b, part(blocks, (1, 2), (0, 64), (0, 64)))
    assert dependences(k.program).of(2) == [(1, "flow")]


def test_a_reshape_across_axes_falls_back_to_the_flat_interval() -> None:
    # [4, 6] seen as [3, 8]: row 1 holds elements 8 to 15, which lie in rows 1 and 2 of six
    k = Kernel()
    a, b, out = k.tile(1, 6), k.tile(1, 8), k.hbm(4, 6)
    for row in range(4):
        k.store(rows(out, row, row + 1), a)
    k.load(b, rows(reshaped(out, 3, 8), 1, 2))
    assert dependences(k.program).of(4) == [(1, "flow"), (2, "flow")]


def test_a_write_through_windows_that_overlap_does_not_hide_what_they_leave_out() -> None:
    # [4, 4] with strides 2 and 3: as many places as 16 elements in a row have, but never 1 and 14
    k = Kernel()
    a, out = k.tile(4, 4), k.hbm(16)
    known = layout((4, 4), (2, 3), out.layout.dtype, out.layout.memory, None, 0)
    k.store(part(out, (1, 2)), rows(columns(a, 0, 1), 0, 1))
    k.store(View(out.storage, 0, known), a)
    k.load(rows(columns(a, 0, 1), 0, 1), part(out, (1, 2)))
    assert (0, "flow") in dependences(k.program).of(2)


def test_a_tensor_in_hbm_that_is_written_and_read_again_is_ordered() -> None:
    k = Kernel()
    a, b, middle = k.tile(128, 64), k.tile(128, 64), k.hbm(256, 64)
    k.store(rows(middle, 0, 128), a)
    k.store(rows(middle, 128, 256), a)
    k.load(b, rows(middle, 0, 128))
    k.store(rows(middle, 0, 128), b)
    waits = dependences(k.program)
    assert waits.of(2) == [(0, "flow")]
    assert waits.of(3) == [(0, "output"), (2, "flow")]


def test_an_instruction_does_not_wait_for_itself() -> None:
    k = Kernel()
    a = k.tile(128, 64)
    k.fill(a)
    k.copy(a, a)
    k.copy(a, a)
    waits = dependences(k.program)
    assert waits.of(1) == [(0, "flow")]
    assert waits.of(2) == [(1, "flow")]


def test_an_accumulating_matmul_waits_for_the_one_before_it() -> None:
    k = Kernel()
    out, a, b = k.psum(128, 512), k.tile(128, 128), k.tile(128, 512)
    k.matmul(out, a, b)
    k.matmul(out, a, b, accumulate=True)
    assert dependences(k.program).of(1) == [(0, "flow")]


def test_the_framework_orders_every_kind_that_its_pages_name() -> None:
    # trn1 guide, profile schema and direct allocation guide: typed from them
    ordered = {name for name, kind in DEPENDENCES.items() if kind.is_ordered}
    assert {"flow", "anti", "output", "reuse", "spill", "engine order", "queue order"} <= ordered


@pytest.mark.parametrize("kind", ["flow", "anti", "output"])
def test_a_kind_that_the_table_does_not_order_makes_nobody_wait(kind: str) -> None:
    k = Kernel()
    a, b = k.tile(128, 64), k.tile(128, 64)
    k.fill(a)
    k.copy(b, a, "scalar")
    k.fill(a)
    table = {**DEPENDENCES, kind: replace(DEPENDENCES[kind], is_ordered=False)}
    waits = dependences(k.program, table)
    kinds = {name for row in range(3) for _, name in waits.of(row)}
    assert kinds == {"flow", "anti", "output"} - {kind}


def test_thousands_of_disjoint_writes_of_one_tensor_do_not_wait() -> None:
    k = Kernel()
    a, out = k.tile(128, 4), k.hbm(128 * 20, 4 * 100)
    for i in range(20):
        for j in range(100):
            k.store(part(out, (i * 128, i * 128 + 128), (j * 4, j * 4 + 4)), a)
    assert len(dependences(k.program).node) == 0


def elements(program: Program, row: int) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """(storage, element) pairs that a row reads and writes, by enumeration."""
    read: set[tuple[int, int]] = set()
    written: set[tuple[int, int]] = set()
    for access in program.accesses(row):
        places = [access.offset]
        for size, stride in zip(access.layout.shape, access.layout.strides, strict=True):
            places = [p + i * stride for p in places for i in range(size)]
        touched = {(access.storage, p) for p in places}
        read |= touched if access.is_read else set()
        written |= touched if access.is_written else set()
    return read, written


def needed_pairs(program: Program) -> set[tuple[int, int]]:
    """(later, earlier) rows of which one must wait, by single elements: last writers and readers since."""
    writer: dict[tuple[int, int], int] = {}
    readers: dict[tuple[int, int], set[int]] = {}
    pairs = set()
    for row in range(len(program)):
        read, written = elements(program, row)
        pairs |= {(row, writer[e]) for e in read | written if e in writer}
        pairs |= {(row, r) for e in written for r in readers.get(e, ())}
        for e in read:
            readers.setdefault(e, set()).add(row)
        for e in written:
            writer[e], readers[e] = row, set()
    return {(later, earlier) for later, earlier in pairs if later != earlier}


def conflicting_pairs(program: Program) -> set[tuple[int, int]]:
    """(later, earlier) rows that share an element which one of them writes."""
    touched = [elements(program, row) for row in range(len(program))]
    return {
        (later, earlier)
        for later, (read, written) in enumerate(touched)
        for earlier, (read_before, written_before) in enumerate(touched[:later])
        if written & (read_before | written_before) or read & written_before
    }


def random_program(seed: int, steps: list[int]) -> Program:
    """Forty copies between random rectangles of three tiles and a tensor."""
    draw = random.Random(seed)
    k = Kernel()
    tiles = [k.tile(4, 8), k.tile(4, 8), k.hbm(4, 8), k.tile(4, 2, 4)]
    for _ in range(40):
        height, width, step = draw.choice([1, 2, 4]), draw.choice([1, 2, 4]), draw.choice(steps)
        picked = []
        for tile in draw.sample(tiles, 2):
            shape = tile.layout.shape
            top, left = draw.randint(0, 4 - height), draw.randint(0, shape[-1] - 1)
            right = min(left + width * step, shape[-1])
            middle = [(0, 1)] if len(shape) == 3 else []
            picked.append(part(tile, (top, top + height), *middle, (left, right, step)))
        if picked[0].layout.size == picked[1].layout.size:
            k.load(*picked)
    return k.program


def found_pairs(program: Program) -> set[tuple[int, int]]:
    assert (slots_of(program).engine == DMA).all()
    waits = dependences(program)
    return {(row, earlier) for row in range(len(program)) for earlier, _ in waits.of(row)}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("steps", [[1], [1, 2], [2, 3]], ids=str)
def test_random_programs_wait_for_all_that_single_elements_need(seed: int, steps: list[int]) -> None:
    program = random_program(seed, steps)
    assert needed_pairs(program) <= found_pairs(program)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("step", [1, 2])
def test_rows_that_share_no_element_do_not_wait(seed: int, step: int) -> None:
    program = random_program(seed, [step])
    assert found_pairs(program) <= conflicting_pairs(program)
