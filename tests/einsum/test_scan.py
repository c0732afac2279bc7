"""Blocks whose turns only combine with one state run as scans, and windows are loaded once."""

from __future__ import annotations

import re

import numpy as np
import pytest

from nkilab import einsum

RUNNING = """
einsum:
  declaration: {{A: [{axes}], S: [{states}]}}
  expressions:
    - S[{first}] = const({start})
    - iterate: i
      body: ["S[{after}] = {operands} ;; M {op}"]
  shape: {{I: {turns}, I1: {more}, M: {rows}}}
"""
OPERATIONS = {
    "add": (0, np.cumsum),
    "mul": (1, np.cumprod),
    "max": (-3, np.maximum.accumulate),
    "min": (3, np.minimum.accumulate),
}


def running(op: str, turns: int, rows: int, is_turned: bool = False, is_new_first: bool = False) -> str:
    """A specification of a running operation over I, with I outside or inside in memory."""
    new, old = ("A[m, i]", "S[m, i]") if is_turned else ("A[i, m]", "S[i, m]")
    return RUNNING.format(
        axes="M, I" if is_turned else "I, M",
        states="M, I1" if is_turned else "I1, M",
        first="m, 0" if is_turned else "0, m",
        after="m, i+1" if is_turned else "i+1, m",
        operands=f"{new} . {old}" if is_new_first else f"{old} . {new}",
        start=OPERATIONS[op][0], op=op, turns=turns, more=turns + 1, rows=rows,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("op", "turns", "rows", "is_turned", "dialect"),
    [("add", 640, 128, False, "nki"), ("add", 131, 257, False, "neuronxcc"), ("add", 512, 3, True, "nki"),
     ("max", 600, 130, True, "neuronxcc"), ("min", 37, 1, False, "nki"), ("mul", 40, 5, False, "nki"),
     ("add", 2, 128, False, "nki")],
)  # fmt: skip
def test_a_running_operation_is_a_scan(op: str, turns: int, rows: int, is_turned: bool, dialect: str) -> None:
    kernel = einsum.compile(running(op, turns, rows, is_turned), dialect=dialect)
    shape = (rows, turns) if is_turned else (turns, rows)
    a = np.random.default_rng(7).uniform(0.5, 1.5, shape).astype(np.float32)
    a -= 0 if op == "mul" else 1
    axis = 1 if is_turned else 0
    start, accumulate = OPERATIONS[op]
    first = np.full((rows, 1) if is_turned else (1, rows), start, np.float64)
    expected = accumulate(np.concatenate([first, a.astype(np.float64)], axis), axis=axis)
    np.testing.assert_allclose(kernel(a), expected, rtol=1e-4, atol=1e-4)
    if rows > 1:
        # an instruction per 512 turns, not per turn
        assert "tensor_tensor_scan" in kernel.source
    if turns < 200:
        for verdict in kernel.verify():
            assert verdict.is_fine, verdict


def test_the_new_operand_may_stand_first() -> None:
    kernel = einsum.compile(running("add", 600, 128, is_new_first=True))
    assert "tensor_tensor_scan" in kernel.source
    a = np.random.default_rng(8).standard_normal((600, 128)).astype(np.float32)
    np.testing.assert_allclose(kernel(a)[1:], a.cumsum(0, dtype=np.float64), atol=1e-3)


def test_a_difference_is_no_scan() -> None:
    text = running("add", 20, 4, is_new_first=True).replace("M add", "M binary(subtract)")
    kernel = einsum.compile(text)
    assert "tensor_tensor_scan" not in kernel.source
    a = np.random.default_rng(9).standard_normal((20, 4)).astype(np.float32)
    difference, expected = np.zeros(4), [np.zeros(4)]
    for row in a.astype(np.float64):
        difference = row - difference
        expected.append(difference)
    np.testing.assert_allclose(kernel(a), np.array(expected), atol=1e-4)


def test_windows_are_loaded_once() -> None:
    kernel = einsum.compile(
        "M[k, u, v] = Y[k, 2*u + i, 2*v + j] ;; V max",
        sizes={"K": 130, "U": 7, "V": 9, "I": 2, "J": 2},
        shapes={"Y": (130, 14, 18)},
    )
    y = np.random.default_rng(5).standard_normal((130, 14, 18)).astype(np.float32)
    np.testing.assert_array_equal(kernel(y), y.reshape(130, 7, 2, 9, 2).max((2, 4)))
    # rows as they lie in HBM: no transfer picks single elements
    loads = re.findall(r"src=Y\[([^\]]*)\]", kernel.source)
    assert len(loads) == 1
    assert loads[0].endswith("0:18")
