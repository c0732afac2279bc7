"""`--numerics`: sums of which every addition is rounded to a type narrower than float32."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import cache

import ml_dtypes
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ..isa.operators import Operator
from ..tiles.dtypes import TFLOAT32, DType
from .declare import Example, rule
from .finding import Finding, Site
from .recording import Action, Memory, Operand

_OPTIONS = ("--numerics", "")
_SUMMED = """
tile = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)
total = nl.ndarray((128, 64), nl.{}, buffer=nl.sbuf)
out = nl.ndarray((128, 64), nl.bfloat16, buffer=nl.shared_hbm)
nisa.memset(total, 0.0)
for i in range(16):
    nisa.dma_copy(tile, x[i])
    nisa.tensor_tensor(total, total, tile, op=nl.add)
nisa.dma_copy(out, total)
return out
"""
NARROW_SUM = rule(
    "numerics-narrow-sum", "numerics", "warning",
    title="a long sum is rounded once",
    what="four additions or more are each rounded to a type narrower than float32, and the sum is further "
    "from that in float32 than one rounding explains",
    why="an addition is off by up to u, half a unit in the last place; the errors of n have either sign and "
    "grow as sqrt(n) u, so that four cost a bit of the type. A float32 sum, rounded once, is off by u",
    fix="accumulate in a float32 tile or in PSUM, and cast once at the end",
    source="Higham and Mary, A new approach to probabilistic rounding error analysis (2019)",
    kernel=Example(_SUMMED, {"x": "f32[16,128,64]"}, options=_OPTIONS), wrong="bfloat16", right="float32",
)  # fmt: skip

# additions from which their roundings cost a bit: sqrt(4) u
LONG = 4
# half a unit in the last place of float32, relative
_U_FLOAT32 = 2.0**-24


class _Sum(Struct, frozen=True):
    """A sum: its additions, and where it is furthest off the error, the largest element and its unit."""

    memory: Memory
    dtype: DType
    length: int
    error: float
    largest: float
    ulp: float


class NarrowSums:
    """The sums that a recording makes in narrow types, addition by addition."""

    def __init__(self, home: Callable[[Memory], object]) -> None:
        self._home = home
        self._lengths: dict[Hashable, int] = {}
        self._worst: dict[Site, _Sum] = {}

    def note(
        self, action: Action, result: Operand, stored: np.ndarray, exact: np.ndarray, site: Site
    ) -> None:
        """Measure what a row wrote, in its type and in float32, if it is a long sum.

        A sum in float32 that is rounded once is off by half a unit of its largest element, and by n u of
        float32: the bound that always holds is small enough there.
        """
        length, dtype = self._length(action, result), result.layout.dtype
        if length < LONG:
            return
        error, largest = float(np.abs(stored - exact).max()), float(np.abs(exact).max())
        ulp = float(ulp_of(np.array(largest), dtype))
        worst = self._worst.get(site)
        if worst is not None and error / ulp <= worst.error / worst.ulp:
            self._worst[site] = replace(worst, length=max(length, worst.length))
        elif error > ulp / 2 + length * _U_FLOAT32 * largest:
            self._worst[site] = _Sum(result.memory, dtype, length, error, largest, ulp)

    def _length(self, action: Action, result: Operand) -> int:
        """How many additions in a narrow type, one upon another, made a result; noted for the next one."""
        length = 0
        if result.layout.dtype.itemsize < 4 and _adds(action):
            summands = [action.operands[slot] for slot in action.form.read_slots]
            if action.form.reads_dst or action.form.reads_result(action.values):
                summands.append(result)
            length = 1 + max(self._lengths.get(self._key(o), 0) for o in summands)
        self._lengths[self._key(result)] = length
        return length

    def _key(self, operand: Operand) -> Hashable:
        return self._home(operand.memory), operand.offset, operand.layout

    def findings(self, name: Callable[[Memory], str]) -> Iterator[Finding]:
        """One per line that adds; `name` describes a memory."""
        for site, worst in self._worst.items():
            relative, units = worst.error / worst.largest, worst.error / worst.ulp
            yield NARROW_SUM.finding(
                f"{worst.length} additions to {name(worst.memory)} are rounded to {worst.dtype} each: "
                f"the sum is off by {relative:.2%} of its largest element, {units:.3g} units in the last "
                "place; rounded once it is off by half a unit",
                site,
            )  # fmt: skip


def _adds(action: Action) -> bool:
    """Whether a row adds one tile to another, or to what it writes."""
    form = action.form
    operators = [value for value in form.attribute_values if isinstance(value, Operator)]
    reads_result = form.reads_dst or form.reads_result(action.values)
    is_sum = any(op.name in ("add", "subtract") for op in operators)
    return (reads_result and (form.accumulates or is_sum)) or (is_sum and len(form.read_slots) > 1)


@cache
def _mantissa_bits(dtype: DType) -> int:
    if dtype is TFLOAT32:
        return 10
    return int(ml_dtypes.finfo(dtype.storage).nmant)


def ulp_of(values: np.ndarray, dtype: DType) -> np.ndarray:
    """The unit in the last place of numbers in a float type."""
    exponent = np.floor(np.log2(np.maximum(np.abs(values.astype(np.float64)), np.finfo(np.float32).tiny)))
    return np.exp2(exponent - _mantissa_bits(dtype))
