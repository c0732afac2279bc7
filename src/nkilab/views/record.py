"""A profile as plain data, ready for JSON: schema nkilab.profile/1."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..timing.work import QUEUES
from .lines import LineCost
from .run import Run
from .words import Spent, spent_on_path, verdict

SCHEMA = "nkilab.profile/1"
# How many moments a series over time has.
_MOMENTS = 200


def profile_dict(run: Run) -> dict[str, Any]:
    """Everything but single events; times in microseconds, sizes in bytes."""
    low, high = run.interval_us
    return {
        "schema": SCHEMA,
        "kernel": run.program.kernel_name,
        "target": run.program.machine.label,
        "model_version": run.timeline.model,
        "latency_us": run.timeline.latency_us,
        "interval_us": [low, high],
        "bound": run.summary.bound,
        "verdict": verdict(run),
        "notes": list(run.notes),
        "summary": run.summary.to_dict(),
        "critical_path": [_spent(s) for s in spent_on_path(run)],
        "engines": _engines(run),
        "lines": [_line(cost) for cost in run.lines],
        "dma": _dma(run),
        "memory": _memory(run),
        "roofline": _roofline(run),
        "together": None if run.together is None else run.together.to_dict(),
    }


def _spent(spent: Spent) -> dict[str, Any]:
    return {
        "kind": spent.kind,
        "what": spent.text,
        "engine": spent.engine,
        "is_spill": spent.is_spill,
        "is_collective": spent.is_collective,
        "time_us": spent.time_ns / 1000,
        "share": spent.share,
        "lines": [{"where": where, "time_us": time / 1000} for where, time in spent.lines],
    }


def _engines(run: Run) -> list[dict[str, Any]]:
    return [
        {
            "engine": engine,
            "busy_us": busy / 1000,
            "stalls": [
                {
                    "reason": s.reason,
                    "time_us": s.time_ns / 1000,
                    "count": s.count,
                    "longest_us": s.longest_ns / 1000,
                    "longest_at": run.program.place_of(int(run.timeline.row[s.event]))
                    if s.event >= 0
                    else "",
                }
                for s in run.stalls.stalls
                if s.engine == engine
            ],
        }
        for engine, busy in run.stalls.busy_ns.items()
    ]


def _line(cost: LineCost) -> dict[str, Any]:
    return {
        "where": cost.where,
        "path": cost.path,
        "line": cost.line,
        "critical_path_us": cost.path_ns / 1000,
        "busy_us": cost.busy_ns / 1000,
        "stalled_us": cost.stalled_ns / 1000,
        "count": cost.count,
        "dma_bytes": cost.moved_bytes,
        "opcodes": list(cost.opcodes),
    }


def moments(run: Run, count: int = _MOMENTS) -> np.ndarray:
    """Edges of equal spans of time from the launch to the end, in nanoseconds."""
    return np.linspace(0.0, max(run.timeline.latency_ns, 1.0), count + 1)


def _dma(run: Run) -> dict[str, Any]:
    edges = moments(run)
    return {
        "descriptor_sizes": [
            {"at_least_bytes": size, "descriptors": count, "bytes": moved}
            for size, count, moved in run.traffic.sizes()
        ],
        "span_us": float(edges[1]) / 1000,
        "gigabytes_per_second": {
            kind: np.round(run.traffic.bandwidth(edges, kind), 3).tolist()
            for number, kind in enumerate(QUEUES)
            if np.any(run.traffic.kind == number)
        },
    }


def _memory(run: Run) -> dict[str, Any]:
    edges, machine = moments(run), run.program.machine
    bank = machine.limit("psum_bank_bytes")
    sbuf, psum = run.occupancy.sbuf.most(edges), run.occupancy.psum.most(edges)
    return {
        "span_us": float(edges[1]) / 1000,
        "sbuf_bytes_per_partition": machine.limit("sbuf_bytes_per_partition"),
        "sbuf_bytes_used": sbuf.tolist(),
        "psum_banks": machine.limit("psum_banks"),
        "psum_banks_used": (-(-psum // bank)).tolist(),
    }


def _roofline(run: Run) -> dict[str, Any]:
    roofline = run.roofline
    return {
        "flops_per_byte": roofline.intensity,
        "flops_per_second": roofline.achieved,
        "peak_flops_per_second": roofline.peak,
        "bytes_per_second": roofline.bandwidth,
    }
