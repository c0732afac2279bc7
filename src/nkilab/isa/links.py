"""What a collective takes: hops one after another, and bytes that each rank's links carry.

Which algorithm runs is documented by the size of the buffer; what a group on one chip, or on several nodes,
does is assumed, so that every step here widens the interval.

Source: Intra-node Collective Communications, "Algorithm Summary"; Inter-node Collective Communications.
"""

from __future__ import annotations

from math import ceil, log2
from typing import Any

from .declare import Step

MESH_BYTES, RDH_BYTES = 1 << 20, 56 << 20
# no measurement of a collective is public
WIDENING = 3.0


def gathering_hops(ranks: int, reach: str, buffer_bytes: int) -> int:
    """Hops one after another of an all-gather, a reduce-scatter or an all-to-all.

    Args:
        ranks: of the group.
        reach: see `machine.REACHES`.
        buffer_bytes: what each rank has of the larger of input and output.
    """
    if ranks == 1:
        return 0
    if reach == "chip":
        return 1
    # mesh: to all other chips, then within the chip
    if reach == "nodes" or buffer_bytes < MESH_BYTES:
        return 2
    # recursive doubling over the chips, then within the chip
    if buffer_bytes <= RDH_BYTES:
        return ceil(log2(ranks)) + 1
    # every other rank of a ring sends
    return max(1, ranks // 2)


def collective_step(form: Any, label: str, hops: int, moved_bytes: int) -> Step:
    """One step of a collective as a rank sees it, once all ranks have come.

    Args:
        form: of the collective, with its attributes `ranks` and `reach`.
        label: opcode.
        hops: one after another.
        moved_bytes: what the rank's links carry each way.
    """
    machine, reach = form.machine, form.reach
    hop = machine["network_hop_ns" if reach == "nodes" else "collective_hop_ns"]
    # a chip's links serve its cores evenly; within a chip no link is in the way
    name = {"chip": "", "node": "neuronlink_bytes_per_ns", "nodes": "network_bytes_per_ns"}[reach]
    most = machine[name] / machine["cores_per_chip"] if name and form.ranks > 1 else 0.0
    run = min(max(moved_bytes, 1), machine.limit("dma_packet_bytes"))
    return Step(
        "dma", label, latency_ns=hops * hop, descriptors=ceil(max(moved_bytes, 1) / run),
        descriptor_bytes=run, link_bytes_per_ns=most, widening=WIDENING,
    )  # fmt: skip
