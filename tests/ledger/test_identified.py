"""Fitted constants: each is told by measurements of at least two settings, or the check says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nkilab.ledger import Predictor, own_rows
from nkilab.ledger.identified import all_telling, bar_of_constants, fitted_constants, telling
from nkilab.machine import chip_named

from .rows import row
from .serving import served as served

TRN2 = chip_named("trn2")


def addition(name: str, columns: int, **other: object):
    count = 128 * columns
    args = (f"f32[{count}]", f"f32[{count}]", columns)
    return row(name, {"nc_latency_us": 15.0}, split="fit", calls=(args,), **other)


def test_every_constant_that_is_marked_fitted_is_looked_at_but_the_intervals():
    assert set(fitted_constants(TRN2)) == {
        "vector_overhead_ns", "redundant_load_window_bytes", "tile_buffers", "kernel_start_ns",
        "profile_extra_ns", "spare_block_buffers", "psum_shared_bytes",
    }  # fmt: skip
    assert fitted_constants(chip_named("trn1")) == (
        "tensor_sustained_rate", "dma_run_ns", "collective_channel_ns",
    )  # fmt: skip
    # nothing is measured on trn3, and nothing is fitted
    assert fitted_constants(chip_named("trn3")) == ()


@pytest.mark.usefixtures("served")
def test_a_constant_that_one_setting_tells_is_named():
    # the launch is in both, a second measurement of one setting adds nothing
    one, again, other = addition("a", 200), addition("b", 200), addition("c", 1000)
    predictor = Predictor()
    assert telling("kernel_start_ns", TRN2, [one, again], predictor) == ["a"]
    assert telling("kernel_start_ns", TRN2, [one, again, other], predictor) == ["a", "c"]
    # no profile: nothing tells what a profile adds
    assert telling("profile_extra_ns", TRN2, [one, other], predictor) == []
    settings = {"kernel_start_ns, trn2": ["a", "c"], "profile_extra_ns, trn2": ["a"]}
    assert not bar_of_constants(settings).is_met
    assert bar_of_constants(settings).reached == "profile_extra_ns, trn2"
    assert bar_of_constants({"kernel_start_ns, trn2": ["a", "c"]}).is_met


@pytest.mark.usefixtures("served")
def test_judged_contradicted_and_noisy_rows_tell_nothing():
    rows = [
        addition("judged", 200),
        addition("contradicted", 1000, contradicts=("other",)),
        # 3 us of 15 are 20 %
        addition("noisy", 2000, noise=0.5),
    ]
    rows[0] = replace(rows[0], split="judge")
    assert telling("kernel_start_ns", TRN2, rows, Predictor()) == []


@pytest.mark.slow
@pytest.mark.usefixtures("served")
def test_every_fitted_constant_of_the_ledger_is_told_by_two_settings():
    bar = bar_of_constants(all_telling(own_rows(), Predictor()))
    assert bar.is_met, bar.reached
