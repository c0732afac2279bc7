"""Trees whose turns hand on other values than the compiler meant are refused: each has one change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import nkilab.einsum
from nkilab.einsum.language.operators import OPERATORS
from nkilab.einsum.reaching import proved_order
from nkilab.einsum.room import views_of
from nkilab.einsum.sets import ProofError
from nkilab.einsum.tolerance import applied, bounds
from nkilab.einsum.tree import nodes
from nkilab.einsum.tree.expr import Atom, Expr, expr, name_of
from nkilab.einsum.tree.nodes import Loop, Statement
from nkilab.einsum.tree.rewrite import Change, copied
from tests.einsum.test_prove import tree_of

# two blocks of rows, and of 1,300 columns two times 650
SCAN = "S[0, m] = 0\nS[t+1, m] = S[t, m] + A[t, m]\nZ[m] = S[T, m]", {"M": 200, "T": 1300}
# a state that a sum of its turn reads
STATE = (
    "X[0, m] = B[m]\nY[t, m] = sum(A[m, k] * X[t, k], k)\nX[t+1, m] = X[t, m] + Y[t, m]\nZ[m] = X[T, m]",
    {"M": 40, "T": 5, "K": 40},
)
Body = list[Statement]
LEFT = "what another turn left than the one that it says"


def body_of(text: str, sizes: dict[str, int]) -> Body:
    return tree_of(text, **sizes).body


def around(body: Body, variable: str) -> tuple[Body, int]:
    """The body that has a loop, and the loop's place in it."""
    bodies = [body, *(s.body for s in nodes.statements(body) if isinstance(s, Loop))]
    places = (
        (b, n) for b in bodies for n, s in enumerate(b) if isinstance(s, Loop) and s.variable == variable
    )
    return next(places)


def writing(body: Body, name: str) -> int:
    """The place of the last statement of a body that writes a buffer of a name."""
    own = [
        n for n, s in enumerate(body) for field, v in views_of(s) if field == "dst" and v.buffer.name == name
    ]
    return own[-1]


def at(names: dict[Atom, Expr], *part: Statement) -> Body:
    """Statements with numbers for names of loops."""
    return copied(part, Change(names, lambda view: view, {}))


def turns_of(body: Body) -> Body:
    """What every turn of t does."""
    outer, place = around(body, "t")
    return outer[place].body  # type: ignore[attr-defined, no-any-return]


def is_not_written(body: Body, name: str = "s_carry") -> None:
    inner = turns_of(body)
    del inner[writing(inner, name)]


def is_begun_for_all_rows(body: Body) -> None:
    outer, place = around(body, "m")
    inner = outer[place].body  # type: ignore[attr-defined]
    fill = inner.pop(writing(inner, "s_carry"))
    alloc = next(s for s in inner if isinstance(s, nodes.Alloc) and s.buffer.name == "s_carry")
    inner.remove(alloc)
    outer[place:place] = [alloc, *at({"m": expr(0), "m_count": expr(128)}, fill)]


def is_written_behind_the_loop(body: Body) -> None:
    outer, place = around(body, "t")
    inner = outer[place].body  # type: ignore[attr-defined]
    states = next(s for s in inner if isinstance(s, nodes.Alloc) and s.buffer.name == "s_states")
    inner.remove(states)
    last = at({"t": expr(1)}, inner.pop(writing(inner, "s_carry")))
    outer[place : place + 1] = [states, outer[place], *last]


def columns_run_backwards(body: Body) -> None:
    outer, place = around(body, "t")
    loop = outer[place]
    assert isinstance(loop, Loop)
    outer[place] = replace(loop, body=at({"t": 1 - name_of("t")}, *loop.body))


def is_updated_twice(body: Body) -> None:
    inner = turns_of(body)
    inner.append(inner[writing(inner, "x_tile")])


def is_not_updated(body: Body) -> None:
    is_not_written(body, "x_tile")


def turns_run_in_any_order(body: Body) -> None:
    outer, place = around(body, "t")
    outer[place] = replace(outer[place], is_sequential=False)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("cascade", "change", "refused"),
    [
        (SCAN, is_not_written, f"reads of s_carry {LEFT}"),
        (SCAN, is_begun_for_all_rows, f"reads of s_carry {LEFT}"),
        (SCAN, is_written_behind_the_loop, f"reads of s_carry {LEFT}"),
        (SCAN, columns_run_backwards, f"reads of s_carry {LEFT}"),
        (STATE, is_updated_twice, f"reads of x_tile {LEFT}"),
        (STATE, is_not_updated, f"reads of x_tile {LEFT}"),
        (STATE, turns_run_in_any_order, "reads of x_tile what another turn of t wrote"),
    ],
)
def test_what_another_turn_left_is_refused(
    cascade: tuple[str, dict[str, int]], change: Callable[[Body], None], refused: str
) -> None:
    body = body_of(*cascade)
    assert proved_order(body)
    change(body)
    with pytest.raises(ProofError, match=refused):
        proved_order(body)


def test_what_is_overwritten_before_it_is_read_is_refused() -> None:
    first, second, out = (
        nodes.Buffer(n, (expr(4), expr(8)), "float32", nodes.HBM, n) for n in ("input", "input", "output")
    )
    tile = nodes.Buffer("tile", (expr(4), expr(8)), "float32", nodes.SBUF)
    views = [nodes.all_of(b) for b in (first, second, out, tile)]
    load, other, store = (
        nodes.Load(views[3], views[0]),
        nodes.Load(views[3], views[1]),
        nodes.Store(views[2], views[3]),
    )
    assert proved_order([nodes.Alloc(tile), load, store, other, store]) == 2
    with pytest.raises(ProofError, match="tile is written anew before what it had is read"):
        proved_order([nodes.Alloc(tile), load, other, store, store])
    # zeros are, where some are to stay
    assert proved_order([nodes.Alloc(tile), nodes.Fill(views[3], 0.0), other, store])


def test_what_is_written_again_is_read_behind_it() -> None:
    text = "U[m, n] = A[m, n] + 1\nU[m, 0] = 5\nZ[m, n] = U[m, n] * 2"
    a = np.random.default_rng(2).integers(-4, 5, (40, 30)).astype(np.float32)
    kernel = nkilab.einsum.compile(text, shapes={"A": a.shape}, outputs=["Z"])
    expected = 2 * a + 2
    expected[:, 0] = 10
    assert np.array_equal(kernel(a), expected)


def test_verdicts_leave_open_what_rounding_decides() -> None:
    # scores that a sum has rounded, two of them near each other: either place may be the first
    text = "B[t, x] = sum(X[t, d] * W[x, d], d)\nI[t] = B[t, x] ;; V argmax\nP[t] = S[I[t]]"
    kernel = nkilab.einsum.compile(
        text, sizes={"T": 2, "X": 3, "D": 4}, shapes={"S": (3,)}, outputs=["I", "P"]
    )
    x = np.array([[1, 1, 1, 1], [1, 2, 3, 4]], np.float32)
    w = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0, 0, 0, 0]], np.float32)
    arrays = {"X": x, "W": w, "S": np.array([3, 7, 9], np.float32)}
    allowed = bounds(kernel.cascade, {n: arrays[n] for n in kernel.inputs}, kernel.dtypes).allowed
    # by hand: row 0 has 1.0 twice, row 1 has 3.0 and 2.0
    assert allowed["I"][0] >= 1
    assert allowed["I"][1] < 1
    assert not np.isfinite(allowed["P"][0]) or allowed["P"][0] >= 4
    assert allowed["P"][1] < 1e-3


def test_a_pole_within_the_bounds_leaves_a_quotient_open() -> None:
    pairs = [(np.array([1.0, 1.0]), 0.0), (np.array([1e-9, 2.0]), np.array([1e-8, 0.5]))]
    with np.errstate(all="ignore"):
        _, error = applied(OPERATORS["divide"], pairs)
    # 1 / (2 - 0.5) is the farthest from 0.5
    assert np.isinf(error[0])
    assert error[1] == pytest.approx(1 / 1.5 - 0.5, rel=1e-5)


def test_bounds_know_that_numbers_are_rounded() -> None:
    kernel = nkilab.einsum.compile("Z[m] = (1 - b) * X[m]", sizes={"M": 4}, scalars={"b": 0.999})
    x = np.ones(4, np.float32)
    allowed = bounds(kernel.cascade, {"X": x}, kernel.dtypes).allowed["Z"]
    # by hand: the float32 next to 0.999 is 1.29e-8 more
    assert np.all((allowed > 1.29e-8) & (allowed < 1e-7))
    assert np.all(np.abs(kernel(x) - 0.001) < allowed)
