"""Comparisons of parts of indices as comparisons of values: `i // 64 >= j // 64` takes no axis apart.

With `P[i] = (i // 64)` and `Q[j] = (j // 64)` it is `P[i] >= Q[j]`, and what `i - j + 63 >= 0` rules out, which
follows from it, is not computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import lcm

from ..language.additions import Additions
from ..language.ast import (
    Access,
    Affine,
    Cascade,
    Condition,
    Einsum,
    Kind,
    Position,
    Scalar,
    Step,
    affine,
)
from ..language.formulas import COMPARED

# a variable for all parts of an axis, with the steps and extents of these
Wholes = Mapping[str, tuple[str, Affine]]
MIRRORED = {">": (">",), ">=": (">=",), "<": ("<",), "<=": ("<=",), "==": (">=", "<="), "!=": ()}


def with_compared_values(cascade: Cascade) -> Cascade:
    """The cascade whose comparisons have axes whole; every rank has an extent."""
    added, steps = Additions(cascade), list[Step]()
    for step in cascade.steps:
        wholes = _wholes(step, cascade) if isinstance(step, Einsum) and step.condition else {}
        steps += _compared(step, wholes, added) if isinstance(step, Einsum) and wholes else [step]
    return added.applied(tuple(steps)) if len(steps) > len(cascade.steps) else cascade


def _wholes(einsum: Einsum, cascade: Cascade) -> dict[str, tuple[str, Affine]]:
    """Parts that a comparison has of axes which all else goes through whole: the variable of each, and its index."""
    assert einsum.condition is not None
    found, asked = dict[str, tuple[str, Affine]](), {*einsum.condition.variables}
    for rank, index in cascade.axes(einsum.output):
        if isinstance(index, Affine) and len(index.terms) > 1 and asked & {*index.variables}:
            found |= dict.fromkeys(index.variables, (rank.lower(), index))
    names = {*found} | {v for v, _ in found.values()}
    others = [i for a in einsum.every_access for i in a.indices if names & {*i.variables}]
    is_whole = all(i == found[i.variables[0]][1] for i in others if i.variables[0] in found)
    is_whole &= all(i.variables[0] in found for i in others) and not einsum.positions
    is_pair = len({found.get(v, (v, None))[0] for v in asked}) < 3 and not einsum.recurrence
    return found if is_whole and is_pair else {}


def _compared(einsum: Einsum, wholes: Wholes, added: Additions) -> list[Einsum]:
    """What computes the two sides of a comparison, compares them, and chooses."""
    asked = einsum.condition
    assert asked is not None
    difference = asked.difference.at(added.sizes)
    values = {
        v: [t for t in difference.terms if wholes.get(t[0], (t[0],))[0] == v]
        for v in _sides(difference, wholes)
    }
    joined = {index: Affine(((v, 1),)) for v, index in wholes.values()}
    whole = einsum.with_indices(lambda index: joined.get(index, index))
    whole = replace(whole, condition=None, reduce_op="", before=einsum.title)
    steps, sides = list[Einsum](), list[Access | Scalar]()
    for number, (v, terms) in enumerate(values.items()):
        sign, index = (-1) ** number, next((i for own, i in wholes.values() if own == v), Affine(((v, 1),)))
        side = added.along(f"{einsum.name}_part", (v,), whole, Kind.PART)
        value = Position(
            affine([(name, sign * c) for name, c in terms], -difference.constant * (number == 1))
        )
        steps.append(Einsum(replace(side, indices=(index,)), (value,)))
        sides.append(side)
    sides += [Scalar(value=-difference.constant)] * (len(sides) < 2)
    truth = added.along(f"{einsum.name}_kept", [*values], whole, Kind.PART)
    steps.append(Einsum(truth, tuple(sides), COMPARED[asked.relation]))
    value = whole.operands[0]
    if whole.map_op:
        value = added.along(f"{einsum.name}_mapped", whole.variables, whole, Kind.PART)
        steps.append(replace(whole, output=value))
    bounds = [c for c in _implied(difference, asked.relation, wholes, added) if c.variables]
    for bound in (None, *bounds):
        operands = (truth, value, Scalar(value=einsum.otherwise)) if bound is None else (value,)
        value = added.along(f"{einsum.name}_chosen", whole.variables, whole, Kind.PART)
        one = Einsum(value, operands, "where" if bound is None else "", condition=bound, before=einsum.title)
        steps.append(replace(one, otherwise=einsum.otherwise if bound else 0.0))
    last = replace(steps.pop(), output=whole.output, reduce_op=einsum.reduce_op)
    return [*steps, replace(last, text=einsum.text, place=einsum.place, formula=einsum.formula)]


def _sides(difference: Affine, wholes: Wholes) -> list[str]:
    """The variables that a comparison is of, parts of which are one."""
    return [*dict.fromkeys(wholes.get(name, (name,))[0] for name, _ in difference.terms)]


def _implied(difference: Affine, relation: str, wholes: Wholes, added: Additions) -> list[Condition]:
    """Comparisons of whole variables that follow from one of their parts."""
    found = []
    for one in MIRRORED[relation]:
        sign = 1 if one in (">", ">=") else -1
        terms = [(name, sign * c) for name, c in difference.terms]
        common = lcm(*(_step(name, wholes) for name, _ in terms))
        top, constant = list[tuple[str, int]](), common * sign * difference.constant
        for name, c in terms:
            v, index = wholes.get(name, (name, Affine(((name, 1),))))
            step = _step(name, wholes)
            if step == max(own for _, own in index.terms):
                # a part of step a is at most v / a, and at least (v - a + 1) / a
                top.append((v, common // step * c))
                constant += (common // step) * -c * (step - 1) * (c < 0)
            elif c > 0:
                constant += common * c * (added.sizes[name.upper()] - 1)
        found.append(Condition(affine(top, constant), ">" if one in ("<", ">") else ">=", Affine()))
    return found


def _step(name: str, wholes: Wholes) -> int:
    return wholes[name][1].coefficient(name) if name in wholes else 1
