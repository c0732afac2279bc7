"""The story of a kernel has figures that a hand calculation confirms."""

from __future__ import annotations

import pytest

import nkilab.einsum
from nkilab.einsum import report
from nkilab.einsum.report import data, explain, summary
from tests.einsum.test_mapped_forms import CASES

SOFTMAX = """
G[m] = X[m, n] ;; V max
E[m, n] = X[m, n] . G[m] ;; M binary(subtract_exp)
D[m] = E[m, n] ;; V add
Z[m, n] = E[m, n] . D[m] ;; M binary(divide)
"""
SCAN = """
einsum:
  declaration:
    A: [T]
    X: [T]
    P: [T]
    S: [T1]
  expressions:
    - "S[0] = const(0)"
    - iterate: t
      body:
        - "P[t] = A[t] . S[t] ;; M mul"
        - "S[t+1] = P[t] . X[t] ;; M max"
options: {cascade-outputs: [S]}
"""


def test_bytes_of_ragged_tiles_are_counted_as_they_are() -> None:
    kernel = nkilab.einsum.compile(SOFTMAX, sizes={"M": 300, "N": 500})
    # X is read and Z written once: 300 x 500 x 4 bytes each, in tiles of 128, 128 and 44 rows
    assert data(kernel)["traffic_bytes"] == 1_200_000


def test_bytes_of_parts_of_parts_are_counted_as_they_are() -> None:
    kernel = nkilab.einsum.compile(CASES["a rank split twice, the last parts shorter"][0])
    # K, M, N are 1000, 300, 40; M in parts of 64, of which 256 share a loop: both operands fit and are read
    # once, Z is written once
    assert data(kernel)["traffic_bytes"] == 4 * (1000 * 300 + 1000 * 40 + 300 * 40)


def test_the_story_says_how_long_tiles_live_what_covers_what_and_what_others_give() -> None:
    text = explain(nkilab.einsum.compile(SOFTMAX, sizes={"M": 300, "N": 500}))
    assert "  X: HBM, 600,000 bytes moved\n" in text
    assert "  E: sbuf [128, 500] as e_tile, 2,000 bytes per partition, for a turn of m\n" in text
    assert "  G[m] = X[m, n] ;; V maximum: tensor_reduce\n" in text
    assert "  N: 3 passes, forced by G, D\n" in text
    others = text.partition("Other choices\n")[2].split("\n")
    assert others[0].endswith((" us", "--search SECONDS tries further ones"))


def test_a_summary_says_why_a_kernel_is_far_from_its_roofline() -> None:
    kernel = nkilab.einsum.compile(SCAN, sizes={"T": 65536, "T1": 65537})
    lines = summary(kernel).splitlines()
    # factors of either sign before a maximum leave no parts of turns: one of 128 partitions scans 65,536
    # elements, none faster than 0.96 a nanosecond: 68 us at least
    line = next(line for line in lines if "x its roofline: it takes" in line)
    words = line.split()
    assert words[-3:-1] == ["VectorE", "works"]
    assert float(words[-1]) >= 68.3
    assert float(words[2].rstrip("x")) > 4


def test_a_summary_blames_transfers_as_its_bound_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "FAR", 1.0)
    kernel = nkilab.einsum.compile(
        "Z[j, i, c] = X[i, j, c]", sizes={"I": 256, "J": 256, "C": 4}, dtypes="bfloat16"
    )
    text = summary(kernel)
    # 65,536 runs of 8 bytes cannot be moved in fewer descriptors, and each takes an issuing unit's time
    assert "bound by DMA issue\n" in text
    assert "because it is bound by DMA issue: transfers wait for the units that issue them" in text


def test_a_summary_gives_no_reason_for_a_kernel_near_its_roofline() -> None:
    copy = nkilab.einsum.compile("Z[m, n] = X[m, n]", sizes={"M": 2048, "N": 2048})
    assert "x its roofline" not in summary(copy)


def test_the_story_of_a_kernel_has_the_times_of_choices_that_were_judged_close() -> None:
    kernel = nkilab.einsum.compile("ij,jk->ik", sizes={"I": 512, "J": 512, "K": 512})
    listed = explain(kernel).partition("Other choices\n")[2].splitlines()
    assert listed
    assert all(line.endswith(" us") and not line.startswith("  none") for line in listed)
