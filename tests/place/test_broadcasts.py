"""Repetitions by TensorE that are read in PSUM instead of being copied, by hand."""

from __future__ import annotations

import pytest

from nkilab.place.broadcasts import without_broadcast_copies
from tests.place.handmade import Kernel, names, repeated


def test_what_tensor_e_repeats_is_read_in_psum() -> None:
    k = Kernel("trn1")
    repeated(k, "tensor_tensor")
    program = without_broadcast_copies(k.program)
    assert names(program) == ["nc_matmul", "tensor_tensor"]
    *_, read = program.accesses(1)
    assert (read.layout.memory, program.storages[read.storage].memory) == ("psum", "psum")
    # 2.26 costs of trn1: 512 cycles with one input in PSUM, 1024 with both in SBUF, at 1.12 GHz
    gained = k.program.form_of(2).steps[0].busy_ns - program.form_of(1).steps[0].busy_ns
    assert gained == pytest.approx(512 / 1.12)


@pytest.mark.parametrize(
    ("reader", "dtype"), [("dma", "float32"), ("tensor_tensor", "bfloat16")]
)  # fmt: skip
def test_a_copy_that_psum_cannot_stand_for_stays(reader: str, dtype: str) -> None:
    # DMA does not reach PSUM; a copy in another type rounds
    k = Kernel("trn2")
    repeated(k, reader, copy_to=dtype)
    assert without_broadcast_copies(k.program) is k.program


@pytest.mark.parametrize("change", ["source read again", "copy written again", "sum of two rows", "named"])
def test_a_copy_that_is_more_than_a_repetition_stays(change: str) -> None:
    k = Kernel("trn1")
    rows = 2 if change == "sum of two rows" else 1
    product, copy, other, result = k.psum(128, 512), *(k.tile(128, 512) for _ in range(3))
    k.matmul(product, k.tile(rows, 128), k.tile(rows, 512))
    k.copy(copy, product, engine="scalar" if change == "named" else "unknown")
    k.call("tensor_tensor", result, other, copy, op="add")
    if change == "source read again":
        k.copy(k.tile(128, 512), product, engine="scalar")
    if change == "copy written again":
        k.fill(copy)
    assert without_broadcast_copies(k.program) is k.program


@pytest.mark.parametrize(("others", "is_copied"), [(6, False), (7, True)])
def test_copies_stay_where_psum_has_no_bank_for_the_tile_and_one_more(others: int, is_copied: bool) -> None:
    # of eight banks others live throughout; the tile takes one, and one is left for what comes meanwhile
    k = Kernel("trn2")
    banks = [k.psum(128, 512) for _ in range(others)]
    weights, moving = k.tile(128, 128), k.tile(128, 512)
    for bank in banks:
        k.matmul(bank, weights, moving)
    repeated(k, "tensor_tensor")
    for bank in banks:
        k.copy(k.tile(128, 512), bank)
    assert (without_broadcast_copies(k.program) is k.program) == is_copied


@pytest.mark.parametrize(
    ("others", "until", "is_copied"),
    [(7, "copied", False), (7, "read", True), (7, "after", False)],
)
def test_a_bank_is_needed_from_the_copy_to_the_last_reader(others: int, until: str, is_copied: bool) -> None:
    # eight banks: seven others that live up to the row of the copy, or from the row after the last reader on,
    # are in nobody's way; seven that the last reader meets leave none for what comes meanwhile
    k = Kernel("trn2")
    banks = [k.psum(128, 512) for _ in range(others)]
    weights, moving = k.tile(128, 128), k.tile(128, 512)
    product, copy = k.psum(128, 512), k.tile(128, 512)
    for bank in banks if until != "after" else ():
        k.matmul(bank, weights, moving)
    k.matmul(product, k.tile(1, 128), k.tile(1, 512))
    k.copy(copy, product, engine="unknown")
    for _ in range(2):
        k.call("tensor_tensor", k.tile(128, 512), k.tile(128, 512), copy, op="add")
    for bank in banks if until == "after" else ():
        k.matmul(bank, weights, moving)
    for bank in banks if until == "read" else ():
        k.copy(k.tile(128, 512), bank)
    assert (without_broadcast_copies(k.program) is k.program) == is_copied


@pytest.mark.parametrize(("others", "copies_left"), [(4, 0), (5, 0), (6, 1), (7, 2)])
def test_a_bank_that_one_repetition_keeps_is_none_for_the_next(others: int, copies_left: int) -> None:
    # both are read at the end: the first takes others + 1 of eight banks beside a spare one, the second one
    # finds others + 1 taken
    k = Kernel("trn2")
    banks = [k.psum(128, 512) for _ in range(others)]
    for bank in banks:
        k.matmul(bank, k.tile(128, 128), k.tile(128, 512))
    tiles = []
    for _ in range(2):
        product, copy = k.psum(128, 512), k.tile(128, 512)
        k.matmul(product, k.tile(1, 128), k.tile(1, 512))
        k.copy(copy, product, engine="unknown")
        tiles.append(copy)
    for copy in tiles:
        k.call("tensor_tensor", k.tile(128, 512), k.tile(128, 512), copy, op="add")
    for bank in banks:
        k.copy(k.tile(128, 512), bank, engine="scalar")
    program = without_broadcast_copies(k.program)
    assert names(program).count("tensor_copy") == others + copies_left


def test_all_readers_of_a_repetition_read_it_in_psum_and_others_stay() -> None:
    # TensorE, which takes no operand from PSUM, reads the second copy
    k = Kernel("trn2")
    tiles = []
    for _ in range(2):
        product, copy = k.psum(128, 512), k.tile(128, 512)
        k.matmul(product, k.tile(1, 128), k.tile(1, 512))
        k.copy(copy, product, engine="unknown")
        tiles.append(copy)
    first, second = tiles
    for copy in (first, second, first):
        k.call("tensor_tensor", k.tile(128, 512), k.tile(128, 512), copy, op="add")
    k.matmul(k.psum(128, 512), k.tile(128, 128), second)
    program = without_broadcast_copies(k.program)
    assert names(program) == ["nc_matmul", "nc_matmul", "tensor_copy", *["tensor_tensor"] * 3, "nc_matmul"]
    memories = [[a.layout.memory for a in program.accesses(row)] for row in (3, 4, 5, 6)]
    in_psum, in_sbuf = ["sbuf", "sbuf", "psum"], ["sbuf", "sbuf", "sbuf"]
    assert memories == [in_psum, in_sbuf, in_psum, ["psum", "sbuf", "sbuf"]]
    for row in (3, 5):
        *_, read = program.accesses(row)
        assert program.storages[read.storage].memory == "psum"
