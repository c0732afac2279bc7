"""Diagonals, `S[i, i]`: computed by themselves where S is, or elements of a view.

A reduction in which a comparison leaves one value, `S[i, j]` summed over j where i == j, reads a diagonal.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from itertools import pairwise

from ..language.additions import Additions
from ..language.ast import Access, Cascade, Einsum, Kind, Operand, Step, affine, plain
from ..language.operators import OPERATORS


def with_diagonals(cascade: Cascade) -> Cascade:
    """A cascade that reads diagonals of neighbouring axes as tensors of their own, or through views."""
    cascade = replace(
        cascade, steps=tuple(s.with_body(_of_one_value(e, cascade) for e in s.body) for s in cascade.steps)
    )
    added, own, steps = Additions(cascade), dict[tuple[str, int], Einsum](), list[Step]()
    bound = {e.name for block in cascade.blocks for e in block.body}

    def apart(access: Access, turns: Collection[str] = ()) -> Operand:
        names = [i.plain for i in access.indices]
        first = next((n for n, (a, b) in enumerate(pairwise(names)) if a and a == b and a not in turns), None)
        if first is None or access.tensor in bound or access.gathers:
            return access
        key = access.tensor, first
        if key not in own:
            diagonal = _diagonal(access.tensor, first, added)
            own[key] = diagonal.reading(apart) if diagonal else _view(access.tensor, first, added)
            steps.append(own[key])
        return replace(access.with_axis(first + 1), tensor=own[key].name)

    for step in cascade.steps:
        turn = "" if isinstance(step, Einsum) else step.variable
        steps.append(step.with_body([e.reading(partial(apart, turns=(turn, e.turning))) for e in step.body]))
    return added.applied(tuple(steps)) if own else cascade


def _of_one_value(einsum: Einsum, cascade: Cascade) -> Einsum:
    """An Einsum without a variable of which a comparison leaves one value, and what reduces it."""
    asked = einsum.condition
    neutral = OPERATORS[einsum.reduce_op].identity if einsum.reduce_op else None
    if asked is None or asked.relation != "==" or einsum.otherwise != neutral or einsum.recurrence:
        return einsum
    difference = asked.difference.at(cascade.sizes)
    for variable, c in difference.terms:
        rest = [(v, -c * own) for v, own in difference.terms if v != variable]
        ends = [own * (cascade.extent(v, einsum) - 1) for v, own in rest]
        value = affine(rest, -c * difference.constant)
        least, most = (value.constant + sum(limit(0, end) for end in ends) for limit in (min, max))
        is_within = least >= 0 and most < cascade.extent(variable, einsum)
        if variable in einsum.reduced and abs(c) == 1 and is_within:
            one = replace(einsum, condition=None, otherwise=0.0, text="")
            one = one.replaced({variable: value})
            return one if one.reduced else replace(one, reduce_op="")
    return einsum


def _diagonal(tensor: str, first: int, added: Additions) -> Einsum | None:
    """The Einsum that computes a diagonal alone; None where none computes the tensor."""
    makers = added.cascade.writers(tensor)
    plain_once = [i.plain for e in makers for i in e.output.indices]
    ranks = added.tensors[tensor].ranks
    if len(makers) != 1 or not all(plain_once) or len({*plain_once}) < len(ranks) or makers[0].is_placed:
        return None
    if added.sizes[ranks[first]] != added.sizes[ranks[first + 1]] or tensor in added.cascade.views:
        return None
    one, other = plain_once[first : first + 2]
    name = added.tensor(
        f"{tensor}_diagonal", (*ranks[: first + 1], *ranks[first + 2 :]), tensor, Kind.DIAGONAL
    )
    own = makers[0].renamed({other: one})
    return replace(own, output=replace(own.output.with_axis(first), tensor=name), text="")


def _view(tensor: str, first: int, added: Additions) -> Einsum:
    """The Einsum that says which elements of a tensor a view has, of which two axes are one."""
    ranks = added.tensors[tensor].ranks
    shorter = min(ranks[first : first + 2], key=added.sizes.__getitem__)
    own = (*ranks[:first], shorter, *ranks[first + 2 :])
    name = added.tensor(f"{tensor}_diagonal", own, tensor, Kind.OVERLAP)
    names = plain(f"{rank.lower()}{n}" for n, rank in enumerate(own))
    return Einsum(Access(name, names), (Access(tensor, (*names[: first + 1], *names[first:])),))
