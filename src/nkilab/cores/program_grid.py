"""Who sits where: the programs of a launch, several ranks with one or more cores each."""

from __future__ import annotations

from functools import cached_property, lru_cache

from msgspec import Struct


class ProgramGrid(Struct, frozen=True, dict=True):
    """The programs that take turns, in the order of ranks, then of cores.

    Args:
        ranks: those that run together here, ascending.
        cores: programs of each rank.
        launched: ranks of the whole launch, here and elsewhere.
    """

    ranks: tuple[int, ...] = (0,)
    cores: int = 1
    launched: int = 1

    def __len__(self) -> int:
        return len(self.ranks) * self.cores

    def of(self, rank: int, core: int) -> int:
        """The number of a program; its rank is here."""
        return self._place[rank] * self.cores + core

    def of_rank(self, rank: int) -> tuple[int, ...]:
        """The programs of a rank that is here."""
        return tuple(self.of(rank, core) for core in range(self.cores))

    @lru_cache(maxsize=32)  # noqa: B019
    def absent(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """Those of some ranks that do not run here."""
        return tuple(rank for rank in ranks if rank not in self._place)

    @lru_cache(maxsize=32)  # noqa: B019
    def of_group(self, ranks: tuple[int, ...], core: int) -> tuple[int, ...]:
        """The programs of those of some ranks that are here, on one core of each."""
        return tuple(self.of(rank, core) for rank in ranks if rank in self._place)

    @cached_property
    def _place(self) -> dict[int, int]:
        return {rank: place for place, rank in enumerate(self.ranks)}

    @property
    def names(self) -> list[str]:
        """What messages call the programs."""
        if self.launched == 1:
            return [f"program {core}" for core in range(self.cores)]
        if self.cores == 1:
            return [f"rank {rank}" for rank in self.ranks]
        return [f"rank {rank}, program {core}," for rank in self.ranks for core in range(self.cores)]
