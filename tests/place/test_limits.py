"""What no memory could hold is refused by whoever runs, checks or times it, in the same words."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import nkilab
from nkilab.errors import LimitError
from tests.dialects.spellings import nisa1, nisa2, nki1, nki2, nl1, nl2

X = np.ones((1, 1), np.float32)


def copied(memory: str, *widths: int) -> Any:
    """A kernel that adds to a tile of float32 and copies it to the next, and so on."""

    @nki2.jit
    def kernel(x):
        out = nl2.ndarray((1, 1), nl2.float32, buffer=nl2.shared_hbm)
        buffer = getattr(nl2, memory)
        tiles = [nl2.ndarray((128, width), nl2.float32, buffer=buffer) for width in widths]
        last = nl2.ndarray((128, 1), nl2.float32, buffer=nl2.sbuf)
        nisa2.memset(tiles[0], 1.0)
        nisa2.tensor_scalar(tiles[0], tiles[0], op0=nl2.add, operand0=1.0)
        for before, tile in pairwise(tiles):
            nisa2.tensor_copy(tile, before)
        nisa2.tensor_copy(last, tiles[-1][:, 0:1])
        nisa2.dma_copy(out, last[0:1])
        return out

    return kernel


def said(act: Any) -> str:
    """The problem that an act is refused for; "" if it is not."""
    try:
        act()
    except LimitError as error:
        return error.problem
    return ""


# by hand: 212984 bytes are 8 less than 208 KiB
NOTE = " (208 KiB; the compiler keeps the rest of the chip's 224)"


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        # by hand: trn2 has 212984 bytes per partition of SBUF and 8 banks of 2048 of PSUM
        (copied("sbuf", 53245), ""),
        (copied("sbuf", 53247), f"the tile has 212,988 bytes per partition; sbuf of trn2 has 212,984{NOTE}"),
        (copied("sbuf", 26623, 26623), ""),
        (copied("sbuf", 30000, 30000), "its operands lie in tiles of 240000 bytes per partition; trn2 allows "
                                       f"212984 bytes of sbuf{NOTE}"),
        (copied("sbuf", *[20000] * 9), ""),
        (copied("psum", 4096), ""),
        (copied("psum", 4097), "the tile has 16,388 bytes per partition; psum of trn2 has 16,384"),
    ],
)  # fmt: skip
def test_run_estimate_profile_and_check_agree_on_what_exists(kernel: Any, expected: str) -> None:
    assert said(lambda: kernel(X)) == expected
    assert said(lambda: nkilab.simulate(kernel)(X)) == expected
    assert said(lambda: nkilab.estimate(kernel, nkilab.spec((1, 1), "float32"))) == expected
    messages = [f.message for f in nkilab.check(kernel, X).verdict if f.fails and f.origin == "hardware"]
    assert [message.partition(": ")[2] for message in messages] == ([expected] if expected else [])


def test_a_tile_too_large_for_beta_1_is_refused_too() -> None:
    @nki1.jit
    def kernel(x):
        out = nl1.ndarray((128, 1), nl1.float32, buffer=nl1.shared_hbm)
        tile = nisa1.memset((128, 100_000), 1.0, np.float32)
        nl1.store(out, nl1.sum(tile, axis=[1]))
        return out

    assert said(lambda: kernel(X)) == said(lambda: nkilab.estimate(kernel, nkilab.spec((1, 1), "float32")))
    assert "tiles of 400004 bytes per partition" in said(lambda: kernel(X))


def test_512_small_sums_in_psum_are_computed_and_timed_with_a_warning() -> None:
    @nki2.jit
    def kernel(x):
        left = nl2.ndarray((128, 128), nl2.float32, buffer=nl2.sbuf)
        right = nl2.ndarray((128, 512), nl2.float32, buffer=nl2.sbuf)
        out = nl2.ndarray((128, 512), nl2.float32, buffer=nl2.shared_hbm)
        nisa2.memset(left, 1.0)
        nisa2.memset(right, 1.0)
        sums = [nl2.ndarray((128, 1), nl2.float32, buffer=nl2.psum) for _ in range(32 * 16)]
        for i, total in enumerate(sums):
            nisa2.nc_matmul(total, left, right[:, i : i + 1])
        for i, total in enumerate(sums):
            nisa2.tensor_copy(right[:, i : i + 1], total)
        nisa2.dma_copy(out, right)
        return out

    np.testing.assert_array_equal(kernel(X), np.full((128, 512), 128.0))
    estimate = nkilab.estimate(kernel, nkilab.spec((1, 1), "float32"))
    assert estimate.latency_us > 0
    assert [finding.rule for finding in estimate.plan.findings] == ["psum-full"]
    assert "psum-full" in {f.rule for f in nkilab.check(kernel, X).verdict if f.fails}
