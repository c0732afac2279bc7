"""Laws of all views on programs made at random: spills, shared ports, every engine, every chip."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from msgspec.structs import replace

from nkilab.machine import MACHINES, Machine
from nkilab.views.explorer import tables_of
from nkilab.views.perfetto import trace_json
from nkilab.views.report import report_html
from nkilab.views.run import Run
from nkilab.views.svg import timeline_svg
from nkilab.views.words import spent_on_path, verdict
from tests.chips import ODD
from tests.place.handmade import Kernel
from tests.timing.test_clock import fact
from tests.views.report.test_page import read
from tests.views.runs import run_of

CHIPS = {**MACHINES, "odd": ODD}
SEEDS = range(6)


def random_kernel(machine: Machine, seed: int) -> Kernel:
    """Some sixty calls on a dozen tiles, of which SBUF holds eight."""
    rng = random.Random(seed)
    small = replace(machine, sbuf_bytes_per_partition=fact(8 * 512), spill_rest_rows=fact(2))
    k = Kernel(small)
    tiles = [k.tile(128, 128, name=f"t{i}") for i in range(12)]
    sums = [k.psum(128, 128, name=f"p{i}") for i in range(3)]
    outside = [k.hbm(128, 128, name=f"h{i}") for i in range(4)]
    for tile in tiles:
        k.fill(tile)
    for total in sums:
        k.matmul(total, tiles[0], tiles[1])
    for _ in range(60):
        a, b, c = rng.sample(tiles, 3)
        match rng.randrange(7):
            case 0:
                k.load(a, rng.choice(outside))
            case 1:
                k.store(rng.choice(outside), a)
            case 2:
                k.matmul(rng.choice(sums), a, b)
            case 3:
                k.copy(a, rng.choice(sums), rng.choice(["vector", "scalar"]))
            case 4:
                k.copy(a, b, rng.choice(["vector", "scalar", "gpsimd"]))
            case 5:
                k.call("tensor_tensor", a, b, c, op="add", engine=rng.choice(["vector", "gpsimd"]))
            case _:
                k.call("activation", a, b, None, 1.0, None, op=rng.choice(["exp", "tanh", "square"]))
    return k


@pytest.fixture(scope="module", params=[(chip, seed) for chip in CHIPS for seed in SEEDS], ids=str)
def run(request: pytest.FixtureRequest) -> Run:
    chip, seed = request.param
    return run_of(random_kernel(CHIPS[chip], seed))


def test_the_programs_spill_and_use_every_kind_of_wait() -> None:
    runs = [run_of(random_kernel(machine, seed)) for machine in CHIPS.values() for seed in SEEDS]
    assert all(one.plan.transfers for one in runs)
    reasons = {reason for one in runs for reason in one.stalls.of("vector")}
    assert {"dma", "tensor", "scalar", "buffer", "spill", "port"} <= reasons


def test_the_path_is_the_whole_latency(run: Run) -> None:
    path = run.path
    assert path.start_ns[0] == 0
    assert np.array_equal(path.start_ns[1:], path.end_ns[:-1])
    assert path.end_ns[-1] == run.timeline.latency_ns
    assert sum(s.share for s in spent_on_path(run)) == pytest.approx(1)


def test_engine_times_add_up(run: Run) -> None:
    for engine, busy in run.stalls.busy_ns.items():
        assert busy >= 0
        assert busy + sum(run.stalls.of(engine).values()) == pytest.approx(run.timeline.latency_ns)


def test_bytes_add_up(run: Run) -> None:
    total = run.summary["dma_transfer_total_bytes"]
    assert run.traffic.total_bytes.sum() == total
    assert sum(cost.moved_bytes for cost in run.lines) == total
    hbm = run.summary["hbm_read_bytes"] + run.summary["hbm_write_bytes"]
    assert run.traffic.hbm_bytes.sum() == hbm


def test_memories_never_hold_more_than_they_have(run: Run) -> None:
    for residencies, whole in (
        (run.occupancy.sbuf, run.program.machine.limit("sbuf_bytes_per_partition")),
        (run.occupancy.psum, run.program.machine.psum_bytes_per_partition),
    ):
        assert np.all(residencies.end_ns >= residencies.start_ns)
        assert np.all(residencies.address + np.where(residencies.pieces == 1, residencies.size, 0) <= whole)


def test_every_view_can_be_made(run: Run) -> None:
    assert verdict(run)
    assert timeline_svg(run).startswith("<svg")
    assert json.loads(trace_json(run))["traceEvents"]
    tables, columns = read(report_html(run))
    assert len(columns["start"]) == len(run.timeline)
    assert tables["profile"]["latency_us"] == run.timeline.latency_us
    for columns in tables_of(run).values():
        assert len({len(column) for column in columns.values()}) == 1


def test_lanes_hold_one_event_at_a_time(run: Run) -> None:
    for lane in range(len(run.lanes.names)):
        here = run.lanes.of_event == lane
        start, until = run.timeline.start_ns[here], run.lanes.until_ns[here]
        later = start[1:] > start[:-1]
        assert np.all(start[1:][later] >= until[:-1][later] - 1e-6), run.lanes.names[lane]
