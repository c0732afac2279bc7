"""Turns and channels of rings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nkilab
from nkilab.errors import UseError
from tests.dialects.spellings import nisa2 as nisa
from tests.dialects.spellings import nki2 as nki
from tests.dialects.spellings import nl2 as nl

with nkilab.activate():
    import nki.collectives as ncc

X = np.arange(8, dtype=np.float32).reshape(2, 4)
GROUP = ncc.ReplicaGroup([[0, 1]])


def shared(x: Any, name: str) -> Any:
    """A copy of an input in memory that collectives take."""
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name=name)
    nisa.dma_copy(tile, x)
    return tile


def test_nki_0_7_takes_the_turn_of_a_ring_from_a_register() -> None:
    with nkilab.activate("0.7"):
        from nki import jit

    @jit
    def kernel(x, group):
        turn = nisa.register_alloc(1)
        ncc.collective_permute_implicit_current_processing_rank_id(turn, group)
        return shared(x, "out")

    np.testing.assert_array_equal(nkilab.launch(kernel, 2)(X, GROUP)[1], X)


def test_a_channel_that_is_in_no_list_is_refused() -> None:
    @nki.jit
    def kernel(x, group):
        src, dst = shared(x, "src"), shared(x, "dst")
        ncc.collective_permute_implicit([[src]], [[dst]], group, channel_ids=0)
        return dst

    with pytest.raises(
        UseError, match="channel_ids and the tensors by channel are lists; one of them is none"
    ):
        nkilab.launch(kernel, 2)(X, GROUP)
