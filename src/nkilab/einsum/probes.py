"""Inputs that expose faults, and the verdict on a kernel that ran on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..tiles.dtypes import DType, as_dtype
from .language.ast import Cascade, Scalar
from .language.extents import sized
from .language.operators import OPERATORS
from .tolerance import Bounds, bounds, narrowest, rounding

PROBES = ("values centred on zero", "whole numbers", "a value per element", "large magnitudes")
LARGE = (1000.0, 100.0, 10.0)
# an error this large comes of terms that float32 does not hold, whatever they add up to
MOST_ALLOWED = 3.4e38 * rounding("float32")
# operators that give whole numbers for whole numbers
WHOLE = {
    "", "add", "multiply", "subtract", "maximum", "minimum", "equal", "not_equal", "greater", "greater_equal",
    "less", "less_equal", "negative", "abs", "relu", "sign", "square",
}  # fmt: skip
# largest magnitude and share of elements that are not zero, of whole numbers, until sums stay exact
AMPLITUDES = ((2, 1.0), (1, 1.0), (1, 0.25), (1, 0.05))
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Verdict:
    """One output of one run.

    Args:
        probe: name of the inputs.
        output: name of the tensor.
        error: absolute difference from the reference where it is largest against what is allowed there.
        bound: the error allowed there; 0 where the result must be exact.
        compared: elements that were compared.
        wrong: elements that are further off than allowed.
        where: index of the element told of.
    """

    probe: str
    output: str
    error: float
    bound: float
    compared: int
    wrong: int
    where: tuple[int, ...] = ()

    @property
    def is_fine(self) -> bool:
        """Whether every error is within its bound."""
        return not self.wrong

    def __str__(self) -> str:
        if not self.compared:
            return f"{self.output} on {self.probe}: left out, rounding decides what it is, or it overflows"
        if self.wrong:
            told = f"WRONG in {self.wrong} of {self.compared} elements, most at {list(self.where)}"
        else:
            told = "exact" if not self.bound and not self.error else "fine"
        return f"{self.output} on {self.probe}: error {self.error:.3g}, bound {self.bound:.3g}: {told}"


def probe(name: str, cascade: Cascade, dtypes: Mapping[str, str], seed: int = 0) -> tuple[Arrays, Bounds]:
    """Inputs of a name, their reference and bounds.

    Args:
        name: one of PROBES.
    """
    rng = np.random.default_rng([seed, PROBES.index(name)])
    arrays, held = _probe(name, cascade, dtypes, rng)
    if any(np.isnan(held.expected[t]).any() for t in cascade.written):
        # functions such as sqrt and log have no value below zero, or none there
        limits = index_limits(cascade)
        arrays = {
            t: a if t in limits else np.where(a == 0, 1, abs(a)).astype(a.dtype) for t, a in arrays.items()
        }
        held = bounds(cascade, arrays, dtypes)
    return arrays, held


def _probe(
    name: str, cascade: Cascade, dtypes: Mapping[str, str], rng: np.random.Generator
) -> tuple[Arrays, Bounds]:
    if name == "whole numbers":
        return _whole(cascade, dtypes, rng)
    if name == "large magnitudes":
        return _large(cascade, dtypes, rng)
    if name == "a value per element":
        arrays = drawn(cascade, dtypes, rng, lambda shape, dtype: _distinct(shape, dtype, rng))
    else:
        arrays = drawn(cascade, dtypes, rng, lambda shape, dtype: rng.standard_normal(shape))
    return arrays, bounds(cascade, arrays, dtypes)


def drawn(
    cascade: Cascade, dtypes: Mapping[str, str], rng: np.random.Generator, draw: Callable[[Any, DType], Any]
) -> Arrays:
    """Inputs in their types; tensors that hold indices get legal ones."""
    limits = index_limits(cascade)
    found = {}
    for tensor in cascade.inputs:
        held, shape = as_dtype(dtypes[tensor]), cascade.shape(tensor)
        if tensor in limits or held.is_integer:
            found[tensor] = rng.integers(0, limits.get(tensor, 3), shape).astype(held.storage)
        else:
            found[tensor] = np.asarray(draw(shape, held)).astype(held.storage)
    return found


def _whole(cascade: Cascade, dtypes: Mapping[str, str], rng: np.random.Generator) -> tuple[Arrays, Bounds]:
    """Whole numbers; where the cascade keeps them whole, so small that nothing is rounded."""
    arrays: Arrays = {}
    held = Bounds({}, {}, 0.0)
    for amplitude, share in AMPLITUDES:

        def draw(shape: Any, dtype: DType, most: int = amplitude, part: float = share) -> Any:
            return rng.integers(-most, most + 1, shape) * (rng.random(shape) < part)

        arrays = drawn(cascade, dtypes, rng, draw)
        held = bounds(cascade, arrays, dtypes)
        if not keeps_whole(cascade):
            return arrays, held
        if _is_exact(cascade, dtypes, held):
            exact = {name: np.zeros(e.shape) for name, e in held.allowed.items()}
            return arrays, Bounds(held.expected, exact, held.largest_sum)
    return arrays, held


def keeps_whole(cascade: Cascade) -> bool:
    """Whether a cascade gives whole numbers for whole numbers."""
    names = {n for e in cascade.einsums for n in (e.map_op, e.reduce_op)}
    numbers = [o.at(cascade.scalars) for e in cascade.einsums for o in e.operands if isinstance(o, Scalar)]
    numbers += [e.otherwise for e in cascade.einsums if e.condition is not None]
    return names <= WHOLE and all(v == int(v) for v in numbers if np.isfinite(v))


def _is_exact(cascade: Cascade, dtypes: Mapping[str, str], held: Bounds) -> bool:
    """Whether every number on the way is a whole one that its type has."""
    most = 1.0 / rounding(narrowest(cascade, dtypes))
    values = [held.expected[t] for t in cascade.written]
    finite = [v[np.isfinite(v)] for v in values]
    return held.largest_sum <= 2.0**24 and all(np.abs(v).max(initial=0.0) <= most for v in finite)


def _large(cascade: Cascade, dtypes: Mapping[str, str], rng: np.random.Generator) -> tuple[Arrays, Bounds]:
    """Numbers as large as the types of the results allow."""
    limit = _largest(narrowest(cascade, dtypes))
    arrays, held = {}, Bounds({}, {}, 0.0)
    for amplitude in LARGE:

        def draw(shape: Any, dtype: DType, most: float = amplitude) -> Any:
            return rng.uniform(-most, most, shape)

        arrays = drawn(cascade, dtypes, rng, draw)
        held = bounds(cascade, arrays, dtypes)
        if all(np.all(np.abs(held.expected[t]) < limit) for t in cascade.written):
            break
    return arrays, held


def _largest(dtype: str) -> float:
    values = _values(as_dtype(dtype))
    return float(np.abs(values).max()) if values is not None else 3.4e38


def _values(dtype: DType) -> np.ndarray | None:
    """Every finite value of a type of one or two bytes; None for longer ones."""
    if dtype.itemsize > 2:
        return None
    bits = np.arange(1 << (8 * dtype.itemsize), dtype=np.uint32).astype(f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        values = bits.view(dtype.storage).astype(np.float64)
    return np.unique(values[np.isfinite(values)])


def _distinct(shape: tuple[int, ...], dtype: DType, rng: np.random.Generator) -> np.ndarray:
    """A value per element, between -1 and 1; where a type has fewer, a prime number of them in turn."""
    size = int(np.prod(shape, dtype=np.int64))
    values = _values(dtype)
    if values is None:
        values = (np.arange(size) * 2 + 1) / max(size, 1) - 1.0
    else:
        # very small ones would not show beside large ones
        values = values[(np.abs(values) <= 1) & (np.abs(values) >= 2.0**-7)]
    values = rng.permutation(values)
    if size > len(values):
        primes = (n for n in range(len(values), 1, -1) if all(n % d for d in range(2, int(n**0.5) + 1)))
        values = values[: next(primes)]
    return np.resize(values, size).reshape(shape)


def index_limits(cascade: Cascade) -> dict[str, int]:
    """For tensors that hold indices, how many values these may have."""
    found: dict[str, int] = {}
    for tensor, rank in cascade.index_ranks:
        found[tensor] = min(found.get(tensor, cascade.sizes[rank]), cascade.sizes[rank])
    return found


def verdicts(
    run: Callable[..., Any], cascade: Cascade, dtypes: Mapping[str, str], seed: int = 0
) -> Iterator[Verdict]:
    """Run a kernel on all probes.

    Args:
        run: takes plain arrays in the order of the inputs, returns an array per output, or one alone.

    Elements whose reference is not finite, or beyond what the output's type holds, are not compared.
    """
    cascade = sized(cascade)
    for name in PROBES:
        arrays, held = probe(name, cascade, dtypes, seed)
        result = run(*arrays.values())
        results = result if isinstance(result, tuple | list) else (result,)
        for output, got in zip(cascade.outputs, results, strict=True):
            yield verdict(name, output, got, held, _largest(dtypes.get(output, "float32")))


def verdict(name: str, output: str, got: Any, held: Bounds, limit: float) -> Verdict:
    """What a result of a probe is worth."""
    expected, allowed = held.expected[output], held.allowed[output]
    values = np.asarray(got).astype(np.float64).reshape(expected.shape)
    with np.errstate(all="ignore"):
        counts = np.isfinite(expected) & (allowed < MOST_ALLOWED) & (np.abs(expected) + allowed < limit)
        off = np.where(np.isfinite(values), np.abs(values - expected), np.inf)
        wrong = counts & ~(off <= allowed)
        score = np.where(counts, np.where(wrong, 1.0 + off, off / np.maximum(allowed, 1e-300)), -1.0)
    compared = int(counts.sum())
    if not compared:
        return Verdict(name, output, 0.0, 0.0, 0, 0)
    at = np.unravel_index(int(np.argmax(score)), score.shape) if score.ndim else ()
    error, bound = float(off[at]), float(allowed[at])
    return Verdict(name, output, error, bound, compared, int(wrong.sum()), tuple(map(int, at)))


assert WHOLE - {""} <= set(OPERATORS)
