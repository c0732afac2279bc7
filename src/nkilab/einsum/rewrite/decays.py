"""Coefficients of recurrences that are decays: numbers from -1 to 1, whatever the inputs are.

Products of decays stay within float32, whatever there is to multiply; what they lose of a state where they
underflow is less than the least number times it, and no later turn makes it more. A product of others may be
infinite where the state is 0, or 0 where later turns grow: then a recurrence turn by turn is right, and
products of its coefficients are not. The proof is by intervals: what an operator that is monotone in each of
its operands makes of intervals lies between what it makes of their ends.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import reduce
from itertools import product
from math import inf, isnan, prod

import numpy as np

from ..language.ast import Access, Cascade, Einsum, Operand, Scalar
from ..language.operators import OPERATORS

Interval = tuple[float, float]
EVERY: Interval = (-inf, inf)
# operators that are monotone in each operand; the others are where no operand is negative
MONOTONE = {"", "add", "multiply", "maximum", "minimum", "subtract", "subtract_exp", "negative", "exp",
            "relu", "sigmoid", "tanh", "softplus", "erf", "arctan", "sign"}  # fmt: skip
MONOTONE_ABOVE = {"abs", "square", "sqrt", "rsqrt", "reciprocal", "divide", "power", "log"}
RANGES: dict[str, Interval] = {"abs": (0.0, inf), "square": (0.0, inf)}
RANGES |= dict.fromkeys(("sin", "sine", "cosine"), (-1.0, 1.0)) | dict.fromkeys(
    ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal"), (0.0, 1.0)
)


def is_decay(operand: Operand, cascade: Cascade) -> bool:
    """Whether every value of an operand is known to lie between -1 and 1."""
    low, high = _interval(operand, cascade, frozenset())
    return low >= -1.0 and high <= 1.0


def _interval(operand: Operand, cascade: Cascade, inside: Set[str]) -> Interval:
    """Where the values of an operand lie, inside of what tensors are computed of."""
    if isinstance(operand, Scalar):
        return (operand.at(cascade.scalars),) * 2
    writers = [e for e in cascade.einsums if isinstance(operand, Access) and e.name == operand.tensor]
    if not writers or {*inside} & {e.name for e in writers} or any(e.recurrence for e in writers):
        return EVERY
    every = [_written(e, cascade, {*inside, e.name}) for e in writers]
    return min(low for low, _ in every), max(high for _, high in every)


def _written(einsum: Einsum, cascade: Cascade, inside: Set[str]) -> Interval:
    """Where what an Einsum writes lies."""
    op, known = einsum.map_op, [_interval(o, cascade, inside) for o in einsum.operands]
    is_folded = bool(op) and not OPERATORS[op].arity
    value = reduce(lambda a, b: _applied(op, (a, b)), known) if is_folded else _applied(op, known)
    if einsum.condition is not None:
        value = min(value[0], einsum.otherwise), max(value[1], einsum.otherwise)
    if einsum.reduce_op == "add":
        count = prod(cascade.extent(v, einsum) for v in einsum.reduced)
        return min(value[0], count * value[0]), max(value[1], count * value[1])
    is_kept = einsum.reduce_op != "multiply" or (value[0] >= -1.0 and value[1] <= 1.0)
    return value if is_kept else EVERY


def _applied(op: str, operands: Sequence[Interval]) -> Interval:
    """Where the results of an operator lie."""
    if op == "where":
        return min(low for low, _ in operands[1:]), max(high for _, high in operands[1:])
    is_above = op in MONOTONE_ABOVE and all(low >= 0.0 for low, _ in operands)
    if op not in MONOTONE and not is_above:
        return RANGES.get(op, EVERY)
    if not op:
        return operands[0]
    with np.errstate(all="ignore"):
        ends = [float(OPERATORS[op].function(*map(np.float64, corner))) for corner in product(*operands)]
    if op == "multiply":
        # of finite numbers, of which one is 0
        ends = [0.0 if isnan(end) else end for end in ends]
    return EVERY if any(map(isnan, ends)) else (min(ends), max(ends))
