"""Tests that pass a limit fail, whatever they make of the interruption, and the run goes on."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from nkilab.suites import limits
from nkilab.suites.limits import resident_reader

pytest_plugins = ["pytester"]
MIB = 1 << 20
SUITE = """
import mmap
import time
import pytest

def hold(mib):
    held = b"a" * (mib << 20)
    time.sleep(0.4)

def test_sleeps(): time.sleep(30)

def test_sleeps_and_swallows():
    try:
        time.sleep(30)
    except Exception:
        pass

def test_sleeps_and_skips():
    try:
        time.sleep(30)
    except Exception:
        pytest.skip("not today")

def test_small(): pass

def test_large(): hold(420)

def test_untouched():
    held = mmap.mmap(-1, 380 << 20)
    time.sleep(0.2)

def test_all_at_once(): hold(4000)

def test_wrapped():
    try:
        hold(4000)
    except Exception as error:
        raise ValueError("the suite's own") from error

def test_fails(): assert 1 == 2

def test_frees_chunks():
    # chunks below the allocator's threshold for pages of their own, freed below one that stays
    global kept
    chunks = [bytearray(b"a" * 100_000) for _ in range(2500)]
    kept = bytearray(120_000)
    time.sleep(0.1)

def test_after_chunks():
    time.sleep(0.1)
"""


@pytest.fixture
def run(run_sample):
    """Runs the suite; gives the result, and the outcome of each test."""

    def run(*options):
        result, lines = run_sample(SUITE, *options)
        return result, {line["id"]: line for line in lines}

    return run


def test_a_test_that_runs_too_long_fails(run):
    result, by_test = run("-k", "sleeps", "--limit-seconds", "1")
    # one interruption is swallowed, and one made a skip: neither counts as anything but a failure
    result.assert_outcomes(failed=3)
    for line in by_test.values():
        where = "test_a_test_that_runs_too_long_fails0/test_a_test_that_runs_too_long_fails.py:"
        assert line["error"].startswith(f"TimeoutError: the test ran longer than 1 s, at {where}")


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA holds on Linux")
def test_resident_memory_counts_and_reserved_memory_does_not(run):
    result, by_test = run("-k", "not sleeps and not chunks", "--limit-gib", "0.4")
    result.assert_outcomes(passed=2, failed=4)
    assert by_test["small"]["outcome"] == by_test["untouched"]["outcome"] == "passed"
    assert by_test["large"]["error"].startswith("MemoryError: the test needed more than 0.4 GiB, at ")
    # one call that asks for ten times as much is refused what it asks
    assert by_test["all_at_once"]["error"] == "MemoryError"
    assert by_test["wrapped"]["error"] == "ValueError: the suite's own"
    assert by_test["fails"]["error"] == "assert 1 == 2"
    assert 0.4 < by_test["large"]["resident_gib"] < 0.6
    assert by_test["untouched"]["resident_gib"] < 0.3


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_memory_that_a_test_freed_does_not_count_for_the_next(run):
    result, by_test = run("-k", "chunks", "--limit-gib", "1")
    result.assert_outcomes(passed=2)
    assert by_test["frees_chunks"]["resident_gib"] > 0.25
    assert by_test["after_chunks"]["resident_gib"] < 0.2


def test_what_is_resident_counts_when_it_is_touched():
    resident = resident_reader()
    before = resident()
    block = b"a" * (64 * MIB)
    assert resident() - before > 60 * MIB
    assert len(block) == 64 * MIB


def test_psutil_tells_where_there_is_no_proc(monkeypatch, tmp_path):
    process = SimpleNamespace(memory_info=lambda: SimpleNamespace(rss=12345))
    monkeypatch.setattr(limits, "_STATM", tmp_path / "nowhere")
    monkeypatch.setattr(limits, "find_spec", lambda name: name)
    monkeypatch.setattr(limits._lazy, "psutil", lambda: SimpleNamespace(Process=lambda: process))
    assert resident_reader()() == 12345


def test_a_limit_that_nothing_can_watch_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(limits, "_STATM", tmp_path / "nowhere")
    monkeypatch.setattr(limits, "find_spec", lambda name: None)
    with pytest.raises(pytest.UsageError, match=r"^--limit-gib needs /proc or psutil; install psutil$"):
        resident_reader()
