"""Mappings that say a part: what is missing is completed, what is given stays."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

import nkilab.einsum
from nkilab.errors import UnsupportedError
from tests.einsum.mapped import SCALED_SUM
from tests.einsum.mistakes import MISTAKES
from tests.einsum.numbers import numbers_of
from tests.einsum.specs import PRODUCT, SUMS
from tests.einsum.test_mapped import text_of

pytestmark = pytest.mark.corpus

GEMM: dict[str, Any] = {
    "declaration": {"A": ["K", "M"], "B": ["K", "N"], "Z": ["M", "N"]},
    "expressions": ["Z[m, n] = A[k, m] . B[k, n] ;; M mul V add"],
    "shape": {"K": 256, "M": 384, "N": 1024},
}
SOFTMAX: dict[str, Any] = {
    "declaration": {"X": ["M", "N"], "G": ["M"], "E": ["M", "N"], "D": ["M"], "R": ["M"], "Z": ["M", "N"]},
    "expressions": [
        "G[m] = X[m, n] ;; V max", "E[m, n] = X[m, n] . G[m] ;; M binary(subtract_exp)",
        "D[m] = E[m, n] ;; V add", "R[m] = D[m] ;; M unary(reciprocal)", "Z[m, n] = E[m, n] . R[m] ;; M mul",
    ],
    "shape": {"M": 256, "N": 500},
}  # fmt: skip
UPDATE: dict[str, Any] = {
    "declaration": {"A": ["M"], "B": ["M", "N"], "T": ["N"], "K": ["N", "M"], "Z": ["N", "M"]},
    "expressions": [
        "T[n] = A[m] . B[m, n] ;; M mul V add", "K[n, m] = T[n] . A[m] ;; M mul",
        "Z[n, m] = B[m, n] . K[n, m] ;; M binary(subtract)",
    ],
    "shape": {"M": 256, "N": 256},
}  # fmt: skip
CHAIN: dict[str, Any] = {
    "declaration": {"A": ["I", "J"], "B": ["J", "K"], "C": ["K", "L"], "T": ["I", "K"], "Z": ["I", "L"]},
    "expressions": [
        "T[i, k] = A[i, j] . B[j, k] ;; M mul V add", "Z[i, l] = T[i, k] . C[k, l] ;; M mul V add",
    ],
    "shape": {"I": 256, "J": 128, "K": 384, "L": 64},
}  # fmt: skip


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def compiled(einsum: dict[str, Any], **parts: Any) -> Any:
    return nkilab.einsum.compile(text_of({"einsum": einsum, **parts}))


def split(**ranks: int) -> dict[str, list[str]]:
    return {rank: [f"uniform_shape({size})"] for rank, size in ranks.items()}


CASES = {
    "splits of a product": (
        GEMM, {"mapping": {"partitioning": {"Z": split(M=128, N=256)}}}, lambda a, b: a.T @ b,
    ),
    "an instruction": (
        GEMM, {"binding": {"engine": [{"einsum": "Z", "instruction": "MatVec"}]}}, lambda a, b: a.T @ b
    ),
    "loops of a product": (
        GEMM,
        {
            "mapping": {
                "loop-order": {"Z": ["N1", "M1", "K1"]}, "partitioning": {"Z": split(M=128, N=512, K=128)},
            }
        },
        lambda a, b: a.T @ b,
    ),
    "splits of one of five": (SOFTMAX, {"mapping": {"partitioning": {"G": split(M=64)}}}, softmax),
    "a tensor in two layouts": (
        UPDATE,
        {"mapping": {"partitioning": {"T": split(N=128, M=128)}}},
        lambda a, b: (b - np.outer(a, a @ b)).T,
    ),
    "a product of a product": (
        CHAIN, {"mapping": {"partitioning": {"T": split(K=128)}}}, lambda a, b, c: a @ b @ c,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_a_partial_mapping_is_completed_and_right(name: str, dialect: str) -> None:
    einsum, parts, expected = CASES[name]
    kernel = nkilab.einsum.compile(text_of({"einsum": einsum, **parts}), dialect=dialect)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(kernel.cascade.shape(t)) for t in kernel.inputs]
    wanted = expected(*inputs)
    # float32 sums of a few hundred terms
    np.testing.assert_allclose(kernel(*inputs), wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


def test_a_loop_order_is_that_of_the_kernel() -> None:
    source = numbers_of(compiled(*CASES["loops of a product"][:1], **CASES["loops of a product"][1]))
    loops = re.findall(r"^( *)for (\w+) in range\((\d+)\)", source, re.M)
    # N in 2 parts of 512, M in 3 of 128, K in 2 of 128: the product's loops, from the outside
    assert loops == [("    ", "n", "2"), ("        ", "m", "3"), ("            ", "k", "2")]


def test_what_is_added_is_told() -> None:
    document = YAML(typ="safe").load(SCALED_SUM)
    del document["mapping"]["loop-order"]["TP"], document["binding"]["fusion"]
    kernel = nkilab.einsum.compile(text_of(document), sizes={"K1": 3})
    # tiles of AS, BS and TP live inside a loop over K1, and the sum TS reads TP there
    assert kernel.changes[:2] == (
        "completed: the loop order of TP",
        "completed: AS.K1 and BS.K1 and TP.K1 and TS.K1 share a loop",
    )


def test_a_part_that_is_no_multiple_of_the_next_is_refused_where_no_plan_has_it() -> None:
    parts = {"M": ["uniform_shape(256)", "uniform_shape(100)"]}
    text = text_of({"einsum": GEMM, "mapping": {"partitioning": {"Z": parts}}})
    line = next(n for n, row in enumerate(text.split("\n"), 1) if row.strip().startswith("M: [uni"))
    with pytest.raises(UnsupportedError) as refused:
        nkilab.einsum.compile(text)
    assert str(refused.value) == (
        f"{line}:7: mapping.partitioning.Z.M: no plan computes Z within such parts of M\n"
        "  hint: leave mapping.partitioning.Z.M out"
    )


def test_extents_that_a_part_of_a_mapping_leaves_open_are_arguments() -> None:
    document = YAML(typ="safe").load(SCALED_SUM)
    del document["binding"]["tensor"]
    kernel = nkilab.einsum.compile(text_of(document))
    assert kernel.parameters == ("K1",)
    rng = np.random.default_rng(0)
    # whole numbers so small that float32 has every sum
    a, b = rng.integers(-2, 3, (5, 128)), rng.integers(-2, 3, (5, 128, 64))
    t = np.einsum("ak,akn->n", a, b)
    assert np.array_equal(kernel(a, b), t * t - t)


def test_a_plan_that_is_another_one_at_another_size_is_refused() -> None:
    text = text_of({"einsum": {**GEMM, "shape": {}}, "mapping": {"partitioning": {"Z": split(M=128)}}})
    line = next(n for n, row in enumerate(text.split("\n"), 1) if row == "mapping:")
    with pytest.raises(UnsupportedError) as refused:
        nkilab.einsum.compile(text)
    assert str(refused.value) == (
        f"{line + 1}:3: mapping: the plan differs from one size of K, M, N to another\n"
        "  hint: give the extents in einsum.shape"
    )


def parts_of(text: str) -> list[tuple[str, ...]]:
    document = YAML(typ="safe").load(text)
    whole = [
        (key, part) for key in ("mapping", "binding") for part in document[key] if part != "partitioning"
    ]
    return [*whole, ("binding",), ("format",)]


@pytest.mark.parametrize("part", parts_of(SCALED_SUM), ids="-".join)
def test_every_part_may_be_left_out(part: tuple[str, ...]) -> None:
    document = YAML(typ="safe").load(SCALED_SUM)
    node = document
    for key in part[:-1]:
        node = node[key]
    del node[part[-1]]
    kernel = nkilab.einsum.compile(text_of(document), sizes={"K1": 3})
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 128)), rng.standard_normal((3, 128, 64))
    t = np.einsum("ak,akn->n", a, b)
    np.testing.assert_allclose(kernel(a, b), t * t - t, rtol=0, atol=1e-5 * np.abs(t * t).max())


@pytest.mark.parametrize("part", [p for p in parts_of(PRODUCT) if p[-1] != "format"], ids="-".join)
def test_every_part_of_a_product_may_be_left_out(part: tuple[str, ...]) -> None:
    document = YAML(typ="safe").load(PRODUCT)
    node = document
    for key in part[:-1]:
        node = node[key]
    del node[part[-1]]
    assert not [str(v) for v in nkilab.einsum.compile(text_of(document)).verify() if not v.is_fine]


@pytest.mark.parametrize(
    "part", [p for p in parts_of(SUMS) if p not in (("binding",), ("format",))], ids="-".join
)
def test_every_part_of_a_carried_sum_may_be_left_out(part: tuple[str, ...]) -> None:
    document = YAML(typ="safe").load(SUMS)
    del document[part[0]][part[1]]
    kernel = nkilab.einsum.compile(text_of(document))
    assert not [str(v) for v in kernel.verify() if not v.is_fine]
    # what is left out follows from the rest: the kernel is as fast as that of the whole mapping
    assert kernel.estimate.latency_us < 1.01 * nkilab.einsum.compile(SUMS).estimate.latency_us


def entries_of(text: str) -> list[tuple[Any, ...]]:
    """Keys that lead to each entry of a mapping."""
    document = YAML(typ="safe").load(text)
    orders = [("mapping", "loop-order", name) for name in document["mapping"]["loop-order"]]
    return orders + [
        ("binding", key, n) for key in ("engine", "tensor") for n in range(len(document["binding"][key]))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("text", [SCALED_SUM, PRODUCT, SUMS], ids=["scaled_sum", "product", "sums"])
def test_every_entry_may_be_left_out(text: str) -> None:
    sizes = {"K1": 3} if text is SCALED_SUM else {}
    most = 1.01 * nkilab.einsum.compile(text, sizes=sizes).estimate.latency_us
    for section, key, entry in entries_of(text):
        document = YAML(typ="safe").load(text)
        del document[section][key][entry]
        kernel = nkilab.einsum.compile(text_of(document), sizes=sizes)
        assert not [str(v) for v in kernel.verify() if not v.is_fine], (key, entry)
        assert kernel.estimate.latency_us < most, (key, entry)


RAGGED = {
    "splits of a product": {"K": 131, "M": 257, "N": 601},
    "loops of a product": {"K": 131, "M": 257, "N": 601},
    "splits of one of five": {"M": 131, "N": 37},
    "a tensor in two layouts": {"M": 300, "N": 137},
    "a product of a product": {"I": 131, "J": 137, "K": 257, "L": 61},
}


@pytest.mark.parametrize("name", RAGGED)
@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_the_last_part_of_a_split_may_be_shorter(name: str, dialect: str) -> None:
    einsum, parts, expected = CASES[name]
    document = {"einsum": {**einsum, "shape": RAGGED[name]}, **parts}
    kernel = nkilab.einsum.compile(text_of(document), dialect=dialect)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(kernel.cascade.shape(t)) for t in kernel.inputs]
    wanted = expected(*inputs)
    # float32 sums of a few hundred terms
    np.testing.assert_allclose(kernel(*inputs), wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("sizes", [{"K": 200}, {"M": 300}, {"K": 131, "M": 257}], ids=str)
def test_a_whole_mapping_has_edge_tiles_too(sizes: dict[str, int]) -> None:
    document = YAML(typ="safe").load(PRODUCT)
    document["einsum"]["shape"] |= sizes
    kernel = nkilab.einsum.compile(text_of(document))
    assert not [str(v) for v in kernel.verify() if not v.is_fine]


def product_of(text: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """What a kernel of PRODUCT gives, and what NumPy does."""
    kernel = nkilab.einsum.compile(text)
    x, y, d = (np.random.default_rng(seed).standard_normal(s) for s in ((256, 512), (256, 512), (512, 512)))
    return kernel(x, y, d), x.T @ y + d


@pytest.mark.parametrize("row", ["view-turned", "view-free"])
def test_a_tile_that_is_read_in_another_layout_is_copied_in_between(row: str) -> None:
    (mistake,) = [m for m in MISTAKES if m.row == row]
    got, wanted = product_of(mistake.text)
    # sums of 256 products in float32
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())
    kernel = nkilab.einsum.compile(mistake.text)
    assert [f.row.id for f in kernel.advice if f.row.id.startswith("view")] == [row]
    # 4 x 2 blocks of 128 x 128 are transposed; no other instruction of PRODUCT transposes
    count = {"view-turned": 8, "view-free": 0}[row]
    assert kernel.estimate.program.opcodes().get("nc_transpose", 0) == count
