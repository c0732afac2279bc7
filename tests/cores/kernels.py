"""What kernels on two cores are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

import nkilab
from nkilab.launches import Launched, launch
from nkilab.machine import MACHINES
from tests.dialects.spellings import nisa2 as nisa
from tests.dialects.spellings import nki2 as nki
from tests.dialects.spellings import nl2 as nl

with nkilab.activate():
    import nki.collectives as ncc


def launched(kernel: Any, *args: Any, has_data: bool = True) -> Launched:
    return launch(kernel, args, {}, MACHINES["trn2"], has_data=has_data)


def parts(*shape: int) -> np.ndarray:
    return np.arange(np.prod((2, *shape)), dtype=np.float32).reshape(2, *shape)


def loaded(x: Any) -> Any:
    """This program's part of an input in SBUF."""
    tile = nl.ndarray(x.shape[1:], x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x[nl.program_id(0)])
    return tile


def exchanged(src: Any, dst: Any, pipe_id: int = 0, **kwargs: Any) -> None:
    other = 1 - nl.program_id(0)
    nisa.sendrecv(src, dst, send_to_rank=other, recv_from_rank=other, pipe_id=pipe_id, **kwargs)


def output_like(x: Any) -> Any:
    return nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)


@nki.jit
def reduces(x: Any, group: Any) -> Any:
    src, dst = (nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name=n) for n in ("src", "dst"))
    nisa.dma_copy(src, x)
    ncc.all_reduce([src], [dst], group, nl.add)
    return dst
