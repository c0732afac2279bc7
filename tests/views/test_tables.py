"""Lanes, lines, memories, transfers and the roofline of runs."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from nkilab.timing.work import QUEUES
from nkilab.views.source import SourceFile
from nkilab.views.traffic import mean_rate
from tests.place.handmade import Kernel, rows
from tests.timing.test_clock import ROUND, fact
from tests.views.runs import kernel_run, loaded_copied_stored, run_of, side_by_side
from tests.views.test_path import KERNELS


def test_lanes_are_those_of_the_vendors_profiler() -> None:
    run = kernel_run("tiled")
    assert run.lanes.names == (
        "Tensor", "TensorMatrix", "Vector", "qSyncLoad0", "qSyncStore0", "qSyncLoad1", "qSyncStore1"
    )  # fmt: skip
    labels = np.array(run.timeline.labels)[run.timeline.label]
    assert set(labels[run.lanes.of_event == 0]) == {"LDWEIGHTS"}
    assert set(labels[run.lanes.of_event == 1]) == {"MATMUL LOW", "MATMUL HIGH"}


def test_events_of_one_lane_occupy_it_one_after_the_other() -> None:
    for name in KERNELS:
        run = kernel_run(name)
        for lane in range(1, len(run.lanes.names)):
            here = run.lanes.of_event == lane
            start, until = run.timeline.start_ns[here], run.lanes.until_ns[here]
            assert np.all(start[1:] >= until[:-1]), (name, run.lanes.names[lane])
            assert np.all(until >= start)


def test_products_side_by_side_have_a_lane_each() -> None:
    # four tiles of 32 columns take a product each, then another: 512 rows and 8 cycles at 2.4 GHz
    run = run_of(side_by_side())
    assert run.lanes.names[:5] == (
        "Tensor",
        "TensorMatrix",
        "TensorMatrix 2",
        "TensorMatrix 3",
        "TensorMatrix 4",
    )
    assert run.lanes.engine[:5] == ("tensor",) * 5
    labels = np.array(run.timeline.labels)[run.timeline.label]
    for lane in range(1, 5):
        here = run.lanes.of_event == lane
        assert labels[here].tolist() == ["MATMUL"] * 2
        lasts = run.lanes.until_ns[here] - run.timeline.start_ns[here]
        assert lasts == pytest.approx([520 / 2.4] * 2)


def test_a_transfer_leaves_its_lane_when_the_next_one_starts() -> None:
    # the last of 16 DMA engines starts, and ends, 15 * 10 ns after the first
    k = Kernel(replace(ROUND, dma_issuing_units=fact(1), dma_spread_ns=fact(10.0)))
    source = k.hbm(256, 5120)
    for i in range(2):
        k.load(k.tile(128, 5120), rows(source, i * 128, i * 128 + 128))
    run = run_of(k)
    assert run.timeline.end_ns.tolist() == pytest.approx([1000 + 16384 + 150, 1000 + 2 * 16384 + 150])
    assert run.lanes.until_ns.tolist() == pytest.approx([1000 + 16384, 1000 + 2 * 16384 + 150])


def test_lines_count_calls_bytes_and_time() -> None:
    run = run_of(loaded_copied_stored())
    by_line = {cost.line: cost for cost in run.lines}
    assert [cost.line for cost in run.lines] == [3, 1, 2]
    load, copy, store = by_line[1], by_line[2], by_line[3]
    assert load.path_ns == pytest.approx(2638.4)
    assert store.path_ns == pytest.approx(2638.4 + 50)
    assert (copy.path_ns, copy.busy_ns, copy.stalled_ns) == pytest.approx((662, 612, 2688.4))
    assert (load.moved_bytes, store.moved_bytes, copy.moved_bytes) == (262144, 262144, 0)
    assert (copy.opcodes, copy.engines, copy.count) == (("TENSOR_COPY",), ("vector",), 1)


@pytest.mark.parametrize("name", KERNELS)
def test_lines_share_the_path_among_them(name: str) -> None:
    run = kernel_run(name)
    machine = run.program.machine
    fixed = machine["kernel_start_ns"] + machine["kernel_end_ns"]
    assert sum(cost.path_ns for cost in run.lines) == pytest.approx(run.timeline.latency_ns - fixed)
    assert sum(cost.count for cost in run.lines) == len(run.program)
    assert sum(cost.moved_bytes for cost in run.lines) == run.summary["dma_transfer_total_bytes"]


def test_tiles_stay_from_their_first_access_to_their_last() -> None:
    residencies = run_of(loaded_copied_stored()).occupancy.sbuf
    # the load's first byte at 1000, the copy from 2688.4 to 3300.4, the store until 5988.8
    assert residencies.start_ns.tolist() == pytest.approx([1000, 2688.4])
    assert residencies.end_ns.tolist() == pytest.approx([3300.4, 5988.8])
    assert residencies.size.tolist() == [2048, 2048]
    assert residencies.most(np.array([0, 900, 2000, 3000, 4000])).tolist() == [0, 2048, 4096, 4096]


def test_psum_is_held_in_whole_banks() -> None:
    k = Kernel(ROUND)
    k.matmul(k.psum(128, 8), k.tile(128, 128), k.tile(128, 8))
    assert run_of(k).occupancy.psum.size.tolist() == [2048]


def test_transfers_know_bytes_and_the_sizes_of_their_descriptors() -> None:
    k = Kernel(ROUND)
    source = k.hbm(256, 512)
    k.load(k.tile(128, 512), rows(source, 0, 128))
    k.load(k.tile(128, 8), k.hbm(128, 8))
    traffic = run_of(k).traffic
    assert traffic.total_bytes.tolist() == [262144, 4096]
    assert traffic.hbm_bytes.tolist() == [262144, 4096]
    assert [QUEUES[kind] for kind in traffic.kind] == ["load", "load"]
    # 128 runs of 32 bytes, 128 of 2048
    assert traffic.sizes() == [(32, 128, 4096), (2048, 128, 262144)]


def test_bandwidth_is_bytes_over_time() -> None:
    run = run_of(loaded_copied_stored())
    # 160 bytes a nanosecond while the load moves, from 1000 to 2638.4
    edges = np.array([0, 1000, 2000, 2638.4, 3000])
    assert run.traffic.bandwidth(edges, "load").tolist() == pytest.approx([0, 160, 160, 0])
    assert run.traffic.bandwidth(edges, "store").tolist() == pytest.approx([0, 0, 0, 0])


@pytest.mark.parametrize("name", KERNELS)
def test_bandwidth_integrates_to_all_bytes(name: str) -> None:
    run = kernel_run(name)
    edges = np.linspace(0, run.timeline.latency_ns, 37)
    moved = float((run.traffic.bandwidth(edges) * np.diff(edges)).sum())
    assert moved == pytest.approx(run.summary["dma_transfer_total_bytes"])


def test_rates_of_intervals_that_overlap_add_up() -> None:
    # 10 per unit from 0 to 10, 5 from 5 to 15
    rates = mean_rate(
        np.array([0.0, 5.0]), np.array([10.0, 15.0]), np.array([100, 50]), np.array([0, 5, 10, 20])
    )
    assert rates.tolist() == pytest.approx([10, 15, 2.5])


def test_the_roofline_has_the_chips_roofs_and_the_kernels_point() -> None:
    run = kernel_run("blocked")
    roofline = run.roofline
    # 16 engines of 10 bytes a nanosecond; 128 * 128 * 2 * 2.4 GHz; a float32 multiplication takes four passes
    assert roofline.peak == pytest.approx({"bfloat16": 78.6432e12, "float32": 19.6608e12})
    assert roofline.bandwidth == {"DMA": 160e9, "HBM stack": 716e9}
    flops, seconds = 2 * 512 * 512 * 1024, run.timeline.latency_ns * 1e-9
    assert roofline.achieved == pytest.approx(flops / seconds)


def test_tiles_are_named_by_the_line_that_makes_them() -> None:
    run = kernel_run("tiled")
    assert {"lhsT", "rhs", "out", "tile", "new_product"} == set(run.tile_names)


def test_names_come_from_assignments_and_returns() -> None:
    text = "def f():\n    return make()\nx = 1\ny[0] = (2,\n  3)\nz: int = 4\nprint(x)\n"
    assert SourceFile("k.py", text).assigned == {2: "f", 3: "x", 4: "y[0]", 5: "y[0]", 6: "z"}


def test_a_file_that_is_no_python_has_no_names() -> None:
    assert SourceFile("k.py", "def (").assigned == {}
    assert SourceFile("C:\\kernels\\k.py", "").name == "k.py"
