"""Copies, and sums of sums: what reads them reads what they are made of, in one step.

`B[n, m] = A[m, n]` that no output is leaves its readers `A` itself; `S[n] = P[m, n]`, summed over m, of
`P[m, n] = A[m, k] . B[k, n]`, summed over k, is one sum over both. A number with which a comparison of
indices multiplies such a sum is one of its factors, so that the sum is written once, and compared in place.
What is computed of numbers and extents alone is a number; of parameters, an expression of Python's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..language.ast import Access, Affine, Cascade, Einsum, Iterate, Operand, Position, Scalar, Step
from ..language.operators import OPERATORS
from ..language.subexpressions import ONE, combined
from .common import reading
from .defer import names_of


def inlined(cascade: Cascade) -> tuple[Cascade, list[str]]:
    """A cascade without its copies and sums of sums; what is left out, for the report."""
    notes: list[str] = []
    cascade = _with_constants(cascade)
    while True:
        smaller = next(
            (f for s in cascade.steps if isinstance(s, Einsum) and (f := _without(s, cascade))), None
        )
        if smaller is None:
            return _with_numbers(cascade), notes
        cascade, reason = smaller
        notes.append(reason)


def _with_constants(cascade: Cascade) -> Cascade:
    """A cascade with numbers for what is made of numbers, and of extents that are no arguments, alone."""
    known: dict[str, Scalar] = {}

    def number(operand: Operand) -> Operand:
        if isinstance(operand, Access):
            return known.get(operand.tensor, operand)
        if not isinstance(operand, Position) or operand.variables:
            return operand
        is_open = cascade.open_ranks.intersection(operand.index.extents)
        return operand if is_open else Scalar(value=float(operand.index.at(cascade.sizes).constant))

    def folded(einsum: Einsum) -> list[Einsum]:
        operands = tuple(map(number, einsum.operands))
        is_number = not (einsum.variables or einsum.condition or einsum.name in cascade.outputs)
        if is_number and einsum.map_op and len(cascade.writers(einsum.name)) == 1:
            value = _scalar(einsum.map_op, operands, cascade.scalars)
            known.update({} if value is None else {einsum.name: value})
        if einsum.name in known:
            return []
        if einsum.map_op == "divide" and (by := _scalar("divide", (ONE, operands[1]), cascade.scalars)):
            operands, einsum = (operands[0], by), replace(einsum, map_op="multiply")
        return [einsum if operands == einsum.operands else replace(einsum, operands=operands, text="")]

    bodies = ((step, [e for own in step.body for e in folded(own)]) for step in cascade.steps)
    steps = tuple(step.with_body(body) for step, body in bodies if body)
    tensors = {n: t for n, t in cascade.tensors.items() if n not in known}
    return replace(cascade, tensors=tensors, steps=steps)


def _scalar(op: str, operands: Sequence[Operand], values: Mapping[str, float]) -> Scalar | None:
    """What an operator makes of parameters and numbers as a kernel is traced; None if of more, or by zero."""
    scalars = [o for o in operands if isinstance(o, Scalar)]
    if len(scalars) < len(operands) or not any(o.name for o in scalars):
        value = combined(op, operands, 0)
        return value if isinstance(value, Scalar) and not value.name else None
    is_by_zero = op == "divide" and not scalars[1].at(values)
    return Scalar.of(op, scalars) if OPERATORS[op].infix and not is_by_zero else None


def _with_numbers(cascade: Cascade) -> Cascade:
    """A cascade whose sums of products have the numbers that comparisons, their only readers, multiply by."""
    changed: dict[int, Einsum] = {}
    for reader in (e for e in cascade.einsums if e.condition and e.map_op == "multiply" and not e.reduce_op):
        numbers = [o for o in reader.operands if isinstance(o, Scalar)]
        totals = [e for e in cascade.einsums if e.name in reader.reads]
        if len(totals) != 1 or len(numbers) + 1 != len(reader.operands) or totals[0].name in cascade.outputs:
            continue
        (total,) = totals
        is_product = (total.map_op, total.reduce_op, total.condition) == ("multiply", "add", None)
        if is_product and cascade.readers(total.name) == [reader]:
            changed[id(total)] = replace(total, operands=(*total.operands, *numbers), text="")
            changed[id(reader)] = replace(reader, operands=reader.accesses, map_op="", text="")
    steps = (step.with_body(changed.get(id(e), e) for e in step.body) for step in cascade.steps)
    return replace(cascade, steps=tuple(steps))


def _without(einsum: Einsum, cascade: Cascade) -> tuple[Cascade, str] | None:
    """A cascade without one of its Einsums, if that is a copy or a part of a longer sum."""
    name, sources = einsum.name, set(einsum.reads)
    is_once = len(cascade.writers(name)) == 1 and not any(a.gathers for a in einsum.accesses)
    is_inner = name not in cascade.outputs and name not in cascade.derived and einsum.recurrence is None
    if not is_once or not is_inner or einsum.condition is not None or _is_late(einsum, sources, cascade):
        return None
    readers = cascade.readers(name)
    if not (einsum.map_op or einsum.reduce_op):
        taken, reason = {id(e): _reading(e, einsum) for e in readers}, "its readers take what it copies"
    elif einsum.reduce_op and len(readers) == 1:
        taken, reason = {id(readers[0]): _summed(einsum, readers[0])}, f"{readers[0].name} sums it at once"
    else:
        return None
    if not taken or None in taken.values():
        return None
    steps: list[Step] = []
    for step in (s for s in cascade.steps if s is not einsum):
        body = [taken.get(id(e)) or e for e in step.body]
        steps.append(step.with_body(body))
    tensors = {n: t for n, t in cascade.tensors.items() if n != name}
    return replace(cascade, tensors=tensors, steps=tuple(steps)), f"{name} is left out: {reason}"


def _is_late(einsum: Einsum, sources: set[str], cascade: Cascade) -> bool:
    """Whether what an Einsum reads is written after it, or in turns of a block."""
    place = next(n for n, s in enumerate(cascade.steps) if s is einsum)
    written = {
        e.name for n, s in enumerate(cascade.steps) for e in s.body if n > place or isinstance(s, Iterate)
    }
    return bool(written & sources)


def _reading(reader: Einsum, copy: Einsum) -> Einsum | None:
    """A reader of a copy that reads its source; None if it would not mean the same."""
    (source,) = copy.operands
    indices = copy.output.indices
    is_plain = len({i.plain for i in indices}) == len(indices) and all(i.plain for i in indices)
    is_plain &= not any(i.variables and not i.plain for i in getattr(source, "indices", ()))
    if not isinstance(source, Access) or not is_plain:
        return None
    direct = reading(reader, {copy.name: (copy.output, source)})
    is_same = set(direct.variables) == set(reader.variables) and copy.name not in direct.reads
    return direct if is_same else None


def _summed(part: Einsum, total: Einsum) -> Einsum | None:
    """The sum of sums in one; None if something else is done between them."""
    if total.map_op or total.reduce_op != part.reduce_op or len(total.operands) != 1 or total.condition:
        return None
    names = names_of(part.output, total.accesses[0])
    if names is None or set(part.reduced) & {*names.values()} or total.recurrence is not None:
        return None
    operands = tuple(o.renamed(names) for o in part.operands)
    is_plain = all(isinstance(i, Affine) for i in total.output.indices)
    return replace(part, output=total.output, operands=operands, text="") if is_plain else None
