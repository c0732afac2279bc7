"""Sums over few values, in wide tiles, begin with the first value and not with zeros."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.plan.peeled import without_ragged_turns
from nkilab.einsum.tree.expr import ZERO, at_most, expr, name_of
from nkilab.einsum.tree.nodes import PSUM, SBUF, At, Buffer, Cut, Loop, MatMul, Statement, View
from nkilab.einsum.tree.rewrite import Change, view_of

TAPS = "Z[c, t] = X[c, t + r] . F[c, r] ;; M mul V add"
POOL = "Z[c, p, q] = X[c, 2*p + r, 2*q + s] ;; V max"
POOLED = {"C": 128, "P": 24, "Q": 20, "R": 2, "S": 2, "X_1": 48, "X_2": 40}


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_taps_of_a_filter_are_added_to_the_first(dialect: str) -> None:
    kernel = einsum.compile(TAPS, sizes={"C": 128, "T": 600, "R": 3, "X_1": 602}, dialect=dialect)
    assert "memset" not in kernel.source
    random = np.random.default_rng(4)
    x, f = (random.normal(size=s).astype(np.float32) for s in ((128, 602), (128, 3)))
    inputs = {"X": x, "F": f}
    result = np.asarray(kernel.kernel(*(inputs[name] for name in kernel.inputs)))
    wanted = sum(x[:, r : r + 600] * f[:, r : r + 1] for r in range(3))
    assert np.abs(result - wanted).max() <= 1e-5


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_the_largest_of_a_window_has_the_type_of_what_it_is_taken_from(dialect: str, dtype: str) -> None:
    kernel = einsum.compile(POOL, sizes=POOLED, dialect=dialect, dtypes={"X": dtype, "Z": dtype})
    assert "memset" not in kernel.source
    assert dtype == "float32" or "float32" not in kernel.source
    # whole numbers up to 256 have a bfloat16 of their own
    x = np.random.default_rng(5).integers(-256, 257, (128, 48, 40)).astype(np.float32)
    if dtype == "bfloat16":
        x = x.astype(pytest.importorskip("ml_dtypes").bfloat16)
    result = np.asarray(kernel.kernel(x)).astype(np.float32)
    assert np.array_equal(result, x.astype(np.float32).reshape(128, 24, 2, 20, 2).max((2, 4)))


@pytest.mark.parametrize(("taps", "width"), [(12, 600), (3, 40)])
def test_long_loops_and_narrow_tiles_keep_their_zeros(taps: int, width: int) -> None:
    kernel = einsum.compile(TAPS, sizes={"C": 128, "T": width, "R": taps, "X_1": width + taps - 1})
    assert "memset" in kernel.source


def test_a_last_turn_with_fewer_elements_stands_behind_its_loop() -> None:
    count = at_most(128, 300 - name_of("j") * 128)
    psum, left, right = (
        Buffer(n, (128, 3, 300), "float32", m) for n, m in (("z", PSUM), ("a", SBUF), ("b", SBUF))
    )
    rows = Cut(ZERO, name_of("j_count"))
    into, a, b = View(psum, (Cut(ZERO, expr(128)), At(ZERO), Cut(ZERO, expr(128)))), *(
        View(t, (rows, At(name_of("j")), Cut(ZERO, expr(128)))) for t in (left, right))  # fmt: skip
    inner = Loop("j", 3, [MatMul(into, a, b, ("j",))], count_name="j_count", count=count)
    body: list[Statement] = [Loop("i", 4, [inner])]
    without_ragged_turns(body, str.upper)
    (outer,) = body
    assert isinstance(outer, Loop)
    full, last = outer.body
    assert isinstance(full, Loop)
    assert (full.trips, full.count_name) == (2, "")
    assert isinstance(last, MatMul)
    # it adds to what the turns before have come to
    assert (last.is_begun, last.over) == (True, ())
    assert [last.moving.index[0], last.moving.index[1]] == [Cut(ZERO, expr(44)), At(expr(2))]
    # a ragged loop around, whose transfers are never one, leaves it as it is
    ragged = replace(inner, variable="i", count_name="i_count", body=[inner])
    without_ragged_turns([ragged], str.upper)
    assert ragged.body == [inner]


def test_counts_of_axes_that_a_view_repeats_are_replaced_in_copies() -> None:
    tile = Buffer("a", (128, 8), "float32", SBUF)
    view = View(tile, (Cut(ZERO, expr(128)), Cut(ZERO, expr(8))), order=(0, 1, name_of("n")))
    copy = view_of(view, Change({"n": expr(3)}, lambda changed: changed, {}))
    assert copy.order == (0, 1, expr(3))
