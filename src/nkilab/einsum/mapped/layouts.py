"""Layouts as maps from ranks to places: equal where their digits are, whatever the splits are called."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..language.spec import Placement
from ..tree.expr import Expr, Whole, expr, name_of
from ..written.ranks import Ranks


@dataclass(frozen=True)
class Digit:
    """A part of a rank: index = sum over digits of digit * stride.

    Args:
        base: the rank.
        stride: what one step of the digit is worth.
        extent: how many values it has.
        high: elements that all its values pass over; None for stride * extent.
    """

    base: str
    stride: int
    extent: Whole
    high: int | None = field(default=None, compare=False)

    @property
    def is_unit(self) -> bool:
        """Whether it has one value, so that its place does not matter."""
        return expr(self.extent).value == 1

    def spans(self, stride: int) -> bool:
        """Whether steps of a stride stay inside of it, as far as that is known."""
        whole = expr(self.extent).value
        high = self.high if self.high is not None or whole is None else self.stride * whole
        return high is None or stride < high


def extent_of(ranks: Ranks, einsum: str, rank: str) -> Expr:
    """The extent of a rank as an expression over the kernel's parameters."""
    held = ranks.extent(einsum, rank)
    if isinstance(held, int):
        return expr(held)
    outer, _, inner = held.partition(" // ")
    return name_of(outer) // int(inner) if inner else name_of(outer)


def digit(ranks: Ranks, einsum: str, rank: str) -> Digit:
    """A rank of an Einsum as a digit of the rank it was split from."""
    found = ranks.split(einsum, rank)
    extent = extent_of(ranks, einsum, rank)
    if found is None:
        return Digit(rank, 1, extent)
    base, number = found
    shapes = ranks.spec.partitioning[einsum][base]
    at = len(shapes) - number
    high = shapes[at - 1] if at else ranks.spec.cascade.sizes.get(base)
    return Digit(base, shapes[at] if at < len(shapes) else 1, extent, high)


def digits(ranks: Ranks, einsum: str, names: tuple[str, ...]) -> list[Digit]:
    """Ranks of an Einsum as digits, those of one value left out."""
    found = (digit(ranks, einsum, rank) for rank in names)
    return [d for d in found if not d.is_unit]


def merged(found: list[Digit]) -> list[Digit]:
    """Neighbouring digits of one rank taken together where the outer goes on where the inner ends."""
    result: list[Digit] = []
    for one in found:
        last = result[-1] if result else None
        inner = expr(one.extent).value
        if (
            last is not None
            and last.base == one.base
            and inner is not None
            and last.stride == one.stride * inner
        ):
            result[-1] = Digit(one.base, one.stride, expr(last.extent) * inner, last.high)
        else:
            result.append(one)
    return [whole_rank(d) for d in result]


def whole_rank(held: Digit) -> Digit:
    """(N // 512) * 512 is N, which the kernel asserts to be a multiple."""
    whole, factor = name_of(held.base), expr(held.extent).terms[-1:]
    if factor and held.extent == (whole // factor[0][1]) * factor[0][1]:
        return Digit(held.base, held.stride, whole, held.high)
    return held


def hbm_axes(ranks: Ranks, placed: Placement) -> list[Digit]:
    """What lies along the axes of a tensor in HBM: its ranks as placed; as declared where it lies plain.

    The two parts of a rank whose last part is shorter are one axis.
    """
    if placed.is_plain:
        declared = ranks.spec.cascade.tensors[placed.tensor].ranks
        return [Digit(rank, 1, extent_of(ranks, "", rank)) for rank in declared]
    found: list[Digit] = []
    for rank in placed.ranks:
        base = ranks.edge_of(placed.einsum, rank)
        whole = [Digit(base, 1, extent_of(ranks, "", base))] if base else []
        found += [d for d in whole or digits(ranks, placed.einsum, (rank,)) if d not in found]
    return found
