"""How far a kernel may be off: an error model from the types and the cascade itself.

Three runs of the reference tell how a cascade enlarges rounding: in float64, in float32, and in float64
from inputs that are off by one rounding of the narrowest type. The bound per output is the sum of what the
two others differ by, times a factor for the rounding of intermediate values, and one rounding of the
output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..tiles.dtypes import as_dtype
from .language.ast import Cascade
from .reference import evaluate

# relative rounding of a type: half a unit in the last place
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# roundings on the way that a bound makes room for, of float32 and of narrower types
FLOAT32_FACTOR, NARROW_FACTOR = 16.0, 4.0
# disturbed runs: a comparison that rounding may turn is turned in one of them
RUNS = 4
# operators that make whole numbers of whole numbers
EXACT = ("", "multiply", "add", "subtract", "maximum", "minimum", "equal")


def rounding(dtype: str) -> float:
    """Relative rounding error of a type; 0 for whole numbers."""
    known = ROUNDING.get(dtype)
    if known is not None:
        return known
    held = as_dtype(dtype)
    return 2.0 ** -(held.mantissa_bits + 1) if held.mantissa_bits else 0.0


def _disturbed(
    cascade: Cascade, arrays: Mapping[str, Any], relative: float, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Inputs each of whose elements is a little larger or smaller."""
    found = {}
    for name in cascade.inputs:
        values = np.asarray(arrays[name])
        off = 1 + relative * rng.choice([-1.0, 1.0], values.shape)
        found[name] = values if values.dtype.kind in "iu" else values.astype(np.float64) * off
    return found


def bounds(
    cascade: Cascade, arrays: Mapping[str, Any], dtypes: Mapping[str, str], seed: int = 0
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """The reference of every output, and the largest absolute error that is not a fault.

    Args:
        cascade: with extents.
        arrays: inputs, already rounded to their types.
        dtypes: of inputs and outputs.
        seed: of the disturbed inputs.
    """
    exact = evaluate(cascade, arrays)
    single = evaluate(cascade, arrays, np.float32)
    rng = np.random.default_rng(seed)
    unit = max(
        (rounding(dtypes.get(t, "float32")) for t in (*cascade.inputs, *cascade.outputs)), default=2.0**-24
    )
    units = FLOAT32_FACTOR if unit < 2.0**-20 else NARROW_FACTOR
    moved = [evaluate(cascade, _disturbed(cascade, arrays, units * unit, rng)) for _ in range(RUNS)]
    found = {}
    for name in cascade.outputs:
        scale = float(np.abs(exact[name]).max(initial=0.0))
        by_float32 = float(np.abs(single[name].astype(np.float64) - exact[name]).max(initial=0.0))
        by_inputs = max(float(np.abs(m[name] - exact[name]).max(initial=0.0)) for m in moved)
        last = rounding(dtypes.get(name, "float32"))
        found[name] = FLOAT32_FACTOR * by_float32 + by_inputs + 2 * (last + unit) * scale
        if _is_exact(cascade, arrays, dtypes, exact[name], single[name]):
            found[name] = 0.0
    return {name: exact[name] for name in cascade.outputs}, found


def _is_exact(
    cascade: Cascade,
    arrays: Mapping[str, Any],
    dtypes: Mapping[str, str],
    exact: np.ndarray,
    single: np.ndarray,
) -> bool:
    """Whether whole inputs give whole results that float32 holds at every step: then nothing is rounded."""
    if any(dtypes.get(t, "float32") in ("float16", "bfloat16") for t in (*cascade.inputs, *cascade.outputs)):
        return False
    if any(e.map_op not in EXACT for e in cascade.einsums) or cascade.scalars:
        return False
    held = [np.asarray(arrays[name]) for name in cascade.inputs]
    whole = all((a == np.rint(a.astype(np.float64))).all() for a in held)
    return whole and bool((single.astype(np.float64) == exact).all()) and bool((np.abs(exact) < 2**22).all())
