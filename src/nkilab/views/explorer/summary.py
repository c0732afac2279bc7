"""The summary with the vendor's units, tensors, metadata and warnings.

Times are seconds; what ends in _percent is a share from 0 to 1, as the vendor's profiler writes it
(nki-library multiplies it by 100 before it shows it).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from msgspec.structs import replace

from ...tiles.tile import HBM
from ...timing.work import QUEUES
from ..bound import covered, is_collective
from ..metrics import METRICS
from ..run import Run
from ..summary import bytes_by_row, summarize
from .events import OUTPUTS, Columns
from .schema import SCHEMA_VERSION, TABLES

_CLOCKS = ("tensor", "vector", "scalar", "gpsimd")


def base_clock_ghz(run: Run) -> float:
    """The base clock of the core: that of ScalarE (schema, neuroncore_cycle_count: trn1 1.4, trn2 1.2)."""
    return run.program.machine["scalar_clock_ghz"]


def summary_row(run: Run) -> dict[str, Any]:
    """Metrics by name, in the order of the schema; None where nothing predicts one.

    Of a run under the profiler, which spans more: its notifications of start and stop (schema, total_time).
    """
    latency_ns = run.timeline.latency_ns + run.program.machine["profile_extra_ns"]
    timeline = replace(run.timeline, latency_ns=latency_ns)
    run = replace(run, timeline=timeline, summary=summarize(run.program, run.plan, timeline))
    metrics: dict[str, Any] = {}
    for name, value in run.summary.values.items():
        scale = {"us": 1e-6, "percent": 0.01}.get(METRICS[name].unit, 1)
        metrics[name] = value * scale
    metrics |= _time_metrics(run) | _dma_metrics(run) | _flop_metrics(run) | _size_metrics(run)
    metrics |= _collective_metrics(run)
    nothing: tuple[str, ...] = ("software_dynamic_dma",)
    if not metrics["cc_op_count"]:
        # what programs CC-cores run for a collective, no prediction tells
        nothing += ("cc_cores_instruction",)
    result: dict[str, Any] = {}
    for field in TABLES["Summary"]:
        metric = metrics.get(field.name, 0 if field.name.startswith(nothing) else None)
        result[field.name] = round(metric) if metric is not None and field.type == "int64" else metric
    return result


def _time_metrics(run: Run) -> dict[str, float]:
    timeline = run.timeline
    sync = timeline.of_engine("sync")
    active = covered(timeline.start_ns, timeline.end_ns)
    span = float(timeline.end_ns.max() - timeline.start_ns.min()) if len(timeline) else 0.0
    activate = [n for n, label in enumerate(timeline.labels) if label == "ACTIVATE"]
    acts = np.isin(timeline.label, activate)
    return {
        "neuroncore_cycle_count": timeline.latency_ns * base_clock_ghz(run),
        "sync_engine_active_time": timeline.active_ns("sync") * 1e-9,
        "sync_engine_active_time_percent": timeline.share(timeline.active_ns("sync")),
        "sync_engine_instruction_time": float((timeline.end_ns - timeline.start_ns)[sync].sum()) * 1e-9,
        "sync_engine_instruction_count": len(sync),
        "activate_instruction_time": float((timeline.end_ns - timeline.start_ns)[acts].sum()) * 1e-9,
        "total_exec_time": span * 1e-9,
        "total_active_time": active * 1e-9,
        "total_active_time_percent": timeline.share(active),
        "trace_count": len(timeline),
        "event_count": 0,
    }


def _dma_metrics(run: Run) -> dict[str, float]:
    """Transfers by how their descriptors are made: beforehand, or by hardware while the kernel runs."""
    traffic, summary = run.traffic, run.summary
    is_static = run.program.has_static_descriptors
    active, share = summary["dma_active_time"] * 1e-6, summary["dma_active_time_percent"] / 100
    total = float(traffic.total_bytes.sum())
    packets = float(traffic.descriptors.sum())
    store = traffic.kind == QUEUES.index("store")
    load = traffic.kind == QUEUES.index("load")
    result = {
        "dma_active_cycles": active * 1e9 * base_clock_ghz(run),
        "input_queue_bytes": float(traffic.total_bytes[load].sum()),
        "output_queue_bytes": float(traffic.total_bytes[store].sum()),
        "weight_queue_bytes": 0,
    }
    for kind, is_of_kind in (("static", is_static), ("hardware_dynamic", not is_static)):
        own = float(is_of_kind)
        result |= {
            f"{kind}_dma_active_time": own * active,
            f"{kind}_dma_active_time_percent": own * share,
            f"{kind}_dma_packet_count": own * packets,
            f"{kind}_dma_size": own * total,
            f"{kind}_dma_packet_percent": own if packets else 0.0,
            f"{kind}_dma_size_percent": own if total else 0.0,
        }
    dynamic = float(not is_static)
    return result | {
        "dynamic_dma_active_time_percent": dynamic * share,
        "dynamic_dma_packet_percent": dynamic if packets else 0.0,
        "dynamic_dma_size_percent": dynamic if total else 0.0,
    }


def _collective_metrics(run: Run) -> dict[str, float]:
    """Collectives from the first byte that ranks exchange to the last; a call is one operation."""
    timeline = run.timeline
    own = is_collective(timeline)
    start, end = timeline.start_ns[own], timeline.end_ns[own]
    active = covered(start, end)
    # parts of one call start apart and are one operation
    _, operation = np.unique(timeline.row[own], return_inverse=True)
    count = int(operation.max(initial=-1)) + 1
    first, last = np.full(count, np.inf), np.zeros(count)
    np.minimum.at(first, operation, start)
    np.maximum.at(last, operation, end)
    return {
        "cc_op_time": float((last - first).sum()) * 1e-9,
        "cc_op_active_time": active * 1e-9,
        "cc_op_active_time_percent": timeline.share(active),
        "cc_op_count": count,
    }


def _flop_metrics(run: Run) -> dict[str, float]:
    summary = run.summary
    return {
        "mfu_inst_estimated_percent": summary["mfu_estimated_percent"] / 100,
        "mfu_inst_max_achievable_estimated_percent": summary["mfu_max_achievable_estimated_percent"] / 100,
        # statistics of a framework's graph, which a kernel alone does not have
        "mfu_hlo_estimated_percent": 0.0,
        "mfu_hlo_max_achievable_estimated_percent": 0.0,
    }


def _size_metrics(run: Run) -> dict[str, float]:
    storages = [s for s in run.program.storages if s.memory == HBM]
    inputs = sum(s.bytes_per_partition for s in storages if s.scope == "input")
    outputs = sum(s.bytes_per_partition for s in storages if s.scope in OUTPUTS)
    least_ns = inputs / run.program.machine["hbm_stack_bytes_per_ns"]
    moved = bytes_by_row(run.program, as_counted=True)
    leaves = (moved["psum_read"] > 0) & (moved["sbuf_write"] > 0)
    return {
        "inputs_and_weights_size_bytes": inputs,
        "inputs_outputs_weights_size_bytes": inputs + outputs,
        "weight_size_bytes": 0,
        "mbu_min_read_util_percent": run.timeline.share(least_ns),
        "psum_read_sbuf_write_count": int(np.count_nonzero(leaves)),
        "psum_read_sbuf_write_bytes": float(moved["sbuf_write"][leaves].sum()),
    }


def _loads(run: Run) -> dict[int, list[int]]:
    """Per storage in HBM the bytes of each load of the kernel's from it."""
    program, timeline, traffic = run.program, run.timeline, run.traffic
    loads: dict[int, list[int]] = {}
    columns = (traffic.event, traffic.total_bytes, traffic.kind)
    for event, size, kind in zip(*(c.tolist() for c in columns), strict=True):
        if QUEUES[kind] != "load" or timeline.node[event] >= len(program):
            continue
        accesses = program.accesses(int(timeline.row[event]))
        read = next((a for a in accesses if a.layout.memory == HBM and a.is_read), None)
        if read is not None:
            loads.setdefault(read.storage, []).append(size)
    return loads


def tensors(run: Run) -> Columns:
    """Tensors in HBM that the kernel gets or returns, and how often they are loaded."""
    program, loads = run.program, _loads(run)
    shown = [
        (n, s) for n, s in enumerate(program.storages) if s.memory == HBM and s.scope in ("input", *OUTPUTS)
    ]
    total = [sum(loads.get(n, [])) for n, _ in shown]
    count = [len(loads.get(n, [])) for n, _ in shown]
    return {
        "variable_name": [run.tile_names[n] for n, _ in shown],
        "type": ["IN" if s.scope == "input" else "OUT" for _, s in shown],
        "shape": [str(list(s.shape)) for _, s in shown],
        "size": np.array([s.bytes_per_partition for _, s in shown], np.int64),
        "pcore_idx": np.zeros(len(shown), np.int64),
        "load_to_sbuf_avg_size_bytes": [t // c if c else 0 for t, c in zip(total, count, strict=True)],
        "load_to_sbuf_total_size_bytes": total,
        "load_to_sbuf_dma_count": count,
        "load_to_sbuf_repeat_factor": [
            t / s.bytes_per_partition for t, (_, s) in zip(total, shown, strict=True)
        ],
    }


def ranks_of(run: Run) -> dict[str, tuple[Run, ...]]:
    """By name of the rank, "" where there is one, the runs of its cores in order."""
    if run.together is None:
        return {"": (run,)}
    runs_by_rank: dict[str, dict[str, Run]] = {}
    for one in run.together.cores:
        for title in one.titles:
            rank, _, core = title.partition(", ") if title.startswith("rank") else ("", "", title)
            runs_by_rank.setdefault(rank, {})[core] = one.estimate.run
    by_number = sorted(runs_by_rank, key=lambda rank: int(rank.removeprefix("rank ") or 0))
    return {
        rank: tuple(runs_by_rank[rank][core] for core in sorted(runs_by_rank[rank])) for rank in by_number
    }


def slowest_of(cores: Sequence[Run]) -> Run:
    """Of the cores of a rank the one that ends last, the first of several."""
    return max(cores, key=lambda one: one.timeline.latency_ns)


def metadata(run: Run, cores: int) -> Columns:
    """One row about the chip and the tool."""
    machine, latency = run.program.machine, run.timeline.latency_ns
    begin = datetime(1970, 1, 1, tzinfo=UTC)
    row: dict[str, Any] = {
        "profile_schema_version": SCHEMA_VERSION, "ntff_version": 1, "num_physical_cores": cores,
        "vnc_enabled": cores > 1,
        "first_hw_timestamp": 0, "last_hw_timestamp": round(latency), "first_ts": str(begin),
        "last_ts": str(begin + timedelta(microseconds=latency / 1000)),
        "dma_ddr_bandwidth": machine["hbm_bytes_per_ns"] * 1e9,
        "num_dma_engines_per_neuroncore": machine.limit("dma_engines"),
        "hbm_ddr_bandwidth": machine["hbm_stack_bytes_per_ns"] * 1e9,
        "tensor_engine_num_rows": machine.limit("partitions"),
        "tensor_engine_num_cols": machine.limit("stationary_free_max"),
        "neuroncore_clock_freq": base_clock_ghz(run), "ticks_per_nanosec": 1,
        "explorer_version": f"nkilab, timing model {run.timeline.model}",
        "profile_name": run.program.kernel_name, "is_simulation": True,
    }  # fmt: skip
    for engine in _CLOCKS:
        row[f"{engine}_engine_clock_freq"] = machine[f"{engine}_clock_ghz"]
        if engine != "tensor":
            row[f"{engine}_engine_num_channels"] = machine.limit("partitions")
    return {name: [value] for name, value in row.items()}


def warnings_of(run: Run) -> Columns:
    """Findings of the plan, and what the numbers leave out."""
    rows = [(f"{f.where}: {f.message}", f.rule) for f in run.summary.findings]
    rows += [(note, "note") for note in run.notes]
    return {"message": [text for text, _ in rows], "category": [rule for _, rule in rows]}
