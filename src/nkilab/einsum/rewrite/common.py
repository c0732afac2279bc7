"""What is computed of the same operands more than once: once, and of small ones before large ones.

`V[j] = B[m, j]`, summed over m, is `S[k] = B[n, k]` under other names: what reads V reads S. In
`Y[n, c] = X[n, c] . R[c] . G[c]` the product of R and G is one of a row, not of a matrix.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import permutations
from math import prod

from ..language.additions import Additions
from ..language.ast import Access, Cascade, Einsum, Gather, Index, Kind, Operand, Step, plain
from ..language.operators import OPERATORS
from .defer import names_of

# operands of which every order is compared; times as large as what is small beside it a tensor is
MOST_OPERANDS, SMALL = 4, 16


def with_common_results(cascade: Cascade) -> Cascade:
    """The cascade in which what another Einsum has computed is read; every rank has an extent."""
    alone, known = computed(cascade), defaultdict[object, list[Einsum]](list)
    same, steps = dict[str, tuple[Access, Access]](), list[Step]()
    for step in (step.with_body(reading(e, same) for e in step.body) for step in cascade.steps):
        steps.append(step)
        if not isinstance(step, Einsum) or step.name not in alone:
            continue
        makers = known[step.map_op, step.reduce_op, len(step.operands), step.otherwise]
        pairs = ((maker, names) for maker in makers if (names := _names(maker, step, cascade)))
        maker, names = next(pairs, (step, {}))
        outputs = {maker.name, step.name}.intersection(cascade.outputs)
        if maker is step or len(outputs) > 1:
            makers.append(step)
        elif maker.name in outputs:
            # an output may have less precision than what is computed with on chip
            inner = replace(maker, output=step.output.renamed({v: n for n, v in names.items()}), text="")
            place = next(n for n, s in enumerate(steps) if s is maker)
            steps[place:] = [inner, _copy(maker, inner.output), *steps[place + 1 : -1]]
            makers[makers.index(maker)] = inner
        else:
            same[step.name] = (step.output, maker.output.renamed(names))
            steps[-1:] = [_copy(step, same[step.name][1])] * len(outputs)
    gone = {*cascade.written}.difference(e.name for s in steps for e in s.body)
    tensors = {name: tensor for name, tensor in cascade.tensors.items() if name not in gone}
    is_same = len(alone) == sum(map(len, known.values()))
    return cascade if is_same else replace(cascade, tensors=tensors, steps=tuple(steps))


def _copy(einsum: Einsum, source: Access) -> Einsum:
    return replace(einsum, operands=(source,), map_op="", reduce_op="", condition=None, text="")


def reading(einsum: Einsum, same: Mapping[str, tuple[Access, Access]]) -> Einsum:
    """An Einsum that reads for some tensors the elements of others, given by accesses to both."""

    def chosen(access: Access) -> Access:
        indices = (Gather(changed(i.access)) if isinstance(i, Gather) else i for i in access.indices)
        return replace(access, indices=tuple(indices))

    def changed(access: Access) -> Access:
        access = chosen(access)
        if access.tensor not in same:
            return access
        own, other = same[access.tensor]
        at: Mapping[str, Index] = dict(zip((i.plain for i in own.indices), access.indices, strict=True))
        return replace(other, indices=tuple(at.get(i.plain, i) for i in other.indices))

    other = replace(einsum.reading(changed), output=chosen(einsum.output))
    return einsum if other == einsum else replace(other, text="")


def computed(cascade: Cascade) -> dict[str, Einsum]:
    """Einsums that alone write what they compute, of what is written once; no rewrite wants them apart."""
    times = Counter(e.name for e in cascade.einsums) + Counter(e.name for b in cascade.blocks for e in b.body)
    apart = {name for name, d in cascade.derived.items() if d.kind not in (Kind.PART, Kind.FACTOR)}
    return {
        e.name: e for e in cascade.einsums
        if (e.map_op or e.reduce_op) and e.recurrence is None and e.name not in apart
        and all(times[t] < 2 for t in (e.name, *e.reads))
        and all(i.plain for i in e.output.indices) and len({*e.output.variables}) == len(e.output.indices)
    }  # fmt: skip


def _names(maker: Einsum, einsum: Einsum, cascade: Cascade) -> dict[str, str]:
    """What an Einsum calls the variables of another that computes the same; none if none does."""
    is_free = len(einsum.operands) <= MOST_OPERANDS and OPERATORS[maker.map_op or "add"].is_commutative
    for operands in permutations(maker.operands) if is_free else [maker.operands]:
        names = dict(p for pair in zip(operands, einsum.operands, strict=True) for p in called(*pair))
        names = {v: names.get(v, v) for v in maker.variables}
        other = replace(maker, operands=operands).renamed(names)
        is_same = (other.operands, other.condition) == (einsum.operands, einsum.condition)
        is_same &= {*other.output.variables} == {*einsum.output.variables}
        is_same &= {*names.values()} == {*einsum.variables} and len(names) == len(einsum.variables)
        if is_same and all(cascade.extent(v, maker) == cascade.extent(n, einsum) for v, n in names.items()):
            return names
    return {}


def called(operand: Operand, other: Operand) -> Iterator[tuple[str, str]]:
    """Variables that stand alone in an operand, with what another calls them."""
    if isinstance(operand, Access) and isinstance(other, Access) and operand.tensor == other.tensor:
        both = [*zip(operand.indices, other.indices, strict=True)]
        yield from ((mine.plain, theirs.plain) for mine, theirs in both if mine.plain and theirs.plain)


def with_small_parts(cascade: Cascade) -> Cascade:
    """The cascade whose products of large and of small operands have those of the small ones apart."""
    added, reads = Additions(cascade), Counter(t for e in cascade.einsums for t in e.reads)
    steps: list[Step] = []
    alone = {
        name: e for name, e in computed(cascade).items()
        if not (e.reduced or e.is_placed or OPERATORS[e.map_op].arity)
    }  # fmt: skip
    inner = {name: e for name, e in alone.items() if reads[name] == 1 and name not in cascade.outputs}
    for step in cascade.steps:
        own = [alone[e.name] for e in step.body if e.name in alone]
        steps += [part for einsum in own for part in _parts(einsum, inner, added)] or [step]
    return added.applied(tuple(steps)) if len(steps) > len(cascade.steps) else cascade


def _parts(einsum: Einsum, inner: Mapping[str, Einsum], added: Additions) -> list[Einsum]:
    """An Einsum with what its small operands make together before it, if there is more than one of these."""
    small, kept, operands = list[Operand](), set[str](), _flat(einsum, inner)
    sizes = {v: added.extent(v, einsum) for v in einsum.variables}
    for operand in sorted(operands, key=lambda o: prod(sizes[v] for v in o.variables)):
        if prod(sizes[v] for v in kept.union(operand.variables)) * SMALL <= prod(sizes.values()):
            small.append(operand)
            kept |= {*operand.variables}
    if not kept or not 1 < len(small) < len(operands):
        return [einsum]
    variables = [v for v in einsum.variables if v in kept]
    ranks = tuple(added.rank_of(v, einsum) for v in variables)
    part = Access(added.tensor(f"{einsum.name}_part", ranks, einsum.name, Kind.FACTOR), plain(variables))
    rest = (o for o in operands if not any(o is one for one in small))
    whole = replace(einsum, operands=(*rest, part), text="", before=einsum.title)
    return [Einsum(part, tuple(small), einsum.map_op), whole]


def _flat(einsum: Einsum, inner: Mapping[str, Einsum]) -> list[Operand]:
    """The operands of an Einsum, and those of results as large that it alone reads instead of these."""
    operands: list[Operand] = []
    for operand in einsum.operands:
        maker = inner.get(operand.tensor) if isinstance(operand, Access) else None
        names = names_of(maker.output, operand) if maker and isinstance(operand, Access) else None
        if maker and names and (maker.map_op, len(names)) == (einsum.map_op, len(einsum.variables)):
            operands += [o.renamed(names) for o in _flat(maker, inner)]
        else:
            operands.append(operand)
    return operands


def with_shared_names(cascade: Cascade) -> Cascade:
    """The cascade whose readers call axes of a result as its maker does, to share loops over them."""
    makers: dict[str, Access] = {}
    turns = {block.variable for block in cascade.blocks}

    def changed(einsum: Einsum) -> Einsum:
        fixed = turns | {*einsum.along}
        read = [(makers[a.tensor], a) for a in einsum.accesses if a.tensor in makers]
        pairs = [p for one, a in read for p in zip(one.indices, a.indices, strict=True)]
        names = {i.plain: own.plain for own, i in pairs[::-1] if i.plain and own.plain}
        names = {v: name for v, name in names.items() if v != name and not {v, name} & fixed}
        while clashing := [v for v, name in names.items() if _names_beside(einsum, names, v).count(name)]:
            del names[clashing[-1]]
        other = einsum.renamed(names)
        is_same = all(cascade.extent(name, other) == cascade.extent(v, einsum) for v, name in names.items())
        other = replace(other, before=einsum.title) if names and is_same else einsum
        makers.setdefault(other.name, other.output)
        return other

    return replace(cascade, steps=tuple(s.with_body([*map(changed, s.body)]) for s in cascade.steps))


def _names_beside(einsum: Einsum, names: dict[str, str], variable: str) -> list[str]:
    """What the other variables of an Einsum are called."""
    return [names.get(v, v) for v in einsum.variables if v != variable]
