"""Modules that host scripts import besides NKI, as thin as their use: names in tables, nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from os import environ
from types import ModuleType
from typing import Any

from .. import api
from ..api import machine_for
from ..dialects.kernel import Kernel
from ..dialects.serve import extended, module_tree, modules_from
from ..dialects.value_returning.top import names
from ..errors import UnsupportedError, UseError
from ..launches import launch
from ..trace.program import Program
from ..tracebacks import public
from . import neuron_dtypes
from . import xla_device as xla
from .traces import TorchProfile


class NKIFrontend:
    """What host scripts name as the type of a front end."""


class ParserFrontend(NKIFrontend):
    """Compiles kernels: checks and records every instruction without data."""

    @public
    def compile(
        self, kernel: Any, *, inputs: Mapping[str, Any], target: str = "", lnc: int = 1,
        artifacts_dir: str | None = None, dump_python_ast: bool = False,
        output_names: Sequence[str] | None = None,
    ) -> Program:  # fmt: skip
        """The program of a kernel.

        Args:
            kernel: decorated or plain.
            inputs: its arguments by name; of arrays only shapes and types count.
            target: chip.
            lnc: cores.
            artifacts_dir: nothing is written there.
            dump_python_ast: must be False.
            output_names: of the results; the program keeps those of the kernel.

        Raises:
            KernelError: what the kernel asks for and the machine does not allow.
        """
        if dump_python_ast:
            raise UnsupportedError("nkilab runs kernels as Python and has no syntax tree to dump")
        compiled_kernel = (
            kernel if isinstance(kernel, Kernel) else Kernel(kernel, "nki", api.settings().version)
        )
        return launch(
            compiled_kernel[lnc], (), dict(inputs), api.machine_for(compiled_kernel, target), has_data=False
        ).program


FRONTEND: dict[str, Any] = {"NKIFrontend": NKIFrontend, "ParserFrontend": ParserFrontend}


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


def xla_device(*args: Any, **kwargs: Any) -> Any:
    """The device of this process, whose tensors compute on the CPU."""
    return xla.device()


def mark_step(*args: Any, **kwargs: Any) -> None:
    """Run what is traced so far: nothing waits here."""


def wait_device_ops(*args: Any, **kwargs: Any) -> None:
    """Wait for the device: nothing runs behind the caller."""


_TORCH_XLA: dict[str, dict[str, Any]] = {
    "torch_xla": {"device": xla_device, "sync": mark_step},
    "torch_xla.core": {},
    "torch_xla.core.xla_model": {
        "xla_device": xla_device, "mark_step": mark_step, "wait_device_ops": wait_device_ops,
    },
}  # fmt: skip


def _nki_jit(version: str) -> Callable[..., Any]:
    """`torch_neuronx.nki_jit`: what nki.jit was in SDK 2.20, whose kernels write results to parameters.

    Host code of later releases wraps kernels with it that nki.jit already made, of either spelling.
    """
    jit = names(version)["jit"]

    def nki_jit(func: Any = None, **kwargs: Any) -> Any:
        if func is None:
            return lambda f: nki_jit(f, **kwargs)
        if isinstance(func, Kernel) and func.spelling == "nki":
            return func
        return jit(func, **{"mode": "trace", **kwargs})

    return nki_jit


def get_platform_target(*args: Any, **kwargs: Any) -> str:
    """The chip that kernels run on where they name none themselves."""
    return machine_for(None).name


def _torch_neuronx(version: str) -> dict[str, dict[str, Any]]:
    nki_jit = _nki_jit(version)
    return {
        "torch_neuronx": {"nki_jit": nki_jit},
        "torch_neuronx.experimental": {},
        "torch_neuronx.experimental.profiler": {"profile": TorchProfile},
        "torch_neuronx.utils": {"get_platform_target": get_platform_target},
        "torch_neuronx.xla_impl": {},
        "torch_neuronx.xla_impl.ops": {"nki_jit": nki_jit},
    }


def _beside_the_device(tables: dict[str, dict[str, Any]]) -> dict[str, ModuleType]:
    """Modules whose import makes the device known: scripts name it `xla` without asking for it."""
    xla.make_known()
    return modules_from(tables)


_TREES: dict[str, Callable[[str], dict[str, ModuleType]]] = {
    "torch_xla": lambda version: _beside_the_device(_TORCH_XLA),
    "torch_neuronx": lambda version: _beside_the_device(_torch_neuronx(version)),
    "neuron_dtypes": lambda version: modules_from({"neuron_dtypes": neuron_dtypes.NAMES}),
    "nki_cpu_simulator": simulator_tree,
}
SHIM_ROOTS = tuple(_TREES)

# Modules that host scripts import under the roots of NKI, parents first.
_ADDED: dict[str, dict[str, dict[str, Any]]] = {
    "nki": {"nki.compiler": {}, "nki.compiler.frontend": FRONTEND},
    "neuronxcc": {
        "neuronxcc.starfish": {},
        "neuronxcc.starfish.support": {},
        "neuronxcc.starfish.support.dtype": {"static_cast": neuron_dtypes.static_cast},
        "neuronxcc.starfish.support.util": {"allclose": neuron_dtypes.allclose},
    },
}


def extend_logging() -> None:
    """Give the standard logging module the level OFF, above all others, as importing Beta 1 does.

    Host scripts of the Stanford course call logging.disable(logging.OFF).
    """
    if not hasattr(logging, "OFF"):
        logging.OFF = logging.CRITICAL + 10  # type: ignore[attr-defined]


def host_tree(root: str, version: str) -> dict[str, ModuleType]:
    """The modules of a root of NKI, with what host scripts import there besides."""
    tree = extended(module_tree(root, version), root, _ADDED[root])
    return with_simulation(tree, version) if root == "nki" else tree


def shim_tree(root: str, version: str) -> dict[str, ModuleType]:
    """The modules served under one root, for one asked NKI version."""
    return _TREES[root](version)
