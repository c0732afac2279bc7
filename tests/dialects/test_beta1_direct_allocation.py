"""Tiles of Beta 1 at addresses of the kernel's: rotation, shared bytes, what may not stand beside them."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from tests.dialects.spellings import marked_line, ncc1, nisa1, nki1, nl1, ramp

from nkilab.errors import LimitError, NkilabError, NkilabWarning, RuleError, UseError

nki, nl, nisa, ncc = nki1, nl1, nisa1, ncc1
ROW = 512 * 4


@nki.jit
def blocks_in_turn(x, tiles):
    """Writes all blocks, then reads all: what survives shows which blocks share a tile."""
    out = nl.ndarray((4, 8, 6), x.dtype, buffer=nl.shared_hbm)
    blocks = nl.ndarray(
        (4, nl.par_dim(8), 6), x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=64, num_free_tiles=tiles)
    )
    for i in nl.static_range(4):
        blocks[i] = nl.load(x[i])
    for i in nl.static_range(4):
        nl.store(out[i], blocks[i, :, :])
    return out


# blocks 0 and 2, 1 and 3 share a tile of two; all share one; with four each has its own
@pytest.mark.parametrize(("tiles", "seen"), [((2,), [2, 3, 2, 3]), ((), [3, 3, 3, 3]), ((4,), [0, 1, 2, 3])])
def test_blocks_rotate_through_as_many_tiles_as_are_given(tiles, seen):
    x = ramp(4, 8, 6)
    np.testing.assert_array_equal(blocks_in_turn(x, tiles), x[seen])


@nki.jit
def squares_of_blocks(x):
    """Two block axes over 2 x 1 tiles: block (i, j) lies in tile i."""
    out = nl.ndarray((2, 8, 6), x.dtype, buffer=nl.shared_hbm)
    blocks = nl.ndarray((2, 3, nl.par_dim(8), 6), x.dtype,
                      buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(2, 1)))  # fmt: skip
    i_p, i_f = nl.mgrid[0:8, 0:6]
    for i in nl.static_range(2):
        for j in nl.static_range(3):
            blocks[i, j, i_p, i_f] = nl.load(x) * (10.0 * i + j)
    for i in nl.static_range(2):
        nl.store(out[i], blocks[i, 0])
    return out


@pytest.mark.parametrize("tiles", [1, 4])
def test_a_tensor_without_block_axes_begins_at_its_address_whatever_the_count(tiles):
    def kernel(x):
        own = ncc.sbuf.mod_alloc(base_addr=64, num_free_tiles=(tiles,))
        tile = nl.ndarray((nl.par_dim(8), 6), dtype=x.dtype, buffer=own)
        same = nl.ndarray((nl.par_dim(8), 6), dtype=np.int32, buffer=ncc.sbuf.mod_alloc(base_addr=64))
        tile[...] = nl.load(x)
        out = nl.ndarray((8, 6), dtype=np.int32, buffer=nl.shared_hbm)
        nl.store(out, same)
        return out

    np.testing.assert_array_equal(nki.jit(kernel)(ramp(8, 6)), ramp(8, 6).view(np.int32))


def test_block_axes_rotate_each_for_itself():
    x = ramp(8, 6)
    np.testing.assert_array_equal(squares_of_blocks(x), np.stack([2 * x, 12 * x]))


@nki.jit
def quarters(x):
    """Four tiles of 32 partitions side by side, at one byte."""
    out = nl.ndarray((4, 32, 6), x.dtype, buffer=nl.shared_hbm)
    blocks = nl.ndarray((4, nl.par_dim(32), 6), x.dtype,
                      buffer=ncc.sbuf.mod_alloc(base_addr=0, num_par_tiles=(4,)))  # fmt: skip
    for i in nl.static_range(4):
        blocks[i] = nl.load(x[i])
    for i in nl.static_range(4):
        nl.store(out[i], blocks[i])
    return out


def test_tiles_stand_side_by_side_over_the_partitions():
    x = ramp(4, 32, 6)
    np.testing.assert_array_equal(quarters(x), x)


@nki.jit
def overlapping(x, second):
    """The second tensor begins `second` bytes behind the first, which has rows of 32 bytes."""
    out = nl.ndarray((4, 8), np.float32, buffer=nl.shared_hbm)
    a = nl.ndarray((4, 8), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    b = nl.ndarray((4, 8), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=second))
    a[...] = nl.load(x)
    b[...] = 7
    nl.store(out, a)
    return out


# bytes 8 and up of a row are the third element and those behind it
@pytest.mark.parametrize(("second", "kept"), [(0, 0), (8, 2), (28, 7), (32, 8)])
def test_tensors_at_overlapping_addresses_are_the_same_bytes(second, kept):
    x = -ramp(4, 8) - 1
    expected = np.full((4, 8), 7, np.float32)
    expected[:, :kept] = x[:, :kept]
    np.testing.assert_array_equal(overlapping(x, second), expected)


@nki.jit
def read_as_another_tensor(x):
    out = nl.ndarray((4, 8), np.int32, buffer=nl.shared_hbm)
    a = nl.ndarray((4, 8), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    b = nl.ndarray((4, 8), np.int32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    a[...] = nl.load(x)
    nl.store(out, b)
    return out


def test_a_tensor_at_the_address_of_another_reads_its_bits():
    x = ramp(4, 8)
    np.testing.assert_array_equal(read_as_another_tensor(x), x.view(np.int32))


@nki.jit
def banks_in_turn(x, banks):
    out = nl.ndarray((4, 8, 8), np.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((8, 8), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    tile[...] = nl.load(x)
    copies = nl.ndarray((4, nl.par_dim(8), 8), np.float32,
                        buffer=ncc.sbuf.mod_alloc(base_addr=32, num_free_tiles=(4,)))  # fmt: skip
    products = nl.ndarray((4, nl.par_dim(8), 8), np.float32,
                          buffer=ncc.psum.mod_alloc(base_bank=6, num_bank_tiles=banks))  # fmt: skip
    for i in nl.static_range(4):
        tile[...] = nl.add(tile, 1.0)
        products[i] = nisa.nc_matmul(tile, tile)
    for i in nl.static_range(4):
        copies[i] = nl.copy(products[i])
        nl.store(out[i], copies[i])
    return out


def test_products_rotate_through_banks_of_psum():
    x = ramp(8, 8) / 8
    squares = np.stack([(x + i).T @ (x + i) for i in (1, 2, 3, 4)])
    np.testing.assert_allclose(banks_in_turn(x, (2,)), squares[[2, 3, 2, 3]], rtol=1e-6)


@nki.jit
def sums_without_zeros(x, steps):
    """A sum in PSUM that nobody sets to zero, in a tile made anew in every iteration."""
    out = nl.ndarray((3, 8, 8), np.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((8, 8), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    copy = nl.ndarray((8, 8), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=64))
    tile[...] = nl.load(x)
    for i in nl.affine_range(3):
        total = nl.ndarray((8, 8), np.float32, buffer=ncc.psum.mod_alloc(base_bank=0))
        for _ in nl.affine_range(steps):
            total[...] += nisa.nc_matmul(tile, tile)
        copy[...] = nl.copy(total)
        nl.store(out[i], copy)
    return out


def test_a_sum_of_products_begins_where_nobody_wrote():
    x = ramp(8, 8) / 8
    np.testing.assert_allclose(sums_without_zeros(x, 4), np.stack([4 * x.T @ x] * 3), rtol=1e-6)


@nki.jit
def sums_of_blocks(x, banks):
    """Sums of products in blocks that take turns in banks; nobody sets them to zero."""
    out = nl.ndarray((4, 8, 8), np.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((8, 8), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    copy = nl.ndarray((8, 8), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=64))
    tile[...] = nl.load(x)
    totals = nl.ndarray((4, nl.par_dim(8), 8), np.float32,
                        buffer=ncc.psum.mod_alloc(base_bank=0, num_bank_tiles=(banks,)))  # fmt: skip
    for i in nl.affine_range(4):
        for _ in nl.affine_range(3):
            totals[i, :, :] += nisa.nc_matmul(tile, tile)
        copy[...] = nl.copy(totals[i])
        nl.store(out[i], copy)
    return out


@pytest.mark.parametrize("banks", [1, 2, 4])
def test_each_block_that_takes_its_turn_in_a_bank_begins_a_sum(banks):
    x = ramp(8, 8) / 8
    np.testing.assert_allclose(sums_of_blocks(x, banks), np.stack([3 * x.T @ x] * 4), rtol=1e-6)


@nki.jit
def bias_below_a_sum(x):
    out = nl.ndarray((8, 8), np.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    total = nl.full((8, 8), 3.0, np.float32, buffer=nl.psum)
    total[...] += nisa.nc_matmul(tile, tile)
    total[...] += nisa.nc_matmul(tile, tile)
    nl.store(out, total)
    return out


def test_a_sum_of_products_adds_to_what_was_written_before():
    x = ramp(8, 8) / 8
    np.testing.assert_allclose(bias_below_a_sum(x), 2 * x.T @ x + 3, rtol=1e-6)


def back_to_back(start, idx, pdim_size, fdim_size):
    assert (pdim_size, fdim_size) == (8, 24)
    (block,) = idx
    return (0, start + block * fdim_size)


@pytest.mark.parametrize(
    "place", [functools.partial(back_to_back, start=16), lambda block, p, f: (0, 16 + block[0] * f)],
    ids=["by name", "by position"],
)  # fmt: skip
def test_a_function_gives_addresses_from_index_partitions_and_bytes(place):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        blocks = nl.ndarray((4, nl.par_dim(8), 6), x.dtype, buffer=ncc.sbuf.alloc(place))
        assert (blocks.shape, blocks.ndim, blocks.itemsize, len(blocks)) == ((4, 8, 6), 3, 4, 4)
        assert blocks.dtype == np.float32
        for i, tile in enumerate(blocks):
            tile[...] = nl.load(x[i])
        pair = blocks[2:4]
        assert pair.shape == (2, 8, 6)
        for i in nl.static_range(2):
            nl.store(out[i], blocks[i])
            nl.store(out[i + 2], pair[i, ...])
        return out

    x = ramp(4, 8, 6)
    np.testing.assert_array_equal(kernel(x), x)


@nki.jit
def addresses_counted_in_a_loop(x):
    """The address moves on in Python: the vendor traces the body once, so that it moves on once."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    address = 0
    for i in nl.affine_range(4):
        blocks = nl.ndarray((8, 24000), x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=address))
        address += 24000 * 4
        twice = nl.ndarray((8, 24000), x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=address))
        address += 24000 * 4
        blocks[...] = nl.load(x[i])
        twice[...] = nl.add(blocks, blocks)
        nl.store(out[i], twice)
    return out


def test_addresses_that_python_counts_in_a_loop_are_those_of_the_first_iteration():
    x = ramp(4, 8, 24000)
    np.testing.assert_array_equal(addresses_counted_in_a_loop(x), 2 * x)


@ncc.force_auto_alloc
@nki.jit
def addresses_ignored(x):
    out = nl.ndarray((2, 4, 8), np.float32, buffer=nl.shared_hbm)
    a = nl.ndarray((4, 8), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    b = nl.ndarray((4, 8), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    a[...] = nl.load(x)
    b[...] = nl.exp(a)
    nl.store(out[0], a)
    nl.store(out[1], b)
    return out


def test_force_auto_alloc_ignores_addresses_and_what_they_forbid():
    x = ramp(4, 8) / 8
    np.testing.assert_allclose(addresses_ignored(x), np.stack([x, np.exp(x)]), rtol=1e-6)


@nki.jit
def read_before_written(x):
    out = nl.ndarray((4, 8), np.float32, buffer=nl.shared_hbm)
    a = nl.ndarray((4, 8), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    a[...] = nl.load(x)
    b = nl.ndarray((4, 8), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    nl.store(out, b)
    return out


def test_a_new_tensor_does_not_hold_what_its_address_held_before():
    with pytest.warns(NkilabWarning, match="never written"):
        assert np.isnan(read_before_written(ramp(4, 8))).all()


def tile_beside_an_address(x):
    nl.ndarray((8, 6), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    nl.ndarray((8, 6), np.float32, buffer=nl.sbuf)  # refused


def middle_of_the_partitions(x):
    nl.ndarray((8, 6), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0, base_partition=8))  # refused


def beyond_the_partition(x):
    nl.ndarray((8, 6), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=2**18))  # refused


def below_the_partition(x):
    before = ncc.sbuf.alloc(lambda idx, pdim_size, fdim_size: (0, -4))
    nl.ndarray((8, 6), np.float32, buffer=before)  # refused


def ninth_bank(x):
    nl.ndarray((8, 6), np.float32, buffer=ncc.psum.mod_alloc(base_bank=8))  # refused


def more_than_a_bank(x):
    nl.ndarray((8, 513), np.float32, buffer=ncc.psum.mod_alloc(base_bank=0))  # refused


def inside_a_bank(x):
    nl.ndarray((8, 6), np.float32, buffer=ncc.psum.mod_alloc(base_bank=0, base_addr=8))  # refused


def one_number_for_an_address(x):
    nl.ndarray((8, 6), np.float32, buffer=ncc.sbuf.alloc(lambda idx, pdim_size, fdim_size: 0))  # refused


def no_function(x):
    ncc.sbuf.alloc(1024)  # refused


def no_tile(x):
    ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(0,))  # refused


def counts_of_another_rank(x):
    shape = (2, 2, nl.par_dim(8), 6)
    nl.ndarray(shape, np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(2,)))  # refused


def fifth_block(x):
    blocks = nl.ndarray((4, nl.par_dim(8), 6), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    blocks[4]  # refused


def grid_of_blocks(x):
    blocks = nl.ndarray((4, nl.par_dim(8), 6), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    i_b, i_p, i_f = nl.mgrid[0:4, 0:8, 0:6]
    blocks[i_b, i_p, i_f]  # refused


def part_of_every_block(x):
    blocks = nl.ndarray((4, nl.par_dim(8), 6), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    blocks[:, 0:4]  # refused


def all_blocks_assigned(x):
    blocks = nl.ndarray((4, nl.par_dim(8), 6), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    blocks[...] = 1  # refused


def missing_address(x):
    ncc.sbuf.mod_alloc(num_free_tiles=(2,))  # refused


SPACE = "on trn2 it must begin below 212984 and end by 229376, as the compiler keeps what lies between"
BLOCKS = "blocks: float32[4, 8, 6] in sbuf"
REFUSED = [
    (tile_beside_an_address, RuleError,
     "ndarray: a tile in sbuf has no address; in a kernel that gives addresses every tile has one"),
    (middle_of_the_partitions, RuleError,
     "ndarray: the tile starts at partition 8 with 8 partitions; it must start at 0, 32, 64 or 96"),
    (beyond_the_partition, LimitError,
     f"ndarray: the tile takes bytes 262144 to 262168 of a partition; {SPACE}"),
    (below_the_partition, LimitError,
     f"ndarray: the tile takes bytes -4 to 20 of a partition; {SPACE}"),
    (ninth_bank, LimitError, "ndarray: bank is 8; trn2 has 8"),
    (more_than_a_bank, LimitError,
     "ndarray: the tile takes bytes 0 to 2052 of a bank; on trn2 it must begin below 2048 and end by 2048"),
    (inside_a_bank, RuleError,
     "ndarray: the tile starts at partition 0 and byte 8 of its bank; in psum both are 0"),
    (one_number_for_an_address, RuleError,
     "ndarray: the address of block () is 0; it must be (partition, byte), integers"),
    (no_function, UseError,
     "sbuf.alloc: func is of type int; it must be a function of addresses"),
    (no_tile, RuleError,
     "sbuf.mod_alloc: num_free_tiles is (0,); it must hold a tile or more along each block axis"),
    (counts_of_another_rank, RuleError,
     "ndarray: a number of tiles is (2,), for 1 block axes; the tensor has 2"),
    (fifth_block, UseError, f"subscript: index 4 is outside axis 0 of {BLOCKS}, which has 4 elements"),
    (grid_of_blocks, RuleError,
     f"subscript: an index grid runs over the blocks of {BLOCKS}, whose tiles have addresses"),
    (part_of_every_block, UseError, f"subscript: a subscript of {BLOCKS} cuts several blocks at once"),
    (all_blocks_assigned, RuleError, f"assignment: {BLOCKS} has block axes; an instruction takes a tile"),
    (missing_address, NkilabError, "sbuf.mod_alloc: missing 1 required keyword-only argument: 'base_addr'"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "kind", "line"), REFUSED, ids=[r[0].__name__ for r in REFUSED])
def test_an_address_that_the_hardware_does_not_have_is_refused(body, kind, line):
    with pytest.raises(kind) as caught:
        nki.jit(body)(ramp(8, 6))
    assert str(caught.value).splitlines()[0] == f"{marked_line(body)}: {line}"


def test_force_auto_alloc_below_jit_is_the_same():
    below = nki.jit(ncc.force_auto_alloc(addresses_ignored.function))
    x = ramp(4, 8) / 8
    np.testing.assert_allclose(below(x), np.stack([x, np.exp(x)]), rtol=1e-6)


@ncc.enable_stack_allocator(log_level=10)
@ncc.skip_middle_end_transformations
@nki.jit
def advised(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    with ncc.allocation_scope():
        for i in nl.sequential_range(2, directives=ncc.multi_buffer(3)):
            with ncc.no_reorder():
                nl.store(out[i], nl.load(x[i]) + 1)
    return out


def test_advice_to_the_compiler_changes_no_value():
    np.testing.assert_array_equal(advised(ramp(2, 4, 3)), ramp(2, 4, 3) + 1)
    with pytest.raises(RuleError, match="factor is 0; a loop has one buffer or more"):
        ncc.multi_buffer(0)
