"""Movement between partitions on VectorE."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ..errors import RuleError
from . import common_rules
from .costs import engine_step
from .declare import EVERY_DTYPE, PARTITIONS, Example, In, Instruction, Limit, Out, Spelled, Step, rule
from .elementwise import as_shape

SOURCE = "nki.isa.nc_stream_shuffle"
QUADRANT = 32
KEEP = 255


def _mask(spelled: Any) -> tuple[int, ...]:
    try:
        mask = tuple(int(m) for m in spelled)
    except (TypeError, ValueError):
        raise RuleError(f"shuffle_mask is {spelled!r}; it must be a list of 32 integers") from None
    if len(mask) != QUADRANT:
        raise RuleError(f"shuffle_mask has {len(mask)} elements; it must have 32", source=SOURCE)
    wrong = next((m for m in mask if not 0 <= m < QUADRANT and m != KEEP), None)
    if wrong is not None:
        raise RuleError(f"shuffle_mask holds {wrong}; it must hold 0 to 31, or 255", source=SOURCE)
    return mask


class NcStreamShuffle(Instruction):
    """Move rows within each quadrant of 32 partitions: row i of dst becomes row shuffle_mask[i] of src.

    A 255 in `shuffle_mask` leaves the row of dst as it is. Every quadrant uses the same mask. dst and src may
    be one tile, and may have different numbers of partitions; bits move as they are.
    """

    engines = ("vector",)
    dst = Out("P F*", dtypes=EVERY_DTYPE)
    src = In("S F*", dtypes=EVERY_DTYPE)
    shuffle_mask = Spelled(_mask, "a list of 32 integers")
    limits = (Limit("S", PARTITIONS.constant, PARTITIONS.source, PARTITIONS.key),)
    smallest = {"S": 128}
    example = Example(
        {"dst": [[7, 7], [8, 8], [9, 9]], "src": [[1, 2], [3, 4], [5, 6]]},
        {"dst": [[5, 6], [8, 8], [1, 2]]},
        {"shuffle_mask": [2, KEEP, 0, *range(3, QUADRANT)]},
    )

    types_agree = common_rules.types_agree(
        "dst", "src", "dst and src have different types; they must have the same",
        broken_by={"src.dtype": "bfloat16"}, hint="cast one of them with tensor_copy first",
    )  # fmt: skip

    @rule(
        "dst or src starts where the larger of them may not: up to 32 partitions start at 0, 32, 64 or 96, "
        "up to 64 at 0 or 64, more at 0",
        broken_by={"src.start": 32, "P": 64, "S": 32},
    )
    def both_start_with_the_larger(self) -> bool:
        most = max(self.sizes["P"], self.sizes["S"])
        step = 32 if most <= 32 else 64 if most <= 64 else 128
        return self.dst.start_partition % step == 0 == self.src.start_partition % step

    @rule(
        "shuffle_mask names a row that src does not have in this quadrant",
        broken_by={"S": 16, "shuffle_mask": [31] * QUADRANT},
    )
    def rows_exist(self) -> bool:
        return bool(self.origins.max() < self.sizes["S"])

    @cached_property
    def origins(self) -> Any:
        """Per row of dst the row of src that it becomes, or -1 where it stays."""
        row = np.arange(self.sizes["P"])
        taken = np.array(self.shuffle_mask)[row % QUADRANT]
        return np.where(taken == KEEP, -1, row - row % QUADRANT + taken)

    @property
    def reads_dst(self) -> bool:
        return bool((self.origins < 0).any())

    @property
    def written_part(self) -> Any:
        if not self.reads_dst:
            return None
        return (self.origins >= 0).reshape(-1, *(1,) * (len(self.dst.shape) - 1))

    def compute(self, dst: Any, src: Any) -> None:
        moved = self.origins >= 0
        dst[moved] = as_shape(src, (src.shape[0], *dst.shape[1:]))[self.origins[moved]]

    def cost(self) -> list[Step]:
        # 2.26 costs: N
        return [engine_step(self.machine, "vector", "STREAM_SHUFFLE", self.sizes["F*"])]
