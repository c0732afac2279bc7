"""The names of `nki_cpu_simulator`: those of `nki`, and a call that names the cores before the arguments."""

from __future__ import annotations

from collections.abc import Callable
from os import environ
from types import ModuleType
from typing import Any

from .. import api
from ..dialects.kernel import Kernel
from ..dialects.serve import extended, module_tree, modules_from
from ..errors import UseError
from ..tracebacks import public

GENERATION = "NKI_NC_VERSION"


class Simulated:
    """A kernel that waits for the number of cores and its arguments.

    Args:
        kernel: decorated or plain.
        version: NKI version asked for, or "".
    """

    @public
    def __init__(self, kernel: Any, version: str) -> None:
        if not callable(kernel):
            raise UseError(f"nki.cpu_simulate takes a kernel; got {type(kernel).__name__}")
        self._kernel = kernel if isinstance(kernel, Kernel) else Kernel(kernel, "nki", version)

    def __getitem__(self, cores: Any) -> Callable[..., Any]:
        """A function that runs the kernel on this many cores of the generation that NKI_NC_VERSION names.

        Its arguments are arrays and what else the kernel takes; it returns what the kernel does, as arrays.
        """

        @public
        def run(*args: Any, **kwargs: Any) -> Any:
            with api.chosen(target=environ.get(GENERATION) or api.settings().target):
                return self._kernel[cores](*args, **kwargs)

        return run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on one core."""
        return self[1](*args, **kwargs)


# Modules that the vendor's simulator has and `nki` may lack; host scripts take them and use nothing of them.
_EMPTY = ("nki.builtin", "nki.compiler", "nki.tensor", "nki.dtype")


def with_simulation(tree: dict[str, ModuleType], version: str) -> dict[str, ModuleType]:
    """The modules of `nki`, whose place the simulator takes in public suites, with its own call."""
    vars(tree["nki"])["cpu_simulate"] = lambda kernel: Simulated(kernel, version)
    return tree


def simulator_tree(version: str) -> dict[str, ModuleType]:
    """The modules of `nki_cpu_simulator` by name: those of `nki`, and what a host script asks besides."""
    tree = with_simulation(module_tree("nki", version), version)
    extended(tree, "nki", {name: {} for name in _EMPTY})
    served = {f"nki_cpu_simulator.{name}": module for name, module in tree.items()}
    served["nki_cpu_simulator.nki.language.dtypes"] = tree["nki.dtype"]
    return {**served, **modules_from({"nki_cpu_simulator": {"nki": tree["nki"]}})}
