"""Launches that repeat: steps of training, identical launches that are remembered, and small ones checked.

    python benchmarks/repeated.py

All figures are of processor time. `forget_tapes` makes a launch a first one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from threadpoolctl import threadpool_limits

import nkilab
from timing import bar, medians

RUNS = 9
LAUNCHES = 18
EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "transformer"


def training() -> dict[str, Callable[[], object]]:
    """A step of the example's transformer, forward and backward: with kernels, and in plain PyTorch."""
    import train_torch as example

    tokens, wanted = example.batch(torch.Generator().manual_seed(1))

    def step(model: torch.nn.Module) -> None:
        model.zero_grad()
        F.cross_entropy(model(tokens), wanted).backward()

    with_kernels, plain = example.Transformer(example.WithKernels), example.Transformer(example.WithTorch)
    return {"step with kernels": lambda: step(with_kernels), "step in PyTorch": lambda: step(plain)}


def small_launches() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Kernels and small arrays for them."""
    import kernels
    from matmul_kernel import tiled_matmul

    draw = np.random.default_rng(0)

    def some(*shape: int) -> np.ndarray:
        return draw.standard_normal(shape, dtype=np.float32)

    return {
        "product": (tiled_matmul, (some(128, 128), some(128, 512))),
        "rmsnorm": (kernels.rmsnorm, (some(128, 128), some(1, 128))),
        "attention": (kernels.attention, tuple(some(1, 128, 64) for _ in range(3))),
        "mlp": (kernels.mlp, (some(128, 128), some(128, 256), some(256, 128))),
    }


def remembered(kernel: Any, *arrays: np.ndarray) -> dict[str, Callable[[], object]]:
    """A launch that is computed, and one that is looked up."""
    run = nkilab.simulate(kernel)

    def looked_up() -> None:
        os.environ["NKILAB_REMEMBER"] = "256"
        for _ in range(LAUNCHES):
            run(*arrays)
        del os.environ["NKILAB_REMEMBER"]

    def first() -> None:
        forget()
        run(*arrays)

    return {"first": first, "looked up": looked_up}


def forget() -> None:
    """Have the next launch be a first one; commits before tapes forget nothing."""
    try:
        from nkilab.tapes import forget_tapes
    except ImportError:
        return
    forget_tapes()


def main() -> None:
    """Measure and print."""
    sys.path.insert(0, str(EXAMPLES))
    torch.set_num_threads(1)
    with nkilab.activate(), threadpool_limits(1):
        steps = medians(training(), RUNS, process_time)
        with_kernels, plain = steps["step with kernels"], steps["step in PyTorch"]
        print(f"step with kernels {1e3 * with_kernels:.1f} ms, in PyTorch {1e3 * plain:.1f} ms")
        bar(
            "overhead of a step / step in PyTorch",
            with_kernels / plain - 1,
            "times",
            "a tenth of before tapes",
        )
        from matmul_kernel import tiled_matmul

        arrays = tuple(np.ones((512, 512), np.float32) for _ in range(2))
        times = medians(remembered(tiled_matmul, *arrays), RUNS, process_time)
        share = 100 * times["looked up"] / LAUNCHES / times["first"]
        bar("a remembered launch of a product of 512 / the first", share, "%", "under 5")
        for name, (kernel, arguments) in small_launches().items():
            actions = {
                "run": lambda k=kernel, a=arguments: (forget(), nkilab.simulate(k)(*a)),
                "check": lambda k=kernel, a=arguments: nkilab.check(k, *a),
            }
            spent = medians(actions, RUNS, process_time)
            print(f"{name}: run {1e3 * spent['run']:.2f} ms, check {1e3 * spent['check']:.2f} ms")
            bar(f"check / first run of {name}", spent["check"] / spent["run"], "times", "at most 2")


if __name__ == "__main__":
    main()
