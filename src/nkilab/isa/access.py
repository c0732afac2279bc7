"""What an access to SBUF or PSUM costs where neighbours lie far apart.

Source: trn1 architecture guide, "Access pattern": below 16 bytes between the elements of the innermost free
axis an interface gives an element per partition and cycle, beyond that half of it. The guides of trn2 and
trn3 do not repeat it; it is taken to hold there too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ..machine import Machine
from ..tiles.tile import Layout


def is_far_apart(machine: Machine, layout: Layout) -> bool:
    """Whether neighbours along the innermost free axis lie so far apart that accesses are half as fast."""
    axes = zip(range(len(layout.shape)), layout.shape, layout.byte_strides, strict=True)
    free = [abs(stride) for axis, size, stride in axes if axis != layout.partition_axis and size > 1]
    return bool(free) and free[-1] >= machine["far_stride_bytes"]


def slowed(machine: Machine, operands: Mapping[str, Any], steps: Sequence[Any]) -> tuple[Any, ...]:
    """Steps of a form, those that stream elements no faster than its operands can be read and written.

    An instruction that takes two cycles an element anyway is as fast as before. A stationary tile is read
    while the multiplication before it runs: one of float32 then takes twice as long to load. Fitted
    rows show it of float32 alone; of two bytes an element only rows that judge tell, which are not slower.
    """
    stationary = operands.get("stationary")
    if stationary is not None and stationary.itemsize > 2 and is_far_apart(machine, stationary):
        slower = machine["far_weight_slowdown"]
        steps = [
            replace(
                step,
                hidden_ns=slower * step.hidden_ns,
                latency_ns=step.latency_ns + (slower - 1) * step.hidden_ns,
            )
            for step in steps
        ]
    on_chip = [
        layout
        for name, layout in operands.items()
        if name != "stationary" and isinstance(layout, Layout) and layout.is_on_chip
    ]
    far = max((layout.free_size for layout in on_chip if is_far_apart(machine, layout)), default=0)
    if not far:
        return tuple(steps)
    first = next((step for step in steps if step.busy_ns), None)
    return tuple(
        replace(step, busy_ns=max(step.busy_ns, _least_ns(machine, step, far)))
        # what follows on another engine than TensorE reads accumulators
        if step is first or (step.engine == "tensor" and step.busy_ns) else step
        for step in steps
    )  # fmt: skip


def _least_ns(machine: Machine, step: Any, elements: int) -> float:
    """How long a step over so many elements is occupied at least if each takes two cycles."""
    match step.engine:
        case "vector" | "scalar":
            streaming = 2 * elements / machine[f"{step.engine}_clock_ghz"]
            return streaming + machine[f"{step.engine}_overhead_ns"]
        case "gpsimd":
            return (2 * elements + machine["gpsimd_overhead_cycles"]) / machine["gpsimd_clock_ghz"]
        case "tensor":
            return (2 * elements + machine["matmul_overhead_cycles"]) / machine["tensor_clock_ghz"]
    return 0.0
