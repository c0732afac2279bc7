"""A generated kernel with its test, benchmark and profile cells."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.conftest import Run
from tests.conformance.extract import notebook_cells

pytestmark = pytest.mark.conformance

# M1=2, M0=512, N2=2, N1=2: every loop runs at least twice; M0 is a multiple of 512 (the broadcast of CH)
SMALL_HOST = """
import numpy as np
from qr_update import qr_update

rng = np.random.default_rng(0)
M, N = 1024, 512
a, b, d = ((rng.standard_normal(s) / 32).astype(np.float16) for s in ((M, 1), (M, N), (N, M)))
z = qr_update(
    a.reshape(2, 4, 128, 1), b.reshape(2, 4, 128, 2, 256), a.reshape(2, 1, 1, 512),
    d.reshape(2, 2, 128, 2, 512), M1=2, M0=512, N2=2, N1=2, K1=2, K0=512,
)
a, b, d = (x.astype(np.float64) for x in (a, b, d))
expected = d.T - a @ (a.T @ b)
assert z.dtype == np.float16 and z.shape == (2, 2, 128, 2, 512), (z.dtype, z.shape)
print("error", np.abs(z.reshape(N, M).T - expected).max() / np.abs(expected).max())
"""

# the cell draws its matrices without a seed
MEMORY = """
import resource, runpy
import numpy as np
np.random.seed(0)
runpy.run_path("test_cell.py", run_name="__main__")
print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.fixture
def cells(seed: Callable[[str], str], tmp_path: Path) -> Path:
    """A folder with the kernel and its three cells."""
    names = {"Generated NKI function": "qr_update.py", "Test": "test_cell.py",
             "Benchmark": "benchmark_cell.py", "Profile": "profile_cell.py"}  # fmt: skip
    blocks = {b.heading: b.code for b in notebook_cells(seed("000"))}
    for heading, name in names.items():
        (tmp_path / name).write_text(blocks[heading])
    return tmp_path


def test_qr_update_is_right_on_a_small_matrix_of_both_signs(cells: Path, succeed: Run):
    (cells / "host.py").write_text(SMALL_HOST)
    error = float(succeed("host.py").split()[-1])
    # three roundings to float16 (T, K, Z) of 2**-11 each, on values up to the largest
    assert error < 3 * 2**-11


@pytest.mark.slow
def test_the_test_cell_matches_at_full_size_within_12_gib(cells: Path, succeed: Run):
    (cells / "memory.py").write_text(MEMORY)
    printed = succeed("memory.py")
    assert re.search(r"Result match:\s+True", printed), printed
    peak_kib = int(printed.split()[-1])
    print(f"peak resident memory {peak_kib / 2**20:.2f} GiB")
    assert peak_kib < 12 * 2**20


@pytest.mark.slow
def test_the_benchmark_cell_prints_a_latency(cells: Path, succeed: Run):
    printed = succeed("benchmark_cell.py")
    latency_ms = float(re.search(r"Latency: ([\d.]+) ms \(P99\)", printed)[1])
    # 2 x 528 MiB at the HBM bandwidth of a whole chip, 2.9 TB/s, is the least; a second is beyond belief
    assert 0.3 < latency_ms < 1000
    assert "modelled on trn2" in printed


@pytest.mark.slow
def test_the_profile_cell_writes_both_files_and_never_over_them(cells: Path, run: Run, succeed: Run):
    succeed("profile_cell.py")
    written = sorted(p.name for p in cells.iterdir() if p.suffix in (".neff", ".ntff"))
    assert written == ["file.neff", "profile_exec_2.ntff"]
    before = {n: (cells / n).read_bytes() for n in written}
    again = run("profile_cell.py")
    assert again.returncode == 1
    assert f"{cells / 'file.neff'} exists\n  hint: pass overwrite=True, or name another file" in again.stderr
    assert "Traceback" not in again.stderr
    assert {n: (cells / n).read_bytes() for n in written} == before
    code = (cells / "profile_cell.py").read_text()
    assert "profile_nth=2" in code
    (cells / "over.py").write_text(code.replace("profile_nth=2", "profile_nth=2, overwrite=True"))
    succeed("over.py")
