"""Kernels on PyTorch tensors, and the modules that PyTorch host scripts import."""

from __future__ import annotations

import inspect
import subprocess
import sys

import numpy as np
import pytest

import nkilab
from nkilab.errors import UseError
from nkilab.frameworks.shims import shim_tree
from tests.dialects.spellings import nisa2, nki1, nki2, nl1, nl2, ramp

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@nki1.jit
def negated(x):
    out = nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm)
    nl1.store(out, nl1.load(x) * -1)
    return out


@nki2.jit
def identity(x):
    tile = nl2.ndarray(x.shape, x.dtype, buffer=nl2.sbuf)
    nisa2.dma_copy(dst=tile, src=x)
    out = nl2.ndarray(x.shape, x.dtype, buffer=nl2.shared_hbm)
    nisa2.dma_copy(dst=out, src=tile)
    return out


@pytest.mark.parametrize(
    "name",
    ["float32", "float16", "bfloat16", "float8_e5m2", "float8_e4m3fn", "int32", "int16", "int8", "uint8"],
)
def test_a_tensor_goes_in_and_comes_out_in_its_own_type(name):
    dtype = getattr(torch, name)
    x = torch.arange(24, dtype=torch.float32).reshape(4, 6).to(dtype)
    out = identity(x)
    assert (type(out), out.dtype) == (torch.Tensor, dtype)
    bits = torch.uint8
    assert torch.equal(out.view(bits), x.contiguous().view(bits))


def test_bfloat16_keeps_bits_that_float32_would_not_print():
    # a quiet NaN with a payload, -0 and a denormal: moved as they are
    bits = torch.tensor([[0x7FC1, -0x8000, 1]], dtype=torch.int16)
    out = identity(bits.view(torch.bfloat16))
    assert torch.equal(out.view(torch.int16), bits)


def test_a_tensor_that_is_no_contiguous_one_is_read_by_value():
    x = torch.arange(24, dtype=torch.float32).reshape(6, 4)
    for strided in (x.T, x[::2], x[:, 1:3], x.T.to(torch.bfloat16)):
        assert torch.equal(negated(strided).float(), -strided.float())


def test_a_tensor_that_requires_a_gradient_is_read():
    x = torch.ones((2, 3), requires_grad=True)
    assert torch.equal(negated(x), -torch.ones((2, 3)))


def test_the_input_is_left_as_it_was():
    x = torch.ones((2, 3))
    out = identity(x)
    out += 1
    assert torch.equal(x, torch.ones((2, 3)))


def test_numpy_in_is_numpy_out_and_torch_wins_a_mixture():
    @nki1.jit
    def total(x, y):
        out = nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm)
        nl1.store(out, nl1.load(x) + nl1.load(y))
        return out, out

    x = ramp(2, 3)
    assert all(type(r) is np.ndarray for r in total(x, x))
    assert all(type(r) is torch.Tensor for r in total(x, torch.from_numpy(x)))


def test_a_type_that_no_tile_holds_is_refused():
    with pytest.raises(UseError) as caught:
        negated(torch.ones((2, 3), dtype=torch.float64))
    assert ": negated: argument x: dtype is float64; it must be one of float32, " in str(caught.value)
    assert str(caught.value).endswith("\n  hint: cast it on the host before the call")


def test_a_torch_type_is_a_type_of_a_spec():
    predicted = nkilab.estimate(negated, nkilab.spec((4, 6), torch.bfloat16))
    assert predicted.program.storages[0].dtype.name == "bfloat16"


SCRIPT = """
import torch
from torch_xla.core import xla_model as xm
import torch_xla
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def doubled(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2)
    return out

device = xm.xla_device()
x = torch.rand((128, 512), dtype=torch.bfloat16).to(device=device)
out = doubled(x)
xm.mark_step()
assert torch.equal(out.cpu(), (x.float() * 2).to(torch.bfloat16).cpu())
assert torch_xla.device() == device
print("same")
try:
    xm.rendezvous_all
except AttributeError as error:
    print(error)
"""


def test_a_host_script_for_torch_xla_runs_on_the_cpu(tmp_path):
    script = tmp_path / "host.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "nkilab", "run", str(script)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "same\nhost.py:22: torch_xla.core.xla_model: nkilab serves no name rendezvous_all here; it has "
        "mark_step, "
        "wait_device_ops, xla_device\n"
    )


LATER_SCRIPT = """
import torch
from torch_neuronx.utils import get_platform_target
from torch_neuronx.xla_impl.ops import nki_jit
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def halved(x, out):
    nl.store(out, nl.load(x) * 0.5)

@nki_jit
def negated(x, out):
    nl.store(out, nl.load(x) * -1)

x = torch.arange(24.0).reshape(4, 6).to(device="xla")
out = torch.zeros(4, 6, device="xla")
nki_jit()(halved)(x, out)
assert torch.equal(out.cpu(), torch.arange(24.0).reshape(4, 6) / 2), out
negated(x, out)
assert torch.equal(out.cpu(), -torch.arange(24.0).reshape(4, 6)), out
print(get_platform_target(), out.device)
"""


def test_host_code_of_later_releases_wraps_kernels_and_names_the_device(tmp_path):
    script = tmp_path / "host.py"
    script.write_text(LATER_SCRIPT)
    command = [sys.executable, "-m", "nkilab", "run", "--target", "trn1n", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "trn1 xla:1\n", "")


def test_a_kernel_of_the_later_spelling_is_left_as_it_is_by_nki_jit():
    wrap = shim_tree("torch_neuronx", "")["torch_neuronx.xla_impl.ops"].nki_jit
    assert wrap()(identity) is identity


def test_host_code_reads_signature_and_source_of_the_function():
    # as packages around the vendor's `nki` read them
    assert list(inspect.signature(identity.func).parameters) == ["x"]
    assert inspect.getsource(identity.func).startswith("@nki2.jit\ndef identity(x):")
    assert "nl2" in identity.func.__globals__
