"""Instructions that only GpSimdE runs."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import RuleError
from ..tiles.convert import cast
from ..tiles.dtypes import INT32
from . import common_rules
from .costs import engine_step
from .declare import Example, Immediate, Instruction, Out, Spelled, Step, call_rule


def access_pattern(spelled: Any) -> tuple[tuple[int, int], ...]:
    """The (step, count) pairs that a list of pairs spells."""
    try:
        return tuple((int(step), int(count)) for step, count in spelled)
    except (TypeError, ValueError):
        raise RuleError(f"pattern is {spelled!r}; it must be a list of up to four [step, count]") from None


def is_int32(value: Any) -> bool:
    """Whether a value is an integer of 32 bits with a sign."""
    return isinstance(value, int | np.integer) and -(2**31) <= int(value) < 2**31


@lru_cache(maxsize=16)
def affine_values(
    pattern: tuple[tuple[int, int], ...], partitions: int, offset: int, channel_multiplier: int
) -> np.ndarray:
    """offset + channel_multiplier * p + sum of step * i as int32 [partitions, N], which wraps around."""
    free = np.zeros((1,), np.int64)
    for step, count in pattern:
        free = (free[:, None] + step * np.arange(count)).reshape(-1)
    rows = channel_multiplier * np.arange(partitions, dtype=np.int64)
    values = (offset + rows[:, None] + free).astype(np.int32)
    values.flags.writeable = False
    return values


class Iota(Instruction):
    """Write an affine pattern: dst[p, i...] = offset + channel_multiplier * p + sum of step * i.

    Computed in 32-bit integers, which wrap around, and cast to the type of dst.
    """

    engines = ("gpsimd",)
    dst = Out("P F*", ("sbuf",))
    pattern = Spelled(access_pattern, "a list of up to four [step, count]")
    offset = Immediate(0, "an int32")
    channel_multiplier = Immediate(0, "an int32")
    smallest = {"pattern": [[1, 16]]}
    example = Example(
        {},
        {"dst": [[5, 7, 9], [15, 17, 19]]},
        {"pattern": [[2, 3]], "offset": 5, "channel_multiplier": 10},
        dtypes={"dst": "int32"},
    )

    pattern_has_up_to_four_axes = common_rules.PATTERN_HAS_UP_TO_FOUR_AXES
    pattern_fills_dst = common_rules.pattern_fills_dst()

    @call_rule("offset or channel_multiplier is not an int32", broken_by={"offset": 2**40})
    def values_are_int32(self, offset: Any, channel_multiplier: Any) -> bool:
        return is_int32(offset) and is_int32(channel_multiplier)

    def compute(self, dst: Any, offset: Any, channel_multiplier: Any) -> None:
        values = affine_values(self.pattern, dst.shape[0], offset, channel_multiplier)
        cast(dst, self.dst.dtype, values.reshape(dst.shape), INT32)

    def cost(self) -> list[Step]:
        # 2.26 costs: 150 + N
        return [engine_step(self.machine, "gpsimd", "IOTA", self.sizes["F*"])]
