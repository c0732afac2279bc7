"""What the compiler does to engines and buffers, by hand."""

from __future__ import annotations

import pytest

from nkilab.isa.operators import OPERATORS
from nkilab.place import plan
from nkilab.place.balance import balanced
from nkilab.place.broadcasts import without_broadcast_copies
from nkilab.place.buffers import buffer_edges
from nkilab.place.compiler_passes import MIDDLE_END, STANDALONE, compiled
from nkilab.place.invariants import without_loop_invariants
from nkilab.place.slots import slots_of
from nkilab.tiles.tile import View
from nkilab.trace.program import Program
from tests.place.handmade import Kernel, columns


def engines(program: Program) -> str:
    """The engine of each copy, by its first letter."""
    steps = [form.steps[0].engine[0] for form in program.forms]
    return "".join(steps[number] for number in program.form_column.tolist())


def copies(engine: str, count: int, width: int = 512) -> Kernel:
    k = Kernel("trn2")
    src = k.tile(128, width)
    for _ in range(count):
        k.copy(k.tile(128, width), src, engine=engine)
    return k


def test_copies_without_an_engine_go_where_they_would_end_first() -> None:
    # 512 columns of float32: VectorE 512 / 2 / 0.96 + 40 = 306.7 ns, ScalarE 512 / 1.2 + 115 = 541.7.
    # ends: V 306.7; S 541.7 < V 613.3; V 613.3; V 920 < S 1083.3; S 1083.3 < V 1226.7; V 1226.7; V 1533.3
    program = copies("unknown", 7).program
    assert engines(balanced(program)) == "vsvvsvv"


def test_copies_that_name_their_engine_stay_there() -> None:
    program = copies("vector", 4).program
    assert balanced(program) is program


def scalings(target: str, op: str, engine: str = "unknown") -> Kernel:
    k = Kernel(target)
    src = k.tile(128, 512)
    for _ in range(4):
        k.call("tensor_scalar", k.tile(128, 512), src, 2.0, None, op0=OPERATORS[op], engine=engine)
    return k


@pytest.mark.parametrize(("target", "expected"), [("trn1", "ssss"), ("trn2", "vvvv")])
def test_multiplications_by_a_number_go_to_scalar_e_on_trn1(target: str, expected: str) -> None:
    # NKIBench, silu and AdamW on trn1: ScalarE is active for as many instructions as there are of this kind
    assert engines(balanced(scalings(target, "multiply").program)) == expected


def test_copies_go_to_scalar_e_on_trn1() -> None:
    # NKIBench, four products on trn1: VectorE is active for 0.0 % of the time
    k = Kernel("trn1")
    for _ in range(3):
        k.copy(k.tile(128, 512), k.psum(128, 512), engine="unknown")
    assert engines(balanced(k.program)) == "sss"


@pytest.mark.parametrize(("op", "engine"), [("subtract", "unknown"), ("multiply", "vector")])
def test_other_operators_and_those_that_name_their_engine_stay(op, engine) -> None:
    program = scalings("trn1", op, engine).program
    assert balanced(program) is program


def test_only_the_middle_end_of_beta_1_balances() -> None:
    k = copies("unknown", 2)
    k.program.compiler = STANDALONE
    assert engines(compiled(k.program)) == "vv"
    k.program.compiler = MIDDLE_END
    assert engines(compiled(k.program)) == "vs"


def through_one_line(tiles: int, held: int) -> Kernel:
    """Tiles of one source line, each loaded `held` loads before it is stored."""
    k = Kernel("trn2")
    # tiles made before the first call stand on one line
    made = [k.tile(128, 64) for _ in range(tiles)]
    for i in range(tiles + held - 1):
        if i < tiles:
            k.load(made[i], k.hbm(128, 64))
        if i >= held - 1:
            k.store(k.hbm(128, 64), made[i - held + 1])
    return k


@pytest.mark.parametrize(
    ("held", "factor", "edges"),
    [
        # rows 0 1 2 3 ... are load 0, store 0, load 1, store 1: one tile at once, three buffers; the load of
        # tile 3, row 6, waits for the store of tile 0, row 1
        (1, 3, [(6, 1), (8, 3), (10, 5)]),
        (1, 2, [(4, 1), (6, 3), (8, 5), (10, 7)]),
        # load 0, load 1, store 0, load 2, store 1, ...: two at once, in twice two buffers
        (2, 2, [(7, 2), (9, 4)]),
        (1, 6, []),
    ],
)
def test_tiles_of_one_line_take_turns(held: int, factor: int, edges: list[tuple[int, int]]) -> None:
    k = through_one_line(6, held)
    later, earlier, _ = buffer_edges(k.program, slots_of(k.program), factor)
    assert list(zip(later.tolist(), earlier.tolist(), strict=True)) == edges


def test_tiles_of_different_lines_do_not_wait_for_each_other() -> None:
    k = Kernel("trn2")
    for _ in range(6):
        # a tile stands on the line of the call after it
        tile = k.tile(128, 64)
        k.load(tile, k.hbm(128, 64))
        k.store(k.hbm(128, 64), tile)
    later, _, _ = buffer_edges(k.program, slots_of(k.program), 1)
    assert later.tolist() == []


def test_plans_wait_for_buffers() -> None:
    # six buffers: the load of tile 6, row 12, waits for the store of tile 0, row 1
    placed = plan(through_one_line(8, 1).program)
    assert placed.waits.of(10) == []
    assert placed.waits.of(12) == [(1, "reuse")]


def names(program: Program) -> list[str]:
    """The instruction of each row."""
    return [program.form_of(row).name for row in range(len(program))]


def in_turns(k: Kernel, outer: int, loop: int, turns: int) -> list[int]:
    """Positions of the turns of a loop, to give to the session."""
    start = len(k.program.positions)
    k.program.positions += [(outer, loop, turn) for turn in range(turns)]
    return list(range(start, start + turns))


def squared(k: Kernel, source: View, positions: list[int], op: str = "square") -> list[View]:
    """A tile squared anew at each of some positions, and copied to a tile of its own."""
    made = []
    for position in positions:
        k.session.position = position
        square, result = k.tile(128, 64), k.tile(128, 64)
        k.call("activation", square, source, None, 1.0, None, op=op)
        k.copy(result, square)
        made.append(square)
    return made


def test_what_a_loop_computes_again_is_computed_once() -> None:
    k = Kernel("trn2")
    source = k.tile(128, 64)
    k.load(source, k.hbm(128, 64))
    first, *_ = squared(k, source, in_turns(k, 0, 7, 3))
    program = without_loop_invariants(k.program)
    # the copies of the same tile to other tiles repeat each other as well
    assert names(program) == ["dma_copy", "activation", "tensor_copy"]
    copy = list(program.accesses(2))
    assert copy[1].storage == first.storage.number


def test_what_stands_before_an_instruction_does_not_make_it_another_one() -> None:
    # each turn copies other columns of x before it squares the same tile
    k = Kernel("trn2")
    source, x = k.tile(128, 64), k.tile(128, 256)
    k.load(source, k.hbm(128, 64))
    k.load(x, k.hbm(128, 256))
    for turn, position in enumerate(in_turns(k, 0, 7, 3)):
        k.session.position = position
        k.copy(k.tile(128, 64), columns(x, turn * 64, turn * 64 + 64))
        k.call("activation", k.tile(128, 64), source, None, 1.0, None, op="square")
    assert names(without_loop_invariants(k.program)).count("activation") == 1


def test_two_loops_do_not_share_what_they_compute() -> None:
    k = Kernel("trn2")
    source = k.tile(128, 64)
    k.load(source, k.hbm(128, 64))
    squared(k, source, [*in_turns(k, 0, 7, 1), *in_turns(k, 0, 8, 1)])
    assert without_loop_invariants(k.program) is k.program


def test_an_inner_loop_that_python_unrolls_is_part_of_the_outer_one() -> None:
    k = Kernel("trn2")
    source = k.tile(128, 64)
    k.load(source, k.hbm(128, 64))
    outer = in_turns(k, 0, 7, 2)
    inner = [position for turn in outer for position in in_turns(k, turn, 8 + turn, 1)]
    k.program.unrolled += [8 + turn for turn in outer]
    squared(k, source, inner)
    assert names(without_loop_invariants(k.program)) == ["dma_copy", "activation", "tensor_copy"]


def test_operands_that_change_in_the_loop_are_computed_with_again() -> None:
    k = Kernel("trn2")
    source = k.tile(128, 64)
    for position in in_turns(k, 0, 7, 2):
        k.session.position = position
        k.load(source, k.hbm(128, 64))
        squared(k, source, [position])
    assert without_loop_invariants(k.program) is k.program


def repeated(k: Kernel, reader: str, width: int = 512, copy_to: str = "float32") -> None:
    """A row repeated over 128 partitions by TensorE, copied to SBUF, and read there."""
    row, ones = k.tile(1, width), k.tile(1, 128)
    product, copy = k.psum(128, width), k.tile(128, width, dtype=copy_to)
    k.matmul(product, ones, row)
    k.copy(copy, product, engine="unknown")
    other, result = k.tile(128, width), k.tile(128, width)
    if reader == "tensor_tensor":
        k.call("tensor_tensor", result, other, copy, op="add")
    else:
        k.load(k.hbm(128, width), copy)


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


@pytest.mark.parametrize(("others", "stays"), [(6, False), (7, True)])
def test_copies_stay_where_psum_has_no_bank_for_the_tile_and_one_more(others: int, stays: bool) -> None:
    # of eight banks others live throughout; the tile takes one, and one is left for what comes meanwhile
    k = Kernel("trn2")
    held = [k.psum(128, 512) for _ in range(others)]
    weights, moving = k.tile(128, 128), k.tile(128, 512)
    for bank in held:
        k.matmul(bank, weights, moving)
    repeated(k, "tensor_tensor")
    for bank in held:
        k.copy(k.tile(128, 512), bank)
    assert (without_broadcast_copies(k.program) is k.program) == stays


def test_only_the_middle_end_writes_descriptors_beforehand() -> None:
    k = copies("vector", 1)
    k.program.compiler = STANDALONE
    assert not compiled(k.program).has_static_descriptors
    k.program.compiler = MIDDLE_END
    assert compiled(k.program).has_static_descriptors
    assert not k.program.has_static_descriptors


def test_what_is_left_out_is_told() -> None:
    k = Kernel("trn1")
    repeated(k, "tensor_tensor")
    k.program.compiler = MIDDLE_END
    assert compiled(k.program).notes == [
        "1 copies are left out: who reads them reads PSUM, where TensorE repeats a partition"
    ]
    assert k.program.notes == []
