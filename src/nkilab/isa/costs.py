"""Steps shared by instructions whose sources give them the same cost.

MIN_II, the least interval between instructions of one engine, is about 64 cycles (2.26 costs).
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ..machine import Machine
from ..tiles.dtypes import BFLOAT16, FLOAT16
from ..tiles.tile import SBUF, Layout
from .declare import Step

MIN_INTERVAL_CYCLES = 64
HALVES = (BFLOAT16, FLOAT16)


def is_row_contiguous(layout: Layout) -> bool:
    """Whether neighbours along the last axis are neighbours in memory."""
    return len(layout.shape) < 2 or layout.strides[-1] == 1 or layout.shape[-1] == 1


def vector_speedup(machine: Machine, *operands: Layout) -> float:
    """How many elements VectorE takes per cycle in a one-input instruction over these operands.

    16-bit types: 4 if all lie in SBUF and are contiguous, else 2 (trn2 guide, DVE performance modes).
    float32 from SBUF to SBUF: 2 (measured, optimization guide).
    """
    most = machine["vector_mode_speedup"]
    in_sbuf = all(o.memory == SBUF for o in operands)
    if all(o.dtype in HALVES for o in operands):
        contiguous = all(is_row_contiguous(o) for o in operands)
        return most if in_sbuf and contiguous else min(most, 2.0) if in_sbuf or contiguous else 1.0
    return machine["vector_fp32_lanes"] if in_sbuf and all(o.itemsize == 4 for o in operands) else 1.0


def engine_step(
    machine: Machine, engine: str, label: str, cycles: float, *, table: str = "", later_ns: float = 0.0,
    widening: float = 1.0,
) -> Step:  # fmt: skip
    """A step of VectorE, ScalarE or GpSimdE of so many cycles plus the engine's overhead, at least MIN_II.

    Its result is visible `later_ns` after that of a copy.

    On GpSimdE the start-up is itself longer than MIN_II: 150 + N (2.26 costs, iota).
    """
    clock = machine[f"{engine}_clock_ghz"]
    if engine == "gpsimd":
        busy = (machine["gpsimd_overhead_cycles"] + cycles) / clock
    else:
        # the engine takes the next instruction before the result of this one is visible
        overhead = machine[f"{engine}_overhead_ns"]
        lag = machine[f"{engine}_duration_ns"] - overhead + later_ns
        busy, least = cycles / clock + overhead, MIN_INTERVAL_CYCLES / clock
        if busy < least:
            busy, lag = least, lag - (least - busy)
        return Step(engine, label, busy, max(lag, 0.0), table=table, widening=widening)
    return Step(engine, label, busy_ns=busy, table=table, widening=widening)


def one_input_step(
    form: Any, engine: str, label: str, *operands: Layout, later_ns: float = 0.0, widening: float = 1.0
) -> Step:
    """A step that reads one tile: one element a cycle, more in VectorE's performance modes.

    Source: 2.26 costs (tensor_copy, tensor_scalar, memset); trn2 guide, DVE performance modes.
    """
    cycles = float(max(o.free_size for o in operands))
    speedup = vector_speedup(form.machine, *operands) if engine == "vector" else 1.0
    step = engine_step(form.machine, engine, label, cycles / speedup, later_ns=later_ns, widening=widening)
    return replace(step, is_wide=speedup > 1)


def two_input_step(
    form: Any, engine: str, label: str, first: Layout, second: Layout, dst: Layout, *,
    is_fast_on_trn1: bool, widening: float = 1.0,
) -> Step:  # fmt: skip
    """A step that reads two tiles.

    trn1: 2 cycles an element, 1 in the cases that 2.26 costs lists per instruction. trn2 and later: 1 cycle
    an element in float32 (measured), 2 elements a cycle if all are 16-bit and the inputs in SBUF (trn2
    guide).
    """
    machine, cycles, is_wide = form.machine, float(first.free_size), False
    if engine == "vector":
        if machine.generation == 2:
            cycles *= 1 if is_fast_on_trn1 else 2
        elif first.memory == SBUF == second.memory and all(o.dtype in HALVES for o in (first, second, dst)):
            cycles, is_wide = cycles / 2, True
    return replace(engine_step(machine, engine, label, cycles, widening=widening), is_wide=is_wide)


def contiguous_run(layout: Layout) -> int:
    """Elements that lie side by side in memory from one end of a run to the other.

    On chip a run never leaves its partition: each partition is a memory of its own.
    """
    run = 1
    axes = list(zip(layout.shape, layout.strides, strict=True))
    for axis in range(len(axes) - 1, -1, -1):
        size, stride = axes[axis]
        if axis == layout.partition_axis:
            break
        if size != 1 and stride != run:
            break
        run *= size
    return max(run, 1)


def transfer_step(dst: Layout, src: Layout, *, label: str, widening: float = 1.0) -> Step:
    """One DMA transfer: as many descriptors as contiguous runs on the side that has the shorter ones.

    Source: DMA guide, "Descriptor size".
    """
    run = min(contiguous_run(dst) * dst.itemsize, contiguous_run(src) * src.itemsize)
    total = max(dst.size * dst.itemsize, 1)
    return Step("dma", label, descriptors=max(1, -(-total // run)), descriptor_bytes=run, widening=widening)
