"""Layouts as maps from ranks to places: equal where their digits are, whatever the splits are called."""

from __future__ import annotations

from ..language.spec import Placement
from ..tree.expr import expr, name_of
from ..written.ranks import Digit, Ranks


def digits(ranks: Ranks, einsum: str, names: tuple[str, ...]) -> list[Digit]:
    """Ranks of an Einsum as digits, those of one value left out."""
    found = (ranks.digit(einsum, rank) for rank in names)
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
        return [Digit(rank, 1, ranks.size("", rank)) for rank in declared]
    found: list[Digit] = []
    for rank in placed.ranks:
        base = ranks.edge_of(placed.einsum, rank)
        whole = [Digit(base, 1, ranks.size("", base))] if base else []
        found += [d for d in whole or digits(ranks, placed.einsum, (rank,)) if d not in found]
    return found
