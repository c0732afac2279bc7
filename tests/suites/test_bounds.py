"""The plugin that prints a suite's bounds beside our predictions."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nkilab

SUITE = """
import numpy as np
import pytest
from neuronxcc import nki
import neuronxcc.nki.language as nl


@nki.benchmark(warmup=1, iters=1)
@nki.jit
def doubled(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2)
    return out


@pytest.mark.parametrize("rows, max_latency", [(8, 12.5), (16, 25)])
def test_time(rows, max_latency):
    doubled(np.ones((rows, 4), np.float32))
    assert doubled.benchmark_result.nc_latency.get_latency_percentile(99) > 0


def test_without_a_kernel():
    pass
"""


def test_every_benchmark_has_a_line_with_its_bound_and_the_prediction(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    command = [sys.executable, "-m", "nkilab", "run", "-m", "pytest", "-q", "-p", "nkilab.suites.bounds", "."]
    source = str(Path(nkilab.__file__).parent.parent)
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": source}, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.strip() for line in done.stdout.splitlines() if "predicted" in line]
    assert "predicted against the suite's bounds" in lines[0]
    pattern = r"max_latency {}  predicted [\d.]+ us on trn2, [\d.]+ to [\d.]+  test_time\[{}\]"
    assert re.fullmatch(pattern.format("12.5", "8-12.5"), lines[1])
    assert re.fullmatch(pattern.format("25", "16-25"), lines[2])
    assert len(lines) == 3
