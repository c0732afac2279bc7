"""Search over choices, and outputs that may lie either way round."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import nkilab.einsum
from nkilab.einsum.language.forms import spec_from
from nkilab.einsum.search import candidates

TURN = "Z[n, m] = A[m, n] ;; M unary(exp)"


def test_a_search_finds_nothing_slower_than_the_rules() -> None:
    sizes = {"I": 512, "J": 512, "K": 512}
    plain = nkilab.einsum.compile("ij,jk->ik", sizes=sizes)
    found = nkilab.einsum.compile("ij,jk->ik", sizes=sizes, search=1.0)
    assert found.estimate.latency_us <= plain.estimate.latency_us
    assert any(line.startswith("by the rules: ") for line in found.alternatives)
    assert found.notes[-1].startswith("searched ")


def test_candidates_come_in_one_order_the_rules_first() -> None:
    assert list(candidates()) == list(candidates())
    assert str(next(candidates())) == "by the rules"


def test_an_output_in_any_layout_takes_the_cheaper_one_and_calls_turn_it_back() -> None:
    spec = replace(spec_from(TURN), any_layout=frozenset({"Z"}))
    sizes = {"M": 1024, "N": 1024}
    free, fixed = nkilab.einsum.compile(spec, sizes=sizes), nkilab.einsum.compile(TURN, sizes=sizes)
    assert free.transposed == {"Z"}
    assert free.estimate.latency_us < fixed.estimate.latency_us
    assert free.notes[-1].endswith("taken: transposed, and the host transposes back")
    a = np.random.default_rng(0).standard_normal((1024, 1024))
    # one rounding of the input, one of the function, to float32
    np.testing.assert_allclose(free(a), np.exp(a).T, rtol=1e-6)
    assert not [str(v) for v in free.verify() if not v.is_fine]
