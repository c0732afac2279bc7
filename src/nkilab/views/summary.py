"""The summary of a run: metrics with Neuron Explorer's names, and what bounds it."""

from __future__ import annotations

from itertools import product

import numpy as np
from msgspec import Struct

from ..machine import Machine
from ..place.plan import Finding, Plan
from ..place.slots import DMA, ENGINES, slots_of
from ..tiles.tile import HBM, PSUM, SBUF
from ..timing.timeline import Timeline
from ..timing.work import transfer_lanes
from ..trace.program import Program
from .bound import BOUNDS, bound_of, occupancies
from .flops import Flops, flops_of_program, multiplications_of
from .metrics import COMPUTE_ENGINES
from .metrics import METRICS as METRICS

SCHEMA = "nkilab.summary/1"


class Summary(Struct, frozen=True):
    """Metrics of one run of one kernel."""

    kernel: str  # its name
    machine: str
    model: str  # version of the timing model
    values: dict[str, float]  # by name, every metric of `METRICS`, in its order and unit
    # per resource, the share of the time between first and last event that it is occupied
    occupancy: dict[str, float]
    bound: str  # what limits the run, a key of `bound.BOUNDS`
    findings: tuple[Finding, ...]  # of the plan

    def __getitem__(self, metric: str) -> float:
        """The value of a metric."""
        return self.values[metric]

    @property
    def bound_text(self) -> str:
        """Why this is the bound: its rule."""
        return BOUNDS[self.bound]

    def to_dict(self) -> dict[str, object]:
        """A plain dictionary: strings, numbers, lists and dictionaries only."""
        return {
            "schema": SCHEMA,
            "kernel": self.kernel,
            "target": self.machine,
            "model": self.model,
            "bound": self.bound,
            "bound_text": self.bound_text,
            "occupancy": dict(self.occupancy),
            "metrics": dict(self.values),
            "findings": [finding.to_dict() for finding in self.findings],
        }


def summarize(program: Program, plan: Plan, timeline: Timeline, beside_bytes: float = 0.0) -> Summary:
    """Everything that `METRICS` names, measured on a timeline.

    Args:
        program, plan, timeline: of the run.
        beside_bytes: what another core reads and writes in the same stack of HBM.
    """
    machine = program.machine
    packet_ns = packet_time(program, plan)
    values = {
        "total_time": timeline.latency_ns / 1000,
        "window_time": timeline.window_ns / 1000,
        **_engine_values(timeline),
        **_transfer_values(program, plan, timeline),
        "dma_packet_time": packet_ns / 1000,
        **_traffic(program, plan),
        "sbuf_peak_bytes": plan.peak_sbuf_bytes,
        "psum_peak_banks": plan.peak_psum_banks,
        "instruction_count": len(program),
    }
    values.update(_rates(machine, values, flops_of_program(program)))
    active_ns = timeline.active_ns("dma")
    lane_share = packet_ns / (machine["dma_engines"] * active_ns) if active_ns else 0.0
    hbm_bytes = values["hbm_read_bytes"] + values["hbm_write_bytes"] + beside_bytes
    occupancy = occupancies(machine, timeline, hbm_bytes, lane_share)
    return Summary(
        program.kernel_name,
        timeline.machine,
        timeline.model,
        {name: values[name] for name in METRICS},
        occupancy,
        bound_of(machine, timeline, occupancy),
        plan.findings,
    )


def _engine_values(timeline: Timeline) -> dict[str, float]:
    values: dict[str, float] = {}
    for engine in COMPUTE_ENGINES:
        here = timeline.of_engine(engine)
        active = timeline.active_ns(engine)
        values[f"{engine}_engine_active_time"] = active / 1000
        values[f"{engine}_engine_active_time_percent"] = 100 * timeline.share(active)
        values[f"{engine}_engine_instruction_time"] = (
            float((timeline.end_ns[here] - timeline.start_ns[here]).sum()) / 1000
        )
        values[f"{engine}_engine_instruction_count"] = len(here)
    counts = np.bincount(timeline.label, minlength=len(timeline.labels))
    by_label = dict(zip(timeline.labels, counts.tolist(), strict=True))
    values["matmul_instruction_count"] = sum(n for own, n in by_label.items() if own.startswith("MATMUL"))
    values["activate_instruction_count"] = by_label.get("ACTIVATE", 0)
    return values


def _transfer_values(program: Program, plan: Plan, timeline: Timeline) -> dict[str, float]:
    here = timeline.of_engine("dma")
    active = timeline.active_ns("dma")
    total = float(_moved_bytes(program).sum()) + sum(t.total_bytes for t in plan.transfers)
    return {
        "dma_active_time": active / 1000,
        "dma_active_time_percent": 100 * timeline.share(active),
        "dma_transfer_time": float((timeline.end_ns[here] - timeline.start_ns[here]).sum()) / 1000,
        "dma_transfer_count": len(here),
        "dma_transfer_total_bytes": total,
        "dma_transfer_average_bytes": total / len(here) if len(here) else 0.0,
        "dma_queue_count": int(np.count_nonzero(np.bincount(timeline.queue[here]))),
    }


def _moved_bytes(program: Program) -> np.ndarray:
    """Per row, the bytes its transfers move."""
    per_form = [sum(s.moved_bytes for s in form.steps) for form in program.forms]
    return np.array(per_form, np.int64)[np.array(program.form_column, np.int64)]


def packet_time(program: Program, plan: Plan) -> float:
    """Time of all DMA engines together, in nanoseconds."""
    machine = program.machine
    per_form = [
        sum(
            transfer_lanes(machine, s.descriptors, s.descriptor_bytes)[1]
            for s in f.steps
            if s.engine == "dma"
        )
        for f in program.forms
    ]
    total = float(np.array(per_form)[np.array(program.form_column, np.int64)].sum())
    return total + sum(transfer_lanes(machine, t.descriptors, t.descriptor_bytes)[1] for t in plan.transfers)


def hbm_traffic(program: Program, plan: Plan) -> float:
    """Bytes that a program reads and writes in HBM."""
    moved = _traffic(program, plan)
    return moved["hbm_read_bytes"] + moved["hbm_write_bytes"]


def _traffic(program: Program, plan: Plan) -> dict[str, float]:
    """Bytes read and written in each memory."""
    whole, counted = bytes_by_row(program), bytes_by_row(program, as_counted=True)
    save, reload = plan.spill_save_bytes, plan.spill_reload_bytes
    spilled = {f"{HBM}_read": reload + plan.loaded_again_bytes, f"{HBM}_write": save}
    spilled |= {f"{SBUF}_read": save, f"{SBUF}_write": spilled[f"{HBM}_read"]}
    values: dict[str, float] = {"spill_save_bytes": save, "spill_reload_bytes": reload}
    for place, rows in whole.items():
        values[f"{place}_whole_bytes"] = int(rows.sum()) + spilled.get(place, 0)
        values[f"{place}_bytes"] = round(float(counted[place].sum())) + spilled.get(place, 0)
    return values


def bytes_by_row(program: Program, *, as_counted: bool = False) -> dict[str, np.ndarray]:
    """Bytes that each row reads and writes, by memory and side, as "sbuf_read".

    Args:
        program: of the rows.
        as_counted: by the vendor's profiler: transfers in full, engines a 128th; of the operands that an
            engine other than TensorE reads the first; every MATMUL instruction. So are the counters of
            NKIBench's profiles, to the byte where its compiler keeps the instructions.
    """
    slots = slots_of(program)
    form = np.array(program.form_column, np.int64)
    size = np.array([g.size * g.itemsize for g in slots.layouts], np.int64)[slots.layout]
    # a barrier stands between accesses of its operand and moves no byte of it
    moves = np.array([not getattr(f, "only_orders", False) for f in program.forms], np.bool_)
    size = size * moves[form][slots.row]
    memory = np.array([g.memory for g in slots.layouts])[slots.layout]
    is_transfer = slots.engine == DMA
    # a matmul that adds into PSUM does so where the bytes lie; a transfer that adds reads them
    reads = slots.is_read & (~slots.is_written | is_transfer[slots.row])
    if as_counted:
        has_two = is_transfer | (slots.engine == ENGINES.index("tensor"))
        here = np.flatnonzero(reads)
        is_first = np.zeros(len(reads), np.bool_)
        is_first[here[np.unique(slots.row[here], return_index=True)[1]]] = True
        reads &= is_first | has_two[slots.row]
        times = np.array([max(1, multiplications_of(f)) for f in program.forms], np.int64)[form]
        size = size * np.where(is_transfer, 1.0, times / 128)[slots.row]
    values: dict[str, np.ndarray] = {}
    for name, (side, does) in product((HBM, SBUF, PSUM), (("read", reads), ("write", slots.is_written))):
        own = does & (memory == name)
        values[f"{name}_{side}"] = np.bincount(slots.row[own], size[own], len(program))
    return values


def _rates(machine: Machine, values: dict[str, float], flops: Flops) -> dict[str, float]:
    model, once = flops.hardware - flops.transposes, flops.once - flops.transposes_once
    seconds = values["total_time"] * 1e-6
    peak, stack = machine["peak_tflops_bf16"] * 1e12, machine["hbm_stack_bytes_per_ns"] * 1e9
    traffic = values["hbm_read_bytes"] + values["hbm_write_bytes"]
    intensity, knee = model / traffic if traffic else 0.0, peak / stack
    # a kernel without instructions takes no time on a machine whose launches take none
    most = peak * (seconds or float("inf"))
    return {
        "hardware_flops": flops.hardware,
        "transpose_flops": flops.transposes,
        "model_flops": model,
        "adjusted_hardware_flops": flops.adjusted,
        "adjusted_transpose_flops": flops.adjusted_transposes,
        "hardware_flops_once": flops.once,
        "model_flops_once": once,
        "mfu_estimated_percent": 100 * model / most,
        "mfu_max_achievable_estimated_percent": 100 * min(1.0, intensity / knee),
        "hfu_estimated_percent": 100 * flops.hardware / most,
        "mfu_once_percent": 100 * once / most,
        "hfu_once_percent": 100 * flops.once / most,
        "mbu_estimated_percent": 100 * traffic / (seconds or float("inf")) / stack,
        "mm_arithmetic_intensity": intensity,
        "peak_flops_bandwidth_ratio": knee,
    }
