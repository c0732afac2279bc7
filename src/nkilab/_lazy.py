"""Heavy imports, made at first use and only here."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any


def _package(root: str) -> Callable[..., ModuleType]:
    """A function that imports a package, or a module of it by its name below the package."""

    def imported(name: str = "") -> ModuleType:
        return import_module(f"{root}.{name}" if name else root)

    return imported


# modules of nkilab, for verbs that need them only when they run
part = _package("nkilab")
torch = cache(_package("torch"))
jax = _package("jax")
jax_numpy = _package("jax.numpy")
# compiles functions
numba = _package("numba")
rich = _package("rich")
# knows the lines that values stand on
ruamel_yaml = _package("ruamel.yaml")
# integer sets
islpy = _package("islpy")
# orders the factors of long products
opt_einsum = _package("opt_einsum")
# where they are installed: tells about processes; tells when files change; tables of the extra `parquet`;
# samplers that propose points; dask.distributed, which runs work on a cluster
psutil, watchfiles, pyarrow = _package("psutil"), _package("watchfiles"), _package("pyarrow")
optuna, distributed = _package("optuna"), _package("distributed")


def numba_code() -> tuple[Callable[[object], bytes], ModuleType, str]:
    """What pickles compiled code, the module that makes it code again, and the release of the compiler."""
    return numba("core.serialize").dumps, numba("core.compiler"), import_module("llvmlite").__version__


@cache
def half_kernels() -> ModuleType:
    """The compiled float16 conversions."""
    return part("tiles.half")


def numba_events() -> ModuleType:
    """What numba tells about its work while it compiles."""
    numba()
    return numba("core.event")


@cache
def threadpools() -> Any:
    """What sets the number of threads of the BLAS that NumPy calls."""
    return import_module("threadpoolctl").ThreadpoolController()


@cache
def fcntl() -> ModuleType | None:
    """Locks of files; None where the system has none of this kind."""
    try:
        return import_module("fcntl")
    except ModuleNotFoundError:
        return None
