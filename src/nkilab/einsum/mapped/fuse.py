"""Which Einsums share loops, where the specification does not say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .layouts import Digit

Member = tuple[str, str]


@dataclass
class Nest:
    """The loops of one Einsum.

    Args:
        name: of the Einsum.
        reads: tensors it reads that other Einsums write.
        loops: (rank, digit), the outermost first.
        reduced: ranks that it sums over.
    """

    name: str
    reads: tuple[str, ...]
    loops: list[tuple[str, Digit]]
    reduced: set[str] = field(default_factory=set)


def fused(nests: Sequence[Nest], may_share: Callable[[Member, Member], bool]) -> list[list[Member]]:
    """Groups of ranks that share a loop: as many as nothing forbids, from the outside inwards.

    Args:
        nests: in the order of the cascade.
        may_share: whether two ranks may be in one group, beyond having the same values.
    """
    groups: list[list[Member]] = []
    _level(list(nests), 0, may_share, groups)
    return [g for g in groups if len(g) > 1]


def _level(
    nests: list[Nest], depth: int, may_share: Callable[[Member, Member], bool], groups: list[list[Member]]
) -> None:
    done: set[str] = set()
    for nest in nests:
        if nest.name in done:
            continue
        done.add(nest.name)
        if len(nest.loops) > depth:
            together = _sharing(nest, depth, nests, done, may_share)
            groups.append([(n.name, n.loops[depth][0]) for n in together])
            _level(together, depth + 1, may_share, groups)


def _sharing(
    nest: Nest, depth: int, nests: list[Nest], done: set[str], may_share: Callable[[Member, Member], bool]
) -> list[Nest]:
    """A nest and those behind it that share its loop; their names are added to those that are done."""
    together = [nest]
    for other in (n for n in nests if len(n.loops) > depth):
        if other.name not in done and _fits(together, other, depth, nests, done, may_share):
            together.append(other)
            done.add(other.name)
    return together


def _fits(
    together: list[Nest],
    other: Nest,
    depth: int,
    nests: list[Nest],
    done: set[str],
    may_share: Callable[[Member, Member], bool],
) -> bool:
    """Whether a nest can join others in a loop: the same values, nothing read before it is whole."""
    first = together[0]
    rank, digit = other.loops[depth]
    if digit != first.loops[depth][1] or not may_share(
        (first.name, first.loops[depth][0]), (other.name, rank)
    ):
        return False
    members = {n.name: n for n in together}
    known = {n.name for n in nests}
    makers = [members[tensor] for tensor in other.reads if tensor in members]
    # what a loop sums up is whole after it
    if any(maker.loops[depth][0] in maker.reduced for maker in makers):
        return False
    if any(t in known and t not in done and t not in members for t in other.reads):
        return False
    return not any(_is_behind(t, members, nests) for t in other.reads)


def _is_behind(tensor: str, members: Mapping[str, Nest], nests: list[Nest]) -> bool:
    """Whether a tensor comes from an Einsum outside the loop that itself reads what the loop makes."""
    by_name = {n.name: n for n in nests}
    seen, todo = set(), [tensor]
    while todo:
        name = todo.pop()
        if name in seen or name not in by_name:
            continue
        seen.add(name)
        outside = name not in members
        if outside and any(r in members for r in by_name[name].reads):
            return True
        if outside:
            todo += by_name[name].reads
    return False
