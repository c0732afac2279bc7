"""What the benchmarks share: repeated runs in one process, and the line that names the bar."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def seconds(action: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Time one run of `action`, in seconds of a clock."""
    began = clock()
    action()
    return clock() - began


def medians(
    actions: dict[str, Callable[[], object]], runs: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Median seconds of each action; the actions take turns, so that a slow spell of the machine hits all."""
    for action in actions.values():
        action()
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(runs):
        for name, action in actions.items():
            times[name].append(seconds(action, clock))
    return {name: statistics.median(values) for name, values in times.items()}


def bar(what: str, value: float, unit: str, limit: str) -> None:
    """Print a figure and the bar it is held to; nothing is asserted."""
    print(f"{what}: {value:.3g} {unit} (bar: {limit})")
