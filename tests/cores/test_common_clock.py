"""Several cores in one time, against hand calculations, a single clock, and all programs without classes."""

from __future__ import annotations

from math import exp
from typing import Any

import numpy as np
import pytest

import nkilab
from nkilab.api import estimate_programs
from nkilab.cores import common_clock
from nkilab.cores.common_clock import classes_of
from nkilab.launches import launch_ranks
from nkilab.machine import MACHINES, Topology
from tests.cores.kernels import exchanged, loaded, output_like, reduces
from tests.cores.test_collectives import passes_on
from tests.dialects.spellings import nisa2 as nisa
from tests.dialects.spellings import nki2 as nki
from tests.dialects.spellings import nl2 as nl

with nkilab.activate():
    import nki.collectives as ncc

TRN2 = MACHINES["trn2"]
SPEC = nkilab.spec((2, 64, 512), "float32")


def ranks_of(kernel: Any, count: int, *args: Any, topology: Any = None, machine: Any = TRN2) -> Any:
    """The estimate of a launch on shapes; a function among the arguments is called with the rank."""
    calls = [(tuple(a(r) if callable(a) else a for a in args), {}) for r in range(count)]
    left = launch_ranks(
        kernel, calls, range(count), machine, launched=count, has_data=False, topology=topology
    )
    return estimate_programs([p for one in left for p in one.programs])


@nki.jit
def late_on_one(x, repeats, meets):
    """Program 1 computes for a while before both meet; then both compute once more."""
    out, tile = output_like(x), loaded(x)
    for _ in range(repeats if nl.program_id(0) == 1 else 1):
        nisa.activation(tile, op=nl.exp, data=tile)
    if meets == "sendrecv":
        exchanged(tile, tile)
    elif meets == "barrier":
        nisa.core_barrier(out, (0, 1))
    nisa.activation(tile, op=nl.exp, data=tile)
    nisa.dma_copy(out[nl.program_id(0)], tile)
    return out


@pytest.mark.parametrize("meets", ["sendrecv", "barrier"])
def test_a_core_waits_for_the_other_one(meets: str) -> None:
    apart, together = (nkilab.estimate(late_on_one[2], SPEC, 40, how) for how in ("", meets))
    early, late = (core.estimate for core in apart.cores)
    waiting, _ = (core.estimate for core in together.cores)
    assert early.latency_us < late.latency_us - 20
    if meets == "sendrecv":
        # what it computes next needs what the other one sends
        assert waiting.latency_us == pytest.approx(together.latency_us, abs=0.5)
        reasons = waiting.timeline.reason[waiting.timeline.row == exchange_row(waiting)]
        assert {nkilab_reasons()[r] for r in reasons} == {"meeting"}


def exchange_row(estimate: Any) -> int:
    (row,) = common_clock.rendezvous_rows(estimate.program)
    return row


def nkilab_reasons() -> tuple[str, ...]:
    from nkilab.timing import REASONS

    return REASONS


def test_a_barrier_holds_its_engine_until_all_have_come() -> None:
    together = nkilab.estimate(late_on_one[2], SPEC, 40, "barrier")
    starts = []
    for core in together.cores:
        timeline = core.estimate.timeline
        (at,) = np.flatnonzero(timeline.row == exchange_row(core.estimate))
        starts.append(float(timeline.start_ns[at]))
    assert starts[0] == pytest.approx(starts[1])


def collective_ns(estimate: Any) -> float:
    """From the start of a program's collective to its end."""
    timeline = estimate.timeline
    (at,) = np.flatnonzero(timeline.row == exchange_row(estimate))
    return float(timeline.end_ns[at] - timeline.start_ns[at])


@pytest.mark.parametrize(
    ("ranks", "topology", "hops", "stages"),
    [
        # hand: on one chip a hop each for the reduce-scatter and the all-gather, to three peers, which the
        # CC-core serves 50 ns apart, four of 16 DMA engines each; HBM binds
        (4, None, 2 * (1500 + 2 * 50), [(0.75, 0, 12)]),
        # one rank on each of four chips: all 1024 bytes a nanosecond of its links are its own, HBM binds
        (4, Topology(1, 16), 2 * (1500 + 2 * 50), [(0.75, 1024, 12)]),
        # one rank on each node: all 25 bytes a nanosecond of a chip's network are its own
        (4, Topology(1, 1), 2 * (15000 + 2 * 50), [(0.75, 25, 12)]),
        # two ranks on each of two chips of two nodes, which share 25: an eighth crosses the network each way
        (8, Topology(2, 4), 4 * 1500 + 2 * 15000, [(0.5, 0, 4), (0.25, 512, 4), (0.125, 12.5, 4)]),
    ],
)
def test_hops_and_links_are_what_a_collective_takes(
    ranks: int, topology: Any, hops: float, stages: list[tuple[float, float, int]]
) -> None:
    spec, group = nkilab.spec((128, 512), "float32"), ncc.ReplicaGroup([list(range(ranks))])
    estimate = ranks_of(reduces, ranks, spec, group, topology=topology)
    # parts of 256 KiB, each received twice: DMA engines of 27.3 bytes a nanosecond read two terms of the sum
    # and the byte that is gathered; three and two accesses of HBM, of which two cores share 716
    spent = [
        256 * 1024 * max(2 * part / rate if rate else 0.0, 3 * part / (engines * 27.3))
        for part, rate, engines in stages
    ]
    in_hbm = 256 * 1024 * sum(part for part, _, _ in stages) * 5 / (716 / 2)
    # 12 packets of 32 KiB or more: the last engine starts at least 11 * 24 ns after the first
    moving = max(sum(spent), in_hbm) + 11 * 24
    assert collective_ns(estimate) == pytest.approx(hops + moving, rel=0.03)


def small_ns(ranks: int, topology: Any = None) -> float:
    spec, group = nkilab.spec((ranks, 4), "float32"), ncc.ReplicaGroup([list(range(ranks))])
    return collective_ns(ranks_of(reduces, ranks, spec, group, topology=topology))


def test_a_small_collective_of_more_ranks_takes_longer() -> None:
    # hand: two more passes to each peer beyond the first, 50 ns apart
    assert small_ns(8) - small_ns(2) == pytest.approx(2 * 6 * 50, abs=20)
    assert small_ns(2) < small_ns(4) < small_ns(8) < small_ns(16, Topology(8, 128))


@pytest.mark.parametrize(("megabytes", "rate"), [(64, 109.2), (256, 109.2)])
def test_two_ranks_of_a_chip_have_four_of_sixteen_engines_for_each_other(megabytes: int, rate: float) -> None:
    spec, group = nkilab.spec((128, megabytes * 2048), "float32"), ncc.ReplicaGroup([[0, 1]])
    estimate = ranks_of(passes_on, 2, spec, group)
    # hand: four engines of 27.3 bytes a nanosecond; published is 103.8
    assert megabytes * 2**20 / collective_ns(estimate) == pytest.approx(rate, rel=0.02)


@nki.jit
def copied(x, through_sbuf):
    """Each core copies its part, within HBM or through SBUF."""
    out, count = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), x.shape[0] // nl.num_programs(0)
    for i in range(count):
        at = nl.program_id(0) * count + i
        if through_sbuf:
            tile = nl.ndarray(x.shape[1:], x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(tile, x[at])
            nisa.dma_copy(out[at], tile)
        else:
            nisa.dma_copy(out[at], x[at])
    return out


@pytest.mark.parametrize(
    ("through_sbuf", "one_rate", "two_rate"),
    [
        # hand: a stack of 716 bytes a nanosecond gives and takes half of that each, however many cores copy
        (False, 716 / 2, 716 / 2),
        # hand: the 16 engines of one core move 435, those of two all that the stack has; each byte goes twice
        (True, 435 / 2, 716 / 2),
    ],
)
def test_a_copy_within_hbm_is_no_faster_on_two_cores(
    through_sbuf: bool, one_rate: float, two_rate: float
) -> None:
    spec = nkilab.spec((64, 128, 2048), "float32")
    two = nkilab.estimate(copied[2], spec, through_sbuf)
    one = nkilab.estimate(copied[1], spec, through_sbuf)
    moved = 64 * 128 * 2048 * 4
    assert one.window_us * 1000 == pytest.approx(moved / one_rate, rel=0.03)
    assert two.window_us * 1000 == pytest.approx(moved / two_rate, rel=0.03)
    assert two.one_core is not None
    assert two.one_core.latency_us == one.latency_us
    # the time of the launch is the same for both
    assert two.together.times_one_core == pytest.approx(one.latency_us / two.latency_us)


@pytest.mark.parametrize("chip", ["trn2", "trn3"])
def test_equal_ranks_are_simulated_once(chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, group = nkilab.spec((128, 512), "float32"), ncc.ReplicaGroup([[0, 1, 2, 3], [4, 5, 6, 7]])
    once = ranks_of(reduces, 8, spec, group, machine=MACHINES[chip])
    assert [len(core.titles) for core in once.cores] == [8]
    # every program a class of its own
    monkeypatch.setattr(common_clock, "classes_of", lambda keys, who, neighbour: list(range(len(keys))))
    each = ranks_of(reduces, 8, spec, group, machine=MACHINES[chip])
    assert [len(core.titles) for core in each.cores] == [1] * 8
    for core in each.cores:
        # the windows in which neighbours share a stack are seen
        assert core.estimate.latency_us == pytest.approx(once.latency_us, rel=0.03)


@nki.jit
def late(x, group, repeats):
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    for _ in range(repeats):
        nisa.activation(tile, op=nl.exp, data=tile)
    total = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    ncc.all_reduce([tile], [total], group, nl.add)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, total)
    return out


@nki.jit
def met_twice(x, group):
    """The cores of a rank meet, then all ranks do."""
    src, dst = output_like(x), output_like(x)
    nisa.dma_copy(src[nl.program_id(0)], loaded(x))
    nisa.core_barrier(src, (0, 1))
    ncc.all_reduce([src], [dst], group, nl.add)
    return dst


def test_meetings_stand_in_the_order_of_their_rows() -> None:
    # the second core of a rank comes last to the barrier and goes on at once, the last past the collective
    group = ncc.ReplicaGroup([[0, 1, 2, 3]])
    left = launch_ranks(met_twice[2], [((SPEC, group), {})] * 4, range(4), TRN2, launched=4, has_data=False)
    for number, program in enumerate(p for one in left for p in one.programs):
        first, second = program.met
        rank, core = divmod(number, 2)
        # hand: (program, nth meeting of it) of the two cores of a rank, then of the same core of all ranks
        assert first == ((2 * rank, 0), (2 * rank + 1, 0))
        assert second == tuple((2 * other + core, 1) for other in range(4))
    estimate = ranks_of(met_twice[2], 4, SPEC, group)
    assert [len(core.titles) for core in estimate.cores] == [4, 4]


def test_all_wait_for_the_last_rank_of_their_group_alone() -> None:
    spec = nkilab.spec((64, 512), "float32")
    group = ncc.ReplicaGroup([[0, 1], [2, 3]])
    estimate = ranks_of(late, 4, spec, group, lambda rank: 60 if rank == 3 else 2)
    by_title = {title: core.estimate.latency_us for core in estimate.cores for title in core.titles}
    assert by_title["rank 2"] == pytest.approx(by_title["rank 3"], abs=0.1)
    assert by_title["rank 0"] == by_title["rank 1"] < by_title["rank 2"] - 30


def test_a_collective_runs_beside_what_does_not_need_it() -> None:
    @nki.jit
    def kernel(x, group, reduces, computes):
        src, dst = (nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name=n) for n in ("src", "dst"))
        if reduces:
            nisa.dma_copy(src, x)
            ncc.all_reduce([src], [dst], group, nl.add)
        tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
        nisa.memset(tile, 0)
        for _ in range(computes):
            nisa.activation(tile, op=nl.exp, data=tile)
        out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, tile)
        return out

    spec, group = nkilab.spec((512, 512), "float32"), ncc.ReplicaGroup([[0, 1]])
    both, one, other = (
        ranks_of(kernel, 2, spec, group, *how) for how in ((True, 60), (True, 0), (False, 60))
    )
    longest = max(one.latency_us, other.latency_us)
    assert longest <= both.latency_us < longest + 0.3 * min(one.latency_us, other.latency_us)


@nki.jit
def copies(x, parts):
    """Each core copies its share of x within HBM, or all of it if it is alone."""
    out = output_like(x)
    count, rows = nl.num_programs(0), x.shape[0]
    mine = rows // count
    for row in range(nl.program_id(0) * mine, (nl.program_id(0) + 1) * mine, rows // parts):
        tile = nl.ndarray((128, x.shape[1]), x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x[row : row + 128])
        nisa.dma_copy(out[row : row + 128], tile)
    return out


def test_two_cores_share_what_their_stack_of_hbm_gives() -> None:
    # hand: 2 * 32 MiB over 716 bytes a nanosecond, against 16 engines of 27.3 less their overhead
    spec = nkilab.spec((4096, 2048), "float32")
    single, both = (nkilab.estimate(copies[n], spec, 32) for n in (1, 2))
    traffic = 2 * 4096 * 2048 * 4
    assert both.window_us * 1000 >= traffic / 716
    assert both.window_us * 1000 == pytest.approx(traffic / 716, rel=0.06)
    assert 1.5 < single.window_us / both.window_us < 1.75
    per_core = [core.to_dict() for core in both.cores]
    assert [c["hbm_read_bytes"] for c in per_core] == [traffic / 4] * 2
    assert [c["hbm_write_bytes"] for c in per_core] == [traffic / 4] * 2


def test_a_core_uses_what_its_neighbour_leaves() -> None:
    @nki.jit
    def kernel(x):
        out = output_like(x)
        rows = x.shape[0] if nl.program_id(0) == 0 else 128
        for row in range(0, rows, 128):
            tile = nl.ndarray((128, x.shape[1]), x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(tile, x[row : row + 128])
            nisa.dma_copy(out[row : row + 128], tile)
        return out

    spec = nkilab.spec((4096, 2048), "float32")
    single, both = (nkilab.estimate(kernel[n], spec) for n in (1, 2))
    # hand: the other core moves a thirty-second of it; then the first has what it has alone
    assert single.latency_us <= both.latency_us < single.latency_us * 1.06


def test_classes_are_refined_until_partners_are_equal() -> None:
    # 0 meets 1, 2 meets 3; 3 is another program, so that 2 differs from 0 although their keys are equal
    who = [[[0, 1]], [[0, 1]], [[2, 3]], [[2, 3]]]
    assert classes_of(["a", "a", "a", "b"], who, range(4)) == [0, 0, 1, 2]
    # a chain: 4 differs through 3, 5 through 4
    who = [[[0, 1]], [[0, 1], [1, 2]], [[1, 2]], [[3, 4]], [[3, 4], [4, 5]], [[4, 5]]]
    assert classes_of(["a", "b", "a", "a", "b", "c"], who, range(6)) == [0, 1, 0, 2, 3, 4]
    # a neighbour at the same HBM
    assert classes_of(["a", "a", "a", "b"], [[]] * 4, [1, 0, 3, 2]) == [0, 0, 1, 2]


def test_every_simulation_is_the_same() -> None:
    spec, group = nkilab.spec((64, 512), "float32"), ncc.ReplicaGroup([[0, 2], [3, 1]])
    first, second = (ranks_of(late, 4, spec, group, lambda rank: 3 * rank + 1).to_dict() for _ in range(2))
    assert first == second


def test_the_interval_widens_where_ranks_meet() -> None:
    spec, group = nkilab.spec((128, 512), "float32"), ncc.ReplicaGroup([[0, 1]])
    estimate = ranks_of(reduces, 2, spec, group)
    _, high = estimate.interval_us
    assert high / estimate.latency_us > 1.1 * exp(estimate.band.half_width)
