"""What the predicated, scanning, searching and shuffling instructions of VectorE occupy it for."""

from __future__ import annotations

import pytest

from nkilab.isa import REGISTRY
from nkilab.machine import MACHINES
from tests.isa.facts import VECTOR_FACTS, CostFact
from tests.uses import form_of, smallest_use


@pytest.mark.parametrize("fact", VECTOR_FACTS, ids=lambda f: f"{f.chip}-{f.instruction}-{f.source}")
def test_an_instruction_occupies_vector_engine_for_the_documented_cycles(fact: CostFact) -> None:
    cls = REGISTRY[fact.instruction]
    form = form_of(cls, MACHINES[fact.chip], smallest_use(cls, fact.changes))
    assert [step.engine for step in form.steps] == ["vector"]
    assert [step.busy_ns for step in form.steps] == pytest.approx(fact.busy_ns)


def test_reading_row_results_out_is_a_second_instruction_of_64_cycles() -> None:
    # 2.26 costs, tensor_scalar_reduce: max(MIN_II, N) + MIN_II; trn1 guide: 60 cycles to access a tensor
    cls = REGISTRY["tensor_scalar_reduce"]
    use = smallest_use(cls, {"F": 512, "reduce_res.dtype": "float32"})
    first, second = form_of(cls, MACHINES["trn1"], use).steps
    assert first.busy_ns == pytest.approx(572 / 1.12)
    assert second.busy_ns == pytest.approx(64 / 1.12)


def test_a_power_of_e_takes_a_quarter_of_a_cycle_per_element() -> None:
    # trn3 guide: four times the throughput of ScalarE
    cls = REGISTRY["exponential"]
    (step,) = form_of(cls, MACHINES["trn3"], smallest_use(cls, {"F": 1024})).steps
    assert step.busy_ns == pytest.approx(256 / 1.2 + 32)


@pytest.mark.parametrize("name", ["select_reduce", "tensor_scalar_cumulative", "exponential"])
def test_a_cost_without_a_table_widens_the_interval(name: str) -> None:
    assert form_of(REGISTRY[name], MACHINES["trn3"], smallest_use(REGISTRY[name])).steps[0].widening == 2.0


@pytest.mark.parametrize(("chip", "widening"), [("trn1", 1.0), ("trn2", 2.0), ("trn3", 2.0)])
def test_the_table_of_predicated_copies_is_sure_for_trn1_alone(chip: str, widening: float) -> None:
    cls = REGISTRY["tensor_copy_predicated"]
    assert form_of(cls, MACHINES[chip], smallest_use(cls)).steps[0].widening == widening
