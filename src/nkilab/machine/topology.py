"""Where the ranks of a launch lie: how many share a chip and a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from ..errors import UsageError
from ..tracebacks import public
from .model import Machine

# what carries bytes from rank to rank: inside a chip, between chips of a node, between nodes
LINKS = ("chip", "neuronlink", "network")


class Span(NamedTuple):
    """How far the ranks of a group spread; on each of these chips lie as many of them."""

    chips: int = 1  # of each node, with ranks of the group
    nodes: int = 1  # with ranks of the group
    sharing: int = 1  # ranks that share the links of one chip, those of other groups included


class Topology(Struct, frozen=True):
    """Ranks are numbered along the cores of a chip, then along the chips of a node.

    Args:
        ranks_per_chip: ranks that one chip holds.
        ranks_per_node: ranks that chips joined by NeuronLink hold.

    Raises:
        UsageError: if a chip holds none, or a node no whole number of chips.
    """

    ranks_per_chip: int
    ranks_per_node: int

    @public
    def __post_init__(self) -> None:
        chip, node = self.ranks_per_chip, self.ranks_per_node
        for name, number in (("ranks_per_chip", chip), ("ranks_per_node", node)):
            if not isinstance(number, int) or isinstance(number, bool):
                raise UsageError(f"{name} is {number!r}; it must be a whole number")
        if chip < 1 or node < chip or node % chip:
            raise UsageError(
                f"a chip holds {chip} ranks and a node {node}; a node holds a whole number of chips of at "
                "least one rank each"
            )

    @lru_cache(maxsize=32)  # noqa: B019
    def span(self, group: tuple[int, ...], at_work: tuple[int, ...]) -> Span:
        """How far a group spreads.

        A group that has more ranks on one chip than on another counts as if each of them had a chip of its
        own, and so with nodes: public text says that groups are symmetric.

        Args:
            group: its ranks.
            at_work: the ranks that do the same at once, in this group or another.

        Source: Inter-node Collective Communications, "Communication Groups".
        """
        chips = Counter(rank // self.ranks_per_chip for rank in group)
        nodes = Counter(rank // self.ranks_per_node for rank in group)
        sharing = max(Counter(rank // self.ranks_per_chip for rank in at_work).values(), default=1)
        if len({*nodes.values()}) > 1:
            return Span(1, len(group), sharing)
        count = len(chips) if len({*chips.values()}) == 1 else len(group)
        return Span(count // len(nodes), len(nodes), sharing)

    def span_of_pair(self, sender: int, receiver: int, pairs: Sequence[tuple[int, int]]) -> Span:
        """How far apart two ranks are of which one sends to the other, beside other pairs that do the same.

        The pairs whose bytes leave the sender's chip, or come to the receiver's, over links of the same kind
        share them.
        """
        link, chip = self.link(sender, receiver), self.ranks_per_chip
        alike = [(a // chip, b // chip) for a, b in pairs if self.link(a, b) == link]
        leaving = sum(a == sender // chip for a, _ in alike)
        coming = sum(b == receiver // chip for _, b in alike)
        return Span(1 + (link == "neuronlink"), 1 + (link == "network"), max(leaving, coming))

    def link(self, sender: int, receiver: int) -> str:
        """What carries bytes between two ranks, of `LINKS`."""
        if sender // self.ranks_per_node != receiver // self.ranks_per_node:
            return "network"
        return "chip" if sender // self.ranks_per_chip == receiver // self.ranks_per_chip else "neuronlink"


def topology_of(machine: Machine, cores: int) -> Topology:
    """The chips and nodes of a machine whose ranks have so many cores each.

    Source: What is Neuron Collective Communication, "System Connectivity".
    """
    chip = max(1, machine.limit("cores_per_chip") // cores)
    return Topology(chip, chip * machine.limit("chips_per_node"))
