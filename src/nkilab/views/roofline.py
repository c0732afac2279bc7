"""The roofline: how fast a kernel may multiply for the bytes it moves, and how fast it does."""

from __future__ import annotations

from msgspec import Struct

from ..machine import Machine
from .summary import Summary


class Roofline(Struct, frozen=True):
    """Roofs of the chip and the point of the kernel."""

    intensity: float  # FLOP per byte that crosses the HBM interface; 0 without multiplications
    achieved: float  # FLOP per second over the whole time
    peak: dict[str, float]  # FLOP per second of TensorE by type of its operands
    # bytes per second by what gives them: "DMA", and "HBM stack" of the vendor's metrics
    bandwidth: dict[str, float]


def roofline_of(machine: Machine, summary: Summary) -> Roofline:
    """Roofs and point of a run."""
    peak = machine["peak_tflops_bf16"] * 1e12
    moved = summary["hbm_read_bytes"] + summary["hbm_write_bytes"]
    moving = min(machine["dma_engines"] * machine["dma_bytes_per_ns"], machine["hbm_bytes_per_ns"])
    return Roofline(
        summary["model_flops_once"] / moved if moved else 0.0,
        summary["model_flops_once"] / (summary["total_time"] * 1e-6),
        {"bfloat16": peak, "float32": peak / machine["fp32_passes"]},
        {"DMA": moving * 1e9, "HBM stack": machine["hbm_stack_bytes_per_ns"] * 1e9},
    )
