"""Arguments of launches over several ranks: the same for all, or each its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .errors import UsageError

# each has its programs and clock; more than any cluster of the chips has
MOST_RANKS = 65536


class PerRank:
    """An argument that each rank has its own of.

    Args:
        values: one per rank, or a function from a rank to its value.

    Raises:
        UsageError: if it is neither.
    """

    def __init__(self, values: Sequence[Any] | Callable[[int], Any]) -> None:
        if not callable(values) and not (hasattr(values, "__len__") and hasattr(values, "__getitem__")):
            raise UsageError(
                f"per_rank takes one value per rank, or a function of the rank; got {type(values).__name__}"
            )
        self._values = values

    def of(self, rank: int, ranks: int) -> Any:
        """The value of a rank.

        Raises:
            UsageError: if there is not one for each rank.
        """
        if callable(self._values):
            return self._values(rank)
        if len(self._values) != ranks:
            raise UsageError(f"per_rank has {len(self._values)} values; the launch has {ranks} ranks")
        return self._values[rank]


# Positional and keyword arguments.
Call = tuple[tuple[Any, ...], dict[str, Any]]


def calls_of(args: tuple[Any, ...], kwargs: Mapping[str, Any], ranks: int) -> list[Call]:
    """The arguments of each rank: of a `PerRank` its own, of anything else the same."""

    def own(value: Any, rank: int) -> Any:
        return value.of(rank, ranks) if isinstance(value, PerRank) else value

    return [
        (tuple(own(a, rank) for a in args), {k: own(v, rank) for k, v in kwargs.items()})
        for rank in range(ranks)
    ]
