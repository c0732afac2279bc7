"""Points that `nkilab tune` evaluates in a second on one core, and where the time of a point goes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

from pool import processor_seconds

import nkilab
from nkilab import api
from nkilab.launches import launch
from nkilab.ledger.fitting import changed
from nkilab.ledger.kernels import __file__ as KERNELS
from nkilab.machine import Machine
from nkilab.place import plan
from nkilab.place.compiler_passes import compiled
from nkilab.timing import simulate
from nkilab.trace.affine import REPEATS, Repeats
from nkilab.tune.executors import Pooled, Work, evaluate_in_worker
from nkilab.tune.objective import Case, KernelObjective
from nkilab.tune.space import space_of
from nkilab.views.summary import summarize
from timing import bar

DIVISORS = [1, 2, 3, 4, 6, 12]
SPACE = space_of(
    {"tiles_m": {"powers_of_two": [1, 16]}, "tiles_n": [1, 2, 4], "tiles_k": {"powers_of_two": [1, 16]}},
    ["tiles_m * tiles_n * tiles_k <= 128"],
)
# What workers share: enough points for their start to be a small part.
MANY = space_of(
    {"tiles_m": DIVISORS, "tiles_n": [1, 2, 3, 6], "tiles_k": DIVISORS, "sums": ["output", "float32"]},
    ["tiles_m * tiles_n * tiles_k <= 144"],
)
WORK = Work(f"{Path(KERNELS).parent / 'matmul.py'}:blocked", ("bf16[1536,1536]", "bf16[1536,3072]"))
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
    with nkilab.activate():
        from nkilab.ledger.kernels import matmul

        machine = api.machine_for(None)
        specs = (nkilab.spec((2048, 2048), "float32"),) * 2
        kernels = {"blocked": matmul.blocked, "blocked_tiles": matmul.blocked_tiles}
        for name, kernel in kernels.items():
            objective = KernelObjective(kernel, [Case(specs)], machine)
            for point in points:
                objective.evaluate(point)
            first = evaluated(lambda k=kernel: KernelObjective(k, [Case(specs)], machine), points)
            other = changed(machine, {"dma_issue_ns": 0.1})
            again = evaluated(lambda o=objective, m=other: o.under(m), points)
            bar(
                f"{name} 2048^3, {len(points)} points",
                len(points) / first,
                "points/s of one core",
                "at least 50",
            )
            bar(f"{name}, the same under other constants", len(points) / again, "points/s", "none")
            compared(kernel, Case(specs), machine, points)
            parts(api.as_kernel(kernel), specs, machine, points)


def compared(kernel: Any, case: Case, machine: Machine, points: list[Any]) -> None:
    """How much longer points take where every iteration of every loop is run, one beside the other."""
    spent = {True: 0.0, False: 0.0}
    objectives = [
        (is_wanted, KernelObjective(kernel, [case], machine, repeats=Repeats(is_wanted=is_wanted)))
        for _ in range(RUNS)
        for is_wanted in spent
    ]
    for point in points:
        runs = [(way, cpu(lambda o=o, p=point: o.evaluate(p))) for way, o in objectives]
        for way in spent:
            spent[way] += min(seconds for w, seconds in runs if w is way)
    bar("  the same with every iteration run", spent[False] / spent[True], "times as long", "none")


def parts(kernel: Any, specs: tuple[Any, ...], machine: Any, points: list[Any]) -> None:
    """Milliseconds of each part of an evaluation, on average."""
    spent = dict.fromkeys(("trace", "compiler", "placement", "clock", "summary"), 0.0)
    rows, known = 0, {REPEATS: Repeats()}
    for point in points:
        state: dict[str, Any] = {}

        def traced(point: Any = point, state: Any = state) -> None:
            launched = launch(kernel, specs, dict(point), machine, has_data=False, keyed=known)
            state["program"] = launched.program

        def left(state: Any = state) -> None:
            state["program"].kept = (-1, None)
            state["compiled"] = compiled(state["program"])

        def placed(state: Any = state) -> None:
            state["plan"] = plan(state["compiled"])

        def timed(state: Any = state) -> None:
            state["timeline"] = simulate(state["compiled"], state["plan"])

        def summed(state: Any = state) -> None:
            summarize(state["compiled"], state["plan"], state["timeline"])

        for name, action in zip(spent, (traced, left, placed, timed, summed), strict=True):
            spent[name] += min(cpu(action) for _ in range(RUNS))
        rows += len(state["program"])
    shares = ", ".join(f"{name} {1000 * seconds / len(points):.1f} ms" for name, seconds in spent.items())
    print(f"  {rows / len(points):.0f} instructions a point: {shares}")


def workers() -> None:
    """Say what a second worker process brings: to a whole search, and once both are warm.

    A search of its own in each of two processes, which share nothing, shows what the machine itself gives to
    a second process. Wall-clock ratios hold where nothing else runs; processor time tells on a busy machine,
    too, whether a second worker makes work: its sum is to be that of one worker.
    """
    points = list(MANY.points())
    timings: dict[int, list[Timing]] = {1: [], 2: []}
    pairs: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(RUNS):
        for count in timings:
            timings[count].append(search_on(count, points))
            pairs[count].append(apart(count))
    least = {n: Timing(*(min(column) for column in zip(*runs, strict=True))) for n, runs in timings.items()}
    one, two = least[1], least[2]
    print(f"{len(points)} points; load {os.getloadavg()[0]:.1f}; the least of {RUNS} runs each")
    for count, timing in least.items():
        print(f"  workers {count}: {timing}")
    one_seconds, two_seconds = (min(pairs[n]) for n in pairs)
    bar(
        "two separate searches side by side, the machine's limit",
        2 * one_seconds / two_seconds,
        "times one",
        "none",
    )
    bar("speed-up from one worker to two, both warm", one.warm_wall / two.warm_wall, "times", "2, idle")
    bar("  of the whole search, with the start of the workers", one.wall / two.wall, "times", "none")
    bar("processor time of two workers, both warm", two.warm_spent / one.warm_spent, "times one", "1")
    bar("  of the whole search", two.spent / one.spent, "times one", "1")


class Timing(NamedTuple):
    """Seconds of a search: on the clock, of all workers' processors, and of this process, which hands out.

    Those that are warm are of the second half of the points.
    """

    wall: float
    warm_wall: float
    spent: float
    warm_spent: float
    own: float

    def __str__(self) -> str:
        return (
            f"{self.wall:.2f} s, of which {self.warm_wall:.2f} s for the second half; processor time "
            f"{self.spent:.2f} s in workers, {self.warm_spent:.2f} s for the second half, and "
            f"{self.own:.2f} s here"
        )


def search_on(count: int, points: list[Any]) -> Timing:
    """Evaluate points in so many processes that begin with nothing."""
    executor = ProcessPoolExecutor(count, mp_context=get_context("spawn"))

    def spent() -> float:
        return sum(map(processor_seconds, executor._processes))

    began, own = perf_counter(), process_time()
    pool = Pooled(WORK, lambda: executor, count)
    half, at_half = perf_counter(), 0.0
    for number, _ in enumerate(pool.evaluate(points), 1):
        if number == len(points) // 2:
            half, at_half = perf_counter(), spent()
    end, total = perf_counter(), spent()
    timing = Timing(end - began, end - half, total, total - at_half, process_time() - own)
    pool.close()
    return timing


def apart(count: int) -> float:
    """Seconds until so many processes have each evaluated every point, for itself."""
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        list(pool.map(float, range(count)))
        began = perf_counter()
        searches = [pool.submit(search_alone) for _ in range(count)]
        for one in searches:
            one.result()
        return perf_counter() - began


def search_alone() -> None:
    """Evaluate every point here."""
    for point in MANY.points():
        evaluate_in_worker(WORK, point)


if __name__ == "__main__":
    workers() if "--workers" in sys.argv else main()
