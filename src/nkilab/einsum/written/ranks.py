"""Ranks of a mapped specification: splits, extents, and loops that groups of ranks share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from ...errors import SpecError
from ..language.spec import Placement, Spec
from ..tree.expr import Expr, Whole, expr, name_of

Extent = int | str


@dataclass(frozen=True)
class Digit:
    """A part of a rank: index = sum over digits of digit * stride."""

    base: str  # the rank
    stride: int  # what one step of the digit is worth
    extent: Whole  # how many values it has
    # elements that all its values pass over; None for stride * extent
    high: int | None = field(default=None, compare=False)

    @property
    def is_unit(self) -> bool:
        """Whether it has one value, so that its place does not matter."""
        return expr(self.extent).value == 1

    @property
    def span(self) -> int | None:
        """Elements that all its values pass over; None where that is not known."""
        whole = expr(self.extent).value
        return self.high if self.high is not None or whole is None else self.stride * whole

    def spans(self, stride: int) -> bool:
        """Whether steps of a stride stay inside of it, as far as that is known."""
        return self.span is None or stride < self.span


@dataclass(frozen=True)
class Group:
    """Ranks of several Einsums that advance together."""

    members: tuple[tuple[str, str], ...]  # (einsum, rank), the first of which names the loop
    is_loop: bool  # whether an Einsum's instruction leaves its rank to a loop

    @property
    def variable(self) -> str:
        """Name of the loop variable."""
        return "_".join(self.members[0]).lower()

    def rank_of(self, einsum: str) -> str:
        """The rank of an Einsum that is a member."""
        return next(rank for name, rank in self.members if name == einsum)


@dataclass(frozen=True)
class Ranks:
    """What a specification says about ranks."""

    spec: Spec  # the specification
    # whether what is left over of a split is left out, as the published generator does
    drops_edges: bool = False

    @cached_property
    def declared(self) -> tuple[str, ...]:
        """Ranks in order of their first appearance in the declaration."""
        tensors = self.spec.cascade.tensors.values()
        return tuple(dict.fromkeys(rank for tensor in tensors for rank in tensor.ranks))

    def split(self, einsum: str, rank: str) -> tuple[str, int] | None:
        """The rank that was split and the number of the part, 0 for the innermost; None if not split."""
        if rank in self.declared:
            return None
        for base in self.spec.partitioning.get(einsum, {}):
            if rank.startswith(base) and rank[len(base) :].isdigit():
                return base, int(rank[len(base) :])
        return None

    def extent(self, einsum: str, rank: str) -> Extent:
        """R2: a name or number, or for a part of a split rank outer // inner, simplified."""
        found = self.split(einsum, rank)
        base = found[0] if found else rank
        whole: Extent = self.spec.cascade.sizes.get(base, base)
        if found is None:
            return whole
        shapes = self.spec.partitioning[einsum][base]
        at = len(shapes) - found[1]
        outer = whole if at == 0 else shapes[at - 1]
        inner = shapes[at] if at < len(shapes) else 1
        if isinstance(outer, int):
            return outer // inner if self.drops_edges else -(-outer // inner)
        return outer if inner == 1 else f"{outer} // {inner}"

    def size(self, einsum: str, rank: str) -> Expr:
        """The extent of a rank as an expression over the kernel's parameters."""
        extent = self.extent(einsum, rank)
        if isinstance(extent, int):
            return expr(extent)
        outer, _, inner = extent.partition(" // ")
        return name_of(outer) // int(inner) if inner else name_of(outer)

    def digit(self, einsum: str, rank: str) -> Digit:
        """A rank of an Einsum as a part of the rank it was split from."""
        found = self.split(einsum, rank)
        base, number = found or (rank, 0)
        whole = self.spec.cascade.sizes.get(base)
        shapes = self.spec.partitioning.get(einsum, {}).get(base, ())
        if found is None:
            return Digit(base, 1, self.size(einsum, rank), whole)
        at = len(shapes) - number
        low, high = shapes[at] if at < len(shapes) else 1, shapes[at - 1] if at else whole
        return Digit(base, low, self.size(einsum, rank), high)

    def has_edge(self, einsum: str, base: str) -> bool:
        """Whether the last part of a split rank, or of a part of it, is shorter than the others."""
        shapes = self.spec.partitioning.get(einsum, {}).get(base, ())
        size = self.spec.cascade.sizes.get(base)
        return size is not None and any(a % b for a, b in pairwise((size, *shapes)))

    def edge_of(self, einsum: str, rank: str) -> str:
        """The rank with a shorter last part that a part belongs to; "" if it belongs to none."""
        found = self.split(einsum, rank)
        return found[0] if found is not None and self.has_edge(einsum, found[0]) else ""

    def extents(self, einsum: str, ranks: Iterable[str]) -> tuple[Extent, ...]:
        """Extents of several ranks."""
        return tuple(self.extent(einsum, rank) for rank in ranks)

    def digits(self, einsum: str, ranks: Iterable[str]) -> list[Digit]:
        """Ranks of an Einsum as digits, those of one value left out."""
        found = (self.digit(einsum, rank) for rank in ranks)
        return [d for d in found if not d.is_unit]

    def hbm_axes(self, placed: Placement) -> list[Digit]:
        """What lies along the axes of a tensor in HBM; parts of which the last is shorter are one axis."""
        found: list[Digit] = []
        for rank in placed.ranks:
            base = self.edge_of(placed.einsum, rank)
            whole = [Digit(base, 1, self.size("", base))] if base else []
            found += [d for d in whole or self.digits(placed.einsum, (rank,)) if d not in found]
        return found

    def names_after(self, einsum: str, rank: str) -> tuple[str, ...]:
        """The ranks that stand for a declared rank in an Einsum: its parts, or itself."""
        shapes = self.spec.partitioning.get(einsum, {}).get(rank)
        return tuple(f"{rank}{n}" for n in range(len(shapes), -1, -1)) if shapes else (rank,)

    def parts(self, einsum: str, variables: Iterable[str]) -> tuple[str, ...]:
        """The ranks, after splits, of variables of an Einsum."""
        return tuple(r for v in variables for r in self.names_after(einsum, v.upper()))

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Groups of the binding, then one for each rank of a loop order that no group holds."""
        written = [group for fusion in self.spec.fusion for group in fusion.groups]
        held = {member for group in written for member in group}
        alone = [((e, r),) for e, order in self.spec.loop_order.items() for r in order if (e, r) not in held]
        return tuple(
            Group(members, any(not self.is_consumed(e, r) for e, r in members))
            for members in [*written, *alone]
        )

    def is_consumed(self, einsum: str, rank: str) -> bool:
        """Whether the instruction of an Einsum swallows a rank."""
        execution = self.spec.engines.get(einsum)
        return execution is not None and rank in execution.ranks

    @cached_property
    def _group_of(self) -> dict[tuple[str, str], Group]:
        return {member: group for group in self.groups for member in group.members}

    def group(self, einsum: str, rank: str) -> Group | None:
        """The group that holds a rank of an Einsum."""
        return self._group_of.get((einsum, rank))

    def loops(self, einsum: str) -> tuple[Group, ...]:
        """R5: the loops of an Einsum, the outermost first."""
        found = (self.group(einsum, rank) for rank in self.spec.loop_order[einsum])
        return tuple(group for group in found if group is not None and group.is_loop)

    @staticmethod
    def in_turns(
        loops: Mapping[str, Sequence[Group]], names: Sequence[str], depth: int
    ) -> Iterator[tuple[Group | None, list[str]]]:
        """Einsums at a depth in order: those that share the next loop, with it; others one by one."""
        done: set[str] = set()
        for name in (n for n in names if n not in done):
            group = loops[name][depth] if len(loops[name]) > depth else None
            inside = [n for n in names if len(loops[n]) > depth and loops[n][depth] is group]
            done.update(inside)
            yield group, inside if group is not None else [name]

    def placement(self, tensor: str, einsum: str) -> Placement:
        """Where a tensor lies as an Einsum sees it.

        Raises:
            SpecError: if the binding does not say.
        """
        found = self.spec.placements.get((tensor, einsum))
        if found is None:
            raise SpecError(
                f"the binding does not say where {tensor} lies in {einsum}",
                hint=f"add an entry with name: {tensor} and einsum: {einsum}",
            ).located(str(self.spec.node("binding", "tensor").place), "binding.tensor")
        return found

    def producer(self, tensor: str) -> Placement | None:
        """The entry of a tensor at the Einsum that writes it."""
        return self.spec.placements.get((tensor, tensor))


def merged(found: list[Digit]) -> list[Digit]:
    """Neighbouring digits of one rank taken together where the outer goes on where the inner ends."""
    result: list[Digit] = []
    for one in found:
        last = result[-1] if result else None
        if last is None or last.base != one.base or last.stride != one.span:
            result.append(one)
            continue
        times = expr(last.extent) * (last.stride // one.stride)
        extent = times if last.span is None else -(-last.span // one.stride)
        result[-1] = Digit(one.base, one.stride, extent, last.high)
    return [whole_rank(d) for d in result]


def whole_rank(held: Digit) -> Digit:
    """(N // 512) * 512 is N, which the kernel asserts to be a multiple."""
    whole, factor = name_of(held.base), expr(held.extent).terms[-1:]
    if factor and held.extent == (whole // factor[0][1]) * factor[0][1]:
        return Digit(held.base, held.stride, whole, held.high)
    return held
