"""What a mapping fixes of a plan: parts of ranks, orders of loops, partitions, instructions, shared loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import gcd
from typing import TypeVar

from ..language.ast import Derived, declared
from ..tree.nodes import Statement

Held = TypeVar("Held")


@dataclass(frozen=True)
class Turn:
    """A loop of a plan."""

    variable: str  # that it runs over
    block: int  # values of a turn
    number: int = 0  # of the loop, each another one
    name: str = field(default="", compare=False)  # what it is called, if that is given


@dataclass(frozen=True)
class Ran:
    """Where a plan computes an Einsum."""

    einsum: str  # its name
    loops: tuple[Turn, ...]  # around it, the outermost first
    part: str  # variable on the partitions; "" for none
    over: str  # variable that TensorE sums along the partitions of its operands; "" for other engines
    covers: Mapping[str, int]  # values of each variable that one statement covers at most
    statements: tuple[Statement, ...] = ()  # that compute it alone; () where others may be computed along


@dataclass(frozen=True)
class Made:
    """A tile that a plan makes for a tensor."""

    tensor: str  # of the cascade
    memory: str  # sbuf or psum
    dims: tuple[str, ...]  # per axis: part, free or gone
    loops: tuple[Turn, ...]  # around it, the outermost first


@dataclass(frozen=True)
class Part:
    """A rank of a loop order: a variable, or a part of it."""

    variable: str  # the rank's
    low: int  # elements that one step passes over
    high: int  # elements that all steps pass over


@dataclass(frozen=True)
class Given:
    """What a mapping fixes; nothing by default."""

    # per Einsum and variable, sizes of its parts, the outermost first
    parts: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    # per Einsum, its ranks from the outside inwards
    orders: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    # per Einsum, the variable on the partitions of its result
    sides: Mapping[str, str] = field(default_factory=dict)
    instructions: Mapping[str, str] = field(default_factory=dict)  # per Einsum
    kept: frozenset[str] = frozenset()  # tensors that get a tile of their own
    # per Einsum, variables over which no loop stands around its tile
    bound: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # per Einsum, variables that a loop around all of its group runs over, and its block; 0 for any
    tiles: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    plain: frozenset[str] = frozenset()  # variables that are not taken apart
    alone: frozenset[str] = frozenset()  # Einsums that share no nest with others
    # whether the plan is compared with a mapping: then it has only what the builder notes whole, no rewritten
    # Einsums and no operands that lie stacked
    is_watched: bool = False
    # per Einsum, the loops that it stands in, those of one number shared
    nests: Mapping[str, tuple[Turn, ...]] = field(default_factory=dict)
    # per Einsum, how many of these stand around its tile at most
    depths: Mapping[str, int] = field(default_factory=dict)
    covered: frozenset[str] = frozenset()  # Einsums of which a statement takes all that given loops leave
    memories: Mapping[str, str] = field(default_factory=dict)  # per tensor with a place on chip
    # what rewrites of the cascade added: it keeps what is given of what it comes from
    derived: Mapping[str, Derived] = field(default_factory=dict)

    def _of(self, known: Mapping[str, Held], einsum: str) -> Held | None:
        """What is given for the Einsum of the specification that one of the plan belongs to."""
        return known.get(declared(einsum, known, self.derived))

    def fitting(self, einsums: Iterable[str], variable: str, natural: int) -> int:
        """The largest tile of at most some values that lies within the parts that are given."""
        for size in (s for name in einsums for s in self.sizes(name, variable)):
            natural = max(n for n in range(1, natural + 1) if size % n == 0)
        return natural

    def sizes(self, einsum: str, variable: str) -> tuple[int, ...]:
        """Sizes of the parts that are given of a variable, the outermost first."""
        return (self._of(self.parts, einsum) or {}).get(variable, ())

    def around(self, einsums: Iterable[str]) -> dict[str, int]:
        """Variables that loops around a group run over, and their blocks; 0 for any."""
        found: dict[str, int] = {}
        for name in einsums:
            for variable, block in (self._of(self.tiles, name) or {}).items():
                found[variable] = min(block, found.get(variable, block)) or block
        return found

    def may_turn(self, variable: str, einsum: str, output: Iterable[str]) -> bool:
        """Whether a loop over a variable may stand around the tile of a result."""
        free = self._of(self.bound, einsum)
        return free is None or variable not in output or variable in free

    def is_cut(self, einsums: Iterable[str], variable: str) -> bool:
        """Whether parts of a variable are given."""
        return any(self.sizes(name, variable) for name in einsums)

    def side(self, einsum: str) -> str:
        """The variable that is given for the partitions; "" for any."""
        return self._of(self.sides, einsum) or ""

    def instruction(self, einsum: str) -> str:
        """The instruction that is given, which computes the Einsum alone; "" for any."""
        return self._of(self.instructions, einsum) or ""

    def permits(self, einsum: str, loops: Sequence[Turn], extents: Mapping[str, int]) -> bool:
        """Whether loops stand in the order that is given."""
        order = self._of(self.orders, einsum)
        return order is None or is_in_order(order, loops, extents)

    def is_within(self, einsum: str, variable: str, blocks: Sequence[int], covers: int) -> bool:
        """Whether statements stay within the parts that are given of a variable."""
        return lies_within(blocks, covers, self.sizes(einsum, variable))

    def sorted(self, einsums: Iterable[str], variables: Iterable[str]) -> list[str]:
        """Variables in the order of the first loop order that is given; as they are without one."""
        order = next(filter(None, (self._of(self.orders, name) for name in einsums)), ())
        place = {p.variable: n for n, p in reversed(list(enumerate(order)))}
        return sorted(variables, key=lambda v: place.get(v, len(order)))


NOTHING = Given()


def is_in_order(order: Sequence[Part], loops: Sequence[Turn], extents: Mapping[str, int]) -> bool:
    """Whether loops, the outermost first, stand in the order of some ranks."""
    spans = dict(extents)
    places: list[set[int]] = []
    for turn in loops:
        span = spans.get(turn.variable, 0)
        held = {
            n for n, p in enumerate(order)
            if p.variable == turn.variable and turn.block < p.high and span > p.low
        }  # fmt: skip
        spans[turn.variable] = turn.block
        if any(min(held) < most for most in (max(h) for h in places if h) if held):
            return False
        places.append(held)
    return True


def lies_within(blocks: Sequence[int], covers: int, sizes: Sequence[int]) -> bool:
    """Whether what statements cover never crosses from one part of a rank into the next.

    Args:
        blocks: of the loops over it, the outermost first.
        covers: values of one statement.
        sizes: of the parts, the outermost first.
    """
    if sizes and [*blocks[: len(sizes)]] == [*sizes] and covers <= sizes[-1]:
        return True  # each loop goes through the parts of one turn of the one around it
    if any(a % b for a, b in pairwise(sizes)):
        return False
    return all(_is_aligned(blocks, covers, size) for size in sizes)


def _is_aligned(blocks: Sequence[int], covers: int, size: int) -> bool:
    step = size
    for block in blocks:
        if block == size and step == size:
            return True
        step = gcd(step, block)
    return covers <= step
