"""Running a suite with the plugins that public suites are run with."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def run_sample(pytester, monkeypatch, tmp_path):
    """Runs a suite with `nkilab.suites.sample`; gives the result, and outcomes under short names of tests."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "")
    where = tmp_path / "outcomes.jsonl"

    def run(suite, *options):
        pytester.makepyfile(suite)
        plugins = ("-p", "nkilab.suites.sample", "-p", "no:cacheprovider", "--outcomes", str(where))
        result = pytester.runpytest_subprocess(*plugins, *options)
        lines = [json.loads(line) for line in where.read_text().splitlines()] if where.exists() else []
        return result, [line | {"id": line["id"].rpartition("::test_")[2]} for line in lines]

    return run
