"""A pytest plugin that prints, for tests that benchmark kernels, the suite's bound beside our prediction.

The bound is any parameter of the test whose name has "latency"; its unit is the suite's, microseconds in
nki-samples. Nothing is asserted: the suite's own tests decide what they do with a figure.

Usage: `nkilab run -m pytest -p nkilab.suites.bounds test/unit -k perf`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest

from ..api import WORLD
from ..benchmark import BenchmarkResult


# pytest keeps its plugins in sets
@dataclass(eq=False)
class Bounds:
    """What the tests that ran so far were bound to, and what was predicted.

    Attributes:
        rows: (name of the test, its bounds by parameter, predictions).
    """

    rows: list[tuple[str, dict[str, Any], list[BenchmarkResult]]] = field(default_factory=list)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: Any) -> Iterator[None]:
        """Collect the figures of one test."""
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        bounds = {name: value for name, value in parameters.items() if "latency" in name}
        results: list[BenchmarkResult] = []
        measure = WORLD.benchmark

        def measured(*args: Any) -> BenchmarkResult:
            results.append(measure(*args))
            return results[-1]

        with patch.object(WORLD, "benchmark", measured):
            yield
        if results:
            self.rows.append((item.nodeid.rpartition("::")[2], bounds, results))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the table."""
        if self.rows:
            terminalreporter.section("predicted against the suite's bounds")
        for name, bounds, results in self.rows:
            limits = ", ".join(f"{parameter} {bound:g}" for parameter, bound in bounds.items()) or "no bound"
            for result in results:
                low, high = result.nc_latency.interval_us
                terminalreporter.write_line(
                    f"{limits:>24}  predicted {result.nc_latency.predicted_us:.4g} us on {result.target}, "
                    f"{low:.4g} to {high:.4g}  {name}"
                )


def pytest_configure(config: Any) -> None:
    """Register the plugin."""
    config.pluginmanager.register(Bounds(), "nkilab-bounds")
