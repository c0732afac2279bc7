"""Records what a quick set of the benchmarks costs: each run adds a line to `history.jsonl`.

    python benchmarks/record.py [--print]

Everything is processor time, and takes turns with two calibration loops: plain Python, and matrix products of
NumPy. A ratio is a benchmark's time over theirs (the geometric mean), so that slow machines and fast ones
compare; the machine factor is theirs in tenths of a second. With --print the line is not kept.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
from startup import KERNEL, SMALL, process
from threadpoolctl import threadpool_limits

import nkilab
from nkilab import api
from nkilab.launches import launch
from nkilab.tapes import forget_tapes
from timing import medians

HERE = Path(__file__).resolve().parent
HISTORY = HERE / "history.jsonl"
RUNS = 5
INSTRUCTIONS = 10_000
RANKS, MANY_RANKS, LAYER_RANKS = 64, 512, 32
# processor seconds that a calibration loop takes where the machine factor is 1
UNIT_S = 0.1


def python_loop() -> int:
    """A fixed amount of plain Python: calls, attributes, dictionaries, whole numbers."""
    table: dict[int, int] = {}
    for number in range(400_000):
        key = number & 1023
        table[key] = table.get(key, 0) + number
    return len(table)


def blas_loop() -> float:
    """A fixed amount of float32 matrix products, on one thread."""
    a = np.ones((768, 768), np.float32)
    for _ in range(6):
        a = a @ a
        a /= a.max()
    return float(a[0, 0])


CALIBRATION = {"python loop": python_loop, "blas loop": blas_loop}


def benchmarks() -> dict[str, Callable[[], object]]:
    """The quick set, by name."""
    with nkilab.activate():
        from matmul_kernel import tiled_matmul
        from overhead_kernels import dst_first, value_returning
        from ranks_kernel import ncc, reduced_product, summed

    x, small = np.ones((4, 4), np.float32), nkilab.spec((4, 4), "float32")
    a, b = (np.ones((512, 512), np.float32) for _ in range(2))
    machine = api.machine_for(None)
    specs = [nkilab.spec((2048, 2048), "float32") for _ in range(2)]
    checked = [nkilab.spec((1024, 1024), "float32") for _ in range(2)]
    own, many = (
        nkilab.per_rank([np.full((128, columns), rank, np.float32) for rank in range(ranks)])
        for columns, ranks in ((128, RANKS), (512, MANY_RANKS))
    )
    groups = {n: ncc.ReplicaGroup([list(range(n))]) for n in (RANKS, MANY_RANKS, LAYER_RANKS)}
    layer = [nkilab.spec((4096, columns), "float32") for columns in (1024, 512)]
    kernel = api.as_kernel(dst_first)

    def first(kernel: Any, *arguments: Any) -> Any:
        forget_tapes()
        return nkilab.simulate(kernel)(*arguments)

    def remembered(kernel: Any, *arguments: Any) -> None:
        os.environ["NKILAB_REMEMBER"] = "256"
        for _ in range(18):
            nkilab.simulate(kernel)(*arguments)
        del os.environ["NKILAB_REMEMBER"]

    return {
        "10,000 instructions of nki": lambda: first(dst_first, x, INSTRUCTIONS),
        "10,000 instructions of nki, again": lambda: nkilab.simulate(dst_first)(x, INSTRUCTIONS),
        "10,000 instructions of Beta 1": lambda: first(value_returning, x, INSTRUCTIONS),
        "10,000 instructions of Beta 1, again": lambda: nkilab.simulate(value_returning)(x, INSTRUCTIONS),
        "10,000 instructions, shapes only": lambda: launch(
            kernel, (small, INSTRUCTIONS), {}, machine, has_data=False
        ),
        "a product of 512, computed": lambda: first(tiled_matmul, a, b),
        "a product of 512, computed again": lambda: nkilab.simulate(tiled_matmul)(a, b),
        "a product of 2048, estimated": lambda: nkilab.estimate(tiled_matmul, *specs),
        "a product of 1024, checked": lambda: nkilab.check(tiled_matmul, *checked),
        "a product of 512, 18 times on the same arrays, remembered": lambda: remembered(tiled_matmul, a, b),
        "an all-reduce over 64 ranks": lambda: nkilab.launch(summed, RANKS)(own, groups[RANKS]),
        "an all-reduce over 512 ranks": lambda: nkilab.launch(summed, MANY_RANKS)(many, groups[MANY_RANKS]),
        "a product over 32 ranks, estimated": lambda: nkilab.estimate(
            reduced_product, *layer, groups[LAYER_RANKS], ranks=LAYER_RANKS
        ),
        "import nkilab": process("-c", "import nkilab"),
        "import numpy": process("-c", "import numpy"),
        "nkilab estimate of a small kernel": process("-m", "nkilab", "estimate", KERNEL, *SMALL),
    }


def processor_seconds() -> float:
    """Of this process, its threads and the processes that it waited for."""
    times = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in times)


def line_of(times: dict[str, float], commit: str, day: str) -> dict[str, Any]:
    """What is kept of a run: its commit, the machine, and each benchmark against the calibration.

    Args:
        times: processor seconds of the calibration loops and of the benchmarks.
        commit: with "+" behind it where files differ from it.
        day: as 2026-01-31.
    """
    loop = geometric_mean(times[name] for name in CALIBRATION)
    return {
        "date": day,
        "commit": commit,
        "python": ".".join(map(str, sys.version_info[:3])),
        "machine_factor": round(loop / UNIT_S, 3),
        "calibration_s": {name: round(times[name], 4) for name in CALIBRATION},
        "ratios": {name: round(t / loop, 3) for name, t in times.items() if name not in CALIBRATION},
    }


def commit() -> str:
    """The commit that is checked out, with "+" behind it where files differ from it."""
    git = ["git", "-C", str(HERE)]
    head = subprocess.run(
        [*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=True
    )
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True, check=True
    )
    return head.stdout.strip() + "+" * bool(changed.stdout.strip())


def main(arguments: list[str]) -> int:
    """Measure, then keep or print; returns the exit code."""
    if arguments not in ([], ["--print"]):
        sys.stderr.write("usage: python benchmarks/record.py [--print]\n")
        return 2
    actions = {name: (lambda call=call: (call(), gc.collect())) for name, call in benchmarks().items()}
    # launches "again" follow two of their kernel, which leave a tape; among the others each forgets all tapes
    again = {name: action for name, action in actions.items() if name.endswith("again")}
    others = {name: action for name, action in actions.items() if name not in again}
    with threadpool_limits(1):
        for action in (*others.values(), *again.values(), *again.values()):
            action()
        # what is loaded by now is no garbage of a benchmark, and makes a collection ten times as slow
        gc.freeze()
        times = medians(again, RUNS, processor_seconds)
        times |= medians({**CALIBRATION, **others}, RUNS, processor_seconds)
    line = json.dumps(line_of(times, commit(), date.today().isoformat()))
    print(line)
    if not arguments:
        with HISTORY.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
