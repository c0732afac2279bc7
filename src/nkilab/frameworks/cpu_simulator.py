"""The names of `nki_cpu_simulator`: those of `nki`, and a call that names the cores before the arguments."""

from __future__ import annotations

from collections.abc import Callable
from os import environ
from types import ModuleType
from typing import Any

from .. import api
from ..dialects.kernel import Kernel
from ..dialects.serve import module_tree, modules_from
from ..errors import UseError
from ..tiles.dtypes import DTYPES
from .neuron_dtypes import PACKED

GENERATION = "NKI_NC_VERSION"


class Simulated:
    """A kernel that waits for the number of cores and its arguments.

    Args:
        kernel: decorated or plain.
        version: NKI version asked for, or "".
    """

    def __init__(self, kernel: Any, version: str) -> None:
        if not callable(kernel):
            raise UseError(f"nki.cpu_simulate takes a kernel; got {type(kernel).__name__}")
        self._kernel = kernel if isinstance(kernel, Kernel) else Kernel(kernel, "nki", version)

    def __getitem__(self, cores: Any) -> Callable[..., Any]:
        """A function that runs the kernel on this many cores of the generation that NKI_NC_VERSION names.

        Its arguments are arrays and what else the kernel takes; it returns what the kernel does, as arrays.
        """

        def run(*args: Any, **kwargs: Any) -> Any:
            with api.chosen(target=environ.get(GENERATION) or api.settings().target):
                return self._kernel[cores](*args, **kwargs)

        return run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on one core."""
        return self[1](*args, **kwargs)


_DTYPES = {name: name for name in (*DTYPES, "bool_", *PACKED)}


def simulator_tree(version: str) -> dict[str, ModuleType]:
    """The modules of `nki_cpu_simulator` by name: those of `nki`, and what a host script asks besides."""
    tree = module_tree("nki", version)
    own: dict[str, dict[str, Any]] = {
        "nki": {"cpu_simulate": lambda kernel: Simulated(kernel, version)},
        "nki.builtin": {}, "nki.compiler": {}, "nki.tensor": {}, "nki.dtype": _DTYPES,
    }  # fmt: skip
    made = modules_from(own)
    for name, names in own.items():
        if name in tree:
            vars(tree[name]).update(names)
        else:
            tree[name] = made[name]
    for child in ("builtin", "compiler", "dtype"):
        vars(tree["nki"]).setdefault(child, tree[f"nki.{child}"])
    served = {f"nki_cpu_simulator.{name}": module for name, module in tree.items()}
    served["nki_cpu_simulator.nki.language.dtypes"] = tree["nki.dtype"]
    top = modules_from({"nki_cpu_simulator": {"nki": tree["nki"]}})
    return {**served, **top}
