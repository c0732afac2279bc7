"""Tiles at addresses: where they lie and who waits. The expected waits are read off the kernels by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nkilab import activate, estimate, spec
from nkilab.files.neff import packed, unpacked
from nkilab.place import DEPENDENCES, dependences, plan
from nkilab.place.compiler_passes import compiled
from nkilab.trace.program import Program
from nkilab.trace.run_notes import Address
from tests.place.handmade import Kernel, columns, rows
from tests.place.test_compiler_passes import traced


@pytest.fixture(autouse=True)
def names_are_served() -> Iterator[None]:
    with activate():
        yield


BLOCKS = ((4, 128, 512), "float32")  # 2 KiB per partition and block


def streamed(addresses: list[int]) -> Any:
    """A kernel that loads and stores blocks, each through a tile at its address: rows 2 i and 2 i + 1."""
    import nki
    import nki.isa as nisa
    import nki.language as nl

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i, byte in enumerate(addresses):
            tile = nl.ndarray((128, 512), x.dtype, buffer=nl.sbuf, address=(0, byte))
            nisa.dma_copy(tile, x[i])
            nisa.dma_copy(out[i], tile)
        return out

    return kernel


def program_of(kernel: Any, *arguments: tuple[tuple[int, ...], str], data: tuple[Any, ...] = ()) -> Program:
    return compiled(traced(kernel, *arguments, data=data))


def overlaps(program: Program) -> dict[int, list[int]]:
    """Per row the rows that it waits for because of addresses."""
    waits = plan(program).waits
    waits_of_rows = {
        row: [n for n, kind in waits.of(row) if kind == "direct overlap"] for row in range(len(program))
    }
    return {row: earlier for row, earlier in waits_of_rows.items() if earlier}


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        # one place: a load waits for the load that it overwrites, and for the store that reads that
        ([0, 0, 0], {2: [0, 1], 4: [2, 3]}),
        ([0, 2048, 0], {4: [0, 1]}),
        ([0, 2048, 4096], {}),
        # half of the tile before it, whose other half stays: the store of all waits for what is left, too
        ([0, 1024, 2048], {2: [0, 1], 3: [0], 4: [2, 3], 5: [2]}),
    ],
)
def test_a_tile_waits_for_those_that_lay_on_its_bytes(
    addresses: list[int], expected: dict[int, list[int]]
) -> None:
    with activate():
        program = program_of(streamed(addresses), BLOCKS)
    assert overlaps(program) == expected


def test_tiles_overlap_where_they_share_bytes_of_a_partition() -> None:
    # two tiles of 64 partitions above each other, both within one of 128, which is written half by half;
    # a column of that one, at byte 2044, lies in the lower tile as its last
    k = Kernel()
    upper, lower, both = k.tile(64, 512), k.tile(64, 512), k.tile(128, 512)
    for tile, partition in ((upper, 0), (lower, 64), (both, 0)):
        k.program.addresses[tile.storage.number] = Address(0, partition, 4096)
    for tile in (upper, lower, rows(both, 64, 128), rows(both, 0, 64), columns(lower, 511, 512)):
        k.fill(tile)
    assert overlaps(k.program) == {2: [1], 3: [0], 4: [2]}


def test_nothing_waits_for_addresses_without_their_row_of_the_table() -> None:
    table = {name: row for name, row in DEPENDENCES.items() if name != "direct overlap"}
    with activate():
        program = program_of(streamed([0, 0, 0]), BLOCKS)
    assert dependences(program).of(2) == [(0, "direct overlap"), (1, "direct overlap")]
    assert dependences(program, table).of(2) == []


def test_one_place_makes_transfers_wait_and_two_do_not() -> None:
    def latency(count: int) -> float:
        return estimate(streamed([2048 * (i % count) for i in range(4)]), spec(*BLOCKS)).latency_us

    with activate():
        events = estimate(streamed([0] * 4), spec(*BLOCKS)).timeline
        one, two, four = latency(1), latency(2), latency(4)
    for load in (2, 4, 6):
        start = events.start_ns[events.row == load].min()
        assert start >= events.end_ns[events.row == load - 1].max()
    assert four <= two < one


def test_the_plan_has_tiles_where_the_kernel_says_and_others_beside_them() -> None:
    import nki
    import nki.isa as nisa
    import nki.language as nl

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        low = nl.ndarray((128, 512), x.dtype, buffer=nl.sbuf, address=(0, 1024))
        free = nl.ndarray((128, 512), x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(low, x[0])
        nisa.tensor_copy(free, low)
        nisa.dma_copy(out[0], free)
        return out

    with activate():
        program = program_of(nki.jit(kernel), BLOCKS)
    planned = plan(program)
    low, free = program.storage_column[[0, 2]].tolist()
    assert planned.address_of(low) == 1024
    # what is free begins at byte 0, ends at 1024, and goes on at 3072: the tile has half of it on each side
    assert planned.address_of(free) == 0
    assert planned.sbuf.pieces[planned.sbuf.storage == free].tolist() == [2]
    assert planned.peak_sbuf_bytes == 4096


def test_tiles_that_do_not_fit_beside_those_at_addresses_are_told() -> None:
    import nki
    import nki.isa as nisa
    import nki.language as nl

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in range(4):
            tile = nl.ndarray((128, 24576), x.dtype, buffer=nl.sbuf, address=(0, 98304 * (i % 2)))
            free = nl.ndarray((128, 24576), x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(tile, x[i])
            nisa.tensor_copy(free, tile)
            nisa.dma_copy(out[i], free)
        return out

    with activate():
        program = program_of(nki.jit(kernel), ((4, 128, 24576), "float32"))
    (finding,) = plan(program).findings
    assert finding.rule == "mixed-addresses"
    assert "196608 of 212984 bytes per partition of sbuf" in finding.message
    # as if they lay apart, from the first byte on
    placed = plan(program).sbuf
    others = [s for s in placed.storage.tolist() if s not in program.addresses]
    assert placed.address[placed.storage == others[0]].tolist() == [0]


def test_loads_into_tiles_at_addresses_stay() -> None:
    import nki
    import nki.isa as nisa
    import nki.language as nl

    def kernel(x, is_placed=False):
        out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
        total = nl.ndarray((128, 512), x.dtype, buffer=nl.sbuf, **({"address": (0, 0)} if is_placed else {}))
        nisa.memset(total, 0.0)
        for i in range(4):
            at = {"address": (0, 2048 * (1 + i))} if is_placed else {}
            tile = nl.ndarray((128, 512), x.dtype, buffer=nl.sbuf, **at)
            nisa.dma_copy(tile, x[0])
            nisa.tensor_tensor(total, total, tile, nl.add)
        nisa.dma_copy(out, total)
        return out

    with activate():
        jitted = nki.jit(kernel)
        free, placed = (program_of(jitted, BLOCKS, data=(data,)) for data in (False, True))
    # one load and the store; four loads and the store
    assert free.opcodes()["dma_copy"] == 2
    assert placed.opcodes()["dma_copy"] == 5


def test_banks_of_psum_that_take_turns_make_products_wait() -> None:
    import nki
    import nki.isa as nisa
    import nki.language as nl

    def kernel(a, banks):
        out = nl.ndarray((8, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        tile = nl.ndarray((128, 512), a.dtype, buffer=nl.sbuf, address=(0, 0))
        nisa.dma_copy(tile, a)
        for i in range(8):
            product = nl.ndarray((128, 512), nl.float32, buffer=nl.psum, address=(0, 2048 * (i % banks)))
            nisa.nc_matmul(product, tile[:, 0:128], tile)
            result = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf, address=(0, 1024 + 2048 * i))
            nisa.tensor_copy(result, product, engine=nisa.vector_engine)
            nisa.dma_copy(out[i], result)
        return out

    with activate():
        jitted = nki.jit(kernel)
        programs = {banks: program_of(jitted, ((128, 512), "bfloat16"), data=(banks,)) for banks in (1, 2, 8)}
    in_one_bank = programs[1]
    products = [row for row in range(len(in_one_bank)) if in_one_bank.form_of(row).accumulates]
    assert len(products) == 8
    assert list(overlaps(in_one_bank)) == products[1:]
    # the product, and the copy out of the bank that it takes
    assert overlaps(programs[2])[products[2]] == [products[0], products[0] + 1]
    assert overlaps(programs[8]) == {}


def test_tiles_of_beta_1_wait_for_what_the_same_call_made_before() -> None:
    import neuronxcc.nki as nki
    import neuronxcc.nki.compiler as ncc
    import neuronxcc.nki.language as nl

    def at_zero(idx, pdim_size, fdim_size):
        return 0, 0

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(4):
            tile = nl.ndarray(
                (nl.par_dim(128), 512),
                dtype=x.dtype,
                buffer=ncc.sbuf.alloc(at_zero),
            )
            tile[...] = nl.load(x[i])
            nl.store(out[i], tile)
        return out

    with activate():
        program = program_of(nki.jit(kernel), BLOCKS)
    waits = plan(program).waits
    assert [waits.of(row) for row in (2, 4)] == [[(0, "reuse"), (1, "reuse")], [(2, "reuse"), (3, "reuse")]]


def test_different_tensors_of_beta_1_do_not_wait_for_each_other() -> None:
    import neuronxcc.nki as nki
    import neuronxcc.nki.compiler as ncc
    import neuronxcc.nki.language as nl

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        one = nl.ndarray((nl.par_dim(128), 512), dtype=x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        one[...] = nl.load(x[0])
        nl.store(out[0], one)
        two = nl.ndarray((nl.par_dim(128), 512), dtype=x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        two[...] = nl.load(x[1])
        nl.store(out[1], two)
        return out

    with activate():
        program = program_of(nki.jit(kernel), BLOCKS)
    assert plan(program).waits.of(2) == []


def test_values_and_addresses_survive_a_file() -> None:
    with activate():
        program = program_of(streamed([0, 1024, 0, 1024]), BLOCKS)
    again = unpacked(packed(program), "kernel.neff")
    assert again.addresses == program.addresses
    assert np.array_equal(plan(again).waits.node, plan(program).waits.node)
