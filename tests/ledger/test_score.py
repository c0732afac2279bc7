"""Errors, ranks and intervals against values worked out by hand."""

from __future__ import annotations

import pytest

from nkilab.ledger import score_of
from nkilab.ledger.score import settings_of, tau_of

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


def test_a_pair_within_ties_is_no_pair():
    # 100 and 101.9 lie within 2 %, 104 lies 2 % above both
    rows = [compared(100, 9), compared(101.9, 8), compared(104.1, 10)]
    assert tau_of(rows, 0.02) == 1
    assert tau_of(rows) == pytest.approx(1 / 3)


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


def test_no_rows_have_no_score():
    assert score_of([]) is None


def test_half_widths_are_those_of_the_chip_to_the_last_digit():
    # 2540.0 * 1.15 - 2540.0 * 0.85 over twice 2540 is 0.15000000000000002, which missed a bar of 15 %
    widths = {compared(100.0, predicted, half=0.15).half_width for predicted in (2540.0, 160.03, 39894.938)}
    assert widths == {0.15}
