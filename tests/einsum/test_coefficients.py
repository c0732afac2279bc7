"""Rules that shorten what an iteration does to its state: a form has the value of its operators in turn."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nkilab.einsum.language.ast import Scalar
from nkilab.einsum.rewrite.coefficients import Applied, Coefficient, Form, Step, factor, number, together

Rows = list[tuple[str, Coefficient, bool]]
FUNCTIONS = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
             "subtract": np.subtract, "divide": np.divide, "greater": np.greater}  # fmt: skip
NAMES = {"p": 0.5, "q": -2.0, "r": 3.0, "s": -0.25}
VALUES = st.sampled_from([factor(Scalar(name=n)) for n in NAMES] + [number(2.0), number(-1.0)])
ROWS = st.lists(st.tuples(st.sampled_from(sorted(FUNCTIONS)), VALUES, st.booleans()), max_size=5)


def value_of(coefficient: Coefficient) -> float:
    """A coefficient with numbers for its names."""
    total = 0.0
    for factors, scale in coefficient.terms:
        for one in factors:
            scale *= applied(one) if isinstance(one, Applied) else NAMES[one.name]
        total += scale
    return total


def applied(value: Applied) -> float:
    operands = [value_of(o) for o in value.operands]
    return 1 / operands[0] if value.op == "reciprocal" else FUNCTIONS[value.op](*operands)


def stepped(steps: tuple[Step, ...], state: np.ndarray) -> np.ndarray:
    """The operators of a form, one after the other."""
    for step in steps:
        sides = (value_of(step.by), state) if step.is_reversed else (state, value_of(step.by))
        state = FUNCTIONS[step.op](*sides) * 1.0
    return state


def formed(rows: Rows, state: np.ndarray) -> tuple[Form, np.ndarray]:
    """The form of some operators, and what they make of a state; none divides by the state."""
    form = Form()
    for op, by, is_reversed in rows:
        is_reversed &= op != "divide"
        form = form.then(op, by, is_reversed)
        sides = (value_of(by), state) if is_reversed else (state, value_of(by))
        state = FUNCTIONS[op](*sides) * 1.0
    return form, state


STATES = np.array([-7.0, -1.0, -0.3, 0.0, 0.2, 1.0, 5.0])


@given(ROWS)
def test_a_form_is_its_operators_one_by_one(rows: Rows) -> None:
    form, expected = formed(rows, STATES)
    np.testing.assert_allclose(stepped(form.steps, STATES), expected, rtol=1e-12, atol=1e-12)
    assert len(form.steps) <= len(rows) + 1


@given(st.sampled_from(["add", "subtract", "maximum", "minimum"]), ROWS, ROWS)
def test_two_forms_of_one_state_are_one(op: str, one: Rows, two: Rows) -> None:
    inner = "multiply" if op in ("add", "subtract") else "add"
    outer = "add" if op in ("add", "subtract") else op
    left, right = (formed([r for r in rows if r[0] in (inner, outer)], STATES) for rows in (one, two))
    form = together(op, left[0], right[0])
    np.testing.assert_allclose(stepped(form.steps, STATES), FUNCTIONS[op](left[1], right[1]), atol=1e-9)


def test_neither_order_nor_spelling_matters() -> None:
    p, q = factor(Scalar(name="p")), factor(Scalar(name="q"))
    assert (p * q).terms == (q * p).terms
    # s + q (p - s) is s (1 - q) + p q
    moved = Form().then("subtract", p, True).then("multiply", q)
    assert together("add", Form(), moved) == Form().then("multiply", number(1.0) + -q).then("add", q * p)
    # x + s - x is s
    assert Form().then("add", p).then("subtract", p) == Form()
