"""Where the plan by rules is refused, another that is proved is taken, and the report says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.lower.planes import PlaneNest
from nkilab.einsum.plan import contraction, pipeline
from nkilab.einsum.plan.build import Builder, Span
from nkilab.einsum.plan.coalesced import Coalescing
from nkilab.einsum.plan.contraction import Contraction
from nkilab.einsum.plan.nest import Nest
from nkilab.einsum.plan.steps import Lowering
from nkilab.einsum.report import data, explain
from nkilab.einsum.tree import nodes, rewrite
from nkilab.errors import EXIT_BUG
from nkilab.failures import failure_of

PRODUCT = "Z[r, k] = D[r, n] . I[k, n] ;; M mul V add"
REFUSED = "PLANNED ANOTHER WAY, a fault of the rules: their plan is refused "


def operands(r: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Small whole numbers, which float32 sums exactly."""
    rng = np.random.default_rng(0)
    return tuple(rng.integers(-3, 4, shape).astype(np.float32) for shape in ((r, n), (k, n)))  # type: ignore[return-value]


def compiled(d: np.ndarray, i: np.ndarray) -> einsum.CompiledEinsum:
    return einsum.compile(PRODUCT, shapes={"D": d.shape, "I": i.shape})


def no_tiles(self: object) -> None:
    raise AssertionError("no tile is right")


def test_a_plan_that_the_proof_refuses_gives_way_to_one_with_another_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # operands come tile by tile; a sum in PSUM whose last turn stands outside of its loop begins anew, as
    # copies of its products do not go on with it: a wrong kernel
    monkeypatch.setattr(Contraction, "fits", lambda _, access: access.tensor != "I")
    monkeypatch.setattr(pipeline, "is_summed_over", lambda loop: False)
    monkeypatch.setattr(rewrite, "MatMul", nodes.Invert)
    monkeypatch.setattr(Coalescing, "change", lambda _: None)
    d, i = operands(128, 3072, 1024)
    kernel = compiled(d, i)
    assert kernel.changes[0] == (
        f"{REFUSED}(the sum z_sum does not take up every value of n); turns of n ahead: none instead of one"
    )
    assert np.array_equal(kernel(d, i), d @ i.T)
    assert kernel.changes[0] in data(kernel)["changes"]


def test_a_plan_that_ends_in_an_assertion_gives_way_to_one_with_another_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pieces = Builder.pieces

    def of_known_sizes(self: Builder, hint: str, span: Span, block: int, **how: Any) -> Any:
        assert span.count.value is not None or span.most <= block, "a turn counts the elements of a tile"
        return pieces(self, hint, span, block, **how)

    monkeypatch.setattr(Builder, "pieces", of_known_sizes)
    monkeypatch.setattr(Contraction, "fits", lambda _, access: access.tensor != "I")
    monkeypatch.setattr(contraction, "even_tile", lambda ctx, extent: 512)
    d, i = operands(128, 3328, 1024)
    kernel = compiled(d, i)
    assert kernel.changes[0].startswith(REFUSED)
    assert f"blocks of {PRODUCT[:24]}" in kernel.changes[0]
    assert np.array_equal(kernel(d, i), d @ i.T)


def test_sums_on_vector_engine_are_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Contraction, "lower", no_tiles)
    d, i = operands(30, 70, 50)
    # two products: another engine for one of them is not enough
    text = "Y[r, k] = D[r, n] . I[k, n] ;; M mul V add\nZ[r, m] = Y[r, k] . E[k, m] ;; M mul V add"
    shapes = {"D": d.shape, "I": i.shape, "E": i.shape}
    kernel = einsum.compile(text, shapes=shapes)
    first = kernel.changes[0]
    assert first.startswith(f"{REFUSED}(no tile is right); no shared loops, sums on VectorE; not ")
    assert "; not no shared loops (no tile is right)" in first
    assert np.array_equal(kernel(d, i, i), d @ i.T @ i)
    assert first in explain(kernel)
    searched = einsum.compile(text, shapes=shapes, search=0.1)
    # a search begins with the plan that was made another way, and says so
    assert searched.changes[0] == first
    assert searched.estimate.latency_us <= kernel.estimate.latency_us


def test_where_no_plan_is_proved_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Contraction, "lower", no_tiles)
    monkeypatch.setattr(Nest, "lower", no_tiles)
    monkeypatch.setattr(PlaneNest, "lower", no_tiles)
    with pytest.raises(AssertionError) as refused:
        compiled(*operands(30, 70, 50))
    assert str(refused.value) == (
        "no plan of these expressions is proved: no tile is right; this is a fault of nkilab, not of the "
        "expressions: report it with them, and until it is mended change an extent, or split an expression"
    )
    failure = failure_of(refused.value)
    assert (failure.kind, failure.status) == ("bug", EXIT_BUG)
    assert failure.text.endswith("please report it with the lines above")


def test_any_error_of_another_choice_is_told_as_a_fault_and_of_the_first_gives_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(self: object) -> None:
        raise KeyError("n")

    monkeypatch.setattr(PlaneNest, "lower", missing)
    text = "Z[h, s, d] = X[s, 64 * h + d]"
    kernel = einsum.compile(text, sizes={"H": 4, "S": 128, "D": 64})
    assert kernel.changes[0].startswith(f"{REFUSED}(KeyError: 'n'); the tiles of {text[:10]}")
    # with two axes as the rules' choice, several are another that is tried
    monkeypatch.setattr(
        Lowering, "has_planes", lambda self, *_: self.ctx.pick("tiles", (False, True), costs=(1, 1))
    )
    kernel = einsum.compile(text, sizes={"H": 4, "S": 128, "D": 64})
    assert "A FAULT OF NKILAB, please report it: KeyError: 'n'" in kernel.alternatives
