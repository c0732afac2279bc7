"""Points that `nkilab tune` evaluates in a second on one core, and where the time of a point goes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from pool import processor_seconds

import nkilab
from nkilab import api
from nkilab.launches import launch
from nkilab.ledger.fitting import changed
from nkilab.ledger.kernels import __file__ as KERNELS
from nkilab.machine import Machine
from nkilab.place import plan
from nkilab.place.compiled import compiled
from nkilab.records import prepare
from nkilab.timing import simulate
from nkilab.trace.affine import REPEATS, Repeats
from nkilab.tune.executors import Pooled, Work
from nkilab.tune.objective import Case, KernelObjective
from nkilab.tune.space import space_of
from nkilab.views.summary import summarize
from timing import bar

SPACE = space_of(
    {"tiles_m": {"powers_of_two": [1, 16]}, "tiles_n": [1, 2, 4], "tiles_k": {"powers_of_two": [1, 16]}},
    ["tiles_m * tiles_n * tiles_k <= 128"],
)
SHAPE = "f32[2048,2048]"
# Runs of each point, of which the least counts: a busy machine also slows what this process computes.
RUNS = 3


def cpu(action: Callable[[], Any]) -> float:
    """Seconds that this process computes in one run: others on the machine do not count."""
    began = process_time()
    action()
    return process_time() - began


def evaluated(make: Callable[[], KernelObjective], points: list[Any]) -> float:
    """Seconds that an objective needs for all points, each the least of some runs."""
    objectives = [make() for _ in range(RUNS)]
    return sum(min(cpu(lambda o=o, p=p: o.evaluate(p)) for o in objectives) for p in points)


def main() -> None:
    """Measure and print."""
    points = list(SPACE.points())
    prepare()
    with nkilab.activate():
        from nkilab.ledger.kernels import matmul

        machine = api.machine_for(None)
        given = (nkilab.spec((2048, 2048), "float32"),) * 2
        kernels = {"blocked": matmul.blocked, "blocked_tiles": matmul.blocked_tiles}
        for name, kernel in kernels.items():
            objective = KernelObjective(kernel, [Case(given)], machine)
            for point in points:
                objective.evaluate(point)
            first = evaluated(lambda k=kernel: KernelObjective(k, [Case(given)], machine), points)
            other = changed(machine, {"dma_issue_ns": 0.1})
            again = evaluated(lambda o=objective, m=other: o.under(m), points)
            bar(
                f"{name} 2048^3, {len(points)} points",
                len(points) / first,
                "points/s of one core",
                "at least 50",
            )
            bar(f"{name}, the same under other constants", len(points) / again, "points/s", "none")
            compared(kernel, Case(given), machine, points)
            parts(api.as_kernel(kernel), given, machine, points)


def compared(kernel: Any, case: Case, machine: Machine, points: list[Any]) -> None:
    """How much longer points take where every iteration of every loop is run, one beside the other."""
    spent = {True: 0.0, False: 0.0}
    made = [
        (is_wanted, KernelObjective(kernel, [case], machine, repeats=Repeats(is_wanted=is_wanted)))
        for _ in range(RUNS)
        for is_wanted in spent
    ]
    for point in points:
        runs = [(way, cpu(lambda o=o, p=point: o.evaluate(p))) for way, o in made]
        for way in spent:
            spent[way] += min(seconds for w, seconds in runs if w is way)
    bar("  the same with every iteration run", spent[False] / spent[True], "times as long", "none")


def parts(kernel: Any, given: tuple[Any, ...], machine: Any, points: list[Any]) -> None:
    """Milliseconds of each part of an evaluation, on average."""
    spent = dict.fromkeys(("trace", "compiler", "placement", "clock", "summary"), 0.0)
    rows, known = 0, {REPEATS: Repeats()}
    for point in points:
        held: dict[str, Any] = {}

        def traced(point: Any = point, held: Any = held) -> None:
            launched = launch(kernel, given, dict(point), machine, has_data=False, keyed=known)
            held["program"] = launched.program

        def left(held: Any = held) -> None:
            held["program"].kept = (-1, None)
            held["compiled"] = compiled(held["program"])

        def placed(held: Any = held) -> None:
            held["plan"] = plan(held["compiled"])

        def timed(held: Any = held) -> None:
            held["timeline"] = simulate(held["compiled"], held["plan"])

        def summed(held: Any = held) -> None:
            summarize(held["compiled"], held["plan"], held["timeline"])

        for name, action in zip(spent, (traced, left, placed, timed, summed), strict=True):
            spent[name] += min(cpu(action) for _ in range(RUNS))
        rows += len(held["program"])
    told = ", ".join(f"{name} {1000 * seconds / len(points):.1f} ms" for name, seconds in spent.items())
    print(f"  {rows / len(points):.0f} instructions a point: {told}")


def workers() -> None:
    """Seconds of wall clock with one and with two worker processes, both warm.

    On a busy machine workers wait for processors. What the speed-up is where both always run follows from the
    processor time of all workers together, which a second one leaves as it is where it is in nobody's way.
    """
    kernel = f"{Path(KERNELS).parent / 'matmul.py'}:blocked"
    work = Work(kernel, (SHAPE, SHAPE))
    points = list(SPACE.points())
    times, spent = {}, {}
    for count in (1, 2):
        made = ProcessPoolExecutor(count, mp_context=get_context("spawn"))
        pool = Pooled(work, lambda made=made: made, count)
        # other points, enough for every worker to load compiled code; what it traced it would not trace again
        list(pool.evaluate([{**point, "sums": "float32"} for point in points]))
        before, began = sum(map(processor_seconds, made._processes)), perf_counter()
        list(pool.evaluate(points))
        times[count] = perf_counter() - began
        spent[count] = sum(map(processor_seconds, made._processes)) - before
        pool.close()
    bar("speed-up from one worker to two", times[1] / times[2], "times", "2, on two idle cores")
    bar("  by processor time, where both always run", 2 * spent[1] / spent[2], "times", "2")


if __name__ == "__main__":
    workers() if "--workers" in sys.argv else main()
