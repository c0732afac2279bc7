"""Mappings as points: what the proof refuses is never timed, and what was compiled is not compiled again."""

from __future__ import annotations

import pytest

from nkilab.einsum import compile, search
from nkilab.einsum.search import PlanObjective, Plans
from nkilab.einsum.sets import ProofError
from nkilab.machine import machine_named

PRODUCT = """\
einsum:
  declaration:
    A: [K, M]
    B: [K, N]
    Z: [M, N]
  expressions:
  - Z[m, n] = A[k, m] . B[k, n] ;; M mul V add
"""
SIZES = {"K": 256, "M": 256, "N": 1024}


@pytest.fixture
def objective() -> PlanObjective:
    return PlanObjective(Plans(compile(PRODUCT, sizes=SIZES)))


def test_a_kernel_that_the_proof_refuses_is_pruned(
    objective: PlanObjective, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise ProofError("Z_sum does not take up every value of k")

    monkeypatch.setattr(search, "proved", refused)
    results = objective.evaluate({"most_columns": 512})
    assert (results.state, results.reason) == ("pruned", "ProofError")
    assert results.message == "Z_sum does not take up every value of k"


def test_choices_are_compiled_once_whatever_the_chip_s_constants(
    objective: PlanObjective, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = objective.evaluate({"most_columns": 512})

    def again(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(search, "lower", again)
    assert objective.under(machine_named("trn2")).evaluate({"most_columns": 512}).values == first.values
