"""The rows that come with nkilab: complete, well formed, equal to the loops where the source counts them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from nkilab.isa.declare import Step
from nkilab.ledger import Predictor, Row, ledger_rows, left_out, own_rows
from nkilab.ledger.reading import OWN

from .serving import served as served

ROWS = {row.id: row for row in own_rows()}


def test_there_are_rows_of_every_sort():
    assert len(ROWS) == 481
    assert Counter(row.split for row in ROWS.values()) == {"fit": 343, "judge": 65, "context": 73}
    # measured quantities, transfers and instructions apart
    assert Counter(row.kind for row in ROWS.values())["kernel"] > 180
    assert {row.chip for row in ROWS.values()} == {"trn1", "trn2"}


def test_what_is_left_out_has_a_reason_and_is_no_row():
    assert len(left_out()) == 177
    assert all(len(reason.split()) > 5 for reason in left_out().values())
    assert not set(left_out()) & set(ROWS)


# the figures of the course's writeup and of the optimization guide, typed from their pages
FIGURES = {
    "cs149-xg-tiled-rc1": {"nc_latency_us": 37318},
    "cs149-xg-tiled-rc128": {"nc_latency_us": 378},
    "cs149-xg-stream-fd2": {"nc_latency_us": 186},
    "cs149-xg-stream-fd200": {"nc_latency_us": 15},
    "cs149-xg-stream256k-fd2000": {"profile_us": 28, "dma_transfers": 3},
    "cs149-xg-stream256k-fd1000": {"profile_us": 26, "dma_transfers": 6},
    "cs149-xg-transpose1024": {"nc_latency_us": 86},
    "cs149-xg-conv224-fp32": {"nc_latency_us": 3832},
    "cs149-xg-conv224-fp16": {"nc_latency_us": 824},
    "cs149-xg-conv224pool-fp32": {"nc_latency_us": 3830},
    "cs149-xg-conv224pool-fp16": {"nc_latency_us": 825},
    "awsdoc-mm-v2-tiled": {"tensor_active_percent": 87.28, "dma_active_percent": 99.93},
    "awsdoc-mm-v3-hoist": {"tensor_active_percent": 99.85, "dma_active_percent": 99.73},
    "awsdoc-mm-v4-blockfree": {"tensor_active_percent": 99.52, "dma_active_percent": 95.7},
    "awsdoc-mm-v5-full": {
        "tensor_active_percent": 99.5,
        "dma_active_percent": 21.54,
        "vector_active_percent": 10.55,
    },
}


@pytest.mark.parametrize("name", FIGURES)
def test_the_published_figures_are_there(name: str):
    row = ROWS[name]
    assert {metric: row.measured[metric] for metric in FIGURES[name]} == FIGURES[name]
    assert row.source.ref
    assert row.source.commit


def test_the_guide_has_its_four_latencies_in_milliseconds():
    stages = ["awsdoc-mm-v2-tiled", "awsdoc-mm-v3-hoist", "awsdoc-mm-v4-blockfree", "awsdoc-mm-v5-full"]
    assert [round(ROWS[name].value / 1000, 2) for name in stages] == [39.89, 28.20, 28.41, 28.30]


def test_contradictions_are_marked_on_both_sides():
    for row in ROWS.values():
        for other in row.contradicts:
            assert row.id in ROWS[other].contradicts, other


def test_nothing_judged_may_be_fitted_through_a_twin():
    settings: dict[tuple[str, ...], set[str]] = {}
    for row in ROWS.values():
        settings.setdefault(row.setting, set()).add(row.split)
    assert not [key for key, splits in settings.items() if {"fit", "judge"} <= splits]


def moved(predictor: Predictor, row: Row) -> tuple[int, int]:
    """Transfers and bytes that the loops of a kernel ask for, whatever a compiler makes of them."""
    (program,) = predictor.programs(row, 0)
    calls = np.bincount(program.form_column, minlength=len(program.forms)).tolist()
    steps: list[tuple[int, Step]] = [
        (count, step) for form, count in zip(program.forms, calls, strict=True) for step in form.steps
    ]
    own = [(count, step) for count, step in steps if step.engine == "dma"]
    return sum(c for c, _ in own), sum(c * s.descriptors * s.descriptor_bytes for c, s in own)


@pytest.mark.usefixtures("served")
def test_loops_of_blocked_products_move_what_the_profiler_counted():
    predictor = Predictor()
    rows = [row for row in ROWS.values() if row.family.startswith("matmul blocked float32")]
    # of rows for context the profiler counted spills, or loads that the compiler left out
    rows = [row for row in rows if row.split != "context"]
    assert len(rows) == 39 + 19 + 7
    for row in rows:
        wanted = row.measured["dma_transfers"], row.measured["dma_bytes"]
        assert moved(predictor, row) == wanted, row.id


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize(
    ("name", "transfers", "total"),
    [
        # three transfers of 128 * 2000 float32; six of half of that
        ("cs149-chz-stream256k-fd2000", 3, 3_072_000),
        ("cs149-chz-stream256k-fd1000", 6, 3_072_000),
        # 64 tiles of 64 KiB to and from; the profiler counts one more, the identity matrix
        ("cs149-chz-transpose1024", 129 - 1, 8_454_144 - 65_536),
        # the compiler left out 512 loads of 64 KiB; our loops hold what the source says
        ("sky-tutorial-2048-tiled", 1600 + 512, 318_767_104 + 512 * 65_536),
        ("sky-tutorial-2048-full", 96, 67_108_864),
    ],
)
def test_loops_move_what_the_profiler_counted(name: str, transfers: int, total: int):
    assert moved(Predictor(), ROWS[name]) == (transfers, total)


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("kind", ["baseline", "fused"])
@pytest.mark.parametrize("size", [512, 1024])
@pytest.mark.parametrize(("dtype", "identities"), [("fp32", 65_536), ("bf16", 65_536 + 32_768)])
def test_attention_moves_what_the_profiler_counted_but_for_identity_matrices(kind, size, dtype, identities):
    row = ROWS[f"akc-prof-{kind}-{dtype}-s{size}"]
    total = row.measured["hbm_read_bytes"] + row.measured["hbm_write_bytes"]
    # a 128x128 identity in float32 is 64 KiB; in bfloat16, which the transposes of v need too, 32 KiB
    assert moved(Predictor(), row)[1] == total - identities


def test_the_document_counts_the_rows_of_each_file():
    page = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text()
    documented = {
        name: int(count) for name, count in re.findall(r"^\| `(\w+)\.yaml` \| (\d+) \|", page, re.M)
    }
    counted = {path.stem: len(ledger_rows(path)) for path in OWN.glob("*.yaml") if path.stem != "left_out"}
    assert documented == counted
