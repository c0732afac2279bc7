"""Metrics counted by hand."""

from __future__ import annotations

import json
from io import StringIO
from itertools import pairwise

import pytest
from msgspec.structs import replace

from nkilab.machine import MACHINES
from nkilab.place import plan
from nkilab.timing import simulate
from nkilab.views.bound import BOUNDS
from nkilab.views.metrics import METRICS
from nkilab.views.summary import Summary, summarize
from nkilab.views.terminal import bars, print_summary, quantity
from tests.place.handmade import Kernel, rows
from tests.timing.test_clock import ROUND, fact

WIDTH = 100


def summary_of(k: Kernel) -> Summary:
    placed = plan(k.program)
    return summarize(k.program, placed, simulate(k.program, placed))


def matmul_kernel(machine: str = "trn2", dtype: str = "bfloat16") -> Kernel:
    """Load two operands, multiply, copy the result out of PSUM, store it."""
    k = Kernel(machine)
    a, b = k.tile(128, 128, dtype=dtype), k.tile(128, 512, dtype=dtype)
    out, result = k.psum(128, 512), k.tile(128, 512)
    k.load(a, k.hbm(128, 128, dtype=dtype))
    k.load(b, k.hbm(128, 512, dtype=dtype))
    k.matmul(out, a, b)
    k.copy(result, out)
    k.store(k.hbm(128, 512), result)
    return k


def test_every_metric_of_the_table_has_a_value_and_no_other_has() -> None:
    assert list(summary_of(matmul_kernel()).values) == list(METRICS)


def test_traffic_is_counted_per_memory() -> None:
    values = summary_of(matmul_kernel()).values
    # [128, 128] and [128, 512] of bfloat16 in; [128, 512] of float32 out
    read, written = 128 * 128 * 2 + 128 * 512 * 2, 128 * 512 * 4
    assert values["hbm_read_bytes"] == read
    assert values["hbm_write_bytes"] == written
    # loads write SBUF, the matmul reads it, the copy writes it, the store reads it
    assert values["sbuf_write_whole_bytes"] == read + written
    assert values["sbuf_read_whole_bytes"] == read + written
    assert values["psum_write_whole_bytes"] == values["psum_read_whole_bytes"] == written
    # the vendor's: transfers in full, engines for one partition of 128
    assert values["sbuf_write_bytes"] == read + written / 128
    assert values["sbuf_read_bytes"] == written + read / 128
    assert values["psum_write_bytes"] == values["psum_read_bytes"] == written / 128
    assert values["dma_transfer_count"] == 3
    assert values["dma_transfer_total_bytes"] == read + written
    assert values["dma_transfer_average_bytes"] == (read + written) / 3


def test_counters_of_float32_products_and_of_two_operands_are_the_vendors() -> None:
    # profiles of NKIBench: 1,024 products [128, 128] x [128, 512] write 4,194,304 bytes of PSUM, twice 2,048
    # each; an instruction with two operands reads one
    k = Kernel("trn1")
    a, b = k.tile(128, 128), k.tile(128, 512)
    k.matmul(k.psum(128, 512), a, b)
    values = summary_of(k).values
    assert values["psum_write_bytes"] == 2 * 512 * 4
    assert values["sbuf_read_bytes"] == 2 * (128 + 512) * 4
    assert values["sbuf_read_whole_bytes"] == 128 * (128 + 512) * 4
    k.call("tensor_tensor", k.tile(128, 512), b, b, op="add")
    assert summary_of(k)["sbuf_read_bytes"] == values["sbuf_read_bytes"] + 512 * 4


def test_a_transpose_of_float32_is_two_multiplications_on_trn1_alone() -> None:
    # NKIBench: 256 transposes [128, 128] have 2,147,483,648 flops; on trn2 64 have 268,435,456
    for machine, times in (("trn1", 2), ("trn2", 1)):
        k = Kernel(machine)
        k.call("nc_transpose", k.psum(128, 128), k.tile(128, 128))
        summary = summary_of(k)
        assert summary["hardware_flops"] == summary["transpose_flops"] == times * 2 * 128**3
        assert summary["hardware_flops_once"] == 2 * 128**3
        assert summary["model_flops_once"] == 0


def test_flops_are_twice_rows_columns_elements() -> None:
    summary = summary_of(matmul_kernel())
    flops = 2 * 128 * 128 * 512
    assert summary["hardware_flops"] == summary["model_flops"] == flops
    assert summary["transpose_flops"] == 0
    # 78.6432 TFLOP/s: 128 * 128 * 2 * 2.4 GHz
    expected = 100 * flops / (128 * 128 * 2 * 2.4e9 * summary["total_time"] * 1e-6)
    assert summary["mfu_estimated_percent"] == pytest.approx(expected)


def test_a_float32_matmul_is_two_instructions_and_counts_twice() -> None:
    summary = summary_of(matmul_kernel(dtype="float32"))
    flops = 2 * 128 * 128 * 512
    assert summary["matmul_instruction_count"] == 2
    assert summary["hardware_flops"] == 2 * flops
    assert summary["hardware_flops_once"] == flops
    # profile schema, adjusted_flops: float32 counts four times
    assert summary["adjusted_hardware_flops"] == 4 * flops
    # 78.6432 TFLOP/s: 128 * 128 * 2 * 2.4 GHz
    expected = 100 * 2 * flops / (78.6432e6 * summary["total_time"])
    assert summary["mfu_estimated_percent"] == pytest.approx(expected)
    assert summary["hfu_estimated_percent"] == pytest.approx(expected)
    assert summary["mfu_once_percent"] == summary["hfu_once_percent"] == pytest.approx(expected / 2)


@pytest.mark.parametrize(
    ("dtype", "matmuls", "flops"), [("bfloat16", 56, 285_212_672), ("float32", 60, 352_321_536)]
)
def test_flops_are_those_of_published_profiles(dtype: str, matmuls: int, flops: int) -> None:
    # allenkchau/trainium-kernel-fusion, baseline_bf16_s512 and baseline_fp32_s512, summary: 4 scores
    # [128, 512], 20 transposes, 16 products of float32 probabilities; 83,886,080 flops of transposes
    k = Kernel("trn2")
    q, keys = k.tile(128, 128, dtype=dtype), k.tile(128, 512, dtype=dtype)
    square, transposed = k.tile(128, 128), k.psum(128, 128)
    for _ in range(4):
        k.matmul(k.psum(128, 512), q, keys)
    for _ in range(20):
        k.call("nc_transpose", transposed, square)
    for _ in range(16):
        k.matmul(k.psum(128, 128), square, square)
    summary = summary_of(k)
    assert summary["matmul_instruction_count"] == matmuls
    assert summary["hardware_flops"] == flops
    assert summary["transpose_flops"] == 83_886_080
    assert summary["hardware_flops_once"] == 2 * 128 * 128 * (4 * 512 + 36 * 128)
    assert summary["adjusted_transpose_flops"] == 4 * 83_886_080


def test_a_microscaling_product_has_the_flops_of_four_times_the_rows() -> None:
    # trn3 guide: a contraction of 512, four to an element; it counted 128 rows once
    k = Kernel("trn3")
    packed = "float8_e4m3fn_x4"
    data = [k.tile(128, 128, dtype=packed), k.tile(128, 512, dtype=packed)]
    scales = [k.tile(128, 128, dtype="uint8"), k.tile(128, 512, dtype="uint8")]
    k.call("nc_matmul_mx", k.psum(128, 512), *data, *scales)
    summary = summary_of(k)
    assert summary["hardware_flops"] == 2 * 512 * 128 * 512
    # profile schema, adjusted_flops: MX counts a quarter
    assert summary["adjusted_hardware_flops"] == 2 * 128 * 128 * 512


@pytest.mark.parametrize(("machine", "weight"), [("trn1", 1.0), ("trn2", 0.5), ("trn3", 0.5)])
def test_products_of_eight_bits_count_half_against_bfloat16_from_trn2_on(machine: str, weight: float) -> None:
    # profile schema, adjusted_flops; glossary: float8 by bfloat16 runs and counts as bfloat16
    k = Kernel(machine)
    narrow, wide = (k.tile(128, 128, dtype=name) for name in ("float8_e5m2", "bfloat16"))
    k.matmul(k.psum(128, 128), narrow, narrow)
    both = summary_of(k)["adjusted_hardware_flops"]
    k.matmul(k.psum(128, 128), narrow, wide)
    assert both == weight * 2 * 128**3
    assert summary_of(k)["adjusted_hardware_flops"] - both == 2 * 128**3


def test_the_best_reachable_share_is_intensity_over_the_knee() -> None:
    summary = summary_of(matmul_kernel())
    traffic = 128 * 128 * 2 + 128 * 512 * 2 + 128 * 512 * 4
    # 716 GB/s against 78.6432 TFLOP/s
    expected = 100 * (2 * 128 * 128 * 512 / traffic) / (78643.2 / 716)
    assert summary["mfu_max_achievable_estimated_percent"] == pytest.approx(expected)


def test_transposes_count_as_hardware_flops_but_not_as_model_flops() -> None:
    k = Kernel("trn2")
    k.call("nc_transpose", k.psum(64, 128), k.tile(128, 64))
    summary = summary_of(k)
    # rows 128, columns 64, moving elements 128
    assert summary["hardware_flops"] == summary["transpose_flops"] == 2 * 128 * 64 * 128
    assert summary["model_flops"] == 0


def test_the_ratio_of_peak_rate_and_bandwidth_is_that_of_published_profiles() -> None:
    # 109.8369 in every profile of trn2 that students of CS149 published
    assert summary_of(matmul_kernel())["peak_flops_bandwidth_ratio"] == pytest.approx(109.8369, abs=1e-4)


def test_mbu_is_traffic_over_time_and_one_stack() -> None:
    summary = summary_of(matmul_kernel())
    traffic = 128 * 128 * 2 + 128 * 512 * 2 + 128 * 512 * 4
    # 716 GB/s
    assert summary["mbu_estimated_percent"] == pytest.approx(100 * traffic / (summary["total_time"] * 716e3))


def test_engine_times_are_merged_and_summed() -> None:
    k = Kernel(ROUND)
    for _ in range(3):
        k.fill(k.tile(128, 512))
    summary = summary_of(k)
    # three of 612 ns, nothing else
    assert summary["vector_engine_active_time"] == summary["vector_engine_instruction_time"] == 1.836
    assert summary["vector_engine_active_time_percent"] == 100
    assert summary["vector_engine_instruction_count"] == 3
    assert summary["total_time"] == 1.836


def test_spills_are_counted_as_traffic() -> None:
    k = Kernel(replace(ROUND, sbuf_bytes_per_partition=fact(800)))
    tiles, sums = [k.tile(128, 100) for _ in range(3)], k.psum(128, 100)
    for tile in tiles:
        k.copy(tile, sums)
    for tile in tiles:
        k.store(k.hbm(128, 100), tile)
    values = summary_of(k).values
    size = 128 * 400
    assert (values["spill_save_bytes"], values["spill_reload_bytes"]) == (size, size)
    assert (values["hbm_read_bytes"], values["hbm_write_bytes"]) == (size, 4 * size)
    assert values["dma_transfer_count"] == 5


def long_chain(engine_cost: int, transfer_columns: int, trips: int = 40) -> Kernel:
    """Load, work on, store; some times."""
    k = Kernel(ROUND)
    source, target = k.hbm(128 * trips, transfer_columns), k.hbm(128 * trips, transfer_columns)
    for i in range(trips):
        tile, work = k.tile(128, transfer_columns), k.tile(128, engine_cost)
        k.load(tile, rows(source, i * 128, i * 128 + 128))
        k.fill(work)
        k.copy(work, work)
        k.store(rows(target, i * 128, i * 128 + 128), tile)
    return k


def test_a_kernel_of_long_vector_instructions_is_bound_by_the_vector_engine() -> None:
    assert summary_of(long_chain(20000, 8)).bound == "vector engine"


def test_a_kernel_of_long_transfers_is_bound_by_dma_bandwidth() -> None:
    assert summary_of(long_chain(8, 2000)).bound == "DMA bandwidth"


def test_a_kernel_of_many_tiny_transfers_is_bound_by_their_issue() -> None:
    assert summary_of(long_chain(8, 1)).bound == "DMA issue"


def test_a_chain_of_dependent_transfers_is_bound_by_their_latency() -> None:
    k = Kernel(ROUND)
    tensors = [k.hbm(128, 8) for _ in range(20)]
    for src, dst in pairwise(tensors):
        k.load(dst, src)
    assert summary_of(k).bound == "DMA latency"


def test_two_engines_that_wait_for_each_other_are_bound_by_dependence() -> None:
    k = Kernel(ROUND)
    a, b = k.tile(128, 8), k.tile(128, 8)
    for _ in range(20):
        k.copy(a, b, "vector")
        k.copy(b, a, "scalar")
    assert summary_of(k).bound == "dependence"


def test_an_empty_program_is_bound_by_nothing() -> None:
    assert summary_of(Kernel()).bound == "nothing"


def test_every_bound_has_its_rule() -> None:
    assert all(rule for rule in BOUNDS.values())


def test_the_dictionary_of_a_summary_is_json() -> None:
    summary = summary_of(matmul_kernel())
    document = json.loads(json.dumps(summary.to_dict(), allow_nan=False))
    assert document["schema"] == "nkilab.summary/1"
    assert document["metrics"] == summary.values


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.5, "us", "1.5 us"),
        (12345.6, "us", "12.35 ms"),
        (262144, "bytes", "262.1 kB"),
        (512, "bytes", "512 B"),
        (65536, "count", "65,536"),
        (2e9, "flops", "2 GFLOP"),
        (12.345, "percent", "12.35 %"),
        (85.3333, "ratio", "85.33"),
    ],
)
def test_quantities_carry_their_unit(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


@pytest.mark.parametrize("name", list(MACHINES))
def test_the_text_of_a_summary_is_at_most_100_columns_wide(name: str) -> None:
    k = matmul_kernel(name)
    placed = plan(k.program)
    timeline = simulate(k.program, placed)
    out = StringIO()
    print_summary(summarize(k.program, placed, timeline), timeline, out)
    lines = out.getvalue().splitlines()
    assert lines[0].startswith(f"made_by_hand on {name}: ")
    assert max(map(len, lines)) <= WIDTH


def test_bars_show_when_an_engine_is_busy() -> None:
    # VectorE from 0 to 612; a semaphore of 50; ScalarE to 1374: nine twentieths, then the rest
    k = Kernel(ROUND)
    a, b = k.tile(128, 512), k.tile(128, 512)
    k.fill(a)
    k.copy(b, a, "scalar")
    drawn = bars(simulate(k.program, plan(k.program)), width=20).splitlines()
    assert drawn[0] == " vector |████████▇           |"
    assert drawn[1] == " scalar |         ▃██████████|"
    assert drawn[2] == "         0.0 us        1.4 us"


def test_an_empty_program_on_a_machine_without_launch_costs_has_shares_of_nothing() -> None:
    # ROUND's launches take no time: every share was a division by zero
    values = summary_of(Kernel(ROUND)).values
    assert values["total_time"] == 0
    assert {values[name] for name in values if name.endswith("percent")} == {0.0}
