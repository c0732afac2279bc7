"""Factors that a sum of products does not run over: taken after the sum, where there are fewer elements.

`A[m, p] = S[m, p] . R[p]` that only `Z[f, p] = A[m, p] . V[m, f]`, summed over m, reads becomes
`Z_sum[f, p] = S[m, p] . V[m, f]` and `Z[f, p] = Z_sum[f, p] . R[p]`: one pass over A less.
Of `D[b, k, n] = W[b, k, n] - Z[b, n]`, whole numbers of 8 bits, TensorE multiplies W itself: `X[m, b, k]`
is summed over k, which Z lacks, and multiplied with Z in float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from types import MappingProxyType

from ...tiles.dtypes import SMALL_INTEGERS
from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Einsum, Iterate, Kind, Operand, Step
from .live import live


def deferred(cascade: Cascade, types: Mapping[str, str] = MappingProxyType({})) -> Cascade:
    """The cascade with factors after the sums that they may follow, and zero points of known types apart."""
    cascade = _with_zero_points_apart(cascade, types)
    added = Additions(cascade)
    steps = (
        s.with_body(_deferred(s.body, added)) if isinstance(s, Iterate) else s  # type: ignore[arg-type]
        for s in _deferred(cascade.steps, added)
    )
    return added.applied(tuple(steps))


def _with_zero_points_apart(cascade: Cascade, types: Mapping[str, str]) -> Cascade:
    """The cascade whose sums have differences of whole numbers of 8 bits term by term."""
    added, steps = Additions(cascade), list[Step]()
    singles = [s for s in cascade.steps if isinstance(s, Einsum)]
    for step in cascade.steps:
        read = {a.tensor for e in step.body for a in e.accesses}
        makers = [e for e in singles if e.name in read]
        terms = (_terms(e, step, added, types) for e in makers if isinstance(step, Einsum))
        steps += next(filter(None, terms), [step])
    return live(added.applied(tuple(steps)))[0] if len(steps) > len(cascade.steps) else cascade


def _terms(maker: Einsum, reader: Einsum, added: Additions, types: Mapping[str, str]) -> list[Einsum]:
    """A sum of products with one of its operands, a difference of inputs, term by term; [] if it has none."""
    access = next(a for a in reader.accesses if a.tensor == maker.name)
    is_sum = reader.is_product and maker.map_op in ("subtract", "add") and len(maker.accesses) == 2
    names = names_of(maker.output, access) if is_sum and not (maker.reduce_op or maker.condition) else None
    if names is None or not {*maker.reads} <= {*added.cascade.inputs}:
        return []
    lacked = {v for v in maker.variables if not all(v in a.variables for a in maker.accesses)}
    whole = next((a for a in maker.accesses if lacked <= {*a.variables}), access)
    lacked = {names[v] for v in lacked}
    rows = [a for a in reader.accesses if a is not access and lacked & {*a.variables}]
    is_one = len(rows) == 1 and lacked <= {*rows[0].variables} & {*reader.reduced}
    if not is_one or types.get(rows[0].tensor) != "bfloat16" or types.get(whole.tensor) not in SMALL_INTEGERS:
        return []
    kept = [v for v in rows[0].variables if v not in lacked]
    terms = [
        Einsum(added.along(f"{rows[0].tensor}_sum", kept, reader, Kind.EXACT), (rows[0],), reduce_op="add")
    ]
    for term in maker.accesses:
        read: dict[Access, Operand] = {a: term.renamed(names) if a == access else a for a in reader.accesses}
        read |= {} if term is whole else {rows[0]: terms[0].output}
        total = added.along(f"{reader.name}_sum", reader.output.variables, reader, Kind.SUM)
        sums = replace(reader.reading(read.__getitem__), output=total, text="")
        terms.append(sums if sums.reduced else replace(sums, reduce_op=""))
    return [*terms, Einsum(reader.output, tuple(e.output for e in terms[1:]), maker.map_op)]


def _deferred(steps: Sequence[Step], added: Additions) -> list[Step]:
    held, cascade = list(steps), added.cascade
    for maker in [s for s in steps if isinstance(s, Einsum)]:
        readers = cascade.readers(maker.name)
        if len(readers) != 1 or not any(s is readers[0] for s in held):
            continue
        pair = _parted(maker, readers[0], cascade)
        if pair is None:
            continue
        places = [next(n for n, s in enumerate(held) if s is e) for e in (maker, readers[0])]
        if places[1] < places[0] or _is_overwritten(held[places[0] : places[1]], maker):
            continue
        read = readers[0].name
        name = added.tensor(f"{read}_sum", cascade.tensors[read].ranks, read, Kind.SUM)
        total = replace(readers[0].output, tensor=name)
        sums, factor = pair
        product = Einsum(readers[0].output, (total, factor), maker.map_op)
        held[places[1] : places[1] + 1] = [replace(sums, output=total), product]
        del held[places[0]], added.tensors[maker.name]
    return held


def _parted(maker: Einsum, reader: Einsum, cascade: Cascade) -> tuple[Einsum, Operand] | None:
    """The sum over what is left of a product without its factor, and that factor, in the sum's variables."""
    if maker.name in cascade.outputs or len(cascade.writers(maker.name)) > 1:
        return None
    is_pair = maker.map_op in ("multiply", "divide") and len(maker.operands) == 2
    if not is_pair or maker.reduce_op or maker.condition:
        return None
    is_sum = (reader.map_op, reader.reduce_op) == ("multiply", "add") and not reader.condition
    is_sum = is_sum and len(cascade.writers(reader.name)) == 1
    if not is_sum or not len(reader.accesses) == len({*reader.reads}) == 2:
        return None
    access = next(a for a in reader.accesses if a.tensor == maker.name)
    names = names_of(maker.output, access)
    if names is None:
        return None
    for whole, factor in (maker.operands, maker.operands[::-1])[: 2 if maker.map_op == "multiply" else 1]:
        is_plain = not any(isinstance(o, Access) and o.gathers for o in (whole, factor))
        if not (is_plain and isinstance(whole, Access) and {*whole.variables} == {*maker.output.variables}):
            continue
        mine = {names[v] for v in factor.variables}
        if mine & set(reader.reduced) or not mine <= set(reader.output.variables):
            continue
        if not _is_less(cascade, maker, reader):
            continue
        operands = tuple(whole.renamed(names) if o is access else o for o in reader.operands)
        return replace(reader, operands=operands, text=""), factor.renamed(names)
    return None


def names_of(output: Access, access: Access) -> dict[str, str] | None:
    """What a reader calls the variables of a result; None if it reads other than whole axes of it."""
    found: dict[str, str] = {}
    for made, read in zip(output.indices, access.indices, strict=True):
        if not isinstance(made, Affine) or not isinstance(read, Affine) or not made.plain or not read.plain:
            return None
        found[made.plain] = read.plain
    return found if len(set(found.values())) == len(found) == len(output.indices) else None


def _is_less(cascade: Cascade, maker: Einsum, reader: Einsum) -> bool:
    """Whether the sum has fewer elements than the product, and each of its axes runs over all of a rank."""
    if any(not isinstance(i, Affine) or not i.plain for i in reader.output.indices):
        return False
    sizes = (prod(cascade.extent(v, e) for v in e.output.variables) for e in (reader, maker))
    return next(sizes) <= next(sizes)


def _is_overwritten(between: Sequence[Step], maker: Einsum) -> bool:
    """Whether a step writes what a product reads, before the sum that is to read it instead."""
    written = {e.name for s in between for e in s.body}
    return bool(written & set(maker.reads))
