"""Placement: addresses, rotation, spills, what does not fit. Everything counted by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from nkilab.errors import LimitError
from nkilab.machine import MACHINES, Machine
from nkilab.machine.model import assumed
from nkilab.place import Plan, plan
from nkilab.tiles.tile import View, layout
from nkilab.trace.program import MIDDLE_END, STANDALONE
from nkilab.trace.run_notes import Address

from .handmade import Kernel, part

# one tile [128, 512] of float32 takes 2048 bytes per partition, 262144 in all
TILE_BYTES = 2048


def machine_with(tiles: int) -> Machine:
    """trn2 with room for a few tiles [128, 512] in SBUF."""
    return replace(MACHINES["trn2"], sbuf_bytes_per_partition=assumed(tiles * TILE_BYTES, "a test"))


def reuses(placed: Plan, row: int) -> list[int]:
    return [earlier for earlier, kind in placed.waits.of(row) if kind == "reuse"]


def loop(k: Kernel, trips: int) -> None:
    """Load a fresh tile and store it, some times: rows 2i and 2i + 1."""
    source, target = k.hbm(128 * trips, 512), k.hbm(128 * trips, 512)
    for i in range(trips):
        tile = k.tile(128, 512)
        k.load(tile, part(source, (i * 128, i * 128 + 128), (0, 512)))
        k.store(part(target, (i * 128, i * 128 + 128), (0, 512)), tile)


def test_tiles_of_a_loop_rotate_through_two_buffers() -> None:
    k = Kernel(machine_with(2))
    loop(k, 4)
    placed = plan(k.program)
    assert placed.sbuf.address.tolist() == [0, 2048, 0, 2048]
    # the third load takes the bytes of the first tile, whose last access is row 1
    assert [reuses(placed, row) for row in range(8)] == [[], [], [], [], [1], [], [3], []]


def test_tiles_of_a_loop_rotate_through_all_free_space() -> None:
    k = Kernel(machine_with(5))
    resident = k.tile(128, 512)
    k.fill(resident)
    loop(k, 6)
    k.copy(k.tile(128, 512), resident)
    placed = plan(k.program)
    assert placed.sbuf.address[:7].tolist() == [0, 2048, 4096, 6144, 8192, 2048, 4096]
    assert placed.peak_sbuf_bytes == 2 * TILE_BYTES


def test_every_first_write_of_a_tile_waits_for_the_tile_before() -> None:
    k = Kernel(machine_with(1))
    source, target = k.hbm(128, 512), k.hbm(128, 512)
    first, second = k.tile(128, 512), k.tile(128, 512)
    k.load(first, source)
    k.store(target, first)
    for half in ((0, 256), (256, 512)):
        k.load(part(second, (0, 128), half), part(source, (0, 128), half))
    k.store(target, second)
    placed = plan(k.program)
    assert [reuses(placed, row) for row in range(5)] == [[], [], [1], [1], []]


def test_first_writes_that_alternate_wait_for_the_tile_before_on_their_own_bytes() -> None:
    # c and d are stored in rows 1 and 3; a takes the place of c and b that of d, a half of each in turn
    k = Kernel(machine_with(2))
    source, target = k.hbm(128, 512), k.hbm(256, 512)
    a, b, c, d = (k.tile(128, 512) for _ in range(4))
    for number, tile in enumerate((c, d)):
        k.load(tile, source)
        k.store(part(target, (number * 128, number * 128 + 128), (0, 512)), tile)
    for half in ((0, 256), (256, 512)):
        for tile in (b, a):
            k.load(part(tile, (0, 128), half), part(source, (0, 128), half))
    for tile in (a, b):
        k.store(k.hbm(128, 512), tile)
    placed = plan(k.program)
    assert placed.sbuf.address.tolist() == [0, 2048, 0, 2048]
    # b, which comes first, takes the place of c
    assert [reuses(placed, row) for row in range(4, 8)] == [[1], [3], [1], [3]]


def test_a_tile_that_runs_over_one_at_an_address_lies_on_both_sides_of_it() -> None:
    # bank 1 of PSUM is given away; of two banks the first free ones are 0 and 2, then comes 3
    k = Kernel()
    fixed, pair, single = k.psum(128, 512), k.psum(128, 1024), k.psum(128, 512)
    k.program.addresses[fixed.storage.number] = Address(0, 0, 2048)
    for tile in (fixed, pair, single, pair, single, fixed):
        k.fill(tile)
    placed = plan(k.program)
    by_tile = dict(zip(placed.psum.storage.tolist(), zip(placed.psum.address.tolist(),
                       placed.psum.pieces.tolist(), strict=True), strict=True))  # fmt: skip
    assert by_tile == {
        fixed.storage.number: (2048, 1), pair.storage.number: (0, 2), single.storage.number: (3 * 2048, 1),
    }  # fmt: skip
    assert placed.peak_psum_banks == 4


def test_the_blocks_of_a_block_tensor_are_placed_by_themselves() -> None:
    # four blocks of 2048 bytes, each dead before the next begins: two buffers do
    k = Kernel(machine_with(2))
    target, blocks = k.hbm(128, 2048), k.tile(128, 4, 512)
    for i in range(4):
        block = part(blocks, (0, 128), (i, i + 1), (0, 512))
        k.fill(block)
        k.store(part(target, (0, 128), (i * 512, i * 512 + 512)), block)
    placed = plan(k.program)
    assert placed.sbuf.offset.tolist() == [0, 2048, 4096, 6144]
    assert placed.sbuf.address.tolist() == [0, 2048, 0, 2048]
    assert placed.transfers == ()


def test_a_psum_tile_takes_whole_banks_and_rotates() -> None:
    k = Kernel()
    a, b, out = k.tile(128, 128), k.tile(128, 16), k.tile(128, 16)
    k.fill(a)
    k.fill(b)
    for _ in range(9):
        result = k.psum(128, 16)
        k.matmul(result, a, b)
        k.copy(out, result)
    placed = plan(k.program)
    assert placed.psum.address.tolist() == [bank * 2048 for bank in (*range(8), 0)]
    assert placed.peak_psum_banks == 1
    # the ninth matmul is row 18; the copy out of the first bank is row 3
    assert reuses(placed, 18) == [3]


def test_parts_of_one_bank_stay_in_one_bank() -> None:
    k = Kernel()
    a, b, result = k.tile(128, 128), k.tile(128, 1, 128), k.psum(128, 4, 128)
    k.fill(a)
    k.fill(b)
    for i in range(4):
        k.matmul(part(result, (0, 128), (i, i + 1), (0, 128)), a, b)
    k.copy(k.tile(128, 4, 128), result)
    placed = plan(k.program)
    assert placed.psum.size.tolist() == [2048]


def test_a_ninth_live_bank_is_told_of_at_its_line_and_timed() -> None:
    k = Kernel()
    a, b = k.tile(128, 128), k.tile(128, 512)
    k.fill(a)
    k.fill(b)
    results = [k.psum(128, 512, name=f"result{i}") for i in range(9)]
    for result in results:
        k.matmul(result, a, b)
    for result in results:
        k.copy(b, result)
    placed = plan(k.program)
    (finding,) = placed.findings
    assert (finding.rule, finding.where) == ("psum-full", "kernel.py:11")
    assert finding.message == (
        "nc_matmul: psum is full: 1 bank needed, 0 free; trn2 has 8 (psum banks); it is timed as if there "
        "were enough; the largest live here are "
        + "; ".join(f"result{i}: float32[128, 512], 2048 bytes per partition, kernel.py:3" for i in range(5))
    )
    assert finding.fix == "copy finished tiles to sbuf before the next one is computed"
    assert placed.peak_psum_banks == 9


def test_a_tile_of_all_eight_banks_beside_another_one_is_told_of_and_timed() -> None:
    k = Kernel()
    single, all_banks = k.psum(128, 512, name="single"), k.psum(128, 4096, name="all_banks")
    for tile in (single, all_banks, single):
        k.fill(tile)
    (finding,) = plan(k.program).findings
    assert finding.message.startswith("memset: psum is full: 8 banks needed, 7 free; trn2 has 8 (psum banks)")


def test_operands_of_one_row_that_need_more_than_eight_banks_are_refused() -> None:
    k = Kernel()
    a, b = k.psum(128, 2560, name="a"), k.psum(128, 2560, name="b")
    k.fill(a)
    k.copy(b, a)
    with pytest.raises(LimitError, match="psum is full: 5 banks needed, 3 free; trn2 has 8"):
        plan(k.program)


def test_operands_that_do_not_fit_together_are_refused() -> None:
    # two tiles of 120000 bytes per partition; trn2 has 212984
    k = Kernel()
    a, b = k.tile(128, 30000, name="a"), k.tile(128, 30000, name="b")
    k.fill(a)
    k.copy(b, a)
    with pytest.raises(LimitError) as refused:
        plan(k.program)
    assert str(refused.value) == (
        "kernel.py:2: tensor_copy: its operands lie in tiles of 240000 bytes per partition; trn2 allows "
        "212984 bytes of sbuf (208 KiB; the compiler keeps the rest of the chip's 224)\n"
        "  dst = float32[128, 30000] in sbuf\n"
        "  src = float32[128, 30000] in sbuf\n"
        "  dst lies in b: float32[128, 30000], 120000 bytes per partition, kernel.py:1\n"
        "  src lies in a: float32[128, 30000], 120000 bytes per partition, kernel.py:1\n"
        "  hint: split the tile along a free axis into tiles of their own\n"
        "  source: architecture guides, SBUF"
    )


def three_tiles(k: Kernel, bring: Callable[[Any], None] | None = None) -> tuple[list, list]:
    """Three tiles loaded, or brought otherwise, in rows 0, 1 and 2, and a place in HBM for each."""
    tiles = [k.tile(128, 512, name=name) for name in "abc"]
    for tile in tiles:
        (bring or (lambda tile: k.load(tile, k.hbm(128, 512))))(tile)
    return tiles, [k.hbm(128, 512) for _ in tiles]


def test_the_tile_used_farthest_ahead_is_spilled_once_and_reloaded_once() -> None:
    # row 2 finds no room: a is used in row 3, b in row 4, so b leaves; row 4 brings it back to where a was
    k = Kernel(machine_with(2))
    (a, b, c), (x, y, z) = three_tiles(k, lambda tile: k.copy(tile, k.psum(128, 512)))
    k.store(x, a)
    k.store(y, b)
    k.store(z, c)
    placed = plan(k.program)
    assert [(t.kind, t.storage, t.before_row, t.total_bytes) for t in placed.transfers] == [
        ("spill_save", b.storage.number, 2, 262144),
        ("spill_reload", b.storage.number, 4, 262144),
    ]
    assert (placed.spill_save_bytes, placed.spill_reload_bytes) == (262144, 262144)
    assert placed.sbuf.address.tolist() == [0, 2048, 2048, 0]
    # node 6 is the save, node 7 the reload
    assert placed.waits.of(6) == [(1, "spill")]
    assert placed.waits.of(2) == [(6, "reuse")]
    assert placed.waits.of(7) == [(0, "reuse"), (3, "reuse"), (6, "spill")]
    assert placed.waits.of(4) == [(1, "flow"), (7, "spill")]


def test_a_tile_that_was_loaded_is_loaded_again_and_not_saved() -> None:
    # as above, but HBM holds b where it came from: NKIBench's product saves nothing that it has no room for
    k = Kernel(machine_with(2))
    (a, b, c), (x, y, z) = three_tiles(k)
    for target, tile in ((x, a), (y, b), (z, c)):
        k.store(target, tile)
    placed = plan(k.program)
    assert [(t.kind, t.storage, t.before_row, t.total_bytes) for t in placed.transfers] == [
        ("load_again", b.storage.number, 4, 262144)
    ]
    assert (placed.spill_save_bytes, placed.spill_reload_bytes, placed.loaded_again_bytes) == (0, 0, 262144)
    # node 6 is the transfer; row 1 is the load of b, row 3 the last use of a
    assert placed.waits.of(6) == [(0, "reuse"), (1, "spill"), (3, "reuse")]


def test_operands_of_a_row_that_fill_sbuf_to_the_last_byte_lie_there() -> None:
    # row 3 needs a and b, all there is: c leaves, and comes back in row 4
    k = Kernel(machine_with(2))
    (a, b, c), (_, _, z) = three_tiles(k, lambda tile: k.copy(tile, k.psum(128, 512)))
    k.copy(a, b)
    k.store(z, c)
    k.store(z, a)
    moves = [(t.kind, t.storage, t.before_row) for t in plan(k.program).transfers]
    assert moves[-2:] == [("spill_save", c.storage.number, 3), ("spill_reload", c.storage.number, 4)]


def test_what_came_from_hbm_that_the_kernel_writes_is_saved() -> None:
    k = Kernel(machine_with(2))
    source = k.hbm(128, 512)
    (a, b, c), (x, y, _) = three_tiles(k, lambda tile: k.load(tile, source))
    for target, tile in ((x, a), (y, b), (source, c)):
        k.store(target, tile)
    assert [t.kind for t in plan(k.program).transfers] == ["spill_save", "spill_reload"]


def cyclic(tiles: int, rounds: int, room: int) -> tuple[Kernel, list]:
    """Tiles loaded one after another, stored in the same order round after round, with room for some."""
    k = Kernel(machine_with(room))
    tiles_of_k = [k.tile(128, 512) for _ in range(tiles)]
    for tile in tiles_of_k:
        k.copy(tile, k.psum(128, 512))
    for _ in range(rounds):
        for tile in tiles_of_k:
            k.store(k.hbm(128, 512), tile)
    return k, tiles_of_k


def test_what_was_used_a_moment_ago_stays_where_others_rest() -> None:
    # 60 tiles, room for 40, 16 rows of rest: row 40 loads tile 40; tiles 0 to 24 were loaded 16 rows ago or
    # more and are used in rows 60 to 84; of them 24 is used last
    k, tiles_of_k = cyclic(60, 2, 40)
    transfers = plan(k.program).transfers
    assert (transfers[0].storage - tiles_of_k[0].storage.number, transfers[0].before_row) == (24, 40)


def test_where_all_that_rest_are_used_soon_the_one_used_farthest_ahead_leaves() -> None:
    # 21 tiles, room for 20: row 20 loads tile 20; tiles 0 to 4 rest and are used in rows 21 to 25
    k, tiles_of_k = cyclic(21, 2, 20)
    transfers = plan(k.program).transfers
    assert (transfers[0].storage - tiles_of_k[0].storage.number, transfers[0].before_row) == (19, 20)


def test_the_finding_of_a_spill_names_the_largest_live_tiles_with_their_lines() -> None:
    k = Kernel(machine_with(2))
    (a, b, c), (x, y, z) = three_tiles(k)
    k.store(x, a)
    k.store(y, b)
    k.store(z, c)
    (finding,) = plan(k.program).findings
    assert finding.to_dict() == {
        "rule": "spill",
        "message": "sbuf does not hold all live tiles: trn2 has 4096 bytes per partition "
        "(4 KiB; the compiler keeps the rest of the chip's 224); the largest live here are a: "
        "float32[128, 512], 2048 bytes per partition, kernel.py:1; "
        "b: float32[128, 512], 2048 bytes per partition, kernel.py:1",
        "where": "kernel.py:3",
        "other_where": "",
        "fix": "make the tiles smaller, or use one up before the next is loaded",
    }


def test_the_finding_of_a_spill_names_the_largest_first_and_equal_ones_once() -> None:
    # a half tile and two whole ones, all copied from PSUM, then one for which there is no room
    k = Kernel(machine_with(3))
    tiles = [k.tile(128, 256, name="half"), *(k.tile(128, 512, name="whole") for _ in range(2))]
    last = k.tile(128, 512, name="last")
    for tile in (*tiles, last):
        k.copy(tile, k.psum(128, tile.layout.shape[1]))
    for tile in (*tiles, last):
        k.store(k.hbm(*tile.layout.shape), tile)
    (finding,) = plan(k.program).findings
    assert finding.where == "kernel.py:4"
    assert finding.message == (
        "sbuf does not hold all live tiles: trn2 has 6144 bytes per partition "
        "(6 KiB; the compiler keeps the rest of the chip's 224); the largest live here are "
        "2 x whole: float32[128, 512], 2048 bytes per partition, kernel.py:1; "
        "half: float32[128, 256], 1024 bytes per partition, kernel.py:1"
    )


def test_the_finding_of_a_spill_names_five_tiles() -> None:
    k = Kernel(machine_with(6))
    tiles = [k.tile(128, 512, name=name) for name in "abcdefg"]
    for tile in tiles:
        k.copy(tile, k.psum(128, 512))
    for tile in tiles:
        k.store(k.hbm(128, 512), tile)
    (finding,) = plan(k.program).findings
    named = finding.message.split("live here are ")[1].split("; ")
    assert [text[0] for text in named] == list("abcde")


def test_of_several_reads_of_one_engine_the_next_tile_waits_for_the_last() -> None:
    # rows 1 to 3 read the first tile on ScalarE, rows 4 and 5 store it; row 6 takes its place
    k = Kernel(machine_with(1))
    first, second = k.tile(128, 512), k.tile(128, 512)
    k.copy(first, k.psum(128, 512))
    for _ in range(3):
        k.copy(k.psum(128, 512), first, "scalar")
    for _ in range(2):
        k.store(k.hbm(128, 512), first)
    k.copy(second, k.psum(128, 512))
    placed = plan(k.program)
    assert reuses(placed, 6) == [3, 4, 5]


def test_a_tile_that_is_read_across_its_axes_is_placed_as_a_whole() -> None:
    # [128, 4, 6] looked at as [128, 3, 8]: an interval of it is all that is known
    k = Kernel()
    tile = k.tile(128, 4, 6)
    for block in range(4):
        k.fill(part(tile, (0, 128), (block, block + 1), (0, 6)))
    known = layout((128, 1, 4), (24, 8, 2), tile.layout.dtype, "sbuf", 0, 0)
    k.copy(k.tile(128, 1, 4), View(tile.storage, 8, known))
    placed = plan(k.program)
    assert placed.sbuf.size.tolist() == [96, 16]
    assert (placed.sbuf.first_row.tolist(), placed.sbuf.last_row.tolist()) == ([0, 4], [4, 4])


def test_a_tile_that_is_overwritten_before_it_is_read_is_not_saved() -> None:
    k = Kernel(machine_with(2))
    (a, b, c), (x, y, z) = three_tiles(k)
    k.store(x, a)
    k.load(b, k.hbm(128, 512))
    k.store(y, b)
    k.store(z, c)
    placed = plan(k.program)
    assert placed.transfers == ()
    assert len(placed.findings) == 1


def test_a_tile_that_comes_back_to_be_overwritten_waits_for_whom_it_displaces() -> None:
    # b leaves for c in row 2 and comes back in row 4, where a was until its store in row 3
    k = Kernel(machine_with(2))
    (a, b, c), (x, y, z) = three_tiles(k)
    k.store(x, a)
    k.load(b, k.hbm(128, 512))
    k.store(y, b)
    k.store(z, c)
    placed = plan(k.program)
    assert placed.sbuf.address.tolist() == [0, 2048, 2048, 0]
    assert placed.waits.of(4) == [(0, "reuse"), (1, "output"), (3, "reuse")]


def test_a_tile_that_did_not_change_is_saved_once() -> None:
    # rows  0 a  1 b  2 c            full; next uses a 5, b 3, c 4: a leaves (saved)
    #       3 b  4 c  5 a            row 5: b is used in 6, c in 7: c leaves (saved), a comes back
    #       6 b  7 c  8 a            row 6 is the last of b; row 7 brings c back; row 8 finds a there
    #       9 d  10 c  11 a  12 d    row 9: c is used in 10, a in 11: a leaves, unchanged; 11 brings it back
    k = Kernel(machine_with(2))
    (a, b, c), (x, y, z) = three_tiles(k, lambda tile: k.copy(tile, k.psum(128, 512)))
    for target, tile in ((y, b), (z, c), (x, a), (y, b), (z, c), (x, a)):
        k.store(target, tile)
    d = k.tile(128, 512)
    k.load(d, k.hbm(128, 512))
    for target, tile in ((z, c), (x, a), (y, d)):
        k.store(target, tile)
    placed = plan(k.program)
    moves = [
        (t.kind.removeprefix("spill_"), t.storage - a.storage.number, t.before_row) for t in placed.transfers
    ]
    assert moves == [("save", 0, 2), ("save", 2, 5), ("reload", 0, 5), ("reload", 2, 7), ("reload", 0, 11)]


def test_a_zeroed_block_tensor_larger_than_sbuf_is_used_block_by_block() -> None:
    # four blocks of 2048 bytes, zeroed at once, then each summed into and stored: two buffers do
    k = Kernel(machine_with(2))
    target, blocks = k.hbm(128, 2048), k.tile(128, 4, 512)
    k.fill(blocks)
    for i in range(4):
        block = part(blocks, (0, 128), (i, i + 1), (0, 512))
        k.copy(block, block)
        k.store(part(target, (0, 128), (i * 512, i * 512 + 512)), block)
    placed = plan(k.program)
    assert placed.sbuf.address.tolist() == [0, 2048, 0, 2048]
    assert placed.transfers == ()
    assert placed.peak_sbuf_bytes == TILE_BYTES


def test_a_tile_that_is_only_filled_must_fit() -> None:
    k = Kernel(machine_with(2))
    k.fill(k.tile(128, 2048))
    with pytest.raises(
        LimitError, match="its operands lie in tiles of 8192 bytes per partition; trn2 allows 4096"
    ):
        plan(k.program)


def test_a_program_without_tiles_is_planned() -> None:
    k = Kernel()
    k.load(k.hbm(4, 4), k.hbm(4, 4))
    placed = plan(k.program)
    assert placed.peak_sbuf_bytes == placed.peak_psum_banks == 0
    assert placed.address_of(0) is None


def test_an_empty_program_is_planned() -> None:
    placed = plan(Kernel().program)
    assert (placed.rows, placed.transfers, placed.findings) == (0, (), ())


@pytest.mark.parametrize(
    ("compiler", "shared", "addresses"),
    [
        (MIDDLE_END, 512, [0, 512, 1024, 1536]),
        (MIDDLE_END, 2048, [0, 2048, 4096, 6144]),
        (STANDALONE, 512, [0, 2048, 4096, 6144]),
    ],
)
def test_under_beta_1_small_tiles_share_a_bank_of_psum(
    compiler: str, shared: int, addresses: list[int]
) -> None:
    k = Kernel(MACHINES["trn2"].with_constants({"psum_shared_bytes": shared}, "a test"))
    k.program.compiler = compiler
    results = [k.psum(128, 100) for _ in range(4)]
    for result in results:
        k.fill(result)
    for result in results:
        k.copy(k.tile(128, 100), result)
    placed = plan(k.program)
    assert placed.psum.address.tolist() == addresses
    assert placed.peak_psum_banks == addresses[-1] // 2048 + 1
