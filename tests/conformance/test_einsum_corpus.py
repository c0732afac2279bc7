"""The corpus of cascades, from the file that NKILAB_EINSUM_CORPUS names."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab.einsum.language.extents import sized
from nkilab.einsum.reference import evaluate
from tests.conformance.corpus import VARIABLE, Entry, corpus

pytestmark = pytest.mark.conformance
ENTRIES = corpus()
every = (
    pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
    if ENTRIES
    else pytest.mark.skip(f"{VARIABLE} is not set")
)


@every
@pytest.mark.parametrize("seed", [0, 1])
def test_the_evaluator_agrees_with_an_independent_reference(entry: Entry, seed: int) -> None:
    inputs = entry.inputs(np.random.default_rng(seed))
    found = evaluate(sized(entry.cascade, entry.tiny), inputs)
    for name, expected in zip(entry.cascade.outputs, entry.expected(inputs), strict=True):
        np.testing.assert_allclose(found[name], expected, rtol=1e-9, atol=1e-12)
