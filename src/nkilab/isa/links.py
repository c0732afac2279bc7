"""What a collective takes: stages, each over one kind of link, with its hops and the bytes of a rank.

A collective over several nodes is hierarchical: ranks that have the same place in their nodes exchange over
the network, all of them at once, and what lies in the same node is exchanged there. An all-gather is one
between nodes, then one within each; a reduce-scatter the other way round; an all-reduce is a reduce-scatter
within nodes, an all-reduce of the parts between them, and an all-gather within. So each byte crosses the
network once for a node, not once for a rank. Within a node the same holds of chips.

Source: Inter-node Collective Communications, "Hierarchical Algorithm"; Intra-node Collective Communications,
"Algorithm Summary". Assumed: that an all-to-all goes in the same two stages; that a ring within a node moves
as much over each kind of link as other algorithms; mesh between nodes below the size documented within one.
"""

from __future__ import annotations

from math import ceil, log2
from typing import Protocol

from ..machine import LINKS, Machine, Span
from .declaration_parts import Stage
from .declare import Step

MESH_BYTES, RDH_BYTES = 1 << 20, 56 << 20
# the constants are not fitted on measurements of collectives
WIDENING = 3.0
_RATES = {"neuronlink": "neuronlink_bytes_per_ns", "network": "network_bytes_per_ns"}


class Collective(Protocol):
    """What the cost of a collective follows from, besides its bytes."""

    machine: Machine
    ranks: int
    span: Span


def gathering(form: Collective, label: str, buffer_bytes: int, times: int = 1) -> Step:
    """An all-gather or a reduce-scatter, which move the same bytes in opposite order.

    Args:
        form: of the collective.
        label: opcode.
        buffer_bytes: the larger of what a rank has and what it gets.
        times: 2 for an all-reduce, which is one after the other.
    """
    on_chip, chips, nodes = _levels(form)
    chunks = ((on_chip - 1) * chips * nodes, (chips - 1) * nodes, nodes - 1)
    return _stepwise(form, label, buffer_bytes, chunks, times)


def exchanging(form: Collective, label: str, buffer_bytes: int) -> Step:
    """An all-to-all of a buffer: within each node by place, then between those that have the same place."""
    on_chip, chips, nodes = _levels(form)
    chunks = ((on_chip - 1) * nodes, (chips - 1) * on_chip * nodes, (nodes - 1) * chips * on_chip)
    return _stepwise(form, label, buffer_bytes, chunks, 1)


def passing(form: Collective, label: str, moved_bytes: int) -> Step:
    """A rank receives from one other, whose link is the only one that its span names."""
    chips, nodes, _ = form.span
    link = "network" if nodes > 1 else "neuronlink" if chips > 1 else "chip"
    return _step(form, label, [_stage(form, link, moved_bytes, 1)] if form.ranks > 1 else [])


def packets(machine: Machine, moved_bytes: int) -> tuple[int, int]:
    """How many descriptors carry so many bytes, and the most that one carries."""
    run = min(max(moved_bytes, 1), machine.limit("dma_packet_bytes"))
    return ceil(max(moved_bytes, 1) / run), run


def _levels(form: Collective) -> tuple[int, int, int]:
    """Ranks on each chip, chips of each node, nodes."""
    chips, nodes, _ = form.span
    return form.ranks // (chips * nodes), chips, nodes


def _stepwise(
    form: Collective, label: str, buffer_bytes: int, chunks: tuple[int, int, int], times: int
) -> Step:
    """Stages of which each moves so many of the parts that the buffer has, one for every rank."""
    stages = [
        _stage(form, link, times * count * buffer_bytes // form.ranks, times * hops)
        for link, count, hops in zip(LINKS, chunks, _hops(form, buffer_bytes), strict=True)
        if count
    ]
    return _step(form, label, stages)


def _hops(form: Collective, buffer_bytes: int) -> tuple[int, int, int]:
    """Hops one after another within a chip, between chips and between nodes."""
    on_chip, chips, nodes = _levels(form)
    # a node's part of the buffer is all that its ranks exchange with other nodes
    between = 1 if buffer_bytes // (on_chip * chips) < MESH_BYTES else ceil(log2(nodes))
    if chips == 1 or buffer_bytes < MESH_BYTES:
        return 1, 1, between
    if buffer_bytes <= RDH_BYTES:
        return 1, ceil(log2(chips)), between
    # a ring: of two or more ranks on a chip every other one sends, and no stage is left within the chip
    return 0, on_chip * chips // 2 if on_chip > 1 else chips - 1, between


def _stage(form: Collective, link: str, moved_bytes: int, hops: int) -> Stage:
    machine, (_, _, sharing) = form.machine, form.span
    hop = machine["network_hop_ns" if link == "network" else "collective_hop_ns"]
    # a chip's links serve its ranks evenly; within a chip no link is in the way
    most = machine[_RATES[link]] / sharing if link in _RATES else 0.0
    return Stage(link, moved_bytes, hops * hop, most)


def _step(form: Collective, label: str, stages: list[Stage]) -> Step:
    """One step of a collective as a rank sees it, once all ranks have come."""
    count, run = packets(form.machine, sum(stage.moved_bytes for stage in stages))
    return Step(
        "dma", label, latency_ns=sum(stage.latency_ns for stage in stages), descriptors=count,
        descriptor_bytes=run, stages=tuple(stages), widening=WIDENING,
    )  # fmt: skip
