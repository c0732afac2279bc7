"""Mappings beside every form of the language: what is given is followed, the rest is planned."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

import nkilab.einsum
from nkilab.errors import UnsupportedError
from tests.einsum.specs import PRODUCT
from tests.einsum.test_mapped import text_of

pytestmark = pytest.mark.corpus


def spec(ranks: str, expressions: list[Any], shape: dict[str, int], **parts: Any) -> str:
    """YAML of "A: M N; Z: M" and so on."""
    declared = dict(entry.split(":") for entry in ranks.split(";"))
    declaration = {name.strip(): rank_names.split() for name, rank_names in declared.items()}
    return text_of(
        {"einsum": {"declaration": declaration, "expressions": expressions, "shape": shape}, **parts}
    )


def split(einsum: str, **ranks: Any) -> dict[str, Any]:
    sizes = {r: s if isinstance(s, list) else [s] for r, s in ranks.items()}
    return {"partitioning": {einsum: {r: [f"uniform_shape({n})" for n in s] for r, s in sizes.items()}}}


def masked(x: np.ndarray, is_kept: np.ndarray, otherwise: float) -> np.ndarray:
    return np.where(is_kept, x, otherwise)


def running_sum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.tanh(np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x, 0)])).T * y


def padded(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    wide = np.pad(x, ((0, 0), (1, 1)))
    return sum(wide[:, r : r + x.shape[1]] * w[:, r : r + 1] for r in range(3))  # type: ignore[return-value]


ROWS, COLUMNS = np.arange(150)[:, None], np.arange(70)[None, :]
CASES: dict[str, tuple[str, Any]] = {
    "a product of three, element by element": (
        spec("A: M N; B: M N; C: M N; Z: M N", ["Z[m, n] = A[m, n] . B[m, n] . C[m, n] ;; M mul"],
             {"M": 150, "N": 70}, mapping=split("Z", M=64)),
        lambda a, b, c: a * b * c,
    ),
    "a sum of products of three": (
        spec("A: I J K; B: J R; C: K R; Z: I R",
             ["Z[i, r] = A[i, j, k] . B[j, r] . C[k, r] ;; M mul V add"],
             {"I": 130, "J": 9, "K": 8, "R": 7}, mapping=split("Z", I=64)),
        lambda a, b, c: np.einsum("ijk,jr,kr->ir", a, b, c),
    ),
    "three matrices": (
        spec("A: I J; B: J K; C: K L; Z: I L", ["Z[i, l] = A[i, j] . B[j, k] . C[k, l] ;; M mul V add"],
             {"I": 130, "J": 140, "K": 150, "L": 60}, mapping=split("Z", I=64)),
        lambda a, b, c: a @ b @ c,
    ),
    "one element": (
        spec("A: K; B: K; Z:", ["Z[] = A[k] . B[k] ;; M mul V add"], {"K": 300}, mapping=split("Z", K=128)),
        lambda a, b: a @ b,
    ),
    "one element that all read": (
        spec("A: K; S:; Z: K", ["S[] = A[k] . A[k] ;; M mul V add", "Z[k] = A[k] . S[] ;; M mul"],
             {"K": 300}, mapping=split("Z", K=128)),
        lambda a: a * (a @ a),
    ),
    "a condition on a map": (
        spec("A: M N; B: M N; Z: M N", ["Z[m, n] = A[m, n] . B[m, n] ;; M add if n < m + 3 else 7"],
             {"M": 150, "N": 70}, mapping=split("Z", M=64, N=32)),
        lambda a, b: masked(a + b, COLUMNS < ROWS + 3, 7),
    ),
    "a condition beside a sum": (
        spec("A: M N; Z: M", ["Z[m] = A[m, n] ;; V max if n <= m else -1000"], {"M": 150, "N": 70},
             mapping=split("Z", M=64)),
        lambda a: masked(a, COLUMNS <= ROWS, -1000).max(1),
    ),
    "a condition on an operand of a product": (
        spec("A: M K; B: M N; Z: K N", ["Z[k, n] = A[m, k] . B[m, n] ;; M mul V add if k <= m else 0"],
             {"M": 150, "K": 70, "N": 40}, mapping=split("Z", M=128)),
        lambda a, b: masked(a, COLUMNS <= ROWS, 0).T @ b,
    ),
    "a tensor read by other ranks": (
        spec("A: I K; Z: I J", ["Z[i, j] = A[i, k] . A[j, k] ;; M mul V add"],
             {"I": 200, "J": 200, "K": 150}, mapping=split("Z", I=128)),
        lambda a: a @ a.T,
    ),
    "windows beyond the edges": (
        spec("X: C P; W: C R; Z: C P", ["Z[c, p] = X[c, p+r-1] . W[c, r] ;; M mul V add"],
             {"C": 130, "R": 3, "P": 40}, mapping=split("Z", C=128)),
        padded,
    ),
    "a block of turns beside it": (
        spec("X: T M; Y: M T1; S: T1 M; E: T1 M; Z: M T1",
             ["S[0, m] = const(0)", {"iterate": "t", "body": ["S[t+1, m] = S[t, m] . X[t, m] ;; M add"]},
              "E[t1, m] = S[t1, m] ;; M unary(tanh)", "Z[m, t1] = E[t1, m] . Y[m, t1] ;; M mul"],
             {"T": 5, "T1": 6, "M": 130}, mapping=split("Z", M=64)),
        running_sum,
    ),
    "a row that columns were summed to": (
        spec("X: M N; G: N; E: M N",
             ["G[n] = X[m, n] ;; V max", "E[m, n] = X[m, n] . G[n] ;; M binary(subtract)"],
             {"M": 256, "N": 60}, mapping={"spacetime": {"E": {"space": ["M0"], "time": ["M1", "N"]}}}),
        lambda x: x - x.max(0),
    ),
    "parts named and not given": (
        spec("A: K M; B: K N; Z: M N", ["Z[m, n] = A[k, m] . B[k, n] ;; M mul V add"],
             {"K": 300, "M": 200, "N": 40}, mapping={"loop-order": {"Z": ["K1", "M1", "K0", "M0", "N"]}}),
        lambda a, b: a.T @ b,
    ),
    "a rank split twice, the last parts shorter": (
        spec("A: K M; B: K N; Z: M N", ["Z[m, n] = A[k, m] . B[k, n] ;; M mul V add"],
             {"K": 1000, "M": 300, "N": 40}, mapping=split("Z", K=[512, 128], M=[256, 64])),
        lambda a, b: a.T @ b,
    ),
    "parts larger than the rank": (
        spec("A: M N; Z: M", ["Z[m] = A[m, n] ;; V add"], {"M": 3, "N": 20},
             mapping=split("Z", M=[512, 128], N=100)),
        lambda a: a.sum(1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_mapping_stands_beside_every_form(name: str) -> None:
    text, expected = CASES[name]
    for dialect in ("nki", "neuronxcc"):
        kernel = nkilab.einsum.compile(text, dialect=dialect)
        rng = np.random.default_rng(0)
        inputs = [rng.standard_normal(kernel.cascade.shape(t)) for t in kernel.inputs]
        wanted = np.asarray(expected(*inputs))
        # float32 sums of at most a thousand terms
        np.testing.assert_allclose(kernel(*inputs), wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())
        assert any("sums add every value once" in proof for proof in kernel.proofs)


def test_a_part_of_a_part_is_a_loop_of_its_own_and_ends_where_the_rank_ends() -> None:
    text = PRODUCT.replace("shape: {K: 256, M: 512, J: 512}", "shape: {K: 256, M: 600, J: 512}")
    text = re.sub(r"((?:DS|P|ZS|ZH): {.*)M: \[uniform_shape\(128\)\]",
                  r"\1M: [uniform_shape(250), uniform_shape(120)]", text)  # fmt: skip
    # what DS, P, ZS and ZH call M1 and M0 are now M2, M1 and M0
    text = re.sub(r"\[M1, M0, J\]", "[M2, M1, M0, J]", text)
    text = text.replace("[M1, K1, K0, M0, J]", "[M2, M1, K1, K0, M0, J]").replace(
        "[M1, K1, J]", "[M2, M1, K1, J]"
    )
    text = text.replace("[K1, M1, M0]", "[K1, M2, M1, M0]").replace(
        "[K0, K1, M1, M0]", "[K0, K1, M2, M1, M0]"
    )
    text = text.replace(
        "- [DS.M1, P.M1, ZS.M1, ZH.M1]",
        "- [DS.M2, P.M2, ZS.M2, ZH.M2]\n        - [DS.M1, P.M1, ZS.M1, ZH.M1]",
    )
    text = text.replace("unbound: [M1]", "unbound: [M2, M1]").replace(
        "[M1, M0], contig", "[M2, M1, M0], contig"
    )
    kernel = nkilab.einsum.compile(text)
    # 600 = 250 + 250 + 100, 250 = 120 + 120 + 10
    assert "m2_count = min(250, 600 - ds_m2 * 250)" in kernel.source
    assert "m1_count = min(120, ds_m2_count - ds_m1 * 120)" in kernel.source
    assert not [str(v) for v in kernel.verify() if not v.is_fine]


@pytest.mark.parametrize(
    "expressions",
    [
        ["S[0, m] = const(0)", {"iterate": "t", "body": ["Z[t, m] = S[t, m] . X[t, m] ;; M add",
                                                         "S[t+1, m] = Z[t, m] ;; M unary(tanh)"]}],
        ["Z[t, m] = const(1)"],
    ],
    ids=["turns", "constant"],
)  # fmt: skip
def test_an_instruction_that_no_plan_keeps_is_refused_where_it_stands(expressions: list[Any]) -> None:
    ranks = "; ".join(f"{name}: {letters}" for name, letters in (("X", "T M"), ("S", "T1 M"), ("Z", "T M"))
                      if f"{name}[" in str(expressions))  # fmt: skip
    shape = {"T": 3, "M": 64, **({"T1": 4} if "T1" in ranks else {})}
    text = spec(ranks, expressions, shape, options={"cascade-outputs": ["Z"]},
                binding={"engine": [{"einsum": "Z", "instruction": "LoopReduce"}]})  # fmt: skip
    line = next(
        n
        for n, rank_names in enumerate(text.split("\n"), 1)
        if "LoopReduce" in rank_names or "- einsum" in rank_names
    )
    with pytest.raises(UnsupportedError) as refused:
        nkilab.einsum.compile(text)
    message = str(refused.value).split("\n")
    assert message[0].startswith(f"{line}:")
    assert message[0].endswith(": binding.engine[0]: no plan computes Z by LoopReduce of such ranks")
    assert message[-1] == "  hint: leave binding.engine[0] out"


def test_the_entry_that_stands_in_the_way_is_found() -> None:
    text = spec("A: I J K; U: K R; Z: I J R", ["Z[i, j, r] = A[i, j, k] . U[k, r] ;; M mul V add"],
                {"I": 5, "J": 131, "K": 137, "R": 61},
                mapping={"loop-order": {"Z": ["K", "R", "I", "J"]},
                         "spacetime": {"Z": {"space": ["J"], "time": ["I", "R", "K"]}}})  # fmt: skip
    *_, line = (n for n, row in enumerate(text.split("\n"), 1) if row.startswith("    Z: ["))
    with pytest.raises(UnsupportedError) as refused:
        nkilab.einsum.compile(text)
    # a loop over 61 columns outside of all others leaves nothing that TensorE multiplies by
    assert str(refused.value) == (
        f"{line}:5: mapping.loop-order.Z: no plan has the loops of Z in this order\n"
        "  hint: leave mapping.loop-order.Z out"
    )
    row = YAML(typ="safe").load(text)
    del row["mapping"]["loop-order"]
    assert nkilab.einsum.compile(text_of(row)).source


@pytest.mark.parametrize(
    ("ranks", "expression", "instruction", "expected"),
    [
        ("A: M N; B: M N; Z: M N", "Z[m, n] = A[m, n] . B[m, n] ;; M binary(subtract)", "SimpleTensorTensor",
         lambda a, b: a - b),
        ("A: M N; B: M; Z: M N", "Z[m, n] = A[m, n] . B[m] ;; M mul", "SimpleTensorScalar",
         lambda a, b: a * b[:, None]),
        ("A: M N; B: M N; Z: M", "Z[m] = A[m, n] . B[m, n] ;; M mul V add", "TensorReduce",
         lambda a, b: (a * b).sum(1)),
    ],
    ids=["map", "scaled rows", "sum of products"],
)  # fmt: skip
def test_a_plan_keeps_an_instruction_whose_result_is_returned(
    ranks: str, expression: str, instruction: str, expected: Any
) -> None:
    text = spec(ranks, [expression], {"M": 200, "N": 60},
                binding={"engine": [{"einsum": "Z", "instruction": instruction}]})  # fmt: skip
    kernel = nkilab.einsum.compile(text)
    assert kernel.changes[0] == "completed: by a plan that keeps all that is given"
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(kernel.cascade.shape(t)) for t in kernel.inputs]
    wanted = expected(*inputs)
    np.testing.assert_allclose(kernel(*inputs), wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


def test_a_sum_over_the_partitions_is_planned_where_space_names_its_rank() -> None:
    text = spec("X: M N; D: M", ["D[m] = X[m, n] ;; V add"], {"M": 50, "N": 100},
                mapping={"spacetime": {"D": {"space": ["N"], "time": ["M"]}}})  # fmt: skip
    kernel = nkilab.einsum.compile(text)
    x = np.random.default_rng(0).standard_normal((50, 100))
    np.testing.assert_allclose(kernel(x), x.sum(1), rtol=0, atol=1e-4)
    # partitions are summed by a product with ones
    assert "matmul" in kernel.source


def test_partitioning_may_be_left_out_where_others_name_its_parts() -> None:
    document = YAML(typ="safe").load(PRODUCT)
    del document["mapping"]["partitioning"]
    kernel = nkilab.einsum.compile(text_of(document))
    assert {"completed: K in parts of 128", "completed: M in parts of 128"} <= set(kernel.changes)
    assert not [str(v) for v in kernel.verify() if not v.is_fine]
