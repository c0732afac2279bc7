"""Counters of the vendor's profiler as measured quantities of the ledger."""

from __future__ import annotations

from collections.abc import Mapping

# Counters that are quantities under the profiler's own name.
SAME_NAMES = (
    "spill_save_bytes", "spill_reload_bytes", "sbuf_read_bytes", "sbuf_write_bytes", "psum_read_bytes",
    "psum_write_bytes", "hardware_flops", "transpose_flops",
)  # fmt: skip
_ENGINES = ("tensor", "vector", "scalar", "gpsimd")
# The profiler's name of each quantity that it measures.
COUNTERS = {
    "profile_us": "total_time",
    **{f"{engine}_active_us": f"{engine}_engine_active_time" for engine in _ENGINES},
    "dma_active_us": "dma_active_time",
    "dma_transfers": "dma_transfer_count",
    "dma_bytes": "dma_transfer_total_bytes",
    **{name: name for name in ("hbm_read_bytes", "hbm_write_bytes", *SAME_NAMES)},
    "matmuls": "matmul_instruction_count",
}


def quantities_in(metrics: Mapping[str, float]) -> dict[str, float]:
    """What a profile measures, by quantity; what it says is nothing tells nothing.

    Args:
        metrics: of a profile, by the profiler's names, in microseconds, bytes and counts.
    """
    return {quantity: metrics[name] for quantity, name in COUNTERS.items() if metrics.get(name)}
