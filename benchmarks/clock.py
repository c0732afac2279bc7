"""Instructions per second that planning and the timing simulation get through, after tracing."""

from __future__ import annotations

import nkilab
from nkilab import api
from nkilab.launch import launch
from nkilab.place import plan
from nkilab.timing import simulate
from timing import bar, medians

# 4096 x 8192 x 8192: the size of the optimization guide
K, M, N = 8192, 4096, 8192
RUNS = 3


def main() -> None:
    """Measure and print."""
    with nkilab.activate():
        from matmul_kernel import tiled_matmul

        specs = (nkilab.spec((K, M), "float32"), nkilab.spec((K, N), "float32"))
        program = launch(
            api.as_kernel(tiled_matmul), specs, {}, api.machine_for(None), has_data=False
        ).program
        planned = plan(program)
        times = medians({"plan": lambda: plan(program), "simulate": lambda: simulate(program, planned)}, RUNS)
    rows = len(program)
    print(f"{rows} rows: plan {times['plan']:.2f} s, simulate {times['simulate']:.2f} s")
    both = rows / sum(times.values())
    bar("plan and simulate", both / 1e6, "million rows a second", "at least 1 later")
    bar("simulate alone", rows / times["simulate"] / 1e6, "million rows a second", "none, for comparison")


if __name__ == "__main__":
    main()
