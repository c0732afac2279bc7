"""What statements cost is what their instructions are declared to cost: nothing is priced twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from nkilab.einsum.hardware import Hardware
from nkilab.einsum.tree.expr import ZERO, expr, name_of
from nkilab.einsum.tree.nodes import (
    PSUM,
    SBUF,
    Buffer,
    Copy,
    Cut,
    Loop,
    MatMul,
    Reduce,
    View,
    statements,
    weighted,
)
from nkilab.errors import LimitError
from nkilab.isa.declare import Step
from nkilab.machine import MACHINES
from tests.einsum.baseline import Subject, subjects, traced_program

pytestmark = pytest.mark.corpus

TRN2 = MACHINES["trn2"]
SIZES = ("one", "ragged", "real")
CHOSEN = [s for s in subjects() if s.size in SIZES and (s.dtype, s.dialect) == ("bfloat16", "nki")]


def part(name: str, rows: int, columns: int, memory: str = SBUF, dtype: str = "float32") -> View:
    """A whole tile."""
    buffer = Buffer(name, (rows, columns), dtype, memory)
    return View(buffer, (Cut(ZERO, expr(rows)), Cut(ZERO, expr(columns))))


@pytest.mark.parametrize("subject", CHOSEN, ids=lambda s: s.key)
def test_the_price_of_a_kernel_is_the_steps_of_its_program(subject: Subject) -> None:
    kernel = subject.compiled()
    assert kernel.tree is not None
    if any(isinstance(s, Loop) and s.count_name for s in statements(kernel.tree.body)):
        pytest.skip("a ragged tile is priced as a full one")
    hardware, priced = Hardware(kernel.machine), Counter[Step]()
    for statement, times in weighted(kernel.tree.body):
        for step in hardware.steps(statement):
            priced[step] += times
    program = traced_program(kernel.source, kernel.specs, kernel.name)[0]
    assert priced == Counter(s for form in program.form_column.tolist() for s in program.forms[form].steps)


def test_a_copy_out_of_psum_costs_what_the_manual_says() -> None:
    # 512 float32 columns, one per cycle at 0.96 GHz, and 40 ns; ScalarE at 1.2 GHz, and 115 ns
    copy = Copy(part("to", 128, 512), part("from", 128, 512, PSUM))
    hardware = Hardware(TRN2)
    assert hardware.of(copy) == ("vector", pytest.approx(512 / 0.96 + 40))
    assert hardware.of(replace(copy, engine="scalar")) == ("scalar", pytest.approx(512 / 1.2 + 115))


def test_a_ragged_tile_is_priced_as_the_smallest_tile_that_takes_it() -> None:
    count = name_of("m_count")
    source, target = part("from", 128, 512, PSUM), part("to", 128, 256)
    rows, columns = Cut(ZERO, expr(128)), Cut(ZERO, count)
    ragged = Copy(replace(target, index=(rows, columns)), replace(source, index=(rows, columns)))
    whole = Copy(target, replace(source, index=(rows, Cut(ZERO, expr(256)))))
    assert Hardware(TRN2).steps(ragged) == Hardware(TRN2).steps(whole)


def test_what_no_instruction_does_has_no_price() -> None:
    stationary, moving = part("a", 128, 128), part("b", 128, 1024)
    with pytest.raises(LimitError, match="N is 1024; trn2 allows 512"):
        Hardware(TRN2).steps(MatMul(part("c", 128, 1024, PSUM), stationary, moving, ()))


def test_equal_statements_are_priced_once() -> None:
    hardware = Hardware(TRN2)
    first = hardware.steps(Reduce(part("a", 128, 1), "add", part("b", 128, 64)))
    assert hardware.steps(Reduce(part("c", 128, 1), "add", part("d", 128, 64))) is first
    assert hardware.steps(Reduce(part("c", 128, 1), "add", part("d", 128, 65))) is not first
