"""Processor time of a whole kernel against the plain NumPy expression in float32, in one process.

    NKILAB_QR_UPDATE=path/of/kernel.py python benchmarks/qr_update.py

takes the function `qr_update` of that file; without the variable, the kernel of the same structure here.
`--small` takes a twelfth of the columns.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from time import process_time

import numpy as np

import nkilab
from nkilab.runner import kernel_from
from timing import bar, seconds

M1, M0, K0, N1 = 6, 2048, 2048, 16
M = M1 * M0


def numpy_seconds(N2: int) -> tuple[float, tuple[np.ndarray, ...]]:
    """Time the expression in float32: the fastest of three runs, and the kernel's arguments in float16."""
    N = N2 * N1 * 128
    rng = np.random.default_rng(0)
    a, b, d = (rng.random(shape, dtype=np.float32) for shape in ((M, 1), (M, N), (N, M)))
    fastest = min(seconds(lambda: d.T - a @ (a.T @ b), process_time) for _ in range(3))
    column, rows, base = (x.astype(np.float16) for x in (a, b, d))
    arguments = (
        column.reshape(M1, M0 // 128, 128, 1),
        rows.reshape(M1, M0 // 128, 128, N2, N1 * 128),
        column.reshape(M1, K0 // 512, 1, 512),
        base.reshape(N2, N1, 128, M1, K0),
    )
    return fastest, arguments


def main() -> None:
    """Measure and print."""
    N2 = 1 if "--small" in sys.argv else 11
    N = N2 * N1 * 128
    path = os.environ.get("NKILAB_QR_UPDATE") or str(Path(__file__).with_name("qr_update_kernel.py"))
    plain, arguments = numpy_seconds(N2)
    sizes = {"M1": M1, "M0": M0, "N2": N2, "N1": N1, "K1": M1, "K0": K0}
    with nkilab.activate():
        run = nkilab.simulate(kernel_from(f"{path}:qr_update"))
        times = [seconds(lambda: run(*arguments, **sizes), process_time) for _ in range(3)]
    print(f"{path}: kernel {', '.join(f'{t:.2f}' for t in times)} s, NumPy {plain:.2f} s, N = {N}")
    bar("first run of the kernel / NumPy float32", times[0] / plain, "x", "at most 1.2")
    bar("fastest run / NumPy float32", min(times) / plain, "x", "none, for comparison")
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    bar("peak resident memory", peak_gib, "GiB", "under 12 for the kernel and its test")


if __name__ == "__main__":
    main()
