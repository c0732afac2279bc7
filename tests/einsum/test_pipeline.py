"""Turns of a loop that run ahead what needs no state, and copies that ScalarE takes over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import nkilab.einsum
from nkilab.einsum.hardware import Hardware
from nkilab.einsum.language.extents import sized
from nkilab.einsum.language.forms import spec_from
from nkilab.einsum.plan.balance import balanced
from nkilab.einsum.plan.knobs import Knobs
from nkilab.einsum.plan.lower import lower
from nkilab.einsum.plan.pipeline import pipelines
from nkilab.einsum.prove import ProofError, prove
from nkilab.einsum.room import views_of
from nkilab.einsum.tree.expr import ZERO, expr, name_of
from nkilab.einsum.tree.nodes import (
    PSUM,
    SBUF,
    TURNS,
    Alloc,
    At,
    Buffer,
    Copy,
    Cut,
    Kernel,
    Loop,
    MatMul,
    Scale,
    Statement,
    View,
    statements,
)
from nkilab.machine import machine_named

pytestmark = pytest.mark.corpus

TRN2 = machine_named("trn2")
# a running maximum of scores, and what is kept of values under it
RUNNING = """
einsum:
  declaration:
    Q: [E, P]
    K: [E, I, J]
    V: [I, J, F]
    X: [I, J, P]
    L: [I, P]
    M: [I1, P]
    N: [I, J, P]
    S: [I, F, P]
    D: [I, P]
    T: [I, F, P]
    O: [I1, F, P]
    Z: [F, P]
  expressions:
    - "M[0, p] = const(-inf)"
    - "O[0, f, p] = const(0)"
    - iterate: i
      body:
        - "X[i, j, p] = Q[e, p] . K[e, i, j] ;; M mul V add"
        - "L[i, p] = X[i, j, p] ;; V max"
        - "M[i+1, p] = M[i, p] . L[i, p] ;; M binary(maximum)"
        - "N[i, j, p] = X[i, j, p] . M[i+1, p] ;; M binary(subtract_exp)"
        - "S[i, f, p] = N[i, j, p] . V[i, j, f] ;; M mul V add"
        - "D[i, p] = M[i, p] . M[i+1, p] ;; M binary(subtract_exp)"
        - "T[i, f, p] = O[i, f, p] . D[i, p] ;; M mul"
        - "O[i+1, f, p] = S[i, f, p] . T[i, f, p] ;; M add"
    - "Z[f, p] = O[I, f, p]"
"""


def running(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """What RUNNING computes, at once: values weighted by exp of scores below their maximum."""
    x = np.einsum("ep,eij->ijp", q, k)
    return np.einsum("ijp,ijf->fp", np.exp(x - x.max((0, 1))), v)


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
@pytest.mark.parametrize(
    "sizes",
    [
        {"E": 32, "P": 256, "I": 5, "J": 256, "F": 64},
        {"E": 17, "P": 131, "I": 5, "J": 67, "F": 13},
        {"E": 16, "P": 256, "I": 7, "J": 100, "F": 130},
    ],
    ids=["exact", "ragged", "odd turns"],
)
def test_a_kernel_whose_turns_run_ahead_computes_the_same(sizes: dict[str, int], dialect: str) -> None:
    compiled = nkilab.einsum.compile(RUNNING, sizes={**sizes, "I1": sizes["I"] + 1}, dialect=dialect)
    # by the rules: the timing model may have found turns in strips faster
    tree, ctx = lower(compiled.cascade, compiled.dtypes, TRN2, "kernel")
    assert "turns of i: what needs no state runs one turn ahead" in ctx.choices
    ahead = compiled.of_tree(tree)
    random = np.random.default_rng(0)
    e, p, i, j, f = (sizes[n] for n in "EPIJF")
    q, k, v = (random.standard_normal(s).astype(np.float32) for s in ((e, p), (e, i, j), (i, j, f)))
    # float32 sums of at most 1024 products, exp of scores up to about 20
    for kernel in (compiled, ahead):
        np.testing.assert_allclose(kernel(q, k, v), running(q, k, v), rtol=2e-4, atol=1e-4)


@pytest.mark.corpus(drawn=False)
def test_running_ahead_is_faster_than_waiting_for_the_state() -> None:
    sizes = {"E": 128, "P": 1024, "I": 16, "I1": 17, "J": 512, "F": 128}
    ahead = nkilab.einsum.compile(RUNNING, sizes=sizes, dtypes="bfloat16")
    cascade = sized(spec_from(RUNNING).cascade, sizes)
    types = dict.fromkeys(("Q", "K", "V", "Z"), "bfloat16")
    _, ctx = lower(cascade, types, TRN2, "kernel")
    (decision,) = (d for d in ctx.decisions if d.what == "turns of i2 ahead")
    assert decision.taken == "one"
    kernel, _ = lower(cascade, types, TRN2, "kernel", "", Knobs().picking(decision.key, 1))
    waiting = replace(ahead, source=nkilab.einsum.compiler.PRINTERS["nki"](kernel).text(), tree=kernel)
    # by hand, on a kernel with two more states and 2048 columns: 651 against 696 us
    assert ahead.estimate.latency_us < waiting.estimate.latency_us


@pytest.fixture(scope="module")
def ahead() -> Kernel:
    """The tree of RUNNING, five turns of whole tiles."""
    sizes = {"E": 32, "P": 256, "I": 5, "I1": 6, "J": 128, "F": 64}
    types = dict.fromkeys(("Q", "K", "V", "Z"), "float32")
    return lower(sized(spec_from(RUNNING).cascade, sizes), types, TRN2, "kernel")[0]


def other(kernel: Kernel, choose: Callable[[At, bool], At]) -> Kernel:
    """The kernel with other versions of tiles: `choose` gets each, and whether a product writes it."""

    def changed(statement: Statement) -> Statement:
        if isinstance(statement, Loop):
            return replace(statement, body=[changed(s) for s in statement.body])
        views = {
            name: replace(
                v,
                index=(
                    v.index[0],
                    choose(v.index[1], (name, type(statement)) == ("dst", MatMul)),
                    *v.index[2:],
                ),
            )
            for name, v in views_of(statement)
            if v.buffer.role == TURNS
        }
        return replace(statement, **views)

    return replace(kernel, body=[changed(s) for s in kernel.body])


def test_the_proof_follows_versions_from_turn_to_turn(ahead: Kernel) -> None:
    assert any("find what their turn wrote" in claim for claim in prove(ahead, TRN2))
    assert any(isinstance(s, Alloc) and s.buffer.role == TURNS for s in statements(ahead.body))


@pytest.mark.parametrize(
    "choose",
    [
        # the turn ahead overwrites what the present one reads
        lambda at, is_product: At(name_of("i") % 2) if is_product and "+ 1" in str(at.at) else at,
        # the turn before the loop writes the version of the second turn
        lambda at, is_product: At(expr(1)) if is_product and at.at.value == 0 else at,
        # the last turn, the fifth, reads the version of the fourth
        lambda at, is_product: At(expr(1)) if not is_product and at.at.value == 0 else at,
        # a turn reads what is written for the next
        lambda at, is_product: At((name_of("i") + 1) % 2) if str(at.at) == "i % 2" else at,
    ],
    ids=["overwritten", "first turn", "last turn", "next turn"],
)
def test_a_tile_of_the_wrong_turn_is_refused(ahead: Kernel, choose: Callable[[At, bool], At]) -> None:
    with pytest.raises(ProofError, match="what nothing wrote before"):
        prove(other(ahead, choose), TRN2)


def test_a_tile_that_every_stage_overwrites_is_refused() -> None:
    # scores, weights and sums of four heads are under way at once; what one stage leaves to the next but one
    # has three versions
    text = "Z[h, q, e] = sum(softmax(sum(Q[h, q, d] * K[h, k, d], d), k) * V[h, k, e], k)"
    cascade = sized(spec_from(text).cascade, {"H": 6, "Q": 128, "K": 512, "D": 64, "E": 64})
    kernel, ctx = lower(cascade, dict.fromkeys("QKVZ", "float32"), TRN2, "kernel")
    assert "turns of h: what needs no state runs three turns ahead" in ctx.choices
    tiles = [s.buffer for s in statements(kernel.body) if isinstance(s, Alloc)]
    assert {b.shape[1] for b in tiles if b.role == TURNS} == {2, 3}
    prove(kernel, TRN2)
    with pytest.raises(ProofError, match="another turn left than the one that it says"):
        prove(other(kernel, lambda at, is_product: At(ZERO)), TRN2)


def test_turns_that_all_need_the_state_stay_as_they_are() -> None:
    # x = x + 1, turn after turn: every turn reads what the one before wrote
    x, y = Buffer("x", (128, 512), "float32", SBUF), Buffer("y", (128, 512), "float32", SBUF)
    whole = {b: View(b, (Cut(ZERO, expr(128)), Cut(ZERO, expr(512)))) for b in (x, y)}
    body = [Alloc(y), Scale(whole[y], whole[x], "add", 1.0), Copy(whole[x], whole[y])]
    assert not pipelines(Loop("i", 8, body, is_sequential=True), Hardware(TRN2))


def test_scalar_engine_takes_over_the_copies_that_end_both_soonest() -> None:
    # by hand, trn2, float32: VectorE copies 512 columns of PSUM in 512 / 0.96 + 40 = 573 ns, ScalarE in
    # 512 / 1.2 + 115 = 542 ns; of 4 blocks of 512 one copy of 4 takes VectorE 2173 ns. Half of the columns
    # each, which instructions make and read 128 at a time, end at 1107 and 968 ns, three quarters and one at
    # 1640 and 542 ns. ScalarE has the first.
    psum, copied = (Buffer(n, (128, 4, 512), "float32", m) for n, m in (("psum", PSUM), ("made", SBUF)))
    whole = {
        b: View(b, (Cut(ZERO, expr(128)), Cut(ZERO, expr(4)), Cut(ZERO, expr(512)))) for b in (psum, copied)
    }
    loop = Loop("i", 8, [Copy(whole[copied], whole[psum])])
    balanced(Kernel("kernel", (), [loop], ()), Hardware(TRN2))
    assert [(s.engine, str(s.dst.index[2].start), str(s.dst.index[2].count)) for s in loop.body] == [
        ("scalar", "0", "256"),
        ("", "256", "256"),
    ]


def test_blocks_of_an_axis_that_is_not_the_first_are_loaded_in_their_order() -> None:
    # a transfer of two blocks of j once took turns of i for blocks
    text = "Z[m, f] = A[i, j, m] . V[i, j, f] ;; M mul V add"
    sizes = {"I": 3, "J": 256, "M": 128, "F": 64}
    random = np.random.default_rng(0)
    a, v = (random.standard_normal((3, 256, n)).astype(np.float32) for n in (128, 64))
    for dialect in ("nki", "neuronxcc"):
        compiled = nkilab.einsum.compile(text, sizes=sizes, dialect=dialect)
        # float32 sums of 768 products
        np.testing.assert_allclose(compiled(a, v), np.einsum("ijm,ijf->mf", a, v), rtol=1e-4, atol=1e-3)
