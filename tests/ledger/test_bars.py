"""The bars of the clock, on comparisons made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nkilab.ledger.bars import bars_of, regret_bars
from nkilab.ledger.regret import Grid

from .rows import compared


def bars(rows, grids=(), left=()):
    return {bar.name: (bar.reached, bar.is_met) for bar in bars_of(rows, grids, dict(left))}


def grid(*pairs, **changes):
    return Grid(tuple(compared(m, p, str(n), **changes) for n, (m, p) in enumerate(pairs)))


# eight points, measured 100, 110, ...; predicted alike, or the other way round
RISING = [(100 + 10 * n, 50 + n) for n in range(8)]
FALLING = [(100 + 10 * n, 50 - n) for n in range(8)]


def test_a_ledger_without_judged_rows_has_no_bars():
    assert bars([compared(100, 200, split="fit")]) == {}
    assert bars([]) == {}


def test_order_is_asked_of_grids_that_are_wide_and_spread():
    narrow, flat = grid(*FALLING[:5]), grid(*[(100 + n / 2, 50 - n) for n in range(8)])
    rows = {bar.name: bar.reached for bar in regret_bars([grid(*RISING), grid(*FALLING), narrow, flat])}
    assert rows["order: mean Kendall tau of grids"] == "0.00"
    assert rows["order: least Kendall tau of a grid"].startswith("-1.00 (adding.add_columns")
    only = {bar.name: bar.is_met for bar in regret_bars([grid(*RISING), narrow, flat])}
    assert only["order: least Kendall tau of a grid"]
    assert "order: mean Kendall tau of grids" not in {bar.name for bar in regret_bars([narrow])}


def test_choice_counts_grids_and_names_the_worst():
    # the falling grid takes the last point, 170 for 100
    reached = {
        bar.name: (bar.reached, bar.is_met) for bar in regret_bars([grid(*RISING)] * 9 + [grid(*FALLING)])
    }
    assert reached["choice, the whole grid: grids with a regret of at most 5%"] == ("9 of 10", True)
    worst, is_met = reached["choice, the whole grid: worst regret"]
    assert worst.startswith("70.0% (")
    assert not is_met


def test_grids_with_the_time_of_the_host_are_not_judged():
    rows = [compared(m, p, str(n)) for n, (m, p) in enumerate(FALLING)]
    host = Grid(
        tuple(
            one.__class__(one.row, "host_latency_us", one.measured, one.predicted, None, "") for one in rows
        )
    )
    assert regret_bars([host]) == []


def test_a_search_sees_twenty_points_and_the_worst_seed_counts():
    # predictions are right: the best point of those drawn; of 40 points each seed misses some
    points = grid(*[(100 + n, 100 + n) for n in range(40)])
    assert points.regret == 0
    assert 0 < points.searched < 0.1
    assert grid(*RISING).searched == grid(*RISING).regret


def test_errors_are_told_by_bound_and_by_family():
    rows = [
        compared(100, 104, "a"),
        compared(100, 112, "b", bound="DMA bandwidth", family="moved"),
        compared(100, 150, "c", split="context"),
        compared(100, 80, "d", split="fit", family="fitted"),
    ]
    reached = bars(rows)
    assert reached["error: MAPE of judged kernels"] == ("8.0%", False)
    assert reached["error: MAPE of judged kernels bound by engines"] == ("4.0%", True)
    assert reached["error: MAPE of judged kernels bound by DMA"][0] == "12.0%"
    # context rows stand in no family
    assert reached["error: MAPE of the worst family"] == ("20.0% (fitted)", False)


def test_a_written_reason_excuses_a_kernel_that_is_far_off():
    name = "error: kernels off by more than 35% without a reason"
    assert bars([compared(100, 200, "a")])[name] == ("1", False)
    assert bars([compared(100, 200, "a", reason="another student measured 190")])[name] == ("0", True)


def test_structures_left_out_have_a_mean_and_a_worst():
    reached = bars([compared(100, 100)], left={"copying, trn2": 0.05, "adding, trn2": 0.25})
    assert reached["structures left out: mean error"] == ("15.0%", False)
    assert reached["structures left out: the worst"] == ("25.0% (adding, trn2)", False)


def test_coverage_is_told_of_all_and_of_families_of_eight():
    # of ten of one family nine lie inside, of seven of another none
    inside = [compared(100, 105, str(n)) for n in range(9)] + [compared(100, 140, "x")]
    others = [compared(100, 140, f"o{n}", family="few") for n in range(7)]
    reached = bars(inside)
    assert reached["intervals: coverage"] == ("90%", True)
    assert reached["intervals: least coverage in a family of 8"] == ("90% (sums)", True)
    assert bars([*inside, *others])["intervals: coverage"] == ("53%", False)
    assert bars([*inside, *others])["intervals: least coverage in a family of 8"] == ("90% (sums)", True)


def test_widths_are_told_of_kernels_with_another_shape_fitted_and_of_others():
    rows = [
        compared(100, 100, "a", half=0.1, calls=(("f32[2]",),)),
        compared(100, 100, "b", half=0.2, calls=(("f32[4]",),), split="fit"),
        compared(100, 100, "c", half=0.4, kernel="copying.copy_tiled"),
    ]
    reached = bars(rows)
    # b is of the shape that is fitted: no other one is
    assert reached["intervals: median half-width with fitted siblings"] == ("10.0%", True)
    assert reached["intervals: median half-width of other kernels"][0] == "30.0%"


@pytest.mark.parametrize(
    ("metric", "pairs", "name", "expected"),
    [
        ("dma_bytes", [(8, 8), (8, 9)], "counters: bytes exact", ("1 of 2", False)),
        (
            "tensor_active_percent",
            [(50, 54)] * 4 + [(50, 60)],
            "counters: engines busy within 5 points",
            ("4 of 5", True),
        ),
        (
            "spill_save_bytes",
            [(100, 110), (100, 120)],
            "counters: spilled bytes within 15%",
            ("1 of 2", False),
        ),
    ],
)
def test_counters_are_exact_near_or_not(metric, pairs, name, expected):
    judged = compared(100, 100)
    rows = [replace(judged, metric=metric, measured=m, predicted=p) for m, p in pairs]
    assert bars([judged, *rows])[name] == expected
