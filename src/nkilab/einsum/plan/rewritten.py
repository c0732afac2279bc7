"""Cascades with the same results that are faster for some extents: decisions that the timing model makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..language.ast import Cascade
from ..rewrite.chunks import with_chunks
from ..rewrite.splits import with_split_ranks
from .knobs import Decision, Key, Knobs
from .normal import live


def _in_chunks(cascade: Cascade, partitions: int) -> Cascade:
    """Recurrences in chunks, whose operands lie in chunks too."""
    needed = live(cascade)[0]
    chunked = with_chunks(needed, partitions)
    return cascade if chunked is needed else with_split_ranks(chunked)


REWRITES: Mapping[Key, Callable[[Cascade, int], Cascade]] = {
    ("recurrences in chunks, as products", 0): _in_chunks,
    ("axes in the parts that indices name", 0): lambda cascade, _: with_split_ranks(cascade),
}


def rewritten_by(knobs: Knobs, cascade: Cascade, partitions: int) -> tuple[Cascade, list[Decision]]:
    """A cascade as choices want it, and what was decided."""
    decisions = []
    for key, rewrite in REWRITES.items():
        other, rank = rewrite(cascade, partitions), dict(knobs.picks).get(key, 0)
        if other is not cascade:
            decisions.append(Decision(key, ("no", "yes"), rank))
            cascade = other if rank else cascade
    return cascade, decisions
