"""Nodes that meet others, and HBM that another core takes a part of, by hand on the chip with round numbers.

A test stands for the other cores: it says when a rendezvous is complete, and what HBM gives.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from nkilab.machine import MACHINES
from nkilab.place import plan
from nkilab.timing import BEGIN, FOREVER, NOBODY, Timeline, ended, opened
from nkilab.timing.work import work_of
from tests.place.handmade import Kernel, rows

from .round_numbers import ROUND, fact, spans, start_of, why

Came = list[tuple[int, float]]


class Core:
    """A clock of a program some of whose rows meet others."""

    def __init__(self, k: Kernel, *rendezvous: int) -> None:
        self.program = k.program
        self.work = work_of(k.program, plan(k.program))
        self.run_on, self.clock = opened(k.program, self.work)
        for row in rendezvous:
            self.clock.nodes[row].meets = True

    def run(self, number: int = NOBODY, at: float = 0.0, until: float = FOREVER) -> float:
        """Run until a time, or until something meets; when the next event is."""
        return float(self.run_on(self.clock, number, at, until))

    def came(self) -> Came:
        """Who has come to a rendezvous since it was last asked, and when."""
        moment, finishes = self.clock.moment, []
        here = int(moment.first_met)
        while here != NOBODY:
            node = self.clock.nodes[here]
            finishes.append((here, float(max(node.start, node.ready))))
            here = int(node.next)
        moment.first_met = moment.last_met = NOBODY
        return finishes

    def timeline(self) -> Timeline:
        return ended(self.program, self.work, self.clock)


def exchange() -> Core:
    """VectorE fills a and e; ScalarE meets others in row 2, has something else to do, and VectorE waits."""
    k = Kernel(ROUND)
    a, b, c, d, e = (k.tile(128, 512) for _ in range(5))
    k.fill(a)
    k.fill(e)
    k.copy(b, a, "scalar")
    k.copy(d, a, "scalar")
    k.copy(c, b)
    return Core(k, 2)


def test_an_engine_takes_nothing_else_until_a_meeting_is_complete() -> None:
    # rows 0 and 1 end at 612 and 1224; row 2 comes at 662 and takes 512 + 200 from 3000 on
    core = exchange()
    core.run(BEGIN)
    assert core.came() == [(2, 662.0)]
    assert core.run() == FOREVER
    assert core.came() == []
    core.run(2, 3000.0)
    assert core.run() == FOREVER
    timeline = core.timeline()
    assert spans(timeline, 1) == [("MEMSET", 612.0, 1224.0)]
    assert spans(timeline, 2) == [("TENSOR_COPY", 3000.0, 3712.0)]
    assert why(timeline, 2) == ("meeting", NOBODY)
    assert start_of(timeline, 3) == 3712.0
    assert why(timeline, 3) == ("order", 2)
    assert start_of(timeline, 4) == 3762.0


def test_a_meeting_that_was_complete_before_holds_nobody_up() -> None:
    core = exchange()
    core.run(BEGIN)
    core.came()
    core.run(2, 100.0)
    timeline = core.timeline()
    assert spans(timeline, 2) == [("TENSOR_COPY", 662.0, 1374.0)]
    assert why(timeline, 2) == ("engine", 0)
    assert start_of(timeline, 3) == 1374.0


def test_a_result_is_seen_as_long_after_a_meeting_as_without_one() -> None:
    # 40 ns later than ScalarE takes the next instruction, and a semaphore
    k = Kernel(replace(ROUND, scalar_duration_ns=fact(240.0)))
    a, b, c, d = (k.tile(128, 512) for _ in range(4))
    k.copy(b, a, "scalar")
    k.copy(d, a, "scalar")
    k.copy(c, b)
    core = Core(k, 0)
    core.run(BEGIN)
    assert core.came() == [(0, 0.0)]
    core.run(0, 1000.0)
    timeline = core.timeline()
    assert spans(timeline, 0) == [("TENSOR_COPY", 1000.0, 1752.0)]
    assert start_of(timeline, 1) == 1712.0
    assert start_of(timeline, 2) == 1802.0


def test_a_transfer_is_issued_when_its_meeting_is_complete() -> None:
    # 500 ns until the unit is free again, 1000 to the first byte, 320 for 128 rows of 400 bytes
    k = Kernel(ROUND)
    source = k.hbm(256, 100)
    for i in range(2):
        k.load(k.tile(128, 100), rows(source, i * 128, i * 128 + 128))
    core = Core(k, 0)
    core.run(BEGIN)
    assert core.came() == [(0, 0.0)]
    core.run(0, 5000.0)
    timeline = core.timeline()
    assert spans(timeline, 1) == [("DMA", 1000.0, 1320.0)]
    assert spans(timeline, 0) == [("DMA", 6000.0, 6320.0)]
    assert why(timeline, 0) == ("meeting", NOBODY)


def test_a_transfer_whose_meeting_was_complete_before_is_issued_when_it_is_ready() -> None:
    # filled at 200, a semaphore later it comes
    k = Kernel(ROUND)
    a = k.tile(128, 100)
    k.fill(a)
    k.store(k.hbm(128, 100), a)
    core = Core(k, 1)
    core.run(BEGIN)
    assert core.came() == [(1, 250.0)]
    core.run(1, 100.0)
    timeline = core.timeline()
    assert spans(timeline, 1) == [("DMA", 1250.0, 1570.0)]
    assert why(timeline, 1) == ("engine", 0)


def test_all_that_come_before_the_clock_stops_are_told() -> None:
    # three transfers, and an instruction, wait for nothing but others
    k = Kernel(ROUND)
    source = k.hbm(384, 100)
    for i in range(3):
        k.load(k.tile(128, 100), rows(source, i * 128, i * 128 + 128))
    k.fill(k.tile(128, 512))
    core = Core(k, 0, 1, 2, 3)
    core.run(BEGIN)
    first = core.came()
    core.run()
    second = core.came()
    assert sorted(first) == [(0, 0.0), (1, 0.0), (2, 0.0)]
    assert second == [(3, 0.0)]


def test_what_happens_at_the_last_time_to_run_happens() -> None:
    # fills begin at 0, 612 and 1224
    k = Kernel(ROUND)
    for _ in range(3):
        k.fill(k.tile(128, 512))
    core = Core(k)
    assert core.run(BEGIN, until=611.0) == 612.0
    assert [core.clock.nodes[row].start for row in range(3)] == [0.0, -1.0, -1.0]
    assert core.run(until=612.0) == 1224.0
    assert [core.clock.nodes[row].start for row in range(3)] == [0.0, 612.0, -1.0]
    assert core.run() == FOREVER
    assert core.timeline().latency_ns == 1836.0


def sharing(transfers: int, gives: float) -> Core:
    """One or two loads of 51,200 bytes each, from 1000 ns on, on a core that shares HBM."""
    k = Kernel(ROUND)
    source = k.hbm(128 * transfers, 100)
    for i in range(transfers):
        k.load(k.tile(128, 100), rows(source, i * 128, i * 128 + 128))
    core = Core(k)
    moment: Any = core.clock.moment
    moment.shares_hbm = moment.hbm_binds = True
    moment.hbm_limit = gives
    return core


def test_bytes_move_at_the_rate_that_hbm_gives_until_it_changes() -> None:
    # 500 ns at 51.2 bytes a nanosecond, the other half at 102.4
    core = sharing(1, 51.2)
    assert core.run(BEGIN, until=1500.0) == 2000.0
    core.clock.moment.hbm_limit = 102.4
    assert core.run(until=1600.0) == pytest.approx(1750.0)
    # 10,240 bytes have moved in the last 100 ns, 15,360 are left
    core.clock.moment.hbm_limit = 25.6
    core.run()
    assert core.timeline().end_ns.tolist() == pytest.approx([1600.0 + 15360 / 25.6])


def test_two_transfers_share_what_hbm_gives() -> None:
    # both at half of 102.4 until 1500, then at half of 51.2
    core = sharing(2, 102.4)
    core.run(BEGIN, until=1500.0)
    core.clock.moment.hbm_limit = 51.2
    core.run()
    assert core.timeline().end_ns.tolist() == pytest.approx([2500.0, 2500.0])


def test_a_change_before_the_first_byte_counts_from_the_first_byte_on() -> None:
    core = sharing(1, 51.2)
    assert core.run(BEGIN, until=400.0) == 1000.0
    core.clock.moment.hbm_limit = 512.0
    core.run()
    # 16 engines of 10 bytes a nanosecond need 320 ns, less than HBM
    assert core.timeline().end_ns.tolist() == pytest.approx([1320.0])


def test_a_change_of_what_hbm_gives_is_seen_by_a_core_that_shares_it_alone() -> None:
    k = Kernel(ROUND)
    k.load(k.tile(128, 100), k.hbm(128, 100))
    core = Core(k)
    core.run(BEGIN, until=1100.0)
    core.clock.moment.hbm_binds, core.clock.moment.hbm_limit = True, 1.0
    core.run()
    assert core.timeline().end_ns.tolist() == [1320.0]


def gather(k: Kernel) -> None:
    """Two ranks of a chip gather 512 KiB of each, in HBM."""
    source, target = k.hbm(4, 32768), k.hbm(8, 32768)
    k.call("all_gather", source, target, values=((0, 0, 1),), collective_dim=0, ranks=2)


def test_a_collective_takes_its_hops_and_as_long_as_the_engines_move_its_bytes() -> None:
    machine = replace(ROUND, collective_hop_ns=fact(700.0), dma_spread_ns=fact(20.0))
    k = Kernel(machine)
    gather(k)
    (step,) = k.program.form_of(0).steps
    core = Core(k)
    core.run(BEGIN)
    ((_, start, end),) = spans(core.timeline(), 0)
    # four of 16 engines of 10 bytes a nanosecond serve the one peer; each starts 20 ns later
    engines = min(step.descriptors, 16)
    assert step.descriptors in range(4, 17)
    moved = step.descriptors * step.descriptor_bytes
    assert end - start == pytest.approx(moved / (4 * 10.0) + (engines - 1) * 20.0 + 700.0)


def test_a_collective_has_a_queue_of_its_own() -> None:
    # one unit issues all three at once; the load and the store do not stand behind the collective
    k = Kernel(replace(MACHINES["trn2"], dma_issue_ns=fact(0.0), dma_descriptor_issue_ns=fact(0.0)))
    gather(k)
    k.load(k.tile(128, 100), k.hbm(128, 100))
    k.store(k.hbm(128, 100), k.tile(128, 100))
    core = Core(k)
    core.run(BEGIN)
    timeline = core.timeline()
    assert [why(timeline, row)[0] for row in range(3)] == ["none", "none", "none"]
    assert len(set(timeline.queue.tolist())) == 3
