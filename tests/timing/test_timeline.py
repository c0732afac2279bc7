"""What a timeline says of its events, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import fields, replace

from nkilab.machine import MACHINES
from nkilab.place import plan
from nkilab.timing import MODEL_VERSION, REASON_TEXTS, REASONS, Timeline, latency_ns, simulate
from nkilab.timing.events import in_order
from nkilab.timing.work import work_of
from tests.place.handmade import Kernel, rows

from .round_numbers import ROUND, fact, spans, start_of, timed, why

VECTOR, SCALAR, DMA = 1, 2, 5


def loaded_and_scaled(k: Kernel) -> Timeline:
    """A load, the exponential of what it brings, a fill beside it, and a store."""
    source, target = k.hbm(128, 100), k.hbm(128, 100)
    a, b, c = (k.tile(128, 100) for _ in range(3))
    k.load(a, source)
    k.call("activation", b, a, None, 1.0, None, op="exp")
    k.fill(c)
    k.store(target, b)
    return timed(k)


def test_every_column_says_of_every_event_what_it_is() -> None:
    # the load moves from 1000 to 1320, ScalarE sees it at 1370, loads the table for 1300 and works for 300;
    # the result of a function is seen 110 ns later. The store is ready at 3130 and moves from 4130 to 4450
    timeline = loaded_and_scaled(Kernel(replace(ROUND, kernel_end_ns=fact(60.0))))
    events = [
        ("MEMSET", 2, VECTOR, 0.0, 200.0), ("DMA", 0, DMA, 1000.0, 320.0),
        ("ACT_TABLE_LOAD", 1, SCALAR, 1370.0, 1300.0), ("ACTIVATE", 1, SCALAR, 2670.0, 300.0),
        ("DMA", 3, DMA, 4130.0, 320.0),
    ]  # fmt: skip
    columns = (timeline.row, timeline.engine, timeline.start_ns, timeline.busy_ns)
    columns_found = zip(
        (timeline.labels[n] for n in timeline.label), *(c.tolist() for c in columns), strict=True
    )
    assert list(columns_found) == events
    assert timeline.end_ns.tolist() == [200.0, 1320.0, 2670.0, 3080.0, 4450.0]
    assert timeline.ready_ns.tolist() == [0.0, 0.0, 1370.0, 1370.0, 3130.0]
    assert timeline.issued_ns.tolist() == [-1.0, 0.0, -1.0, -1.0, 3130.0]
    # units have six queues each, the first of loads, the second of stores; the second unit issued nothing yet
    assert timeline.queue.tolist() == [-1, 0, -1, -1, 6 + 1]
    assert (timeline.node == timeline.row).all()
    assert [REASONS[n] for n in timeline.reason] == ["none", "none", "dma", "dma", "engine"]
    assert timeline.waited_row.tolist() == [-1, -1, 0, 0, 1]
    assert (timeline.waited_node == timeline.waited_row).all()
    assert [REASONS[n] for n in timeline.ready_reason] == ["none", "none", "dma", "dma", "engine"]
    assert timeline.ready_node.tolist() == [-1, -1, 0, 0, 1]
    assert (timeline.machine, timeline.model) == ("trn2", MODEL_VERSION)
    assert (timeline.latency_ns, timeline.latency_us) == (4510.0, 4.51)
    assert (timeline.window, timeline.window_ns) == ((1000.0, 4450.0), 3450.0)
    # each transfer occupies its unit for 500 ns
    assert timeline.issue_ns == 1000.0


def test_the_window_without_transfers_is_that_of_all_events() -> None:
    k = Kernel(replace(ROUND, kernel_start_ns=fact(70.0)))
    for _ in range(2):
        k.fill(k.tile(128, 512))
    timeline = timed(k)
    assert timeline.window == (70.0, 70.0 + 1224.0)
    assert timeline.issue_ns == 0.0


def test_a_transfer_names_whose_issuing_it_waited_for() -> None:
    # two units issue two loads at 0 and the others 500 ns later; the queues of both are busy until 1640
    k = Kernel(ROUND)
    source = k.hbm(512, 100)
    for i in range(4):
        k.load(k.tile(128, 100), rows(source, i * 128, i * 128 + 128))
    timeline = timed(k)
    of_row = {int(row): place for place, row in enumerate(timeline.row)}
    order = [of_row[row] for row in range(4)]
    assert timeline.issued_ns[order].tolist() == [0.0, 0.0, 500.0, 500.0]
    assert timeline.issuer_node[order].tolist() == [-1, -1, 0, 1]
    assert timeline.queue[order].tolist() == [0, 6, 0, 6]
    assert [why(timeline, row) for row in range(4)] == [
        ("none", -1), ("none", -1), ("queue", 0), ("queue", 1),
    ]  # fmt: skip
    assert timeline.start_ns[order].tolist() == [1000.0, 1000.0, 1640.0, 1640.0]


def test_a_result_of_the_same_engine_is_waited_for_and_not_the_engine() -> None:
    # VectorE is free when the result that the copy needs is there
    k = Kernel(ROUND)
    a, b = k.tile(128, 512), k.tile(128, 512)
    k.fill(a)
    k.copy(b, a)
    assert why(timed(k), 1) == ("engine", 0)


def test_an_engine_that_held_a_port_is_named() -> None:
    k = Kernel(replace(ROUND, shared_ports=fact(1)))
    for engine in ("vector", "gpsimd"):
        k.copy(k.tile(128, 512), k.tile(128, 512), engine)
    assert why(timed(k), 1) == ("port", 0)
    k = Kernel(replace(ROUND, shared_ports=fact(1)))
    for engine in ("vector", "scalar"):
        k.copy(k.tile(128, 512), k.psum(128, 512), engine)
    assert why(timed(k), 1) == ("port", 0)


def test_every_reason_is_explained() -> None:
    assert set(REASON_TEXTS) == set(REASONS)


def test_events_that_begin_at_once_stand_in_the_order_of_their_nodes() -> None:
    # ScalarE's copy waits for nothing, loads no table and begins with the fills of VectorE and GpSimdE
    k = Kernel(ROUND)
    k.copy(k.tile(128, 512), k.tile(128, 512), "gpsimd")
    k.call("activation", k.tile(128, 100), k.tile(128, 100), None, 1.0, None, op="exp")
    k.fill(k.tile(128, 512))
    timeline = timed(k)
    assert timeline.row.tolist() == [0, 1, 2, 1]
    assert timeline.start_ns.tolist() == [0.0, 0.0, 0.0, 1300.0]


def test_timelines_are_equal_if_all_of_their_events_are() -> None:
    one, other = (loaded_and_scaled(Kernel(ROUND)) for _ in range(2))
    assert one == other
    assert one != "a timeline"
    for field in fields(Timeline):
        value = getattr(one, field.name)
        changed = value + 1 if isinstance(value, float | np.ndarray) else (*value, "more")
        if not isinstance(value, str):
            assert replace(one, **{field.name: changed}) != one, field.name


def test_a_share_of_a_kernel_that_takes_no_time_is_none() -> None:
    empty = timed(Kernel(ROUND))
    assert (empty.latency_ns, empty.share(5.0)) == (0.0, 0.0)
    assert loaded_and_scaled(Kernel(ROUND)).share(445.0) == pytest.approx(0.1)


def test_an_engine_is_occupied_until_it_accepts_the_next_and_active_until_results_are_seen() -> None:
    # two independent copies of 612 ns, results 88 ns later; then, after a pause, two more
    k = Kernel(replace(ROUND, vector_duration_ns=fact(188.0)))
    a, b, c, d = (k.tile(128, 512) for _ in range(4))
    k.fill(a)
    k.fill(b)
    k.copy(c, b, "scalar")
    k.copy(d, c)
    k.copy(a, d)
    timeline = timed(k)
    # ScalarE from 1312 + 50 on for 712 ns, and a semaphore
    assert spans(timeline, 1) == [("MEMSET", 612.0, 1312.0)]
    assert spans(timeline, 3) == [("TENSOR_COPY", 2124.0, 2824.0)]
    assert timeline.occupied_ns("vector") == 4 * 612.0
    assert timeline.active_ns("vector") == 1312.0 + 2 * 700.0
    # the last copy begins when it sees the one before it: one interval
    assert timeline.busy_intervals("vector").tolist() == [[0.0, 1312.0], [2124.0, 3524.0]]
    assert timeline.of_engine("scalar").tolist() == [2]
    assert (timeline.occupied_ns("gpsimd"), timeline.active_ns("gpsimd")) == (0.0, 0.0)


@pytest.mark.parametrize("name", list(MACHINES))
def test_the_latency_alone_is_that_of_the_timeline(name: str) -> None:
    k = Kernel(replace(MACHINES[name], kernel_end_ns=fact(5000.0)))
    timeline = loaded_and_scaled(k)
    planned = plan(k.program)
    assert latency_ns(k.program, planned) == timeline.latency_ns
    assert latency_ns(k.program, planned, work_of(k.program, planned)) == timeline.latency_ns
    empty = Kernel(k.machine)
    assert latency_ns(empty.program, plan(empty.program)) == timed(empty).latency_ns


def test_work_that_is_known_is_that_of_the_forms_that_a_program_begins_with() -> None:
    k = Kernel(ROUND)
    a, b = k.tile(128, 512), k.tile(128, 256)
    k.fill(a)
    known = work_of(k.program, plan(k.program))
    k.fill(b)
    planned = plan(k.program)
    assert simulate(k.program, planned, work_of(k.program, planned, known)) == simulate(k.program, planned)
    assert start_of(simulate(k.program, planned), 1) == 612.0


def test_a_row_on_two_engines_is_a_node_for_each() -> None:
    # GpSimdE makes 128 descriptors for (150 + 128) / 1.2 ns, then the transfer is issued; row 2 waits for it
    k = Kernel(ROUND)
    a, b, c = (k.tile(128, 100) for _ in range(3))
    k.fill(a)
    k.call("dma_copy", b, k.hbm(128, 100), dge_mode="swdge")
    k.copy(c, b)
    timeline = timed(k)
    here = np.flatnonzero(timeline.row == 1)
    assert [timeline.labels[n] for n in timeline.label[here]] == ["DGE", "DMA"]
    # nodes behind those of the three rows are what stands before the last step of a row
    assert timeline.node[here].tolist() == [3, 1]
    assert timeline.start_ns[here[0]] == 0.0
    assert timeline.busy_ns[here[0]] == pytest.approx((150 + 128) / 1.2)
    assert [REASONS[n] for n in timeline.reason[here]] == ["none", "engine"]
    assert timeline.waited_node[here].tolist() == [-1, 3]
    assert timeline.waited_row[here].tolist() == [-1, 1]
    assert why(timeline, 2) == ("dma", 1)


def test_both_engines_of_a_row_wait_for_what_it_overwrites() -> None:
    # ScalarE reads b until 300, a semaphore later GpSimdE makes descriptors of what is to come to its place
    k = Kernel(ROUND)
    b = k.tile(128, 100)
    k.copy(k.tile(128, 100), b, "scalar")
    k.call("dma_copy", b, k.hbm(128, 100), dge_mode="swdge")
    timeline = timed(k)
    assert timeline.start_ns[timeline.row == 1][0] == 350.0


@pytest.mark.parametrize("count", [0, 1, 5000, 1_200_000])
def test_times_are_put_in_order_and_equal_ones_stay_in_theirs(count: int) -> None:
    # of 1,000 different times, in pieces from about a million of them on
    start = np.random.default_rng(3).integers(0, 1000, count).astype(np.float64)
    order = in_order(start)
    assert np.array_equal(order, np.lexsort((np.arange(count), start)))
