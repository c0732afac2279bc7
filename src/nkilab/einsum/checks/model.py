"""A mapped specification as the checks see it: parts of ranks, shared loops, tiles, nodes of keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from math import prod

from ...errors import nearest
from ...machine import Machine
from ...tiles.dtypes import as_dtype
from ..language.ast import Access, Einsum
from ..language.spec import Placement, Spec
from ..written.ranks import Group, Ranks, merged


@dataclass(frozen=True)
class Model:
    """A specification whose names all exist, with what follows from its keys."""

    spec: Spec  # the specification, extents as far as known
    machine: Machine  # the chip

    @cached_property
    def ranks(self) -> Ranks:
        """Extents and groups."""
        return Ranks(self.spec)

    @cached_property
    def einsums(self) -> dict[str, Einsum]:
        """By name; of several that write one tensor the one with the most variables."""
        return {name: self.spec.cascade.einsum(name) for name in self.spec.cascade.written}

    @cached_property
    def ordered(self) -> dict[str, tuple[Group, ...]]:
        """Loops of every Einsum that has a loop order, the outermost first."""
        return {name: self.ranks.loops(name) for name in self.einsums if name in self.spec.loop_order}

    def ranks_of(self, einsum: str) -> tuple[str, ...]:
        """All ranks of an Einsum, after splits."""
        return self.ranks.parts(einsum, self.einsums[einsum].variables)

    def needed(self, einsum: str, ranks: Sequence[str], given: Sequence[str]) -> list[str]:
        """Ranks that a list has to name: all but those of one element that it leaves out."""
        return [r for r in ranks if r in given or self.ranks.extent(einsum, r) != 1]

    def access(self, tensor: str, einsum: str) -> Access | None:
        """How an Einsum indexes a tensor."""
        held = self.einsums[einsum]
        return next((a for a in held.every_access if a.tensor == tensor), None)

    def order_of(self, einsum: str, ranks: Sequence[str]) -> list[tuple[str, int, int | None]]:
        """What ranks count, one after the other: units left out, neighbours that count on merged."""
        return [(d.base, d.stride, d.high) for d in merged(self.ranks.digits(einsum, ranks))]

    def is_looped(self, einsum: str, rank: str) -> bool:
        """Whether a loop runs over a rank."""
        group = self.ranks.group(einsum, rank)
        return group is not None and group.is_loop

    def tile(self, placed: Placement, ranks: Sequence[str] | None = None) -> list[str]:
        """Ranks of a layout that no loop runs over."""
        return [r for r in (placed.ranks if ranks is None else ranks) if not self.is_looped(placed.einsum, r)]

    def count(self, einsum: str, ranks: Sequence[str]) -> int | None:
        """Elements of ranks together; None where an extent is not known."""
        extents = self.ranks.extents(einsum, ranks)
        known = [e for e in extents if isinstance(e, int)]
        return prod(known) if len(known) == len(extents) else None

    def bytes_of(self, tensor: str) -> int:
        """Bytes of an element."""
        return int(as_dtype(self.spec.dtypes.get(tensor, "float32")).storage.itemsize)

    def consumers(self, tensor: str) -> Iterator[Placement]:
        """Where a tensor lies as its readers see it."""
        for (name, einsum), placed in self.spec.placements.items():
            if name == tensor and einsum != tensor:
                yield placed

    def common(self, first: str, second: str) -> int:
        """How many of their outermost loops two Einsums share."""
        pairs = zip(self.ordered.get(first, ()), self.ordered.get(second, ()))
        return len([*takewhile(lambda pair: pair[0] is pair[1], pairs)])

    @cached_property
    def emitted(self) -> list[str]:
        """Einsums in the order in which they run in the innermost turn, loops being shared as given."""
        return self._emitted([name for name in self.einsums if name in self.ordered], 0)

    def _emitted(self, names: list[str], depth: int) -> list[str]:
        turns = self.ranks.in_turns(self.ordered, names, depth)
        parts = (self._emitted(inside, depth + 1) if group else inside for group, inside in turns)
        return [name for part in parts for name in part]


def close_to(name: str, known: Sequence[str]) -> str:
    """A change that names what was probably meant; "" if nothing is close."""
    match = nearest(name, known, alike=0.5)
    return f"write {match[0]}, if that is meant" if match else ""


def difference(given: Sequence[str], wanted: Sequence[str]) -> str:
    """What is wrong with a list that should have the same words as another; "" if nothing."""
    twice = [w for n, w in enumerate(given) if w in given[:n]]
    missing = [w for w in wanted if w not in given]
    extra = [w for w in given if w not in wanted]
    told = []
    if missing:
        told.append(f"lacks {', '.join(missing)}")
    if extra:
        told.append(f"has {', '.join(dict.fromkeys(extra))} besides")
    if twice:
        told.append(f"has {', '.join(dict.fromkeys(twice))} twice")
    return " and ".join(told)
