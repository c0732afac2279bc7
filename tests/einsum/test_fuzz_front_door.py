"""Random calls of the front door: a kernel that agrees with NumPy comes out, or one of our errors.

NKILAB_FUZZ=N runs N examples of each; the default is short.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

import nkilab.einsum
from nkilab.einsum.compiled import CompiledEinsum
from nkilab.errors import NkilabError

EXAMPLES = int(os.environ.get("NKILAB_FUZZ", "25"))
longer = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
# points of an iteration space that are computed for comparison
MOST_POINTS = 1 << 18
EXTENTS = st.sampled_from([1, 2, 3, 7, 31, 127, 128, 129, 200])


def compiled(spec: Any, **options: Any) -> CompiledEinsum | None:
    """The kernel; None if it is refused by an error of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            kernel = nkilab.einsum.compile(spec, **options)
            assert kernel.report and kernel.module_text
            return kernel
        except NkilabError:
            return None


def assert_agrees(kernel: CompiledEinsum, expected: Any, inputs: list[np.ndarray]) -> None:
    """Whole numbers come out as they are; float32 rounds what is larger, and functions."""
    results = kernel(*inputs)
    pairs = zip(results, expected, strict=True) if isinstance(results, tuple) else [(results, expected)]
    for got, right in pairs:
        finite = np.abs(right[np.isfinite(right)])
        largest = max(1.0, float(finite.max(initial=0.0)))
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-4 * largest)


def drawn(kernel: CompiledEinsum, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-2, 3, kernel.cascade.shape(n)).astype(np.float32) for n in kernel.inputs]


LETTERS = st.sampled_from("abcde")
TERMS = st.lists(LETTERS, min_size=0, max_size=4).map("".join)


@st.composite
def subscripts(draw: st.DrawFn) -> str:
    """What numpy.einsum takes, and what it nearly takes."""
    terms = draw(st.lists(TERMS, min_size=1, max_size=5))
    known = sorted(set("".join(terms)))
    kept = draw(st.lists(st.sampled_from(known), unique=True)) if known else []
    text = ",".join(terms) + "->" + "".join(kept)
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(text)))
        text = (
            text[:at] + draw(st.sampled_from([" ", "...", ",", "->", "a", "A", "é", "1", "\n"])) + text[at:]
        )
    return text


def by_numpy(text: str, inputs: list[np.ndarray]) -> np.ndarray | None:
    """What numpy.einsum makes of subscripts; None if it refuses them."""
    try:
        return np.asarray(np.einsum(text, *(a.astype(np.float64) for a in inputs), optimize=False))
    except (ValueError, TypeError, IndexError):
        return None


@settings(longer)
@given(
    subscripts(), st.fixed_dictionaries({c: EXTENTS for c in "ABCDE"}), st.sampled_from(["nki", "neuronxcc"])
)
@example("ab,bc,cd,de->ae", dict.fromkeys("ABCDE", 4), "nki")
def test_subscripts_mean_what_numpy_takes_them_for(text: str, sizes: dict[str, int], dialect: str) -> None:
    left = text.partition("->")[0].upper()
    terms = [[c for c in term if c in sizes] for term in (left.replace(",", ""), *left.split(","))]
    while (
        max(np.prod([sizes[c] for c in term]) for term in [sorted(set(terms[0])), *terms[1:]]) > MOST_POINTS
    ):
        sizes[max(terms[0], key=lambda c: sizes[c])] = 2
    kernel = compiled(text, sizes={c: sizes[c] for c in terms[0]}, dialect=dialect)
    if kernel is None:
        return
    inputs = drawn(kernel, 0)
    expected = by_numpy(text, inputs)
    assert expected is not None, "numpy.einsum refuses it"
    assert_agrees(kernel, expected, inputs)


VARIABLES = ("m", "n", "k")
NUMBERS = ("0", "1", "-2.5", "1e30", "1e39", "-0.0", "inf", "-inf", "s")
SCALARS = st.sampled_from(
    [
        0,
        1.5,
        -0.0,
        float("nan"),
        float("inf"),
        10**40,
        10**400,
        1e300,
        1e-300,
        True,
        "1",
        None,
        np.float32(2),
        2j,
    ]
)
MAPS = ("mul", "add", "max", "min", "sub", "div", "exp", "relu", "square", "power", "less", "unary(abs)",
        "binary(subtract_exp)", "neg", "tanh")  # fmt: skip


@st.composite
def access(draw: st.DrawFn, tensor: str, ranks: int) -> str:
    """A tensor with indices: plain, moved, strided, constant, of sums, of another tensor."""
    indices = []
    for _ in range(ranks):
        v, w = draw(st.sampled_from(VARIABLES)), draw(st.sampled_from(VARIABLES))
        c = draw(st.integers(-3, 3))
        forms = [v] * 6 + [
            f"{v}+{abs(c)}",
            f"{abs(c)}*{v}",
            str(c),
            f"{v}+{w}",
            f"{v}-1",
            f"I[{v}]",
            f"M-{v}-1",
        ]
        indices.append(draw(st.sampled_from(forms)))
    return f"{tensor}[{', '.join(indices)}]"


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """One to three expressions, each reading inputs or what came before, perhaps itself."""
    ranks = {"A": draw(st.integers(1, 3)), "B": draw(st.integers(0, 2))}
    lines = []
    for name in draw(st.lists(st.sampled_from("PQZ"), min_size=1, max_size=3)):
        operands = []
        for tensor in draw(st.lists(st.sampled_from([*ranks, name, "#"]), min_size=1, max_size=3)):
            count = ranks.get(tensor, 1)
            text = draw(st.sampled_from(NUMBERS)) if tensor == "#" else draw(access(tensor, count))
            operands.append(text)
        held = sorted({v for o in operands if "[" in o for v in VARIABLES if v in o})
        kept = draw(st.lists(st.sampled_from(held), unique=True)) if held else []
        ranks[name] = len(kept)
        maps = draw(st.sampled_from(MAPS)) if len(operands) > 1 or draw(st.booleans()) else ""
        vanishing = set(held) - set(kept)
        reduces = draw(st.sampled_from(["add", "max", "min"])) if vanishing else ""
        tail = f"{' M ' + maps if maps else ''}{' V ' + reduces if reduces else ''}"
        test = ""
        if held and draw(st.integers(0, 5)) == 0:
            test = f" if {draw(st.sampled_from(held))} {draw(st.sampled_from(['<', '==', '>=']))} {draw(st.sampled_from([*held, '2']))} else {draw(st.sampled_from(['0', '-inf', '1']))}"
        lines.append(
            f"{name}[{', '.join(kept)}] = {' . '.join(operands)}{' ;;' + tail if tail else ''}{test}"
        )
    return "\n".join(lines)


@settings(longer)
@given(
    expressions(),
    st.fixed_dictionaries({c: st.sampled_from([1, 2, 5, 128, 130]) for c in "MNK"}),
    st.integers(1, 9), SCALARS, st.sampled_from(["nki", "neuronxcc"]),
)  # fmt: skip
@example("Z[m] = A[m, -1]", {"M": 5, "N": 1, "K": 1}, 4, 1.0, "nki")
@example("Z[m, n] = Z[m, n] . A[m, n] ;; M mul", {"M": 5, "N": 2, "K": 1}, 4, 1.0, "nki")
def test_expressions_are_right_or_refused(
    text: str, sizes: dict[str, int], other: int, scalar: Any, dialect: str
) -> None:
    while sizes["M"] * sizes["N"] * sizes["K"] > MOST_POINTS // 8:
        sizes[max(sizes, key=lambda c: sizes[c])] = 2
    ranks = {v.upper() for v in VARIABLES if v in text}
    own = {f"{t}_{n}": other for t in "ABIPQZ" for n in range(3)}
    known = {**{r: sizes[r] for r in ranks}}
    scalars = {"s": scalar} if " s" in text else {}
    # axes that no variable runs along alone have ranks of their own, which the refusal names
    for _ in range(12):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                nkilab.einsum.language.extents.sized(
                    nkilab.einsum.language.forms.spec_from(text, scalars).cascade, known
                )
            break
        except NkilabError as error:
            missing = [r for r in own if f"rank {r} of" in str(error)]
            if not missing:
                break
            known[missing[0]] = own[missing[0]]
    kernel = compiled(text, sizes=known, scalars=scalars, dialect=dialect)
    if kernel is None:
        return
    inputs = drawn(kernel, 0)
    inputs = [
        np.abs(a) % min(kernel.cascade.sizes.values()) if kernel.dtypes[n] == "int32" else a
        for a, n in zip(inputs, kernel.inputs, strict=True)
    ]
    with np.errstate(all="ignore"):
        expected = kernel.reference(*inputs)
        assert_agrees(kernel, expected, inputs)


JUNK = st.sampled_from(
    [None, 0, -1, 3, 2.5, float("nan"), True, "", "Z", "a b", "\0", b"x", (), ("Z",), ("Q",), [1], {}, {"M": 4},
     {"Z": 1}, {"A": 2}, {1: 2}, {"A": (4, 4)}, {"A": (0,)}, {"A": "4"}, {"A": None}, {"A": "bfloat16"}, "int8",
     {"A": "bool"}, {"M": 2**31}, {"M": 10**30}, {"M": np.int64(4)}, {"M": "4"}, object(), Path("."), len,
     np.zeros(3), np.float32, {"Z": "float8_e4m3"}, "neuronxcc", "trn1", 1e9, float("inf"), 10**400]
)  # fmt: skip
SPECS = st.sampled_from(
    ["mk,kn->mn", "Z[m] = A[m] . s ;; M mul", "einsum: {}", Path("nowhere"), 3, None, "x" * 5000]
)
OPTIONS = (
    "sizes", "shapes", "dtypes", "scalars", "outputs", "dialect", "as_written", "strict", "search", "target", "name",
)  # fmt: skip


@settings(longer)
@given(SPECS, st.dictionaries(st.sampled_from(OPTIONS), JUNK, max_size=2))
def test_options_of_any_type_end_in_a_kernel_or_one_of_our_errors(spec: Any, options: dict[str, Any]) -> None:
    assume(not (isinstance(options.get("search"), float | int) and options["search"] > 1))
    base = (
        {"sizes": {"M": 4, "K": 3, "N": 2}} if isinstance(spec, str) and "->" in spec else {"sizes": {"M": 4}}
    )
    compiled(spec, **{**base, **options})
