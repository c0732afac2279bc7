"""Occupancy over time, by hand, and what it says where memory runs out."""

from __future__ import annotations

import numpy as np

from nkilab.checking import report_of
from nkilab.checks.capacity import use_of
from nkilab.checks.evidence import Track
from tests.checks.gallery import memory
from tests.checks.gallery.case import CASES
from tests.dialects.spellings import nisa2, nki2, nl2, program_of

assert memory
BY_NAME = {c.name: c for c in CASES}


@nki2.jit
def two_tiles(x):
    """Rows: load a, load b, add into a, store a. b is 1024 bytes per partition, a 2048."""
    a = nl2.ndarray((128, 512), nl2.float32, buffer=nl2.sbuf)
    b = nl2.ndarray((128, 256), nl2.float32, buffer=nl2.sbuf)
    out = nl2.ndarray((128, 512), nl2.float32, buffer=nl2.shared_hbm)
    nisa2.dma_copy(a, x)
    nisa2.dma_copy(b, x[:, 0:256])
    nisa2.tensor_tensor(a[:, 0:256], a[:, 0:256], b, op=nl2.add)
    nisa2.dma_copy(out, a)
    return out


def test_bytes_in_use_follow_first_and_last_access() -> None:
    use = use_of(Track(program_of(two_tiles, np.ones((128, 512), np.float32))), "sbuf")
    # by hand: a lives in rows 0 to 3, b in rows 1 and 2
    assert list(zip(use.row.tolist(), use.used.tolist(), strict=True)) == [
        (0, 2048), (1, 3072), (3, 2048), (4, 0),
    ]  # fmt: skip
    assert (use.peak, use.peak_row) == (3072, 1)


def test_a_report_holds_the_curve_of_both_memories() -> None:
    case = BY_NAME["memory.right_eight_banks_are_live"]
    (occupancy,) = report_of(case.kernel, case.args, {}).occupancy
    assert (occupancy["psum"]["peak"], occupancy["psum"]["capacity"]) == (8, 8)
    assert max(point["used"] for point in occupancy["psum"]["over_time"]) == 8
    assert occupancy["sbuf"]["largest"][0].startswith("a tile: float32[128, 512] in sbuf, 2048 bytes")


def test_running_out_names_the_tiles_that_fill_the_memory() -> None:
    case = BY_NAME["memory.wrong_nine_banks_are_live"]
    (finding,) = [f for f in report_of(case.kernel, case.args, {}).findings if f.rule == "psum-full"]
    # a bank is 2048 bytes, and there are eight; the ninth tile is the one that finds none
    assert finding.notes[0].startswith("live: 8 x (unnamed): float32[128, 512], 2048 bytes per partition")
    spill = BY_NAME["memory.wrong_eight_squares_of_32_kib_are_live"]
    (spilled,) = [f for f in report_of(spill.kernel, spill.args, {}).findings if f.rule == "spill"]
    assert "bytes are saved to hbm" in spilled.notes[0]
    assert "32768 bytes per partition" in spilled.notes[1]
