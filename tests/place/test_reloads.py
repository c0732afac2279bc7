"""Loads that do not fit are made at each use: counts by hand, of kernels just too large for SBUF."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from nkilab import activate
from nkilab.machine import MACHINES
from nkilab.machine.model import assumed
from nkilab.place import plan
from nkilab.place.compiler_passes import compiled
from nkilab.place.reloads import with_reloads
from nkilab.tiles.tile import View
from nkilab.trace.program import Program
from nkilab.trace.run_notes import Address
from tests.place.handmade import Kernel, part, reshaped
from tests.place.test_compiler_passes import traced

TILE = ((128, 2048), "float32")  # 8 KiB per partition


def added_up(rounds: int, *, again: int = 1, kept: int = 0, computed: int = 0) -> Any:
    """A kernel that loads tiles of 8 KiB and adds them all to one, several rounds of them.

    Args:
        rounds: over all tiles.
        again: additions of a tile one after another.
        kept: of the tiles that other lines load.
        computed: tiles of that size that live as long.
    """
    import nki
    import nki.isa as nisa
    import nki.language as nl

    @nki.jit
    def kernel(*tensors):
        out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
        total = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.sbuf)
        tiles = []
        for tensor in tensors[:kept]:
            tile = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=tensor)
            tiles.append(tile)
        for tensor in tensors[kept:]:
            tile = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=tensor)
            tiles.append(tile)
        for value in range(computed):
            tile = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.sbuf)
            nisa.memset(tile, value)
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
            tiles.append(tile)
        nisa.memset(total, 0.0)
        for _ in range(rounds):
            for tile in tiles:
                for _ in range(again):
                    nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.add)
        nisa.dma_copy(dst=out, src=total)
        return out

    return kernel


def compiled_of(kernel: Any, tiles: int) -> Program:
    return compiled(traced(kernel, *[TILE] * tiles))


def loads_of(program: Program) -> int:
    return program.opcodes()["dma_copy"] - 1


# trn2 has 8 bytes less than 208 KiB per partition: 24 tiles of 8 KiB and the sum fit, 25 do not
@pytest.mark.parametrize(("tiles", "rounds", "loads"), [(24, 2, 24), (25, 1, 25), (25, 2, 50), (30, 3, 90)])
def test_each_use_loads_anew_what_does_not_fit(tiles: int, rounds: int, loads: int) -> None:
    with activate():
        program = compiled_of(added_up(rounds), tiles)
    assert loads_of(program) == loads
    placed = plan(program)
    assert not placed.transfers
    assert placed.peak_sbuf_bytes == (200 if tiles == 24 else 16) << 10


def test_instructions_without_a_tile_first_stand_beside_reloads() -> None:
    # the form of a seed has no tile that it writes
    with activate():
        import nki
        import nki.isa as nisa
        import nki.language as nl

        adds = added_up(2)

        @nki.jit
        def kernel(seeds, *tensors):
            state = nl.ndarray((1, 1), dtype=nl.uint32, buffer=nl.sbuf)
            nisa.dma_copy(dst=state, src=seeds)
            nisa.set_rng_seed(state)
            return adds.function(*tensors)

        program = compiled(traced(kernel, ((1, 1), "uint32"), *[TILE] * 25))
    assert loads_of(program) == 1 + 50


def test_uses_within_a_few_rows_load_once() -> None:
    with activate():
        program = compiled_of(added_up(2, again=3), 25)
    assert loads_of(program) == 50


def test_additions_read_what_is_loaded_right_before_them() -> None:
    with activate():
        program = compiled_of(added_up(2), 25)
    filled: dict[int, int] = {}
    sources = []
    for row in range(len(program)):
        accesses = list(program.accesses(row))
        if program.form_of(row).name == "dma_copy":
            filled[accesses[0].storage] = accesses[1].storage
        elif program.form_of(row).name == "tensor_tensor":
            sources.append(filled[accesses[2].storage])
    # every input in order, twice
    assert len(set(sources[:25])) == 25
    assert sources[:25] == sources[25:]


def test_the_line_moves_whose_loads_cost_the_fewest_bytes() -> None:
    # 6 tiles of one line, 20 of the other and the sum are 216 KiB, without the 6 they are 168
    with activate():
        program = compiled_of(added_up(2, kept=6), 26)
    assert loads_of(program) == 2 * 6 + 20
    (finding,) = plan(program).findings
    assert finding.message.startswith(
        "sbuf does not hold all live tiles: trn2 has 212984 bytes per partition "
        "(208 KiB; the compiler keeps the rest of the chip's 224), so 6 loads are made again; "
    )
    assert "20 x tile: float32[128, 2048], 8192 bytes per partition, test_reloads.py:" in finding.message
    # the first of them is loaded in the first row
    assert "6 x tile: float32[128, 2048], 8192 bytes per partition, test_reloads.py:" in finding.message


def test_loads_of_two_lines_that_are_too_many_at_different_times_both_move() -> None:
    # without the first 25 the rows fit in which these live, and the other ones are as full as before
    with activate():
        import nki
        import nki.isa as nisa
        import nki.language as nl

        @nki.jit
        def kernel(*tensors):
            out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
            total = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.sbuf)
            nisa.memset(total, 0.0)
            tiles = []
            for tensor in tensors[:25]:
                tile = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(dst=tile, src=tensor)
                tiles.append(tile)
            for tile in tiles * 2:
                nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.add)
            tiles = []
            for tensor in tensors[25:]:
                tile = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(dst=tile, src=tensor)
                tiles.append(tile)
            for tile in tiles * 2:
                nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.add)
            nisa.dma_copy(dst=out, src=total)
            return out

        program = compiled_of(kernel, 50)
    assert loads_of(program) == 50 + 50
    assert plan(program).transfers == ()


def test_loads_stay_where_the_rest_does_not_fit_either() -> None:
    # 25 computed tiles and the sum are 208 KiB
    with activate():
        program = traced(added_up(2, computed=25), *[TILE] * 4)
        assert compiled(program) is program


def test_the_stand_alone_compiler_leaves_tiles_that_are_read_in_pieces_to_spilling() -> None:
    with activate():
        import nki
        import nki.isa as nisa
        import nki.language as nl

        @nki.jit
        def kernel(*tensors):
            out = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
            total = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
            tiles = []
            for tensor in tensors:
                tile = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(dst=tile, src=tensor)
                tiles.append(tile)
            nisa.memset(total, 0.0)
            for half in range(2):
                for tile in tiles:
                    part = tile[:, half * 1024 : half * 1024 + 1024]
                    nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
            nisa.dma_copy(dst=out, src=total)
            return out

        program = traced(kernel, *[TILE] * 26)
        assert compiled(program) is program
    # 26 tiles of 8 KiB and 4 KiB of sums, 212 KiB of 208: one leaves at a time, not all 26
    kinds = [t.kind for t in plan(program).transfers]
    assert set(kinds) == {"load_again"}
    assert len(kinds) <= 2


def halves(rounds: int) -> Any:
    """A product-like kernel of Beta 1: what a loop loads whole another one reads in halves."""
    import neuronxcc.nki as nki
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl

    @nki.jit
    def kernel(tensor):
        count = tensor.shape[0]
        out = nl.ndarray((2, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.shared_hbm)
        tiles = nl.ndarray((count, nl.par_dim(128), 2048), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.zeros((2, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
        for t in nl.affine_range(count):
            tiles[t] = nl.load(tensor[t])
        for _ in nl.sequential_range(rounds):
            for half in nl.affine_range(2):
                for t in nl.sequential_range(count):
                    total[half] = nisa.tensor_tensor(
                        total[half], tiles[t, :, nl.ds(half * 1024, 1024)], op=nl.add
                    )
        for half in nl.affine_range(2):
            nl.store(out[half], total[half])
        return out

    return kernel


# trn1 has 176 KiB per partition: 21 tiles of 8 KiB and the sums fit, 22 do not
@pytest.mark.parametrize(("tiles", "loads", "size"), [(21, 21, 2048), (22, 2 * 3 * 22, 1024)])
def test_what_is_read_in_halves_is_loaded_in_halves(tiles: int, loads: int, size: int) -> None:
    with activate(target="trn1"):
        program = compiled(traced(halves(3), ((tiles, 128, 2048), "float32")))
    forms = [program.form_of(row) for row in range(len(program))]
    shapes = [form.layouts[0].shape for form in forms if form.name == "dma_copy"][:-2]
    assert shapes == [(128, size)] * loads


KIB = 1024


def kernel_with(kib: int, rest: int = 0) -> Kernel:
    """A kernel for a chip with so much SBUF per partition, where uses `rest` rows apart share a load."""
    machine = replace(
        MACHINES["trn2"],
        sbuf_bytes_per_partition=assumed(kib * KIB, "a test"),
        spill_rest_rows=assumed(rest, "a test"),
    )
    return Kernel(machine)


def reads(k: Kernel, *tiles: View) -> None:
    """A copy to PSUM of each tile, which needs no room in SBUF."""
    for tile in tiles:
        k.copy(k.psum(*tile.layout.shape), tile)


def rows_of(program: Program) -> list[tuple[Any, ...]]:
    """Per row its name, and the storage, offset and shape of what it reads; of loads also what they fill."""
    rows = []
    for row in range(len(program)):
        dst, src = program.accesses(row)
        name = program.form_of(row).name
        text = (name, src.storage, src.offset, src.layout.shape)
        rows.append((*text, dst.storage, dst.offset, dst.layout.shape) if name == "dma_copy" else text)
    return rows


def test_each_piece_is_loaded_from_its_place_right_before_it_is_read() -> None:
    # 4 KiB of SBUF, a tile [128, 4, 256] of 4 KiB and one of 1 KiB that lives throughout. By hand: each block
    # of 256 columns is loaded before each of its two uses, from 256 elements farther on in each row of x
    k = kernel_with(4)
    x, other, tile = k.hbm(128, 5, 256), k.tile(128, 256), k.tile(128, 4, 256)
    k.copy(other, k.psum(128, 256))
    k.load(tile, part(x, (0, 128), (1, 5), (0, 256)))
    blocks = [part(tile, (0, 128), (i, i + 1), (0, 256)) for i in range(4)]
    reads(k, *blocks, *blocks, other)
    program = with_reloads(k.program, in_pieces=True)
    source, shape = x.storage.number, (128, 1, 256)
    rows = rows_of(program)
    loads, copies = rows[1:-1:2], rows[2:-1:2]
    assert [row[:4] for row in loads] == [
        ("dma_copy", source, 256 + 256 * i, shape) for i in (0, 1, 2, 3) * 2
    ]
    assert [row[4:] for row in loads] == [(copy[1], 0, shape) for copy in copies]
    assert [row[0::3] for row in copies] == [("tensor_copy", shape)] * 8
    assert [row[2] for row in copies] == [0] * 8
    assert len({row[4] for row in loads}) == 8
    assert rows[-1][1] == other.storage.number
    assert plan(program).transfers == ()


def test_pieces_may_differ_in_size_and_keep_the_axes_within() -> None:
    # blocks 0 to 2 and block 3 of [128, 1, 4, 256]: the first axis of a partition that has more than one
    k = kernel_with(4)
    other, tile, x = k.tile(128, 256), k.tile(128, 1, 4, 256), k.hbm(128, 1, 4, 256)
    k.copy(other, k.psum(128, 256))
    k.load(tile, x)
    three, last = (part(tile, (0, 128), (0, 1), blocks, (0, 256)) for blocks in ((0, 3), (3, 4)))
    for _ in range(2):
        for piece in (three, last):
            k.store(k.hbm(*piece.layout.shape), piece)
    reads(k, other)
    program = with_reloads(k.program, in_pieces=True)
    loads = [row for row in rows_of(program) if row[1] == x.storage.number]
    assert [(row[2], row[3], row[5], row[6]) for row in loads] == [
        (0, (128, 1, 3, 256), 0, (128, 1, 3, 256)), (3 * 256, (128, 1, 1, 256), 0, (128, 1, 1, 256)),
    ] * 2  # fmt: skip


@pytest.mark.parametrize("why", ["within an element of the axis", "another shape in HBM", "one piece"])
def test_what_cannot_be_loaded_in_pieces_is_loaded_whole_at_each_use(why: str) -> None:
    # 5 KiB: the tile of 4 KiB and one of 1 KiB fit, 2 KiB more do not, but they are needed at other rows
    k = kernel_with(5)
    small, tile, x = k.tile(128, 512), k.tile(128, 4, 256), k.hbm(128, 4, 256)
    k.load(tile, reshaped(x, 128, 1024) if why == "another shape in HBM" else x)
    if why == "one piece":
        pieces = [tile]
    elif why == "another shape in HBM":
        pieces = [part(tile, (0, 128), (i, i + 2), (0, 256)) for i in (0, 2)]
    else:
        # columns 0 to 127 and 128 to 255 of every block are no interval of the blocks
        pieces = [part(tile, (0, 128), (0, 1), (0, 128)), part(tile, (0, 128), (0, 1), (128, 256))]
    reads(k, pieces[0])
    k.load(small, k.hbm(128, 512))
    reads(k, small)
    reads(k, pieces[-1])
    program = with_reloads(k.program, in_pieces=True)
    loads = [row[2:4] for row in rows_of(program) if row[0] == "dma_copy" and row[1] == x.storage.number]
    shape = (128, 1024) if why == "another shape in HBM" else (128, 4, 256)
    assert loads == [(0, shape)] * 2


@pytest.mark.parametrize(("apart", "loads"), [(2, 1), (3, 2), (4, 2)])
def test_uses_at_most_as_many_rows_apart_as_the_chip_says_share_a_load(apart: int, loads: int) -> None:
    # two rows apart: the first tile is read in rows 3 and 3 + apart; tiles of 1 KiB, room for two of three,
    # of which one is written in between by whom nothing can move
    k = kernel_with(2, rest=2)
    first, second, result = (k.tile(128, 256) for _ in range(3))
    k.load(first, k.hbm(128, 256))
    k.copy(second, k.psum(128, 256))
    k.copy(result, k.psum(128, 256))
    reads(k, second, result)
    for row in range(apart + 1):
        reads(k, first) if row in (0, apart) else k.load(k.hbm(4, 4), k.hbm(4, 4))
    program = with_reloads(k.program, in_pieces=False)
    assert len([row for row in rows_of(program) if row[6:] == ((128, 256),)]) == loads


def loaded_by_lines(k: Kernel, *lines: tuple[int, int, int]) -> list[list[int]]:
    """Tiles by line: how many, of how many KiB, read how often; returns the tensors that they are from.

    A tile of 1 KiB that no load makes lives throughout.
    """
    other = k.tile(128, 256)
    k.copy(other, k.psum(128, 256))
    groups, sources = [], []
    for number, (count, kib, _) in enumerate(lines):
        k.line = 100 * (number + 1)
        tiles, tensors = ([make(128, 256 * kib) for _ in range(count)] for make in (k.tile, k.hbm))
        for tile, tensor in zip(tiles, tensors, strict=True):
            k.load(tile, tensor)
        groups.append(tiles)
        sources.append([tensor.storage.number for tensor in tensors])
    k.line = 0
    for tiles, (_, _, times) in zip(groups, lines, strict=True):
        for _ in range(times):
            for tile in tiles:
                k.store(k.hbm(*tile.layout.shape), tile)
    reads(k, other)
    return sources


@pytest.mark.parametrize(
    ("lines", "moves"),
    [
        # (tiles, KiB, times read), which SBUF would hold but for one KiB more that lives throughout. By hand:
        # 2 loads of 2 KiB become 4, 4 KiB more; 1 load of 3 KiB becomes 2, 3 KiB more
        ([(2, 2, 2), (1, 3, 2)], 1),
        # 3 more loads of 1 KiB; 1 more of 4 KiB: bytes count, not loads
        ([(3, 1, 2), (1, 4, 2)], 0),
        # 4 KiB become 8, 1 KiB becomes 6: what is loaded more counts, not what is loaded in all
        ([(2, 2, 2), (1, 1, 6)], 0),
        # 2 KiB more each: the first line
        ([(2, 1, 2), (1, 2, 2)], 0),
    ],
)
def test_of_lines_that_would_each_do_the_one_moves_that_loads_the_fewest_more_bytes(
    lines: list[tuple[int, int, int]], moves: int
) -> None:
    k = kernel_with(sum(count * kib for count, kib, _ in lines))
    sources = loaded_by_lines(k, *lines)
    program = with_reloads(k.program, in_pieces=False)
    rows = [row[1] for row in rows_of(program) if row[0] == "dma_copy"]
    for number, (tensors, (_, _, times)) in enumerate(zip(sources, lines, strict=True)):
        assert [rows.count(tensor) for tensor in tensors] == [times if number == moves else 1] * len(tensors)


def test_what_fits_to_the_last_byte_stays_as_it_is() -> None:
    k = kernel_with(3)
    loaded_by_lines(k, (2, 1, 2))
    assert with_reloads(k.program, in_pieces=True) is k.program


def test_what_lies_at_an_address_is_not_there_for_others() -> None:
    # as above, but 4 bytes of each partition are the kernel's
    k = kernel_with(3)
    k.program.addresses[k.tile(128, 1).storage.number] = Address(0, 0, 0)
    loaded_by_lines(k, (2, 1, 2))
    program = with_reloads(k.program, in_pieces=True)
    assert len(program) == len(k.program) + 2
    assert "trn2 has 3068 bytes per partition" in program.findings[0].message


def test_loads_that_are_read_once_are_said_to_be_made_late() -> None:
    # 1 KiB is computed; two tiles of 1 KiB more are loaded than two that fit, and each is read once
    k = kernel_with(2)
    loaded_by_lines(k, (2, 1, 1))
    k.program.findings.append("told before")
    program = with_reloads(k.program, in_pieces=False)
    assert len(program) == len(k.program)
    before, finding = program.findings
    assert before == "told before"
    assert (finding.rule, finding.where) == ("spill", "kernel.py:100")
    # the second load is the first row at which 3 KiB are live
    assert finding.message == (
        "sbuf does not hold all live tiles: trn2 has 2048 bytes per partition "
        "(2 KiB; the compiler keeps the rest of the chip's 224), so loads are made late; the "
        "largest live here are (unnamed): float32[128, 256], 1024 bytes per partition, kernel.py:1; "
        "2 x (unnamed): float32[128, 256], 1024 bytes per partition, kernel.py:2"
    )


def test_a_tile_of_one_element_per_partition_moves_whole() -> None:
    machine = replace(MACHINES["trn2"], sbuf_bytes_per_partition=assumed(8, "a test"))
    k = Kernel(replace(machine, spill_rest_rows=assumed(0, "a test")))
    result, first, second = (k.tile(128, 1) for _ in range(3))
    k.copy(result, k.psum(128, 1))
    k.line = 7
    for tile in (first, second):
        k.load(tile, k.hbm(128, 1))
    reads(k, first, second, first, second, result)
    program = with_reloads(k.program, in_pieces=True)
    assert len(program) == len(k.program) + 2
    assert plan(program).transfers == ()
