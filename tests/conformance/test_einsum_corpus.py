"""The corpus of cascades, from the file that NKILAB_EINSUM_CORPUS names."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

import nkilab.einsum
from nkilab.einsum.language.extents import sized
from nkilab.einsum.probes import index_limits
from nkilab.einsum.reference import evaluate
from tests.conformance.corpus import BENCH, VARIABLE, Entry, corpus, extents
from tests.einsum.test_names import WAYS, differs_by_names

pytestmark = pytest.mark.conformance
ENTRIES = corpus()
# all tests of one entry stand together, as they look at the same kernels
every = (
    pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name, scope="module")
    if ENTRIES
    else pytest.mark.skip(f"{VARIABLE} is not set")
)


@every
@pytest.mark.parametrize("seed", [0, 1])
def test_the_evaluator_agrees_with_an_independent_reference(entry: Entry, seed: int) -> None:
    inputs = entry.inputs(np.random.default_rng(seed))
    results = evaluate(sized(entry.cascade, entry.tiny), inputs)
    for name, expected in zip(entry.cascade.outputs, entry.expected(inputs), strict=True):
        np.testing.assert_allclose(results[name], expected, rtol=1e-9, atol=1e-12)


kinds = pytest.mark.parametrize("kind", ["exact", "ragged", "one"])
dialects = pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
SOURCES = Path(nkilab.einsum.__file__).parent


def types_of(entry: Entry, dtype: str) -> dict[str, str]:
    return {
        t: "int32" if t in entry.integers else dtype for t in (*entry.cascade.inputs, *entry.cascade.outputs)
    }


@lru_cache(maxsize=8)
def compiled(entry: Entry, kind: str, dtype: str, dialect: str = "nki") -> nkilab.einsum.CompiledEinsum:
    """The kernel of an entry, compiled once."""
    sizes, types = extents(entry, kind), types_of(entry, dtype)
    return nkilab.einsum.compile(entry.cascade, sizes=sizes, dtypes=types, dialect=dialect)


@every
@kinds
@dialects
def test_it_compiles_without_a_mapping_and_is_right(entry: Entry, kind: str, dialect: str) -> None:
    kernel = compiled(entry, kind, "float32", dialect)
    sized_cascade = sized(entry.cascade, extents(entry, kind))
    limits = index_limits(sized_cascade)
    rng = np.random.default_rng(0)
    inputs = [
        rng.integers(0, limits[n], sized_cascade.shape(n))
        if n in limits
        else rng.random(sized_cascade.shape(n)) + 0.1
        for n in entry.cascade.inputs
    ]
    results, expected = kernel(*inputs), kernel.reference(*inputs)
    pairs = zip(results, expected, strict=True) if isinstance(results, tuple) else [(results, expected)]
    for got, wanted in pairs:
        # float32 sums of a few hundred positive products
        np.testing.assert_allclose(got, wanted, rtol=0, atol=5e-5 * np.abs(wanted).max())


@every
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_its_kernel_passes_all_probes(entry: Entry, dtype: str) -> None:
    kernel = compiled(entry, "ragged", dtype)
    assert not [str(v) for v in kernel.verify() if not v.is_fine]


@every
def test_nothing_of_it_stands_in_the_source(entry: Entry) -> None:
    for path in SOURCES.rglob("*.py"):
        text = path.read_text()
        # functions of NumPy and PyTorch, which people write where an Einsum stands
        assert entry.name not in text or entry.name in ("outer", "dot", "bmm", "gram", "cumsum"), path
        for einsum in entry.cascade.einsums:
            assert einsum.text not in text, path


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.name in BENCH], ids=lambda e: e.name)
def test_the_bench_shapes_reach_their_bars(entry: Entry) -> None:
    sizes, dtype = BENCH[entry.name]
    kernel = nkilab.einsum.compile(entry.cascade, sizes=sizes, dtypes=types_of(entry, dtype))
    if entry.name == "gemm_tn":
        # 2 * 4096^3 operations at 78.6 TFLOPS, of which 85 % are to be reached
        assert 2 * 4096**3 / 78.6432e6 / kernel.estimate.latency_us >= 0.85
    else:
        assert kernel.estimate.latency_us <= 1.5 * kernel.engine_roofline_us
    assert kernel.estimate.latency_us >= kernel.roofline.least_us


# what changes under one of the others changes under these
FIRST_WAYS = ("hostile tensors", "all")


@every
@pytest.mark.parametrize(
    "way", [pytest.param(w, marks=() if w in FIRST_WAYS else pytest.mark.slow) for w in WAYS]
)
def test_names_change_neither_kernel_nor_time(entry: Entry, way: str) -> None:
    plain = compiled(entry, "ragged", "bfloat16")
    assert not differs_by_names(plain, entry.cascade, extents(entry, "ragged"), way)
