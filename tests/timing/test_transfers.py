"""Times of transfers, calculated by hand."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from nkilab.machine import MACHINES, Machine
from nkilab.tiles.tile import View
from nkilab.timing.work import descriptor_ns
from tests.place.handmade import Kernel, columns, rows

from .round_numbers import ROUND, fact, spans, start_of, timed, why


def test_a_transfer_of_128_rows_is_dealt_out_over_16_engines() -> None:
    # 1000 ns to the first byte; 8 rows of 400 bytes at 10 bytes a nanosecond on each engine; a semaphore
    k = Kernel(ROUND)
    source, a, b = k.hbm(128, 100), k.tile(128, 100), k.tile(128, 100)
    k.load(a, source)
    k.copy(b, a)
    timeline = timed(k)
    assert spans(timeline, 0) == [("DMA", 1000.0, 1320.0)]
    assert start_of(timeline, 1) == 1370.0
    assert why(timeline, 1) == ("dma", 0)
    assert timeline.window == (1000.0, 1320.0)


def test_the_engines_of_a_transfer_start_one_after_the_other() -> None:
    # the last of 16 starts 15 * 20 ns after the first, and ends so much later; the queue moves on at 1320
    machine = replace(ROUND, dma_spread_ns=fact(20.0), dma_issuing_units=fact(1), dma_issue_ns=fact(0.0))
    k = Kernel(machine)
    source, a, b = k.hbm(256, 100), k.tile(128, 100), k.tile(128, 100)
    k.load(a, rows(source, 0, 128))
    k.load(b, rows(source, 128, 256))
    timeline = timed(k)
    assert spans(timeline, 0) == [("DMA", 1000.0, 1620.0)]
    assert spans(timeline, 1) == [("DMA", 1320.0, 1940.0)]


def test_who_waits_for_a_transfer_hears_of_its_end_later_than_of_an_engine() -> None:
    k = Kernel(replace(ROUND, dma_done_ns=fact(300.0)))
    source, a, b, c = k.hbm(128, 100), k.tile(128, 100), k.tile(128, 100), k.tile(128, 100)
    k.load(a, source)
    k.copy(b, a)
    k.copy(c, b, "scalar")
    timeline = timed(k)
    # the load ends at 1320; the first copy takes 100 + 100 ns on VectorE
    assert start_of(timeline, 1) == 1620.0
    assert start_of(timeline, 2) == 1870.0


def test_rows_that_do_not_deal_out_evenly_last_as_long_as_the_fullest_engine() -> None:
    # 17 rows over 16 engines: one has two of 40 ns
    k = Kernel(ROUND)
    k.load(k.tile(17, 100), k.hbm(17, 100))
    assert spans(timed(k), 0) == [("DMA", 1000.0, 1080.0)]


def test_descriptor_and_semaphore_costs_are_per_descriptor_and_per_engine() -> None:
    machine = replace(ROUND, dma_run_ns=fact(5.0), dma_semaphore_write_ns=fact(3.0))
    k = Kernel(machine)
    k.load(k.tile(128, 100), k.hbm(128, 100))
    # 8 * (5 + 40) + 3
    assert spans(timed(k), 0) == [("DMA", 1000.0, 1363.0)]


def test_each_engine_of_a_narrow_transfer_ends_with_a_semaphore() -> None:
    # eight rows on eight engines: 5 + 40 + 3
    machine = replace(ROUND, dma_run_ns=fact(5.0), dma_semaphore_write_ns=fact(3.0))
    k = Kernel(machine)
    k.load(k.tile(8, 100), k.hbm(8, 100))
    assert spans(timed(k), 0) == [("DMA", 1000.0, pytest.approx(1048.0))]


@pytest.mark.parametrize(
    ("size", "measured"), [(2304, 89.4), (4096, 156.5), (8192, 306.5), (18432, 685.9), (32000, 1185)]
)
def test_a_run_takes_as_long_as_packets_do_in_course_dumps(size: int, measured: float) -> None:
    # spacing of packets on one DMA engine of trn2, from published profiles
    assert descriptor_ns(MACHINES["trn2"], size) == pytest.approx(measured, rel=0.025)


def test_short_runs_share_a_descriptor() -> None:
    # course dumps: 8 rows of 512 bytes in one descriptor 172.9 ns; 64 runs of 18 bytes 646, of 36 bytes 678
    assert 8 * descriptor_ns(MACHINES["trn2"], 512) == pytest.approx(172.9, rel=0.01)
    assert 64 * descriptor_ns(MACHINES["trn2"], 18) == pytest.approx(646, rel=0.02)
    assert 64 * descriptor_ns(MACHINES["trn2"], 36) == pytest.approx(678, rel=0.06)


def test_issuing_costs_once_per_transfer_and_for_each_descriptor() -> None:
    # 486 + 128 * 1.05 = 620.4: three of them in 1861 ns, as the course measured 1860
    k = Kernel(
        replace(ROUND, dma_issuing_units=fact(1), dma_issue_ns=fact(486), dma_descriptor_issue_ns=fact(1.05))
    )
    for _ in range(3):
        k.load(k.tile(128, 1), k.hbm(128, 1))
    timeline = timed(k)
    assert timeline.start_ns.tolist() == pytest.approx([1000.0, 1620.4, 2240.8])
    assert timeline.issue_ns == pytest.approx(1861.2)


def test_a_long_contiguous_copy_is_split_into_packets() -> None:
    # 1 MiB as 32 packets of 32 KiB over 16 engines: 2 * 3276.8 ns
    k = Kernel(ROUND)
    k.load(k.hbm(1024, 256), k.hbm(1024, 256))
    ((_, start, end),) = spans(timed(k), 0)
    assert end - start == pytest.approx(6553.6)


def test_two_transfers_on_two_queues_share_the_engines() -> None:
    # 320 ns each alone
    k = Kernel(ROUND)
    source = k.hbm(256, 100)
    for i in range(2):
        k.load(k.tile(128, 100), rows(source, i * 128, i * 128 + 128))
    timeline = timed(k)
    assert spans(timeline, 0) == [("DMA", 1000.0, 1640.0)]
    assert spans(timeline, 1) == [("DMA", 1000.0, 1640.0)]


def test_a_narrow_transfer_leaves_the_other_engines_to_a_wide_one() -> None:
    # one engine for 40 ns; meanwhile 15 engines do 600 of the 5120 ns of work, then 16 the rest
    k = Kernel(ROUND)
    k.load(k.tile(1, 100), k.hbm(1, 100))
    k.load(k.tile(128, 100), k.hbm(128, 100))
    timeline = timed(k)
    assert spans(timeline, 0) == [("DMA", 1000.0, 1040.0)]
    ((_, start, end),) = spans(timeline, 1)
    assert (start, end) == (1000.0, pytest.approx(1040.0 + 4520.0 / 16))


def test_a_queue_is_in_order() -> None:
    # three loads of 6400 ns each alone; the third is issued by the first unit at 500, behind the first
    k = Kernel(ROUND)
    source = k.hbm(384, 2000)
    for i in range(3):
        k.load(k.tile(128, 2000), rows(source, i * 128, i * 128 + 128))
    timeline = timed(k)
    assert [start_of(timeline, row) for row in range(3)] == [1000.0, 1000.0, 13800.0]
    assert why(timeline, 2) == ("queue", 0)


def test_a_store_does_not_queue_behind_loads() -> None:
    k = Kernel(ROUND)
    source = k.hbm(512, 2000)
    a = k.tile(128, 100)
    k.fill(a)
    for i in range(4):
        k.load(k.tile(128, 2000), rows(source, i * 128, i * 128 + 128))
    k.store(k.hbm(128, 100), a)
    timeline = timed(k)
    # filled at 200, semaphore 50, two units with two loads each are free again at 1000, first byte at 2000
    assert start_of(timeline, 5) == 2000.0
    assert why(timeline, 5) == ("issue", 3)


def test_tiny_transfers_are_bound_by_their_issue() -> None:
    # two units issue one each in 500 ns; the last two of 100 are issued at 24500
    k = Kernel(ROUND)
    source = k.hbm(100, 1)
    for i in range(100):
        k.load(k.tile(1, 1), rows(source, i, i + 1))
    timeline = timed(k)
    assert start_of(timeline, 99) == 25500.0
    assert why(timeline, 99) == ("issue", 97)


def stream(machine: Machine) -> float:
    """Bytes per nanosecond of 64 loads of [128, 1024] float32, rows of 4 KiB, from first to last byte."""
    k = Kernel(machine)
    source = k.hbm(64 * 128, 1024)
    for i in range(64):
        k.load(k.tile(128, 1024), rows(source, i * 128, i * 128 + 128))
    # the last engine starts, and ends, after the first one
    return 64 * 128 * 4096 / (timed(k).window_ns - 15 * machine["dma_spread_ns"])


def test_a_stream_of_4_kib_rows_reaches_most_of_the_rate_of_16_engines() -> None:
    # per row 2.5 + 4096 / 24 ns, 8 rows per engine, 8 ns for the semaphore: 1393.33 ns for 512 KiB
    trn2 = replace(
        MACHINES["trn2"],
        dma_run_ns=fact(2.5),
        dma_group_ns=fact(0.0),
        dma_bytes_per_ns=fact(24.0),
        dma_semaphore_write_ns=fact(8.0),
        hbm_bytes_per_ns=fact(435.0),
    )
    assert stream(trn2) == pytest.approx(524288 / (8 * (2.5 + 4096 / 24) + 8), rel=1e-6)
    assert 0.95 * 16 * 24 < stream(trn2) < 16 * 24


@pytest.mark.parametrize("name", list(MACHINES))
def test_no_stream_is_faster_than_hbm(name: str) -> None:
    machine = MACHINES[name]
    assert stream(machine) <= machine["hbm_bytes_per_ns"] * (1 + 1e-9)
    assert stream(replace(machine, hbm_bytes_per_ns=fact(100.0))) == pytest.approx(100.0, rel=1e-9)


def test_a_load_waits_for_the_tile_that_held_its_bytes() -> None:
    machine = replace(ROUND, sbuf_bytes_per_partition=fact(400))
    k = Kernel(machine)
    source, target = k.hbm(256, 100), k.hbm(256, 100)
    for i in range(2):
        tile = k.tile(128, 100)
        k.load(tile, rows(source, i * 128, i * 128 + 128))
        k.store(rows(target, i * 128, i * 128 + 128), tile)
    timeline = timed(k)
    # load 1000 to 1320; store ready at 1370, 2370 to 2690; the next load is ready at 2740
    assert spans(timeline, 1) == [("DMA", 2370.0, 2690.0)]
    assert spans(timeline, 2) == [("DMA", 3740.0, 4060.0)]
    assert why(timeline, 2) == ("reuse", 1)


def test_spills_are_transfers_in_time() -> None:
    machine = replace(ROUND, sbuf_bytes_per_partition=fact(800))
    k = Kernel(machine)
    tiles, sums = [k.tile(128, 100) for _ in range(3)], k.psum(128, 100)
    for tile in tiles:
        k.copy(tile, sums)
    for tile in tiles:
        k.store(k.hbm(128, 100), tile)
    timeline = timed(k)
    # Copies end at 200 and 400. The store of the first tile is ready at 250 and moves from 1250 on; the save
    # of the second is ready at 450 and moves from 1450 on, when the store has 1920 of its 5120 ns left.
    # With half of the engines each the store ends at 1690 and the save has 3200 left: it ends at 1890.
    (save,) = np.flatnonzero(timeline.label == timeline.labels.index("SPILL_SAVE"))
    assert spans(timeline, 3) == [("DMA", 1250.0, 1690.0)]
    assert (timeline.start_ns[save], timeline.end_ns[save], timeline.row[save]) == (1450.0, 1890.0, 2)
    # the third copy takes the bytes that the save emptied; the reload those of the first tile, after the save
    assert start_of(timeline, 2) == 1940.0
    assert why(timeline, 2) == ("reuse", 2)
    (reload,) = np.flatnonzero(timeline.label == timeline.labels.index("SPILL_RELOAD"))
    assert (timeline.start_ns[reload], timeline.row[reload]) == (2940.0, 4)


def halves(k: Kernel) -> View:
    """128 rows of 400 bytes in HBM, none of which touches the next one."""
    return columns(k.hbm(128, 200), 0, 100)


@pytest.mark.parametrize(
    ("stack", "from_hbm", "to_hbm", "lasts"),
    [
        # 51,200 bytes, which 16 engines of 10 bytes a nanosecond move in 320 ns
        (1000.0, True, False, 320.0), (80.0, True, False, 640.0), (80.0, False, True, 640.0),
        # a copy within HBM is read there and written there
        (1000.0, True, True, 320.0), (160.0, True, True, 640.0), (80.0, True, True, 1280.0),
        # within SBUF nothing crosses the interface of HBM
        (1.0, False, False, 320.0),
    ],
)  # fmt: skip
def test_every_byte_that_crosses_the_interface_of_hbm_counts(
    stack: float, from_hbm: bool, to_hbm: bool, lasts: float
) -> None:
    k = Kernel(replace(ROUND, hbm_stack_bytes_per_ns=fact(stack)))
    source, target = (halves(k) if is_hbm else k.tile(128, 100) for is_hbm in (from_hbm, to_hbm))
    k.load(target, source)
    assert spans(timed(k), 0) == [("DMA", 1000.0, pytest.approx(1000.0 + lasts))]


def test_what_the_engines_move_counts_once_within_hbm() -> None:
    # engines move 80 bytes a nanosecond to and from HBM, whose stack gives 1000: read and written in 640 ns
    k = Kernel(replace(ROUND, hbm_bytes_per_ns=fact(80.0), hbm_stack_bytes_per_ns=fact(1000.0)))
    k.load(halves(k), halves(k))
    assert spans(timed(k), 0) == [("DMA", 1000.0, pytest.approx(1640.0))]


def test_a_transfer_within_sbuf_keeps_its_rate_where_hbm_is_slow() -> None:
    # the load has 16 bytes a nanosecond: 3200 ns; the other one half of 16 engines, as two share them
    k = Kernel(replace(ROUND, hbm_bytes_per_ns=fact(16.0)))
    k.load(k.tile(128, 100), k.hbm(128, 100))
    k.load(k.tile(128, 100), k.tile(128, 100))
    timeline = timed(k)
    assert spans(timeline, 0) == [("DMA", 1000.0, pytest.approx(1000.0 + 3200.0))]
    assert spans(timeline, 1) == [("DMA", 1000.0, 1640.0)]


def test_disjoint_column_stores_run_at_once() -> None:
    k = Kernel(ROUND)
    a, out = k.tile(128, 100), k.hbm(128, 200)
    k.fill(a)
    k.store(columns(out, 0, 100), a)
    k.store(columns(out, 100, 200), a)
    timeline = timed(k)
    assert start_of(timeline, 1) == start_of(timeline, 2) == 1250.0


STATIC = replace(
    ROUND, dma_issuing_units=fact(1), dma_static_issue_ns=fact(50.0), dma_static_start_ns=fact(1200.0)
)


@pytest.mark.parametrize(("is_static", "starts"), [(False, [1000.0, 1500.0]), (True, [1200.0, 1250.0])])
def test_descriptors_written_beforehand_are_issued_faster(is_static: bool, starts: list[float]) -> None:
    # one unit: the second transfer is issued after the 500 ns of the first, or the 50 of a write to the ring;
    # descriptors that lie in HBM are read before the first byte moves
    k = Kernel(STATIC)
    for _ in range(2):
        k.load(k.tile(128, 1), k.hbm(128, 1))
    k.program.has_static_descriptors = is_static
    assert timed(k).start_ns.tolist() == pytest.approx(starts)


def test_no_transfer_overtakes_one_that_was_issued_before_it() -> None:
    # the first one, with descriptors in HBM, starts at 1200; the second would at 1050
    k = Kernel(STATIC)
    k.call("dma_copy", k.tile(128, 1), k.hbm(128, 1), dge_mode="none")
    k.load(k.tile(128, 1), k.hbm(128, 1))
    assert timed(k).start_ns.tolist() == pytest.approx([1200.0, 1200.0 + 8 * 0.4])


def test_no_transfer_overtakes_one_of_another_queue_that_was_issued_before_it() -> None:
    # as above, but the second is a store, which waits for no load: both begin at 1200, not this one at 1050
    k = Kernel(STATIC)
    k.call("dma_copy", k.tile(128, 1), k.hbm(128, 1), dge_mode="none")
    k.store(k.hbm(128, 1), k.tile(128, 1))
    assert timed(k).start_ns.tolist() == pytest.approx([1200.0, 1200.0])


def test_software_descriptors_are_made_by_gpsimd_before_the_transfer() -> None:
    # ROUND: GpSimdE starts up for 150 cycles at 1.2 GHz and makes 128 descriptors, a cycle each; a semaphore,
    # and 1000 ns from the issue to the first byte; the unit that issues is occupied for 50 ns
    k = Kernel(replace(STATIC, dma_static_issue_ns=fact(50.0)))
    for _ in range(2):
        k.call("dma_copy", k.tile(128, 1), k.hbm(128, 1), dge_mode="swdge")
    timeline = timed(k)
    ring_ns = (150 + 128) / 1.2
    labels = [timeline.labels[number] for number in timeline.label]
    starts: dict[int, list[tuple[str, float]]] = {row: [] for row in range(2)}
    for label, row, start in zip(labels, timeline.row, timeline.start_ns, strict=True):
        starts[int(row)].append((label, float(start)))
    assert starts[0] == [("DGE", 0.0), ("DMA", pytest.approx(ring_ns + 50.0 + 1000.0))]
    assert starts[1] == [("DGE", pytest.approx(ring_ns)), ("DMA", pytest.approx(2 * ring_ns + 50.0 + 1000.0))]


def test_descriptors_of_spills_are_written_beforehand() -> None:
    # three stores are issued in 500 ns each, the save and the reload in 50; their first byte comes after 1200
    k = Kernel(replace(STATIC, sbuf_bytes_per_partition=fact(800)))
    tiles, sums = [k.tile(128, 100) for _ in range(3)], k.psum(128, 100)
    for tile in tiles:
        k.copy(tile, sums)
    for tile in tiles:
        k.store(k.hbm(128, 100), tile)
    timeline = timed(k)
    assert timeline.issue_ns == 3 * 500.0 + 2 * 50.0
    (save,) = np.flatnonzero(timeline.label == timeline.labels.index("SPILL_SAVE"))
    assert timeline.start_ns[save] - timeline.issued_ns[save] == 1200.0
