"""Cascades that the compiler was not written for: both spellings, ragged extents and extents of one."""

from __future__ import annotations

import numpy as np
import pytest

import nkilab.einsum
from tests.einsum.cascades import CASES, Case
from tests.einsum.test_fuzz import need_no_fault

pytestmark = pytest.mark.corpus

every = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
dialects = pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])


def inputs_of(case: Case, sizes: dict[str, int]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = []
    for name in case.cascade.inputs:
        shape = [sizes[r] for r in case.cascade.tensors[name].ranks]
        is_index = name == "IX"
        arrays.append(rng.integers(0, sizes["V"], shape) if is_index else rng.standard_normal(shape) * 0.3)
    return arrays


def compared(case: Case, sizes: dict[str, int], dialect: str) -> None:
    kernel = nkilab.einsum.compile(case.cascade, sizes=sizes, dialect=dialect)
    need_no_fault(kernel)
    inputs = inputs_of(case, sizes)
    results = kernel(*inputs)
    expected = case.reference(*inputs)
    pairs = zip(results, expected, strict=True) if isinstance(results, tuple) else [(results, expected)]
    for got, wanted in pairs:
        # float32 arithmetic on sums of up to a few hundred products, relative to the largest element
        np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-5 * max(1.0, np.abs(wanted).max()))


@every
@dialects
def test_ragged_extents_agree_with_numpy(case: Case, dialect: str) -> None:
    compared(case, case.extents(), dialect)


@every
@dialects
def test_extents_of_one_agree_with_numpy(case: Case, dialect: str) -> None:
    if "share" in case.scalars or case.name == "jacobi":
        pytest.skip("the reference counts elements")
    compared(case, case.extents(**dict.fromkeys(case.sizes, 1)), dialect)


@every
def test_the_kernel_passes_its_own_probes(case: Case) -> None:
    verdicts = nkilab.einsum.compile(case.cascade, sizes=case.extents()).verify()
    assert verdicts
    assert not [str(v) for v in verdicts if not v.is_fine]
