"""Decisions of a plan, each with a key: rules make them well, but not always best; a search makes others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

Option = TypeVar("Option")
# blocks of partitions that tiles of loops which Einsums share may have instead
MORE_BLOCKS = 4
# what is decided, and which of the decisions on that it is
Key = tuple[str, int]


@dataclass(frozen=True)
class Knobs:
    """Choices of a plan."""

    group_blocks: int = 0  # blocks of 128 partitions that the tile of a group has; 0 leaves it to the rules
    most_columns: int = 16384  # columns of a tile, at most
    transfer_bytes: int = 1 << 20  # of one transfer that fills several blocks of partitions, at most
    share: float = 0.85  # of SBUF that plans may fill; the rest is for what the compiler adds
    is_fused: bool = True  # whether neighbours that may share loops do
    # whether every tensor that is read beyond its edges is copied with zeros around it
    is_edged: bool = False
    is_spread: bool = False  # whether each of a few long rows lies on all partitions
    # whether what lies between steps that may share loops, and needs none of them, comes first
    is_ordered: bool = False
    has_products: bool = True  # whether TensorE computes sums of products; those that it alone can, it does
    # (key, rank): at the decision with this key, the option of this rank instead of the best, 0
    picks: tuple[tuple[Key, int], ...] = ()

    def __str__(self) -> str:
        default = type(self)()
        told = [
            f"{name.replace('_', ' ')} {value}"
            for name, value in vars(self).items()
            if value != getattr(default, name) and not isinstance(value, bool | tuple)
        ]
        told += [] if self.is_fused else ["no shared loops"]
        told += ["zeros around copies"] if self.is_edged else []
        told += ["long rows over all partitions"] if self.is_spread else []
        told += ["what needs nothing between comes first"] if self.is_ordered else []
        told += [] if self.has_products else ["sums on VectorE"]
        told += [f"option {rank + 1} of {what}{f' ({n + 1})' if n else ''}" for (what, n), rank in self.picks]
        return ", ".join(told) or "by the rules"

    def picking(self, key: Key, rank: int) -> Knobs:
        """The same with another option at one decision."""
        ranks = {**dict(self.picks), key: rank}
        return replace(self, picks=tuple(sorted((k, r) for k, r in ranks.items() if r)))

    def shares(self) -> Iterator[Knobs]:
        """The same, then plans that fill less and less of SBUF, for tiles that do not fit."""
        yield self
        yield from (replace(self, share=share) for share in SMALLER_SHARES)


# parts of SBUF that plans may fill where the tiles of the rules do not fit
SMALLER_SHARES = (0.6, 0.4, 0.2)
RULES = Knobs()


@dataclass(frozen=True)
class Decision:
    """A decision of a plan."""

    key: Key  # what was decided, and which of the decisions on that this is
    options: Sequence[str]  # in a few words, the best first
    rank: int  # of the one taken
    costs: Sequence[float] = ()  # what options were judged at, if all by one measure
    is_rewrite: bool = False  # whether it changes the cascade itself, and with it the decisions behind

    @property
    def what(self) -> str:
        """What was decided."""
        return self.key[0]

    @property
    def taken(self) -> str:
        """The option taken, in a few words."""
        return self.options[self.rank]

    def others(self, most: int = 1) -> Iterator[tuple[str, Knobs]]:
        """Some options but the best, in a few words and as choices of a plan."""
        for rank in range(1, min(len(self.options), most + 1)):
            told = f"{self.what}: {self.options[rank] or 'none'} instead of {self.options[0] or 'none'}"
            yield told, RULES.picking(self.key, rank)


@dataclass(frozen=True)
class Picker:
    """What takes options, and notes what was decided."""

    knobs: Knobs = RULES  # choices that a search makes
    decisions: list[Decision] = field(default_factory=list)  # so far, in order
    is_rewrite: bool = False  # whether options change the cascade itself

    def pick(
        self, what: str, options: Sequence[Option], told: Callable[[Option], str] = str,
        costs: Sequence[float] = (),
    ) -> Option:  # fmt: skip
        """One of some options, the best first: the first, unless a search wants another.

        Args:
            what: is chosen, for the report.
            options: at least one.
            told: an option in a few words.
            costs: what options were judged at, if all by one measure.
        """
        key = (what, sum(d.what == what for d in self.decisions))
        rank = min(dict(self.knobs.picks).get(key, 0), len(options) - 1)
        names = tuple(map(told, options))
        self.decisions.append(Decision(key, names, rank, tuple(costs), self.is_rewrite))
        return options[rank]

    def decides_alike(self, knobs: Knobs) -> bool:
        """Whether other choices want the same at all that was decided, and of long rows."""
        own, other = dict(self.knobs.picks), dict(knobs.picks)
        is_same = all(own.get(d.key, 0) == other.get(d.key, 0) for d in self.decisions)
        return is_same and self.knobs.is_spread == knobs.is_spread
