"""How long `nkilab estimate` takes for the product of the guide, at first and with compiled code kept."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from nkilab.ledger import kernels
from timing import bar

KERNEL = f"{Path(kernels.__file__).parent / 'matmul.py'}:blocked"
ARGUMENTS = (
    "--arg", "f32[8192,4096]", "--arg", "f32[8192,8192]",
    "--kw", "tiles_m=16", "--kw", "tiles_n=2", "--kw", "tiles_k=8",
)  # fmt: skip
WARM_RUNS = 5


def estimate(cache: str) -> tuple[float, float]:
    """Seconds on the wall and of processors, of all processes, that one run takes."""
    environment = {**os.environ, "NKILAB_CACHE_DIR": cache}
    environment.pop("NUMBA_CACHE_DIR", None)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    subprocess.run(
        [sys.executable, "-m", "nkilab", "estimate", KERNEL, *ARGUMENTS],
        check=True,
        stdout=subprocess.DEVNULL,
        env=environment,
    )
    wall, after = perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and print."""
    with TemporaryDirectory() as cache:
        wall, cpu = estimate(cache)
        bar("first run", wall, f"s on the wall, {cpu:.1f} s of processors", "at most 12")
        warm = min(estimate(cache) for _ in range(WARM_RUNS))
        bar("with compiled code kept", warm[0], f"s on the wall, {warm[1]:.1f} s of processors", "at most 3")


if __name__ == "__main__":
    main()
