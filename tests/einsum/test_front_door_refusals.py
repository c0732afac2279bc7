"""What the front door took in silence or ended in a traceback: refused with its place, or computed."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab.einsum import compile as compile_einsum
from nkilab.einsum.plan.product import even_blocks
from nkilab.errors import NkilabError

TYPES = ("float32, tfloat32, bfloat16, float16, float8_e4m3, float8_e5m2, int32, int16, int8, uint32, "
         "uint16, uint8")  # fmt: skip
EXP = "einsum:\n  declaration: {A: [M], Z: [M]}\n  expressions: ['Z[m] = A[m] ;; M exp']\n  shape: {M: 64}\n"
STATE = """einsum:
  declaration: {X: [T, C], H: [T1, C]}
  expressions:
    - H[0, c] = const(0)
    - iterate: t
      body:
        - H[t+1, c] = H[t, c] + X[t, c]
  shape: {T: 4, C: 8, T1: 5}
options: {cascade-outputs: [H]}
"""
OF_EXPRESSIONS = (
    "it belongs to expressions, and the specification is none\n"
    "  hint: write scalars under einsum.scalars, and outputs under options.cascade-outputs"
)
REFUSED: dict[str, tuple[str, dict[str, object], str]] = {
    "a scalar that is no number": (
        "Z[m] = A[m] . s ;; M mul",
        {"sizes": {"M": 4}, "scalars": {"s": float("nan")}},
        "1:1: einsum.scalars.s: the scalar s is nan; kernels compute in float32, "
        "whose largest number is 3.4e+38\n  hint: write a number of float32, or inf",
    ),
    "a scalar beyond float64": (
        "Z[m] = A[m] . s ;; M mul",
        {"sizes": {"M": 4}, "scalars": {"s": 10**400}},
        "1:1: einsum.scalars.s: the scalar s is a whole number of 401 digits; kernels compute in float32, "
        "whose largest number is 3.4e+38\n  hint: write a number of float32, or inf",
    ),
    "a scalar beyond float32 in YAML": (
        EXP + "  scalars: {s: 1.0e+39}",
        {},
        "5:16: einsum.scalars.s: the scalar s is 1e+39; kernels compute in float32, whose largest number is "
        "3.4e+38\n  hint: write a number of float32, or inf",
    ),
    "a truth value for a scalar": (
        "Z[m] = A[m] . s ;; M mul",
        {"sizes": {"M": 4}, "scalars": {"s": True}},
        "the scalar s is True; it must be a number",
    ),
    "a scalar of nothing": (
        "Z[m] = A[m]",
        {"sizes": {"M": 4}, "scalars": {"s": 2}},
        "the scalar s is given; the scalars of the expressions are none",
    ),
    "scalars beside YAML": (EXP, {"scalars": {"s": 3}}, f"scalars is given; {OF_EXPRESSIONS}"),
    "outputs beside YAML": (EXP, {"outputs": ("A",)}, f"outputs is given; {OF_EXPRESSIONS}"),
    "outputs beside subscripts": (
        "m->m",
        {"sizes": {"M": 4}, "outputs": ["A"]},
        f"outputs is given; {OF_EXPRESSIONS}",
    ),
    "an output of no Einsum": (
        "Z[m] = A[m]",
        {"sizes": {"M": 4}, "outputs": ("Q",)},
        "outputs: the output Q is not declared\n  hint: the tensors written are Z",
    ),
    "an input for an output": (
        "Z[m] = A[m]",
        {"sizes": {"M": 4}, "outputs": ("A",)},
        "outputs: the output A is never written\n  hint: the tensors written are Z",
    ),
    "a text for outputs": (
        "Z[m] = A[m]",
        {"sizes": {"M": 4}, "outputs": "Z"},
        "outputs is 'Z'; it must be a tuple of names, such as (\"Z\",)",
    ),
    "no name of a function": (
        "Z[m] = A[m]",
        {"sizes": {"M": 4}, "name": "a b"},
        "name is 'a b'; a function's name has letters, digits and _",
    ),
    "a kernel of the name of a function beside it": (
        "Z[m] = A[m]",
        {"sizes": {"M": 4}, "name": "pack"},
        "1:1: options.kernel-name: pack is a word of Python or of the kernel's module\n"
        "  hint: call the kernel something else",
    ),
    "a shape that contradicts sizes": (
        "m->m",
        {"sizes": {"M": 3}, "shapes": {"A": (4,)}},
        "rank M has 3 elements as given and 4 in A\n  hint: give equally many",
    ),
    "a size without ranks": ("->", {"sizes": {"M": 3}}, "size of M is given; there are no ranks"),
    "an Einsum of itself": (
        "Z[m, n] = Z[m, n] . A[m, n] ;; M mul",
        {"sizes": {"M": 4, "N": 4}},
        "1:1: einsum.expressions: Z is read here, and this expression is the first that writes it\n"
        "  hint: write the start of Z before, or name the result otherwise",
    ),
    "a constant index before the start": (
        "Z[m] = A[m, -1]",
        {"sizes": {"M": 4, "A_1": 4}},
        "1:8: einsum.expressions: the index -1 of A lies outside; rank A_1 has 4 elements\n"
        "  expression: Z[m] = A[m, -1]\n  hint: count from 0: 3",
    ),
    "a constant index behind the end": (
        "Q[m] = A[m, 0]; Z[m] = A[m, 7]",
        {"sizes": {"M": 4, "A_1": 4}},
        "1:24: einsum.expressions: the index 7 of A lies outside; rank A_1 has 4 elements\n"
        "  expression: Z[m] = A[m, 7]\n  hint: change the extents, or the index",
    ),
    "a window that is never inside": (
        "P[m] = A[m, k] ;; V add\nZ[m] = P[m+64]",
        {"sizes": {"M": 64, "K": 3}},
        "2:8: einsum.expressions: the index m + 64 of P runs from 64 to 127; rank M has 64 elements\n"
        "  expression: Z[m] = P[m+64]\n  hint: change the extents, or the index",
    ),
    "indices from beyond their tensor": (
        "Z[m, k] = B[I[m]] . C[I[k]] ;; M mul",
        {"sizes": {"M": 1, "K": 2, "B_0": 4, "C_0": 4}},
        "1:23: einsum.expressions: the index k of I runs from 0 to 1; rank M has 1 elements\n"
        "  expression: Z[m, k] = B[I[m]] . C[I[k]] ;; M mul\n  hint: change the extents, or the index",
    ),
    "letters of two cases": (
        "aA,Ab->ab",
        {},
        "spec: a and A are one rank here, whatever their case\n  subscripts: aA,Ab->ab\n"
        "  hint: take another letter",
    ),
    "more operands than letters": (
        ",".join("a" * 26) + "->a",
        {},
        f"spec: there are 26 operands; at most 25 are read\n  subscripts: {','.join('a' * 26)}->a\n"
        "  hint: write expressions",
    ),
    "an ellipsis": (
        "...ij,...jk->...ik",
        {},
        "spec: '...' stands for axes without a name; every axis needs a letter\n"
        "  subscripts: ...ij,...jk->...ik\n  hint: write the letters out",
    ),
    "no result": (
        "mk, kn",
        {},
        "spec: '->' and the axes of the result are missing\n  subscripts: mk, kn\n  hint: write 'mk,kn->mn'",
    ),
    "two arrows": (
        "a->b->c",
        {},
        "spec: '-' means nothing in subscripts; they are letters, commas and one '->'\n  subscripts: a->b->c",
    ),
    "a result that no operand has": (
        "i->ij",
        {},
        "spec: the result has the axis j, which no operand has\n  subscripts: i->ij\n"
        "  hint: leave j out of it",
    ),
    "an axis of the result twice": (
        "i->ii",
        {},
        "spec: the result has the axis i twice\n  subscripts: i->ii\n  hint: write it once",
    ),
    "truth values": (
        "mk,kn->mn",
        {"dtypes": "bool"},
        f"dtype of every tensor is bool; it must be one of {TYPES}, float8_e4m3fn",
    ),
    "truth values in YAML": (
        EXP + "format: {A: {dtype: bool}}",
        {},
        f"5:13: format: dtype of A is bool; it must be one of {TYPES}, float8_e4m3fn",
    ),
    "a type that Beta 1 lacks": (
        "m->m",
        {"dtypes": {"A": "float8_e4m3fn"}, "dialect": "neuronxcc"},
        f"dtype of A is float8_e4m3fn; it must be one of {TYPES}",
    ),
    # what newcomers write
    "no sign between factors": (
        "Z[m] = A[m] B[m]",
        {},
        "1:13: einsum.expressions: 'B' stands where an operator or the end is needed\n"
        "  expression: Z[m] = A[m] B[m]\n"
        "  hint: write '*' between factors",
    ),
    "a product of matrices by a sign": (
        "Z[m, n] = A[m, k] @ B[k, n]",
        {},
        "1:19: einsum.expressions: '@' stands where an operator or the end is needed\n"
        "  expression: Z[m, n] = A[m, k] @ B[k, n]\n"
        "  hint: write Z[m, n] = A[m, k] * B[k, n]",
    ),
    "a sum within a function": (
        "Z[m, n] = silu(A[m, k] * B[k, n])",
        {},
        "1:11: einsum.expressions: it is not clear where k is summed\n"
        "  expression: Z[m, n] = silu(A[m, k] * B[k, n])\n"
        "  hint: write Z[m, n] = sum(silu(A[m, k] * B[k, n]), k) or "
        "Z[m, n] = silu(sum(A[m, k] * B[k, n], k))",
    ),
    "a reduction over what the result keeps": (
        "Z[m, n] = X[m, n] / sum(X[m, n])",
        {},
        "1:21: einsum.expressions: sum needs what it reduces over\n"
        "  expression: Z[m, n] = X[m, n] / sum(X[m, n])\n"
        "  hint: write sum(..., n)",
    ),
    "a reduction over what is not there": (
        "Z[m, n] = X[m, n] / sum(D[m], n)",
        {},
        "1:21: einsum.expressions: what sum reduces has no n\n"
        "  expression: Z[m, n] = X[m, n] / sum(D[m], n)\n"
        "  hint: write sum(..., m)",
    ),
    "a function of too many values": (
        "Z[m] = exp(X[m], Y[m])",
        {},
        "1:8: einsum.expressions: exp takes 1 value; 2 are given\n  expression: Z[m] = exp(X[m], Y[m])",
    ),
    "parentheses that stay open": (
        "Z[m] = exp(X[m]",
        {},
        "1:16: einsum.expressions: the expression ends where exp needs ')'\n  expression: Z[m] = exp(X[m]",
    ),
    "a sum by index into what holds something": (
        "S[n] = X[n]; S[I[t]] += Y[t]",
        {},
        "1:13: einsum.expressions: S is written before, and a sum by index begins at zero\n"
        "  expression: S[I[t]] += Y[t]\n"
        "  hint: sum into a tensor of its own, and add it: T[...] = S[...] + U[...]",
    ),
    "a sum into the result": (
        "Z[m] += A[m]",
        {},
        "1:1: einsum.expressions: Z[m] += sums nothing: every variable stands on the left\n"
        "  expression: Z[m] += A[m]\n"
        "  hint: write '='; what is added to another tensor needs a name of its own: T[m] = S[m] + X[m]",
    ),
    "an operator misspelt": (
        "Z[m] = A[m] ;; M tahn",
        {},
        "1:18: einsum.expressions: tahn is no operator\n  expression: Z[m] = A[m] ;; M tahn\n"
        "  hint: write tanh, if that is meant",
    ),
    "a word for an operator": (
        "Z[m] = A[m, n] ;; V sum",
        {},
        "1:21: einsum.expressions: sum is no operator\n  expression: Z[m] = A[m, n] ;; V sum\n"
        "  hint: write add, if that is meant",
    ),
    "a missing operand": (
        "Z[m] = A[m] ;; M div",
        {},
        "1:18: einsum.expressions: divide takes two operands; one is given\n"
        "  expression: Z[m] = A[m] ;; M div",
    ),
    "a missing index": (
        "Q[m, n] = A[m, n]\nZ[m] = A[m]",
        {},
        "2:8: einsum.expressions: A has the ranks [M, N] and the indices [m] here, not one for each\n"
        "  expression: Z[m] = A[m]\n  hint: write one index for each: A[m, n]",
    ),
    "a scalar without a value": (
        "Z[m] = A[m] . s ;; M mul",
        {},
        "1:1: einsum.expressions: the scalar s has no value\n  expression: Z[m] = A[m] . s ;; M mul\n"
        "  hint: write a number in its place, add s: VALUE under einsum.scalars, or in Python "
        "scalars={'s': VALUE}",
    ),
    "ranks without brackets": (
        EXP.replace("[M], Z", "M, Z"),
        {},
        "2:20: einsum.declaration.A: 'M' stands where a list is needed\n"
        "  hint: put it into brackets, or begin it with '- '",
    ),
    "an extent in quotes": (
        EXP.replace("64", "'64'"),
        {},
        "4:14: einsum.shape.M: '64' stands where a whole number of at least 1 is needed\n"
        "  hint: leave the quotes out",
    ),
    "two extents": (
        EXP,
        {"sizes": {"M": 3}},
        "rank M is 64 in the specification and 3 is asked for\n  hint: leave one of them out",
    ),
    "no file": (
        "kernels/spec.yml",
        {},
        "kernels/spec.yml cannot be read: no such file or directory\n"
        "  hint: give the path of a file, formulas ('Z[m, n] = A[m, k] * B[k, n]') or subscripts ('mk->m')",
    ),
    "tensors without indices": (
        "Z = A @ B",
        {},
        "1:3: einsum.expressions: '=' stands where tensor Z needs '['\n  expression: Z = A @ B\n"
        "  hint: write its indices in brackets: Z[m, n], Z[] for one number",
    ),
    "a text that is none": (
        "Z equals A\n",
        {},
        "the specification is 'Z equals A\\n'; it must be the path of a file, YAML, expressions or "
        "subscripts\n"
        '  hint: pass "mk,kn->mn", or the path of a specification',
    ),
    "a tensor misspelt": (
        STATE.replace("+ X[t", "+ XX[t"),
        {},
        "7:33: einsum.expressions: XX is not declared\n  expression: H[t+1, c] = H[t, c] + XX[t, c]\n"
        "  hint: write X, if that is meant, or add XX: [...] to declaration",
    ),
    "a result that nothing reads before the next": (
        "Z[m] = A[m]\nZ[m] = B[m]",
        {"sizes": {"M": 4}},
        "2:1: einsum.expressions: Z is written here once more, and nothing has read it before\n"
        "  hint: name one of the two otherwise, or leave it out",
    ),
    "a sum over what is not there": (
        "Z[m] = sum(A[m], k)",
        {"sizes": {"M": 4, "K": 4}},
        "1:8: einsum.expressions: what sum reduces has no k\n  expression: Z[m] = sum(A[m], k)\n"
        "  hint: write sum(..., m)",
    ),
    "a softmax over what is not there": (
        "Z[m, n] = softmax(A[m, n], k)",
        {"sizes": {"M": 4, "N": 4, "K": 4}},
        "1:11: einsum.expressions: what softmax reduces has no k\n"
        "  expression: Z[m, n] = softmax(A[m, n], k)\n  hint: write softmax(..., n)",
    ),
    "two shapes of one rank": (
        "ij,jk->ik",
        {"shapes": {"A": (4, 5), "B": (6, 7)}},
        "rank J has 5 elements in A and 6 in B\n"
        "  hint: give equally many, or sizes={'J': 5} to read a part of one",
    ),
    "an extent of an axis that parts of an index reach": (
        "Z[h, j] = Q[h, e] * K[h // 4, j, e]",
        {"sizes": {"H": 8, "J": 4, "E": 2, "G": 2}},
        "size of G is given; the ranks are H, E, K_0, J\n  hint: leave G out; no variable indexes K_0 alone: "
        "its index tells it, or shapes={'K': [K_0, J, E]}",
    ),
    "turns in turns that leave a state to each other": (
        "S[0, 0] = 0\nS[t, p+1] = 2 * S[t, p] + X[t, p]\nS[t+1, 0] = S[t, P]",
        {"sizes": {"T": 4, "P": 2}},
        "3:1: einsum.expressions: S has no p and stands among expressions that run once per p\n"
        "  expression: S[t+1, 0] = S[t, P]\n"
        "  hint: write a line for each value of p, without p: A[t] of S[t], then S[t+1] of A[t]",
    ),
    "a shape with too few extents": (
        "Z[m] = sum(A[m, k], k)",
        {"shapes": {"A": (4,)}},
        "A has the shape [4]; it is declared [M, K]\n  hint: give one extent for each of its ranks",
    ),
    "half an index": (
        "Z[m] = A[m/2]",
        {"sizes": {"M": 4}},
        "1:11: einsum.expressions: '/' stands where an index of A needs ','\n"
        "  expression: Z[m] = A[m/2]\n  hint: write // for whole parts: n // 2",
    ),
    "a state without a start": (
        STATE.replace("    - H[0, c] = const(0)\n", ""),
        {},
        "6:23: einsum.expressions: H[0, c] is read where nothing has written it\n"
        "  expression: H[t+1, c] = H[t, c] + X[t, c]\n  hint: write it before",
    ),
    "a state that begins too late": (
        STATE.replace("H[0, c]", "H[1, c]"),
        {},
        "7:23: einsum.expressions: H[0, c] is read where nothing has written it\n"
        "  expression: H[t+1, c] = H[t, c] + X[t, c]\n  hint: write it before",
    ),
    "a block over no index of its own": (
        STATE.replace("iterate: t", "iterate: u"),
        {},
        "5:16: einsum.expressions: the variable u is in no index of its block\n"
        "  hint: iterate over one of t, c",
    ),
    "keys that are not indented alike": (
        STATE.replace("  shape:", " shape:"),
        {},
        "8:2: spec: this is no YAML: expected <block end>, but found '<block mapping start>'\n"
        "  hint: indent keys of one level alike, and close what is opened",
    ),
    "no expressions": (
        "einsum:\n  declaration: {A: [M]}\n  expressions: []\n  shape: {M: 4}\n",
        {},
        "3:3: einsum.expressions: there are no expressions\n  hint: write one: Z[m] = A[m]",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_meaning_is_refused_with_its_place(case: str) -> None:
    spec, options, message = REFUSED[case]
    with pytest.raises(NkilabError) as refused:
        compile_einsum(spec, **options)
    assert str(refused.value) == message


def test_a_window_that_is_inside_in_part_reads_zeros_beyond() -> None:
    kernel = compile_einsum("Z[m] = A[m-1]", sizes={"M": 4, "A_0": 4})
    np.testing.assert_array_equal(kernel(np.arange(1.0, 5.0)), [0, 1, 2, 3])


def test_a_product_with_a_vector_is_reported_with_what_binds_it() -> None:
    report = compile_einsum("mk,k->m", sizes={"M": 256, "K": 256}).report
    assert "all engines on products with vectors" in report


def test_a_product_of_three_of_which_no_two_have_a_sum_is_reported() -> None:
    report = compile_einsum("eec,eca,eca->a", sizes={"E": 2, "C": 31, "A": 7}).report
    assert "roofline of the cascade" in report


def test_an_input_that_shapes_have_longer_is_read_in_part() -> None:
    p, q = (np.random.default_rng(3).standard_normal((2, n, 70)).astype(np.float32) for n in (5, 4))
    kernel = compile_einsum(
        "Z[b, v] = P[b, k, v] * Q[b, k, v]", shapes={"P": p.shape, "Q": q.shape}, sizes={"K": 4}
    )
    np.testing.assert_allclose(kernel(p, q), (p[:, :4] * q).sum(1), rtol=1e-5, atol=1e-5)
    with pytest.raises(NkilabError, match="P"):
        kernel(p[:, :4], q)


def test_a_scalar_of_the_name_of_a_rank_is_the_one_that_is_given() -> None:
    text, sizes = "T[n] = X[m, n]\nZ[n] = T[n] * M", {"M": 3, "N": 2}
    x = np.ones((3, 2), np.float32)
    np.testing.assert_array_equal(compile_einsum(text, sizes=sizes)(x), [9, 9])
    np.testing.assert_array_equal(compile_einsum(text, sizes=sizes, scalars={"M": 5})(x), [15, 15])


def test_parts_of_a_long_product_are_parts_of_the_next() -> None:
    shapes = {"A": (2, 3), "B": (3, 4), "C": (4, 5), "D": (5, 6)}
    kernel = compile_einsum("ab,bc,cd,de->ae", shapes=shapes)
    arrays = [
        np.random.default_rng(n).integers(-2, 3, s).astype(np.float64) for n, s in enumerate(shapes.values())
    ]
    a, b, c, d = arrays
    np.testing.assert_array_equal(kernel(*arrays), a @ b @ c @ d)


def test_spaces_in_subscripts_mean_nothing() -> None:
    kernel = compile_einsum(" m k , k n -> m n ", sizes={"M": 2, "K": 3, "N": 4})
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(kernel(a, b), a @ b)


@pytest.mark.parametrize("operator", ["add", "mul", "max", "min"])
def test_what_combines_any_number_of_operands_leaves_one_as_it_is(operator: str) -> None:
    kernel = compile_einsum(f"Z[] = A[m, k] ;; M {operator} V add", sizes={"M": 2, "K": 3})
    assert kernel(np.arange(6.0).reshape(2, 3)) == 15


def test_a_zero_keeps_its_sign() -> None:
    kernel = compile_einsum("Z[m] = A[m] . s ;; M mul", sizes={"M": 2}, scalars={"s": -0.0})
    np.testing.assert_array_equal(np.signbit(kernel(np.array([1.0, -1.0]))), [True, False])


def test_blocks_of_a_long_axis_are_found_without_trying_each() -> None:
    # by their definition: whole steps that divide the extent
    for extent, step in ((1024, 128), (1536, 512), (130, 128), (96, 128), (7 * 128, 128), (1280, 512)):
        expected = {n for n in range(step, extent, step) if extent % step == 0 and extent % n == 0}
        assert even_blocks(extent, step) == expected
    # 2^31 elements: 2^24 steps of 128, whose divisors are the powers of two
    assert even_blocks(1 << 31, 128) == {1 << n for n in range(7, 31)}
