"""One row per chip. A new chip is a new row here and nothing else.

Sources are abbreviated: "trn1 guide", "trn2 guide" and "trn3 guide" are the NKI architecture guides,
"DMA guide" the NKI DMA bandwidth guide, "performance guide" the NKI performance guide, "2.26 costs" the
engine-cycle tables of the NKI API pages up to SDK 2.26, "optimization guide" the figures of the kernel
optimization tutorial, and "course dumps" the raw profiles that students of Stanford CS149 published.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..errors import UsageError, did_you_mean
from .model import Machine, assumed, documented, fitted, measured

TRN2 = Machine(
    name="trn2",
    generation=3,
    cores_per_logical_core=documented(2, "logical core guide: 1 or 2 cores"),
    partitions=documented(128, "trn2 guide, SBUF"),
    sbuf_bytes_per_partition=documented(
        (224 - 16) * 1024 - 8, "trn2 guide, 224 KiB; less the 16 KiB and 8 bytes that tile_size leaves out"
    ),
    sbuf_physical_bytes_per_partition=documented(224 * 1024, "trn2 guide, SBUF"),
    psum_banks=documented(8, "trn2 guide, PSUM"),
    psum_bank_bytes=documented(2048, "trn2 guide, PSUM"),
    psum_shared_bytes=fitted(
        512, "attention under Beta 1: transposes of 512 bytes beside products; 2048: a tile takes whole banks"
    ),
    stationary_free_max=documented(128, "nki.isa.nc_matmul, tile size"),
    moving_free_max=documented(512, "nki.isa.nc_matmul, tile size"),
    moving_free_max_two_bytes=documented(512, "nki.isa.nc_matmul, tile size"),
    vector_transpose_max=documented(32, "nki.isa.nc_transpose"),
    bn_stats_free_max=documented(512, "nki.language.tile_size, bn_stats_fmax"),
    max8_free_max=documented(16384, "nki.isa.max8, nc_find_index8 and nc_match_replace8"),
    tensor_clock_ghz=documented(2.4, "trn2 guide, engines"),
    vector_clock_ghz=documented(0.96, "trn2 guide, engines"),
    scalar_clock_ghz=documented(1.2, "trn2 guide, engines"),
    gpsimd_clock_ghz=documented(1.2, "trn2 guide, engines"),
    matmul_interval_cycles=documented(64, "trn1 guide, MATMUL initiation interval; performance guide"),
    matmul_overhead_cycles=measured(
        8, "published profiles: 218 ns a MATMUL of 512 bfloat16 rows, 56 of 128; 4.03 cycles a float32 row"
    ),
    fp32_passes=documented(4, "2.26 costs, nc_matmul"),
    weight_columns=measured(1, "published profiles: LDWEIGHTS in 105 ns, the fast mode off"),
    fast_weight_columns=documented(4, "trn1 guide, fast LoadStationary; published profiles: transposes"),
    fp32_weight_columns=measured(
        0.5, "twice the bytes; profiles: halves of 128 rows follow each other in 112 ns"
    ),
    weight_load_ns=measured(52.0, "published profiles: LDWEIGHTS in 105 ns, 53 of them for 128 columns"),
    tensor_latency_ns=measured(170.0, "optimization guide: MATMUL latency 598 ns at an interval of 429 ns"),
    tensor_warm_up_ns=measured(
        3413.0, "published profiles: throttle in windows of 3,413 ns; Neuron Explorer, overview: about 3 us"
    ),
    tensor_sustained_rate=measured(1.0, "published profiles: 218 ns a MATMUL of 512 bfloat16 rows"),
    tensor_cold_rate=documented(0.5, "Neuron Explorer, overview; profiles: 630 ns cold, 379 ns warm"),
    vector_overhead_ns=fitted(
        40.0, "products blocked for NKI 0.6: 1024 additions of 512 in 652 us less the launch"
    ),
    vector_duration_ns=measured(158.0, "published profiles: 291, 690, 1201 ns for 128, 512, 1000 elements"),
    scalar_duration_ns=measured(
        158.0, "published profiles: copies of 128 and 512 elements in 265 and 586 ns"
    ),
    scalar_function_ns=measured(
        110.0, "published profiles: exp of 512 elements in 686 and 707 ns, copies in 586"
    ),
    vector_operand_ns=measured(
        58.0, "published profiles: tensor_scalar in 350 and 481 ns, copies in 291 and 424 ns"
    ),
    scalar_overhead_ns=measured(115.0, "course dumps: ACT copy of 128 elements every 221 ns"),
    gpsimd_overhead_cycles=documented(150, "2.26 costs, iota"),
    activation_table_load_ns=measured(1323.0, "DMA overview figures"),
    vector_mode_speedup=documented(4, "trn2 guide, DVE performance modes"),
    vector_fp32_lanes=measured(2, "optimization guide: fp32 SBUF to SBUF copy of 512 in 424 ns"),
    reciprocal_cycles=assumed(2.4, "as trn1, the same engine; the cost table's 8 are refuted there"),
    far_stride_bytes=assumed(16, "as trn1; the guides of trn2 and trn3 do not repeat it"),
    scalar_engine_first=measured(0, "published profiles: a hundred of 142 copies on ScalarE, the others not"),
    shared_ports=documented(0, "trn2 guide: VectorE beside GpSimdE and ScalarE access memories at once"),
    accumulator_read_cycles=documented(64, "2.26 costs, activation_reduce"),
    semaphore_ns=measured(58.0, "optimization guide, semaphore wait"),
    dma_done_ns=measured(
        319.0, "DMA overview figures: last byte of a load to the ACTIVATE that waits for it"
    ),
    dma_engines=documented(16, "trn2 guide, DMA"),
    dma_rings=documented(16, "DMA guide: an engine serves eight partitions; a queue has a ring on each"),
    dma_start_ns=measured(
        750.0, "DMA overview figures: trigger to the first engine's first byte 614, 738 and 757 ns"
    ),
    dma_static_start_ns=documented(
        1300.0 - 58.0 - 50.0, "DMA guide: 1300 ns from a semaphore to the start; less signal and issue"
    ),
    dma_spread_ns=measured(
        24.0, "DMA overview figures: 468 ns from first to last byte over 16 engines of 81 to 99 ns each"
    ),
    dma_issue_ns=measured(486.0, "course, vector add of single elements: 3 transfers in 1457 ns"),
    dma_descriptor_issue_ns=measured(
        1.05, "course, vector add of 128 elements: 3 transfers of 128 descriptors in 1860 ns"
    ),
    dma_issue_by_partition=measured(
        1, "normalization under NKI 0.6: 128 loads of a row delay it by less than 10 us; 0: all cost the same"
    ),
    dma_static_issue_ns=assumed(50.0, "descriptors lie ready in HBM: a write to the ring's tail"),
    dma_bytes_per_ns=measured(27.3, "course dumps: packets of 2304 to 36864 bytes, slope"),
    dma_run_ns=measured(2.2, "course dumps: a descriptor of 8 rows of 512 bytes takes 172.9 ns"),
    dma_run_min_ns=measured(10.0, "course dumps: 64 runs of 18 bytes in 646 ns, of 36 bytes in 678 ns"),
    dma_group_ns=measured(5.0, "course dumps: packets of 2304 to 36864 bytes, intercept"),
    dma_group_bytes=measured(4096, "course dumps: 8 rows of 512 bytes travel in one descriptor"),
    dma_semaphore_write_ns=measured(8.0, "DMA overview figures: 7 to 10 ns"),
    dma_issuing_units=measured(1, "course: transfers of one kernel are issued one after another"),
    dma_packet_bytes=measured(32768, "course dumps: long contiguous rows travel in packets of about 32 KiB"),
    hbm_bytes_per_ns=measured(435.0, "profiler metadata dma_ddr_bandwidth: 16 engines of 27.2 GB/s"),
    hbm_stack_bytes_per_ns=measured(716.0, "course dumps: peak_flops_bandwidth_ratio 109.837"),
    cores_per_chip=documented(8, "collectives page, System Connectivity"),
    chips_per_node=documented(16, "collectives page, System Connectivity: trn2.48xlarge"),
    neuronlink_bytes_per_ns=documented(
        1024.0, "trn2 architecture page: NeuronLink-v3 within an instance, 1,024 GB/s per chip"
    ),
    collective_hop_ns=documented(1500.0, "intra-node collectives: 1 to 2 us per hop, by the load of HBM"),
    network_bytes_per_ns=documented(25.0, "collectives page, System Connectivity: 200 Gbps per chip"),
    network_hop_ns=documented(15000.0, "collectives page: 15 us from HBM to HBM of another server"),
    torus=documented(1, "collectives page, System Connectivity: chips in a 2D torus"),
    collective_mesh_bytes=documented(1 << 20, "intra-node collectives: mesh below 1 MB"),
    collective_rdh_bytes=documented(
        56 << 20, "intra-node collectives: recursive doubling and halving from 1 to 56 MB, a ring above"
    ),
    collective_ring_ranks=documented(
        2, "intra-node collectives: KangaRing, every other rank of a chip passes on"
    ),
    collective_flat_ring_bytes=documented(0, "inter-node collectives: a ring over nodes on trn1 alone"),
    collective_channel_ns=assumed(0.0, "no ring over nodes"),
    collective_peer_engines=measured(
        4, "two ranks of a chip: nccom-test send and receive on trn2, 103.8 GB/s; all-reduce on trn1, 56.8"
    ),
    collective_launch_ns=measured(
        10700.0, "nccom-test, send and receive of 4 KiB in 12.6 us, less a hop and the transfer"
    ),
    hbm_stacks=documented(4, "trn2 guide: four HBM stacks, two cores each"),
    tile_buffers=fitted(
        6, "tiled and blocked products under NKI 0.6 and Beta 1, transposes and additions of the course"
    ),
    spare_block_buffers=fitted(
        1, "blocked products under NKI 0.6: order of block sizes; 0 takes blocks for other tiles"
    ),
    spill_rest_rows=assumed(
        16,
        "a reload is ordered so far ahead that its latency hides behind instructions of half a microsecond",
    ),
    redundant_load_window_bytes=fitted(
        47 * 1024, "bytes of tiled and blocked products under NKI 0.6: those of 44.5 to 48 KiB, and no others"
    ),
    scratch_phases=measured(1, "attention under Beta 1, scores in HBM; 0: a load waits for its store alone"),
    block_tiles=assumed(1, "Beta 1: blocks of a tensor may become tiles; 0: it stays one tile"),
    spare_fills=measured(1, "NKIBench: VectorE is idle in products that fill every tile; 0: fills stay"),
    loop_invariants=measured(2, "attention of autocomp; 1: in innermost loops alone; 0: all computed anew"),
    repeats_in_psum=documented(1, "tutorial on Mamba: a repetition is one instruction; 0: it is copied"),
    engine_choice=measured(1, "Beta 1: ScalarE copies in published attention; 0: VectorE does"),
    engine_choice_as_written=measured(1, "a convolution that skips the middle end; 0: as engine_choice"),
    static_descriptors=measured(1, "36 products under Beta 1; 0: each transfer has its descriptors made"),
    resident_loads=measured(1, "NKIBench: bytes of products under Beta 1; 0: each load is made"),
    late_loads=measured(1, "NKIBench, the guide: bytes of products that do not fit; 0: they spill"),
    block_first_part=measured(1, "order of block sizes under NKI 0.6; 0: every part waits for the buffer"),
    far_weight_slowdown=documented(
        2, "trn1 guide, access pattern: half the rate; 1: float32 weights as near"
    ),
    engines_in_order=assumed(0, "the compiler lays streams out; 1: each engine takes rows in their order"),
    kernel_start_ns=fitted(9200.0, "launches: 10.56 us on the device clock; one-tile kernels last 15 us"),
    kernel_end_ns=measured(
        2300.0, "course profiles: about 2.5 us after the last transfer, part of its signal included"
    ),
    profile_extra_ns=fitted(5000.0, "profiles last 6 to 8 us longer than nki.benchmark says"),
    peak_tflops_bf16=documented(78.6432, "128 * 128 * 2 * 2.4 GHz"),
)

TRN1 = replace(
    TRN2,
    name="trn1",
    generation=2,
    cores_per_logical_core=documented(
        1, "nki.isa.sendrecv and core_barrier: logical cores from NeuronCore-v3 on"
    ),
    partitions=documented(128, "trn1 guide, SBUF"),
    sbuf_bytes_per_partition=documented((192 - 16) * 1024, "trn1 guide; direct allocation guide"),
    sbuf_physical_bytes_per_partition=documented(192 * 1024, "trn1 guide, SBUF"),
    tensor_clock_ghz=documented(2.8, "trn1 guide, engines"),
    tensor_sustained_rate=fitted(
        6 / 7, "products of NKIBench: none is faster than 6/7 of the documented rate; as at 2.4 GHz"
    ),
    matmul_overhead_cycles=documented(0, "2.26 costs, nc_matmul: max(64, N)"),
    scalar_engine_first=measured(
        1, "NKIBench: in products VectorE is idle; in silu and AdamW ScalarE is busy for 2 and 8 instructions"
    ),
    shared_ports=documented(1, "trn1 guide: VectorE takes turns with GpSimdE at SBUF, with ScalarE at PSUM"),
    weight_columns=documented(4, "trn1 guide, fast LoadStationary: up to 4 times as fast as a MATMUL"),
    fp32_weight_columns=assumed(
        0.25, "no fast LoadStationary for four bytes: a column takes as long as a row of a float32 MATMUL"
    ),
    weight_load_ns=assumed(0.0, "not published"),
    tensor_warm_up_ns=documented(0.0, "Neuron Explorer, overview: from NeuronCore-v3 on"),
    vector_clock_ghz=documented(1.12, "trn1 guide, engines"),
    scalar_clock_ghz=documented(1.4, "trn1 guide, engines"),
    gpsimd_clock_ghz=documented(1.4, "trn1 guide, engines"),
    vector_overhead_ns=documented(60 / 1.12, "trn1 guide, tensor access overhead: about 60 cycles"),
    vector_duration_ns=documented(90.0, "performance guide: about 100 cycles"),
    scalar_function_ns=documented(0.0, "performance guide: in scalar_duration_ns"),
    vector_operand_ns=documented(0.0, "2.26 costs: as tensor_copy"),
    scalar_duration_ns=measured(143.0, "performance guide: dependent 1-element ACTIVATEs every 189 ns"),
    scalar_overhead_ns=measured(72.0, "performance guide: dependent 1-element ACTIVATE takes 159 ns"),
    vector_mode_speedup=documented(1, "the trn1 guide has no performance modes"),
    vector_fp32_lanes=documented(1, "trn1 guide, VectorE 128 elements per cycle"),
    reciprocal_cycles=measured(
        2.4, "NKIBench, silu and AdamW: VectorE's time less its two-input instructions"
    ),
    far_stride_bytes=documented(16, "trn1 guide, access pattern: from 16 bytes on half the bandwidth"),
    dma_start_ns=documented(
        1300.0 - 58.0 - 100.0, "DMA guide: 1300 ns from a semaphore to the start; less signal and issue"
    ),
    dma_static_start_ns=documented(1300.0 - 58.0 - 50.0, "as dma_start_ns"),
    dma_descriptor_issue_ns=assumed(0.0, "descriptors lie ready in HBM"),
    dma_issue_ns=assumed(100.0, "no hardware descriptor generation; static rings"),
    dma_bytes_per_ns=measured(
        18.1, "performance guide, figure of large transfers: 32 KiB in 1810 ns; the DMA guide says 17"
    ),
    dma_run_ns=fitted(11.0, "products of autocomp, rows of 256 bytes to 2 KiB: 11.80, 8.07 and 7.62 ms"),
    dma_issuing_units=assumed(2, "two rings"),
    hbm_bytes_per_ns=documented(410.0, "trn1 guide: 820 GB/s over two cores"),
    hbm_stack_bytes_per_ns=measured(410.0, "performance guide figure: 704 MiB in 7.03 ms are 25.61 % MBU"),
    cores_per_chip=documented(2, "trn1 guide: two NeuronCores-v2"),
    hbm_stacks=documented(2, "trn1 guide: two HBM stacks"),
    neuronlink_bytes_per_ns=documented(
        412.3, "trn1 architecture page up to SDK 2.26: NeuronLink-v2, 384 GiB/s per chip"
    ),
    chips_per_node=documented(16, "trn1 guide: trn1.32xlarge"),
    collective_hop_ns=assumed(1500.0, "as trn2"),
    network_bytes_per_ns=documented(6.25, "trn1 architecture page: EFA, 800 Gbps over 16 chips"),
    network_hop_ns=assumed(15000.0, "as trn2"),
    collective_flat_ring_bytes=assumed(
        56 << 20, "inter-node collectives: a ring over nodes for large messages; how large is not said"
    ),
    collective_channel_ns=fitted(
        420.0, "nccom-test of 2023, 64 ranks on two nodes: 1 MiB in 1328 us, 16 bytes in 520"
    ),
    collective_launch_ns=assumed(10700.0, "as trn2"),
    kernel_start_ns=measured(13000.0, "course dumps on trn1: 19 us for one tile"),
    peak_tflops_bf16=documented(91.75, "128 * 128 * 2 * 2.8 GHz"),
)

TRN3 = replace(
    TRN2,
    name="trn3",
    generation=4,
    cores_per_logical_core=documented(2, "logical core guide: 1 or 2 cores"),
    partitions=documented(128, "trn3 guide, SBUF"),
    matmul_overhead_cycles=assumed(8, "as trn2"),
    sbuf_bytes_per_partition=documented(
        (256 - 16) * 1024 - 8, "trn3 guide, 256 KiB; less the 16 KiB and 8 bytes that tile_size leaves out"
    ),
    sbuf_physical_bytes_per_partition=documented(256 * 1024, "trn3 guide, SBUF"),
    moving_free_max=documented(4096, "nki.isa.nc_matmul: float32 destination over all banks"),
    moving_free_max_two_bytes=documented(8192, "nki.isa.nc_matmul: bfloat16 destination over all banks"),
    vector_clock_ghz=documented(1.2, "trn3 guide, engines"),
    vector_overhead_ns=assumed(32.0, "40 ns of trn2 at 0.96 GHz are 38 cycles, at 1.2 GHz 32 ns"),
    dma_bytes_per_ns=documented(33.0, "DMA guide, peak per engine"),
    hbm_bytes_per_ns=documented(600.0, "trn3 guide: 4.7 to 4.9 TB/s over eight cores"),
    hbm_stack_bytes_per_ns=documented(1200.0, "trn3 guide: 4.7 to 4.9 TB/s over four stacks"),
    neuronlink_bytes_per_ns=documented(2199.0, "trn3 architecture page: NeuronLink-v4, 2,048 GiB/s per chip"),
    chips_per_node=documented(64, "trn3 architecture page: an UltraServer Gen1; Gen2 joins 144"),
    collective_hop_ns=assumed(1500.0, "as trn2"),
    torus=documented(0, "trn3 architecture page: switches instead of a torus, all to all"),
    collective_peer_engines=assumed(4, "as trn2"),
    collective_launch_ns=assumed(10700.0, "as trn2"),
    network_bytes_per_ns=documented(
        25.0, "trn3 architecture page: EFA, 12,800 Gbps over 64 chips, 28,800 over 144"
    ),
    network_hop_ns=assumed(15000.0, "as trn2"),
)

MACHINES: dict[str, Machine] = {m.name: m for m in (TRN1, TRN2, TRN3)}

# Other words for the same three rows: of AWS, and trn3pre, which published host scripts set.
ALIASES = {
    "inf2": "trn1", "trn1n": "trn1", "trn3pre": "trn3", "gen2": "trn1", "gen3": "trn2", "gen4": "trn3",
}  # fmt: skip


def chip_named(name: str) -> Machine:
    """The row of a chip, by its name or one of its other names.

    Raises:
        UsageError: if no row has this name.
    """
    row = MACHINES.get(ALIASES.get(name.lower(), name.lower()))
    if row is None:
        raise UsageError(
            f"target is {name}; it must be one of {', '.join([*MACHINES, *ALIASES])}",
            hint=did_you_mean(
                name,
                [*MACHINES, *ALIASES],
                "a chip with constants of its own is the path of a machine file, MACHINE.yaml",
            ),
        )
    return row
