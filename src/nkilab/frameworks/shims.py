"""Modules that host scripts import besides NKI, as thin as their use: names in tables, nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..api import machine_for
from ..dialects.kernel import Kernel
from ..dialects.serve import extended, module_tree, modules_from
from ..dialects.value_returning.top import names
from . import frontend, neuron_dtypes
from . import xla_device as xla
from .cpu_simulator import simulator_tree, with_simulation
from .traces import TorchProfile


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
    "nki": {"nki.compiler": {}, "nki.compiler.frontend": frontend.NAMES},
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
