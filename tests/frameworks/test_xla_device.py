"""The device of host scripts for torch_xla: what its tensors say, and that they compute as the CPU's."""

from __future__ import annotations

import copy
import io

import pytest

from nkilab.errors import UsageError
from nkilab.frameworks.shims import xla_device
from tests.dialects.spellings import nisa2 as nisa
from tests.dialects.spellings import nki2, nl2

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@nki2.jit
def identity(x):
    out = nl2.ndarray(x.shape, x.dtype, buffer=nl2.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out


@nki2.jit
def overwritten(x, y):
    nisa.dma_copy(dst=y, src=x)
    return y


def test_a_tensor_prints_as_one_at_the_device():
    # the form that the tutorial on several cores shows
    x = torch.ones((2, 2), dtype=torch.bfloat16).to(device=xla_device())
    assert repr(x) == "tensor([[1., 1.],\n        [1., 1.]], device='xla:1', dtype=torch.bfloat16)"


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.rand(3, 4).to(d),
        lambda d: torch.rand(3, 4).to("xla"),
        lambda d: torch.rand(3, 4).to(device=torch.device("xla"), dtype=torch.float64),
        lambda d: torch.nn.Linear(4, 3).to("xla").weight,
        lambda d: torch.rand(3, 4, device=d),
        lambda d: torch.tensor([[1.0, 2.0]], device=d),
        lambda d: torch.arange(6.0, device=d).reshape(2, 3),
        lambda d: torch.eye(3, device="xla"),
        lambda d: torch.zeros_like(torch.ones(2, 2, device=d)),
        lambda d: torch.nn.Linear(4, 3).to(d).weight,
        lambda d: copy.deepcopy(torch.ones(2, 2, device=d)),
    ],
)
def test_what_is_made_or_computed_there_lies_there_and_has_the_elements_of_the_cpu(make):
    x = make(xla_device())
    assert (x.device, x.is_xla, x.cpu().device) == (torch.device("xla:1"), True, torch.device("cpu"))
    result = (x @ x.T).relu() + x.sum()
    assert str(result.device) == "xla:1"
    plain = x.cpu()
    assert torch.equal(result.cpu(), (plain @ plain.T).relu() + plain.sum())


def test_a_copy_to_the_host_is_another_tensor():
    x = torch.zeros(2, device=xla_device())
    host = x.cpu()
    host += 1
    assert x.tolist() == [0, 0]


def test_gradients_lie_there_too():
    x = torch.tensor([1.0, 2.0], device=xla_device(), requires_grad=True)
    (x * x).sum().backward()
    # hand: the derivative of a square
    assert (x.grad.tolist(), str(x.grad.device)) == ([2.0, 4.0], "xla:1")


def test_a_kernel_returns_what_lies_where_its_argument_does_and_writes_there():
    x = torch.arange(12.0).reshape(3, 4).to(xla_device())
    assert str(identity(x).device) == "xla:1"
    assert torch.equal(identity(x), x)
    y = torch.zeros(3, 4, device=xla_device())
    overwritten(x, y)
    assert torch.equal(y, x)


def test_numpy_does_not_see_it():
    x = torch.ones(2, device=xla_device())
    with pytest.raises(TypeError, match=r"^the tensor lies at xla:1: copy it to the host with"):
        x.numpy()


def test_there_is_no_third_device():
    x = torch.ones(2, device=xla_device())
    with pytest.raises(UsageError, match=r"^tensors go to meta; nkilab has cpu and xla$"):
        x.to("meta")


def test_it_is_saved_and_loaded():
    stream = io.BytesIO()
    torch.save(torch.ones(2, device=xla_device()), stream)
    stream.seek(0)
    assert str(torch.load(stream, weights_only=False).device) == "xla:1"
