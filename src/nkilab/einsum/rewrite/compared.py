"""Comparisons of parts of indices as comparisons of values: `i // 64 >= j // 64` takes no axis apart.

With `P[i] = (i // 64)` and `Q[j] = (j // 64)` it is `P[i] >= Q[j]`; what `i - j + 63 >= 0` rules out, which
follows from it, is not computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import isinf, lcm, prod

from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Condition, Einsum, Kind, Position, Scalar, Step
from ..language.formulas import COMPARED
from ..language.indices import affine, plain

# places of a window of which the comparisons are those of few numbers
SHORT = 32

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


def with_limits(cascade: Cascade) -> Cascade:
    """The cascade with the smaller of two numbers in place of comparisons along windows; ranks have extents.

    `M[h, y, i] = S[h, y, i] if y + i < 9 else -inf` is the smaller of S and `L[y, i] = inf if y + i < 9 else
    -inf`, which is compared once for all h, and M in tiles of all its axes.
    """
    added, steps, left = Additions(cascade), list[Step](), [*cascade.steps]
    while left:
        run = _run(left, cascade)
        steps += _limited(run, added) if run else left[:1]
        del left[: max(len(run), 1)]
    return added.applied(tuple(steps)) if len(steps) > len(cascade.steps) else cascade


def _run(steps: list[Step], cascade: Cascade) -> list[Einsum]:
    """The first steps, as far as each compares places along windows in what the one before has."""
    run, read = list[Einsum](), [*cascade.outputs, *(t for e in cascade.einsums for t in e.reads)]
    for step in steps:
        if not isinstance(step, Einsum) or not _is_limited(step, cascade):
            break
        if run and (step.operands != (run[-1].output,) or read.count(run[-1].name) > 1):
            break
        run.append(step)
    return run if len({e.otherwise for e in run}) == 1 else []


def _is_limited(einsum: Einsum, cascade: Cascade) -> bool:
    """Whether places in a short window that fail a comparison become more, or less, than all numbers."""
    asked, output = einsum.condition, einsum.output
    is_copy = not (
        einsum.map_op or einsum.reduce_op or einsum.recurrence or einsum.positions or output.gathers
    )
    if (
        asked is None
        or not is_copy
        or not isinf(einsum.otherwise)
        or not all(i.plain for i in output.indices)
    ):
        return False
    extents = [cascade.extent(v, einsum) for v in output.variables]
    compared = [cascade.extent(v, einsum) for v in asked.variables]
    is_window = len(compared) == 2 and {*asked.variables} <= {*output.variables} and min(compared) <= SHORT
    return is_window and len(extents) > 2 and prod(compared) < prod(extents)


def _limited(run: list[Einsum], added: Additions) -> list[Einsum]:
    """What computes numbers that are beyond all others where comparisons fail, and what takes them."""
    limits, steps, output, otherwise = (
        dict[tuple[str, ...], Access](),
        list[Einsum](),
        run[-1].output,
        run[0].otherwise,
    )
    for einsum in run:
        assert einsum.condition is not None
        names = tuple(v for v in output.variables if v in einsum.condition.variables)
        limit = added.along(f"{einsum.name}_limit", names, einsum, Kind.PART)
        before = limits.get(names, Scalar(value=-otherwise))
        steps.append(Einsum(limit, (before,), condition=einsum.condition, otherwise=otherwise))
        limits[names] = limit
    for einsum in run[:-1]:
        # nothing writes it any longer
        del added.tensors[einsum.name]
        added.derived.pop(einsum.name, None)
    read = run[0].operands[0]
    for number, limit in enumerate(limits.values(), start=1):
        is_last = number == len(limits)
        target = (
            output if is_last else added.along(f"{run[-1].name}_within", output.variables, run[-1], Kind.PART)
        )
        nearer = "minimum" if otherwise < 0 else "maximum"
        steps.append(Einsum(target, (read, limit), nearer, before=run[-1].title))
        read = target
    return steps
