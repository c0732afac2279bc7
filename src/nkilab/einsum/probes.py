"""Inputs that expose faults, and the verdict on a kernel that ran on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..tiles.dtypes import as_dtype
from .language.ast import Cascade, Gather
from .reference import evaluate
from .tolerance import bounds

LARGE = 1000.0


@dataclass(frozen=True)
class Verdict:
    """One output of one run.

    Args:
        probe: name of the inputs.
        output: name of the tensor.
        error: largest absolute difference from the reference; infinite where one is finite and the other not.
        bound: largest error that rounding explains; 0 where the result is exact.
    """

    probe: str
    output: str
    error: float
    bound: float

    @property
    def is_fine(self) -> bool:
        """Whether the error is within the bound."""
        return self.error <= self.bound

    def __str__(self) -> str:
        told = "fine" if self.is_fine else "WRONG"
        return f"{self.output} on {self.probe}: error {self.error:.3g}, bound {self.bound:.3g}: {told}"


def probes(
    cascade: Cascade, dtypes: Mapping[str, str], seed: int = 0
) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Named inputs: centred on zero, whole numbers, one value per element, large magnitudes."""
    rng = np.random.default_rng(seed)
    kinds: tuple[tuple[str, Callable[[tuple[int, ...]], Any]], ...] = (
        ("values centred on zero", lambda shape: rng.standard_normal(shape)),
        ("whole numbers", lambda shape: rng.integers(-2, 3, shape)),
        ("a value per element", lambda shape: _ramp(shape)),
        ("large magnitudes", lambda shape: rng.uniform(-LARGE, LARGE, shape)),
    )
    limits = index_limits(cascade)
    for name, draw in kinds:
        found = {}
        for tensor in cascade.inputs:
            held, shape = as_dtype(dtypes[tensor]), cascade.shape(tensor)
            if held.name.lstrip("u").startswith("int"):
                found[tensor] = rng.integers(0, limits.get(tensor, 3), shape).astype(held.storage)
            else:
                found[tensor] = np.asarray(draw(shape)).astype(held.storage)
        yield name, found


def _ramp(shape: tuple[int, ...]) -> np.ndarray:
    """Distinct values between 1/4 and 1 in an order that no transpose keeps; none cancel."""
    size = int(np.prod(shape, dtype=np.int64))
    return 0.25 + 0.75 * (np.arange(size).reshape(shape) + 0.5) / max(size, 1)


def index_limits(cascade: Cascade) -> dict[str, int]:
    """For tensors that hold indices, how many values these may have."""
    found: dict[str, int] = {}
    for einsum in cascade.einsums:
        for access in einsum.accesses:
            for rank, index in zip(cascade.tensors[access.tensor].ranks, access.indices, strict=True):
                if isinstance(index, Gather):
                    held = found.get(index.access.tensor, cascade.sizes[rank])
                    found[index.access.tensor] = min(held, cascade.sizes[rank])
    return found


def verdicts(
    run: Callable[..., Any], cascade: Cascade, dtypes: Mapping[str, str], seed: int = 0
) -> Iterator[Verdict]:
    """Run a kernel on all probes.

    Args:
        run: takes plain arrays in the order of the inputs, returns an array per output, or one alone.
        cascade: with extents.
        dtypes: of inputs and outputs.
        seed: of the inputs.

    A probe whose reference is not finite, because the cascade overflows there, is left out.
    """
    for probe, arrays in probes(cascade, dtypes, seed):
        with np.errstate(all="ignore"):
            expected, allowed = bounds(cascade, arrays, dtypes, seed)
        if not all(np.isfinite(e).all() for e in expected.values()) or not all(
            map(np.isfinite, allowed.values())
        ):
            continue
        result = run(*arrays.values())
        results = result if isinstance(result, tuple | list) else (result,)
        for name, got in zip(cascade.outputs, results, strict=True):
            off = np.abs(np.asarray(got).astype(np.float64).reshape(expected[name].shape) - expected[name])
            error = float(off.max(initial=0.0)) if np.isfinite(off).all() else float("inf")
            yield Verdict(probe, name, error, allowed[name])


__all__ = ["Verdict", "evaluate", "probes", "verdicts"]
