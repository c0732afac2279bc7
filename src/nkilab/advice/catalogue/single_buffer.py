"""Tiles with one buffer, which loads wait for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...place.slots import DMA, slots_of
from ...place.walk import KINDS
from ...tiles.tile import SBUF
from ..declare import Candidate, Example, Subject, plural, transformation
from ..subject import by_line, later_of

_TURNS = """
out = nl.ndarray((16, 128, 4096), nl.float32, buffer=nl.shared_hbm)
{before}for i in range(16):
{inside}    nisa.dma_copy(tile, x[i])
    result = nl.ndarray((128, 4096), nl.float32, buffer=nl.sbuf)
    nisa.activation(result, op=nl.exp, data=tile)
    nisa.dma_copy(out[i], result)
return out
"""
_TILE = "tile = nl.ndarray((128, 4096), nl.float32, buffer=nl.sbuf)\n"


@transformation(
    "buffers",
    moves_rows=False,
    relieves=(),
    title="loads go into buffers that nobody uses",
    what="a loop loads into one tile, so that each load waits until the last use of what the tile held",
    why="DMA and compute alternate instead of overlapping",
    fix="make the tile inside the loop, or rotate through two",
    source="NKI performance guide, overlap data loading with computation",
    wrong=Example(_TURNS.format(before=_TILE, inside=""), {"x": "f32[16,128,4096]"}),
    right=Example(_TURNS.format(before="", inside=f"    {_TILE}"), {"x": "f32[16,128,4096]"}),
)
def find(subject: Subject) -> Iterator[Candidate]:
    """Loads that wait until the tile they fill has been used up, as if they did not."""
    program, waits = subject.program, subject.plan.waits
    later, slots = later_of(waits), slots_of(program)
    is_load = np.zeros(len(waits.start) - 1, np.bool_)
    dst = slots.storage[np.asarray(program.operand_start)[:-1].clip(max=max(len(slots.storage) - 1, 0))]
    on_chip = slots.kinds.lie_in(SBUF)[dst] if len(dst) else np.zeros(0, np.bool_)
    is_load[: len(program)] = (slots.engine == DMA) & on_chip
    wanted = is_load[later] & np.isin(waits.kind, [KINDS.index("anti"), KINDS.index("output")])
    for line, rows in by_line(program, np.unique(later[wanted])).items():
        own = np.flatnonzero(wanted & np.isin(later, rows))
        record = program.storages[int(dst[rows[0]])]
        yield Candidate(
            line,
            f"{plural(len(rows), 'load')} into one {record.dtype}{list(record.shape)} wait until what it "
            "holds is used up",
            float(subject.spent[rows].sum()),
            (("a buffer for each load", lambda own=own: subject.without_waits(own)),),  # type: ignore[misc]
        )
