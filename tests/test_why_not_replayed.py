"""NKILAB_EXPLAIN=1 says why launches that repeat run the kernel anew."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from nkilab import api, tapes
from tests.test_tapes import module, x_of


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            "print('here')\nreturn scaled(x, 2.0)",
            "it prints, uses random numbers, or changes something",
        ),
        ("import os\nreturn scaled(x, float(len(os.environ)))", "it prints, uses random numbers, or"),
        (
            "own = np\nreturn scaled(x, float(own.load('factor.npy')))",
            "what it reads, or an argument, cannot be",
        ),
        ("print(np.asarray(x))\nreturn scaled(x, 2.0)", "it prints, uses random numbers, or"),
        ("str(x)\nreturn scaled(x, 2.0)", "it looks at the elements of x: float32[4, 6] in hbm"),
        ("nisa.dma_copy(x, scaled(x, 2.0))\nreturn x", "it writes to an input"),
        ("nisa.register_alloc(1)\nreturn scaled(x, 2.0)", "it has registers"),
        (
            """
            count = nisa.register_alloc(2)
            y = x
            for _ in nl.dynamic_range(0, count):
                y = scaled(y, 2.0)
            return y
            """,
            "it looks at the elements of a register",
        ),
        ("return {'result': scaled(x, 2.0)}", "it returns something else than tensors"),
        ("return scaled(x, 2.0), 3", "it returns something else than tensors"),
    ],
)
def test_the_reason_is_told_once(
    body: str, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    monkeypatch.setenv("NKILAB_EXPLAIN", "1")
    monkeypatch.setattr(api.WORLD, "_noticed", set())
    kernel = module(body).kernel
    for _ in range(2):
        try:
            kernel(x_of(0))
        except FileNotFoundError:
            assert "load" in body
    lines = [line for line in capsys.readouterr().err.splitlines() if "runs as Python" in line]
    assert len(lines) == 1
    assert lines[0].startswith(
        f"nkilab: notice: kernel runs as Python at each launch, not from its tape: {why}"
    )


def test_nothing_is_told_of_a_kernel_that_is_replayed_nor_without_being_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    tapes.forget_tapes()
    module("print(end='')\nreturn scaled(x, 2.0)").kernel(x_of(0))
    monkeypatch.setenv("NKILAB_EXPLAIN", "1")
    kernel = module("return scaled(x, 2.0)").kernel
    for n in range(3):
        np.testing.assert_array_equal(kernel(x_of(n)), x_of(n) * 2)
    assert "runs as Python" not in capsys.readouterr().err
