"""Which program instances of a launch run on which core, and the programs of several ranks and cores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import product
from math import prod
from typing import Any

from msgspec import Struct

from ..errors import LimitError, RuleError
from ..machine import Machine

LNC_GUIDE = "Using Logical Neuron Cores (LNC)"
# each instance is run: so many of the shortest kernel take minutes
MOST_INSTANCES = 2**20


def instances_of(
    grid: Sequence[Any], sizes: tuple[int, ...], spelling: str, machine: Machine
) -> list[list[tuple[int, ...]]]:
    """Per core the program instances that it runs, in order.

    In `nki` the one extent of the grid is the number of cores. In Beta 1 an extent lies over cores if it has
    an attribute `cores`, their number; instances with neighbouring coordinates run on different cores, or on
    the same one if its attribute `is_outer` is true. All other instances run one after another.

    Args:
        grid: extents as the user gave them.
        sizes: the same as integers.
        spelling: "nki" or "neuronxcc".
        machine: the chip.

    Raises:
        RuleError: if the grid asks for more cores than a logical core of the chip has.
        LimitError: if it has more instances than can be run.

    Source: nki.language.nc, nki.language.spmd_dim; LNC guide.
    """
    most = machine.limit("cores_per_logical_core")
    if spelling == "nki":
        _check_nki(sizes, most, machine)
        cores = list(sizes)
    else:
        cores = [int(getattr(extent, "cores", 1)) for extent in grid]
    count = 1
    for here in cores:
        count *= here
    if count > most:
        raise RuleError(
            f"the grid lies over {count} cores; a logical core of {machine.name} has {most}", source=LNC_GUIDE
        )
    if prod(sizes) > MOST_INSTANCES:
        raise LimitError(
            f"the grid {list(sizes)} has {prod(sizes)} instances; nkilab runs up to {MOST_INSTANCES}",
            hint="launch a part of the grid",
        )
    runs: list[list[tuple[int, ...]]] = [[] for _ in range(count)]
    for instance in product(*(range(n) for n in sizes)):
        core = 0
        for extent, size, here, at in zip(grid, sizes, cores, instance, strict=True):
            is_outer = bool(getattr(extent, "is_outer", False))
            core = core * here + (at // (size // here) if is_outer else at % here)
        runs[core].append(instance)
    return runs


def _check_nki(sizes: tuple[int, ...], most: int, machine: Machine) -> None:
    if len(sizes) > 1 or (sizes and sizes[0] > most):
        allowed = "1" if most == 1 else "1 or 2" if most == 2 else f"1 to {most}"
        raise RuleError(
            f"the grid is {list(sizes)}; on {machine.name} it is one number, {allowed}: the cores of a "
            "logical core",
            hint="loop over the parts inside the kernel",
            source=LNC_GUIDE,
        )


class ProgramGrid(Struct, frozen=True, dict=True):
    """The programs that take turns, in the order of ranks, then of cores."""

    ranks: tuple[int, ...] = (0,)  # those that run together here, ascending
    cores: int = 1  # programs of each rank
    launched: int = 1  # ranks of the whole launch, here and elsewhere
    is_one_for_all: bool = False  # whether one rank is traced for all, so that collectives wait for nobody

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
