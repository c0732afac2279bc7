"""No kernel of a few cascades gets heavier unseen; `python -m tests.einsum.baseline` weighs all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.einsum.baseline import STRUCTURE, Row, Subject, read, subjects, weighed, worse

# every class of nests once, at the sizes that models have
SHORT = (
    "row_norm",
    "softmax",
    "look_up",
    "attention",
    "running_sum",
    "depthwise_convolution",
    "swapped_axes",
)
CHOSEN = [s for s in subjects() if s.size == "real" and s.dtype == "bfloat16" and s.name in SHORT]


@pytest.mark.corpus
@pytest.mark.parametrize("subject", CHOSEN, ids=lambda s: s.key)
def test_no_kernel_weighs_more_than_it_did(subject: Subject) -> None:
    assert worse(read()[1][subject.key], weighed(subject), STRUCTURE) == []


def test_the_table_has_every_cascade_of_this_folder() -> None:
    stored = read()[1]
    assert not [s.key for s in subjects() if s.key not in stored]


def test_what_grew_by_more_than_two_percent_is_told() -> None:
    old = Row(statements=100, bytes=1000, latency=1.0)
    assert worse(old, replace(old, statements=102, bytes=1020, latency=1.02), (*STRUCTURE, "latency")) == []
    assert worse(old, replace(old, bytes=1021), ("statements", "bytes")) == ["bytes 1000 -> 1021"]
    assert worse(old, replace(old, refused="why"), ()) == ["refused: why"]
    # whatever replaces a refusal is no worse
    assert worse(Row(refused="why"), old, ("bytes",)) == []
