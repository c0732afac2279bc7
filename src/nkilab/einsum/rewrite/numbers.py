"""Numbers that a cascade computes of its extents alone: what reads them has the numbers themselves.

`M[n] = S[n] / C`, with the extent C of a rank, multiplies with a number; `Q[] = N . C` is one.
"""

from __future__ import annotations

from dataclasses import replace

from ..language.ast import Access, Cascade, Einsum, Iterate, Operand, Position, Scalar, Step
from ..language.operators import OPERATORS


def with_numbers(cascade: Cascade) -> Cascade:
    """A cascade whose extents are numbers wherever it computes with them; those that stay open apart."""
    numbers: dict[str, float] = {}
    known = {rank: size for rank, size in cascade.sizes.items() if rank not in cascade.opened}

    def plain(operand: Operand) -> Operand:
        if isinstance(operand, Access) and operand.tensor in numbers:
            return Scalar(value=numbers[operand.tensor])
        index = operand.index.at(known) if isinstance(operand, Position) else None
        return operand if index is None or index.terms else Scalar(value=float(index.constant))

    def changed(einsum: Einsum) -> Einsum:
        operands = tuple(map(plain, einsum.operands))
        if operands == einsum.operands:
            return einsum
        einsum = replace(einsum, operands=operands, text="")
        last = operands[-1]
        if einsum.map_op == "divide" and isinstance(last, Scalar) and not last.name and last.value:
            factor = Scalar(value=1.0 / last.value)
            return replace(einsum, operands=(operands[0], factor), map_op="multiply")
        return einsum

    steps: list[Step] = []
    for step in cascade.steps:
        changed_step = step.with_body([changed(e) for e in step.body])
        number = None if isinstance(changed_step, Iterate) else _number(changed_step, cascade)
        if number is None:
            steps.append(changed_step)
        else:
            numbers[step.body[0].name] = number
    tensors = {name: t for name, t in cascade.tensors.items() if name not in numbers}
    return replace(cascade, tensors=tensors, steps=tuple(steps))


def _number(einsum: Einsum, cascade: Cascade) -> float | None:
    """What an Einsum is of numbers alone; None if it is of more, returned, or written more than once."""
    values = [o.value for o in einsum.operands if isinstance(o, Scalar) and not o.name]
    is_once = [e.name for e in cascade.einsums].count(einsum.name) == 1
    is_plain = not (einsum.output.indices or einsum.condition or einsum.recurrence or einsum.reduced)
    if len(values) < len(einsum.operands) or not (is_once and is_plain) or einsum.name in cascade.outputs:
        return None
    if not einsum.map_op:
        return values[0]
    result = values[0] if len(values) > 1 else OPERATORS[einsum.map_op].function(values[0])
    for value in values[1:]:
        result = OPERATORS[einsum.map_op].function(result, value)
    return float(result)
