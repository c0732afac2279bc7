"""A pytest plugin for aws-neuron/nki-library: what its repository leaves out, and nothing else.

Usage: `nkilab run -m pytest -p nkilab.suites.nki_library test/integration --test-mode simulation`.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any, NoReturn

import pytest

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

    Its simulation reads an attribute that only its compilation sets; and whether a test needs several ranks,
    which the suite cannot simulate, is known when the run begins.
    """
    module = sys.modules.get("test.utils.test_orchestrator")
    if module is None:
        return
    if not hasattr(module.Orchestrator, "_compiled_kernel"):
        module.Orchestrator._compiled_kernel = None
    if session.config.option.without_collectives:
        execute = module.Orchestrator.execute

        def execute_on_one_rank(self: Any, kernel_under_test: Any) -> Any:
            if kernel_under_test.inference_args.collective_ranks > 1:
                pytest.skip(COLLECTIVE)
            return execute(self, kernel_under_test)

        module.Orchestrator.execute = execute_on_one_rank


_supply_absent_modules()
# pytest-xdist starts workers as processes of their own
if not any(isinstance(finder, ServedFinder) for finder in sys.meta_path):
    switch_on(os.environ.get("NKILAB_NKI", ""), serves_shims=True)
