"""What a chip's row is made of: values that carry their source and how sure they are."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, Literal

from msgspec import Struct, defstruct
from msgspec.structs import replace

Certainty = Literal["documented", "measured", "fitted", "assumed"]


class Fact(Struct, frozen=True):
    """A number about a chip."""

    value: float  # in the unit that the field's name carries
    certainty: Certainty  # documented (AWS says so), measured (published measurement), fitted, or assumed
    source: str  # page and heading, or where the measurement was published


def documented(value: float, source: str) -> Fact:
    """A value that AWS documents."""
    return Fact(value, "documented", source)


def measured(value: float, source: str) -> Fact:
    """A value that follows from a published measurement."""
    return Fact(value, "measured", source)


def fitted(value: float, source: str) -> Fact:
    """A value chosen so that published measurements come out; `source` says which."""
    return Fact(value, "fitted", source)


def assumed(value: float, source: str) -> Fact:
    """A value nobody published; `source` says why this one was taken."""
    return Fact(value, "assumed", source)


# The numbers of a chip, in the order in which they are shown.
CONSTANTS = (
    "cores_per_logical_core", "partitions", "sbuf_bytes_per_partition", "sbuf_physical_bytes_per_partition",
    "psum_banks", "psum_bank_bytes", "psum_shared_bytes", "stationary_free_max", "moving_free_max",
    "moving_free_max_two_bytes", "vector_transpose_max", "bn_stats_free_max", "max8_free_max",
    "tensor_clock_ghz", "vector_clock_ghz", "scalar_clock_ghz", "gpsimd_clock_ghz",
    "matmul_interval_cycles", "matmul_overhead_cycles", "fp32_passes", "weight_columns",
    "fast_weight_columns", "fp32_weight_columns", "weight_load_ns", "tensor_latency_ns",
    "tensor_warm_up_ns", "tensor_sustained_rate", "tensor_cold_rate", "vector_overhead_ns",
    "scalar_overhead_ns", "vector_duration_ns", "scalar_duration_ns", "scalar_function_ns",
    "vector_operand_ns", "gpsimd_overhead_cycles", "activation_table_load_ns", "vector_mode_speedup",
    "vector_fp32_lanes", "reciprocal_cycles", "far_stride_bytes", "scalar_engine_first", "shared_ports",
    "accumulator_read_cycles", "semaphore_ns", "dma_done_ns", "dma_engines", "dma_rings", "dma_start_ns",
    "dma_static_start_ns", "dma_spread_ns", "dma_issue_ns", "dma_descriptor_issue_ns",
    "dma_issue_by_partition", "dma_static_issue_ns", "dma_bytes_per_ns", "dma_run_ns", "dma_run_min_ns",
    "dma_group_ns", "dma_group_bytes", "dma_semaphore_write_ns", "dma_issuing_units", "dma_packet_bytes",
    "hbm_bytes_per_ns", "hbm_stack_bytes_per_ns", "hbm_stacks", "cores_per_chip", "chips_per_node",
    "neuronlink_bytes_per_ns", "collective_hop_ns", "network_bytes_per_ns", "network_hop_ns", "torus",
    "collective_mesh_bytes", "collective_rdh_bytes", "collective_ring_ranks", "collective_flat_ring_bytes",
    "collective_channel_ns", "collective_peer_engines", "collective_launch_ns",
    "redundant_load_window_bytes", "tile_buffers", "spare_block_buffers", "spill_rest_rows",
    "scratch_phases", "block_tiles", "spare_fills", "loop_invariants", "repeats_in_psum", "engine_choice",
    "engine_choice_as_written", "static_descriptors", "resident_loads", "late_loads", "block_first_part",
    "far_weight_slowdown", "engines_in_order", "kernel_start_ns", "kernel_end_ns", "profile_extra_ns",
    "peak_tflops_bf16",
)  # fmt: skip
_Facts = defstruct("_Facts", [(name, Fact) for name in CONSTANTS], frozen=True, kw_only=True)


class Machine(_Facts, frozen=True, kw_only=True):  # type: ignore[call-arg, misc, valid-type]
    """One NeuronCore of a chip: its name, generation and every number about it, each a `Fact`.

    `calibration` is the name of the file that constants were taken from, "" for the chip as it is known.
    """

    name: str
    generation: int
    calibration: str = ""

    def __getitem__(self, constant: str) -> float:
        """The bare value of a fact, by name."""
        fact = getattr(self, constant)
        return fact.value if isinstance(fact, Fact) else fact

    def limit(self, constant: str) -> int:
        """The value of a size limit, as an integer."""
        return int(self[constant])

    @property
    def label(self) -> str:
        """The name that results show: "trn2", or "trn2 (mine.yaml)"."""
        return f"{self.name} ({self.calibration})" if self.calibration else self.name

    def sbuf_note(self, room: int) -> str:
        """What the chip has in a partition besides these bytes, if they are all that kernels have of it."""
        own, whole = self.limit("sbuf_bytes_per_partition"), self.limit("sbuf_physical_bytes_per_partition")
        both = f" ({own / 1024:.4g} KiB; the compiler keeps the rest of the chip's {whole / 1024:.4g})"
        return both if room == own < whole else ""

    @property
    def psum_bytes_per_partition(self) -> int:
        """Bytes of PSUM each partition holds, over all banks."""
        return self.limit("psum_banks") * self.limit("psum_bank_bytes")

    def with_constants(
        self, values: Mapping[str, float], source: str, name: str = "", certainty: Certainty = "fitted"
    ) -> Machine:
        """This chip with other values of constants.

        Args:
            values: by constant, in the unit that its name carries.
            source: where they come from.
            name: how results call the chip, behind its own name; as before if "".
            certainty: how sure they are.
        """
        facts: Any = {constant: Fact(value, certainty, source) for constant, value in values.items()}
        return replace(self, calibration=name or self.calibration, **facts)

    def needs(self, constant: str, value: object) -> str:
        """What a value must be to stand for a constant; "" if it may: rates divide, and counts are whole."""
        counts = isinstance(self[constant], int) and not constant.endswith(("_cycles", "_speedup"))
        least = (
            "of at least 0"
            if constant in MAY_BE_ZERO or (constant.endswith(_TIMES) and not constant.endswith("_per_ns"))
            else "above 0"
        )
        words = f"a {'whole ' if counts else ''}number {least}"
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            return words
        is_enough = value >= 0 if least.startswith("of") else value > 0
        return "" if is_enough and not (counts and value != int(value)) else words

    def facts(self) -> dict[str, Fact]:
        """Every fact of this row by name."""
        return {name: getattr(self, name) for name in CONSTANTS}


# Constants that are 0 where there is nothing of what they tell, besides times.
MAY_BE_ZERO = (
    "scalar_engine_first", "shared_ports", "torus", "dma_issue_by_partition", "scratch_phases",
    "spare_block_buffers", "spill_rest_rows", "redundant_load_window_bytes",
    "block_tiles", "spare_fills", "loop_invariants", "repeats_in_psum", "engine_choice",
    "engine_choice_as_written", "static_descriptors", "resident_loads", "late_loads", "block_first_part",
    "engines_in_order",
    "collective_mesh_bytes", "collective_rdh_bytes", "collective_ring_ranks", "collective_flat_ring_bytes",
)  # fmt: skip
_TIMES = ("_ns", "_cycles")
# What is fitted: times and rates, which change when things happen and nothing else. Sizes, counts and clocks
# are no matter of measurement.
FREE = (
    "tensor_latency_ns", "matmul_overhead_cycles", "vector_overhead_ns", "vector_duration_ns",
    "scalar_overhead_ns", "scalar_duration_ns", "activation_table_load_ns", "semaphore_ns", "dma_done_ns",
    "dma_start_ns", "dma_spread_ns", "dma_issue_ns", "dma_descriptor_issue_ns", "dma_static_issue_ns",
    "dma_bytes_per_ns", "dma_run_ns", "dma_group_ns", "hbm_bytes_per_ns", "kernel_start_ns", "kernel_end_ns",
    "profile_extra_ns",
)  # fmt: skip
# What `Machine.__getitem__` may meet besides facts.
Row = dict[str, Any]
