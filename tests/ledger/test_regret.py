"""Grids of block sizes, and what choosing by prediction costs on them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nkilab.ledger.choice import NOTHING, Demand
from nkilab.ledger.regret import Grid, grids_of
from nkilab.ledger.row import Call, Row, Source
from nkilab.ledger.score import Compared
from tests.command_line import call, outcome_of
from tests.tune.kernels import KERNEL

ROW = Row(
    id="one", family="f", kernel="a.b", calls=(Call("a.b", ("f32[8]", 1)),), measured={"device_us": 10.0},
    source=Source("lab", "notes"), chip="trn2", dialect="nki", trust="A", split="fit", noise=0.01,
)  # fmt: skip


def other(name: str, **changes: object) -> Row:
    return replace(ROW, id=name, **changes)


def grid(*points: Compared) -> Grid:
    return Grid(points)


def compared(measured: float, predicted: float, demand: Demand = NOTHING) -> Compared:
    row = other(f"{measured}", measured={"device_us": measured})
    return Compared(row, "device_us", measured, predicted, None, "", demand)


def test_a_grid_is_one_kernel_on_the_same_arrays_with_other_whole_numbers():
    rows = [
        ROW,
        other("other size", calls=(Call("a.b", ("f32[8]", 2)),)),
        other("again", calls=(Call("a.b", ("f32[8]", 2)),)),
        other("other array", calls=(Call("a.b", ("f32[16]", 2)),)),
        other("other chip", chip="trn1", calls=(Call("a.b", ("f32[8]", 3)),)),
        other("other word", keywords={"sums": "float32"}, calls=(Call("a.b", ("f32[8]", 4)),)),
        other("a count", measured={"dma_bytes": 3.0}, calls=(Call("a.b", ("f32[8]", 5)),)),
    ]
    assert [[row.id for row in grid] for grid in grids_of(rows)] == [["one", "other size"]]
    words = [other(f"k{n}", keywords={"k": n, "sums": "float32"}) for n in (1, 2, 3)]
    assert [len(grid) for grid in grids_of(words)] == [3]


def test_regret_is_how_much_longer_the_choice_was_measured():
    points = grid(compared(100, 90), compared(80, 95), compared(120, 130))
    # by hand: 90 is predicted least and was measured 100; the best was measured 80
    assert points.regret == pytest.approx(0.25)
    assert points.tau == pytest.approx(1 / 3)
    assert grid(compared(100, 1), compared(100, 2)).tau is None


def test_of_points_that_are_predicted_alike_the_one_that_asks_least_of_sbuf_is_chosen():
    small, large = Demand(0, 4, 64, 8), Demand(0, 64, 4, 8)
    # 90.05 is within a thousandth of 90, 91 is not, whatever it asks
    first, second = (compared(100, 90.0, large), compared(80, 90.05, small)), compared(70, 91.0, small)
    assert grid(*first, second).chosen.measured == 80
    assert grid(compared(100, 90.0, small), compared(80, 90.05, large), second).chosen.measured == 100
    spilling = Demand(1, 4, 64, 8)
    assert grid(compared(100, 90.0, large), compared(80, 90.05, spilling)).chosen.measured == 100


LEDGER = """\
schema: nkilab.ledger/1
sources:
  lab: {ref: our notebook}
groups:
  - {family: copying, kernel: "kernels.py:copied", chip: trn2, dialect: nki, trust: B,
     args: ['f32[128,2048]'], split: fit, noise: 0.02, source: lab, rows: [
       {id: c64, keywords: {columns: 64}, measured: {nc_latency_us: 60}},
       {id: c1024, keywords: {columns: 1024}, measured: {nc_latency_us: 20}},
       {id: c128, keywords: {columns: 128}, measured: {nc_latency_us: 30}}]}
"""


def test_validate_prints_regret_and_rank_correlation_of_a_ledger(tmp_path: Path):
    (tmp_path / "kernels.py").write_text(KERNEL)
    (tmp_path / "mine.yaml").write_text(LEDGER)
    status, output, complaint = outcome_of(call("validate", "--regret", "mine.yaml", folder=tmp_path))
    assert (status, complaint) == (0, "")
    assert "kernels.py:copied f32[128,2048] on trn2 (lab, nc_latency_us)" in output
    assert "    3 points  regret   0.0%, searched   0.0%  Kendall tau  1.00" in output
    assert output.endswith(
        "met     choice, 20 trials, the worst of 4 seeds: worst regret: 0.0% (kernels.py:copied "
        "f32[128,2048]\n"
        "    on trn2 (lab, nc_latency_us)); at most 10%\n"
    )
    document = json.loads(outcome_of(call("validate", "--regret", "--json", "mine.yaml", folder=tmp_path))[1])
    assert document["schema"] == "nkilab.regret/1"
    assert [(g["chosen"], g["best"], g["points"]) for g in document["grids"]] == [("c1024", "c1024", 3)]


def test_regret_goes_with_no_picture(tmp_path: Path):
    assert outcome_of(call("validate", "--regret", "--picture", "x.svg", folder=tmp_path)) == (
        2,
        "",
        "nkilab: --regret goes with --family and --json alone\n  hint: leave the other options out\n",
    )


def test_a_ledger_without_grids_is_told(tmp_path: Path):
    (tmp_path / "kernels.py").write_text(KERNEL)
    (tmp_path / "mine.yaml").write_text(
        LEDGER.replace("{id: c1024", "# ").replace("{id: c128, keywords: {columns: 128}", "# ")
        + "       ]}\n"
    )
    done = call("validate", "--regret", "mine.yaml", folder=tmp_path)
    assert done.returncode == 2
    assert "no two rows differ in block sizes alone" in done.stderr
