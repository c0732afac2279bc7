"""Numbers over time: rates of transfers, pending transfers, fullness of memories."""

from __future__ import annotations

import numpy as np

from ..occupancy import Residencies
from ..run import Run
from ..traffic import running_rate
from .events import Columns, span, whole

_QUARTERS = (0, 32, 64, 96)
# the banks of PSUM that the vendor's table has columns for
_BANKS = 8


def _rates(start: np.ndarray, end: np.ndarray, total: np.ndarray) -> Columns:
    """Moments at which the rate changes: the rate from then on, and all bytes until then."""
    moments, running = running_rate(start, np.maximum(end, start + 1e-3), total)
    moved = np.concatenate([[0.0], np.cumsum(running[:-1] * np.diff(moments))]) if len(moments) else moments
    return {
        "timestamp": whole(moments),
        "current_throughput": np.maximum(running, 0.0) * 1e9,
        "total_transfer_bytes": np.rint(moved).astype(np.int64),
        "pcore_idx": np.zeros(len(moments), np.int64),
    }


def dma_usage(run: Run) -> Columns:
    """Rate of all transfers."""
    traffic = run.traffic
    return _rates(traffic.start_ns, traffic.end_ns, traffic.total_bytes)


def hbm_usage(run: Run) -> Columns:
    """Rate of bytes to and from HBM."""
    traffic = run.traffic
    own = traffic.hbm_bytes > 0
    return _rates(traffic.start_ns[own], traffic.end_ns[own], traffic.hbm_bytes[own])


def pending(run: Run) -> Columns:
    """Transfers that are ready and have not ended."""
    traffic = run.traffic
    ready = run.timeline.ready_ns[traffic.event]
    moments = np.concatenate([ready, traffic.end_ns])
    change = np.concatenate([np.ones(len(ready), np.int64), -np.ones(len(ready), np.int64)])
    order = np.lexsort((-change, moments))
    return {
        "timestamp": whole(moments[order]),
        "value": np.cumsum(change[order]).astype(np.int32),
        "pcore_idx": np.zeros(len(order), np.int64),
    }


def sbuf_usage(run: Run) -> Columns:
    """Fullness of each quarter of SBUF whenever its content changes."""
    residencies = run.occupancy.sbuf
    partitions = np.array([s.partitions for s in run.program.storages] or [0])[residencies.storage]
    whole_bytes = run.program.machine.limit("sbuf_bytes_per_partition")
    sizes = {
        f"partition_{start}_util_percent": np.where(partitions > start, residencies.size, 0)
        for start in _QUARTERS
    }
    return _fullness(residencies, sizes, whole_bytes, shown=len(sizes))


def _fullness(
    residencies: Residencies, sizes: dict[str, np.ndarray], whole_bytes: float, shown: int
) -> Columns:
    """How full equal parts of a memory are whenever its content changes, and how full on average.

    Args:
        residencies: of the tiles.
        sizes: bytes that each stay takes of a part, by the column of the part.
        whole_bytes: of a part.
        shown: parts that have a column.
    """
    levels = {name: _levels(residencies, size)[1] / whole_bytes for name, size in sizes.items()}
    moments, _ = _levels(residencies, residencies.size)
    return {
        "timestamp": whole(moments),
        "avg_util_percent": np.mean(list(levels.values()), axis=0),
        **{name: levels[name] for name in list(levels)[:shown]},
        "pcore_idx": np.zeros(len(moments), np.int64),
    }


def _levels(residencies: Residencies, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Moments of changes and the bytes in use from then on, of stays taken to have other sizes."""
    moments = np.concatenate([residencies.start_ns, residencies.end_ns])
    change = np.concatenate([size, -size])
    # the same order for all sizes: what ends at a moment leaves first
    order = np.lexsort((np.repeat([1, 0], len(size)), moments))
    return moments[order], np.cumsum(change[order])


def psum_usage(run: Run) -> Columns:
    """Fullness of each bank of PSUM whenever the content changes."""
    residencies, machine = run.occupancy.psum, run.program.machine
    bank, banks = machine.limit("psum_bank_bytes"), machine.limit("psum_banks")
    sizes: dict[str, np.ndarray] = {}
    for number in range(banks):
        low, high = number * bank, (number + 1) * bank
        own = np.minimum(residencies.address + residencies.size, high) - np.maximum(residencies.address, low)
        sizes[f"bank_{number}_util_percent"] = np.maximum(own, 0)
    return _fullness(residencies, sizes, bank, shown=_BANKS)


def sbuf_allocation(run: Run) -> Columns:
    """Residencies of tiles in SBUF, once for each quarter of the partitions that they reach into."""
    residencies = run.occupancy.sbuf
    partitions = np.array([s.partitions for s in run.program.storages] or [0])[residencies.storage]
    pairs = [(q, i) for q in _QUARTERS for i in np.flatnonzero(partitions > q).tolist()]
    which = np.array([i for _, i in pairs], np.int64)
    times = span(residencies.start_ns[which], residencies.end_ns[which])
    return {
        "start_ts": times["start_ts"],
        "end_ts": times["end_ts"],
        "start_address": residencies.address[which],
        "end_address": residencies.address[which] + residencies.size[which] - 1,
        "partition": np.array([q for q, _ in pairs], np.int64),
        "tensor_name": [run.tile_names[s] for s in residencies.storage[which].tolist()],
        "pcore_idx": np.zeros(len(which), np.int64),
    }
