"""Reductions along the free axes on VectorE."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ..errors import RuleError
from ..tiles.convert import store, widen
from ..tiles.dtypes import BFLOAT16
from ..tiles.tile import SBUF, Layout
from . import common_rules
from .costs import engine_step
from .declare import Example, Flag, Fresh, In, Instruction, Out, Spelled, Step, rule
from .elementwise import ALU, is_integer, store_bits
from .operators import OPERATORS, operator_named


def _axes(spelled: Any) -> tuple[int, ...]:
    if isinstance(spelled, int):
        return (int(spelled),)
    try:
        return tuple(int(a) for a in spelled)
    except (TypeError, ValueError):
        raise RuleError(f"axis is {spelled!r}; it must be an integer or a list of them") from None


class TensorReduce(Instruction):
    """Reduce the last free axes with one operator, in float32, rounded once: dst = op over `axis` of data.

    The axes reduced are neighbours and end at the last one; the partition axis never is. `negate`
    multiplies the result by -1. Bitwise operators work on integers as they are.
    """

    engines = ("vector",)
    dst = Out("P R*")
    op = Spelled(operator_named, ", ".join(n for n, o in OPERATORS.items() if o.reduces))
    data = In("P F*")
    axis = Spelled(_axes, "an integer or a list of integers")
    negate = Flag()
    keepdims = Flag()
    smallest = {"R": 1}
    example = Example({"data": [[1, 5, 3], [-1, -5, -3]]}, {"dst": [[5], [-1]]}, {"op": "maximum", "axis": 1})

    @cached_property
    def reduced(self) -> tuple[int, ...]:
        """The axes of data that are reduced, ascending and non-negative."""
        return normalized_axes(self.axis, len(self.data.shape))

    @rule("op may not reduce", source=ALU, broken_by={"op": "greater"})
    def operator_reduces(self) -> bool:
        return self.op.reduces

    @rule(
        "axis holds 0, the partition axis; only free axes are reduced", source="nki.isa.tensor_reduce",
        broken_by={"axis": 0}, hint="transpose the tile first, or multiply by a column of ones on TensorE",
    )  # fmt: skip
    def partition_axis_stays(self) -> bool:
        return 0 not in self.reduced

    @rule(
        "axis does not name the last axes, side by side",
        broken_by={"axis": 1, "data.shape": (16, 4, 4)},
        hint="reorder the axes of the view so that those to reduce stand last",
    )
    def axes_are_the_last(self) -> bool:
        ndim = len(self.data.shape)
        return self.reduced == tuple(range(ndim - len(self.reduced), ndim)) and bool(self.reduced)

    @rule("dst does not hold one element for each that remains of data", broken_by={"dst.shape": (16, 2)})
    def result_fits(self) -> bool:
        if 0 in self.reduced:
            return True
        kept = prod(n for a, n in enumerate(self.data.shape) if a not in self.reduced and a > 0)
        return self.dst.free_size == kept

    @rule("op is bitwise and an operand is not of an integer type", broken_by={"op": "bitwise_or"})
    def bitwise_needs_integers(self) -> bool:
        return not self.op.is_bitvec or (is_integer(self.dst) and is_integer(self.data))

    @rule(
        "negate is True with a bitwise op; it multiplies by -1, which is arithmetic",
        broken_by={"op": "bitwise_or", "negate": True, "dst.dtype": "int32", "data.dtype": "int32"},
    )
    def only_arithmetic_negates(self) -> bool:
        return not (self.negate and self.op.is_bitvec)

    operator_exists = common_rules.operators_exist("op")

    @classmethod
    def fresh(cls, layouts: Mapping[str, Any], attributes: Mapping[str, Any]) -> Fresh:
        """data without the axes reduced, or with one in their place if keepdims; of the type of data."""
        data: Layout = layouts["data"]
        axes = normalized_axes(attributes["axis"], len(data.shape))
        if attributes["keepdims"]:
            shape = tuple(1 if a in axes else n for a, n in enumerate(data.shape))
        else:
            shape = tuple(n for a, n in enumerate(data.shape) if a not in axes)
            shape = shape if len(shape) > 1 else (*shape, 1)
        return Fresh(shape, data.dtype, SBUF)

    def compute(self, dst: Any, data: Any) -> None:
        function: Any = self.op.function
        rows = data.reshape(*data.shape[: -len(self.reduced)], -1)
        if self.op.is_bitvec:
            store_bits(dst, function.reduce(rows, axis=-1).reshape(dst.shape), self.dst.dtype)
            return
        wide = widen(rows, self.data.dtype)
        if isinstance(function, np.ufunc):
            result = function.reduce(wide, axis=-1)
        else:
            # logical and magnitude operators: fold over the elements one after another
            result = wide[..., 0] if wide.shape[-1] > 1 else function(wide[..., 0], wide[..., 0])
            for k in range(1, wide.shape[-1]):
                result = function(result, wide[..., k])
        store(dst, (-result if self.negate else result).reshape(dst.shape), self.dst.dtype)

    def cost(self) -> list[Step]:
        # 2.26 costs: N, or N/2 where both types are bfloat16 and op is add or maximum
        fast = self.data.dtype is BFLOAT16 is self.dst.dtype and self.op.name in ("add", "maximum")
        return [engine_step(self.machine, "vector", "TENSOR_REDUCE", self.sizes["F*"] / (2 if fast else 1))]


def normalized_axes(axes: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Axes as ascending non-negative numbers.

    Raises:
        RuleError: if one is not an axis of such a tile.
    """
    if any(not -ndim <= a < ndim for a in axes):
        raise RuleError(f"axis is {list(axes)}; the tile has {ndim} axes", source="nki.isa.tensor_reduce")
    return tuple(sorted({a % ndim for a in axes}))
