"""Specifications with a mapping of their own."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

import nkilab.einsum
from nkilab.errors import SpecError
from tests.einsum.mapped import SCALED_SUM
from tests.einsum.renaming import shape_of
from tests.examples import examples

dialects = pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])


@dialects
def test_a_mapped_kernel_is_right(dialect: str) -> None:
    kernel = nkilab.einsum.compile(SCALED_SUM, dialect=dialect, sizes={"K1": 3})
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 128)), rng.standard_normal((3, 128, 64))
    t = np.einsum("ak,akn->n", a, b)
    # two roundings of inputs to float32, and a sum of 384 products
    np.testing.assert_allclose(kernel(a, b), t * t - t, rtol=0, atol=1e-5 * np.abs(t * t).max())


@dialects
def test_the_loops_are_those_of_the_mapping(dialect: str) -> None:
    source = nkilab.einsum.compile(SCALED_SUM, dialect=dialect).source
    assert [line.split()[1] for line in source.splitlines() if line.strip().startswith("for ")] == ["as_k1"]
    assert "def scaled_sum(AH, BH, K1):" in source


def test_a_repair_is_told_and_refused_under_strict() -> None:
    sentence = "TS adds up over the loop AS.K1, so its turns depend on one another"
    (finding,) = [f for f in nkilab.einsum.compile(SCALED_SUM).repairs if f.row.id == "carried-loop"]
    assert str(finding) == f"28:14: mapping.loop-order.TS[0]: {sentence}"
    assert finding.taken == "the loop runs in order"
    with pytest.raises(SpecError, match=sentence):
        nkilab.einsum.compile(SCALED_SUM, strict=True)


def shuffled(value: object, rng: random.Random) -> object:
    """The same YAML with the keys of every mapping in another order."""
    if isinstance(value, dict):
        keys = list(value)
        rng.shuffle(keys)
        return {k: shuffled(value[k], rng) for k in keys}
    return [shuffled(v, rng) for v in value] if isinstance(value, list) else value


def text_of(value: object) -> str:
    stream = io.StringIO()
    YAML(typ="safe").dump(value, stream)
    return stream.getvalue()


@settings(max_examples=examples(5), deadline=None)
@given(st.integers(0, 2**16))
def test_the_order_of_keys_changes_nothing(seed: int) -> None:
    document = YAML(typ="safe").load(SCALED_SUM)
    declaration = document["einsum"].pop("declaration")
    rest = shuffled(document, random.Random(seed))
    # the declaration's order is that of the arguments
    rest["einsum"]["declaration"] = declaration
    assert nkilab.einsum.compile(text_of(rest)).source == nkilab.einsum.compile(SCALED_SUM).source


@settings(max_examples=examples(5), deadline=None)
@given(st.permutations(["AS.K1", "BS.K1", "TP.K1", "TS.K1"]), st.booleans())
def test_the_order_of_a_fusion_group_names_the_loop_alone(members: list[str], splits: bool) -> None:
    document = YAML(typ="safe").load(SCALED_SUM)
    document["binding"]["fusion"][0]["ranks"] = [members, *([["ZH.N0"]] if splits else [])]
    other = nkilab.einsum.compile(text_of(document)).source
    assert shape_of(other) == shape_of(nkilab.einsum.compile(SCALED_SUM).source)
    assert f"for {members[0].lower().replace('.', '_')} in" in other


@settings(max_examples=examples(8), deadline=None)
@given(st.permutations(range(5)))
def test_renaming_ranks_and_tensors_keeps_the_kernel(order: list[int]) -> None:
    letters = [f"{c}{c}" for c in "PQRST"]
    m, n, k = (letters[i] for i in order[:3])
    a, b, c = m.lower(), n.lower(), k.lower()
    text = f"Z[{a}, {b}] = A[{c}, {a}] . B[{c}, {b}] ;; M mul V add"
    kernel = nkilab.einsum.compile(text, sizes={m: 131, n: 600, k: 137})
    plain = nkilab.einsum.compile(
        "Z[m, n] = A[k, m] . B[k, n] ;; M mul V add", sizes={"M": 131, "N": 600, "K": 137}
    )
    assert shape_of(kernel.source) == shape_of(plain.source)
