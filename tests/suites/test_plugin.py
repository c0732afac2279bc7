"""The pytest plugin: fixtures, budgets, chips as parameters, the report and JUnit; alone and with workers."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import pytest

from nkilab.suites.budgets import Budget, budget_of
from tests.command_line import SOURCE

pytest_plugins = ["pytester"]
# pytest finds the plugin of an installed nkilab by itself, under the name nkilab
PLUGIN = ("-p", "no:nkilab", "-p", "nkilab.suites.plugin", "-p", "no:cacheprovider")
KERNELS = """\
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def doubled(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2)
    return out

@nki.jit
def halved(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 0.5)
    return out
"""
SUITE = """\
import numpy as np
import pytest
from kernels import doubled, halved

X = np.ones((128, 512), np.float32)

def test_simulate_runs_on_data(nki_simulate):
    assert (nki_simulate(doubled, X) == 2).all()

def test_estimate(nki_estimate, nki_check):
    made = nki_estimate(doubled, X)
    assert 1 < made.interval_us[0] < made.latency_us < made.interval_us[1]
    assert nki_check(doubled, X) == []

@pytest.mark.nki_budget(latency_us=1000)
def test_within():
    doubled(X)

@pytest.mark.nki_budget(latency_us=0.5)
def test_too_slow():
    doubled(X)
    doubled(X)

@pytest.mark.nki_budget(mfu=0.9, mbu=0.9)
def test_too_idle(nki_estimate):
    nki_estimate(halved, X)

@pytest.mark.nki_budget(latency_us=0.5, kernel="halved")
class TestOfOneKernel:
    def test_others_are_free(self):
        doubled(X)
        with pytest.raises(ZeroDivisionError):
            1 / 0

    @pytest.mark.nki_budget(latency_us=1000, kernel="halved")
    def test_the_nearest_marker_holds(self):
        doubled(X)
        halved(X)

@pytest.mark.nki_budget(latency_us=0.5, target="trn1")
def test_a_budget_of_another_chip(nki_simulate):
    nki_simulate(doubled, X, target="trn2")

@pytest.mark.nki_budget(latency_us=10)
def test_an_error_of_its_own_comes_first():
    assert 1 == 2
"""
NUMBER = r"(\d+\.\d+)"


@pytest.fixture
def run(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_ADDOPTS", "")
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    pytester.makepyfile(kernels=KERNELS)

    def run(text, *options):
        pytester.makepyfile(test_suite=text)
        return pytester.runpytest_subprocess(*PLUGIN, *options)

    return run


def outcomes(result):
    """Outcome by name of test, from the lines of -rA."""
    matched = (re.match(r"(PASSED|FAILED|ERROR) \S+?::(\S+)", line) for line in result.outlines)
    return {match[2].rpartition("::")[2]: match[1] for match in matched if match}


def test_fixtures_and_budgets_hold_and_tell(run, pytester):
    result = run(SUITE, "-rA", "--junitxml=report.xml")
    assert outcomes(result) == {
        "test_simulate_runs_on_data": "PASSED",
        "test_estimate": "PASSED",
        "test_within": "PASSED",
        "test_too_slow": "FAILED",
        "test_too_idle": "FAILED",
        "test_others_are_free": "FAILED",
        "test_the_nearest_marker_holds": "PASSED",
        "test_a_budget_of_another_chip": "PASSED",
        "test_an_error_of_its_own_comes_first": "FAILED",
    }, result.stdout.str()
    text = result.stdout.str()
    # what is equal is told once; value, interval and bound stand in the message
    head = rf"nki_budget: doubled on trn2: {NUMBER} us predicted, {NUMBER} to {NUMBER} us, bound by DMA.*\n"
    slow = re.search(head + rf"  predicted are {NUMBER} us; the budget is 0\.5 us\n", text)
    value, low, high, again = map(float, slow.groups())
    assert low < value < high
    assert value == again
    # the short summary repeats whole messages where CI is set
    assert text.partition("short test summary info")[0].count("the budget is 0.5 us") == 1
    assert re.search(r"  mfu is 0\.\d{3}; the budget is at least 0\.9\n  mbu is 0\.\d{3}; the budget", text)
    assert (
        "neither launches nor estimates the kernel halved; the budget holds nothing (it runs doubled)" in text
    )
    assert "assert 1 == 2" in text
    section = text.split("nkilab: predicted latencies")[1]
    assert len(re.findall(r"us predicted, .* bound by .*  test_suite\.py::", section)) == 8
    _junit_has(pytester.path / "report.xml", value)


def _junit_has(path, value):
    cases = {case.get("name"): case for case in ElementTree.parse(path).iter("testcase")}
    properties = {p.get("name"): p.get("value") for p in cases["test_too_slow"].iter("property")}
    assert float(properties["nki[doubled,trn2].latency_us"]) == pytest.approx(value, abs=0.006)
    assert {name.partition("].")[2] for name in properties} == {
        "latency_us", "low_us", "high_us", "bound", "mfu", "mbu",
    }  # fmt: skip
    assert not list(cases["test_simulate_runs_on_data"].iter("property"))


TARGETS = """\
import numpy as np
import pytest
from kernels import doubled

X = np.ones((128, 512), np.float32)

@pytest.mark.nki_budget(latency_us=0.5, target="trn1")
def test_chips(nki_estimate, nki_target):
    assert nki_estimate(doubled, X).target == nki_target

@pytest.mark.parametrize("nki_target", ["trn3"])
def test_own_chips(nki_estimate, nki_target):
    assert nki_estimate(doubled, X).target == "trn3"

def test_without_a_fixture_runs_once():
    doubled(X)
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_chips_are_parameters_and_workers_send_what_they_predict(run, workers):
    if workers:
        pytest.importorskip("xdist")
    result = run(TARGETS, "-rA", "--nki-target", "trn1, trn2", *workers)
    assert outcomes(result) == {
        "test_chips[trn1]": "FAILED",
        "test_chips[trn2]": "PASSED",
        "test_own_chips[trn3]": "PASSED",
        "test_without_a_fixture_runs_once": "PASSED",
    }, result.stdout.str()
    section = result.stdout.str().split("nkilab: predicted latencies")[1]
    assert re.findall(r"doubled on (trn\d): .*  test_suite\.py::(\S+)", section) == [
        ("trn1", "test_chips[trn1]"),
        ("trn2", "test_chips[trn2]"),
        ("trn3", "test_own_chips[trn3]"),
    ]


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((10,), {}, "nki_budget has 10 without a name; write nki_budget(latency_us=10)"),
        ((), {"latency": 10}, "nki_budget takes no latency; it takes latency_us, mfu, mbu, kernel, target, "
         "strict; did you mean latency_us?"),
        ((), {"kernel": "k"}, "nki_budget bounds nothing; give it latency_us, mfu or mbu"),
        ((), {"mfu": 40}, "nki_budget has mfu=40; it must be a fraction between 0 and 1"),
        ((), {"latency_us": "9"}, "nki_budget has latency_us='9'; it must be microseconds above 0"),
        ((), {"mfu": 0.1, "target": "trn9"}, "nki_budget has target='trn9'; "
        "it must be one of trn1, trn2, trn3"),
    ],
)  # fmt: skip
def test_a_budget_that_says_nothing_is_refused(args, kwargs, message):
    with pytest.raises(pytest.UsageError) as caught:
        budget_of(SimpleNamespace(args=args, kwargs=kwargs))
    assert str(caught.value) == message


def test_such_a_budget_fails_its_test_before_it_runs_and_no_other(run):
    result = run(
        "import pytest\n@pytest.mark.nki_budget(mfu=40)\ndef test_it(): 1 / 0\ndef test_other(): pass\n"
    )
    result.stdout.fnmatch_lines(
        ["*ERROR at setup of test_it*", "nki_budget has mfu=40; it must be a fraction*"]
    )
    result.assert_outcomes(errors=1, passed=1)


def test_an_error_of_a_kernel_shows_the_lines_of_the_user_alone(run):
    suite = "from kernels import doubled\nimport numpy\ndef test_it(nki_simulate):\n"
    suite += "    nki_simulate(doubled, numpy.ones((256, 4), numpy.float32))\n"
    result = run(suite)
    result.stdout.fnmatch_lines(
        [">*nki_simulate(doubled,*", ">*nl.store(out, nl.load(x) * 2)", "*architecture limitation of 128."]
    )
    result.stdout.no_fnmatch_line("*nkilab*in run*")
    result.stdout.no_fnmatch_line("*raise_typed*")
    whole = run(suite, "--full-trace")
    whole.stdout.fnmatch_lines(["*raise_typed*"])


def test_strict_budgets_hold_the_slow_end_of_the_interval():
    predicted = {"kernel": "k", "target": "trn2", "latency_us": 10.0, "low_us": 8.0, "high_us": 12.0,
                 "bound": "DMA", "mfu": 0.6, "mbu": 0.3}  # fmt: skip
    assert Budget(latency_us=11, mfu=0.55).broken_by(predicted) == []
    # 0.6 * 10 / 12 is 0.5
    assert Budget(latency_us=11, mfu=0.55, strict=True).broken_by(predicted) == [
        "the slow end of the interval is 12.00 us; the budget is 11 us; the interval reaches into the budget",
        "mfu is 0.500; the budget is at least 0.55",
    ]


def test_wrong_options_are_refused_in_one_line(run):
    result = run("def test_it(): pass\n", "--nki-target", "trn9")
    result.stderr.fnmatch_lines(["ERROR: target is trn9; it must be one of trn1, trn2, trn3,*"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR


UNUSED = """\
import sys

def test_nothing_heavy_is_loaded():
    heavy = {"numpy", "numba", "rich", "click", "nkilab.api", "nkilab.isa"}
    assert not heavy & set(sys.modules)

def test_names_can_be_left_to_others():
    try:
        import nki
    except ModuleNotFoundError:
        return
    raise AssertionError("nki is served")
"""


def test_unused_it_loads_nothing_and_the_ini_file_can_stop_the_names(run, pytester):
    pytester.makeini("[pytest]\nnki_serve = false\n")
    run(UNUSED).assert_outcomes(passed=2)
