"""Random cascades: what is compiled agrees with the evaluator; what is not is refused by an error of ours."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import nkilab.einsum
from nkilab.einsum.compiled import CompiledEinsum
from nkilab.einsum.language.ast import Access, Cascade, Einsum, Tensor, affine
from nkilab.einsum.timed import FAULT
from nkilab.errors import NkilabError
from tests.examples import examples

RANKS = ("I", "J", "K", "L")
BINARY = ("multiply", "add", "subtract", "maximum", "minimum")
UNARY = ("", "square", "abs", "relu", "tanh")
REDUCE = ("add", "maximum", "minimum")


def access(tensor: Tensor) -> Access:
    return Access(tensor.name, tuple(affine([(r.lower(), 1)]) for r in tensor.ranks))


@st.composite
def shifted(draw: st.DrawFn, tensor: Tensor) -> Access:
    """An input with an index that is strided or moved, perhaps beyond its edges, where it reads 0."""
    plain = access(tensor)
    if tensor.name not in "AB" or not tensor.ranks or draw(st.booleans()):
        return plain
    axis = draw(st.integers(0, len(tensor.ranks) - 1))
    moved = affine([(tensor.ranks[axis].lower(), draw(st.integers(1, 2)))], draw(st.integers(-2, 2)))
    return Access(tensor.name, tuple(moved if n == axis else i for n, i in enumerate(plain.indices)))


@st.composite
def cascades(draw: st.DrawFn) -> tuple[Cascade, dict[str, int]]:
    """Two to four Einsums over tensors of up to three of four ranks, each reading what came before."""
    sizes = {r: draw(st.sampled_from([1, 2, 5, 130, 200])) for r in RANKS}
    ranks = st.lists(st.sampled_from(RANKS), unique=True, max_size=3).map(tuple)
    tensors = {n: Tensor(n, draw(ranks.filter(bool))) for n in "AB"}
    steps = []
    for name in "CDEF"[: draw(st.integers(1, 4))]:
        count = draw(st.integers(1, 2))
        read = [
            tensors[n]
            for n in draw(st.lists(st.sampled_from(sorted(tensors)), min_size=count, max_size=count))
        ]
        ranks_read = tuple(dict.fromkeys(r for t in read for r in t.ranks))
        kept = tuple(draw(st.permutations([r for r in ranks_read if draw(st.booleans())])))
        while int(np.prod([sizes[r] for r in ranks_read], dtype=np.int64)) > 300_000:
            sizes[max(ranks_read, key=lambda r: sizes[r])] = 2
        map_op = draw(st.sampled_from(BINARY)) if count == 2 else draw(st.sampled_from(UNARY))
        reduce_op = draw(st.sampled_from(REDUCE)) if set(kept) != set(ranks_read) else ""
        tensors[name] = Tensor(name, kept)
        steps.append(Einsum(access(tensors[name]), tuple(draw(shifted(t)) for t in read), map_op, reduce_op))
    read_later = {t for e in steps for t in e.reads}
    outputs = tuple(e.name for e in steps if e.name not in read_later)
    used = {t for e in steps for t in (e.name, *e.reads)}
    declared = {n: t for n, t in tensors.items() if n in used}
    ranks_used = {r for t in declared.values() for r in t.ranks}
    return Cascade(declared, tuple(steps), outputs), {r: n for r, n in sizes.items() if r in ranks_used}


@settings(max_examples=examples(30), deadline=None)
@given(cascades(), st.sampled_from(["nki", "neuronxcc"]), st.integers(0, 3))
def test_a_random_cascade_is_right_or_refused(
    sized_case: tuple[Cascade, dict[str, int]], dialect: str, seed: int
) -> None:
    cascade, sizes = sized_case
    try:
        kernel = nkilab.einsum.compile(cascade, sizes=sizes, dialect=dialect)
    except NkilabError:
        return
    assert_right(kernel, seed)


def need_no_fault(kernel: CompiledEinsum) -> None:
    """Neither the plan nor one that was tried beside it ended in a fault of ours."""
    sentences = (*kernel.changes, *kernel.alternatives)
    assert not [t for t in sentences if "PLANNED ANOTHER WAY" in t or FAULT in t]


def assert_right(kernel: CompiledEinsum, seed: int) -> None:
    """A kernel and the reference agree on whole numbers."""
    need_no_fault(kernel)
    rng = np.random.default_rng(seed)
    inputs = [rng.integers(-2, 3, kernel.cascade.shape(n)).astype(np.float32) for n in kernel.inputs]
    results, expected = kernel(*inputs), kernel.reference(*inputs)
    pairs = zip(results, expected, strict=True) if isinstance(results, tuple) else [(results, expected)]
    for got, wanted in pairs:
        # whole numbers; tanh and sums of it round
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(wanted).max())))
