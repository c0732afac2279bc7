"""Collectives over several nodes: which bytes cross which links, by hand and by moving chunks about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nkilab
from nkilab import Topology
from nkilab.isa.collectives import AllReduce
from tests.cores.test_collectives import gathers, passes_on, reduces, scatters, swaps
from tests.dialects.spellings import nl2 as nl
from tests.examples import examples

with nkilab.activate():
    import nki.collectives as ncc

# two ranks on each of two chips of two nodes
SMALL = Topology(ranks_per_chip=2, ranks_per_node=4)
EIGHT = ncc.ReplicaGroup([list(range(8))])
SPEC = nkilab.spec((64, 128), "float32")
BYTES = 64 * 128 * 4
Rank = tuple[int, int, int]


def bytes_by_link(estimate: Any, link: str) -> int:
    """What all ranks of a launch receive over one kind of link."""
    return sum(len(cores.titles) * cores.estimate.link_bytes[link] for cores in estimate.cores)


def test_across_two_nodes_of_four_ranks_only_shards_of_an_all_reduce_cross_the_network() -> None:
    estimate = nkilab.estimate(reduces, SPEC, EIGHT, nl.add, ranks=8, topology=SMALL)
    # hand: half of the tensor goes to the other rank of a chip, a quarter of it to the other chip, an eighth
    # of it to the other node; and the same way back
    assert estimate.link_bytes == {"chip": BYTES, "neuronlink": BYTES // 2, "network": BYTES // 4}
    # textbook: 2 (X - 1) / X of the tensor between X nodes, once for each node and not once for each rank
    assert bytes_by_link(estimate, "network") == 2 * (2 * (2 - 1) * BYTES // 2)


@pytest.mark.parametrize(
    ("kernel", "args", "expected"),
    [
        # hand, of chunks of which each rank brings one: the peer's from the other node; both of each of them
        # from the other chip; four from the other rank of the chip
        (gathers, (8,), {"chip": 4, "neuronlink": 2, "network": 1}),
        # hand, of chunks of which each rank gets one: the same backwards
        (scatters, (8, nl.add), {"chip": 1 / 2, "neuronlink": 1 / 4, "network": 1 / 8}),
        # hand, of eighths: four that are meant for the other node leave it, once; before that, two go to each
        # rank of the node, for it and for the one with its place in the other node
        (swaps, (), {"chip": 2 / 8, "neuronlink": 4 / 8, "network": 4 / 8}),
    ],
)
def test_each_stage_moves_what_its_links_join(
    kernel: Any, args: tuple[Any, ...], expected: dict[str, float]
) -> None:
    estimate = nkilab.estimate(kernel, SPEC, EIGHT, *args, ranks=8, topology=SMALL)
    assert estimate.link_bytes == {link: int(part * BYTES) for link, part in expected.items()}


def test_in_a_ring_only_the_ranks_behind_a_border_receive_over_it() -> None:
    estimate = nkilab.estimate(passes_on, SPEC, EIGHT, ranks=8, topology=SMALL)
    # hand: ranks 0 and 4 receive from the other node, 2 and 6 from the other chip, the others in their chip
    own = {
        title: [link for link, moved in cores.estimate.link_bytes.items() if moved]
        for cores in estimate.cores
        for title in cores.titles
    }
    links = ["network", "chip", "neuronlink", "chip"] * 2
    assert own == {f"rank {rank}": [link] for rank, link in enumerate(links)}
    assert [bytes_by_link(estimate, link) for link in ("chip", "neuronlink", "network")] == [
        4 * BYTES,
        2 * BYTES,
        2 * BYTES,
    ]


def test_a_ring_on_data_over_nodes_passes_on_what_it_passes_on_a_chip() -> None:
    xs = [np.full((2, 2), rank, np.float32) for rank in range(8)]
    for topology in (None, SMALL):
        results = nkilab.launch(passes_on, 8, topology=topology)(nkilab.per_rank(xs), EIGHT)
        assert [float(result[0, 0]) for result in results] == [7, 0, 1, 2, 3, 4, 5, 6]


def test_ranks_of_all_groups_share_the_links_of_their_chip() -> None:
    spec = nkilab.spec((1024, 1024), "float32")
    one = nkilab.estimate(reduces, spec, ncc.ReplicaGroup([[0, 1]]), nl.add, ranks=2, topology=Topology(1, 1))
    both_groups = nkilab.estimate(
        reduces, spec, ncc.ReplicaGroup([[0, 2], [1, 3]]), nl.add, ranks=4, topology=Topology(2, 2)
    )
    # hand: 4 MiB over all 25 bytes a nanosecond of a chip's network, or over half of them
    assert both_groups.latency_us - one.latency_us == pytest.approx(4 * 2**20 / 25 / 1000, rel=0.01)
    idle = ncc.ReplicaGroup([[0, 2], [1], [3]])
    no_other = nkilab.estimate(reduces, spec, idle, nl.add, ranks=4, topology=Topology(2, 2))
    assert no_other.latency_us == pytest.approx(one.latency_us, rel=0.01)


def test_a_gibibyte_over_two_nodes_of_trn1_goes_round_one_ring_of_all_ranks() -> None:
    spec, group = nkilab.spec((1 << 14, 1 << 14), "float32"), ncc.ReplicaGroup([list(range(64))])
    estimate = nkilab.estimate(reduces, spec, group, nl.add, ranks=64, target="trn1")
    # hand: of 64 links two cross the network; round it go 63 of 64 parts, twice. Published are 41.8 ms, to
    # which two copies of the kernel come
    assert estimate.link_bytes["network"] == 2 * (2**30 * 63 // 64 * 2 // 64)
    assert 41806 < estimate.latency_us < 1.25 * 41806


@pytest.mark.parametrize(
    ("target", "mib", "is_ring"), [("trn1", 56, True), ("trn1", 55, False), ("trn2", 64, False)]
)
def test_a_ring_over_nodes_is_for_large_messages_on_trn1_alone(target: str, mib: int, is_ring: bool) -> None:
    spec, group = nkilab.spec((mib, 1 << 18), "float32"), ncc.ReplicaGroup([list(range(8))])
    estimate = nkilab.estimate(reduces, spec, group, nl.add, ranks=8, topology=SMALL, target=target)
    # hand: two of eight links of the ring join nodes, as against an eighth of the tensor each way
    moved = mib << 20
    expected = 2 * (moved * 7 // 8 * 2 // 8) if is_ring else 2 * moved // 8
    assert estimate.link_bytes["network"] == expected


def test_a_group_with_uneven_shares_of_nodes_crosses_the_network_with_all_its_bytes() -> None:
    spec, groups = nkilab.spec((3, 128), "float32"), ncc.ReplicaGroup([[0, 1, 4], [2, 3, 5]])
    estimate = nkilab.estimate(reduces, spec, groups, nl.add, ranks=6, topology=SMALL)
    # hand: a reduce-scatter and an all-gather receive two of three rows each
    assert estimate.link_bytes == {"chip": 0, "neuronlink": 0, "network": 2 * 2 * 128 * 4}


@pytest.mark.parametrize(
    ("topology", "mib", "expected"),
    [
        # hand, of 64 ranks on 16 chips, hops and peers: a mesh over chips and one within; four doublings;
        # every other rank
        (Topology(4, 64), 0.5, {"chip": (1, 3), "neuronlink": (1, 15)}),
        (Topology(4, 64), 8, {"chip": (1, 3), "neuronlink": (4, 1)}),
        (Topology(4, 64), 64, {"chip": (0, 1), "neuronlink": (32, 1)}),
        # a rank on each of 64 chips: a ring of all
        (Topology(1, 64), 64, {"neuronlink": (63, 1)}),
        # eight nodes of two chips: between nodes a mesh of an eighth of less than 8 MiB, else three doublings
        (Topology(4, 8), 4, {"chip": (1, 3), "neuronlink": (1, 1), "network": (1, 7)}),
        (Topology(4, 8), 16, {"chip": (1, 3), "neuronlink": (1, 1), "network": (3, 1)}),
    ],
)
def test_each_stage_has_the_hops_and_peers_of_its_algorithm(
    topology: Topology, mib: float, expected: dict[str, tuple[int, int]]
) -> None:
    spec, group = nkilab.spec((int(mib * 2**20) // 64 // 4,), "float32"), ncc.ReplicaGroup([list(range(64))])
    estimate = nkilab.estimate(gathers, spec, group, 64, ranks=64, topology=topology)
    assert latencies(estimate) == {
        link: hops * (HOP_NS[link] + (peers - 1) * 50) for link, (hops, peers) in expected.items()
    }


def test_switches_of_trn3_make_every_chip_a_neighbour() -> None:
    # trn3 architecture page: no torus; so neither doubling nor a ring, whatever the size
    group = ncc.ReplicaGroup([list(range(64))])
    for mib in (8, 64):
        spec = nkilab.spec((mib * 2**20 // 64 // 4,), "float32")
        estimate = nkilab.estimate(
            gathers, spec, group, 64, ranks=64, topology=Topology(4, 64), target="trn3"
        )
        assert latencies(estimate) == {"chip": 1500 + 2 * 50, "neuronlink": 1500 + 14 * 50}


HOP_NS = {"chip": 1500, "neuronlink": 1500, "network": 15000}


def latencies(estimate: Any) -> dict[str, float]:
    (form,) = [form for form in estimate.program.forms if form.name == "all_gather"]
    return {stage.link: stage.latency_ns for stage in form.steps[0].stages}


# what a hierarchical algorithm does, chunk by chunk: ranks are (node, chip, place on the chip)


def stages(shape: tuple[int, int, int]) -> Iterator[tuple[int, list[list[Rank]]]]:
    """Per stage, network first, an axis, and the groups of ranks that differ in it alone."""
    ranks = list(product(*map(range, shape)))
    for axis in range(3):
        rest = lambda rank, axis=axis: rank[:axis] + rank[axis + 1 :]  # noqa: E731
        yield axis, [list(group) for _, group in groupby(sorted(ranks, key=rest), rest)]


def gathered(shape: tuple[int, int, int]) -> Counter[int]:
    """Chunks that one rank receives along each axis in an all-gather."""
    holds: dict[Rank, set[Rank]] = {rank: {rank} for rank in product(*map(range, shape))}
    received: Counter[int] = Counter()
    for axis, groups in stages(shape):
        before = {rank: set(chunks) for rank, chunks in holds.items()}
        for group in groups:
            for rank, other in product(group, group):
                received[axis] += len(before[other] - holds[rank])
                holds[rank] |= before[other]
    assert all(len(chunks) == len(holds) for chunks in holds.values())
    return Counter({axis: count // len(holds) for axis, count in received.items()})


@settings(max_examples=examples(25), deadline=None)
@given(st.tuples(*[st.integers(1, 3)] * 3).filter(lambda shape: np.prod(shape) > 1))
def test_bytes_of_each_link_are_those_of_chunks_that_are_moved_about(shape: tuple[int, int, int]) -> None:
    nodes, chips, on_chip = shape
    ranks = nodes * chips * on_chip
    topology = Topology(on_chip, on_chip * chips)
    group = ncc.ReplicaGroup([list(range(ranks))])
    spec = nkilab.spec((ranks, 32), "float32")
    moved = gathered(shape)
    chunk = 32 * 4
    expected = {link: moved[axis] * chunk for axis, link in enumerate(("network", "neuronlink", "chip"))}
    part = nkilab.spec((1, 32), "float32")
    where: dict[str, Any] = {"ranks": ranks, "topology": topology}
    assert nkilab.estimate(gathers, part, group, ranks, **where).link_bytes == expected
    assert nkilab.estimate(scatters, spec, group, ranks, nl.add, **where).link_bytes == expected
    twice = {link: 2 * moved for link, moved in expected.items()}
    assert nkilab.estimate(reduces, spec, group, nl.add, **where).link_bytes == twice


def test_what_a_group_makes_together_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    combined = AllReduce.combined
    monkeypatch.setattr(
        AllReduce, "combined", lambda form, brought: calls.append(1) or combined(form, brought)
    )
    xs = [np.full((2, 2), rank, np.float32) for rank in range(8)]
    groups = ncc.ReplicaGroup([[0, 1, 2, 3], [4, 5, 6, 7]])
    results = nkilab.launch(reduces, 8)(nkilab.per_rank(xs), groups, nl.add)
    assert [float(result[0, 0]) for result in results] == [6] * 4 + [22] * 4
    assert len(calls) == 2
    # each rank has elements of its own: one that changes them changes no other's
    results[0][...] = -1
    assert float(results[1][0, 0]) == 6
