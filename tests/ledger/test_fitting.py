"""Constants found again in times that a chip with other constants would take."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from nkilab.errors import UsageError
from nkilab.ledger import Predictor, Row, fit, judged, leave_one_structure_out
from nkilab.ledger.fitting import FREE, SPREAD, free_constants
from nkilab.machine import Machine, chip_named
from nkilab.machine.model import assumed

from .rows import row
from .serving import served as served

TRN2 = chip_named("trn2")
# vector additions of so many columns: the launch, the issue of transfers, bandwidth
SIZES = ((5120, 2), (5120, 40), (256000, 1000), (256000, 2000))
# the first is long enough to tell what the issue of a transfer costs
LONGER = ((25600, 2), (25600, 200), *SIZES[2:])


def timed_on(machine: Machine, predictor: Predictor, family: str = "additions", sizes=SIZES):
    """Rows that hold the times of a machine."""
    rows = []
    for count, columns in sizes:
        args = (f"f32[{count}]", f"f32[{count}]", columns)
        one = row(
            f"{family}-{count}-{columns}", {"nc_latency_us": 1.0}, family=family, split="fit", calls=(args,)
        )
        rows.append(
            replace(one, measured={"nc_latency_us": predictor.predict(one, "nc_latency_us", machine)})
        )
    return rows


def with_constants(**values: float) -> Machine:
    return structs.replace(TRN2, **{name: assumed(value, "a test") for name, value in values.items()})


@pytest.mark.usefixtures("served")
def test_constants_that_made_the_times_are_found_again():
    predictor = Predictor()
    machine = with_constants(kernel_start_ns=14000.0, dma_issue_ns=600.0)
    rows = timed_on(machine, predictor, sizes=LONGER)
    fitted = fit(judged(rows, predictor), TRN2)
    assert fitted.rows == 4
    assert fitted.before > 0.15
    # what is known pulls back
    assert fitted.after < 0.03
    # what a launch costs is told by the small kernels; a part of it may go to kernel_end_ns
    launch = fitted.machine["kernel_start_ns"] + fitted.machine["kernel_end_ns"]
    assert launch == pytest.approx(14000 + TRN2["kernel_end_ns"], rel=0.05)
    assert fitted.machine["dma_issue_ns"] == pytest.approx(600, rel=0.12)


@pytest.mark.usefixtures("served")
def test_times_that_agree_move_nothing():
    predictor = Predictor()
    fitted = fit(judged(timed_on(TRN2, predictor), predictor), TRN2)
    assert fitted.changed == {}
    assert fitted.machine == TRN2


@pytest.mark.usefixtures("served")
def test_documented_constants_never_move():
    predictor = Predictor()
    fitted = fit(judged(timed_on(with_constants(kernel_start_ns=30000.0), predictor), predictor), TRN2)
    facts = TRN2.facts()
    assert {name for name in fitted.changed if facts[name].certainty == "documented"} == set()
    assert set(fitted.changed) <= set(free_constants(TRN2)) <= set(FREE)
    assert SPREAD["documented"] == 0


@pytest.mark.usefixtures("served")
def test_rows_that_contradict_each_other_are_not_fitted_to():
    predictor = Predictor()
    rows = timed_on(TRN2, predictor)
    wrong = replace(rows[0], id="wrong", measured={"nc_latency_us": 1e6}, contradicts=(rows[0].id,))
    fitted = fit(judged([*rows, wrong], predictor), TRN2)
    assert (fitted.rows, fitted.changed) == (4, {})


@pytest.mark.usefixtures("served")
def test_measurements_of_another_chip_are_refused():
    predictor = Predictor()
    rows = [replace(one, chip="trn1") for one in timed_on(TRN2, predictor)]
    with pytest.raises(UsageError) as raised:
        fit(judged(rows, predictor), TRN2)
    assert str(raised.value) == (
        "the measurements are of trn1; the constants are of trn2\n"
        "  hint: give rows of one chip, none of which contradicts another"
    )


@pytest.mark.usefixtures("served")
def test_a_structure_that_is_left_out_is_predicted_by_the_others(monkeypatch):
    # the launch takes half as long again for all but one structure, whose times are those of the known chip
    monkeypatch.setattr(Row, "structure", property(lambda row: row.family))
    predictor = Predictor()
    slow = with_constants(kernel_start_ns=1.5 * TRN2["kernel_start_ns"])
    others = timed_on(slow, predictor, "slow")
    own = timed_on(TRN2, predictor, "own", sizes=SIZES[1:2])
    judgements = judged([*others, *own], predictor)
    errors = leave_one_structure_out(judgements, judgements, TRN2)
    latency = own[0].value * 1000
    # fitted to the slow ones the launch costs 4600 ns more; fitted to `own` alone it costs what it did
    assert list(errors["own"].values()) == pytest.approx([0.5 * TRN2["kernel_start_ns"] / latency], rel=0.3)
    known = [one.predict(TRN2) / one.measured - 1 for one in judged(others, predictor)]
    assert list(errors["slow"].values()) == pytest.approx(known, rel=1e-3)
