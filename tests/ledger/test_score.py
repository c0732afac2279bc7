"""Errors, ranks and intervals against values worked out by hand."""

from __future__ import annotations

import pytest

from nkilab.ledger import score_of
from nkilab.ledger.score import bars_of, prediction_width, settings_of, tau_of

from .rows import compared


def test_the_mean_error_is_over_settings_and_not_over_rows():
    # one setting is off by 10 % and by 30 %, which is 20 %; another by 40 %: the mean is 30 %
    twins = [compared(100, 110, "a"), compared(100, 70, "b", calls=(("a",),))]
    other = compared(200, 120, "c")
    score = score_of([*twins, other])
    assert [len(own) for own in settings_of([*twins, other])] == [2, 1]
    assert score.settings == 2
    assert score.mape == pytest.approx(0.30)
    assert score.worst is other


def test_settings_differ_by_shapes_chip_and_options():
    rows = [
        compared(1, 1, "a"),
        compared(1, 1, "a", calls=(("f32[2]",),)),
        compared(1, 1, "a", chip="trn1"),
        compared(1, 1, "a", options={"dge": "static"}),
        compared(1, 1, "a", keywords={"tiles_m": 2}),
        compared(1, 1, "other name", calls=(("a",),)),
    ]
    assert len(settings_of(rows)) == 5


def test_tau_counts_pairs():
    # measured 1 < 2 < 3, predicted 10, 30, 20: of three pairs two agree and one does not: (2 - 1) / 3
    rows = [compared(1, 10), compared(2, 30), compared(3, 20)]
    assert tau_of(rows) == pytest.approx(1 / 3)


def test_a_pair_that_is_predicted_equal_counts_but_agrees_with_nothing():
    # of three pairs one is predicted equal, two agree: 2 / 3
    assert tau_of([compared(1, 10), compared(2, 10), compared(3, 20)]) == pytest.approx(2 / 3)


def test_a_pair_within_noise_is_no_pair():
    # 100.0 and 100.9 differ by less than 1 %
    assert tau_of([compared(100, 9), compared(100.9, 8)]) is None
    assert tau_of([compared(100, 9), compared(102, 8)]) == -1


def test_chips_are_not_ranked_with_each_other():
    assert tau_of([compared(1, 2), compared(2, 1, chip="trn1")]) is None


def test_families_are_ranked_apart():
    rows = [compared(1, 1), compared(2, 2), compared(1, 5, family="scan"), compared(9, 4, family="scan")]
    assert score_of(rows).tau == {"sums": 1.0, "scan": -1.0}


def test_coverage_is_the_share_of_settings_inside_their_interval():
    # 105 lies in 90 to 110, 120 does not; half-widths 0.1 and 0.2
    rows = [compared(105, 100, "a"), compared(130, 100, "b", half=0.2)]
    score = score_of(rows)
    assert score.coverage == 0.5
    assert score.half_width == pytest.approx(0.15)


def test_no_rows_have_no_score_and_no_bars():
    assert score_of([]) is None
    assert bars_of(None, []) == []


def bars(rows):
    return {bar.name: (bar.reached, bar.is_met) for bar in bars_of(score_of(rows), rows)}


def test_every_bar_is_met_by_good_predictions():
    # nine of ten measured values lie inside; errors 5 %, once 20 %: (9 * 5 + 20) / 10 = 6.5 %
    rows = [compared(100 * 2**i, 105 * 2**i, str(i)) for i in range(9)] + [compared(51_200, 61_440, "x")]
    assert bars(rows) == {
        "MAPE of judged kernels": ("6.5%", True),
        "Kendall tau in every family": ("1.00 (sums)", True),
        "kernels off by more than 35 % without a reason": ("0", True),
        "judged values inside their interval": ("90%", True),
        "median half-width of the intervals": ("10%", True),
    }


def test_every_bar_is_missed_by_bad_ones():
    rows = [compared(100, 200, "a", half=0.4), compared(300, 150, "b", half=0.4)]
    assert bars(rows) == {
        "MAPE of judged kernels": ("75.0%", False),
        "Kendall tau in every family": ("-1.00 (sums)", False),
        "kernels off by more than 35 % without a reason": ("2", False),
        "judged values inside their interval": ("0%", False),
        "median half-width of the intervals": ("40%", False),
    }


def test_a_written_reason_excuses_a_kernel_that_is_far_off():
    rows = [compared(100, 200, "a", reason="another student measured 190")]
    assert bars(rows)["kernels off by more than 35 % without a reason"] == ("0", True)


def test_intervals_that_hold_everything_are_too_wide():
    rows = [compared(100 * i, 100 * i, str(i)) for i in range(1, 5)]
    assert bars(rows)["judged values inside their interval"] == ("100%", False)


def test_the_interval_of_a_new_family_counts_each_family_once():
    # root mean squares 0.1 and 0.2 and 0.2: sqrt(0.03); t of two degrees of freedom 2.92; sqrt(4 / 3)
    families = [[0.1, -0.1, 0.1, -0.1], [-0.2], [0.2, 0.2]]
    assert prediction_width(families) == pytest.approx(2.92 * (4 / 3 * 0.03) ** 0.5)
    assert prediction_width([[0.1, 0.2]]) is None
