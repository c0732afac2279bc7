"""Two groups of ranks on data: one after the other in this process, and each in a process of its own.

    python benchmarks/pool.py

The workers start before anything is timed. Beside the time on the clock stands processor time, which other
work on the machine does not lengthen: in all here, and of the busier worker and this process, which hands out
work and waits. Their ratio is the gain on two processors that nobody else uses. Linux only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import active_children, get_context
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from ranks_kernel import ncc, reduced_product, worked_over

import nkilab
from timing import seconds

RUNS = 5
GROUP = ncc.ReplicaGroup([[0, 1], [2, 3]])
# rows of the contraction that each rank has, and of the result; how often each rank takes tanh of 1 MiB
PRODUCTS = ((128, 128), (2048, 512), (8192, 512))
TANHS = (4, 64)


def multiplied(rows: int, n: int) -> Callable[[Any], None]:
    """What multiplies on four ranks, two and two together; results are NumPy's."""
    draw = np.random.default_rng(1)
    draws = [draw.standard_normal((rows, 2 * n)).astype(np.float32) for _ in range(4)]
    own = [nkilab.per_rank([a[:, :n] for a in draws]), nkilab.per_rank([a[:, n:] for a in draws])]
    each = [a[:, :n].T @ a[:, n:] for a in draws]

    def launched(executor: Any) -> None:
        results = nkilab.launch(reduced_product, 4, executor=executor)(*own, GROUP)
        for pair in (0, 2):
            np.testing.assert_allclose(results[pair], each[pair] + each[pair + 1], rtol=1e-3, atol=1e-2)

    return launched


def tanhs(times: int) -> Callable[[Any], None]:
    """What takes tanh of tanh on four ranks, and adds those of two."""
    draw = np.random.default_rng(1)
    own = [draw.standard_normal((128, 2048)).astype(np.float32) for _ in range(4)]
    each = list(own)
    for _ in range(times):
        each = [np.tanh(a) for a in each]

    def launched(executor: Any) -> None:
        results = nkilab.launch(worked_over, 4, executor=executor)(nkilab.per_rank(own), times, GROUP)
        for pair in (0, 2):
            np.testing.assert_allclose(results[pair], each[pair] + each[pair + 1], rtol=1e-2, atol=1e-3)

    return launched


def processor_seconds(process: int) -> float:
    """What a process has used of processors so far."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def spent(action: Callable[[], object]) -> tuple[float, float, float]:
    """Seconds on the clock, processor seconds here, and those of the busiest worker."""
    workers = [child.pid for child in active_children() if child.pid]
    before, own = [processor_seconds(worker) for worker in workers], process_time()
    clock = seconds(action)
    own = process_time() - own
    busiest = max(processor_seconds(w) - b for w, b in zip(workers, before, strict=True))
    return clock, own, busiest


def main() -> None:
    """Print a line per size."""
    print(f"{os.cpu_count()} processors; load {os.getloadavg()[0]:.1f}")
    actions = {f"product of {rows} x {n}": multiplied(rows, n) for rows, n in PRODUCTS}
    actions |= {f"{times} tanhs": tanhs(times) for times in TANHS}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        for name, launched in actions.items():
            launched(None)
            launched(processes)
            here, apart = [], []
            for _ in range(RUNS):
                here.append(spent(lambda f=launched: f(None)))
                apart.append(spent(lambda f=launched: f(processes)))
            clock, alone_seconds = (median(column) for column in list(zip(*here, strict=True))[:2])
            shared, own, busiest = (median(column) for column in zip(*apart, strict=True))
            print(
                f"{name}: {clock:.3f} s here, {shared:.3f} s in two processes, {clock / shared:.2f} times as "
                f"fast; processor time {alone_seconds:.3f} s here, {busiest:.3f} s of the busier process and "
                f"{own:.3f} s of this one, {alone_seconds / (busiest + own):.2f} times"
            )


if __name__ == "__main__":
    main()
