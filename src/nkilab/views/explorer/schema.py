"""The tables of the vendor's profiles that nkilab fills: names, types and units of the public schema, 7.4.0.

A field that the schema requires is there in every row; one that no prediction can fill (identifiers of the
vendor's compiler, checksums) is null.

Source: Neuron Explorer, "Profile parquet schema reference"; meanings in own words.
"""

from __future__ import annotations

from msgspec import Struct

SCHEMA_VERSION = "7.4.0"
INT, INT32, FLOAT, TEXT, FLAG = "int64", "int32", "double", "string", "bool"
NS, BYTES, RATE = "nanoseconds", "bytes", "bytes_per_second"


class Field(Struct, frozen=True):
    """A column of a table."""

    # name, type, unit: as in the public schema; "" for no unit
    name: str
    type: str
    unit: str
    is_required: bool  # whether the schema says that it is always there
    meaning: str  # one phrase


def _required(name: str, type_: str, unit: str, meaning: str) -> Field:
    return Field(name, type_, unit, True, meaning)


def _optional(name: str, type_: str, unit: str, meaning: str) -> Field:
    return Field(name, type_, unit, False, meaning)


_CORE = _optional("pcore_idx", INT, "", "physical core within the logical one")
_SPAN = (
    _required("start_ts", INT, NS, "start"),
    _required("end_ts", INT, NS, "end"),
    _required("duration_ns", INT, NS, "end less start"),
)


def _usage(what: str, parts: tuple[str, ...]) -> tuple[Field, ...]:
    return (
        _required("timestamp", INT, NS, "from when on"),
        _optional("avg_util_percent", FLOAT, "percent", f"fullness of {what} on average"),
        *(_optional(f"{part}_util_percent", FLOAT, "percent", f"fullness of {part}") for part in parts),
        _CORE,
    )


def _rate(what: str) -> tuple[Field, ...]:
    return (
        _required("timestamp", INT, NS, "from when on"),
        _required("current_throughput", FLOAT, RATE, f"rate of {what} at this moment"),
        _required("total_transfer_bytes", INT, BYTES, f"bytes of {what} until this moment"),
        _CORE,
    )


_INSTRUCTION = (
    *_SPAN,
    _required("engine", TEXT, "", "tensor, vector, scalar, gpsimd or sync"),
    _optional("timeline_track", TEXT, "", "lane: Tensor for weights, TensorMatrix for multiplications, ..."),
    _CORE,
    _required("opcode", TEXT, "", "MATMUL, LDWEIGHTS, ..."),
    _required("operands", TEXT, "", "tiles with their layouts, results first"),
    _required("id", INT, "", "number of the event"),
    _required("pc", INT, "", "number within the engine"),
    _required("bir_id", TEXT, "", "of the vendor's compiler; null"),
    _optional("evt_wait_time_ns", INT, NS, "how long the engine stood still before"),
    _optional("nki_source_location", TEXT, "", "file.py:41"),
    _optional("sbuf_read_bytes", INT, "", "of operands in SBUF"),
    _optional("sbuf_write_bytes", INT, "", "of results in SBUF"),
    _optional("psum_read_bytes", INT, "", "of operands in PSUM"),
    _optional("psum_write_bytes", INT, "", "of results in PSUM"),
    _optional("raw_flops", INT, "", "2 per multiply and add; each pass of a float32 product has half"),
    _optional("adjusted_flops", INT, "", "the same weighted by the time against bfloat16"),
    _optional("flops_transpose", INT, "", "raw_flops of transposes"),
)

_TRANSFER = (
    *_SPAN,
    _required("id", INT, "", "number of the event"),
    _CORE,
    _required("block_id", INT32, "", "number of the transfer within its queue"),
    _required("queue_idx", INT, "", "number of the queue"),
    _required("queue_name", TEXT, "", "lane"),
    _optional("queue_type", TEXT, "", "data where descriptors are written beforehand, else hardware_dynamic"),
    _required("op", TEXT, "", "read, write or copy"),
    _required("variable", TEXT, "", "the tensor in HBM, else the tile"),
    _required("read_bytes", INT, BYTES, "bytes read"),
    _required("write_bytes", INT, BYTES, "bytes written"),
    _required("transfer_bytes", INT, BYTES, "bytes moved"),
    _required("throughput", FLOAT, RATE, "bytes over duration"),
    _required("source", TEXT, "", "[SB], [INPUT], [OUTPUT] or [DRAM]"),
    _required("dest", TEXT, "", "likewise"),
    _required("semaphore_id", TEXT, "", "of the vendor's runtime; null"),
    *(
        _required(f"{side}_{what}", INT32 if what.startswith("num") else TEXT, "", meaning)
        for side in ("read", "write")
        for what, meaning in (
            ("sbuf_partitions", "partitions of SBUF, as 0-127"),
            ("num_sbuf_partitions", "how many"),
            ("shape", "extents"),
            ("offset", "of the vendor's compiler; null"),
            ("steps", "strides in elements"),
        )
    ),
    _optional("trigger", INT, "", "when it was issued"),
)

# The ending of a name tells its unit, see `_summary_field`; ":i" marks whole numbers.
_SUMMARY_NAMES = """
total_time neuroncore_cycle_count:i model_flops:i hardware_flops:i transpose_flops:i
adjusted_hardware_flops:i adjusted_transpose_flops:i mm_arithmetic_intensity peak_flops_bandwidth_ratio
trace_count:i event_count:i total_row_count:i dma_active_cycles:i dma_active_time dma_active_time_percent
static_dma_active_time dynamic_dma_active_time_percent static_dma_active_time_percent
dma_transfer_average_bytes dma_packet_time dma_transfer_time dma_transfer_count:i dma_transfer_total_bytes:i
dma_queue_count:i inputs_and_weights_size_bytes:i inputs_outputs_weights_size_bytes:i weight_size_bytes:i
static_dma_packet_count:i static_dma_size:i dynamic_dma_packet_percent static_dma_packet_percent
dynamic_dma_size_percent static_dma_size_percent mbu_estimated_percent mbu_min_read_util_percent
hbm_write_bytes:i hbm_read_bytes:i sbuf_write_bytes:i sbuf_read_bytes:i spill_save_bytes:i
spill_reload_bytes:i psum_write_bytes:i psum_read_bytes:i psum_read_sbuf_write_count:i
psum_read_sbuf_write_bytes:i input_queue_bytes:i output_queue_bytes:i weight_queue_bytes:i
software_dynamic_dma_active_time software_dynamic_dma_active_time_percent
software_dynamic_dma_packet_count:i software_dynamic_dma_size:i software_dynamic_dma_packet_percent
software_dynamic_dma_size_percent hardware_dynamic_dma_active_time hardware_dynamic_dma_active_time_percent
hardware_dynamic_dma_packet_count:i hardware_dynamic_dma_size:i hardware_dynamic_dma_packet_percent
hardware_dynamic_dma_size_percent tensor_engine_instruction_time tensor_engine_active_time
tensor_engine_active_time_percent tensor_engine_instruction_count:i matmul_instruction_count:i
mfu_estimated_percent mfu_max_achievable_estimated_percent mfu_hlo_estimated_percent
mfu_hlo_max_achievable_estimated_percent mfu_inst_estimated_percent
mfu_inst_max_achievable_estimated_percent hfu_estimated_percent vector_engine_instruction_time
vector_engine_active_time vector_engine_active_time_percent vector_engine_instruction_count:i
scalar_engine_instruction_time scalar_engine_active_time scalar_engine_active_time_percent
scalar_engine_instruction_count:i activate_instruction_time activate_instruction_count:i
sync_engine_instruction_time sync_engine_active_time sync_engine_active_time_percent
sync_engine_instruction_count:i gpsimd_engine_instruction_time gpsimd_engine_active_time
gpsimd_engine_active_time_percent gpsimd_engine_instruction_count:i cc_op_time cc_op_active_time
cc_op_active_time_percent cc_op_count:i cc_cores_instruction_time cc_cores_instruction_active_time
cc_cores_instruction_active_time_percent cc_cores_instruction_count:i total_exec_time total_active_time
total_active_time_percent
"""


def _summary_field(marked: str) -> Field:
    name, _, whole = marked.partition(":")
    unit = next(
        (
            unit
            for ending, unit in (
                ("_percent", "percent"), ("_time", "seconds"), ("_cycles", "cycles"),
                ("_cycle_count", "cycles"), ("_flops", "flops"), ("_bytes", "bytes"), ("_size", "bytes"),
            )
            if name.endswith(ending)
        ),
        "",
    )  # fmt: skip
    return _optional(name, INT if whole else FLOAT, unit, "metric; null where nothing predicts it")


TABLES: dict[str, tuple[Field, ...]] = {
    "Summary": tuple(map(_summary_field, _SUMMARY_NAMES.split())),
    "Instruction": _INSTRUCTION,
    "DmaPacketAggregated": _TRANSFER,
    "ActiveTime": (
        _SPAN[0], _SPAN[1],
        _required("engine", TEXT, "", "engine that is active"),
        _required("pcore_idx", INT, "", _CORE.meaning),
        _SPAN[2],
    ),
    "OpcodeSummary": (
        _required("engine", TEXT, "", "engine"),
        _required("opcode", TEXT, "", "opcode"),
        _required("instruction_count", INT, "", "how many"),
        _required("instruction_time_ns", INT, NS, "sum of durations"),
        _required("active_time_ns", INT, NS, "time with at least one under way"),
        _required("active_time_percent", FLOAT, "", "active_time_ns over the whole time"),
    ),
    "Flow": (
        _required("in_id", INT, "", "id of the earlier event"),
        _required("out_id", INT, "", "id of the later event"),
        _required("in_table", TEXT, "", "instruction or dma_block"),
        _required("out_table", TEXT, "", "likewise"),
        _optional("dependency_type", TEXT, "", "FLOW_DEPENDENCE, ANTI_DEPENDENCE or OUTPUT_DEPENDENCE"),
        _optional("gap_time", INT, NS, "start of the later less end of the earlier"),
    ),
    "DmaUsage": _rate("all transfers"),
    "HbmUsage": _rate("transfers to and from HBM"),
    "PendingDma": (
        _required("timestamp", INT, NS, "from when on"),
        _required("value", INT32, "", "transfers that are ready and have not ended"),
        _CORE,
    ),
    "PsumUsage": _usage("PSUM", tuple(f"bank_{bank}" for bank in range(8))),
    "SbufUsage": _usage("SBUF", tuple(f"partition_{start}" for start in (0, 32, 64, 96))),
    "SbufAllocation": (
        _SPAN[0], _SPAN[1],
        _required("start_address", INT, BYTES, "first byte within the partition"),
        _required("end_address", INT, BYTES, "last byte within the partition"),
        _required("partition", INT, "", "0, 32, 64 or 96"),
        _optional("tensor_name", TEXT, "", "tile"),
        _CORE,
    ),
    "TensorInfo": (
        _optional("variable_name", TEXT, "", "tensor in HBM"),
        _optional("type", TEXT, "", "IN or OUT"),
        _optional("shape", TEXT, "", "extents"),
        _optional("size", INT, BYTES, "bytes"),
        _CORE,
        _optional("load_to_sbuf_avg_size_bytes", INT, "", "mean size of transfers that load it"),
        _optional("load_to_sbuf_total_size_bytes", INT, "", "bytes of all of them"),
        _optional("load_to_sbuf_dma_count", INT, "", "how many"),
        _optional("load_to_sbuf_repeat_factor", FLOAT, "", "those bytes over its size"),
    ),
    "Metadata": (
        _required("profile_schema_version", TEXT, "", "of the schema"),
        _required("ntff_version", INT32, "", "of nkilab's own NTFF"),
        _required("num_physical_cores", INT32, "", "cores of the logical core"),
        _required("vnc_enabled", FLAG, "", "whether there are several"),
        _required("first_hw_timestamp", INT, NS, "0"),
        _required("last_hw_timestamp", INT, NS, "the latency"),
        _required("first_ts", TEXT, "", "the beginning of Unix time"),
        _required("last_ts", TEXT, "", "the latency after it"),
        _required("dma_ddr_bandwidth", FLOAT, RATE, "most that one core moves to and from HBM"),
        _required("num_dma_engines_per_neuroncore", INT32, "", "of the chip"),
        _required("hbm_ddr_bandwidth", FLOAT, RATE, "of one HBM stack"),
        *(
            field
            for engine in ("tensor", "vector", "scalar", "gpsimd")
            for field in (
                _required(f"{engine}_engine_clock_freq", FLOAT, "gigahertz", "clock"),
                *(
                    (
                        _required("tensor_engine_num_rows", INT, "", "of the array"),
                        _required("tensor_engine_num_cols", INT, "", "of the array"),
                    )
                    if engine == "tensor"
                    else (_required(f"{engine}_engine_num_channels", INT, "", "lanes"),)
                ),
            )
        ),
        _required("neuroncore_clock_freq", FLOAT, "gigahertz", "base clock"),
        _required("ticks_per_nanosec", INT, "", "1"),
        _optional("explorer_version", TEXT, "", "nkilab and the version of its timing model"),
        _optional("profile_name", TEXT, "", "kernel"),
        _optional("is_simulation", FLAG, "", "true"),
    ),
    "Warning": (
        _required("message", TEXT, "", "a finding of the plan, or a note"),
        _required("category", TEXT, "", "rule of the finding, or note"),
    ),
}  # fmt: skip

SCHEMA_FIELDS = (
    _required("table_name", TEXT, "", "table"),
    _required("table_description", TEXT, "", "what a row is"),
    _required("field_name", TEXT, "", "field"),
    _required("field_description", TEXT, "", "its meaning"),
    _required("field_type", TEXT, "", "its type"),
    _required("field_required", FLAG, "", "whether it is always there"),
    _optional("field_unit", TEXT, "", "its unit"),
)

DESCRIPTIONS = {
    "Summary": "metrics of the run, in one row",
    "Instruction": "an instruction of an engine",
    "DmaPacketAggregated": "a transfer",
    "ActiveTime": "a time in which an engine has an instruction under way",
    "OpcodeSummary": "an opcode of an engine",
    "Flow": "a dependence between two events",
    "DmaUsage": "a moment at which the rate of transfers changes",
    "HbmUsage": "a moment at which the rate of HBM traffic changes",
    "PendingDma": "a moment at which the number of pending transfers changes",
    "PsumUsage": "a moment at which the content of PSUM changes",
    "SbufUsage": "a moment at which the content of SBUF changes",
    "SbufAllocation": "a stay of a tile in SBUF",
    "TensorInfo": "a tensor in HBM that the kernel gets or returns",
    "Metadata": "the chip and the tool, in one row",
    "Warning": "something that the author of the kernel should know",
    "SchemaFields": "a field of a table",
}
