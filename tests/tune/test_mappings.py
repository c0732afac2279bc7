"""Mappings as points: what the proof refuses is never timed, and what was compiled is not compiled again."""

from __future__ import annotations

from pathlib import Path

import pytest

from nkilab.einsum.sets import ProofError
from nkilab.machine import machine_named
from nkilab.tune import mappings
from nkilab.tune.mappings import MappingObjective

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
def objective(tmp_path: Path) -> MappingObjective:
    (tmp_path / "product.yaml").write_text(PRODUCT, encoding="utf-8")
    return MappingObjective(tmp_path / "product.yaml", SIZES)


def test_a_kernel_that_the_proof_refuses_is_pruned(
    objective: MappingObjective, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise ProofError("Z_sum does not take up every value of k")

    monkeypatch.setattr(mappings, "proved", refused)
    results = objective.evaluate({"most_columns": 512})
    assert (results.state, results.reason) == ("pruned", "ProofError")
    assert results.message == "Z_sum does not take up every value of k"


def test_choices_are_compiled_once_whatever_the_chip_s_constants(
    objective: MappingObjective, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = objective.evaluate({"most_columns": 512})

    def again(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(mappings, "lower", again)
    assert objective.under(machine_named("trn2")).evaluate({"most_columns": 512}).values == first.values
