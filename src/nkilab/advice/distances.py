"""How far a kernel is from its limits: four latencies that less and less of the program allows for."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from ..place import dependences
from ..place.edges import Waits
from ..place.slots import slots_of
from ..place.walk import FLOW
from ..tiles.tile import HBM
from ..timing import latency_ns
from ..timing.work import Work, work_of
from ..trace.program import Program
from ..views.guidance import Distance
from ..views.summary import Summary
from ..views.units import duration, quantity
from ..views.words import ENGINE_NAMES
from .equal_values import equals_of, without_copies
from .reorder import longest_after, reordered
from .subject import Subject


def distances_of(subject: Subject, summary: Summary) -> tuple[Distance, ...]:
    """The distances of a kernel, the nearest limit first."""
    if not len(subject.program):
        return ()
    limits = [_perfect_overlap(subject), _roofline(subject, summary)]
    if subject.may_be_edited:
        waits = dependences(subject.program)
        free = _timed(subject, subject.program, waits)
        limits += [_best_order(subject, free, waits), _least_traffic(subject, free)]
    latency = subject.latency_ns
    known = [Distance(name, ns / 1000, max(1.0, latency / ns), words) for name, ns, words in limits if ns > 0]
    return tuple(sorted(known, key=lambda own: -own.time_us))


def _roofline(subject: Subject, summary: Summary) -> tuple[str, float, str]:
    machine = subject.program.machine
    flops = summary["adjusted_hardware_flops"] - summary["adjusted_transpose_flops"]
    compute = flops / (machine["peak_tflops_bf16"] * 1e3)
    moved = _compulsory_bytes(subject.program)
    rate = min(machine["dma_engines"] * machine["dma_bytes_per_ns"], machine["hbm_bytes_per_ns"])
    transfer = moved / rate
    which = (
        "multiplications at the peak rate" if compute > transfer else f"{quantity(moved, 'bytes')} moved once"
    )
    need = max(compute, transfer)
    return "roofline", subject.fixed_ns + need, f"launch and end, and {duration(need)} for {which}"


def _compulsory_bytes(program: Program) -> float:
    """Bytes of arguments and results, each counted once, as far as the kernel touches them."""
    slots = slots_of(program)
    in_hbm = np.flatnonzero(slots.kinds.lie_in(HBM)[slots.storage])
    columns = [column[in_hbm].tolist() for column in (slots.storage, slots.offset, slots.layout)]
    regions = {*zip(*columns, strict=True)}
    touched: dict[int, float] = {}
    for storage, _, number in regions:
        own = slots.layouts[number]
        touched[storage] = touched.get(storage, 0.0) + own.size * own.itemsize
    return sum(min(moved, float(program.storages[s].bytes_per_partition)) for s, moved in touched.items())


def _perfect_overlap(subject: Subject) -> tuple[str, float, str]:
    busy = subject.occupied_ns
    name = max(busy, key=lambda engine: busy[engine])
    rest = subject.latency_ns - subject.fixed_ns - busy[name]
    words = f"{ENGINE_NAMES[name]} works {duration(busy[name])} and waits {duration(max(rest, 0.0))}"
    return "perfect overlap", subject.fixed_ns + busy[name], words


def _best_order(subject: Subject, free: float, waits: Waits) -> tuple[str, float, str]:
    ordered, _ = reordered(subject.program, -_levels(waits, subject.work), waits)
    best = min(free, _timed(subject, ordered, dependences(ordered)), subject.latency_ns)
    words = "the order of the instructions, and waits for free buffers"
    return "best order", best, words if best < subject.latency_ns else "no order that was tried is faster"


def _levels(waits: Waits, work: Work) -> np.ndarray:
    """Per row the longest way from its start to the end of the program, in nanoseconds."""
    lasts = np.array([s.busy_ns or s.work_ns / max(s.lanes, 1.0) + s.start_ns for s in work.shares])[
        work.share
    ]
    return longest_after(waits, lasts[: len(waits.start) - 1])


def _timed(subject: Subject, program: Program, waits: Waits) -> float:
    """Nanoseconds of a program whose rows wait for results alone, as with a tile for each result."""
    keep = waits.kind == FLOW
    kept = np.concatenate([[0], np.cumsum(keep)])
    flow = Waits(kept[waits.start], waits.node[keep], waits.kind[keep])
    placed = replace(subject.plan, rows=len(program), waits=flow, transfers=())
    return latency_ns(program, placed, work_of(program, placed))


def _least_traffic(subject: Subject, free: float) -> tuple[str, float, str]:
    program = subject.program
    equals = equals_of(program)
    loads = {tile: first for tile, first in equals.first.items()
             if all(program.form_of(row).name == "dma_copy" for row in equals.writers[tile])}  # fmt: skip
    if loads:
        shorter, _ = without_copies(program, loads, equals)
        free = _timed(subject, shorter, dependences(shorter))
    records = program.storages
    again = sum(records[tile].partitions * records[tile].bytes_per_partition for tile in loads)
    spilled = sum(transfer.total_bytes for transfer in subject.plan.transfers)
    twice = quantity(again + spilled, "bytes")
    words = f"{twice} moved more than once, spills included" if again + spilled else "no byte is moved twice"
    return "least traffic", min(free, subject.latency_ns), words
