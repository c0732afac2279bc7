"""What is measured and what of an estimate answers to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..api import Estimate
from ..errors import FileError
from ..isa.tensor_engine import NcTranspose
from ..place.slots import DMA
from ..trace.program import STANDALONE
from ..views.metrics import METRICS
from .counters import SAME_NAMES
from .row import Row

# Between what device and host report in nki.benchmark lie 44 to 84 us on trn2.
# Host time is no part of an estimate: rows that hold it are told apart and never judged.
HOST_US = 54.0
PARTITIONS = 128

Predict = Callable[[Row, Sequence[Estimate]], float]


@dataclass(frozen=True)
class Quantity:
    """Something that is measured on hardware and predicted by an estimate."""

    name: str  # as rows give it; its end is the unit
    # "time" for times with an interval, "activity" for times and shares of engines, "count" for numbers of
    # bytes, transfers and instructions, which have no error of the clock
    sort: str
    base: str  # what lies between the first and last moment measured
    predict: Predict  # the same of the estimates of a row's calls

    @property
    def has_host(self) -> bool:
        """Whether time of the host is part of it."""
        return self.name.startswith("host_")


def _summed(read: Callable[[Estimate], float]) -> Predict:
    return lambda row, estimates: sum(read(e) for e in estimates)


def _metric(name: str) -> Predict:
    return _summed(lambda estimate: estimate.summary[name])


def _with_identities(name: str, *, is_count: bool = False) -> Predict:
    """Transfers, or their bytes, with those of the identity matrices that TensorE transposes by.

    Under Beta 1 each type that is transposed there loads one from HBM with the constants of the NEFF; its
    time is part of the launch. Profiles of attention and of a transpose have as many more.
    """

    def read(estimate: Estimate) -> float:
        program = estimate.program
        transposes = [
            f for f in program.forms if isinstance(f, NcTranspose) and f.steps[0].engine == "tensor"
        ]
        types = {form.data.dtype for form in transposes} if program.compiler != STANDALONE else set()
        return estimate.summary[name] + sum(1 if is_count else PARTITIONS**2 * t.itemsize for t in types)

    return _summed(read)


def _share(engine: str) -> Predict:
    """The active time of an engine over the time that a profile spans."""

    def predict(row: Row, estimates: Sequence[Estimate]) -> float:
        active = sum(e.summary[f"{engine}_active_time"] for e in estimates)
        return 100 * active / sum(e.profile_us for e in estimates)

    return predict


def _events(row: Row, estimate: Estimate) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of the events with the row's label, in order of start."""
    timeline = estimate.timeline
    # the two instructions of a float32 multiplication, MATMUL LOW and HIGH, are both a MATMUL
    named = [i for i, own in enumerate(timeline.labels) if f"{own} ".startswith(f"{row.label} ")]
    if not row.label or not named:
        raise FileError(
            f"row {row.id} looks for {row.label!r}; its kernel has {', '.join(timeline.labels)}",
            hint="label is the opcode of one of its instructions",
        )
    here = np.flatnonzero(np.isin(timeline.label, named))
    return timeline.start_ns[here], timeline.end_ns[here]


def _duration(row: Row, estimates: Sequence[Estimate]) -> float:
    """The median over the later half of the instructions: what precedes has warmed up the engine."""
    start, end = _events(row, estimates[0])
    return float(np.median((end - start)[len(start) // 2 :]))


def _first_duration(row: Row, estimates: Sequence[Estimate]) -> float:
    start, end = _events(row, estimates[0])
    return float(end[0] - start[0])


def _interval(row: Row, estimates: Sequence[Estimate]) -> float:
    start, _ = _events(row, estimates[0])
    return float(np.median(np.diff(start)[len(start) // 2 :]))


def _transfer(estimate: Estimate) -> float:
    """Nanoseconds from the first to the last byte of the first transfer."""
    timeline = estimate.timeline
    first = int(np.flatnonzero(timeline.engine == DMA)[0])
    return float(timeline.end_ns[first] - timeline.start_ns[first])


def _descriptor(row: Row, estimates: Sequence[Estimate]) -> float:
    """What one more descriptor costs its DMA engine: the difference of two transfers of different length."""
    engines = estimates[0].program.machine["dma_engines"]
    longer = _transfer(estimates[1]) - _transfer(estimates[0])
    return longer * engines / (row.units[1] - row.units[0])


def _intercept(row: Row, estimates: Sequence[Estimate]) -> float:
    """What a launch costs besides its work: the first call does it once, the second twice."""
    return 2 * estimates[0].latency_us - estimates[1].latency_us


def _slope(row: Row, estimates: Sequence[Estimate]) -> float:
    return estimates[1].latency_us - estimates[0].latency_us


def _collective(row: Row, estimates: Sequence[Estimate]) -> float:
    """A collective that a launch of its own starts."""
    launch_ns = estimates[0].program.machine["collective_launch_ns"]
    return (launch_ns + _duration(row, estimates)) / 1000


def _host_call(row: Row, estimates: Sequence[Estimate]) -> float:
    """The launch and what the row says that the host takes for one."""
    return sum(e.latency_us for e in estimates) + float(row.options.get("dispatch_us", HOST_US))


def _host(row: Row, estimates: Sequence[Estimate]) -> float:
    return sum(e.latency_us for e in estimates) + HOST_US


_CORE = "from the launch on the NeuronCore to its end"
_PROFILE = "the span of a profile, with preamble and postamble of the NEFF"
_PARTS = ("tensor_engine", "vector_engine", "scalar_engine", "gpsimd_engine", "dma")

_WINDOW = "first to last byte that a DMA engine moves"
_COLD = "start of the first instruction, on a cold clock, to its visible result"


def _activities() -> list[Quantity]:
    """Active time of each engine, and its share of what a profile spans."""
    names = {part: part.removesuffix("_engine") for part in _PARTS}
    times = [
        Quantity(f"{name}_active_us", "activity", "at least one under way", _metric(f"{part}_active_time"))
        for part, name in names.items()
    ]
    shares = [
        Quantity(f"{name}_active_percent", "activity", "active time over the span of a profile", _share(part))
        for part, name in names.items()
    ]
    return times + shares


_ROWS = (
    Quantity("window_us", "time", _WINDOW, _summed(lambda e: e.window_us)),
    Quantity("nc_latency_us", "time", f"{_CORE}; nki.benchmark, NCL", _summed(lambda e: e.latency_us)),
    Quantity("device_us", "time", f"{_CORE}; device clock", _summed(lambda e: e.latency_us)),
    Quantity("profile_us", "time", _PROFILE, _summed(lambda e: e.profile_us)),
    Quantity("host_latency_us", "time", f"{_CORE}, and the host; nki.benchmark, L", _host),
    Quantity("host_call_us", "time", f"{_CORE}, and dispatch and synchronisation by the host", _host_call),
    Quantity("collective_us", "time", "a collective and its start by the runtime", _collective),
    Quantity("launch_us", "time", "what a launch costs besides its work; device clock", _intercept),
    Quantity("repeat_us", "time", "what one repetition of the work adds; device clock", _slope),
    Quantity("instruction_ns", "time", "start of an instruction to its visible result", _duration),
    Quantity("first_instruction_ns", "time", _COLD, _first_duration),
    Quantity("interval_ns", "time", "between the starts of neighbouring instructions", _interval),
    Quantity("transfer_ns", "time", "first to last byte of a transfer", lambda row, all: _transfer(all[0])),
    Quantity("descriptor_ns", "time", "between the descriptors of one DMA engine", _descriptor),
    *_activities(),
    Quantity("dma_packet_us", "activity", "sum over all DMA engines", _metric("dma_packet_time")),
    Quantity("dma_transfers", "count", "transfers", _with_identities("dma_transfer_count", is_count=True)),
    Quantity("dma_bytes", "count", "bytes moved by transfers", _with_identities("dma_transfer_total_bytes")),
    Quantity("hbm_read_bytes", "count", "bytes read from HBM", _with_identities("hbm_read_bytes")),
    Quantity("hbm_write_bytes", "count", "bytes written to HBM", _metric("hbm_write_bytes")),
    Quantity("matmuls", "count", "MATMUL instructions", _metric("matmul_instruction_count")),
    *(Quantity(name, "count", METRICS[name].definition, _metric(name)) for name in SAME_NAMES),
)

QUANTITIES: dict[str, Quantity] = {quantity.name: quantity for quantity in _ROWS}
