"""The heap of numbered keys, against sorting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nkilab.records import Entry, drop_first, push

ENTRIES = st.lists(st.tuples(st.integers(0, 5).map(float), st.integers(0, 9)), max_size=40)


@given(ENTRIES)
def test_entries_come_off_by_key_then_number(given_entries: list[tuple[float, int]]) -> None:
    heap = [Entry() for _ in given_entries]
    for size, (key, number) in enumerate(given_entries):
        push(heap, size, key, number)
    taken = []
    for size in range(len(heap), 0, -1):
        taken.append((heap[0].key, heap[0].number))
        drop_first(heap, size)
    assert taken == sorted(given_entries)


@given(ENTRIES, st.integers(1, 5))
def test_entries_may_come_and_go_in_turns(given_entries: list[tuple[float, int]], pace: int) -> None:
    heap, pushed = [Entry() for _ in given_entries], []
    for turn, (key, number) in enumerate(given_entries):
        push(heap, len(pushed), key, number)
        pushed = sorted([*pushed, (key, number)])
        assert (heap[0].key, heap[0].number) == pushed[0]
        if turn % pace == 0:
            drop_first(heap, len(pushed))
            pushed.pop(0)
