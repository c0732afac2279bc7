"""Launches over ranks: options and groups that are none, and a disagreement that a rank catches."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import nkilab
from nkilab.errors import RuleError, UsageError, UseError
from tests.dialects.spellings import marked_line
from tests.dialects.spellings import nisa2 as nisa
from tests.dialects.spellings import nki2 as nki
from tests.dialects.spellings import nl2 as nl

with nkilab.activate():
    import nki.collectives as ncc

X = np.ones((4, 4), np.float32)
BOTH = [[0, 1]]


@nki.jit
def reduces(x, group, op):
    src, dst = (nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm) for _ in range(2))
    nisa.dma_copy(src, x)
    ncc.all_reduce([src], [dst], group, op)
    return dst


def test_launches_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="ranks is 0; it must be a whole number from 1 to 65536"):
        nkilab.launch(reduces, 0)
    with pytest.raises(UsageError, match="per_rank has 3 values; the launch has 2 ranks"):
        nkilab.launch(reduces, 2)(nkilab.per_rank([X] * 3), ncc.ReplicaGroup(BOTH), nl.add)
    with pytest.raises(UsageError, match=r"groups is \[\[0\]\]; each of the ranks 0 to 1"):
        nkilab.launch(reduces, 2, groups=[[0]])
    with pytest.raises(UsageError, match="a node holds a whole number of chips"):
        nkilab.Topology(4, 6)
    with pytest.raises(UsageError, match=r"ranks_per_chip is 4\.0; it must be a whole number"):
        nkilab.Topology(4.0, 8)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"topology is \(4, 64\); it must be an nkilab.Topology"):
        nkilab.launch(reduces, 2, topology=(4, 64))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="executor is 3; it must be a concurrent"):
        nkilab.launch(reduces, 2, executor=3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="groups is 3; each of the ranks 0 to 1"):
        nkilab.launch(reduces, 2, groups=3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"per_rank takes one value per rank, or a function .* got int"):
        nkilab.per_rank(3)  # type: ignore[arg-type]


def test_a_kernel_launches_no_ranks() -> None:
    @nki.jit
    def launches(x):
        nkilab.launch(reduces, 2)(x, ncc.ReplicaGroup(BOTH), nl.add)  # refused
        return x

    with pytest.raises(UsageError) as caught:
        nkilab.launch(launches, 2)(X)
    here = marked_line(launches.function)
    assert str(caught.value) == (
        f"{here}: launch: it is called inside a kernel\n  hint: launch kernels from the host script"
    )


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ([], "groups is []; it must hold groups of at least one rank"),
        ([[0, 1], []], "groups is [[0, 1], []]; it must hold groups of at least one rank"),
        ([[[0], [1]]], "groups is [[[0], [1]]]; ranks are whole numbers of at least 0"),
        ([[0, True]], "groups is [[0, True]]; ranks are whole numbers of at least 0"),
        ([[0, 1.0]], "groups is [[0, 1.0]]; ranks are whole numbers of at least 0"),
        ([[0, -1]], "groups is [[0, -1]]; ranks are whole numbers of at least 0"),
        ([0, 1], "groups is [0, 1]; it must be a list of lists of ranks"),
        ([[0, 1], [1, 2]], "rank 1 stands in groups [[0, 1], [1, 2]] more than once; groups do not overlap"),
    ],
)
def test_groups_that_are_none_are_refused(groups: Any, text: str) -> None:
    with pytest.raises(UseError, match=re.escape(text)):
        ncc.ReplicaGroup(groups)


def test_groups_may_be_an_array() -> None:
    assert ncc.ReplicaGroup(np.arange(4).reshape(2, 2)).groups == [[0, 1], [2, 3]]


def test_a_disagreement_that_a_rank_catches_is_still_raised() -> None:
    @nki.jit
    def kernel(x, group, op):
        with suppress(RuleError):
            reduces.function(x, group, op)
        return x

    with pytest.raises(RuleError, match="op is maximum in rank 1 and add in rank 0"):
        nkilab.launch(kernel, 2)(X, ncc.ReplicaGroup(BOTH), nkilab.per_rank([nl.add, nl.maximum]))
