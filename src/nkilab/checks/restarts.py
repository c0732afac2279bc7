"""Sums that are stored as one result and go on as the next one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from .lineage import Lineage

# matmuls of one sum whose operands are compared
_MOST_MATMULS = 64


class Stretch(Struct):
    """Matmuls of one sum between two reads of it: their rows, and the slots that read it behind them."""

    rows: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)


def restarts(lineage: Lineage, stretches: Sequence[Stretch]) -> Iterator[tuple[int, int]]:
    """A matmul that begins another result on a sum that was stored, and the row that read that; or none.

    In one product of matrices a block of one side meets one block of the other. Two blocks of a side that are
    in the sum already and meet other partners are a loop, over the contraction or over results, that begins
    anew. A running sum takes new operands; a constant beside them, as the ones by which a cumulative sum
    multiplies, is one block.
    """
    partners: tuple[dict[int, set[int]], dict[int, set[int]]] = ({}, {})
    again: tuple[set[int], set[int]] = (set(), set())
    left = _MOST_MATMULS if len(stretches) > 1 else 0
    for before, stretch in zip([None, *stretches], stretches, strict=False):
        left -= len(stretch.rows)
        if left < 0:
            return
        pairs = [_operands(lineage, row) for row in stretch.rows]
        for side in (0, 1):
            again[side].update(p[side] for p in pairs if partners[side].get(p[side], set()) - {p[1 - side]})
        # the same products once more, of the same blocks, are another result too
        is_same = bool(pairs) and all(pair[1] in partners[0].get(pair[0], ()) for pair in pairs)
        if before is not None and (is_same or max(map(len, again)) > 1):
            yield from _stored_apart(lineage, before, stretch)
            return
        for pair in pairs:
            partners[0].setdefault(pair[0], set()).add(pair[1])
            partners[1].setdefault(pair[1], set()).add(pair[0])


def _operands(lineage: Lineage, row: int) -> tuple[int, int]:
    """The values of both sides of a matmul."""
    written = lineage.track.slots.is_written
    stationary, moving = [slot for slot in lineage.operands(row) if not written[slot]][:2]
    return lineage.value(stationary), lineage.value(moving)


def _stored_apart(lineage: Lineage, before: Stretch, after: Stretch) -> Iterator[tuple[int, int]]:
    """The later stretch's first row and a read before it, if the two sums are stored at two places."""
    first = {read: places for read in before.reads if (places := lineage.stored(read))}
    second = {place for read in after.reads for place in lineage.stored(read)}
    if first and second.difference(*first.values()):
        yield after.rows[0], int(lineage.track.slots.row[min(first)])
