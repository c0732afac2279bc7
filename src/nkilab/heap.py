"""A heap of numbered keys in a table of records, the smallest on top: part of what `records` can compile."""

from __future__ import annotations

from msgspec import Struct


class Entry(Struct):
    """A key and the number of what it belongs to; of equal keys the smaller number comes first."""

    key: float = 0.0
    number: int = 0


def push(heap: list[Entry], size: int, key: float, number: int) -> None:
    """Add an entry to the first `size` ones of a heap."""
    place = size
    while place > 0:
        above = heap[(place - 1) // 2]
        if above.key < key or (above.key == key and above.number < number):
            break
        heap[place].key, heap[place].number = above.key, above.number
        place = (place - 1) // 2
    heap[place].key, heap[place].number = key, number


def drop_first(heap: list[Entry], size: int) -> None:
    """Take the first entry away from the first `size` ones of a heap."""
    key, number = heap[size - 1].key, heap[size - 1].number
    place, child = 0, 1
    while child < size - 1:
        below, right = heap[child], heap[child + 1]
        is_less = right.key < below.key or (right.key == below.key and right.number < below.number)
        if is_less and child + 1 < size - 1:
            below, child = right, child + 1
        if key < below.key or (key == below.key and number < below.number):
            break
        heap[place].key, heap[place].number = below.key, below.number
        place, child = child, 2 * child + 1
    heap[place].key, heap[place].number = key, number
