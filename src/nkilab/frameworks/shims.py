"""Modules that host scripts import besides NKI, as thin as their use: names in tables, nothing else."""

from __future__ import annotations

import logging
from types import ModuleType
from typing import Any

from .._lazy import torch
from ..dialects.serve import modules_from


def xla_device(*args: Any, **kwargs: Any) -> Any:
    """The device of this process: the CPU."""
    return torch().device("cpu")


def mark_step(*args: Any, **kwargs: Any) -> None:
    """Run what is traced so far: nothing waits here."""


def wait_device_ops(*args: Any, **kwargs: Any) -> None:
    """Wait for the device: nothing runs behind the caller."""


TABLES: dict[str, dict[str, dict[str, Any]]] = {
    "torch_xla": {
        "torch_xla": {"device": xla_device},
        "torch_xla.core": {},
        "torch_xla.core.xla_model": {
            "xla_device": xla_device, "mark_step": mark_step, "wait_device_ops": wait_device_ops,
        },
    },
}  # fmt: skip
SHIM_ROOTS = tuple(TABLES)


def extend_logging() -> None:
    """Give the standard logging module the level OFF, above all others, as importing Beta 1 does.

    Host scripts of the Stanford course call logging.disable(logging.OFF).
    """
    if not hasattr(logging, "OFF"):
        logging.OFF = logging.CRITICAL + 10  # type: ignore[attr-defined]


def shim_tree(root: str) -> dict[str, ModuleType]:
    """The modules served under one root."""
    return modules_from(TABLES[root])
