"""Long programs: seconds of a million instructions without rhythm, and the most memory of 8.4 million.

    python benchmarks/long_programs.py

Each is traced from shapes, planned and simulated in a process of its own. Seconds are of the processor.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from time import process_time
from typing import Any

import nkilab
from nkilab import api
from nkilab.launches import launch
from nkilab.place import plan
from nkilab.timing import simulate
from timing import bar

GIGABYTE = 1e9
# steps of the kernel without rhythm, of five instructions each
STEPS = 200_000
# tiles of a product over 8192, of 194 instructions each
M_TILES, N_TILES, K = 186, 233, 8192


def irregular() -> tuple[Any, tuple[Any, ...]]:
    """A million instructions without rhythm."""
    from report_kernel import irregular

    return irregular, (nkilab.spec((4096, 128), "float32"), nkilab.spec((4096, 8192), "float32"), STEPS)


def regular() -> tuple[Any, tuple[Any, ...]]:
    """A product of 8.4 million instructions."""
    from matmul_kernel import TILE_M, TILE_N, tiled_matmul

    shapes = (K, M_TILES * TILE_M), (K, N_TILES * TILE_N)
    return tiled_matmul, tuple(nkilab.spec(shape, "float32") for shape in shapes)


PROGRAMS: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {"irregular": irregular, "regular": regular}


def run(name: str) -> None:
    """Trace, plan and simulate one of them; print rows, seconds of each, and the most bytes held."""
    with nkilab.activate():
        kernel, arguments = PROGRAMS[name]()
        times = [process_time()]
        launched = launch(api.as_kernel(kernel), arguments, {}, api.machine_for(None), has_data=False)
        program = launched.program
        times.append(process_time())
        planned = plan(program)
        times.append(process_time())
        simulate(program, planned)
        times.append(process_time())
    units = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * units
    print(len(program), *(after - before for before, after in pairwise(times)), peak)


def main() -> None:
    """Measure and print."""
    for name in PROGRAMS:
        command = [sys.executable, __file__, name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows, *seconds, peak = map(float, done.stdout.split())
        traced, planned, simulated = seconds
        times = f"trace {traced:.2f} s, plan {planned:.2f} s, simulate {simulated:.2f} s"
        print(f"{name}: {rows:.0f} rows, {times}")
        if name == "irregular":
            bar(f"{name}, trace, plan and simulate", sum(seconds), "s", "at most 4")
        else:
            bar(f"{name}, most memory", peak / GIGABYTE, "GB", "at most 2")


if __name__ == "__main__":
    run(sys.argv[1]) if sys.argv[1:] else main()
