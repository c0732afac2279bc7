"""nkilab: run, check, time and profile AWS Trainium NKI kernels on any computer."""

from __future__ import annotations

from importlib import import_module
from sys import modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import Estimate, estimate, simulate, spec
    from .checking import check
    from .checks.finding import Finding
    from .hook import activate
    from .machine import Topology
    from .profiles import Profile, profile
    from .ranks import launch, per_rank

__version__ = "0.1.0"

# Public names and the module that has each; loaded at first use.
_MODULES = {
    "simulate": "api", "estimate": "api", "spec": "api", "Estimate": "api", "activate": "hook",
    "profile": "profiles", "Profile": "profiles", "check": "checking", "Finding": "checks.finding",
    "launch": "ranks", "per_rank": "ranks", "Topology": "machine",
    "load_ipython_extension": "commands.ipython",
}  # fmt: skip
# Public parts with functions of their own.
_PARTS = ("einsum", "jax", "torch", "tune")
__all__ = [
    "Estimate", "Finding", "Profile", "Topology", "activate", "check", "estimate", "launch", "per_rank",
    "profile", "simulate", "spec",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return import_module(f"{__name__}.{name}")
    home = _MODULES.get(name)
    if home is None:
        try:
            raise AttributeError(f"module nkilab has no attribute {name}", name=name, obj=modules[__name__])
        except AttributeError as error:
            # the line that asked is the user's
            error.__traceback__ = None
            raise
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_PARTS})
