"""Positions as operands, gathers and sums by any index, places of the largest, parts of indices: as NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nkilab import einsum
from nkilab.einsum.reference import evaluate
from nkilab.einsum.tolerance import bounds
from nkilab.errors import SpecError, UsageError
from nkilab.tiles.dtypes import as_dtype
from tests.einsum.test_fuzz import need_no_fault

_RNG = np.random.default_rng(5)


def _whole(*shape: int, most: int = 9) -> Any:
    """Whole numbers, many of them equal."""
    return _RNG.integers(-most, most + 1, shape).astype(np.float32)


def _places(most: int, *shape: int) -> Any:
    return _RNG.integers(0, most, shape).astype(np.int32)


def _added(shape: tuple[int, ...], places: Any, values: Any) -> Any:
    total = np.zeros(shape, np.float32)
    np.add.at(total, places, values)
    return total


def _first_places(x: Any, count: int) -> Any:
    """Places of the largest, of equal ones the first."""
    return np.argsort(-x, axis=1, kind="stable")[:, :count]


ROW, COLUMN = np.arange(70)[:, None], np.arange(150)[None, :]
CASES: dict[str, tuple[str, dict[str, Any], Callable[..., Any]]] = {
    "positions in a bias": (
        "A[h, i, j] = L[h] . (j - i) ;; M mul; Z[h, i, j] = S[h, i, j] . A[h, i, j] ;; M add",
        {"L": _whole(3), "S": _whole(3, 70, 150)},
        lambda slope, s: s + slope[:, None, None] * (COLUMN - ROW),
    ),
    "a position by its name": ("Z[i, j] = X[i, j] . i ;; M mul", {"X": _whole(70, 150)}, lambda x: x * ROW),
    "an extent less a position": (
        "Z[i] = X[i, j] . (J - 1 - 2*j) ;; M mul V add", {"X": _whole(70, 150)},
        lambda x: (x * (149 - 2 * COLUMN)).sum(1),
    ),
    "positions along what is summed over partitions": (
        "Z[j] = X[i, j] . i ;; M mul V max", {"X": _whole(70, 150)}, lambda x: (x * ROW).max(0),
    ),
    "a gather in a batch": (
        "Z[b, t, d] = W[b, K[b, t], d]", {"W": _whole(3, 40, 20), "K": _places(40, 3, 150)},
        lambda w, k: np.stack([w[b][k[b]] for b in range(3)]),
    ),
    "one element of each row": (
        "Z[m] = X[m, K[m]]", {"X": _whole(150, 40), "K": _places(40, 150)}, lambda x, k: x[np.arange(150), k],
    ),
    "columns": ("Z[m, t] = X[m, K[t]]", {"X": _whole(9, 40), "K": _places(40, 7)}, lambda x, k: x[:, k]),
    "a column for each row": (
        "Z[m, t] = X[m, K[m, t]]", {"X": _whole(150, 40), "K": _places(40, 150, 7)},
        lambda x, k: np.take_along_axis(x, k, 1),
    ),
    "rows and columns backwards": (
        "Z[b, m, n] = X[b, 139 - m, 6 - n]", {"X": _whole(3, 140, 7)}, lambda x: x[:, ::-1, ::-1]
    ),
    "a vector backwards": ("Z[n] = X[1000 - n]", {"X": _whole(1001)}, lambda x: x[::-1]),
    "the largest of a tile after the other, with many equal": (
        "Z[m, k] = X[m, n] ;; V argtopk", {"X": _whole(2, 20011)}, lambda x: _first_places(x, 11)
    ),
    "the largest of few rows, with many equal": (
        "Z[m, k] = X[m, n] ;; V argtopk", {"X": _whole(3, 4096)}, lambda x: _first_places(x, 9)
    ),
    "two indices": (
        "Z[t, d] = X[P[t], Q[t], d]", {"X": _whole(9, 12, 20), "P": _places(9, 150), "Q": _places(12, 150)},
        lambda x, p, q: x[p, q],
    ),
    "a bag of rows": (
        "Z[b, d] = W[K[b, t], d] ;; V add", {"W": _whole(40, 20), "K": _places(40, 150, 6)},
        lambda w, k: w[k].sum(1),
    ),
    "pages": (
        "S[b, q, p, t] = Q[b, q, d] . K[P[b, p], t, d] ;; M mul V add",
        {"Q": _whole(2, 4, 32), "K": _whole(20, 16, 32), "P": _places(20, 2, 5)},
        lambda q, k, p: np.einsum("bqd,bptd->bqpt", q, k[p]),
    ),
    "rows of what was computed": (
        "H[v, d] = W[v, d] . W[v, d] ;; M mul; Z[t, d] = H[K[t], d]",
        {"W": _whole(40, 20), "K": _places(40, 150)}, lambda w, k: (w * w)[k],
    ),
    "a gather by what was gathered": (
        "L[t] = K[P[t]]; Z[t, d] = W[L[t], d]",
        {"K": _places(40, 9), "P": _places(9, 150), "W": _whole(40, 20)}, lambda k, p, w: w[k[p]],
    ),
    "a gather by what was computed": (
        "K[t] = X[t, v] ;; V argmax; Z[t, d] = W[K[t], d]", {"X": _whole(150, 40), "W": _whole(40, 20)},
        lambda x, w: w[x.argmax(1)],
    ),
    "sums by index": (
        "Z[K[t], d] = X[t, d] ;; V add", {"K": _places(40, 150), "X": _whole(150, 20)},
        lambda k, x: _added((40, 20), (k,), x),
    ),
    "a histogram": (
        "Z[K[t]] = const(1) ;; V add", {"K": _places(40, 300)}, lambda k: np.bincount(k, minlength=40)
    ),
    "sums by two indices": (
        "Z[P[t], Q[t]] = X[t] ;; V add", {"P": _places(9, 150), "Q": _places(40, 150), "X": _whole(150)},
        lambda p, q, x: _added((9, 40), (p, q), x),
    ),
    "the place of the largest": (
        "K[m] = X[m, n] ;; V argmax", {"X": _whole(150, 40)}, lambda x: x.argmax(1)
    ),
    "the place of the smallest, over partitions": (
        "K[n] = X[m, n] ;; V argmin", {"X": _whole(150, 40)}, lambda x: x.argmin(0)
    ),
    "the place of the largest product": (
        "K[m] = X[m, n] . Y[n] ;; M mul V argmax", {"X": _whole(150, 40), "Y": _whole(40)},
        lambda x, y: (x * y).argmax(1),
    ),
    "the largest few": (
        "Z[m, k] = X[m, n] ;; V topk", {"X": _whole(150, 40)}, lambda x: -np.sort(-x, axis=1)[:, :5]
    ),
    "parts of an index": (
        "Z[n, d] = X[n // 6, n // 2 % 3, n % 2, d]", {"X": _whole(25, 3, 2, 20)}, lambda x: x.reshape(150, 20)
    ),
    "axes as one before a product": (
        "P[n, d] = X[n // 30, n % 30, d]; Z[n, e] = P[n, d] . W[d, e] ;; M mul V add",
        {"X": _whole(7, 30, 127), "P": _whole(210, 127), "W": _whole(127, 2)},
        lambda x, p, w: x.reshape(210, 127) @ w,
    ),
    "an index in parts of the result": (
        "Z[n // 6, n % 6] = X[n]", {"X": _whole(150)}, lambda x: x.reshape(25, 6)
    ),
    "sums of parts": ("Z[n // 6] = X[n] ;; V add", {"X": _whole(150)}, lambda x: x.reshape(25, 6).sum(1)),
    "heads in groups": (
        "S[h, p, m] = Q[h, p, e] . K[h // 4, m, e] ;; M mul V add",
        {"Q": _whole(8, 16, 32), "K": _whole(2, 40, 32)},
        lambda q, k: np.einsum("hpe,hme->hpm", q, np.repeat(k, 4, 0)),
    ),
    "heads in groups by a rank": (
        "S[h, p, m] = Q[h, p, e] . K[h // G, m, e] . L[h % R] ;; M mul V add",
        {"Q": _whole(8, 16, 32), "K": _whole(2, 40, 32), "L": _whole(2)},
        lambda q, k, x: np.einsum("hpe,hme,h->hpm", q, np.repeat(k, 4, 0), np.tile(x, 4)),
    ),
    "pixels dealt out": (
        "Z[y, x] = X[2*(y % 2) + x % 2, y // 2, x // 2]", {"X": _whole(4, 20, 35)},
        lambda x: x.reshape(2, 2, 20, 35).transpose(2, 0, 3, 1).reshape(40, 70),
    ),
    "patches": (
        "P[a, b, y, x] = X[4*a + y, 5*b + x]; Z[a, b, d] = P[a, b, y, x] . W[y, x, d] ;; M mul V add",
        {"X": _whole(24, 35), "W": _whole(4, 5, 20)},
        lambda x, w: np.einsum("aybx,yxd->abd", x.reshape(6, 4, 7, 5), w),
    ),
    "places of the largest few": (
        "K[m, k] = X[m, n] ;; V argtopk", {"X": _whole(150, 40)}, lambda x: _first_places(x, 5)
    ),
}  # fmt: skip
# ranks that no input has
SIZES = {
    "sums by index": {"Z_0": 40}, "a histogram": {"Z_0": 40}, "sums by two indices": {"Z_0": 9, "Z_1": 40},
    "the largest few": {"K": 5}, "parts of an index": {"N": 150}, "heads in groups": {"H": 8},
    "axes as one before a product": {"N": 210},
    "heads in groups by a rank": {"H": 8, "G": 4, "R": 2},
    "an index in parts of the result": {"Z_0": 25, "Z_1": 6}, "sums of parts": {"Z_0": 25},
    "pixels dealt out": {"Y": 40, "X": 70}, "patches": {"A": 6, "B": 7},
    "places of the largest few": {"K": 5},
    "the largest of a tile after the other, with many equal": {"K": 11},
    "the largest of few rows, with many equal": {"K": 9},
    "rows and columns backwards": {"M": 140, "N": 7}, "a vector backwards": {"N": 1001},
}  # fmt: skip


@pytest.mark.corpus
@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
@pytest.mark.parametrize("name", CASES)
def test_a_form_computes_what_numpy_does(name: str, dialect: str) -> None:
    text, inputs, expected = CASES[name]
    shapes = {tensor: array.shape for tensor, array in inputs.items()}
    kernel = einsum.compile(text, shapes=shapes, sizes=SIZES.get(name), dialect=dialect)
    got = np.asarray(kernel(*(inputs[tensor] for tensor in kernel.inputs)))
    assert np.array_equal(got, np.asarray(expected(*inputs.values())))
    assert all(verdict.is_fine and verdict.compared for verdict in kernel.verify())


@pytest.mark.parametrize(
    ("text", "sizes", "problem", "hint"),
    [
        (
            "Z[K[t], d] = X[t, d]",
            "T D Z_0",
            "is written where a tensor says, perhaps twice",
            "or ';; V add'",
        ),
        (
            "Z[K[t]] = X[t, d] ;; V max",
            "T D Z_0",
            "is written where a tensor says, perhaps",
            "or ';; V add'",
        ),
        (
            "K[m] = X[m, n, p] ;; V argmax",
            "M N P",
            "argmax runs over one variable; here it is n, p",
            "reduce one",
        ),
        ("Z[m, k] = X[m, n // 2] ;; V topk", "M N K X_1", "asks for 6 of 3 values", "no more than"),
        ("Z[n] = X[n // 4]", "N X_0", "which do not divide", "a multiple"),
        ("Z[n] = X[n // G]", "N X_0", "G stands in an index and has no extent", "add G: NUMBER"),
        ("Z[n] = X[n // 2 % 2]", "N X_0", "which do not divide", "a multiple"),
        ("Z[n] = X[I[n] // 2]", "N I_0 X_0", "'//' stands where an index", "J[n] = floor(I[n] / 2)"),
        ("Z[n] = X[min(n, 3)]", "N X_0", "'(' stands where an index", "then X[J[n]]"),
        ("Z[n] = X[n >> 1]", "N X_0", "'>' stands where an index", "n // 2"),
        ("Z[n] = X[5 + -n // 2]", "N X_0", "'-' stands where an index is needed", ""),
        ("Z[n] = X[-n // 2]", "N X_0", "-n // 2 has two meanings", "write -(n // 2)"),
        ("Z[n] = X[n mod 2]", "N X_0", "'mod' stands where an index", "n % 2"),
        ("Z[n] = X[n] * n // 2", "N", "what stands before // is not clear", "X[n] * (n // 2)"),
        (
            "Z[m] = X[m, n] ;; V topk",
            "M N",
            "topk needs a variable of the output alone",
            "write Z[m, k] = X[m, n]",
        ),
    ],
)
def test_shorthand_without_a_meaning_is_refused_at_its_expression(
    text: str, sizes: str, problem: str, hint: str
) -> None:
    with pytest.raises(SpecError) as refused:
        einsum.compile(text, sizes=dict.fromkeys(sizes.split(), 6 if "//" in text else 4))
    assert problem in str(refused.value)
    assert hint in str(refused.value)
    assert text in str(refused.value)


@pytest.mark.parametrize("dtype", ["float8_e4m3", "float8_e5m2"])
def test_scales_of_blocks_are_no_floats_of_one_byte_on_chip(dtype: str) -> None:
    text = "Y[m, n] = A[m, k] * P[m, k // 64] * B[k, n] * Q[k // 64, n]"
    rng, sizes = np.random.default_rng(5), {"M": 8, "K": 128, "N": 24}
    kernel = einsum.compile(
        text, sizes=sizes, dtypes={"A": dtype, "B": dtype, "P": "float32", "Q": "float32"}
    )
    a, b = (rng.standard_normal(s).astype(as_dtype(dtype).storage) for s in ((8, 128), (128, 24)))
    # scales far beyond the largest number of one byte
    p, q = (rng.uniform(1e3, 1e5, s).astype(np.float32) for s in ((8, 2), (2, 24)))
    wide = [x.astype(np.float64) for x in (a, p, b, q)]
    expected = (wide[0] * np.repeat(wide[1], 64, 1)) @ (wide[2] * np.repeat(wide[3], 64, 0))
    assert np.abs(kernel(A=a, P=p, B=b, Q=q) - expected).max() <= 0.01 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("first", "second", "result", "loses"),
    [
        ("float8_e4m3", "float8_e4m3", "bfloat16", 2**-9),
        ("float8_e4m3", "bfloat16", "float32", 2**-20),
        ("float8_e5m2", "float16", "float32", 2**-20),
        ("bfloat16", "float16", "float32", 2**-20),
        ("int8", "float8_e4m3", "bfloat16", 2**-9),
        ("float8_e4m3", "float32", "float32", 2**-20),
    ],
)
def test_neither_operand_of_a_product_is_rounded_to_the_type_of_the_other(
    first: str, second: str, result: str, loses: float
) -> None:
    rng = np.random.default_rng(6)
    kernel = einsum.compile(
        "mk,kn->mn", shapes={"A": (8, 40), "B": (40, 8)}, dtypes={"A": first, "B": second}
    )
    a, b = (rng.standard_normal(s) * 3 for s in ((8, 40), (40, 8)))
    a, b = a.astype(as_dtype(first).storage), b.astype(as_dtype(second).storage)
    expected, size = a.astype(float) @ b.astype(float), np.abs(a.astype(float)) @ np.abs(b.astype(float))
    assert kernel.dtypes["Z"] == result
    assert np.all(np.abs(np.asarray(kernel(A=a, B=b), float) - expected) <= loses * size)


@pytest.mark.parametrize("dtype", ["float8_e4m3", "bfloat16"])
def test_what_is_computed_of_float32_is_not_rounded_to_the_type_of_weights(dtype: str) -> None:
    rng = np.random.default_rng(7)
    x, w = rng.standard_normal((40, 256)).astype(np.float32), rng.standard_normal((256, 72))
    w = w.astype(as_dtype(dtype).storage)
    text = "Q[m, k] = 3 * X[m, k]\nY[m, n] = Q[m, k] * exp(W[k, n])"
    kernel = einsum.compile(text, shapes={"X": x.shape, "W": w.shape}, dtypes={"W": dtype}, outputs=["Y"])
    exact, wide = 3 * x.astype(np.float64), np.exp(w.astype(np.float64))
    # a rounding of bfloat16 is 2^-9
    assert np.all(np.abs(kernel(x, w) - exact @ wide) <= 2.0**-18 * (np.abs(exact) @ wide))
    allowed = bounds(kernel.cascade, {"X": x, "W": w.astype(np.float64)}, kernel.dtypes).allowed["Y"]
    assert np.all(allowed < 2.0**-12 * (np.abs(exact) @ wide))


@pytest.mark.corpus
@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
@pytest.mark.parametrize("dtype", ["float8_e4m3", "float8_e5m2"])
@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (  # a scale for each row and column
            "S[m, n] = A[m, k] . B[k, n] ;; M mul V add; Z[m, n] = S[m, n] . P[m] . Q[n] ;; M mul",
            {"A": (150, 256), "B": (256, 70), "P": (150,), "Q": (70,)},
        ),
        (  # a scale for each 32 elements that are summed
            "S[m, n, g] = A[m, 32*g + j] . B[32*g + j, n] ;; M mul V add;"
            "T[m, n, g] = S[m, n, g] . P[m, g] . Q[g, n] ;; M mul; Z[m, n] = T[m, n, g] ;; V add",
            {"A": (64, 128), "B": (128, 96), "P": (64, 4), "Q": (4, 96)},
        ),
    ],
)
def test_products_of_eight_bits_with_scales_are_those_of_float64(
    text: str, shapes: dict[str, tuple[int, ...]], dtype: str, dialect: str
) -> None:
    rng = np.random.default_rng(2)
    kinds = {"A": dtype, "B": dtype, "P": "float32", "Q": "float32", "Z": "float32"}
    sizes = {"J": 32} if "32*g" in text else None
    kernel = einsum.compile(text, shapes=shapes, sizes=sizes, dtypes=kinds, dialect=dialect)
    inputs = {t: rng.uniform(-2, 2, shape).astype(as_dtype(kinds[t]).storage) for t, shape in shapes.items()}
    a, b, p, q = (inputs[t].astype(np.float64) for t in "ABPQ")
    groups = p.size // len(p)
    wide = a * np.repeat(p.reshape(len(p), groups), a.shape[1] // groups, 1)
    tall = b * np.repeat(q.reshape(groups, -1), b.shape[0] // groups, 0)
    got = np.asarray(kernel(*(inputs[t] for t in kernel.inputs)))
    # inputs are exact in float32, in which sums of 256 products of order 1 are taken
    assert np.allclose(got, wide @ tall, rtol=1e-5, atol=1e-4)
    assert all(verdict.is_fine for verdict in kernel.verify())


@pytest.mark.parametrize(
    ("text", "sizes", "shapes"),
    [
        ("Z[s, n] = X[n // 64, s, n % 64]", {"S": 5, "N": 256}, [(4, 5, 64)]),
        ("Z[h, s, d] = X[s, 64*h + d]", {"H": 4, "S": 5, "D": 64}, [(5, 256)]),
        ("Y[p] = X[p + r] * F[r]", {"P": 10, "R": 3}, [(12,), (3,)]),
        ("Y[m] = X[m, n] * S[n // 4 % 2]", {"M": 3, "N": 24}, [(3, 24), (2,)]),
    ],
)  # fmt: skip
def test_an_axis_of_no_given_extent_is_as_long_as_its_indices_reach(
    text: str, sizes: dict[str, int], shapes: list[tuple[int, ...]]
) -> None:
    kernel = einsum.compile(text, sizes=sizes)
    assert [kernel.cascade.shape(name) for name in kernel.inputs] == shapes


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Z[p] = X[p - 1]", "rank X_0 of X, which p - 1 indexes, has no extent\n  hint: add X_0: NUMBER"),
        ("Z[P] = X[P]", "X_0 of X, which P indexes, has no extent\n  hint: P is the extent of a rank; write"),
        ("Z[p] = X[D*p + 1]", "write the number, or take parts of one variable: Z[n // D, n % D] = X[n]"),
        ("Z[p] = X[p] if p > limit else 0", "the scalar limit has no value"),
        ("Z[p] = X[p] if else 0", "'else' stands where a number is needed"),
        ("Z[p] = clip(X[p])", "clip takes x, low, high; 1 are given"),
        ("Z[p] = where(X[p])", "')' stands where where needs ','"),
        ("Z[p] = sum(X[p, n], axis=n)", "write the variables alone: sum(..., n)"),
        ("Z[p] = max_n(X[p, n])", "max_n is no function"),
        ("Z[:] = X[:]", "write a variable where a slice would stand"),
        ("Z[p] = X[p] > 0 and X[p] < 1", "write 1 if X[m] > 0 and Y[m] > 0 else 0"),
        ("Z[p // 2] = X[p] + 1", "sum on a line of its own, T[m // 4] = X[m]"),
        ("Z[p] = exp(X[p, n]) + Y[p]", "hint: write Z[p] = sum(exp(X[p, n]), n) + Y[p]"),
        ("Z[p // 2] = exp(sum(X[p]))", "write sum(...) on a line of its own"),
        ("Z[p] = exp(X[p, n]) if n < 2 else 0", "hint: write Z[p] = sum(exp(X[p, n]), n) if n < 2 else 0"),
        ("b s (h d) -> b h s d", "whose indices have parts: Z[b, h, s, d] = A[b, s, 64*h + d]"),
        ("np.einsum('ij,jk->ik', A, B)", "pass the subscripts alone: 'mk,kn->mn'"),
    ],
)  # fmt: skip
def test_what_is_written_otherwise_elsewhere_is_told_in_its_nearest_form(text: str, hint: str) -> None:
    with pytest.raises(SpecError) as refused:
        einsum.compile(text, sizes={"P": 4} if "[p" in text or "[P" in text else {})
    assert hint in str(refused.value)


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        # infinity times 0 would be left of a factor of 0 or 1
        ("where(X[m, n] != 0, 1 / X[m, n], 7)", lambda x: np.where(x != 0, 1 / np.where(x != 0, x, 1), 7)),
        ("X[m, n] if 0 < X[m, n] < 1 or not n < 3 else 0.5 * Y[n]",
         lambda x: np.where(((x > 0) & (x < 1)) | (np.arange(5) >= 3), x, 0.5 * x[0])),
        ("X[m, n] if X[m, n] > Y[n] and m < 2 else -inf",
         lambda x: np.where((x > x[0]) & (np.arange(4)[:, None] < 2), x, -np.inf)),
        ("sin(20 * X[m, n])", lambda x: np.sin(20 * x)),
        ("cos(X[m, n] - 30)", lambda x: np.cos(x - 30)),
        ("arctan(7 * X[m, n])", lambda x: np.arctan(7 * x)),
        ("clip(X[m, n], -1, 2)", lambda x: np.clip(x, -1, 2)),
        ("round(X[m, n])", np.rint),
        ("floor(X[m, n]) + 10 * ceil(X[m, n])", lambda x: np.floor(x) + 10 * np.ceil(x)),
        ("elu(X[m, n]) + leaky_relu(X[m, n], 0.2)",
         lambda x: np.where(x > 0, 2 * x, np.expm1(np.minimum(x, 0)) + 0.2 * x)),
        ("hardswish(X[m, n])", lambda x: x * np.clip(x + 3, 0, 6) / 6),
        ("X[m, n]**3 - X[m, n]**4", lambda x: x**3 - x**4),
    ],
)  # fmt: skip
def test_functions_and_choices_of_values_are_those_of_numpy(
    formula: str, expected: Callable[..., Any]
) -> None:
    # halves and whole numbers are among the values, and both signs
    x = np.arange(-10, 10, dtype=np.float32).reshape(4, 5) / 4
    x[1, 3:] = 0.1, -0.1
    kernel = einsum.compile(f"Z[m, n] = {formula}", sizes={"M": 4, "N": 5})
    got = kernel(*({"X": x, "Y": x[0]}[name] for name in kernel.inputs))
    assert np.allclose(got, expected(x.astype(np.float64)), rtol=1e-5, atol=1e-5)
    need_no_fault(kernel)


@pytest.mark.parametrize("function", [np.sin, np.cos, np.tan], ids=lambda f: f.__name__)
@pytest.mark.parametrize("largest", [3.0, 131_072.0, 1e7])
def test_angles_are_of_any_size(function: np.ufunc, largest: float) -> None:
    x = np.random.default_rng(8).uniform(-largest, largest, (20, 70)).astype(np.float32)
    kernel = einsum.compile(f"Z[m, n] = {function.__name__}(X[m, n])", shapes={"X": x.shape})
    expected = function(x.astype(np.float64))
    # float32 has numbers below 2.5 pi to 2^-22; a tangent grows by 1 + its square
    off = np.abs(kernel(x) - expected) / (1 if function is not np.tan else 1 + expected**2)
    assert off.max() < 1.5e-6
    assert np.allclose(evaluate(kernel.cascade, {"X": x})["Z"], expected, rtol=1e-9, atol=1e-9)
    need_no_fault(kernel)


def test_bounds_of_angles_are_those_of_the_angle_and_of_whole_turns_taken_off() -> None:
    kernel = einsum.compile("A[t] = t * F[t]\nZ[t] = cos(A[t])", sizes={"T": 3}, outputs=["Z"])
    frequencies = np.array([0.0, 1e3, 1e5], np.float32)
    allowed = bounds(kernel.cascade, {"F": frequencies}, kernel.dtypes).allowed["Z"]
    # by hand, twice each: an angle of 2e5 is rounded twice by 2^-24 of it, a cosine is off by 2^-19
    assert allowed[0] == pytest.approx(2 * 2.0**-19, rel=0.2)
    assert allowed[2] == pytest.approx(2 * 2 * 2e5 * 2.0**-24, rel=0.1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Z[m] = X[m, n]", lambda x, i: x.sum(1)),
        ("Z[m] = X[m, n]**2 / (2 * N)", lambda x, i: (x**2).mean(1) / 2),
        ("Z[m] = X[m, n] if X[m, n] > 0 else 0", lambda x, i: np.maximum(x, 0).sum(1)),
        ("Z[m, n] = max(2 * X[m, n], n)", lambda x, i: np.broadcast_to(2 * x[:, -1:], x.shape)),
        ("Z[m, n] = 3 - sum(X[m, n], n)", lambda x, i: np.broadcast_to(3 - x.sum(1, keepdims=True), x.shape)),
        ("Z[m // 2] = 3 * X[m, n]", lambda x, i: 3 * x.reshape(2, 2, 5).sum((1, 2))),
        ("Z[m // 2, n] = sum(X[m, n]**2)", lambda x, i: (x**2).reshape(2, 2, 5).sum(1)),
        ("Z[m // 2, n] = max(X[m, n])", lambda x, i: x.reshape(2, 2, 5).max(1)),
        ("T[n] = X[m, n]\nZ[n] = max(T[n], 2 * M)", lambda x, i: np.maximum(x.sum(0), 8)),
        ("Z[I[m], n] += X[m, n]  # what falls together", lambda x, i: np.eye(3)[i].T @ x),
    ],
)
def test_what_the_left_side_lacks_is_summed_without_a_word(text: str, expected: Callable[..., Any]) -> None:
    x, i = np.arange(-7, 13, dtype=np.float32).reshape(4, 5), np.array([2, 0, 2, 2], np.int32)
    kernel = einsum.compile(text, shapes={"X": (4, 5)}, sizes={"Z_0": 3} if "I[" in text else None)
    got = kernel(*({"X": x, "I": i}[name] for name in kernel.inputs))
    assert np.array_equal(got, expected(x.astype(np.float64), i))


def test_packed_operands_are_told_in_a_form_that_computes_what_nc_matmul_mx_does() -> None:
    text = "Z[m, n] = A[m, k] * S[m, k // 32] * B[k, n] * T[k // 32, n]"
    sizes, options = {"M": 4, "N": 5, "K": 64}, {"target": "trn3"}
    names = {"A": "float8_e4m3fn", "B": "float8_e4m3fn", "S": "float8_e8m0fnu", "T": "float8_e8m0fnu"}
    with pytest.raises(UsageError) as packed:
        einsum.compile("mk,kn->mn", sizes=sizes, dtypes={"A": "float8_e4m3fn_x4"}, **options)
    assert f"unpack them to float8_e4m3fn, and give the scales as a tensor, {text}; or" in str(packed.value)
    with pytest.raises(UsageError, match="powers of two, which bfloat16 has too: give it for the dtype"):
        einsum.compile(text, sizes=sizes, dtypes=names, **options)
    types = {**names, "S": "bfloat16", "T": "bfloat16", "Z": "float32"}
    kernel = einsum.compile(text, sizes=sizes, dtypes=types, **options)
    a, b = (_whole(*shape).astype(as_dtype("float8_e4m3fn").storage) for shape in ((4, 64), (64, 5)))
    s, t = (
        (2.0 ** _RNG.integers(-9, 9, shape)).astype(as_dtype("float8_e8m0fnu").storage)
        for shape in ((4, 2), (2, 5))
    )
    wide = [x.astype(np.float64) for x in (a, s, b, t)]
    expected = (wide[0] * np.repeat(wide[1], 32, 1)) @ (wide[2] * np.repeat(wide[3], 32, 0))
    assert kernel.inputs == ("A", "S", "B", "T")
    assert np.allclose(kernel(a, s, b, t), expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_a_state_beyond_float32_is_not_compared_and_one_within_is() -> None:
    text = """
    einsum:
      declaration: {X: [T, N], W: [N], S: [T1, N], Y: [T, N]}
      expressions:
        - S[0, n] = const(0)
        - iterate: t
          body:
            - S[t+1, n] = S[t, n] * W[n] + X[t, n]
            - Y[t, n] = S[t+1, n] / S[t+1, n]
      shape: {T: 300, N: 64}
    options: {cascade-outputs: [Y]}
    """
    # states with weights beyond 1 leave float32, where their quotient has no value; others do not
    verdicts = einsum.compile(text).verify()
    assert all(verdict.is_fine for verdict in verdicts)
    assert all(0 < verdict.compared < 300 * 64 for verdict in verdicts[:1])
