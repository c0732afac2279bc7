"""Drawing a sample of a suite: which tests, how many, what is reported."""

from __future__ import annotations

import json

import pytest

pytest_plugins = ["pytester"]
SUITE = """
import pytest

@pytest.mark.parametrize("n", range(20))
def test_number(n):
    assert n != 7

@pytest.mark.skip(reason="never")
def test_marked(): pass

@pytest.mark.parametrize("n", range(20))
def test_skips_itself(n):
    pytest.skip("not today")

def test_apart(): pass
"""


@pytest.fixture
def run(pytester, monkeypatch):
    pytester.makepyfile(SUITE)
    monkeypatch.setenv("PYTEST_ADDOPTS", "")

    def run(*options):
        # workers of pytest-xdist are processes of their own in any case
        return pytester.runpytest_inprocess("-p", "nkilab.suites.sample", "-p", "no:cacheprovider", *options)

    return run


def test_the_sample_is_the_first_of_a_random_order_that_do_not_skip_themselves(run, tmp_path):
    where = tmp_path / "outcomes.jsonl"
    result = run("--sample", "10", "--sample-seed", "3", "--outcomes", str(where))
    lines = [json.loads(line) for line in where.read_text().splitlines()]
    assert len(lines) == 13  # 10, and 30 % in reserve
    counted = [line for line in lines if line["outcome"] != "skipped"][:10]
    passed = sum(line["outcome"] == "passed" for line in counted)
    result.stdout.fnmatch_lines([f"{passed} of {len(counted)} passed: *"])
    assert not any("test_marked" in line["id"] for line in lines)


def test_a_seed_draws_the_same_tests(run, tmp_path):
    drawn = []
    for name in ("one", "two"):
        run("--sample", "5", "--sample-seed", "8", "--outcomes", str(tmp_path / name))
        drawn.append([json.loads(line)["id"] for line in (tmp_path / name).read_text().splitlines()])
    assert drawn[0] == drawn[1]


def test_workers_count_the_same_sample(run):
    pytest.importorskip("xdist")
    last_lines = []
    for more in ([], ["-n", "2"]):
        result = run("--sample", "10", "--sample-seed", "3", *more)
        last_lines.append(next(line for line in result.outlines if " passed: " in line))
    assert last_lines[0] == last_lines[1]


def test_the_seed_is_printed(run):
    result = run("--sample", "2", "--sample-seed", "41", "-k", "number")
    result.stdout.fnmatch_lines(["sample: 2 tests, seed 41"])


def test_ids_may_be_left_out(run, tmp_path):
    where = tmp_path / "outcomes.jsonl"
    options = ["--sample-without", "number", "--sample-without", "skips"]
    run("--sample", "50", "--outcomes", str(where), *options)
    assert [json.loads(line)["id"].rpartition("::")[2] for line in where.read_text().splitlines()] == [
        "test_apart"
    ]
