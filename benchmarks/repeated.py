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
from nkilab.advice import findings
from timing import bar, medians

RUNS = 9
LAUNCHES = 18
EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "transformer"


def training() -> dict[str, Callable[[], object]]:
    """A step of the example's transformer, forward and backward: with kernels, as at first, in PyTorch."""
    import train_torch as example

    tokens, wanted = example.batch(torch.Generator().manual_seed(1))

    def step(model: torch.nn.Module) -> None:
        model.zero_grad()
        F.cross_entropy(model(tokens), wanted).backward()

    with_kernels, plain = example.Transformer(example.WithKernels), example.Transformer(example.WithTorch)
    return {
        "step with kernels": lambda: step(with_kernels),
        "step in PyTorch": lambda: step(plain),
        "step without tapes": lambda: (forget(), step(with_kernels)),
    }


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


def remembered(kernel: Any, *arrays: np.ndarray) -> float:
    """Per cent of a first launch that the same launch takes, looked up."""
    run = nkilab.simulate(kernel)

    def looked_up() -> None:
        os.environ["NKILAB_REMEMBER"] = "256"
        run(*arrays)
        del os.environ["NKILAB_REMEMBER"]

    def first() -> None:
        forget()
        run(*arrays)

    firsts = medians({"first": first}, RUNS, process_time)["first"]
    again = medians({"again": looked_up}, RUNS * LAUNCHES, process_time)["again"]
    return 100 * again / firsts


def forget() -> None:
    """Have the next launch be a first one; commits before tapes forget nothing."""
    try:
        from nkilab.tapes import forget_tapes
    except ImportError:
        return
    forget_tapes()


def forget_advice() -> None:
    """Have the next check look for what pays; commits before it was kept forget nothing."""
    getattr(findings, "_known", {}).clear()


def main() -> None:
    """Measure and print."""
    sys.path.insert(0, str(EXAMPLES))
    torch.set_num_threads(1)
    with nkilab.activate(), threadpool_limits(1):
        # the first steps make the tapes, which a step without them would take away
        steps, actions = {}, training()
        for names in (("step with kernels", "step in PyTorch"), ("step without tapes",)):
            steps |= medians({name: actions[name] for name in names}, RUNS, process_time)
        print(", ".join(f"{name} {1e3 * spent:.1f} ms" for name, spent in steps.items()))
        plain = steps["step in PyTorch"]
        share = (steps["step with kernels"] - plain) / (steps["step without tapes"] - plain)
        bar("overhead of a step / the same without tapes", share, "times", "0.1")
        from matmul_kernel import tiled_matmul

        arrays = tuple(np.ones((512, 512), np.float32) for _ in range(2))
        bar(
            "a product of 512, remembered / the first launch",
            remembered(tiled_matmul, *arrays),
            "%",
            "under 5",
        )
        for name, (kernel, arguments) in small_launches().items():
            actions = {
                "run": lambda k=kernel, a=arguments: (forget(), nkilab.simulate(k)(*a)),
                "verdict": lambda k=kernel, a=arguments: nkilab.check(k, *a),
                "with advice": lambda k=kernel, a=arguments: (forget_advice(), list(nkilab.check(k, *a))),
            }
            spent = medians(actions, RUNS, process_time)
            print(f"{name}: " + ", ".join(f"{what} {1e3 * t:.2f} ms" for what, t in spent.items()))
            bar(f"verdict / first run of {name}", spent["verdict"] / spent["run"], "times", "at most 2")


if __name__ == "__main__":
    main()
