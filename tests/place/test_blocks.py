"""Blocks as tiles of their own, and zeroes that nothing needs: by hand."""

from __future__ import annotations

import pytest

from nkilab.files.neff import digest_of
from nkilab.isa.operators import OPERATORS
from nkilab.place import plan
from nkilab.place.blocks import with_blocks_apart
from nkilab.place.compiler_passes import MIDDLE_END, compiled
from nkilab.place.fills import without_zero_fills
from nkilab.tiles.dtypes import DTYPES
from nkilab.tiles.tile import View, layout
from nkilab.trace.program import Program
from tests.place.handmade import Kernel, part


def tiles(program: Program, row: int) -> list[tuple[tuple[int, ...], int]]:
    """Per tile operand of a row on chip, the shape of its tile and its offset there."""
    return [
        (program.storages[a.storage].shape, a.offset)
        for a in program.accesses(row)
        if a.layout.memory != "hbm"
    ]


def blocks(k: Kernel, count: int, columns: int):
    """The blocks of a tensor that lies in SBUF as [128, count, columns]."""
    tensor = k.tile(128, count * columns)
    return [part(tensor, (0, 128), (i * columns, (i + 1) * columns)) for i in range(count)]


def test_blocks_become_tiles() -> None:
    k = Kernel("trn1")
    x = k.hbm(128, 64)
    for block in blocks(k, 3, 64):
        k.load(block, x)
        k.copy(part(block, (64, 128), (16, 64)), part(block, (64, 128), (0, 48)))
    program = with_blocks_apart(k.program)
    # partition 64 of a tile of 64 columns begins at 4096
    assert tiles(program, 0) == [((128, 64), 0)]
    assert tiles(program, 5) == [((128, 64), 64 * 64 + 16), ((128, 64), 64 * 64)]
    assert len({a.storage for row in (0, 2, 4) for a in program.accesses(row) if a.operand == "dst"}) == 3
    strides = [given.strides for _, _, given in program.form_of(5).tile_slots()]
    assert strides == [(64, 1), (64, 1)]


def test_a_block_keeps_its_inner_axes() -> None:
    # [128, 3, 2, 8]: a tile [128, 2, 8] per block; halves of a block would be one axis
    k = Kernel("trn1")
    tensor = k.tile(128, 3, 2, 8)
    for i in range(3):
        k.fill(part(tensor, (0, 128), (i, i + 1), (0, 2), (0, 8)))
    program = with_blocks_apart(k.program)
    assert [tiles(program, row) for row in range(3)] == [[((128, 2, 8), 0)]] * 3
    pairs = k.tile(128, 4, 2, 8)
    for i in (0, 2):
        k.fill(part(pairs, (0, 128), (i, i + 2), (0, 2), (0, 8)))
    assert tiles(with_blocks_apart(k.program), 4) == [((128, 32), 0)]


def test_a_tensor_stays_whole_where_a_block_would_end_within_an_element() -> None:
    # bytes 0 to 5; two elements of bfloat16 from byte 6 to 9; bytes 9 and 10: the second block ends at 11
    k = Kernel("trn1")
    tensor = k.tile(128, 24, dtype="uint8")
    k.fill(part(tensor, (0, 128), (0, 6)))
    halves = layout((128, 2), (12, 1), DTYPES["bfloat16"], "sbuf", 0, 0)
    k.copy(k.tile(128, 2, dtype="bfloat16"), View(tensor.storage, 3, halves))
    k.fill(part(tensor, (0, 128), (9, 11)))
    assert with_blocks_apart(k.program) is k.program


def test_blocks_of_bytes_that_hold_whole_elements_are_tiles() -> None:
    # ten bytes, and two elements of float32 from byte 12 on
    k = Kernel("trn1")
    tensor = k.tile(128, 20, dtype="uint8")
    k.fill(part(tensor, (0, 128), (0, 10)))
    floats = layout((128, 2), (5, 1), DTYPES["float32"], "sbuf", 0, 0)
    k.copy(k.tile(128, 2), View(tensor.storage, 3, floats))
    program = with_blocks_apart(k.program)
    assert tiles(program, 0) == [((128, 10), 0)]
    assert tiles(program, 1)[1] == ((128, 8), 0)


def test_what_an_instruction_needs_side_by_side_stays_one_tile() -> None:
    k = Kernel("trn1")
    x = k.hbm(128, 64)
    tensor = k.tile(128, 192)
    for i in range(3):
        k.load(part(tensor, (0, 128), (64 * i, 64 * i + 64)), x)
    k.copy(k.tile(128, 192), tensor)
    assert with_blocks_apart(k.program) is k.program


def test_blocks_need_no_more_room_than_before() -> None:
    k = Kernel("trn1")
    x = k.hbm(128, 64)
    for block in blocks(k, 8, 64):
        k.load(block, x)
        k.copy(k.tile(128, 64), block)
    before, after = k.program, with_blocks_apart(k.program)
    assert plan(after).peak_sbuf_bytes <= plan(before).peak_sbuf_bytes
    # the tile beside a block stays as it was
    strides = [given.strides for row in range(16) for _, _, given in after.form_of(row).tile_slots()]
    assert set(strides) == {(64, 1)}


def test_a_block_that_is_loaded_again_is_loaded_once() -> None:
    k = Kernel("trn1")
    x, out = k.hbm(128, 64), k.hbm(128, 64)
    for block in blocks(k, 4, 64):
        k.load(block, x)
        k.store(out, block)
    k.program.compiler = MIDDLE_END
    assert compiled(k.program).opcodes()["dma_copy"] == 1 + 4


def product(k: Kernel, *, value: float = 0.0, reads_first: bool = False) -> Kernel:
    """A tile in PSUM that is filled, and multiplied into twice."""
    stationary, moving, psum = k.tile(128, 128), k.tile(128, 512), k.psum(128, 512)
    k.call("memset", psum, values=(value,), engine="vector")
    if reads_first:
        k.copy(k.tile(128, 512), psum)
    k.matmul(psum, stationary, moving, accumulate=True)
    k.matmul(psum, stationary, moving, accumulate=True)
    k.copy(k.tile(128, 512), psum)
    return k


def test_zeroes_that_a_product_overwrites_are_not_written() -> None:
    # NKIBench: products that fill every tile in PSUM, and VectorE active for 0.0 % of the time
    program = without_zero_fills(product(Kernel("trn1")).program)
    assert [program.form_of(row).name for row in range(len(program))] == [
        "nc_matmul", "nc_matmul", "tensor_copy",
    ]  # fmt: skip


@pytest.mark.parametrize("options", [{"value": 1.0}, {"reads_first": True}])
def test_fills_that_something_needs_stay(options) -> None:
    program = product(Kernel("trn1"), **options).program
    assert without_zero_fills(program) is program


@pytest.mark.parametrize(
    ("parts", "stays"),
    [
        ([(0, 128, 0, 256)], True),
        ([(0, 64, 0, 512)], True),
        ([(0, 128, 0, 256), (0, 128, 256, 512)], False),
        ([(0, 128, 0, 300), (0, 128, 256, 512)], False),
        ([(0, 128, 0, 256), (0, 64, 256, 512)], True),
    ],
)
def test_zeroes_of_a_tile_that_products_cover_in_part_are_written(
    parts: list[tuple[int, int, int, int]], stays: bool
) -> None:
    # a product on half of the tile let the zeroes of the other half go, though they were copied out
    k = Kernel("trn1")
    psum = k.psum(128, 512)
    k.call("memset", psum, values=(0.0,), engine="vector")
    for low, high, begin, end in parts:
        k.matmul(
            part(psum, (low, high), (begin, end)),
            k.tile(128, high - low),
            k.tile(128, end - begin),
            accumulate=True,
        )
    k.copy(k.tile(128, 512), psum)
    assert ("memset" in without_zero_fills(k.program).opcodes()) == stays


def test_each_fill_is_judged_by_the_products_up_to_the_next_read() -> None:
    k = Kernel("trn1")
    psum, stationary = k.psum(128, 512), k.tile(128, 128)
    for columns in (512, 256):
        k.call("memset", psum, values=(0.0,), engine="vector")
        into = part(psum, (0, 128), (0, columns))
        k.matmul(into, stationary, k.tile(128, columns), accumulate=True)
        k.copy(k.tile(128, 512), psum)
    program = without_zero_fills(k.program)
    assert [program.form_of(row).name for row in range(len(program))] == [
        "nc_matmul", "tensor_copy", "memset", "nc_matmul", "tensor_copy",
    ]  # fmt: skip


@pytest.mark.parametrize(("halves", "stays"), [((0, 1), False), ((0,), True), ((1,), True)])
def test_zeroes_of_a_tile_with_inner_axes_are_judged_by_all_of_them(
    halves: tuple[int, ...], stays: bool
) -> None:
    k = Kernel("trn1")
    psum = k.psum(128, 2, 256)
    k.call("memset", psum, values=(0.0,), engine="vector")
    for half in halves:
        into = part(psum, (0, 128), (half, half + 1), (0, 256))
        k.matmul(into, k.tile(128, 128), k.tile(128, 1, 256), accumulate=True)
    k.copy(k.tile(128, 2, 256), psum)
    assert ("memset" in without_zero_fills(k.program).opcodes()) == stays


def test_a_tile_that_is_used_again_is_judged_from_each_fill_on() -> None:
    # what read the tile before the second fill does not need its zeroes
    k = Kernel("trn1")
    product(product(k))
    psum, stationary, moving = k.psum(128, 512), k.tile(128, 128), k.tile(128, 512)
    for _ in range(2):
        k.call("memset", psum, values=(0.0,), engine="vector")
        k.matmul(psum, stationary, moving, accumulate=True)
        k.copy(k.tile(128, 512), psum)
    assert "memset" not in without_zero_fills(k.program).opcodes()


def test_zeroes_that_nobody_reads_and_products_cover_are_not_written() -> None:
    k = Kernel("trn1")
    psum = k.psum(128, 512)
    k.call("memset", psum, values=(0.0,), engine="vector")
    k.matmul(psum, k.tile(128, 128), k.tile(128, 512), accumulate=True)
    assert without_zero_fills(k.program).opcodes() == {"nc_matmul": 1}


def test_zeroes_in_sbuf_stay() -> None:
    k = Kernel("trn1")
    k.fill(k.tile(128, 512))
    assert without_zero_fills(k.program) is k.program


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_a_program_of_beta_1_compiled_twice_is_the_same(target: str) -> None:
    # what `neuron-profile capture` times and what `view` reads are one program
    k = product(Kernel(target))
    x, out = k.hbm(128, 64), k.hbm(128, 64)
    for block in blocks(k, 4, 64):
        k.load(block, x)
        k.copy(block, block, engine="unknown")
        k.call("tensor_scalar", block, block, 2.0, None, op0=OPERATORS["multiply"], engine="unknown")
        k.store(out, block)
    k.program.compiler = MIDDLE_END
    once = compiled(k.program)
    assert digest_of(once) != digest_of(k.program)
    assert digest_of(compiled(once)) == digest_of(once)
