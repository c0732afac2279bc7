"""Instructions of VectorE that gather mean and variance of each row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..tiles.convert import store, widen
from ..tiles.tile import SBUF
from .costs import engine_step
from .declare import Example, Fresh, In, Instruction, Limit, Out, Step, rule

BN_STATS = "nki.isa.bn_stats"


def _count_mean_spread(rows: Any) -> list[Any]:
    """Per row of float32 [P, n]: count, mean, and variance times count. All zero where n is 0."""
    partitions, count = rows.shape
    if count == 0:
        return [np.zeros((partitions,), np.float32)] * 3
    mean = rows.sum(axis=1, dtype=np.float32) / np.float32(count)
    spread = np.square(rows - mean[:, None]).sum(axis=1, dtype=np.float32)
    return [np.full((partitions,), count, np.float32), mean, spread]


class BnStats(Instruction):
    """Gather six statistics of each row: count, mean and variance * count of its even, then its odd elements.

    Free axes count as one. Arithmetic is float32, rounded on the write. `bn_aggr` combines the results.
    """

    engines = ("vector",)
    dst = Out("P 6")
    data = In("P F*")
    limits = (
        Limit(
            "F*", "bn_stats_free_max", BN_STATS, "err_size_of_dimension_exceed_arch_limit",
            "call it once per {most} elements and combine all results with one bn_aggr",
        ),
    )  # fmt: skip
    example = Example(
        {"data": [[1, 10, 3, 20, 5], [7, 7, 7, 7, 7]]}, {"dst": [[3, 3, 8, 2, 15, 50], [3, 7, 0, 2, 7, 0]]}
    )

    @classmethod
    def fresh(cls, layouts: Mapping[str, Any], attributes: Mapping[str, Any]) -> Fresh:
        """Six elements per partition, of the type of data."""
        data = layouts["data"]
        return Fresh((data.shape[0], 6), data.dtype, SBUF)

    def compute(self, dst: Any, data: Any) -> None:
        rows = widen(data, self.data.dtype).reshape(data.shape[0], -1)
        six = _count_mean_spread(rows[:, 0::2]) + _count_mean_spread(rows[:, 1::2])
        store(dst, np.stack(six, axis=1).reshape(dst.shape), self.dst.dtype)

    def cost(self) -> list[Step]:
        # 2.26 costs: N
        return [engine_step(self.machine, "vector", "BN_STATS", self.sizes["F*"])]


class BnAggr(Instruction):
    """Combine triples of count, mean and variance * count into a mean and a variance per row.

    `data` holds the results of one or more `bn_stats`. The variance is that of the whole population.
    Arithmetic is float32, rounded on the write.
    """

    engines = ("vector",)
    dst = Out("P 2")
    data = In("P F*")
    smallest = {"F": 6}
    # hand: two of 2 and two of 6, spreads of 2 each: (2 + 2 + 2 * 4 + 2 * 4) / 4
    example = Example({"data": [[2, 2, 2, 2, 6, 2], [3, 7, 0, 1, 11, 0]]}, {"dst": [[4, 5], [8, 3]]})

    @rule("data does not hold triples: its elements per partition are no multiple of 3", broken_by={"F": 16})
    def data_are_triples(self) -> bool:
        return self.sizes["F*"] % 3 == 0

    @classmethod
    def fresh(cls, layouts: Mapping[str, Any], attributes: Mapping[str, Any]) -> Fresh:
        """Two elements per partition, of the type of data."""
        data = layouts["data"]
        return Fresh((data.shape[0], 2), data.dtype, SBUF)

    def compute(self, dst: Any, data: Any) -> None:
        triples = widen(data, self.data.dtype).reshape(data.shape[0], -1, 3)
        counts, means, spreads = triples[..., 0], triples[..., 1], triples[..., 2]
        total = counts.sum(axis=1)
        mean = (counts * means).sum(axis=1) / total
        between = (counts * np.square(means - mean[:, None])).sum(axis=1)
        variance = (spreads.sum(axis=1) + between) / total
        store(dst, np.stack([mean, variance], axis=1).reshape(dst.shape), self.dst.dtype)

    def cost(self) -> list[Step]:
        # 2.26 costs: 13 * N / 3
        return [engine_step(self.machine, "vector", "BN_AGGR", 13 * self.sizes["F*"] / 3)]
