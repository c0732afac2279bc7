"""A chip with round numbers, and what tests ask a timeline."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from nkilab.machine import MACHINES
from nkilab.machine.model import Fact, assumed
from nkilab.place import plan
from nkilab.timing import REASONS, Timeline, simulate
from tests.place.handmade import Kernel


def fact(value: float) -> Fact:
    return assumed(value, "a test")


# One element a nanosecond on VectorE and ScalarE; 16 DMA engines of 10 bytes a nanosecond.
ROUND = replace(
    MACHINES["trn2"],
    vector_clock_ghz=fact(1.0),
    vector_overhead_ns=fact(100.0),
    vector_duration_ns=fact(100.0),
    vector_mode_speedup=fact(1.0),
    vector_fp32_lanes=fact(1.0),
    scalar_clock_ghz=fact(1.0),
    scalar_overhead_ns=fact(200.0),
    scalar_duration_ns=fact(200.0),
    activation_table_load_ns=fact(1300.0),
    semaphore_ns=fact(50.0),
    dma_done_ns=fact(50.0),
    dma_engines=fact(16),
    dma_start_ns=fact(1000.0),
    dma_static_start_ns=fact(1000.0),
    dma_spread_ns=fact(0.0),
    dma_issue_ns=fact(500.0),
    dma_descriptor_issue_ns=fact(0.0),
    dma_bytes_per_ns=fact(10.0),
    dma_run_ns=fact(0.0),
    dma_run_min_ns=fact(0.0),
    dma_group_ns=fact(0.0),
    tile_buffers=fact(1000),
    dma_semaphore_write_ns=fact(0.0),
    dma_issuing_units=fact(2),
    dma_packet_bytes=fact(32768),
    hbm_bytes_per_ns=fact(1000.0),
    kernel_start_ns=fact(0.0),
    kernel_end_ns=fact(0.0),
)


def timed(k: Kernel) -> Timeline:
    return simulate(k.program, plan(k.program))


def spans(timeline: Timeline, row: int) -> list[tuple[str, float, float]]:
    """Label, start and end of the events of a row."""
    here = np.flatnonzero(timeline.node == row)
    return [
        (timeline.labels[timeline.label[i]], float(timeline.start_ns[i]), float(timeline.end_ns[i]))
        for i in here
    ]


def start_of(timeline: Timeline, row: int, label: str = "") -> float:
    return next(start for own, start, _ in spans(timeline, row) if own.startswith(label))


def why(timeline: Timeline, node: int) -> tuple[str, int]:
    """Why the last event of a node did not start earlier, and the row it waited for."""
    last = np.flatnonzero(timeline.node == node)[-1]
    return REASONS[timeline.reason[last]], int(timeline.waited_row[last])
