"""Our examples and the kernels of the ledger have no findings, or one that is explained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nkilab
from nkilab.checking import Options, report_of
from nkilab.ledger import Predictor, own_rows
from nkilab.ledger.predict import _argument

pytestmark = pytest.mark.corpus

# elements of arguments beyond which a run takes seconds
MOST = 10**6


def smallest() -> dict[str, tuple[Any, Any]]:
    """Per kernel of the ledger the row and arguments with the fewest elements."""
    smallest_calls: dict[str, tuple[int, Any, Any]] = {}
    # those of several ranks run one by one are deadlocks
    for row in (row for row in own_rows() if row.kind != "collective"):
        for call in row.calls:
            args = [_argument(row, text) for text in call.args]
            size = sum(int(np.prod(a.shape)) for a in args if hasattr(a, "shape"))
            if call.kernel not in smallest_calls or size < smallest_calls[call.kernel][0]:
                smallest_calls[call.kernel] = (size, row, args)
    slow = {"adding.add_chunks", "adding.add_loaded_chunks"}
    return {
        k: smallest_call[1:]
        for k, smallest_call in smallest_calls.items()
        if smallest_call[0] <= MOST and k not in slow
    }


KERNELS = smallest()


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_of_the_ledger_has_no_finding(name: str) -> None:
    row, args = KERNELS[name]
    with nkilab.activate():
        kernel = Predictor().kernel(row, name)
        findings = report_of(kernel, args, dict(row.keywords), Options(target=row.chip)).findings.verdict
    rules = {f.rule for f in findings if f.fails}
    if name.startswith("single."):
        # they take names of types as text, and fill psum in all types
        rules -= {"python-builtin", "psum-memset-type"}
    assert rules == set()


def test_the_examples_have_no_finding() -> None:
    with nkilab.activate():
        from nkilab.examples.blocked_matmul import blocked_matmul
        from nkilab.examples.row_softmax import row_softmax

    product = nkilab.check(blocked_matmul, *(nkilab.spec(s, "float32") for s in ((512, 256), (512, 1024))))
    rows = nkilab.check(row_softmax, nkilab.spec((512, 2048), "float32"), replay=3, numerics=True)
    assert [f.rule for f in (*product.verdict, *rows.verdict)] == []
