"""A product of 2048 x 2048 matrices through a kernel, against a NumPy tile loop and one BLAS call in float32.

A kernel that is launched again is computed from its tape; the first launch runs its Python.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any

import ml_dtypes
import numpy as np
from threadpoolctl import threadpool_limits

import nkilab
from nkilab.tapes import forget_tapes
from timing import bar, medians

SIZE = 2048
RUNS = 7


def numpy_tiles(lhsT: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """The loop of the kernel written by hand: each tile copied, multiplied, added, copied out."""
    (K, M), N = lhsT.shape, rhs.shape[1]
    out = np.empty((M, N), np.float32)
    scratch = np.empty((128, 512), np.float32)
    for m in range(0, M, 128):
        for n in range(0, N, 512):
            product = np.empty((128, 512), np.float32)
            for k in range(0, K, 128):
                stationary = lhsT[k : k + 128, m : m + 128].copy()
                moving = rhs[k : k + 128, n : n + 512].copy()
                if k == 0:
                    np.matmul(stationary.T, moving, out=product)
                else:
                    np.add(product, np.matmul(stationary.T, moving, out=scratch), out=product)
            result = product.copy()
            out[m : m + 128, n : n + 512] = result
    return out


def first(run: Callable[..., Any], *arrays: np.ndarray) -> Any:
    """Launch a kernel as if it had never been launched."""
    forget_tapes()
    return run(*arrays)


def main() -> None:
    """Measure and print."""
    rng = np.random.default_rng(0)
    lhsT, rhs = (rng.standard_normal((SIZE, SIZE), dtype=np.float32) for _ in range(2))
    with nkilab.activate():
        from matmul_kernel import tiled_matmul

        run = nkilab.simulate(tiled_matmul)
        assert np.allclose(run(lhsT, rhs), lhsT.T @ rhs, atol=1e-2)
        assert np.allclose(numpy_tiles(lhsT, rhs), lhsT.T @ rhs, atol=1e-2)
        narrow = [x.astype(ml_dtypes.bfloat16) for x in (lhsT, rhs)]
        with threadpool_limits(1):
            arrays = {"": (lhsT, rhs), ", bfloat16": tuple(narrow)}
            firsts = {f"first launch{k}": lambda own=own: first(run, *own) for k, own in arrays.items()}
            # the first launch of each leaves a tape, which nobody forgets here
            again = {f"kernel{k}": lambda own=own: run(*own) for k, own in arrays.items()}
            plain = {"numpy tiles": lambda: numpy_tiles(lhsT, rhs), "blas": lambda: lhsT.T @ rhs}
            times = medians({**firsts, **plain}, RUNS, process_time)
            for action in (*again.values(), *again.values()):
                action()
            times |= medians({**again, "blas again": plain["blas"]}, RUNS, process_time)
    print(", ".join(f"{name} {1e3 * t:.1f} ms" for name, t in times.items()))
    bar("kernel / numpy tiles", times["kernel"] / times["numpy tiles"], "x", "at most 1.3")
    bar("first launch / one BLAS call", times["first launch"] / times["blas"], "x", "at most 2")
    bar("kernel / one BLAS call", times["kernel"] / times["blas again"], "x", "at most 1.4")
    bar("bfloat16, first / one BLAS call", times["first launch, bfloat16"] / times["blas"], "x", "at most 2")
    bar(
        "bfloat16 / one BLAS call in float32",
        times["kernel, bfloat16"] / times["blas again"],
        "x",
        "at most 1.5",
    )
    bar("numpy tiles / one BLAS call", times["numpy tiles"] / times["blas"], "x", "none, for comparison")


if __name__ == "__main__":
    main()
