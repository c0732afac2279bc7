"""What if the chip were different: changes of its constants as a user writes them."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from .errors import UsageError, did_you_mean
from .machine import Machine

# Names that are shorter than those of constants, or stand for several: what divides an absolute value.
ALIASES: dict[str, dict[str, str]] = {
    "dma_bandwidth": {"dma_bytes_per_ns": "dma_engines", "hbm_bytes_per_ns": ""},
    "hbm_bandwidth": {"hbm_bytes_per_ns": ""},
    "dma_latency": {"dma_start_ns": "", "dma_static_start_ns": ""},
    "dma_issue": {"dma_issue_ns": ""},
    "semaphore": {"semaphore_ns": ""},
    "sbuf_bytes": {"sbuf_bytes_per_partition": ""},
    "tensor_clock": {"tensor_clock_ghz": ""},
    "vector_clock": {"vector_clock_ghz": ""},
    "scalar_clock": {"scalar_clock_ghz": ""},
    "gpsimd_clock": {"gpsimd_clock_ghz": ""},
}


def changes_in(text: str) -> dict[str, str]:
    """Changes by name from "dma_bandwidth=2x,psum_banks=16".

    Raises:
        UsageError: if one is no NAME=VALUE, or stands twice.
    """
    changes: dict[str, str] = {}
    for part in text.split(","):
        name, sign, value = (piece.strip() for piece in part.partition("="))
        if not sign or not name or not value:
            raise UsageError(f"--what-if has {part!r}; write NAME=VALUE, as in dma_bandwidth=2x")
        if name in changes:
            raise UsageError(f"--what-if names {name} twice")
        changes[name] = value
    return changes


def changed(machine: Machine, changes: Mapping[str, Any]) -> Machine:
    """A chip with other constants.

    Args:
        machine: the chip.
        changes: by constant of the chip, or by a name of `ALIASES`: a number in the constant's unit
            (bandwidths in bytes per nanosecond, which is GB/s), or how many times it is, as "2x".

    Raises:
        UsageError: if there is no such constant, or it cannot have the value.
    """
    values: dict[str, float] = {}
    for name, factor in changes.items():
        value, is_factor = _number(name, factor)
        for constant, divisor in _constants(machine, name).items():
            new_value = (
                machine[constant] * value if is_factor else value / (machine[divisor] if divisor else 1)
            )
            values[constant] = _allowed(machine, constant, new_value, f"{name}={factor}", is_factor=is_factor)
    changes_text = ",".join(f"{name}={factor}" for name, factor in changes.items())
    label = f"{machine.calibration}, {changes_text}" if machine.calibration else changes_text
    return machine.with_constants(values, f"what if {changes_text}", label, "assumed")


def _allowed(machine: Machine, constant: str, value: float, change: str, *, is_factor: bool) -> float:
    """A value that a constant may have; a factor may leave a part of what counts, which does not count."""
    if is_factor and "whole" in machine.needs(constant, value):
        value = int(value)
    needed = machine.needs(constant, value)
    if needed:
        raise UsageError(f"{change} makes {constant} {value:g}; it must be {needed}")
    return value


def _constants(machine: Machine, name: str) -> Mapping[str, str]:
    if name in ALIASES:
        return ALIASES[name]
    facts = machine.facts()
    if name in facts:
        return {name: ""}
    raise UsageError(
        f"{machine.name} has no constant {name}",
        hint=did_you_mean(name, [*ALIASES, *facts], "nkilab explain CHIP lists them all"),
    )


def _number(name: str, value_text: Any) -> tuple[float, bool]:
    """A value, and whether it is a factor."""
    text = str(value_text).strip()
    is_factor = text.endswith(("x", "X"))
    try:
        value = float(text[:-1] if is_factor else text)
    except ValueError:
        value = -1.0
    if not isfinite(value) or value < 0:
        raise UsageError(f"{name} is {text}; a change is a number from 0 on, or a factor such as 2x")
    return value, is_factor
