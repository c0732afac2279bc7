"""A 2048 x 2048 x 2048 float32 product through a kernel, against a NumPy tile loop and one BLAS call."""

from __future__ import annotations

import numpy as np

import nkilab
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


def main() -> None:
    """Measure and print."""
    rng = np.random.default_rng(0)
    lhsT, rhs = (rng.standard_normal((SIZE, SIZE), dtype=np.float32) for _ in range(2))
    with nkilab.activate():
        from matmul_kernel import tiled_matmul

        run = nkilab.simulate(tiled_matmul)
        assert np.allclose(run(lhsT, rhs), lhsT.T @ rhs, atol=1e-2)
        assert np.allclose(numpy_tiles(lhsT, rhs), lhsT.T @ rhs, atol=1e-2)
        times = medians(
            {
                "kernel": lambda: run(lhsT, rhs),
                "numpy tiles": lambda: numpy_tiles(lhsT, rhs),
                "blas": lambda: lhsT.T @ rhs,
            },
            RUNS,
        )
    print(", ".join(f"{name} {1e3 * t:.1f} ms" for name, t in times.items()))
    bar("kernel / numpy tiles", times["kernel"] / times["numpy tiles"], "x", "at most 1.3")
    bar("kernel / one BLAS call", times["kernel"] / times["blas"], "x", "at most 2")
    bar("numpy tiles / one BLAS call", times["numpy tiles"] / times["blas"], "x", "none, for comparison")


if __name__ == "__main__":
    main()
