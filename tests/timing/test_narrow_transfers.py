"""Transfers of few rows: what issuing them takes, and on which DMA engine's ring they lie."""

from __future__ import annotations

import pytest

from nkilab.machine import MACHINES
from nkilab.place import plan
from nkilab.timing.work import work_of
from nkilab.trace.program import AS_WRITTEN, STANDALONE
from tests.place.handmade import Kernel, rows

from .round_numbers import timed

CONSTANTS = {
    "partitions": 128, "dma_issue_ns": 450.0, "dma_static_issue_ns": 50.0, "dma_descriptor_issue_ns": 1.0,
}  # fmt: skip


def machine_with(**more: float):
    return MACHINES["trn2"].with_constants({**CONSTANTS, **more}, "a test")


def issue_ns(count: int, compiler: str, **more: float) -> float:
    """What issuing a load of so many rows takes."""
    k = Kernel(machine_with(**more))
    k.load(k.tile(count, 64), k.hbm(count, 64))
    k.program.compiler = compiler
    work = work_of(k.program, plan(k.program))
    return work.shares[work.share[0]].issue_ns


@pytest.mark.parametrize(
    ("count", "compiler", "expected"),
    [
        # 50 always, 400 in proportion to the partitions, and 1 a descriptor
        (1, STANDALONE, 50 + 400 / 128 + 1),
        (64, STANDALONE, 50 + 200 + 64),
        (128, STANDALONE, 450 + 128),
        (1, AS_WRITTEN, 451),
        (128, AS_WRITTEN, 578),
    ],
)
def test_the_stand_alone_compiler_issues_narrow_transfers_faster(
    count: int, compiler: str, expected: float
) -> None:
    assert issue_ns(count, compiler) == pytest.approx(expected)


def test_without_the_rule_all_transfers_are_issued_alike() -> None:
    assert issue_ns(1, STANDALONE, dma_issue_by_partition=0) == 451


def rows_loaded_one_by_one(count: int, **more: float) -> list[tuple[float, float]]:
    """From when to when each row of a tile is loaded, in a transfer of its own of 27,300 bytes."""
    k = Kernel(machine_with(dma_issue_ns=1.0, dma_static_issue_ns=1.0, dma_descriptor_issue_ns=0.0, **more))
    tile, source = k.tile(128, 6825), k.hbm(128, 6825)
    for row in range(count):
        k.load(rows(tile, row, row + 1), rows(source, row, row + 1))
    timeline = timed(k)
    return sorted(zip(timeline.start_ns.tolist(), timeline.end_ns.tolist(), strict=True))


def test_rows_of_partitions_of_other_engines_are_loaded_side_by_side() -> None:
    # partitions 0 to 7 are the first engine's, 8 to 15 the second one's
    spans = rows_loaded_one_by_one(16)
    assert sum(start < spans[0][1] for start, _ in spans) == 2
    last = max(end for _, end in spans)
    assert last - spans[0][0] == pytest.approx(8 * (spans[0][1] - spans[0][0]), rel=0.01)


def test_with_one_ring_rows_are_loaded_one_after_another() -> None:
    spans = rows_loaded_one_by_one(16, dma_rings=1)
    last = max(end for _, end in spans)
    assert last - spans[0][0] == pytest.approx(16 * (spans[0][1] - spans[0][0]), rel=0.01)
