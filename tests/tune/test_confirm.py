"""Measured points: constants are fitted to them, and the search goes on with both."""

from __future__ import annotations

import json
from math import exp, log
from pathlib import Path

import pytest

from nkilab import spec
from nkilab.errors import FileError
from nkilab.hook import activate
from nkilab.ledger.fitting import changed
from nkilab.machine import chip_named
from nkilab.runner import kernel_from
from nkilab.tune.confirm import read_measured, recalibrated
from nkilab.tune.executors import Inline
from nkilab.tune.objective import Case, KernelObjective
from nkilab.tune.samplers import sampler_named
from nkilab.tune.space import read_space, space_of
from nkilab.tune.study import search
from nkilab.tune.verdict import interval_of
from tests.command_line import call, outcome_of
from tests.tune.kernels import written

HEAD = "schema: nkilab.measured/1\npoints:\n"
BAD = {
    "schema: x\n": "measured.yaml:1: the schema is 'x'; a file of measured points has 'nkilab.measured/1'",
    HEAD + "  - {columns: 100, latency_us: 5}\n": "measured.yaml:3: columns=100 is no point of the space",
    HEAD + "  - {latency_us: 5}\n": "measured.yaml:3:  is no point of the space",
    HEAD + "  - {columns: 64}\n": "measured.yaml:3: latency_us is None; it must be a number above 0",
    HEAD
    + "  - {columns: 64, latency_us: -1}\n": "measured.yaml:3: latency_us is -1; it must be a number above 0",
    HEAD + "  - {columns: 64, latency_us: 5, noise: 0}\n": "measured.yaml:3: noise is 0; "
    "it must be a number above 0",
    HEAD + "  - {columns: 64.0, latency_us: 5}\n": "measured.yaml:3: columns=64.0 is no point of the space",
    HEAD + "  - {columns: 64, latency_us: 5, noise: 3}\n": (
        "measured.yaml:3: noise is 3; it must be a relative spread, 0.02 for 2 %"
    ),
    HEAD + "  - {columns: 64, latency_us: 5}\n  - {columns: 64, latency_us: 6}\n": (
        "measured.yaml:4: columns=64 is measured twice"
    ),
    HEAD + "  - 7\n": "measured.yaml:3: an entry of points is 7; it must hold names and values",
    "schema: nkilab.measured/1\npoints: []\n": (
        "measured.yaml:1: points is []; it must be a list with at least one entry"
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path)


@pytest.mark.parametrize("text", BAD)
def test_what_was_not_measured_so_is_refused_with_its_line(text, folder):
    path = folder / "measured.yaml"
    path.write_text(text)
    with pytest.raises(FileError) as caught:
        read_measured(path, read_space(folder / "space.yaml"))
    assert str(caught.value).splitlines()[0] == BAD[text]


def test_constants_move_towards_what_was_measured_and_measured_points_keep_their_value(folder):
    """The measurements are predictions of a chip whose transfers take longer, which the fit has to find."""
    space = space_of({"columns": {"powers_of_two": [64, 1024]}})
    chip = chip_named("trn2")
    slower = changed(chip, {"dma_issue_ns": log(1.3), "dma_done_ns": log(1.2), "kernel_end_ns": log(1.1)})
    with activate():
        kernel = kernel_from(str(folder / "kernels.py") + ":copied")
        objective = KernelObjective(kernel, [Case((spec((128, 2048), "float32"),))], chip)
        truth = objective.under(slower)
        lines = [
            f"  - {{columns: {n}, latency_us: {truth.evaluate({'columns': n}).latency_us}}}\n"
            for n in (64, 128, 256, 1024)
        ]
        (folder / "measured.yaml").write_text(HEAD + "".join(lines))
        fitted = recalibrated(read_measured(folder / "measured.yaml", space), objective)
        after = objective.under(fitted.machine)
        sampler = sampler_named("exhaustive", space, 10, 1, 0)
        result = fitted.applied(search(space, after, sampler, Inline(after), trials=10))
        # what was not measured is predicted better as well
        errors = [
            abs(one.evaluate({"columns": 512}).latency_us / truth.evaluate({"columns": 512}).latency_us - 1)
            for one in (objective, after)
        ]
    assert fitted.fitted.after < 0.6 * fitted.fitted.before
    assert errors[1] < errors[0]
    by_columns = {o.point["columns"]: o for o in result.outcomes}
    assert by_columns[64].latency_us == truth.evaluate({"columns": 64}).latency_us
    assert by_columns[64].measured_us is not None
    assert by_columns[512].measured_us is None
    assert abs(by_columns[512].latency_us / truth.evaluate({"columns": 512}).latency_us - 1) < errors[0]
    low, high = interval_of(by_columns[512])
    # as wide as four measurements scatter about their predictions, on both sides alike
    assert high / by_columns[512].latency_us == pytest.approx(by_columns[512].latency_us / low)
    assert high / low == pytest.approx(exp(2 * fitted.half_width))


def test_confirm_tells_what_moved(folder):
    base = ("tune", "kernels.py:copied", "--space", "space.yaml", "--arg", "f32[128,2048]")
    first = json.loads(outcome_of(call(*base, "--json", "--journal", "journal", folder=folder))[1])
    best = first["best"]["point"]["columns"]
    lines = "".join(
        f"  - {{columns: {n}, latency_us: {t}}}\n" for n, t in ((64, 60), (128, 36), (256, 24), (best, 15))
    )
    (folder / "measured.yaml").write_text(HEAD + lines)
    options = ("--json", "--journal", "journal", "--confirm", "measured.yaml")
    document = json.loads(outcome_of(call(*base, *options, folder=folder))[1])
    assert document["confirmed"]["mape"]["after"] < document["confirmed"]["mape"]["before"]
    assert document["confirmed"]["constants"]
    assert document["best"]["measured_us"] == 15
    assert document["spread_within_kernel"]["from"] == "4 measured points"
    # outcomes under either set of constants stand in the journal, each once
    assert len((folder / "journal").read_text().splitlines()) == 1 + 2 * 6
    text = outcome_of(call(*base, *options[1:], folder=folder))[1]
    assert "copied on trn2: 15.00 us measured" in text


def test_a_measurement_in_another_unit_is_refused(folder):
    (folder / "measured.yaml").write_text(HEAD + "  - {columns: 512, latency_us: 17000}\n")
    arguments = ("--space", "space.yaml", "--arg", "f32[128,2048]", "--confirm", "measured.yaml")
    status, output, complaint = outcome_of(call("tune", "kernels.py:copied", *arguments, folder=folder))
    assert (status, output) == (2, "")
    assert complaint.startswith("nkilab: columns=512 is measured with 17000 us, predicted with ")
    assert complaint.endswith(" us\n  hint: write latency_us in microseconds\n")
