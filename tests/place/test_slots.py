"""Tile operands of a program, a piece of all at a time."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab.place import slots
from nkilab.place.slots import by_storage, kinds_of, slots_of

from .handmade import Kernel


@pytest.mark.parametrize("piece", [2, 100])
def test_a_long_program_may_have_no_tile_of_a_kind(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    k = Kernel()
    source = k.tile(128, 8)
    for _ in range(4):
        k.copy(k.tile(128, 8), source)
    monkeypatch.setattr(slots, "PIECE", piece)
    every = slots_of(k.program)
    in_psum, in_sbuf = (every.kinds.lie_in(memory) for memory in ("psum", "sbuf"))
    assert [own.tolist() for own in by_storage(every, in_psum) if len(own)] == []
    # eight operands: four results, and the source four times
    assert sorted(np.concatenate(list(by_storage(every, in_sbuf))).tolist()) == list(range(8))


def test_tiles_alike_are_of_one_kind_with_a_record_each_or_one_for_all() -> None:
    k = Kernel()
    for shape in ((128, 8), (128, 8), (64, 8), (128, 8), (64, 8)):
        k.tile(*shape)
    shared, records = kinds_of(k.program), k.program.storages
    # one record is kept of tiles that one line makes alike
    assert len({id(record) for record in records[:2]}) == 1
    records[:] = [type(record)(*record) for record in records]
    apart = kinds_of(k.program)
    for kinds in (shared, apart):
        assert kinds.of_storage.tolist() == [0, 0, 1, 0, 1]
        assert [sample.shape for sample in kinds.samples] == [(128, 8), (64, 8)]
