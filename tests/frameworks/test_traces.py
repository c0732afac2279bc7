"""Profilers that host scripts start leave our files in the folder that they name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from nkilab.files import neff, ntff
from nkilab.frameworks.traces import JaxTraces

KERNEL = """
import sys
import numpy as np
import nki, nki.isa as nisa, nki.language as nl

@nki.jit
def doubled(x):
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""

TORCH = (
    KERNEL
    + """
import torch
from torch_neuronx.experimental import profiler
x = torch.ones((128, 64))
doubled(x)
with profiler.profile(port=9012, profile_type='system', target='neuron_profile_perfetto',
                      output_dir='./output', ms_duration=600000) as profiler:
    out = doubled(x)
    out = doubled(out)
doubled(x)
assert torch.equal(out, 4 * x)
"""
)

JAX = (
    KERNEL
    + """
import jax, jax.numpy as jnp
x = jnp.ones((128, 64), "float32")
doubled(x)
with jax.profiler.trace("./output"):
    out = doubled(x)
    out = jax.jit(lambda y: doubled(y) + 1)(out).block_until_ready()
doubled(x)
assert (out == 5).all()
"""
)


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "host.py").write_text(text)
    command = [sys.executable, "-m", "nkilab", "run", "host.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def check_files(folder: Path, launches: int) -> None:
    """A report, a NEFF and its NTFF per launch, and the page that lists them."""
    stems = [f"{number:03d}-doubled" for number in range(1, launches + 1)]
    names = [f"{stem}{suffix}" for stem in stems for suffix in (".html", ".neff", ".ntff")]
    assert sorted(p.name for p in folder.iterdir() if p.is_file()) == sorted([*names, "index.html"])
    for stem in stems:
        program = neff.read(folder / f"{stem}.neff")
        assert program.opcodes() == {"dma_copy": 2, "tensor_scalar": 1}
        trace = ntff.read(folder / f"{stem}.ntff")
        trace.check_belongs_to(program)
        assert trace.timeline.latency_ns > 0
        assert "doubled" in (folder / f"{stem}.html").read_text()


@pytest.mark.torch
def test_the_profiler_of_torch_neuronx_writes_to_its_output_dir_what_its_block_launches(tmp_path):
    pytest.importorskip("torch")
    done = run(tmp_path, TORCH)
    assert done.returncode == 0, done.stderr
    check_files(tmp_path / "output", 2)
    viewed = subprocess.run(
        [sys.executable, "-m", "nkilab", "neuron-profile", "view", "-n", "output/001-doubled.neff", "-s",
         "output/001-doubled.ntff"], cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert viewed.returncode == 0, viewed.stderr
    assert "tensor_scalar" in viewed.stdout or "doubled" in viewed.stdout


@pytest.mark.torch
def test_a_profile_that_waits_for_start_writes_nothing_before_it(tmp_path):
    pytest.importorskip("torch")
    body = """
from torch_neuronx.experimental.profiler import profile
x = np.ones((128, 64), np.float32)
with profile(neuron_tensorboard_plugin_dir="logs", auto_start=False) as held:
    doubled(x)
    held.start()
    doubled(x)
    held.stop()
    doubled(x)
try:
    profile(profile_type="everything")
except Exception as error:
    print(error)
"""
    done = run(tmp_path, KERNEL + body)
    assert done.returncode == 0, done.stderr
    check_files(tmp_path / "logs", 1)
    assert done.stdout == "profile_type is 'everything'; it must be one of operator, trace, system\n"


@pytest.mark.jax
def test_a_trace_of_jax_has_our_profile_beside_its_own(tmp_path):
    pytest.importorskip("jax")
    done = run(tmp_path, JAX)
    assert done.returncode == 0, done.stderr
    check_files(tmp_path / "output", 2)
    own = list((tmp_path / "output" / "plugins" / "profile").rglob("*.xplane.pb"))
    assert len(own) == 1


SIMULATED = (
    KERNEL
    + """
import torch
x = torch.arange(128 * 64, dtype=torch.float32).reshape(128, 64).to(torch.bfloat16)
out = doubled(x)
assert type(out) is torch.Tensor and torch.equal(out, x * 2)
again = nki.simulate(doubled)(x)
assert type(again) is torch.Tensor and torch.equal(again, out)
print(type(nki.simulate(doubled)(x.float().numpy())).__name__)
"""
)


@pytest.mark.torch
@pytest.mark.parametrize("way", ["nkilab run", "python3 with NKILAB=1"])
def test_nki_simulator_runs_a_script_with_torch_tensors_unchanged(way, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "host.py").write_text(SIMULATED)
    environment = {**os.environ, "NKI_SIMULATOR": "1", "NKI_PRECISE_FP": "1"}
    command = [sys.executable, "-m", "nkilab", "run", "host.py"]
    if way != "nkilab run":
        # the line of nkilab.pth, which an installation runs
        starter = "import os, runpy; os.environ.get('NKILAB') == '1' and __import__('nkilab.autostart'); "
        command = [sys.executable, "-c", f"{starter} runpy.run_path('host.py', run_name='__main__')"]
        environment["NKILAB"] = "1"
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "ndarray\n", "")


def test_a_jax_that_does_not_tell_where_it_writes_is_told_of_once(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jax._src.profiler", ModuleType("jax._src.profiler"))
    traces = JaxTraces()
    traces(())
    traces(())
    assert capsys.readouterr().err == (
        "nkilab: notice: this JAX does not tell where jax.profiler writes; kernels have no profile\n"
    )
