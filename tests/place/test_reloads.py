"""Loads that do not fit are made at each use: counts by hand, of kernels just too large for SBUF."""

from __future__ import annotations

from typing import Any

import pytest

from nkilab import activate
from nkilab.place import plan
from nkilab.place.compiler_passes import compiled
from nkilab.trace.program import Program
from tests.place.test_compiled import traced

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
            held = nl.ndarray((1, 1), dtype=nl.uint32, buffer=nl.sbuf)
            nisa.dma_copy(dst=held, src=seeds)
            nisa.set_rng_seed(held)
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
    (found,) = plan(program).findings
    assert found.message.startswith(
        "sbuf does not hold all live tiles: trn2 has 212984 bytes per partition, so 6 loads are made again; "
    )
    assert "20 x tile: float32[128, 2048], 8192 bytes per partition, test_reloads.py:" in found.message
    # the first of them is loaded in the first row
    assert "6 x tile: float32[128, 2048], 8192 bytes per partition, test_reloads.py:" in found.message


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
    found = [form.layouts[0].shape for form in forms if form.name == "dma_copy"][:-2]
    assert found == [(128, size)] * loads
