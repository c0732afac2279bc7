"""Tables shaped as the vendor's: names typed from its schema, values by hand, Parquet read back."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nkilab.errors import UsageError
from nkilab.views.explorer import parquet as writer
from nkilab.views.explorer import schema_fields, tables_of
from nkilab.views.explorer.parquet import parquet_files
from nkilab.views.explorer.schema import DESCRIPTIONS, TABLES
from tests.place.handmade import Kernel
from tests.timing.test_clock import ROUND
from tests.views.runs import kernel_run, loaded_copied_stored, run_of
from tests.views.test_path import KERNELS

# Typed from the schema reference of Neuron Explorer, version 7.4.0: field, type, unit, required.
FACTS = """
Summary.total_time double seconds no
Summary.neuroncore_cycle_count int64 cycles no
Summary.hbm_read_bytes int64 bytes no
Summary.static_dma_size int64 bytes no
Summary.dma_transfer_count int64 - no
Summary.mm_arithmetic_intensity double - no
Summary.mfu_estimated_percent double percent no
Instruction.start_ts int64 nanoseconds yes
Instruction.timeline_track string - no
Instruction.evt_wait_time_ns int64 nanoseconds no
Instruction.raw_flops int64 - no
DmaPacketAggregated.block_id int32 - yes
DmaPacketAggregated.throughput double bytes_per_second yes
DmaPacketAggregated.transfer_bytes int64 bytes yes
DmaPacketAggregated.read_num_sbuf_partitions int32 - yes
DmaUsage.current_throughput double bytes_per_second yes
Flow.gap_time int64 nanoseconds no
PendingDma.value int32 - yes
PsumUsage.bank_7_util_percent double percent no
SbufUsage.partition_96_util_percent double percent no
SbufAllocation.end_address int64 bytes yes
Metadata.tensor_engine_clock_freq double gigahertz yes
Metadata.is_simulation bool - no
OpcodeSummary.active_time_percent double - yes
TensorInfo.load_to_sbuf_repeat_factor double - no
Warning.category string - yes
"""


@pytest.mark.parametrize("fact", FACTS.split("\n")[1:-1])
def test_fields_are_those_of_the_public_schema(fact: str) -> None:
    name, kind, unit, required = fact.split()
    table, _, field = name.partition(".")
    column = next(f for f in TABLES[table] if f.name == field)
    assert (column.type, column.unit or "-", "yes" if column.is_required else "no") == (kind, unit, required)


@pytest.mark.parametrize("name", KERNELS)
def test_tables_have_every_column_and_columns_one_length(name: str) -> None:
    for table, columns in tables_of(kernel_run(name)).items():
        assert list(columns) == [field.name for field in TABLES[table]]
        assert len({len(column) for column in columns.values()}) == 1, table


def rows_of(table: str, run=None) -> list[dict]:
    columns = tables_of(run or run_of(loaded_copied_stored()), (table,))[table]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def test_an_instruction_has_times_lane_operands_and_line() -> None:
    (row,) = rows_of("Instruction")
    assert (row["start_ts"], row["end_ts"], row["duration_ns"]) == (2688, 3300, 612)
    assert (row["engine"], row["timeline_track"], row["opcode"]) == ("vector", "Vector", "TENSOR_COPY")
    assert row["operands"] == "dst=b:float32[128, 512] src=a:float32[128, 512]"
    assert (row["nki_source_location"], row["evt_wait_time_ns"]) == ("kernel.py:2", 2688)
    # 512 float32 of one partition, as the vendor counts
    assert (row["sbuf_read_bytes"], row["sbuf_write_bytes"], row["psum_read_bytes"]) == (2048, 2048, 0)
    assert row["bir_id"] is None


def test_a_transfer_has_bytes_ends_and_shapes() -> None:
    load, store = rows_of("DmaPacketAggregated")
    assert (load["start_ts"], load["duration_ns"], load["transfer_bytes"]) == (1000, 1638, 262144)
    # 160 bytes a nanosecond
    assert load["throughput"] == pytest.approx(160e9)
    assert (load["op"], load["variable"], load["dest"]) == ("read", "x", "[SB]")
    assert (store["op"], store["variable"], store["source"]) == ("write", "out", "[SB]")
    assert (load["write_sbuf_partitions"], load["write_num_sbuf_partitions"]) == ("0-127", 128)
    assert (load["read_shape"], load["read_steps"], load["trigger"]) == ("[128, 512]", "[512, 1]", 0)
    assert store["trigger"] == 3350


def test_passes_of_a_float32_product_share_its_operations() -> None:
    k = Kernel(ROUND)
    k.matmul(k.psum(128, 512), k.tile(128, 128), k.tile(128, 512))
    weights, low, more, high = rows_of("Instruction", run_of(k))
    assert [r["opcode"] for r in (weights, low, more, high)] == ["LDWEIGHTS", "MATMUL"] * 2
    assert (weights["timeline_track"], low["timeline_track"]) == ("Tensor", "TensorMatrix")
    # schema, raw_flops: each half of 2 * 128 * 128 * 512; adjusted_flops: four times bfloat16
    assert low["raw_flops"] == high["raw_flops"] == 128 * 128 * 512
    assert low["adjusted_flops"] == 4 * 128 * 128 * 512
    assert low["operands"].endswith(" fp32_mode=LOW")


def test_the_summary_has_seconds_and_shares() -> None:
    run = run_of(loaded_copied_stored())
    (row,) = rows_of("Summary", run)
    # under the profiler it lasts 5 us more
    assert row["total_time"] == pytest.approx(10988.8e-9)
    assert row["dma_active_time"] == pytest.approx(3276.8e-9)
    assert row["dma_active_time_percent"] == pytest.approx(3276.8 / 10988.8)
    assert row["total_active_time"] == pytest.approx((3276.8 + 612) * 1e-9)
    assert row["total_exec_time"] == pytest.approx(4988.8e-9)
    # at 1 GHz
    assert row["neuroncore_cycle_count"] == 10989
    assert (row["hbm_read_bytes"], row["dma_transfer_count"], row["cc_op_count"]) == (262144, 2, 0)
    # schema: "will be 0 if HLO stats are missing, which is the case for NKI kernels"
    assert row["mfu_hlo_max_achievable_estimated_percent"] == 0


def test_flows_name_the_kind_and_the_gap() -> None:
    first, second = rows_of("Flow")
    assert (first["in_table"], first["out_table"], first["dependency_type"]) == (
        "dma_block", "instruction", "FLOW_DEPENDENCE"
    )  # fmt: skip
    assert (first["in_id"], first["out_id"], first["gap_time"]) == (0, 1, 50)
    # a semaphore, then 1000 ns until the first byte
    assert second["gap_time"] == 1050


def test_rates_and_pending_transfers_follow_the_transfers() -> None:
    usage = rows_of("DmaUsage")
    assert [(r["timestamp"], round(r["current_throughput"] / 1e9)) for r in usage] == [
        (1000, 160), (2638, 0), (4350, 160), (5989, 0)
    ]  # fmt: skip
    assert [r["total_transfer_bytes"] for r in usage] == [0, 262144, 262144, 524288]
    assert [(r["timestamp"], r["value"]) for r in rows_of("PendingDma")] == [
        (0, 1), (2638, 0), (3350, 1), (5989, 0)
    ]  # fmt: skip


def test_memories_fill_and_empty() -> None:
    whole = ROUND.limit("sbuf_bytes_per_partition")
    usage = rows_of("SbufUsage")
    assert [r["partition_96_util_percent"] for r in usage] == pytest.approx(
        [2048 / whole, 4096 / whole, 2048 / whole, 0]
    )
    rows = rows_of("SbufAllocation")
    assert [(r["tensor_name"], r["partition"]) for r in rows[:2]] == [("a", 0), ("b", 0)]
    assert rows[0]["end_address"] - rows[0]["start_address"] == 2047
    k = Kernel(ROUND)
    k.matmul(k.psum(128, 8), k.tile(128, 128), k.tile(128, 8))
    banks = rows_of("PsumUsage", run_of(k))
    assert sum(banks[0][f"bank_{n}_util_percent"] for n in range(8)) == 1
    assert banks[0]["avg_util_percent"] == 1 / 8


def test_metadata_says_that_it_is_a_simulation() -> None:
    (row,) = rows_of("Metadata")
    assert row["is_simulation"] is True
    assert row["profile_schema_version"] == "7.4.0"
    assert row["tensor_engine_num_rows"] == row["tensor_engine_num_cols"] == 128
    assert row["last_ts"] == "1970-01-01 00:00:00.000006+00:00"


def test_opcodes_are_counted_over_both_passes() -> None:
    rows = {(r["engine"], r["opcode"]): r for r in rows_of("OpcodeSummary", kernel_run("tiled"))}
    assert rows["tensor", "MATMUL"]["instruction_count"] == 16
    assert rows["tensor", "LDWEIGHTS"]["instruction_count"] == 16


def test_inputs_know_how_often_they_are_loaded() -> None:
    rows = {r["variable_name"]: r for r in rows_of("TensorInfo", kernel_run("tiled"))}
    assert (rows["lhsT"]["type"], rows["out"]["type"]) == ("IN", "OUT")
    # [256, 1024] of float32, each tile of it once per row of results but for what SBUF still held
    assert rows["rhs"]["load_to_sbuf_repeat_factor"] == 1.0
    assert rows["rhs"]["load_to_sbuf_dma_count"] == 4


@pytest.mark.parametrize("name", KERNELS)
def test_parquet_files_hold_the_tables(name: str) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    run = kernel_run(name)
    files = parquet_files(run)
    assert set(files) == {f"{table}.parquet" for table in (*TABLES, "SchemaFields")}
    for table, columns in tables_of(run).items():
        parquet_table = parquet.read_table(io.BytesIO(files[f"{table}.parquet"]))
        assert parquet_table.column_names == list(columns)
        assert [str(field.type) for field in parquet_table.schema] == [field.type for field in TABLES[table]]
        for column, values in columns.items():
            assert parquet_table[column].to_pylist() == [
                v.item() if isinstance(v, np.generic) else v for v in values
            ]


def test_the_schema_is_a_table_of_its_own() -> None:
    columns = schema_fields()
    rows = list(zip(columns["table_name"], columns["field_name"], columns["field_unit"], strict=True))
    assert ("Summary", "total_time", "seconds") in rows
    assert ("SchemaFields", "field_unit", None) in rows
    assert set(columns["table_name"]) == set(DESCRIPTIONS)


def test_without_pyarrow_tables_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str = "") -> Callable:
        raise ModuleNotFoundError("pyarrow")

    monkeypatch.setattr(writer, "pyarrow", missing)
    with pytest.raises(UsageError) as raised:
        parquet_files(run_of(loaded_copied_stored()))
    assert str(raised.value) == (
        "Parquet tables are written by the package pyarrow, which is not installed\n"
        "  hint: install nkilab[parquet]"
    )


@pytest.mark.parametrize("machine", ["trn2", ROUND], ids=["trn2", "a chip without a time to start"])
def test_an_empty_program_has_tables(machine: Any) -> None:
    for columns in tables_of(run_of(Kernel(machine))).values():
        assert len({len(column) for column in columns.values()}) == 1
