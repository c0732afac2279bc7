"""Tile operands of a program, a piece of all at a time."""

from __future__ import annotations

import numpy as np
import pytest

from nkilab.place import slots
from nkilab.place.slots import by_storage, slots_of

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
