"""What the compiler does to engines and buffers, by hand."""

from __future__ import annotations

import pytest

from nkilab.place import plan
from nkilab.place.balance import balanced
from nkilab.place.buffers import buffer_edges
from nkilab.place.compiled import MIDDLE_END, STANDALONE, compiled
from nkilab.place.slots import slots_of
from nkilab.trace.program import Program
from tests.place.handmade import Kernel


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
    placed = plan(through_one_line(6, 1).program)
    assert placed.waits.of(4) == []
    assert placed.waits.of(6) == [(1, "reuse")]
