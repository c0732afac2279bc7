"""The five matrix products of the kernel optimization guide, with its two host drivers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conformance.conftest import Run
from tests.conformance.extract import directive_blocks

pytestmark = pytest.mark.conformance

# (M, K), (K, N) that keep the tile and block constraints of each kernel, in the order of the guide
SIZES = [
    ((128, 128), (128, 512)),
    ((256, 256), (256, 1024)),
    ((256, 256), (256, 1024)),
    ((512, 256), (256, 2048)),
    ((2048, 2048), (2048, 2048)),
]
FULL = ((4096, 8192), (8192, 8192))
NAMES = ["one tile", "tiled", "loads hoisted", "free axes blocked", "all axes blocked"]
kernels = pytest.mark.parametrize("number", range(5), ids=NAMES)
tiled_kernels = pytest.mark.parametrize("number", range(1, 5), ids=NAMES[1:])
frameworks = pytest.mark.parametrize(
    "framework", [pytest.param("torch", marks=pytest.mark.torch), pytest.param("jax", marks=pytest.mark.jax)]
)

NUMPY_HOST = """
import numpy as np
from multiply_kernel import matrix_multiply_kernel
rng = np.random.default_rng(0)
lhs, rhs = (rng.standard_normal(s).astype(np.float32) for s in ((128, 128), (128, 512)))
out = matrix_multiply_kernel(np.ascontiguousarray(lhs.T), rhs)
print(np.allclose(out, lhs @ rhs, atol=1e-4))
"""
HISTORY = "NKI 0.1 added it and NKI 0.3 removed it"
NOTICES = (
    f"nkilab: notice: nki.jit(platform_target=...): {HISTORY}; "
    "remove the keyword and set NEURON_PLATFORM_TARGET_OVERRIDE or run with --target\n"
    "nkilab: notice: a result allocated with buffer=nl.hbm: NKI 0.3 removed it; "
    "allocate the result with buffer=nl.shared_hbm\n"
)


@dataclass(frozen=True)
class Guide:
    """The guide's code: five kernels, and per framework a driver and a call that is profiled."""

    kernels: list[str]
    drivers: dict[str, str]
    profiled: dict[str, str]

    def write(self, folder: Path, number: int, framework: str, sizes: tuple[tuple[int, int], ...]) -> None:
        """A kernel and a driver that makes matrices of some sizes."""
        (folder / "multiply_kernel.py").write_text(self.kernels[number])
        driver = self.drivers[framework]
        for side, size in zip(("lhs", "rhs"), sizes, strict=True):
            driver, count = re.subn(
                rf"{side} = rng\.random\(\([\d, ]+\)", f"{side} = rng.random({size}", driver
            )
            assert count == 1
        (folder / "driver.py").write_text(driver)


@pytest.fixture
def guide(seed: Callable[[str], str]) -> Guide:
    """Kernels and drivers, in the order of the guide."""
    blocks = [b.code for b in directive_blocks(seed("003"))]
    hosts = [b for b in blocks if "from multiply_kernel import" in b]
    drivers = dict(zip(("torch", "jax"), hosts, strict=True))
    profiled = dict(zip(("torch", "jax"), (b for b in blocks if "profiler." in b), strict=True))
    guided = Guide([b for b in blocks if b.startswith("import nki\n")], drivers, profiled)
    assert len(guided.kernels) == 5
    assert "torch_xla" in guided.drivers["torch"]
    assert "jax.numpy" in guided.drivers["jax"]
    return guided


@kernels
@frameworks
def test_a_kernel_computes_what_its_driver_expects(
    guide: Guide, number: int, framework: str, tmp_path: Path, run: Run
):
    guide.write(tmp_path, number, framework, SIZES[number])
    done = run("driver.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Kernel computed correct output\n"), done.stdout
    assert done.stderr == NOTICES


@frameworks
def test_the_profiling_context_of_the_guide_leaves_its_files_in_the_folder_it_names(
    guide: Guide, framework: str, tmp_path: Path, run: Run
):
    guide.write(tmp_path, 1, framework, SIZES[1])
    driver = (tmp_path / "driver.py").read_text()
    # the guide shows the block with an ellipsis, and other names for the tensors than its own driver has
    imports, block = guide.profiled[framework].split("...\n")
    call = re.search(r"^result_\w+ = (matrix_multiply_kernel\((\w+), (\w+)\))\n", driver, re.M)
    assert call is not None
    inner = re.search(r"matrix_multiply_kernel\((\w+), (\w+)\)", block)
    assert inner is not None
    for shown, own in zip(inner.groups(), call.groups()[1:], strict=True):
        block = block.replace(shown, own)
    (tmp_path / "driver.py").write_text(imports + driver.replace(call[0], block))
    done = run("driver.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Kernel computed correct output\n"), done.stdout
    files = {path.name for path in (tmp_path / "output").iterdir() if path.is_file()}
    stem = "001-matrix_multiply_kernel"
    assert files == {f"{stem}.html", f"{stem}.neff", f"{stem}.ntff", "index.html"}
    owned = list((tmp_path / "output").rglob("*.xplane.pb"))
    assert len(owned) == (framework == "jax")


@pytest.mark.slow
@tiled_kernels
@frameworks
def test_a_kernel_computes_what_its_driver_expects_at_full_size(
    guide: Guide, number: int, framework: str, tmp_path: Path, succeed: Run
):
    guide.write(tmp_path, number, framework, FULL)
    assert succeed("driver.py").startswith("Kernel computed correct output\n")


@kernels
def test_version_0_2_accepts_the_guide_without_a_notice(guide: Guide, number: int, tmp_path: Path, run: Run):
    (tmp_path / "multiply_kernel.py").write_text(guide.kernels[number])
    sizes = "({}), ({})".format(*(", ".join(map(str, s)) for s in SIZES[number]))
    (tmp_path / "host.py").write_text(NUMPY_HOST.replace("(128, 128), (128, 512)", sizes))
    # float32 sums of 2048 products of standard normals differ by up to 1e-3 in another order
    (tmp_path / "host.py").write_text((tmp_path / "host.py").read_text().replace("1e-4", "1e-3"))
    done = run("host.py", options=("--nki", "0.2"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_version_0_6_refuses_platform_target_and_names_what_replaces_it(
    guide: Guide, tmp_path: Path, run: Run
):
    text = guide.kernels[0]
    (tmp_path / "multiply_kernel.py").write_text(text)
    (tmp_path / "host.py").write_text(NUMPY_HOST)
    line = next(i for i, code in enumerate(text.splitlines(), 1) if code.startswith("@nki.jit"))
    done = run("host.py", options=("--nki", "0.6"))
    assert done.returncode == 1
    assert done.stderr == (
        f"multiply_kernel.py:{line}: nki.jit: "
        f"NKI 0.6 does not accept nki.jit(platform_target=...); {HISTORY}\n"
        "  hint: remove the keyword and set NEURON_PLATFORM_TARGET_OVERRIDE or run with --target\n"
        "  source: NKI 0.3 release notes\n"
    )


def test_version_0_6_refuses_an_hbm_result_and_names_what_replaces_it(guide: Guide, tmp_path: Path, run: Run):
    text = guide.kernels[0].replace('@nki.jit(platform_target="trn2")', "@nki.jit")
    (tmp_path / "multiply_kernel.py").write_text(text)
    (tmp_path / "host.py").write_text(NUMPY_HOST)
    done = run("host.py", options=("--nki", "0.6"))
    assert done.returncode == 1
    assert (
        "matrix_multiply_kernel: NKI 0.6 does not accept a result allocated with buffer=nl.hbm; "
        "NKI 0.3 removed it\n"
        "  hint: allocate the result with buffer=nl.shared_hbm\n"
        "  source: NKI 0.3 release notes\n"
    ) in done.stderr
    (tmp_path / "multiply_kernel.py").write_text(text.replace("buffer=nl.hbm", "buffer=nl.shared_hbm"))
    again = run("host.py", options=("--nki", "0.6"))
    assert (again.returncode, again.stdout, again.stderr) == (0, "True\n", "")
