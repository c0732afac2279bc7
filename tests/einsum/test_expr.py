"""Whole numbers that kernels compute: values by hand, texts that Python evaluates to them."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkilab.einsum.tree.expr import Expr, at_most, expr, name_of
from tests.examples import examples

NAMES = {"a": 7, "b": 3, "c": 100}
exprs = st.recursive(
    st.integers(-5, 5).map(expr) | st.sampled_from(sorted(NAMES)).map(name_of),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] * p[1]),
        st.tuples(inner, st.integers(1, 9)).map(lambda p: p[0] // p[1]),
        st.tuples(inner, st.integers(1, 9)).map(lambda p: p[0] % p[1]),
        st.tuples(st.integers(-9, 9), inner).map(lambda p: at_most(*p)),
    ),
    max_leaves=8,
)


@settings(max_examples=examples(200), deadline=None)
@given(exprs)
def test_the_text_has_the_value(value: Expr) -> None:
    assert eval(str(value), {"min": min}, dict(NAMES)) == value.at(NAMES)


# sums of a few products of few names, which stand in a product several times, as sizes of square tensors do
products = st.lists(st.sampled_from(sorted(NAMES)), max_size=4).map(
    lambda n: prod(map(name_of, n), start=expr(1))
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(products, st.integers(1, 2)), min_size=2, max_size=4))
def test_the_text_of_powers_has_the_value(terms: list[tuple[Expr, int]]) -> None:
    value = sum((product * count for product, count in terms), expr(0))
    assert eval(str(value), {"min": min}, dict(NAMES)) == value.at(NAMES)


@settings(max_examples=examples(100), deadline=None)
@given(exprs)
def test_names_inside_of_quotients_are_replaced_too(value: Expr) -> None:
    replaced = value.replaced({"a": name_of("b") + 4})
    assert "a" not in replaced.names
    assert replaced.at(NAMES) == value.at({**NAMES, "a": 7})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (name_of("n") // 128, "n // 128"),
        ((name_of("n") + 127) // 128, "(n + 127) // 128"),
        ((name_of("n") // 128) * 128 + 1, "(n // 128) * 128 + 1"),
        (name_of("i") % 2, "i % 2"),
        (at_most(128, 300 - name_of("m") * 128), "min(128, 300 - m * 128)"),
        (name_of("z") * 4 + name_of("a") + name_of("m") * 64, "m * 64 + z * 4 + a"),
        (-1 * name_of("a"), "-a"),
        ((name_of("n") * 256) // 128, "n * 2"),
        (expr(7) // 2, "3"),
        # by hand: d, D, D times something is one factor more than D, D and others, but not what those have
        (name_of("d") * name_of("D") + name_of("a") * name_of("D") * name_of("D"), "D * D * a + D * d"),
        (name_of("a") * name_of("D") * name_of("D") + name_of("D") * name_of("D"), "(a + 1) * D * D"),
    ],
)
def test_texts(value: Expr, text: str) -> None:
    assert str(value) == text
