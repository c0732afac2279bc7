"""The table of metrics: names as in Neuron Explorer, unit, definition."""

from __future__ import annotations

from msgspec import Struct


class Metric(Struct, frozen=True):
    """A number about one run of a kernel."""

    name: str  # as in Neuron Explorer's profile schema where it has one
    unit: str  # "us", "bytes", "count", "percent", "flops" or "ratio"
    definition: str  # one sentence


COMPUTE_ENGINES = ("tensor", "vector", "scalar", "gpsimd")


def _of_engine(engine: str) -> tuple[Metric, ...]:
    return (
        Metric(
            f"{engine}_engine_active_time", "us", "time with at least one instruction of the engine under way"
        ),
        Metric(f"{engine}_engine_active_time_percent", "percent", "active time of the engine / total_time"),
        Metric(
            f"{engine}_engine_instruction_time", "us", "sum of instruction durations; overlaps count twice"
        ),
        Metric(f"{engine}_engine_instruction_count", "count", "instructions of the engine"),
    )


def _on_chip() -> tuple[Metric, ...]:
    """As the vendor counts, and whole."""
    sides = [("sbuf", "read"), ("sbuf", "write"), ("psum", "read"), ("psum", "write")]
    vendors = "by transfers, and / 128 by engines, whose instructions read their first operand"
    return (
        *(Metric(f"{m}_{s}_bytes", "bytes", f"{s} bytes of {m.upper()} {vendors}") for m, s in sides),
        *(
            Metric(f"{m}_{s}_whole_bytes", "bytes", f"bytes of all tensors that rows {s} in {m.upper()}")
            for m, s in sides
        ),
    )


_ROWS = (
    Metric("total_time", "us", "from the start of the kernel to its end, fixed costs included"),
    Metric("window_time", "us", "from the first to the last byte that a DMA engine moves"),
    *(metric for engine in COMPUTE_ENGINES for metric in _of_engine(engine)),
    Metric("matmul_instruction_count", "count", "MATMUL instructions; a float32 multiplication is two"),
    Metric("activate_instruction_count", "count", "ACTIVATE instructions"),
    Metric("dma_active_time", "us", "time with at least one transfer moving bytes"),
    Metric("dma_active_time_percent", "percent", "dma_active_time / total_time"),
    Metric("dma_transfer_time", "us", "sum of the durations of transfers, from first to last byte"),
    Metric("dma_transfer_count", "count", "transfers, spills included"),
    Metric("dma_transfer_total_bytes", "bytes", "bytes moved by transfers"),
    Metric("dma_transfer_average_bytes", "bytes", "dma_transfer_total_bytes / dma_transfer_count"),
    Metric("dma_packet_time", "us", "time of all DMA engines together"),
    Metric("dma_queue_count", "count", "DMA queues used"),
    Metric("hbm_read_bytes", "bytes", "bytes that transfers read from HBM, spill reloads included"),
    Metric("hbm_write_bytes", "bytes", "bytes that transfers write to HBM, spill saves included"),
    *_on_chip(),
    Metric("spill_save_bytes", "bytes", "bytes saved to HBM because SBUF does not hold everything"),
    Metric("spill_reload_bytes", "bytes", "bytes read back from there"),
    Metric(
        "hardware_flops",
        "flops",
        "2 * rows * columns * moving elements of every MATMUL instruction; a float32 product is two",
    ),
    Metric("transpose_flops", "flops", "the part of hardware_flops that only transposes"),
    Metric("model_flops", "flops", "hardware_flops - transpose_flops"),
    Metric(
        "adjusted_hardware_flops",
        "flops",
        "hardware_flops_once by time against bfloat16: float32 4, float8 a half (trn1: 1), MX a quarter",
    ),
    Metric("adjusted_transpose_flops", "flops", "the part of adjusted_hardware_flops that only transposes"),
    Metric("hardware_flops_once", "flops", "hardware_flops where a float32 product counts once"),
    Metric("model_flops_once", "flops", "the part of hardware_flops_once that does not only transpose"),
    Metric("mfu_estimated_percent", "percent", "model_flops / (peak bfloat16 rate * total_time)"),
    Metric(
        "mfu_max_achievable_estimated_percent",
        "percent",
        "mm_arithmetic_intensity / peak_flops_bandwidth_ratio, at most 100",
    ),
    Metric("hfu_estimated_percent", "percent", "hardware_flops / (peak bfloat16 rate * total_time)"),
    Metric("mfu_once_percent", "percent", "model_flops_once / (peak bfloat16 rate * total_time)"),
    Metric("hfu_once_percent", "percent", "hardware_flops_once / (peak bfloat16 rate * total_time)"),
    Metric("mbu_estimated_percent", "percent", "HBM bytes / total_time / peak bandwidth of one HBM stack"),
    Metric("mm_arithmetic_intensity", "ratio", "model_flops / (hbm_read_bytes + hbm_write_bytes)"),
    Metric("peak_flops_bandwidth_ratio", "ratio", "peak bfloat16 rate / peak bandwidth of one HBM stack"),
    Metric("sbuf_peak_bytes", "bytes", "most bytes per partition of SBUF that are live at one instruction"),
    Metric("psum_peak_banks", "count", "most banks of PSUM that are live at one instruction"),
    Metric("instruction_count", "count", "rows of the program: calls of nki.isa"),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ROWS}
