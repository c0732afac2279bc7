"""A pytest plugin: what checking costs on the kernels of a public suite, launch by launch.

In the folder of nki-library, as docs/foreign-suites.md sets it up:

    PYTHONPATH=$PWD:$PWD/src:BENCHMARKS nkilab run -m pytest -c test/pytest.ini -p nkilab.suites.nki_library \
        -p checks_library test/integration/nkilib/core --test-mode simulation --sample 20

Every launch runs once alone and once checked, on inputs of its own; the summary has both, and the ratio.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Generator
from typing import Any

import pytest

from nkilab import api, checking
from nkilab.launches import launch

# per launch: kernel, seconds alone and checked, rows
COSTS: list[tuple[str, float, float, int]] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Generator[None, Any, Any]:
    """Measure every launch of a test."""
    with checking.every_launch():
        checked = api.WORLD.launching

        def measured(kernel: Any, args: Any, kwargs: Any, machine: Any, **how: Any) -> Any:
            own = copy.deepcopy((args, kwargs))
            begin = time.perf_counter()
            plain = launch(kernel, *own, machine, **how)
            seconds = time.perf_counter() - begin
            begin = time.perf_counter()
            launched = checked(kernel, args, kwargs, machine, **how)
            rows = sum(len(program) for program in plain.programs)
            COSTS.append((kernel.name, seconds, time.perf_counter() - begin, rows))
            return launched

        api.WORLD.launching = measured
        return (yield)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the figures, the dearest checks first, and the ratio of the sums."""
    terminalreporter.section("cost of checking")
    for name, plain, checked, rows in sorted(COSTS, key=lambda cost: -cost[2] / cost[1]):
        figures = f"{1e3 * plain:9.1f} ms alone, {1e3 * checked:9.1f} ms checked"
        terminalreporter.write_line(f"{name:<48} {rows:>8} rows {figures}: {checked / plain:5.2f} x")
    if COSTS:
        ratio = sum(cost[2] for cost in COSTS) / sum(cost[1] for cost in COSTS)
        terminalreporter.write_line(f"{len(COSTS)} launches, all checked / all alone: {ratio:.2f} x")
