"""Counters as the vendor defines them, against counts by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nkilab.ledger.quantities import QUANTITIES
from nkilab.trace.program import AS_WRITTEN, MIDDLE_END, STANDALONE
from tests.place.handmade import Kernel

from .rows import row


def transposes(compiler: str, *dtypes: str) -> Any:
    """An estimate of a kernel that moved 1000 bytes in 10 transfers and transposes tiles of some types."""
    k = Kernel("trn2")
    for dtype in dtypes:
        for _ in range(2):
            transposed, tile = k.tile(64, 128, dtype=dtype, memory="psum"), k.tile(128, 64, dtype=dtype)
            k.call("nc_transpose", transposed, tile, engine="tensor")
    k.call("nc_transpose", k.tile(32, 32), k.tile(32, 32), engine="vector")
    k.program.compiler = compiler
    summary = {"hbm_read_bytes": 1000, "dma_transfer_total_bytes": 1000, "dma_transfer_count": 10}
    return SimpleNamespace(program=k.program, summary=summary)


@pytest.mark.parametrize(
    ("compiler", "dtypes", "bytes_more", "transfers_more"),
    [
        # published attention: one identity of 128 * 128 float32, or that and one of bfloat16
        (MIDDLE_END, ("float32",), 65536, 1),
        (MIDDLE_END, ("bfloat16", "float32"), 98304, 2),
        (AS_WRITTEN, ("float16",), 32768, 1),
        (STANDALONE, ("float32",), 0, 0),
        (MIDDLE_END, (), 0, 0),
    ],
)
def test_bytes_and_transfers_hold_an_identity_of_each_type_that_tensor_e_transposes(
    compiler: str, dtypes: tuple[str, ...], bytes_more: int, transfers_more: int
) -> None:
    estimate = transposes(compiler, *dtypes)
    predicted = {
        name: QUANTITIES[name].predict(row(), [estimate])
        for name in ("hbm_read_bytes", "dma_bytes", "dma_transfers")
    }
    assert predicted == {
        "hbm_read_bytes": 1000 + bytes_more, "dma_bytes": 1000 + bytes_more,
        "dma_transfers": 10 + transfers_more,
    }  # fmt: skip
