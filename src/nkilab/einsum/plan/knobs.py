"""What a search may turn: choices that rules make well, but not always best."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Knobs:
    """Choices of a plan.

    Args:
        group_blocks: blocks of 128 partitions that the tile of a group has; 0 leaves it to the rules.
        most_columns: columns of a tile, at most.
        transfer_bytes: of one transfer that fills several blocks of partitions, at most.
        share: of SBUF that plans may fill; the rest is for what the compiler adds.
    """

    group_blocks: int = 0
    most_columns: int = 16384
    transfer_bytes: int = 1 << 20
    share: float = 0.85

    def __str__(self) -> str:
        default = type(self)()
        told = [
            f"{name.replace('_', ' ')} {value}"
            for name, value in vars(self).items()
            if value != getattr(default, name)
        ]
        return ", ".join(told) or "by the rules"


RULES = Knobs()
