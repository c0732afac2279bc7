"""Where the ranks of a launch lie: how many share a chip and a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import UsageError
from ..tracebacks import public_class
from .model import Machine

# how far the ranks of a group are apart
REACHES = ("chip", "node", "nodes")


@public_class
@dataclass(frozen=True)
class Topology:
    """Ranks are numbered along the cores of a chip, then along the chips of a node.

    Args:
        ranks_per_chip: ranks that one chip holds.
        ranks_per_node: ranks that chips joined by NeuronLink hold.

    Raises:
        UsageError: if a chip holds none, or a node no whole number of chips.
    """

    ranks_per_chip: int
    ranks_per_node: int

    def __post_init__(self) -> None:
        chip, node = self.ranks_per_chip, self.ranks_per_node
        for name, held in (("ranks_per_chip", chip), ("ranks_per_node", node)):
            if not isinstance(held, int) or isinstance(held, bool):
                raise UsageError(f"{name} is {held!r}; it is a whole number")
        if chip < 1 or node < chip or node % chip:
            raise UsageError(
                f"a chip holds {chip} ranks and a node {node}; a node holds a whole number of chips of at "
                "least one rank each"
            )

    def reach(self, ranks: Sequence[int]) -> str:
        """How far ranks are apart: on one "chip", in one "node", on several "nodes"."""
        if len({rank // self.ranks_per_node for rank in ranks}) > 1:
            return "nodes"
        return "node" if len({rank // self.ranks_per_chip for rank in ranks}) > 1 else "chip"


def topology_of(machine: Machine, cores: int) -> Topology:
    """The chips and nodes of a machine whose ranks have so many cores each.

    Source: What is Neuron Collective Communication, "System Connectivity".
    """
    chip = max(1, machine.limit("cores_per_chip") // cores)
    return Topology(chip, chip * machine.limit("chips_per_node"))
