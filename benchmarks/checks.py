"""What checking costs: a first launch alone, and checked; processor seconds, and the most memory of each.

The bar is that of a verdict; advice, which is looked for when it is shown, stands beside it.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from time import process_time

import numpy as np

import nkilab
from nkilab.checking import Options, report_of
from nkilab.tapes import forget_tapes
from timing import bar, medians, seconds

RUNS = 3
SIZE = 2048


def peak_mib(action: Callable[[], object]) -> float:
    """The most memory that Python's allocations take while `action` runs, in MiB."""
    tracemalloc.start()
    action()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 2**20


def main() -> None:
    """Measure and print."""
    rng = np.random.default_rng(0)
    lhsT, rhs = (rng.standard_normal((SIZE, SIZE), dtype=np.float32) for _ in range(2))
    with nkilab.activate():
        from matmul_kernel import tiled_matmul

        from nkilab.examples.row_softmax import row_softmax

    rows = rng.standard_normal((4096, 2048), dtype=np.float32)
    kernels = {"matmul 2048": (tiled_matmul, (lhsT, rhs)), "softmax 4096 x 2048": (row_softmax, (rows,))}
    for name, (kernel, args) in kernels.items():
        run = nkilab.simulate(kernel)
        often = {
            "plain": lambda run=run, args=args: (forget_tapes(), run(*args)),
            "checked": lambda kernel=kernel, args=args: report_of(kernel, args, {}),
        }
        times = medians(often, RUNS, process_time)
        once = {
            "with advice": lambda kernel=kernel, args=args: report_of(kernel, args, {}).to_dict(),
            "replayed once": lambda kernel=kernel, args=args: report_of(kernel, args, {}, Options(replays=1)),
            "with numerics": lambda kernel=kernel, args=args: report_of(
                kernel, args, {}, Options(has_numerics=True)
            ),
        }
        times |= {what: seconds(action, process_time) for what, action in once.items()}
        print(f"{name}: " + ", ".join(f"{what} {1e3 * t:.1f} ms" for what, t in times.items()))
        bar(f"{name}, checked / plain", times["checked"] / times["plain"], "x", "under 2")
        peaks = {what: peak_mib(action) for what, action in often.items()}
        print("  most memory: " + ", ".join(f"{what} {mib:.1f} MiB" for what, mib in peaks.items()))


if __name__ == "__main__":
    main()
