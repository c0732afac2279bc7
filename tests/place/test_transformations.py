"""What the compiler does to engines and buffers, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from nkilab.isa.operators import OPERATORS
from nkilab.machine import MACHINES
from nkilab.machine.model import assumed
from nkilab.place import plan
from nkilab.place.balance import balanced
from nkilab.place.buffers import buffer_edges
from nkilab.place.compiler_passes import AS_WRITTEN, MIDDLE_END, PASSES, STANDALONE, compiled
from nkilab.place.invariants import without_loop_invariants
from nkilab.place.slots import slots_of
from nkilab.tiles.tile import View
from nkilab.trace.program import Program
from tests.place.handmade import Kernel, columns, names, part, repeated


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


@pytest.mark.parametrize(
    ("compiler", "expected"), [(MIDDLE_END, "vsvvsvv"), (AS_WRITTEN, "vsvvsvv"), (STANDALONE, "vvvvvvv")]
)
def test_the_back_end_of_beta_1_chooses_engines_whether_or_not_its_middle_end_runs(
    compiler: str, expected: str
) -> None:
    # a published convolution whose kernel skips the middle end: 72 copies, 24 us where VectorE alone takes 32
    program = copies("unknown", 7).program
    program.compiler = compiler
    assert engines(compiled(program)) == expected


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


def with_two_operators(k: Kernel, op1: str, *operands: object, **attributes: bool) -> None:
    dst, data = k.tile(128, 512), k.tile(128, 512)
    ops = {"op0": OPERATORS["multiply"], "op1": OPERATORS[op1]}
    k.call("tensor_scalar", dst, data, *operands, **ops, engine="unknown", **attributes)


@pytest.mark.parametrize(
    ("op1", "operands", "reverse", "expected"),
    [
        # an ACTIVATE computes data * scale + bias, from whichever side
        ("add", (2.0, 3.0), False, "s"),
        ("add", (2.0, "vector"), False, "s"),
        ("add", ("vector", 3.0), False, "s"),
        ("add", (2.0, 3.0), True, "v"),
        ("subtract", (2.0, 3.0), False, "v"),
        # it names two vectors in the other order
        ("add", ("vector", "vector"), False, "v"),
    ],
)
def test_a_product_and_a_sum_go_to_scalar_e_on_trn1_where_one_activate_does_both(
    op1: str, operands: tuple[object, ...], reverse: bool, expected: str
) -> None:
    k = Kernel("trn1")
    known_operands = [k.tile(128, 1) if operand == "vector" else operand for operand in operands]
    with_two_operators(k, op1, *known_operands, reverse1=reverse)
    program = balanced(k.program)
    assert engines(program) == expected
    if expected == "s":
        form = program.form_of(0)
        assert (form.name, form.op.name) == ("activation", "copy")
        read = {a.operand for a in program.accesses(0)}
        names = {"scale": operands[0], "bias": operands[1]}
        assert {name for name in names if name in read} == {n for n, o in names.items() if o == "vector"}


def test_only_the_middle_end_of_beta_1_balances() -> None:
    k = copies("unknown", 2)
    k.program.compiler = STANDALONE
    assert engines(compiled(k.program)) == "vv"
    k.program.compiler = MIDDLE_END
    assert engines(compiled(k.program)) == "vs"


def through_one_line(tiles: int, live: int) -> Kernel:
    """Tiles of one source line, each loaded `live` loads before it is stored."""
    k = Kernel("trn2")
    # what is made before the first call stands on one line, the first of all
    k.hbm(128, 64)
    line_tiles = [k.tile(128, 64) for _ in range(tiles)]
    for i in range(tiles + live - 1):
        if i < tiles:
            k.load(line_tiles[i], k.hbm(128, 64))
        if i >= live - 1:
            k.store(k.hbm(128, 64), line_tiles[i - live + 1])
    return k


@pytest.mark.parametrize(
    ("live", "factor", "edges"),
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
def test_tiles_of_one_line_take_turns(live: int, factor: int, edges: list[tuple[int, int]]) -> None:
    k = through_one_line(6, live)
    k.program.machine = k.program.machine.with_constants({"tile_buffers": factor}, "a test")
    later, earlier, _ = buffer_edges(k.program, slots_of(k.program))
    assert list(zip(later.tolist(), earlier.tolist(), strict=True)) == edges


def test_tiles_of_different_lines_do_not_wait_for_each_other() -> None:
    k = Kernel("trn2")
    for _ in range(6):
        # a tile stands on the line of the call after it
        tile = k.tile(128, 64)
        k.load(tile, k.hbm(128, 64))
        k.store(k.hbm(128, 64), tile)
    k.program.machine = k.program.machine.with_constants({"tile_buffers": 1}, "a test")
    later, _, _ = buffer_edges(k.program, slots_of(k.program))
    assert later.tolist() == []


def test_tiles_of_other_lines_and_other_shapes_do_not_wait_for_each_other() -> None:
    k = Kernel("trn2")
    for i in range(6):
        k.fill(k.tile(128, 64 if i % 2 else 32))
    k.program.machine = k.program.machine.with_constants({"tile_buffers": 1}, "a test")
    later, _, _ = buffer_edges(k.program, slots_of(k.program))
    assert later.tolist() == []


def test_plans_wait_for_buffers() -> None:
    # six buffers: the load of tile 6, row 12, waits for the store of tile 0, row 1
    placed = plan(through_one_line(8, 1).program)
    assert placed.waits.of(10) == []
    assert placed.waits.of(12) == [(1, "reuse")]


def in_turns(k: Kernel, outer: int, loop: int, turns: int) -> list[int]:
    """Positions of the turns of a loop, to give to the session."""
    start = len(k.program.positions)
    k.program.positions.extend(np.array([(outer, loop, turn) for turn in range(turns)]))
    return list(range(start, start + turns))


def squared(k: Kernel, source: View, positions: list[int], op: str = "square") -> list[View]:
    """A tile squared anew at each of some positions, and copied to a tile of its own."""
    squares = []
    for position in positions:
        k.session.position = position
        square, result = k.tile(128, 64), k.tile(128, 64)
        k.call("activation", square, source, None, 1.0, None, op=op)
        k.copy(result, square)
        squares.append(square)
    return squares


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


def transposes(k: Kernel, operand: str) -> None:
    """Two iterations of two of an inner loop, each of which transposes its tile for a product with another.

    The tiles of the inner iterations are the same in both outer ones.
    """
    tiles, shared = [k.tile(128, 128) for _ in range(2)], k.tile(128, 64)
    for tile in tiles:
        k.load(tile, k.hbm(128, 128))
    for outer in in_turns(k, 0, 7, 2):
        other = k.tile(128, 128)
        k.load(other, k.hbm(128, 128))
        for tile, position in zip(tiles, in_turns(k, outer, 8 + outer, 2), strict=True):
            k.session.position = position
            transpose, copied, product = k.psum(128, 128), k.tile(128, 128), k.psum(128, 128)
            k.call("nc_transpose", transpose, tile, engine="tensor")
            k.copy(copied, transpose)
            if operand == "in psum":
                k.copy(shared, columns(transpose, 0, 64))
            if operand == "stationary":
                k.matmul(product, copied, other)
            else:
                k.matmul(product, other, copied)


@pytest.mark.parametrize(
    ("operand", "transposed"),
    # once per tile; not as a part of a product; not where PSUM would keep a bank for another reader
    [("moving", 2), ("stationary", 4), ("in psum", 4)],
)
def test_transposes_that_an_outer_loop_repeats_are_done_once(operand: str, transposed: int) -> None:
    k = Kernel("trn1")
    transposes(k, operand)
    program = without_loop_invariants(k.program)
    assert names(program).count("nc_transpose") == transposed
    assert names(program).count("tensor_copy") == (6 if operand == "in psum" else transposed)
    assert names(program).count("nc_matmul") == 4


def test_without_nested_invariants_each_run_of_an_inner_loop_computes_its_own() -> None:
    k = Kernel("trn1")
    k.program.machine = k.program.machine.with_constants({"loop_invariants": 1}, "a test")
    transposes(k, "moving")
    assert without_loop_invariants(k.program) is k.program


def test_sums_that_fill_a_tile_smaller_than_what_they_add_up_are_computed_once() -> None:
    k = Kernel("trn2")
    source = k.tile(128, 64)
    k.load(source, k.hbm(128, 64))
    for position in in_turns(k, 0, 7, 3):
        k.session.position = position
        k.call("tensor_reduce", k.tile(128, 1), source, op="add", axis=1)
    assert names(without_loop_invariants(k.program)) == ["dma_copy", "tensor_reduce"]


@pytest.mark.parametrize("what", ["load", "to psum", "part", "fill", "in place", "register"])
def test_what_is_no_arithmetic_on_tiles_alone_is_repeated_in_each_turn(what: str) -> None:
    k = Kernel("trn2")
    source, x = k.tile(128, 64), k.hbm(128, 64)
    k.load(source, x)
    for position in in_turns(k, 0, 7, 2):
        k.session.position = position
        result = k.tile(128, 64)
        if what == "load":
            k.load(result, x)
        elif what == "to psum":
            k.copy(k.psum(128, 64), source)
        elif what == "part":
            k.copy(columns(result, 0, 32), columns(source, 0, 32))
        elif what == "fill":
            k.fill(result)
        elif what == "in place":
            k.copy(source, source)
        else:
            k.call(
                "activation",
                result,
                source,
                None,
                1.0,
                None,
                op="square",
                reduce_op="add",
                reduce_cmd="reduce",
            )
    assert without_loop_invariants(k.program) is k.program


def test_operands_that_change_in_the_loop_are_computed_with_again() -> None:
    k = Kernel("trn2")
    source = k.tile(128, 64)
    for position in in_turns(k, 0, 7, 2):
        k.session.position = position
        k.load(source, k.hbm(128, 64))
        squared(k, source, [position])
    assert without_loop_invariants(k.program) is k.program


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


def zero_fill(k: Kernel) -> None:
    psum = k.psum(128, 512)
    k.fill(psum)
    k.matmul(psum, k.tile(128, 128), k.tile(128, 512), accumulate=True)
    k.copy(k.tile(128, 512), psum)


def same_squares(k: Kernel) -> None:
    source = k.tile(128, 64)
    k.load(source, k.hbm(128, 64))
    squared(k, source, in_turns(k, 0, 7, 3))


def load_twice(k: Kernel) -> None:
    x = k.hbm(128, 64)
    for _ in range(2):
        tile = k.tile(128, 64)
        k.load(tile, x)
        k.copy(k.psum(128, 64), tile)


NOTES = {
    zero_fill: "1 fills with zeroes are left out: a product writes over them",
    # two squares, and two copies of them
    same_squares: "4 instructions are left out: their loop did the same before",
    load_twice: "1 loads are left out: SBUF has room for what an earlier one loaded",
}


@pytest.mark.parametrize("write", NOTES)
def test_each_transformation_of_beta_1_says_what_it_left_out(write) -> None:
    k = Kernel("trn2")
    write(k)
    k.program.compiler = MIDDLE_END
    shorter = compiled(k.program)
    assert shorter.notes == [NOTES[write]]
    assert len(k.program) - len(shorter) == int(NOTES[write].split()[0])


def test_what_several_transformations_left_out_stands_in_their_order() -> None:
    k = Kernel("trn2")
    k.program.notes.append("traced in turns")
    for write in reversed(NOTES):
        write(k)
    k.program.compiler = MIDDLE_END
    assert compiled(k.program).notes == ["traced in turns", *NOTES.values()]


def test_the_stand_alone_compiler_says_how_far_apart_the_loads_are_that_it_leaves_out() -> None:
    k = Kernel(replace(MACHINES["trn2"], redundant_load_window_bytes=assumed(3 * 1024, "a test")))
    for write in NOTES:
        write(k)
    k.program.compiler = STANDALONE
    shorter = compiled(k.program)
    assert shorter.notes == ["1 loads are left out: SBUF still held what they load, within 3 KiB"]
    assert len(k.program) - len(shorter) == 1


def test_a_compiler_without_a_window_leaves_the_program_as_it_is() -> None:
    k = Kernel(replace(MACHINES["trn2"], redundant_load_window_bytes=assumed(0, "a test")))
    for write in NOTES:
        write(k)
    k.program.compiler = STANDALONE
    assert compiled(k.program) is k.program


@pytest.mark.parametrize(
    ("switch", "changes"),
    [
        ("", []),
        ("block_tiles", ["tiles"]),
        ("spare_fills", ["memset"]),
        ("loop_invariants", ["activation", "tensor_copy"]),
        ("repeats_in_psum", ["tensor_copy"]),
        ("engine_choice", ["engines"]),
        ("static_descriptors", ["descriptors"]),
        ("resident_loads", ["dma_copy"]),
    ],
)
def test_each_transformation_is_made_where_its_constant_says(switch: str, changes: list[str]) -> None:
    k = Kernel("trn2")
    block, product, source = k.tile(128, 2, 64), k.psum(128, 512), k.hbm(128, 64)
    for number in (0, 1):
        k.fill(part(block, (0, 128), (number, number + 1), (0, 64)))
    k.fill(product)
    k.matmul(product, k.tile(128, 128), k.tile(128, 512))
    repeated(k, "tensor_tensor")
    for _ in range(2):
        k.load(k.tile(128, 64), source)
    k.copy(k.tile(128, 512), k.tile(128, 512), engine="unknown")
    squared(k, k.tile(128, 64), in_turns(k, 0, 7, 2))
    k.program.compiler = MIDDLE_END
    constants = {name: int(name == switch) for name, _, _ in PASSES[MIDDLE_END]}
    k.program.machine = k.program.machine.with_constants(constants, "a test")
    program = compiled(k.program)
    before, after = k.program.opcodes(), program.opcodes()
    fewer = [name for name in sorted(before) if after.get(name, 0) < before[name]]
    others = {
        "tiles": len(program.storages) > len(k.program.storages),
        "engines": not fewer and engines(program) != engines(k.program),
        "descriptors": program.has_static_descriptors,
    }
    assert [*fewer, *(name for name, is_so in others.items() if is_so)] == changes
    assert (program is k.program) == (not changes)


@pytest.mark.parametrize(("choice", "expected"), [(0, "vvvv"), (1, "vsvv")])
def test_the_back_end_alone_chooses_engines_where_its_constant_says(choice: int, expected: str) -> None:
    k = copies("unknown", 4)
    k.program.compiler = AS_WRITTEN
    constants = {"engine_choice": 1 - choice, "engine_choice_as_written": choice}
    k.program.machine = k.program.machine.with_constants(constants, "a test")
    assert engines(compiled(k.program)) == expected
