"""Rooflines of cascades against hand calculations."""

from __future__ import annotations

import json

import pytest

from nkilab import einsum

ATTENTION = """
QK[m, p] = Q[e, p] . K[e, m] ;; M mul V add
G[p] = QK[m, p] ;; V max
SN[m, p] = QK[m, p] . G[p] ;; M binary(subtract_exp)
A[f, p] = SN[m, p] . V[m, f] ;; M mul V add
Z[f, p] = A[f, p] . half ;; M mul
"""


def text_of(spec: dict[str, object]) -> str:
    """YAML of a specification, a line per part."""
    return "\n".join(f"{part}: {json.dumps(value)}" for part, value in spec.items())


def test_attention_needs_transposes_and_passes_over_psum() -> None:
    p, m, e, f = 1024, 512, 128, 128
    kernel = einsum.compile(
        ATTENTION, sizes={"P": p, "M": m, "E": e, "F": f}, scalars={"half": 0.5}, dtypes="bfloat16"
    )
    times = kernel.roofline.times_ns
    # a column of TensorE per 1/2.4 ns: both products, then the transposes of SN
    products = p * m * (e + f) / (128 * 128) / 2.4
    assert times["tensor"] == pytest.approx(products)
    assert times["turned"] == pytest.approx(products + p * m / 128 / 2.4)
    # VectorE has the maximum, 0.96 per ns; ScalarE the exponentials, 1.2 per ns; either copies SN, scales A
    maximum, exponentials = p * m / 128 / 0.96, p * m / 128 / 1.2
    either = (p * m + f * p) / 128
    # VectorE copies two elements at once; both engines end together
    end = (either + maximum * 1.92 + exponentials * 1.2) / (1.92 + 1.2)
    assert maximum < end
    assert times["psum"] == pytest.approx(end)
    assert kernel.estimate.latency_us >= kernel.roofline.least_us


def test_products_of_float32_take_four_passes_and_transposes_one() -> None:
    p, m, e, f = 1024, 512, 128, 128
    kernel = einsum.compile(ATTENTION, sizes={"P": p, "M": m, "E": e, "F": f}, scalars={"half": 0.5})
    times = kernel.roofline.times_ns
    products = 4 * p * m * (e + f) / (128 * 128) / 2.4
    assert times["turned"] == pytest.approx(products + p * m / 128 / 2.4)
    assert kernel.estimate.latency_us >= kernel.roofline.least_us


def test_without_a_reduction_before_it_no_operand_is_turned() -> None:
    kernel = einsum.compile(
        "T[m, p] = Q[e, p] . K[e, m] ;; M mul V add\nS[m, p] = T[m, p] ;; M unary(relu)\n"
        "Z[f, p] = S[m, p] . V[m, f] ;; M mul V add",
        sizes={"P": 256, "M": 256, "E": 128, "F": 128},
    )
    assert kernel.roofline.times_ns["turned"] == 0


def test_products_of_three_count_in_their_cheapest_order() -> None:
    kernel = einsum.compile(
        "Z[i, r] = A[i, j, k] . B[j, r] . C[k, r] ;; M mul V add",
        sizes={"I": 64, "J": 128, "K": 256, "R": 16}, dtypes="bfloat16",
    )  # fmt: skip
    # k first leaves 128 products per i and r, j first would leave 256
    products = 64 * 128 * 256 * 16 + 64 * 128 * 16
    assert kernel.roofline.times_ns["tensor"] == pytest.approx(products / (128 * 128) / 2.4)
    assert kernel.estimate.latency_us >= kernel.roofline.least_us


def test_turns_that_wait_for_each_other_bound_a_block_by_their_latency() -> None:
    # a state of 128 elements that loses what a product finds in it, then is scaled: the product waits for the
    # state, two operators for the product
    turns = 256
    spec = {
        "einsum": {
            "declaration": {"A": ["M", "K"], "B": ["I", "K"], "S": ["I1", "K"], "P": ["I", "K"],
                            "Q": ["I", "K"], "Z": ["K"]},
            "expressions": [
                "S[0, k] = const(1)",
                {"iterate": "i", "body": ["P[i, m] = A[m, k] . S[i, k] ;; M mul V add",
                                          "Q[i, k] = B[i, k] . P[i, k] ;; M binary(subtract)",
                                          "S[i+1, k] = Q[i, k] . half ;; M mul"]},
                "Z[k] = S[I, k] ;; M unary(relu)",
            ],
            "shape": {"I": turns, "I1": turns + 1, "M": 128, "K": 128},
            "scalars": {"half": 0.5},
        },
        "options": {"cascade-outputs": ["Z"]},
    }  # fmt: skip
    kernel = einsum.compile(text_of(spec))
    # trn2: 128 columns take VectorE 158 ns and a quarter of a cycle of 0.96 GHz each in its fastest mode,
    # less than float32 takes TensorE; one element per partition takes GpSimdE 151 cycles of 1.2 GHz
    product, rest = 158 + 128 / (4 * 0.96), 151 / 1.2
    assert kernel.roofline.times_ns["chain"] == pytest.approx(turns * (product + rest))
    assert kernel.roofline.bound == "chain"
    assert kernel.estimate.latency_us >= kernel.roofline.least_us


def test_a_running_sum_has_no_chain() -> None:
    spec = {
        "einsum": {
            "declaration": {"X": ["I", "M"], "S": ["I1", "M"]},
            "expressions": ["S[0, m] = const(0)",
                            {"iterate": "i", "body": ["S[i+1, m] = S[i, m] . X[i, m] ;; M add"]}],
            "shape": {"I": 64, "I1": 65, "M": 16},
        },
        "options": {"cascade-outputs": ["S"]},
    }  # fmt: skip
    assert einsum.compile(text_of(spec)).roofline.times_ns["chain"] == 0


def test_a_matrix_that_turns_multiply_with_vectors_goes_through_engines_in_each() -> None:
    turns, rows, depth = 16, 256, 256
    spec = {
        "einsum": {
            "declaration": {"A": ["M", "K"], "X": ["I1", "K"], "Y": ["I", "M"], "Z": ["K"]},
            "expressions": ["X[0, k] = const(1)",
                            {"iterate": "i", "body": ["Y[i, m] = A[m, k] . X[i, k] ;; M mul V add",
                                                      "X[i+1, m] = Y[i, m] ;; M unary(tanh)"]},
                            "Z[k] = X[I, k] ;; M unary(relu)"],
            "shape": {"I": turns, "I1": turns + 1, "M": rows, "K": depth},
        },
        "options": {"cascade-outputs": ["Z"]},
    }  # fmt: skip
    kernel = einsum.compile(text_of(spec), dtypes="bfloat16")
    # per ns and lane: TensorE a column of 2.4 GHz on each of 4 tiles of the array (nc_matmul, tiling mode);
    # VectorE adds two elements of two bytes in 0.96 GHz, GpSimdE one in 1.2; DMA adds 435 bytes a ns
    rate = 4 * 2.4 + 2 * 0.96 + 1.2 + 435 / 128 / 2
    assert kernel.roofline.times_ns["vectors"] == pytest.approx(turns * rows * depth / 128 / rate)
    assert kernel.estimate.latency_us >= kernel.roofline.least_us


def test_products_whose_vectors_are_known_together_are_none_with_vectors() -> None:
    """Of turns that need no other, TensorE takes many vectors with a matrix at once."""
    product = "Z[m, n] = A[k, m] . B[k, n] ;; M mul V add"
    by_turn = {
        "declaration": {"A": ["M", "K"], "X": ["I", "K"], "Z": ["I", "M"]},
        "expressions": [{"iterate": "i", "body": ["Z[i, m] = A[m, k] . X[i, k] ;; M mul V add"]}],
        "shape": {"I": 16, "M": 128, "K": 128},
    }
    kernels = (
        einsum.compile(product, sizes={"K": 128, "M": 128, "N": 128}),
        einsum.compile(text_of({"einsum": by_turn})),
    )
    assert [k.roofline.times_ns["vectors"] for k in kernels] == [0, 0]


def test_an_input_that_nothing_reads_crosses_no_memory() -> None:
    declaration = {name: ["M", "N"] for name in "ABZ"}
    spec = {"einsum": {"declaration": declaration, "expressions": ["Z[m, n] = A[m, n] ;; M exp"]}}
    kernel = einsum.compile(spec, sizes={"M": 256, "N": 512})
    assert kernel.roofline.bytes == 2 * 256 * 512 * 4


def test_a_comparison_of_one_reader_rules_nothing_out_for_another() -> None:
    def tensor_ns(mask: str) -> float:
        text = f"S[i, j] = A[i, d] * B[j, d]\nM[i] = max(S[i, j], j)\nD[i] = sum(S[i, j]{mask}, j)"
        kernel = einsum.compile(text, sizes={"I": 256, "J": 256, "D": 64}, outputs=["M", "D"])
        return kernel.roofline.times_ns["tensor"]

    assert tensor_ns(" if j <= i else 0") == tensor_ns("") > 0


@pytest.mark.parametrize(
    ("text", "shapes", "elements"),
    [
        ("bii->b", {"A": (16, 8, 8)}, 16 * 8 + 16),
        ("Z[b] = A[b, 3] * 2", {"A": (16, 8)}, 16 + 16),
        # windows of 3 x 3 at 2 x 4 places: 4 of 8 rows
        ("Z[p, q] = A[p + r, q + s] * F[r, s]", {"A": (8, 6), "F": (3, 3), "Z": (2, 4)}, 4 * 6 + 9 + 8),
        ("Z[b] = sum(A[b, i], i) + A[b, 0]", {"A": (16, 8)}, 16 * 8 + 16),
    ],
)
def test_only_what_is_read_of_an_input_crosses_memory(
    text: str, shapes: dict[str, tuple[int, ...]], elements: int
) -> None:
    assert einsum.compile(text, shapes=shapes).roofline.bytes == 4 * elements
