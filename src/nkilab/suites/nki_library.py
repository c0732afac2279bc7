"""A pytest plugin for aws-neuron/nki-library: what its repository leaves out, and nothing else.

Usage: `nkilab run -m pytest -p nkilab.suites.nki_library test/integration --test-mode simulation`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
import pytest

from .. import api
from ..arguments import Call
from ..dialects.kernel import Kernel
from ..errors import UnsupportedError
from ..hook import ServedFinder, switch_on

pytest_plugins = ["nkilab.suites.sample"]
COLLECTIVE = "collective: needs several ranks"


class _NeedsHardware(type):
    """What the suite imports at its head and uses only with machines at the other end."""

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UnsupportedError(
            f"{cls.__name__}.{name} is for remote Trainium hosts, which nkilab does not drive",
            hint="run the suite with --test-mode simulation",
        )

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise UnsupportedError(
            f"{cls.__name__} is for remote Trainium hosts, which nkilab does not drive",
            hint="run the suite with --test-mode simulation",
        )


_ABSENT: dict[str, tuple[str, ...]] = {
    "test.utils.perf_analysis_private": ("analyze_trace",),
    "test.utils.scripts": (),
    "test.utils.scripts.remote_lock_scripts": ("LockResult", "LockStatus"),
}


def _supply_absent_modules() -> None:
    for module_name, names in _ABSENT.items():
        module = ModuleType(module_name, "Absent from the public repository.")
        module.__path__ = []
        for name in names:
            setattr(module, name, _NeedsHardware(name, (), {"__module__": module_name}))
        sys.modules.setdefault(module_name, module)


def pytest_addoption(parser: Any) -> None:
    """Declare the option."""
    parser.getgroup("nkilab").addoption(
        "--without-collectives", action="store_true", help="skip tests that need several ranks"
    )


def pytest_sessionstart(session: Any) -> None:
    """Complete the suite's class of a run.

    Its simulation reads an attribute that only its compilation sets, and knows no ranks.
    """
    module = sys.modules.get("test.utils.test_orchestrator")
    if module is None:
        return
    if not hasattr(module.Orchestrator, "_compiled_kernel"):
        module.Orchestrator._compiled_kernel = None
    simulated = module.Orchestrator._run_simulator_inference

    def run_simulator_inference(self: Any, kernel_under_test: Any) -> Any:
        ranks = kernel_under_test.inference_args.collective_ranks
        return simulated(self, kernel_under_test) if ranks < 2 else _run_ranks(self, kernel_under_test, ranks)

    module.Orchestrator._run_simulator_inference = run_simulator_inference
    if session.config.option.without_collectives:
        execute = module.Orchestrator.execute

        def execute_on_one_rank(self: Any, kernel_under_test: Any) -> Any:
            if kernel_under_test.inference_args.collective_ranks > 1:
                pytest.skip(COLLECTIVE)
            return execute(self, kernel_under_test)

        module.Orchestrator.execute = execute_on_one_rank


def _run_ranks(orchestrator: Any, under_test: Any, ranks: int) -> str:
    """Run a kernel on several ranks, which the suite's own simulation does not, and write what each returns.

    Returns:
        The folder, with a folder for each rank, as machines leave it.
    """
    utils = sys.modules["test.utils.common_dataclasses"]
    test_input, golden = under_test.kernel_input, under_test.validation_args.golden_output
    inputs = [
        test_input.for_rank(rank) if hasattr(test_input, "for_rank") else test_input for rank in range(ranks)
    ]
    calls: list[Call] = [
        ((), {name.removesuffix(".must_alias_input"): value for name, value in own.items()}) for own in inputs
    ]
    kernel_func = under_test.kernel_func
    kernel = kernel_func if isinstance(kernel_func, Kernel) else Kernel(kernel_func, "nki", "")
    machine = api.machine_for(kernel, under_test.compiler_input.platform_target.get_nc_gen())
    grid = kernel[under_test.compiler_input.logical_nc_config]
    left = api.WORLD.launching(grid, calls, range(ranks), machine, launched=ranks, has_data=True)
    folder = Path(orchestrator.fs_config.artifacts_output_directory_path) / utils.INF_ARTIFACT_DIR_NAME
    for rank, launched in enumerate(left):
        results = launched.results
        results = list(results) if isinstance(results, list | tuple) else [results]
        wanted = utils.normalize_golden_output(golden, rank)
        own = folder / f"output_worker_{rank}"
        own.mkdir(parents=True, exist_ok=True)
        for (name, expected), result in zip(wanted.items(), results, strict=True):
            np.asarray(result, dtype=expected.dtype).tofile(own / f"{name}.bin")
    return str(folder)


_supply_absent_modules()
# pytest-xdist starts workers as processes of their own
if not any(isinstance(finder, ServedFinder) for finder in sys.meta_path):
    switch_on(os.environ.get("NKILAB_NKI", ""), serves_shims=True)
