"""What a search may turn: choices that rules make well, but not always best."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Knobs:
    """Choices of a plan.

    Args:
        group_blocks: blocks of 128 partitions that the tile of a group has; 0 leaves it to the rules.
        most_columns: columns of a tile, at most.
        transfer_bytes: of one transfer that fills several blocks of partitions, at most.
        share: of SBUF that plans may fill; the rest is for what the compiler adds.
        is_fused: whether neighbours that may share loops do.
        is_edged: whether every tensor that is read beyond its edges is copied with zeros around it.
        has_products: whether TensorE computes sums of products; those that it alone can, it does.
        picks: (number, rank): at the choice of this number, the option of this rank instead of the best, 0.
    """

    group_blocks: int = 0
    most_columns: int = 16384
    transfer_bytes: int = 1 << 20
    share: float = 0.85
    is_fused: bool = True
    is_edged: bool = False
    has_products: bool = True
    picks: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        default = type(self)()
        told = [
            f"{name.replace('_', ' ')} {value}"
            for name, value in vars(self).items()
            if value != getattr(default, name)
            and name not in ("is_fused", "is_edged", "has_products", "picks")
        ]
        told += [] if self.is_fused else ["no shared loops"]
        told += ["zeros around copies"] if self.is_edged else []
        told += [] if self.has_products else ["sums on VectorE"]
        told += [f"choice {number} its option {rank}" for number, rank in self.picks]
        return ", ".join(told) or "by the rules"

    def picking(self, number: int, rank: int) -> Knobs:
        """The same with another option at one choice."""
        held = {**dict(self.picks), number: rank}
        return replace(self, picks=tuple(sorted((n, r) for n, r in held.items() if r)))


# parts of SBUF that plans may fill where the tiles of the rules do not fit
SMALLER_SHARES = (0.6, 0.4, 0.2)
RULES = Knobs()
