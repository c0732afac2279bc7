"""The example: kernels of a transformer against PyTorch in float64, and training step by step."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import nkilab

FOLDER = Path(__file__).parents[2] / "examples" / "transformer"


@pytest.fixture(scope="module")
def kernels():
    """The module of kernels, with the names served that it imports."""
    sys.path.insert(0, str(FOLDER))
    sys.modules.pop("kernels", None)
    try:
        with nkilab.activate():
            import kernels
        return kernels
    finally:
        sys.path.remove(str(FOLDER))
        sys.modules.pop("kernels", None)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["rmsnorm", "attention", "mlp"])
def test_a_kernel_and_its_gradients_are_those_of_float64(name, kernels):
    torch = pytest.importorskip("torch")
    F = torch.nn.functional
    draw = torch.Generator().manual_seed(0)

    def random(*shape, scale=1.0):
        return torch.randn(shape, generator=draw) * scale

    args, reference = {
        "rmsnorm": ((random(256, 128), random(1, 128)), lambda x, w: F.rms_norm(x, (128,), eps=1e-6) * w),
        "attention": (
            tuple(random(2, 128, 64) for _ in range(3)),
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        ),
        "mlp": (
            (random(256, 128), random(128, 256, scale=0.1), random(256, 128, scale=0.1)),
            lambda x, up, down: F.silu(x @ up) @ down,
        ),
    }[name]
    wrapped = nkilab.torch.wrap(getattr(kernels, name), backward=getattr(kernels, f"{name}_backward"))
    ours = [a.clone().requires_grad_() for a in args]
    wide = [a.double().requires_grad_() for a in args]
    outputs, wanted = wrapped(*ours), reference(*wide)
    upstream = random(*outputs.shape)
    outputs.backward(upstream)
    wanted.backward(upstream.double())
    for one, other in zip([outputs, *(a.grad for a in ours)], [wanted, *(a.grad for a in wide)], strict=True):
        # sums of up to 256 products in float32, of terms as large as the largest result
        assert (one - other).abs().max() <= 4e-6 * other.abs().max()


@pytest.mark.slow
@pytest.mark.parametrize(
    "framework", [pytest.param("torch", marks=pytest.mark.torch), pytest.param("jax", marks=pytest.mark.jax)]
)
def test_training_with_kernels_goes_step_by_step_as_without(framework, tmp_path):
    pytest.importorskip(framework)
    script = str(FOLDER / f"train_{framework}.py")
    command = [sys.executable, "-m", "nkilab", "run"]
    done = subprocess.run(
        [*command, script, "--steps", "8"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    losses = [tuple(map(float, line.split()[1:3])) for line in done.stdout.splitlines()[1:9]]
    for ours, theirs in losses:
        assert ours == pytest.approx(theirs, rel=1e-5)
    assert losses[-1][0] < 0.8 * losses[0][0]
    matched = re.search(r"predicted on trn2: ([\d.]+) us per step in (\d+) kernel launches", done.stdout)
    assert matched is not None
    # every launch of one step has a report
    done = subprocess.run(
        [*command, "--profile", "reports", script, "--steps", "1"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    reports = [path for path in (tmp_path / "reports").iterdir() if path.name != "index.html"]
    assert len(reports) == int(matched[2])
