"""Numbers typed from the manuals, never from the code: what chips allow and what instructions cost.

A row names a constant of a chip, or a use of an instruction, the number, and where it was read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

GUIDE = {
    "trn1": "Trainium/Inferentia2 architecture guide for NKI",
    "trn2": "Trainium2 architecture guide for NKI",
    "trn3": "Trainium3 architecture guide for NKI",
}
ENGINES_TABLE = "compute engines table"
COSTS = "NKI API, SDK 2.26.1, engine cycle tables"
TILE_SIZE = "nki.language.tile_size"


@dataclass(frozen=True)
class ChipFact:
    """A constant of a chip as a manual prints it."""

    chip: str
    constant: str
    value: float
    source: str


@dataclass(frozen=True)
class CostFact:
    """What one use of an instruction takes.

    Args:
        chip: name of the row.
        instruction: name as called.
        changes: to the smallest use.
        cycles: per step, without what the engine adds to every instruction.
        clock_ghz: of that engine.
        overhead_ns: what the engine adds to each step.
        source: page and heading.
    """

    chip: str
    instruction: str
    changes: dict[str, Any]
    cycles: tuple[float, ...]
    clock_ghz: float
    source: str
    overhead_ns: float = 0.0

    @property
    def busy_ns(self) -> list[float]:
        """Per step how long it occupies the engine: with the overhead at least MIN_II, 64 cycles."""
        least = 64 / self.clock_ghz if self.overhead_ns else 0.0
        return [max(cycles / self.clock_ghz + self.overhead_ns, least) for cycles in self.cycles]


def _for_each(constant: str, source: str, **values: float) -> list[ChipFact]:
    return [ChipFact(chip, constant, value, f"{GUIDE[chip]}, {source}") for chip, value in values.items()]


CHIP_FACTS = [
    # nki.isa.sendrecv: NeuronCore-v3 or newer; logical core guide: 1 or 2 cores
    *_for_each("cores_per_logical_core", "logical cores", trn1=1, trn2=2, trn3=2),
    *_for_each("partitions", "SBUF", trn1=128, trn2=128, trn3=128),
    # 192 KiB - 16 KiB; 224 KiB - 16 KiB - 8; 256 KiB - 16 KiB - 8
    *_for_each("sbuf_bytes_per_partition", TILE_SIZE, trn1=180224, trn2=212984, trn3=245752),
    *_for_each("psum_banks", "PSUM, 8 banks", trn1=8, trn2=8, trn3=8),
    *_for_each("psum_bank_bytes", "PSUM, 2 KiB per bank and partition", trn1=2048, trn2=2048, trn3=2048),
    *_for_each("stationary_free_max", "nc_matmul, tile size", trn1=128, trn2=128, trn3=128),
    *_for_each("moving_free_max", "nc_matmul, tile size", trn1=512, trn2=512, trn3=4096),
    *_for_each(
        "moving_free_max_two_bytes", "nc_matmul, tile size; bfloat16 dst", trn1=512, trn2=512, trn3=8192
    ),
    *_for_each("vector_transpose_max", "nc_transpose, Vector Engine", trn1=32, trn2=32, trn3=32),
    *_for_each("bn_stats_free_max", "tile_size.bn_stats_fmax", trn1=512, trn2=512, trn3=512),
    *_for_each("max8_free_max", "max8, at most 16,384 elements", trn1=16384, trn2=16384, trn3=16384),
    *_for_each("tensor_clock_ghz", ENGINES_TABLE, trn1=2.8, trn2=2.4, trn3=2.4),
    *_for_each("vector_clock_ghz", ENGINES_TABLE, trn1=1.12, trn2=0.96, trn3=1.2),
    *_for_each("scalar_clock_ghz", ENGINES_TABLE, trn1=1.4, trn2=1.2, trn3=1.2),
    *_for_each("gpsimd_clock_ghz", ENGINES_TABLE, trn1=1.4, trn2=1.2, trn3=1.2),
    *_for_each("matmul_interval_cycles", "MATMUL initiation interval", trn1=64, trn2=64, trn3=64),
    *_for_each("fp32_passes", "a float32 matmul is four passes", trn1=4, trn2=4, trn3=4),
    *_for_each("fast_weight_columns", "fast LoadStationary: up to 4 times", trn1=4, trn2=4, trn3=4),
    *_for_each("vector_mode_speedup", "DVE performance modes", trn1=1, trn2=4, trn3=4),
    *_for_each("vector_fp32_lanes", "128 or 256 elements per cycle", trn1=1, trn2=2, trn3=2),
    *_for_each("dma_engines", "16 DMA engines per core", trn1=16, trn2=16, trn3=16),
    *_for_each("peak_tflops_bf16", "128 * 128 * 2 * clock, in 1e12", trn1=91.75, trn2=78.6432, trn3=78.6432),
    ChipFact("trn1", "hbm_bytes_per_ns", 410, "trn1 guide, 820 GB/s per chip of two cores"),
    ChipFact("trn2", "hbm_bytes_per_ns", 435, "profiler, dma_ddr_bandwidth of one core"),
    ChipFact("trn3", "dma_bytes_per_ns", 33, "DMA bandwidth guide, peak per engine"),
    ChipFact(
        "trn1",
        "dma_start_ns",
        1300 - 58 - 100,
        "DMA bandwidth guide, semaphore to start; signal and issue apart",
    ),
    ChipFact("trn2", "activation_table_load_ns", 1323, "DMA overview, figure of an exp after a cold start"),
    ChipFact("trn2", "semaphore_ns", 58, "kernel optimization guide, figure of a semaphore wait"),
    ChipFact("trn2", "dma_issue_ns", 486, "course, 25600 iterations of 3 one-element transfers in 37.3 ms"),
]

_BF16 = {"stationary.dtype": "bfloat16", "moving.dtype": "bfloat16"}
_FP8 = {"stationary.dtype": "float8_e4m3", "moving.dtype": "float8_e4m3"}
_FULL = {"K": 128, "M": 128, "N": 512}
_HALVES = {"data1.dtype": "bfloat16", "data2.dtype": "bfloat16", "dst.dtype": "bfloat16"}
_COPY16 = {"src.dtype": "bfloat16", "dst.dtype": "bfloat16"}
_REDUCE16 = {"data.dtype": "bfloat16", "dst.dtype": "bfloat16"}
# hand: the constants of the rows that are measured, not documented
_DVE1, _DVE2, _ACT1, _ACT2 = 60 / 1.12, 40.0, 72.0, 115.0

MATMUL_FACTS = [
    CostFact("trn2", "nc_matmul", {**_FULL, **_BF16}, (512,), 2.4, "trn2 guide: max(N, 64), 213.3 ns"),
    CostFact("trn1", "nc_matmul", {**_FULL, **_BF16}, (512,), 2.8, "trn1 guide: max(N, 64)"),
    CostFact("trn2", "nc_matmul", {**_FULL, **_BF16, "N": 1}, (64,), 2.4, "performance guide: short moving"),
    CostFact("trn2", "nc_matmul", _FULL, (1024, 1024), 2.4, "2.26 costs: times 4; LOW and HIGH"),
    CostFact("trn1", "nc_matmul", _FULL, (1024, 1024), 2.8, "2.26 costs: times 4"),
    CostFact(
        "trn2", "nc_matmul", {**_FULL, "is_moving_onezero": True}, (1024,), 2.4,
        "nc_matmul, is_moving_onezero: 2x better performance in float32",
    ),
    CostFact(
        "trn2", "nc_matmul", {**_FULL, **_BF16, "is_stationary_onezero": True}, (512,), 2.4,
        "nc_matmul, is_stationary_onezero: no impact for other types",
    ),
    CostFact(
        "trn2", "nc_matmul", {**_FULL, "stationary.dtype": "tfloat32", "moving.dtype": "tfloat32"},
        (512,), 2.4, "trn2 guide: tf32 runs at the rate of bf16",
    ),
    CostFact("trn2", "nc_matmul", {**_FULL, **_FP8}, (512,), 2.4, "FP8 without double_row is no faster"),
    CostFact(
        "trn2", "nc_matmul",
        {**_FULL, **_FP8, "perf_mode": "double_row", "stationary.shape": (128, 2, 128),
         "moving.shape": (128, 2, 512)},
        (512,), 2.4, "trn2 guide: a contraction of 256 in the time of 128",
    ),
    CostFact(
        "trn3", "nc_matmul_mx", _FULL, (512,), 2.4, "trn3 guide: a contraction of 512 in the time of 128",
    ),
    CostFact("trn3", "nc_matmul_mx", {"N": 2}, (64,), 2.4, "trn3 guide: the interval of any product"),
    CostFact("trn2", "nc_transpose", {"P": 128, "F": 128}, (128,), 2.4, "2.26 costs: max(P, min(64, F))"),
    CostFact("trn2", "nc_transpose", {"P": 32, "F": 128}, (64,), 2.4, "2.26 costs: max(P, min(64, F))"),
    CostFact("trn1", "nc_transpose", {"P": 128, "F": 128}, (128,), 2.8, "2.26 costs: max(P, min(64, F))"),
]  # fmt: skip

COST_FACTS = [
    CostFact(
        "trn3", "quantize_mx", {"P": 128, "F": 2048, "G": 512}, (512,), 1.2,
        "trn3 guide: four elements per partition and cycle", 32.0,
    ),
    CostFact("trn1", "iota", {"F": 512, "pattern": [[1, 512]]}, (662,), 1.4, COSTS + ": 150 + N"),
    CostFact("trn2", "iota", {"F": 512, "pattern": [[1, 512]]}, (662,), 1.2, COSTS + ": 150 + N"),
    CostFact("trn2", "iota", {}, (166,), 1.2, COSTS + ": 150 + N, also below 64"),
    CostFact("trn1", "tensor_copy", {"F": 512}, (512,), 1.12, COSTS + ": max(64, N)", _DVE1),
    CostFact("trn1", "tensor_copy", {"F": 1}, (1,), 1.12, COSTS + ": max(64, N)", _DVE1),
    CostFact("trn1", "tensor_copy", {"F": 512, **_COPY16}, (512,), 1.12, "no modes on trn1", _DVE1),
    CostFact("trn2", "tensor_copy", {"F": 512}, (256,), 0.96, "trn2 guide: 256 elements per cycle", _DVE2),
    CostFact("trn2", "tensor_copy", {"F": 512, **_COPY16}, (128,), 0.96, "trn2 guide: 4x mode", _DVE2),
    CostFact("trn3", "tensor_copy", {"F": 512, **_COPY16}, (128,), 1.2, "trn3 guide: 4x mode", 32.0),
    CostFact(
        "trn2", "tensor_copy", {"F": 512, **_COPY16, "src.memory": "psum"}, (256,), 0.96,
        "trn2 guide: 2x mode, one side in PSUM and contiguous", _DVE2,
    ),
    CostFact(
        "trn2", "tensor_copy", {"F": 512, "src.memory": "psum"}, (512,), 0.96,
        "trn2 guide: no mode for float32 out of PSUM", _DVE2,
    ),
    CostFact("trn2", "tensor_copy", {"F": 512, "engine": "scalar"}, (512,), 1.2, COSTS, _ACT2),
    CostFact("trn2", "tensor_copy", {"F": 512, "engine": "gpsimd"}, (662,), 1.2, COSTS),
    CostFact("trn2", "tensor_scalar", {"F": 512, **_REDUCE16}, (128,), 0.96, "trn2 guide: 4x mode", _DVE2),
    CostFact("trn1", "tensor_tensor", {"F": 512}, (1024,), 1.12, COSTS + ": 2N", _DVE1),
    CostFact(
        "trn1", "tensor_tensor", {"F": 512, "data1.memory": "psum"}, (512,), 1.12,
        COSTS + ": N, one input in PSUM", _DVE1,
    ),
    CostFact(
        "trn1", "tensor_tensor", {"F": 512, "dst.memory": "psum"}, (1024,), 1.12,
        COSTS + ": 2N, both inputs in SBUF wherever the result goes", _DVE1,
    ),
    CostFact("trn1", "tensor_tensor", {"F": 512, **_HALVES}, (512,), 1.12, COSTS + ": N, bf16 add", _DVE1),
    CostFact(
        "trn1", "tensor_tensor", {"F": 512, **_HALVES, "op": "maximum"}, (1024,), 1.12,
        COSTS + ": 2N, bf16 is fast for add, subtract and multiply alone", _DVE1,
    ),
    CostFact("trn2", "tensor_tensor", {"F": 512}, (512,), 0.96, "measured 1.05 cycles per element", _DVE2),
    CostFact("trn2", "tensor_tensor", {"F": 512, **_HALVES}, (256,), 0.96, "trn2 guide: 2x mode", _DVE2),
    CostFact(
        "trn2", "tensor_tensor",
        {"F": 512, "data1.dtype": "int32", "data2.dtype": "int32", "dst.dtype": "int32"}, (662,), 1.2,
        COSTS + ": integers run on GpSimd",
    ),
    CostFact("trn1", "scalar_tensor_tensor", {"F": 512}, (1024,), 1.12, COSTS + ": 2N", _DVE1),
    CostFact(
        "trn1", "scalar_tensor_tensor",
        {"F": 512, "op0": "subtract", "op1": "multiply", "data.dtype": "bfloat16",
         "operand1.dtype": "bfloat16"},
        (512,), 1.12, COSTS + ": N for bf16 subtract and multiply", _DVE1,
    ),
    CostFact("trn1", "tensor_reduce", {"F": 512}, (512,), 1.12, COSTS + ": N", _DVE1),
    CostFact("trn1", "tensor_reduce", {"F": 512, **_REDUCE16}, (256,), 1.12, COSTS + ": N/2 in bf16", _DVE1),
    CostFact(
        "trn1", "tensor_reduce", {"F": 512, **_REDUCE16, "op": "minimum"}, (512,), 1.12,
        COSTS + ": N / 2 for add and max alone", _DVE1,
    ),
    # COSTS says max(64, 8 N); profiles of two kernels of NKIBench have 2.4
    CostFact("trn1", "reciprocal", {"F": 512}, (1228.8,), 1.12, "NKIBench, silu and AdamW", _DVE1),
    CostFact("trn1", "memset", {"F": 512}, (512,), 1.12, COSTS + ": max(64, N)", _DVE1),
    CostFact("trn1", "activation", {"F": 512}, (512,), 1.4, COSTS + ": max(64, N)", _ACT1),
    CostFact("trn2", "activation", {"F": 512}, (512,), 1.2, COSTS + ": max(64, N)", _ACT2),
    CostFact(
        "trn2", "nc_transpose", {"P": 32, "F": 32, "engine": "vector"}, (32,), 0.96,
        COSTS + ": max(64, N)", _DVE2,
    ),
]  # fmt: skip

# hand: the overhead of VectorE on top, and MIN_II, 64, at least
VECTOR_FACTS = [
    CostFact("trn1", "tensor_copy_predicated", {"F": 512}, (1024,), 1.12, COSTS + ": 2N in SBUF", _DVE1),
    CostFact(
        "trn1", "tensor_copy_predicated", {"F": 512, "predicate.memory": "psum"}, (512,), 1.12,
        COSTS + ": N, predicate in PSUM", _DVE1,
    ),
    CostFact(
        "trn1", "tensor_copy_predicated", {"F": 512, "src.memory": "psum"}, (512,), 1.12,
        COSTS + ": N, src in PSUM", _DVE1,
    ),
    CostFact("trn2", "range_select", {"F": 512}, (512,), 0.96, COSTS + ": max(64, N)", _DVE2),
    CostFact("trn1", "tensor_tensor_scan", {"F": 512}, (1024,), 1.12, COSTS + ": max(64, 2N)", _DVE1),
    CostFact("trn1", "tensor_tensor_scan", {"F": 16}, (32,), 1.12, COSTS + ": max(64, 2N)", _DVE1),
    CostFact("trn1", "tensor_scalar_reduce", {"F": 512}, (512,), 1.12, COSTS + ": max(64, N)", _DVE1),
    CostFact("trn1", "bn_stats", {"F": 512}, (512,), 1.12, COSTS + ": max(64, N)", _DVE1),
    CostFact("trn1", "bn_aggr", {"F": 60}, (260,), 1.12, COSTS + ": max(64, 13 N / 3)", _DVE1),
    CostFact("trn1", "bn_aggr", {"F": 12}, (52,), 1.12, COSTS + ": max(64, 13 N / 3)", _DVE1),
    CostFact("trn1", "max8", {"F": 512}, (512,), 1.12, COSTS + ": N", _DVE1),
    CostFact("trn2", "nc_find_index8", {"F": 512}, (512,), 0.96, COSTS + ": N", _DVE2),
    CostFact("trn2", "nc_match_replace8", {"F": 512}, (512,), 0.96, COSTS + ": N on the older pages", _DVE2),
    CostFact("trn2", "nc_match_replace8", {"F": 8}, (8,), 0.96, COSTS + ": MIN_II", _DVE2),
    CostFact("trn2", "nc_stream_shuffle", {"F": 512}, (512,), 0.96, COSTS + ": max(64, N)", _DVE2),
]  # fmt: skip
