"""Heavy imports, made at first use and only here."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any


def numba() -> ModuleType:
    """numba, which compiles functions."""
    return import_module("numba")


def numba_code() -> tuple[Callable[[object], bytes], ModuleType, str]:
    """What pickles compiled code, the module that makes it code again, and the release of the compiler."""
    return (
        import_module("numba.core.serialize").dumps,
        import_module("numba.core.compiler"),
        import_module("llvmlite").__version__,
    )


@cache
def half_kernels() -> ModuleType:
    """The compiled float16 conversions."""
    return import_module("nkilab.tiles.half")


def numba_events() -> ModuleType:
    """What numba tells about its work while it compiles."""
    numba()
    return import_module("numba.core.event")


@cache
def torch(name: str = "") -> ModuleType:
    """PyTorch, or a module of it by its name below `torch`."""
    return import_module(f"torch.{name}" if name else "torch")


def jax(name: str = "") -> ModuleType:
    """JAX, or a module of it by its name below `jax`."""
    return import_module(f"jax.{name}" if name else "jax")


def jax_numpy() -> ModuleType:
    """jax.numpy."""
    return import_module("jax.numpy")


@cache
def threadpools() -> Any:
    """What sets the number of threads of the BLAS that NumPy calls."""
    return import_module("threadpoolctl").ThreadpoolController()


def psutil() -> ModuleType:
    """psutil, which tells about processes; where it is installed."""
    return import_module("psutil")


def part(name: str) -> ModuleType:
    """A module of nkilab by its name below the package, for verbs that need it only when they run."""
    return import_module(f"nkilab.{name}")


def watchfiles() -> ModuleType:
    """watchfiles, which tells when files change; where it is installed."""
    return import_module("watchfiles")


def ruamel_yaml() -> ModuleType:
    """ruamel.yaml, which knows the lines that values stand on."""
    return import_module("ruamel.yaml")


def pyarrow(name: str = "") -> ModuleType:
    """pyarrow or a module of it by name, of the extra `parquet`."""
    return import_module(f"pyarrow.{name}" if name else "pyarrow")


def rich(name: str) -> ModuleType:
    """A module of rich, by its name below `rich`."""
    return import_module(f"rich.{name}")


def opt_einsum() -> ModuleType:
    """opt_einsum, which orders the factors of long products."""
    return import_module("opt_einsum")


def optuna() -> ModuleType:
    """optuna, whose samplers propose points; where it is installed."""
    return import_module("optuna")


def distributed() -> ModuleType:
    """dask.distributed, which runs work on a cluster; where it is installed."""
    return import_module("distributed")


@cache
def fcntl() -> ModuleType | None:
    """Locks of files; None where the system has none of this kind."""
    try:
        return import_module("fcntl")
    except ModuleNotFoundError:
        return None


def islpy() -> ModuleType:
    """islpy, integer sets."""
    return import_module("islpy")
