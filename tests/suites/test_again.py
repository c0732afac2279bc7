"""Tests that ran out of memory run once more, alone; both runs together make the sample."""

from __future__ import annotations

import sys
from functools import partial

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA holds on Linux")
SUITE = """
import os
import time
import pytest

def hold(mib):
    held = b"a" * (mib << 20)
    time.sleep(0.2)

def test_small(): pass

def test_fails(): assert 1 == 2

@pytest.mark.parametrize("mib", [500, 2000])
def test_large(mib): hold(mib)

def test_large_and_wrong():
    hold(500)
    assert 1 == 3

def test_large_and_skips():
    hold(500)
    pytest.skip("not today")

@pytest.fixture
def fails_at_the_end():
    yield
    assert 1 == 4

def test_large_with_a_fixture(fails_at_the_end): hold(500)

def test_dies_alone():
    hold(500)
    os._exit(9)
"""
OPTIONS = ("--sample", "20", "--sample-seed", "1", "--limit-gib", "0.4", "--again-alone", "0.8")


@pytest.fixture
def run(run_sample):
    return partial(run_sample, SUITE)


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_what_passes_alone_has_passed_and_nothing_else(run, workers):
    if workers:
        pytest.importorskip("xdist")
    result, lines = run(*OPTIONS, *workers)
    first = {line["id"]: line["outcome"] for line in lines if "again_alone_gib" not in line}
    again = {line["id"]: line for line in lines if "again_alone_gib" in line}
    assert [name for name, outcome in first.items() if outcome == "passed"] == ["small"]
    # test_fails had memory enough: it does not run again
    assert {name: line["outcome"] for name, line in again.items()} == {
        "large[500]": "passed",
        "large[2000]": "failed",
        "large_and_wrong": "failed",
        "large_and_skips": "skipped",
        "large_with_a_fixture": "failed",
        "dies_alone": "failed",
    }
    assert again["dies_alone"]["error"] == "its process died"
    result.stdout.fnmatch_lines(
        [
            "*6 ran out of memory: again, alone, 0.8 GiB*",
            # a test that skips itself once it has the memory to do so leaves the sample
            "2 of 7 passed: 28.6%; 1 skipped themselves",
            "5 of them ran out of memory at 0.4 GiB and ran again, alone, with 0.8: 1 passed",
        ]
    )


def test_tests_that_a_file_names_run_in_its_order(run, tmp_path):
    ids = tmp_path / "ids"
    where = "test_tests_that_a_file_names_run_in_its_order.py"
    ids.write_text(f"{where}::test_small\n{where}::test_fails")
    result, lines = run(f"--ids={ids}")
    result.assert_outcomes(passed=1, failed=1, deselected=6)
    assert [line["id"] for line in lines] == ["small", "fails"]


def test_a_test_that_is_not_collected_is_not_left_out_silently(run, tmp_path):
    ids = tmp_path / "ids"
    ids.write_text("test_of_old.py::test_gone")
    result, _ = run(f"--ids={ids}")
    result.stderr.fnmatch_lines(
        ["ERROR: --ids: 1 tests are not collected, such as test_of_old.py::test_gone"]
    )


def test_a_file_that_is_not_there_is_refused(run):
    result, _ = run("--ids=nowhere")
    result.stderr.fnmatch_lines(["ERROR: --ids: nowhere is no file"])


def test_more_memory_than_no_limit_is_refused(run):
    result, _ = run("--again-alone", "2")
    result.stderr.fnmatch_lines(["ERROR: --again-alone needs --limit-gib"])
