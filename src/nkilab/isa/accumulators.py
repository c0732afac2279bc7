"""Accumulator registers: one float32 per partition, in which instructions reduce along the way.

ScalarE and VectorE each have their own. VectorE's are shared by all its instructions that have a
`reduce_cmd`; they hold nothing known until one of these resets or loads them, nor after one that was idle.

Source: nki.isa.exponential and tensor_scalar_reduce, "Accumulator behavior".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..tiles.convert import store
from .costs import MIN_INTERVAL_CYCLES
from .declaration_parts import Step
from .elementwise import widen_operand
from .operators import Operator

SOURCE = 'nki.isa.exponential, "Accumulator behavior"'
# What registers are reset to, per operator that reduces into them.
IDENTITY = {"add": 0.0, "subtract": 0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}
# A NaN that arithmetic does not make, so that results which are NaN do not pass for it.
_UNKNOWN_BITS = np.uint32(0x7FC0A55A)
UNKNOWN_WARNING = (
    "reduce_cmd is reduce and the registers hold nothing known, as nothing reset or loaded them before "
    "or an instruction was idle; the result is nan"
)


def register_files(partitions: int) -> dict[str, Any]:
    """The registers of a core at the start of a kernel, by engine."""
    unknown = np.full((partitions,), _UNKNOWN_BITS, np.uint32).view(np.float32)
    return {"scalar": np.zeros((partitions,), np.float32), "vector": unknown}


def prepared(form: Any, registers: Any, op: Operator, initial: Any = None, memory_of: Any = None) -> Any:
    """Bring VectorE's registers of the partitions of dst into the state from which a call reduces.

    Args:
        form: what is called; has dst and reduce_cmd.
        registers: the register file.
        op: reduces into the registers.
        initial: what load_reduce loads, a number or [P, 1].
        memory_of: layout of `initial`.

    Returns:
        The registers, [P], and the sentence to warn with, or "".
    """
    active = registers[form.dst.start_partition :][: form.dst.partitions]
    warning = ""
    match form.reduce_cmd:
        case "reset" | "reset_reduce":
            active[...] = IDENTITY[op.name]
        case "load_reduce":
            active[...] = np.reshape(widen_operand(initial, memory_of), -1)
        case "idle":
            active.view(np.uint32)[...] = _UNKNOWN_BITS
        case "reduce":
            warning = UNKNOWN_WARNING if (active.view(np.uint32) == _UNKNOWN_BITS).any() else ""
    return active, warning


def reduces(form: Any) -> bool:
    """Whether a call adds its results to the registers."""
    return form.reduce_cmd not in ("idle", "reset")


def accumulated(
    form: Any, registers: Any, op: Operator, result: Any, initial: Any = None, memory_of: Any = None
) -> Any:
    """Reduce float32 results, [P, F...], into the registers as `reduce_cmd` says; returns as `prepared`."""
    active, warning = prepared(form, registers, op, initial, memory_of)
    if reduces(form):
        function: Any = op.function
        rows = function.reduce(result.reshape(result.shape[0], -1), axis=1)
        active[...] = function(active, rows)
    return active, warning


def read_out(reduce_res: Any, active: Any, memory_of: Any) -> None:
    """Write the registers to `reduce_res`, [P, 1], if the caller gives it."""
    if reduce_res is not None:
        store(reduce_res, active.reshape(reduce_res.shape), memory_of.dtype)


def read_step(form: Any, label: str) -> Step:
    """VectorE's step that writes the registers out: MIN_II (2.26 costs, tensor_scalar_reduce)."""
    return Step("vector", label, busy_ns=MIN_INTERVAL_CYCLES / form.machine["vector_clock_ghz"])
