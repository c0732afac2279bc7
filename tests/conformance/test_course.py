"""The Stanford CS149 assignment, with published solutions of several people."""

from __future__ import annotations

import ast
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conformance.conftest import Run

pytestmark = pytest.mark.conformance

KERNELS = {"naive": 128, "tiled": 12800, "stream": 256000, "transpose": 2048}
TILE_DIMENSION = 128


def skip_unless_complete(folder: Path, module: str, names: set[str]) -> None:
    """Skip a solution that lacks a function its own host script imports, or needs a package not here."""
    tree = ast.parse((folder / f"{module}.py").read_text())
    missing = names - {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    if missing:
        pytest.skip(f"{module}.py of {folder.parent.name} has no {', '.join(missing)}")
    for node in ast.walk(tree):
        for name in [a.name for a in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []:
            root = (getattr(node, "module", None) or name).partition(".")[0]
            if root != "neuronxcc" and not (folder / f"{root}.py").is_file() and find_spec(root) is None:
                pytest.skip(f"{module}.py of {folder.parent.name} imports {root}, which is not installed")


@pytest.fixture
def part1(solution: Path, tmp_path: Path) -> Path:
    """A copy of a solution's first part."""
    names = {"vector_add_naive", "vector_add_tiled", "vector_add_stream", "matrix_transpose"}
    skip_unless_complete(solution / "part1", "kernels", names)
    shutil.copytree(solution / "part1", tmp_path, dirs_exist_ok=True)
    for left in [*tmp_path.glob("*.neff"), *tmp_path.glob("*.ntff")]:
        left.unlink()
    return tmp_path


@pytest.fixture
def part2(solution: Path, tmp_path: Path) -> Path:
    """A copy of a solution's second part."""
    skip_unless_complete(solution / "part2", "conv2d", {"fused_conv2d_maxpool"})
    shutil.copytree(solution / "part2", tmp_path, dirs_exist_ok=True)
    return tmp_path


def set_row_chunk(folder: Path, rows: int) -> None:
    """Answer step 1 of the assignment: how many rows vector_add_tiled takes at a time."""
    text = (folder / "kernels.py").read_text()
    changed, count = re.subn(r"^( +ROW_CHUNK = )\d+", rf"\g<1>{rows}", text, flags=re.M)
    assert count >= 1
    (folder / "kernels.py").write_text(changed)


@pytest.mark.parametrize("kernel", KERNELS)
def test_run_benchmark_times_a_kernel_and_finds_it_right(part1: Path, kernel: str, succeed: Run):
    set_row_chunk(part1, TILE_DIMENSION)
    printed = succeed("run_benchmark.py", "--kernel", kernel, "-n", str(KERNELS[kernel]))
    assert "Correctness passed? True" in printed
    assert re.search(r"B +NC +NC USED +WEIGHTS +MODE +INF/S +IRES/S +L\(1\) .*NCL\(99\)", printed)
    assert int(re.search(r"Execution Time: (\d+) μs", printed)[1]) > 1


def test_profile_name_writes_a_program_and_a_trace(part1: Path, succeed: Run):
    succeed("run_benchmark.py", "--kernel", "stream", "-n", "256000", "--profile_name", "X")
    written = sorted(p.name for p in part1.iterdir() if p.suffix in (".neff", ".ntff"))
    assert written == ["X.neff", "X.ntff"]


def test_a_row_chunk_of_256_is_a_value_error_with_the_known_sentence(part1: Path, run: Run):
    set_row_chunk(part1, 256)
    (part1 / "host.py").write_text(
        "import numpy as np\nfrom kernels import vector_add_tiled\n"
        "try:\n    vector_add_tiled(*np.ones((2, 25600), np.float32))\n"
        "except ValueError as error:\n    print(error)\n"
    )
    printed = run("host.py").stdout.splitlines()
    assert "number of partitions 256 exceed architecture limitation of 128" in printed[0]
    assert printed[0].startswith("kernels.py:")


SMALL_CONVOLUTION = """
import subprocess
import numpy as np
import neuronxcc.nki as nki
from conv2d import fused_conv2d_maxpool as conv2d

rng = np.random.default_rng(0)
x = rng.standard_normal((1, 128, 32, 16)).astype(np.float32)
w = rng.standard_normal((128, 128, 3, 3)).astype(np.float32)
bias = rng.standard_normal(128).astype(np.float32)
out = nki.baremetal(conv2d)(x, w, bias, pool_size=1)
windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), axis=(2, 3))
expected = np.einsum("bchwij,ocij->bohw", windows, w, optimize=True) + bias[:, None, None]
print(out.shape == expected.shape and np.allclose(out, expected, atol=1e-3))
measured = nki.benchmark(warmup=5, iters=20, save_neff_name="small.neff")(conv2d)
measured(x, w, bias, pool_size=1)
subprocess.run(["neuron-profile", "capture", "-n", "small.neff", "-s", "small.ntff"], check=True)
"""


def test_a_convolution_is_right_and_can_be_captured(part2: Path, succeed: Run):
    (part2 / "host.py").write_text(SMALL_CONVOLUTION)
    printed = succeed("host.py")
    # 1152 products of standard normals, summed in float32 in another order
    assert printed.startswith("True\n")
    assert re.search(r"^wrote small\.ntff: [\d.]+ us predicted on trn2$", printed, re.M)
    assert (part2 / "small.ntff").is_file()


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("profile", [(), ("--profile", "X")], ids=["plain", "profile"])
def test_the_harness_runs_to_its_score(part2: Path, profile: tuple[str, ...], succeed: Run):
    pools = bool(re.search(r"\bmax\b|maximum", (part2 / "conv2d.py").read_text().rpartition('"""')[2]))
    printed = succeed("test_harness.py", *(["--test_maxpool"] if pools else []), *profile)
    assert printed.count("... Passed") == (4 if pools else 3), printed
    score = re.search(r"Your final score is .*:\s+([\d.]+) / ", printed)
    assert score, printed
    print(f"score {score[1]}")
    sizes = ["float32", "float16", *(["pool_float32", "pool_float16"] if pools else [])]
    names = [f"X_{s}{small}" for s in sizes for small in ("", "_smaller")] if profile else []
    expected = sorted(f"{n}{suffix}" for n in names for suffix in (".neff", ".ntff"))
    assert sorted(p.name for p in part2.iterdir() if p.suffix in (".neff", ".ntff")) == expected
