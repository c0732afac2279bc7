"""What a collective takes: stages, each over one kind of link, with its hops and the bytes of a rank.

A collective over several nodes is hierarchical: ranks that have the same place in their nodes exchange over
the network, all of them at once, and what lies in the same node is exchanged there. An all-gather is one
between nodes, then one within each; a reduce-scatter the other way round; an all-reduce is a reduce-scatter
within nodes, an all-reduce of the parts between them, and an all-gather within. So each byte crosses the
network once for a node, not once for a rank. Within a node the same holds of chips.

Source: Inter-node Collective Communications, "Hierarchical Algorithm"; Intra-node Collective Communications,
"Algorithm Summary". Assumed: that an all-to-all goes in the same two stages; that a ring within a node moves
as much over each kind of link as other algorithms; mesh between nodes below the size documented within one;
that a rank has as many DMA engines for each of its peers, which two ranks of a chip tell.
"""

from __future__ import annotations

from math import ceil, log2
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from ..machine import LINKS, Machine, Span
from .declaration_parts import Stage
from .declare import Step

# nccom-test on chips that are named is predicted within a fifth on average, single values within two
WIDENING = 2.0
_RATES = {"neuronlink": "neuronlink_bytes_per_ns", "network": "network_bytes_per_ns"}


class Collective(Protocol):
    """What the cost of a collective follows from, besides its bytes."""

    machine: Machine
    ranks: int
    span: Span


class Passes(NamedTuple):
    """What a received byte costs a rank, of what HBM and DMA engines do."""

    hbm: float  # how often it, or what it is reduced with, is read from HBM or written there
    engines: float  # bytes that DMA engines read for it, or write, whichever are more


# a gather reads and writes a byte; a reduction reads what came and what is its own, and writes the sum
GATHER, REDUCE = Passes(2.0, 1.0), Passes(3.0, 2.0)
# KangaRing for every two ranks: one read with two writes instead of two of each; three reads with one write
# instead of twice two with one
KANGARING = {GATHER: Passes(1.5, 1.0), REDUCE: Passes(2.0, 1.5)}


def gathering(form: Collective, label: str, buffer_bytes: int, *passes: Passes) -> Step:
    """An all-gather or a reduce-scatter, which move the same bytes in opposite order, or one after the other.

    Args:
        form: of the collective.
        label: opcode.
        buffer_bytes: the larger of what a rank has and what it gets.
        passes: `GATHER` for an all-gather, `REDUCE` for a reduce-scatter, both for an all-reduce.
    """
    if _is_flat_ring(form, buffer_bytes):
        return _flat_ring(form, label, buffer_bytes, passes)
    on_chip, chips, nodes = _levels(form)
    chunks = ((on_chip - 1) * chips * nodes, (chips - 1) * nodes, nodes - 1)
    return _stepwise(form, label, buffer_bytes, chunks, passes)


def exchanging(form: Collective, label: str, buffer_bytes: int) -> Step:
    """An all-to-all of a buffer: within each node by place, then between those that have the same place."""
    on_chip, chips, nodes = _levels(form)
    chunks = ((on_chip - 1) * nodes, (chips - 1) * on_chip * nodes, (nodes - 1) * chips * on_chip)
    return _stepwise(form, label, buffer_bytes, chunks, (GATHER,))


def passing(form: Collective, label: str, moved_bytes: int, passes: Passes = GATHER) -> Step:
    """A rank receives from one other, whose link is the only one that its span names."""
    chips, nodes, _ = form.span
    link = "network" if nodes > 1 else "neuronlink" if chips > 1 else "chip"
    stages = [_stage(form, link, moved_bytes, (1, 1), (passes,))] if form.ranks > 1 else []
    return _step(form, label, stages)


def packets(machine: Machine, moved_bytes: int) -> tuple[int, int]:
    """How many descriptors carry so many bytes, and the most that one carries."""
    run = min(max(moved_bytes, 1), machine.limit("dma_packet_bytes"))
    return ceil(max(moved_bytes, 1) / run), run


def _levels(form: Collective) -> tuple[int, int, int]:
    """Ranks on each chip, chips of each node, nodes."""
    chips, nodes, _ = form.span
    return form.ranks // (chips * nodes), chips, nodes


def _stepwise(
    form: Collective, label: str, buffer_bytes: int, chunks: tuple[int, int, int], passes: tuple[Passes, ...]
) -> Step:
    """Stages of which each moves so many of the parts that the buffer has, one for every rank."""
    is_kangaring = _is_ring(form, buffer_bytes) and _levels(form)[0] > 1 and _ring_ranks(form) > 1
    own = tuple(KANGARING[one] for one in passes) if is_kangaring else passes
    stages = [
        _stage(form, link, count * buffer_bytes // form.ranks, way, own)
        for link, count, way in zip(LINKS, chunks, _algorithms(form, buffer_bytes), strict=True)
        if count
    ]
    return _step(form, label, stages)


def _algorithms(form: Collective, buffer_bytes: int) -> list[tuple[int, int]]:
    """Within a chip, between chips and between nodes: hops one after another, peers that send at once."""
    on_chip, chips, nodes = _levels(form)
    mesh, most = form.machine.limit("collective_mesh_bytes"), on_chip - 1
    # a node's part of the buffer is all that its ranks exchange with other nodes
    is_mesh = buffer_bytes // (on_chip * chips) < mesh
    between = (1, nodes - 1) if is_mesh else (ceil(log2(nodes)), 1)
    if _is_ring(form, buffer_bytes):
        hops = on_chip * chips // 2 if on_chip > 1 and _ring_ranks(form) > 1 else on_chip * chips - 1
        # all in one ring: no stage is left within the chip
        return [(hops if chips == 1 else 0, 1), (hops, 1), between]
    if chips == 1 or buffer_bytes < mesh or not form.machine["torus"]:
        return [(1, most), (1, chips - 1), between]
    return [(1, most), (ceil(log2(chips)), 1), between]


def _is_ring(form: Collective, buffer_bytes: int) -> bool:
    """Whether ranks of a node pass chunks on in a ring."""
    machine, (_, chips, _) = form.machine, _levels(form)
    # software without a mesh has nothing but rings
    if not machine["collective_mesh_bytes"]:
        return True
    return chips > 1 and bool(machine["torus"]) and buffer_bytes > machine["collective_rdh_bytes"]


def _ring_ranks(form: Collective) -> int:
    """How many ranks of a chip share a hop of a ring."""
    return form.machine.limit("collective_ring_ranks")


def _is_flat_ring(form: Collective, buffer_bytes: int) -> bool:
    """Whether all ranks of all nodes pass chunks on in one ring."""
    least = form.machine["collective_flat_ring_bytes"]
    return form.span.nodes > 1 and bool(least) and buffer_bytes >= least


def _flat_ring(form: Collective, label: str, buffer_bytes: int, passes: tuple[Passes, ...]) -> Step:
    """A ring of all ranks, in several channels, one for each chip's network interface at most.

    Every byte of the ring crosses the border of a node: no link is faster than all interfaces of one.
    """
    machine, ranks = form.machine, form.ranks
    on_chip, chips, nodes = _levels(form)
    links = dict(zip(LINKS, (ranks - chips * nodes, (chips - 1) * nodes, nodes), strict=True))
    # assumed: a channel carries an element of every rank at least
    channels = min(chips, max(1, buffer_bytes // (4 * ranks)))
    switching = (channels - 1) * machine["collective_channel_ns"]
    border = chips * machine["network_bytes_per_ns"] * on_chip / form.span.sharing
    stages = []
    for link, count in links.items():
        stage = _stage(form, link, buffer_bytes * (ranks - 1) * count // ranks**2, (count, 1), passes)
        switched = len(passes) * count * switching if link != "network" else 0.0
        stages.append(replace(stage, latency_ns=stage.latency_ns + switched, bytes_per_ns=border))
    return _step(form, label, stages)


def _stage(
    form: Collective, link: str, moved_bytes: int, way: tuple[int, int], passes: tuple[Passes, ...]
) -> Stage:
    """A stage of one or more passes over the same links, which a chip's ranks share evenly.

    Args:
        form: of the collective.
        link: of `machine.LINKS`.
        moved_bytes: what a rank receives in one pass.
        way: hops one after another, and how many peers send at once.
        passes: what the bytes of each cost.
    """
    machine, (hops, peers) = form.machine, way
    # assumed: what goes to each peer is a transfer of its own; the CC-core issues one after the other
    hop_ns = machine["network_hop_ns" if link == "network" else "collective_hop_ns"]
    hop_ns += (peers - 1) * machine["dma_static_issue_ns"]
    most = machine[_RATES[link]] / form.span.sharing if link in _RATES else 0.0
    return Stage(
        link, len(passes) * moved_bytes, len(passes) * hops * hop_ns, most,
        engines=min(machine.limit("dma_engines"), peers * machine.limit("collective_peer_engines")),
        engine_bytes=round(moved_bytes * sum(one.engines for one in passes)),
        hbm_bytes=round(moved_bytes * sum(one.hbm for one in passes)),
    )  # fmt: skip


def _step(form: Collective, label: str, stages: list[Stage]) -> Step:
    """One step of a collective as a rank sees it, once all ranks have come."""
    count, run = packets(form.machine, sum(stage.moved_bytes for stage in stages))
    return Step(
        "dma", label, latency_ns=sum(stage.latency_ns for stage in stages), descriptors=count,
        descriptor_bytes=run, stages=tuple(stages), widening=WIDENING,
    )  # fmt: skip
