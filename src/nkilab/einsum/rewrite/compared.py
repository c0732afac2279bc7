"""Comparisons of parts of indices as comparisons of values: `i // 64 >= j // 64` takes no axis apart.

With `P[i] = (i // 64)` and `Q[j] = (j // 64)` it is `P[i] >= Q[j]`; what `i - j + 63 >= 0` rules out, which
follows from it, is not computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import lcm

from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Condition, Einsum, Kind, Position, Scalar, Step
from ..language.formulas import COMPARED
from ..language.indices import affine, plain

# by a part of an axis, the variable for all of them, and what it is in parts
Wholes = dict[str, tuple[str, Affine]]


def with_compared_values(cascade: Cascade) -> Cascade:
    """The cascade whose comparisons have axes whole; every rank has an extent."""
    added, steps = Additions(cascade), list[Step]()
    for step in cascade.steps:
        wholes = _wholes(step, cascade) if isinstance(step, Einsum) else {}
        steps += _compared(step, wholes, added) if isinstance(step, Einsum) and wholes else [step]
    return added.applied(tuple(steps)) if len(steps) > len(cascade.steps) else cascade


def _wholes(einsum: Einsum, cascade: Cascade) -> Wholes:
    """The parts that a comparison has of axes which all else goes through whole; {} for anything else."""
    wholes, asked = Wholes(), {*(einsum.condition.variables if einsum.condition else ())}
    for rank, index in cascade.axes(einsum.output):
        if isinstance(index, Affine) and len(index.terms) > 1 and asked & {*index.variables}:
            wholes |= dict.fromkeys(index.variables, (rank.lower(), index))
    names = {*wholes} | {v for v, _ in wholes.values()}
    others = [i for a in einsum.every_access for i in a.indices if names & {*i.variables}]
    is_whole = all(i.variables[0] in wholes and i == wholes[i.variables[0]][1] for i in others)
    is_pair = len({wholes.get(v, (v, None))[0] for v in asked}) < 3
    return wholes if is_whole and is_pair and not (einsum.positions or einsum.recurrence) else {}


def _compared(einsum: Einsum, wholes: Wholes, added: Additions) -> list[Einsum]:
    """What computes the two sides of a comparison, compares them, and chooses."""
    asked = einsum.condition
    assert asked is not None
    difference = asked.difference.at(added.sizes)
    joined = {index: plain([v])[0] for v, index in wholes.values()}
    whole = einsum.with_indices(lambda index: joined.get(index, index))
    whole = replace(whole, condition=None, reduce_op="", before=einsum.title)
    steps, sides, values = list[Einsum](), list[Access | Scalar](), dict[str, list[tuple[str, int]]]()
    for name, c in difference.terms:
        values.setdefault(wholes.get(name, (name,))[0], []).append((name, c))

    def new(hint: str, names: tuple[str, ...]) -> Access:
        return added.along(f"{einsum.name}_{hint}", names, whole, Kind.PART)

    for number, (v, terms) in enumerate(values.items()):
        side, sign = new("part", (v,)), (-1) ** number
        index = next((own for name, own in wholes.values() if name == v), plain([v])[0])
        value = affine([(name, sign * c) for name, c in terms], -difference.constant * number)
        steps.append(Einsum(replace(side, indices=(index,)), (Position(value),)))
        sides.append(side)
    sides += [Scalar(value=-difference.constant)] * (len(sides) < 2)
    steps.append(Einsum(truth := new("kept", (*values,)), tuple(sides), COMPARED[asked.relation]))
    if whole.map_op:
        steps.append(whole := replace(whole, output=new("mapped", whole.variables)))
    operands = (truth, whole.output if whole.map_op else whole.operands[0], Scalar(value=einsum.otherwise))
    steps.append(replace(whole, output=new("chosen", whole.variables), operands=operands, map_op="where"))
    for bound in _implied(difference, asked.relation, wholes, added):
        one = replace(
            whole, operands=(steps[-1].output,), map_op="", condition=bound, otherwise=einsum.otherwise
        )
        steps.append(replace(one, output=new("chosen", whole.variables)))
    output = einsum.output.with_indices(lambda index: joined.get(index, index))
    return [*steps[:-1], replace(steps[-1], output=output, reduce_op=einsum.reduce_op)]


def _implied(difference: Affine, relation: str, wholes: Wholes, added: Additions) -> Iterator[Condition]:
    """Comparisons of whole variables that follow from one of their parts."""
    for sign in (s for s, which in ((1, (">", ">=", "==")), (-1, ("<", "<=", "=="))) if relation in which):
        terms = [
            (name, sign * c, *wholes.get(name, (name, plain([name])[0]))) for name, c in difference.terms
        ]
        common = lcm(*(index.coefficient(name) for name, _, _, index in terms))
        # of whole numbers one that is more than zero is at least one
        top, constant = list[tuple[str, int]](), common * (sign * difference.constant - (relation in "<>"))
        for name, c, v, index in terms:
            step = index.coefficient(name)
            # a part of the longest step a is at most v / a, and at least (v - a + 1) / a; others are rests
            is_top = step == max(own for _, own in index.terms)
            top += [(v, common // step * c)] * is_top
            rest = max(0, -c) * (step - 1) * common // step
            constant += rest if is_top else common * max(0, c) * (added.sizes[name.upper()] - 1)
        bound = Condition(affine(top, constant), ">=", Affine())
        yield from [bound] * bool(bound.variables)
