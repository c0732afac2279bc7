"""How far a kernel may be off: the rounding errors of a cascade, followed element by element.

Every value x of the cascade has a bound E on how far a kernel's value may be from it. Inputs are exact: the
reference reads them as rounded to their types. Numbers are rounded to float32. An Einsum gives its result

    map        the largest change of the operator when operands move within their bounds, and u|f|
    sum of n   the sum of the bounds, and g(n) u times the sum of magnitudes; max and min: the largest
    product    of k operands: the sum of prod(|x|+E) - prod|x|, and (k + g(n)) u times the sum of prod(|x|+E);
               of three and more, what they are multiplied to in pairs may be kept, too: (k - 2) m times it
    store      one rounding of the narrowest type that a kernel may keep the result in, m |x|, and what
               underflows there: that of an input or an output, where all inputs are narrower than float32;
               one of a single byte only if it is its own

with u = 2^-24, what float32 loses; 2^-20 for functions of ScalarE; 2^-19, and 2^-48 of the angle, for those
of angles of any size. Summing n terms in any order loses at most n u of the sum of magnitudes, more than
8 sqrt(n) u with a probability below 2 exp(-32) where roundings are independent of one another (Higham and
Mary, "A new approach to probabilistic rounding error analysis", 2019): g(n) = min(n, 8 sqrt(n)). A kernel may
compute in another order than the cascade is written in: the bounds of outputs are doubled. A value that may
be beyond float32 has no bound, nor has what is computed of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod, sqrt
from typing import Any

import ml_dtypes
import numpy as np

from ..tiles.dtypes import as_dtype
from .language.ast import Access, Cascade, Einsum, Scalar
from .language.extents import runs_of
from .language.operators import OPERATORS, Operator, taken_apart
from .reference import MOST_AT_ONCE, Evaluator

FLOAT32_UNIT, FUNCTION_UNIT, ANGLE_UNIT = 2.0**-24, 2.0**-20, 2.0**-48
# numbers of all inputs, at least, beside each that is a scale in float32
SCALED = 16
ORDER_FACTOR = 2.0
# standard deviations of a random walk of roundings
DEVIATIONS = 8.0
Pair = tuple[Any, Any]


def rounding(dtype: str) -> float:
    """Relative rounding error of a type; 0 for whole numbers."""
    held = as_dtype(dtype)
    return 2.0 ** -(held.mantissa_bits + 1) if held.is_float else 0.0


def unit_of(dtype: str) -> float:
    """Relative error of what is computed in float32 and stored."""
    return max(rounding(dtype), FLOAT32_UNIT)


def underflow(dtype: str) -> float:
    """Absolute error where a type ends: its least number, or the least normal one of float32."""
    held = as_dtype(dtype)
    least = float(np.finfo(np.float32).tiny)
    if not held.is_float or held.itemsize > 2 or held.name == "bfloat16":
        return least
    return max(least, float(ml_dtypes.finfo(held.storage).smallest_subnormal))


def narrowest(cascade: Cascade, dtypes: Mapping[str, str]) -> str:
    """The float type of inputs and outputs that loses most."""
    every = [dtypes.get(t, "float32") for t in (*cascade.inputs, *cascade.outputs)]
    return max((d for d in every if as_dtype(d).is_float), key=rounding, default="float32")


def is_narrow(cascade: Cascade, dtypes: Mapping[str, str]) -> bool:
    """Whether inputs are narrower than float32, so that a kernel may round what it computes as they are.

    Whole numbers do not count, nor do a few numbers in float32, by which the others are scaled.
    """
    read = {t: dtypes.get(t, "float32") for e in cascade.einsums for t in e.reads if t in cascade.inputs}
    floats = {t: prod(cascade.shape(t)) for t, dtype in read.items() if rounding(dtype)}
    wide = sum(size for t, size in floats.items() if rounding(read[t]) <= FLOAT32_UNIT)
    return wide < sum(floats.values()) >= wide * SCALED


def between(cascade: Cascade, dtypes: Mapping[str, str]) -> str:
    """The type that loses most in which a kernel may keep what lies between: it has two bytes at least."""
    dtype = narrowest(cascade, dtypes) if is_narrow(cascade, dtypes) else "float32"
    return "bfloat16" if as_dtype(dtype).storage.itemsize == 1 else dtype


@dataclass(frozen=True)
class Bounds:
    """The reference and how far off a kernel may be."""

    expected: Mapping[str, np.ndarray]  # every tensor, in float64
    # per output, the largest absolute error of each element that is not a fault
    allowed: Mapping[str, np.ndarray]
    largest_sum: float  # the largest sum of magnitudes that an Einsum adds up


def bounds(cascade: Cascade, arrays: Mapping[str, Any], dtypes: Mapping[str, str]) -> Bounds:
    """The reference of a cascade, and the bounds of its outputs.

    Args:
        arrays: inputs, rounded to their types.
    """
    with np.errstate(all="ignore"):
        errors = _Errors(cascade, arrays, dtypes)
        for einsum, bound in runs_of(cascade):
            errors.run(einsum, bound)
        allowed = {}
        for name in cascade.outputs:
            size, dtype = np.abs(errors.values.held[name]), dtypes.get(name, "float32")
            allowed[name] = (
                ORDER_FACTOR * errors.spread.held[name] + rounding(dtype) * size + underflow(dtype)
            )
    return Bounds(errors.values.held, allowed, errors.largest_sum)


# operators that give one of their operands
EXACT = {"", "maximum", "minimum"}


def walk(count: int) -> float:
    """g(n): roundings that n additions are taken to lose together."""
    return min(float(count), DEVIATIONS * sqrt(count))


class _Errors:
    """Runs Einsums on values and bounds: `values`, `spread` (E), `low` (|x|), `high` (|x| + E)."""

    def __init__(self, cascade: Cascade, arrays: Mapping[str, Any], dtypes: Mapping[str, str]) -> None:
        self.cascade, self.largest_sum = cascade, 0.0
        self.makers: dict[str, Einsum] = {}
        self.between = between(cascade, dtypes)
        outputs = ((t, dtypes.get(t, "float32")) for t in cascade.outputs)
        self.stored = {t: max(self.between, d, key=rounding) for t, d in outputs if as_dtype(d).is_float}
        held = {t: np.zeros(cascade.shape(t)) for t in cascade.tensors}
        for name in cascade.inputs:
            given = np.asarray(arrays[name])
            held[name] = given if given.dtype.kind in "iu" else given.astype(np.float64)
        self.values = Evaluator(cascade, held, np.float64)
        self.spread = Evaluator(cascade, {t: np.zeros(cascade.shape(t)) for t in cascade.tensors}, np.float64)
        self.low = Evaluator(cascade, {t: np.abs(v).astype(np.float64) for t, v in held.items()}, np.float64)
        self.high = Evaluator(cascade, dict(self.low.held), np.float64)
        for name in cascade.written:
            self.low.held[name], self.high.held[name] = (np.zeros(cascade.shape(name)) for _ in range(2))

    def run(self, einsum: Einsum, bound: Mapping[str, int]) -> None:
        self.makers[einsum.name] = einsum
        kept = [v for v in einsum.output.variables if v not in bound]
        value = self.values.value(einsum, bound, kept)
        error = self.error(einsum, bound, kept)
        size = np.where(np.isinf(value), 0.0, np.abs(value))
        if not {einsum.map_op, einsum.reduce_op} <= EXACT:
            stored = self.stored.get(einsum.name, self.between)
            most = size + error
            error = error + unit_of(stored) * most + np.where(most > 0, underflow(stored), 0.0)
        # float32 ends there: what a kernel has then is not known
        ends = np.isfinite(value) & (size + error > np.finfo(np.float32).max)
        error = np.where(ends, np.inf, error)
        evaluators = (self.values, self.spread, self.low, self.high)
        for evaluator, array in zip(evaluators, (value, error, np.abs(value), np.abs(value) + error)):
            evaluator.store(einsum, bound, kept, array)

    def error(self, einsum: Einsum, bound: Mapping[str, int], kept: list[str]) -> np.ndarray:
        """The bound over the variables in `kept`."""
        if einsum.is_choice:
            return self.of_choice(einsum, bound, kept)
        reduced = [v for v in einsum.reduced if v not in bound]
        count = prod(self.cascade.extent(v, einsum) for v in reduced)
        pairs = max(0, len(einsum.accesses) - 2) if einsum.map_op == "multiply" else 0
        pairwise = pairs * unit_of(self.between)
        if self.values.is_product(einsum, bound):
            extents = [self.cascade.extent(v, einsum) for v in kept]
            low, high = (np.abs(e.product(einsum, bound, kept, extents)) for e in (self.low, self.high))
            self.largest_sum = max(self.largest_sum, float(high.max(initial=0.0)))
            rounded = sum(self.off(o, {}, []) > 0 for o in einsum.operands if isinstance(o, Scalar))
            roundings = len(einsum.operands) - 1 + rounded + (walk(count) if reduced else 0)
            return np.asarray(high - low + (roundings * FLOAT32_UNIT + pairwise) * high)
        first, second = self.reduced(einsum, bound, kept)
        lost = walk(count) * FLOAT32_UNIT + pairwise
        if einsum.reduce_op == "add" and reduced:
            self.largest_sum = max(self.largest_sum, float(np.max(second, initial=0.0)))
            return np.asarray(first + lost * second)
        if einsum.reduce_op == "multiply" and reduced:
            return np.asarray(second - first + lost * second)
        return np.asarray(first + pairwise * second if pairwise else first)

    def of_choice(self, einsum: Einsum, bound: Mapping[str, int], kept: list[str]) -> np.ndarray:
        """The bound of the largest values; their places are any where errors may change their order."""
        values, spread = (e.along(einsum, bound, kept) for e in (self.values, self.spread))
        most = np.broadcast_to(spread.max(axis=-1, keepdims=True), values.shape)
        if einsum.recurrence is not None and einsum.recurrence.kind == "places":
            gaps = -np.diff(-np.sort(-values, axis=-1), axis=-1)
            near = ~(gaps > 2 * most[..., 1:]) & ((most[..., 1:] > 0) | np.isnan(gaps))
            either = np.pad(near, [(0, 0)] * (near.ndim - 1) + [(1, 1)])
            most = np.where(either[..., 1:] | either[..., :-1], np.inf, 0.0)
        return self.values.first(einsum, kept, most)

    def reduced(self, einsum: Einsum, bound: Mapping[str, int], kept: list[str]) -> Pair:
        """Bounds and magnitudes after the reduction; for products of elements, those of |x| and |x| + E."""
        reduced = [v for v in einsum.reduced if v not in bound]
        order = kept + reduced
        extents = [self.cascade.extent(v, einsum) for v in order]
        if prod(extents) > MOST_AT_ONCE and order:
            joined = {"add": np.add, "multiply": np.multiply}.get(einsum.reduce_op, np.maximum)
            first, second = self.values.in_parts(
                einsum, bound, kept, lambda b, k: self.reduced(einsum, b, k), joined
            )
            return first, second
        value, error = self.mapped(einsum, bound, order, extents)
        value, error = (np.broadcast_to(a, extents) for a in (value, error))
        if chosen := self.chosen_along(einsum, order):
            # one of them is the best: the only one that may be
            error = np.where((error > 0).sum(axis=chosen, keepdims=True) > 1, error, 0.0)
        size = np.abs(value)
        if not reduced:
            return error, size
        axes = tuple(range(len(kept), len(order)))
        if einsum.reduce_op == "multiply":
            return np.prod(size, axis=axes), np.prod(size + error, axis=axes)
        if einsum.reduce_op == "add":
            return np.sum(error, axis=axes), np.sum(size + error, axis=axes)
        best: Any = OPERATORS[einsum.reduce_op].function
        low, middle, high = (best.reduce(v, axis=axes) for v in (value - error, value, value + error))
        spread = np.maximum(high - middle, middle - low)
        return np.where(np.isnan(spread), np.inf, spread), np.max(size + error, axis=axes)

    def mapped(self, einsum: Einsum, bound: Mapping[str, int], order: list[str], extents: list[int]) -> Pair:
        """Value and bound of the map operator over a grid."""
        grids = self.values.grids(einsum, order, bound)
        pairs = [
            (self.values.operand(o, grids, extents), self.off(o, grids, extents)) for o in einsum.operands
        ]
        if einsum.map_op == "equal" and einsum.positions:
            # places are whole numbers: what is less off is none
            pairs = [(v, np.where(e < 0.5, 0.0, e)) for v, e in pairs]
        value, error = applied(OPERATORS[einsum.map_op], pairs) if einsum.map_op else pairs[0]
        if einsum.condition is not None:
            truth = self.values.truth(einsum.condition, grids)
            value, error = np.where(truth, value, einsum.otherwise), np.where(truth, error, 0.0)
        return value, error

    def chosen_along(self, einsum: Einsum, order: list[str]) -> tuple[int, ...]:
        """The axes along which values are compared with the largest or the smallest of them; () if not."""
        is_summed = not {*order} <= {*einsum.output.variables}
        if einsum.map_op != "equal" or is_summed or len(einsum.accesses) != 2:
            return ()
        values, best = einsum.accesses
        maker = self.makers.get(best.tensor)
        if maker is None or maker.reduce_op not in EXACT or maker.map_op or maker.condition:
            return ()
        names = dict(zip(maker.output.variables, best.variables, strict=False))
        read = [a.renamed(names) for a in maker.accesses]
        return tuple(n for n, v in enumerate(order) if v not in best.variables) if read == [values] else ()

    def off(self, operand: Any, grids: Mapping[str, Any], extents: list[int]) -> Any:
        """The bounds of an operand over a grid; none where an index that a tensor holds may be another."""
        if isinstance(operand, Scalar):
            number = np.float64(operand.at(self.cascade.scalars))
            return np.abs(np.float32(number) - number) if np.isfinite(number) else np.float64(0)
        if not isinstance(operand, Access):
            return np.float64(0)
        indices = {g.access.tensor: self.values.held[g.access.tensor] for g in operand.gathers}
        held = Evaluator(self.cascade, {**self.spread.held, **indices}, np.float64)
        own = (self.spread.operand(g.access, grids, extents) for g in operand.gathers)
        return sum((np.where(e < 0.5, 0.0, np.inf) for e in own), held.operand(operand, grids, extents))


def applied(op: Operator, pairs: Sequence[Pair]) -> Pair:
    """Value and bound of an operator on values with bounds."""
    if op.is_angular:
        ((angle, error),) = pairs
        return op.function(angle), np.minimum(error + 2 * FUNCTION_UNIT + ANGLE_UNIT * np.abs(angle), 2.0)
    if op.steps:
        return taken_apart(op, pairs, lambda n, own: applied(OPERATORS[n], own), lambda x: (np.float64(x), 0))
    if not op.arity and len(pairs) > 1:
        total = pairs[0]
        for pair in pairs[1:]:
            total = _moved(op, [total, pair])
        return total
    return _moved(op, pairs)


def _moved(op: Operator, pairs: Sequence[Pair]) -> Pair:
    """The largest change when operands move within their bounds, and one rounding."""
    value = op.function(*(v for v, _ in pairs))
    error: Any = np.float64(0)
    for moved in _corners(pairs):
        corner = op.function(*moved)
        change = np.where(corner == value, 0.0, np.abs(corner - value))
        # a pole within the bounds: nothing is known
        error = np.maximum(error, np.where(np.isnan(change) & ~np.isnan(value), np.inf, change))
    unit = FUNCTION_UNIT if op.activation else FLOAT32_UNIT
    return value, error + np.where(np.isinf(value), 0.0, unit * np.abs(value))


def _corners(pairs: Sequence[Pair]) -> Iterator[Sequence[Any]]:
    """Operands at the ends of their bounds, and as near to zero and to each other as these let them."""
    ends = [(v - e, v + e) for v, e in pairs]
    yield from product(*((low, high, np.clip(0.0, low, high)) for low, high in ends))
    for (first, *_), (low, high) in product([pairs[0]], ends[1:]) if len(pairs) == 2 else ():
        yield (near := np.clip(np.clip(first, low, high), *ends[0])), np.clip(near, low, high)
