"""Random calls of the front door: a kernel that agrees with NumPy comes out, or one of our errors.

NKILAB_FUZZ=N runs N examples of each; the default is short.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import nkilab.einsum
from nkilab.einsum.checks.names import known_ranks
from nkilab.einsum.compiled import CompiledEinsum
from nkilab.einsum.language.forms import spec_from
from nkilab.errors import NkilabError
from tests.examples import examples

EXAMPLES = examples(25)
longer = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
# points of an iteration space that are computed for comparison
MOST_POINTS = 1 << 18
EXTENTS = st.sampled_from([1, 2, 3, 7, 31, 127, 128, 129, 200])


def compiled(spec: Any, **options: Any) -> CompiledEinsum | None:
    """The kernel; None if it is refused by an error of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return nkilab.einsum.compile(spec, **options)
        except NkilabError:
            return None


def assert_agrees(kernel: CompiledEinsum, expected: Any, inputs: list[np.ndarray]) -> None:
    """Whole numbers come out as they are; float32 rounds what is larger, and functions.

    The report has words for whatever binds the kernel.
    """
    assert kernel.report.startswith(f"{kernel.name}: {kernel.dialect}")
    results = kernel(*inputs)
    pairs = zip(results, expected, strict=True) if isinstance(results, tuple) else [(results, expected)]
    for got, right in pairs:
        if not np.all(np.abs(right) < 1e30):
            # float32 ends on the way there
            continue
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
    subscripts(),
    st.fixed_dictionaries(dict.fromkeys("ABCDE", EXTENTS)),
    st.sampled_from(["nki", "neuronxcc"]),
)
@example("ab,bc,cd,de->ae", dict.fromkeys("ABCDE", 4), "nki")
@example(",be->b", dict.fromkeys("ABCDE", 2), "nki")
@example("b,,eb,b,ebc->cbe", {"A": 1, "B": 7, "C": 31, "D": 1, "E": 128}, "nki")
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
    [0, 1.5, 3, -0.0, 0.25, np.float32(2), 1e-300, float("inf"), float("nan"), 10**40, 10**400, 1e300, True,
     "1", None, 2j]
)  # fmt: skip
# by the number of operands that they take; 0 for any number
MAPS = {
    0: ("mul", "add", "max", "min"),
    1: ("exp", "relu", "square", "unary(abs)", "neg", "tanh", "sign"),
    2: ("sub", "div", "power", "less", "binary(subtract_exp)", "equal"),
}
TESTS = ("m < n", "m == 2", "k >= m", "n != 1", "M - 1 > m")


@st.composite
def access(draw: st.DrawFn, tensor: str, ranks: int) -> str:
    """A tensor with indices: plain, moved, strided, constant, of sums, of another tensor."""
    indices = []
    for _ in range(ranks):
        v, w = draw(st.sampled_from(VARIABLES)), draw(st.sampled_from(VARIABLES))
        c = draw(st.integers(-3, 3))
        strange = [f"{v}+{abs(c)}", f"{v}-1", f"{abs(c)}*{v}", str(c), f"{v}+{w}", f"I[{v}]", f"M-{v}-1"]
        indices.append(draw(st.sampled_from([*[v] * 15, *strange])))
    return f"{tensor}[{', '.join(indices)}]"


@st.composite
def expression(draw: st.DrawFn, name: str, ranks: dict[str, int]) -> str:
    """One that reads what is there, now and then itself, or with an operator that does not fit."""
    known = sorted(ranks) * 4 + ["#", name]
    read = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))
    operands = [
        draw(st.sampled_from(NUMBERS)) if t == "#" else draw(access(t, ranks.get(t, 1))) for t in read
    ]
    bound = [v for v in VARIABLES if any(v in o and "[" in o for o in operands)]
    kept = draw(st.permutations([v for v in bound if draw(st.booleans())]))
    ranks[name] = len(kept)
    fitting = [*MAPS.get(len(read), ()), *(MAPS[0] if len(read) > 1 else ())]
    needed = [""] if len(read) == 1 else []
    operator = draw(st.sampled_from([*fitting, *fitting, *needed, draw(st.sampled_from(MAPS[1] + MAPS[2]))]))
    actions = f" M {operator}" if operator else ""
    if set(bound) - set(kept):
        actions += f" V {draw(st.sampled_from(MAPS[0]))}"
    condition = draw(st.sampled_from(["", "", "", f" if {draw(st.sampled_from(TESTS))} else 0"]))
    return f"{name}[{', '.join(kept)}] = {' . '.join(operands)}{' ;;' * bool(actions)}{actions}{condition}"


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """One to three expressions over inputs A and B, each reading what comes before it."""
    ranks = {"A": draw(st.integers(1, 3)), "B": draw(st.integers(0, 2))}
    names = draw(st.lists(st.sampled_from("PQZ"), min_size=1, max_size=3, unique=draw(st.booleans())))
    return draw(st.sampled_from("\n;")).join([draw(expression(name, ranks)) for name in names])


def with_indices(kernel: CompiledEinsum, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Inputs that hold indices of an axis, however short."""
    types = [kernel.dtypes[name] for name in kernel.inputs]
    return [a * 0 if t == "int32" else a for a, t in zip(inputs, types, strict=True)]


@settings(longer)
@given(
    expressions(),
    st.fixed_dictionaries({c: st.sampled_from([1, 2, 5, 128, 130]) for c in "MNK"}),
    st.integers(1, 9), SCALARS, st.sampled_from(["nki", "neuronxcc"]),
)  # fmt: skip
@example("Z[m] = A[m, -1]", {"M": 5, "N": 1, "K": 1}, 4, 1.0, "nki")
@example("Z[m, n] = Z[m, n] . A[m, n] ;; M mul", {"M": 5, "N": 2, "K": 1}, 4, 1.0, "nki")
@example("Z[m] = A[m] . s ;; M mul", {"M": 5, "N": 2, "K": 1}, 4, float("nan"), "nki")
@example("Z[] = A[m, k] ;; M add V add", {"M": 5, "N": 2, "K": 3}, 4, 1.0, "nki")
@example("P[] = A[m, m] . A[m, m+m] . B[] ;; M mul V mul", {"M": 1, "N": 1, "K": 1}, 1, 1.0, "nki")
def test_expressions_are_right_or_refused(
    text: str, sizes: dict[str, int], other: int, scalar: Any, dialect: str
) -> None:
    while sizes["M"] * sizes["N"] * sizes["K"] > MOST_POINTS // 8:
        sizes[max(sizes, key=lambda c: sizes[c])] = 2
    scalars = {"s": scalar} if " s" in text else {}
    try:
        ranks = known_ranks(spec_from(text, scalars).cascade)
    except NkilabError:
        return
    # axes that no variable runs along alone have ranks of their own
    kernel = compiled(text, sizes={r: sizes.get(r, other) for r in ranks}, scalars=scalars, dialect=dialect)
    if kernel is None:
        return
    inputs = with_indices(kernel, drawn(kernel, 0))
    with np.errstate(all="ignore"):
        assert_agrees(kernel, kernel.reference(*inputs), inputs)


JUNK = (
    None, 0, -1, float("nan"), float("inf"), 10**400, True, "", "a b", "\0", b"x", (), ("Q",), [1], {},
    {1: 2}, {"Z": 1}, {"A": (0,)}, {"A": "4"}, {"A": None}, {"A": 2}, {"M": 10**30}, {"M": "4"}, {"M": -4},
    object(), Path("."), len, np.zeros(3), np.float32, "int9",
)  # fmt: skip
# what each option takes with one specification or another, and what it takes with none
OPTIONS: dict[str, tuple[Any, ...]] = {
    "sizes": ({"M": 4, "K": 3, "N": 2}, {"M": 4}, {"M": np.int64(4)}, {"M": 2**31}, {"M": 2**31 - 1}),
    "shapes": ({"A": (4, 3)}, {"A": (4,)}, {"A": [4, 3]}, {"A": (5, 3)}, {"Z": (4,)}),
    "dtypes": (
        "bfloat16",
        "float16",
        "int32",
        "bool",
        "uint8",
        "float8_e4m3",
        {"A": "tfloat32"},
        {"Z": "int8"},
    ),
    "scalars": ({"s": 2}, {"s": float("nan")}, {"s": "2"}, {"t": 2}),
    "outputs": (("Z",), ["Z"], "Z", ("A",), ("Z", "Z")),
    "dialect": ("nki", "neuronxcc"),
    "as_written": (False, True),
    "strict": (False, True),
    "search": (0, 0.0),
    "target": ("trn1", "trn2", "trn3", "gen4"),
    "name": ("soft", "Z", "A", "nl", "pack", "range", "é", "class", "_", "self"),
}
# what they are given for, with the options that it needs
SPECS: dict[Any, dict[str, Any]] = {
    "mk,kn->mn": {"sizes": {"M": 3, "K": 3, "N": 3}},
    "Z[m] = A[m] . s ;; M mul": {"sizes": {"M": 3}, "scalars": {"s": 2}},
    "Z[m] = A[m]": {"sizes": {"M": 3}},
    "einsum: {}": {}, Path("nowhere"): {}, 3: {}, None: {}, "x" * 5000: {},
}  # fmt: skip


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    """Some that fit, perhaps with one that does not."""
    names = draw(st.lists(st.sampled_from(sorted(OPTIONS)), unique=True, max_size=4))
    wrong = draw(st.sampled_from([*names, "", ""]))
    return {name: draw(st.sampled_from(JUNK if name == wrong else OPTIONS[name])) for name in names}


@settings(longer)
@given(st.sampled_from([*SPECS, *list(SPECS)[:3] * 5]), options())
@example("mk,kn->mn", {"sizes": {"M": 2**31, "K": 64, "N": 64}})
def test_options_of_any_type_end_in_a_kernel_or_one_of_our_errors(spec: Any, options: dict[str, Any]) -> None:
    kernel = compiled(spec, **{**SPECS[spec], **options})
    if kernel is None or not kernel.has_extents or max(kernel.cascade.sizes.values()) > MOST_POINTS:
        return
    # small whole numbers, which every type has but bool
    inputs = [np.ones(kernel.cascade.shape(name)) for name in kernel.inputs]
    expected = kernel.reference(*inputs)
    assert kernel.module_text
    np.testing.assert_array_equal(
        np.asarray(kernel(*inputs), np.float64), expected > 0 if kernel.dtypes["Z"] == "bool" else expected
    )
