"""Rows per second that planning and the timing simulation get through after tracing, over three decades."""

from __future__ import annotations

import resource
import sys
from time import perf_counter

import nkilab
from nkilab import api
from nkilab.launches import launch
from nkilab.place import plan
from nkilab.timing import simulate
from nkilab.trace.program import Program
from timing import bar, medians

RUNS = 3
K = 8192
# Tiles of the result, of 194 rows each: about a thousand, ten thousand, ... rows. The third is the product of
# 4096 x 8192 x 8192 of the optimization guide.
TILES = ((1, 5), (4, 13), (32, 16), (56, 92))


def program(m: int, n: int) -> Program:
    """The tiled product whose result is `m` x `n` tiles."""
    from matmul_kernel import TILE_M, TILE_N, tiled_matmul

    specs = (nkilab.spec((K, m * TILE_M), "float32"), nkilab.spec((K, n * TILE_N), "float32"))
    return launch(api.as_kernel(tiled_matmul), specs, {}, api.machine_for(None), has_data=False).program


def measured(traced: Program) -> tuple[int, float, float]:
    """Rows, and seconds to plan and to simulate them."""
    planned = plan(traced)
    actions = {"plan": lambda: plan(traced), "simulate": lambda: simulate(traced, planned)}
    times = medians(actions, RUNS)
    return len(traced), times["plan"], times["simulate"]


def peak_gib() -> float:
    """The most memory that this process held, in GiB."""
    units = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * units / 2**30


def main() -> None:
    """Measure and print."""
    results = []
    with nkilab.activate():
        for m, n in TILES:
            began = perf_counter()
            compiled_program = program(m, n)
            traced_in = perf_counter() - began
            rows, planned_in, simulated_in = measured(compiled_program)
            results.append((rows, planned_in, simulated_in))
            times = f"trace {traced_in:.3f} s, plan {planned_in:.4f} s, simulate {simulated_in:.4f} s"
            print(f"{rows} rows: {times}, {peak_gib():.2f} GiB")
    (rows, planned_in, simulated_in), (most, planned_most, simulated_most) = results[-2:]
    bar("simulate", rows / simulated_in / 1e6, "million rows a second", "at least 1")
    bar("plan", rows / planned_in / 1e6, "million rows a second", "at least 0.8")
    growth = (planned_most + simulated_most) / (planned_in + simulated_in) / (most / rows)
    bar("time per row at ten times the rows", growth, "times as long", "about 1")
    bar("memory", peak_gib(), "GiB", "at most 2")


if __name__ == "__main__":
    main()
