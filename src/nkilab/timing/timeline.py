"""When everything happened: events as columns."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ..place.slots import ENGINES

# Why an event did not start earlier.
REASONS = ("none", "dma", "engine", "reuse", "spill", "order", "issue", "queue", "port", "meeting")
REASON_TEXTS = {
    "none": "nothing: it started with the kernel",
    "dma": "data that a transfer brought, or space that it emptied",
    "engine": "a result of another instruction",
    "reuse": "the last access of the tile that held its bytes before",
    "spill": "a spill or reload",
    "order": "the instruction before it on its engine",
    "issue": "an issuing unit of the DMA engines",
    "queue": "the transfer before it in its queue",
    "port": "a port of a memory that another engine held",
    "meeting": "another core or rank, which came later",
}


# What all events of a node share, and all columns of events in the order of files.
OF_NODES = ("engine", "queue", "ready_ns", "issued_ns", "row", "reason", "waited_row", "waited_node",
            "ready_reason", "ready_node", "issuer_node")  # fmt: skip
COLUMNS = (*OF_NODES[:2], "start_ns", "end_ns", "busy_ns", *OF_NODES[2:5], "node", "label", *OF_NODES[5:])


class Timeline(Struct, frozen=True, eq=False, dict=True):
    """What a program does in time, in nanoseconds from the start of the kernel.

    Events stand in the order of their start; events of one engine may overlap by their latency, products on
    different tiles of the systolic array altogether. What the events of a node share is kept once; these
    columns are read like the others, per event:

        engine: position in `ENGINES`.
        queue: DMA queue; -1 on other engines.
        ready_ns: when everything that it waits for was there.
        issued_ns: of a transfer, when an issuing unit took it; -1 on other engines.
        row: of the program; of an inserted transfer the row it stands before.
        reason: position in `REASONS`.
        waited_row, waited_node: the one it waited for longest; -1 if none.
        ready_reason, ready_node: why it was not ready earlier, and the one it waited for; -1 if none.
        issuer_node: of a transfer, the one whose issuing it waited for; -1 if none.
    """

    machine: str  # name of the chip
    model: str  # version of the timing model
    latency_ns: float  # from the start of the kernel to its end, its fixed costs included
    # start of the first and end of the last transfer; of all events if there is none
    window: tuple[float, float]
    issue_ns: float  # how long the units that issue transfers are occupied, over all transfers
    labels: tuple[str, ...]  # opcodes, as the vendor's profiler names them
    # start_ns, end_ns: per event, from its start to the last visible result
    start_ns: np.ndarray
    end_ns: np.ndarray
    # per event, how long its engine, or its tile of the systolic array, accepted nothing else; 0 for what
    # hides behind another event
    busy_ns: np.ndarray
    node: np.ndarray  # per event, node of the plan: the row, or beyond the rows an inserted transfer
    label: np.ndarray  # per event, position in `labels`
    place: np.ndarray  # per event, where what it shares stands in the columns of `of_nodes`
    of_nodes: dict[str, np.ndarray]

    def __getattr__(self, name: str) -> np.ndarray:
        if name not in OF_NODES:
            raise AttributeError(name)
        column: np.ndarray = self.of_nodes[name][self.place]
        vars(self)[name] = column
        return column

    def __len__(self) -> int:
        return len(self.start_ns)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Timeline):
            return NotImplemented
        names = (*self.__struct_fields__[:6], *COLUMNS)
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]

    @property
    def window_ns(self) -> float:
        """From the first to the last byte that a DMA engine moves."""
        return self.window[1] - self.window[0]

    @property
    def latency_us(self) -> float:
        """Latency in microseconds."""
        return self.latency_ns / 1000

    def share(self, ns: float) -> float:
        """A time as a share of the latency; 0 where a kernel without instructions takes none."""
        return ns / self.latency_ns if self.latency_ns else 0.0

    def of_engine(self, engine: str) -> np.ndarray:
        """Positions of the events of an engine ("tensor", ..., "dma"), in order of start."""
        return np.flatnonzero(self.engine == ENGINES.index(engine))

    def busy_intervals(self, engine: str) -> np.ndarray:
        """[n, 2]: the merged intervals in which an engine has an event under way."""
        here = self.of_engine(engine)
        start, end = self.start_ns[here], self.end_ns[here]
        if not len(here):
            return np.zeros((0, 2))
        reached = np.maximum.accumulate(end)
        is_new = np.ones(len(here), np.bool_)
        is_new[1:] = start[1:] > reached[:-1]
        firsts = np.flatnonzero(is_new)
        lasts = np.append(firsts[1:], len(here)) - 1
        return np.column_stack([start[firsts], reached[lasts]])

    def weights_ns(self) -> np.ndarray:
        """Per event, how long TensorE loads weights right before it that no multiplication hides."""
        here = self.of_engine("tensor")
        here = here[self.busy_ns[here] > 0]
        reached = np.maximum.accumulate(self.start_ns[here] + self.busy_ns[here])
        since = np.maximum(self.ready_ns[here], np.append(-np.inf, reached[:-1])[: len(here)])
        result = np.zeros(len(self))
        result[here] = np.maximum(self.start_ns[here] - since, 0.0)
        return result

    def occupied_ns(self, engine: str) -> float:
        """How long an engine is busy: nothing else fits on it, on any tile of its array, or weights load."""
        here = self.of_engine(engine)
        start, busy = self.start_ns[here], self.busy_ns[here]
        reached = np.maximum.accumulate(start + busy)
        shared = np.clip(reached[:-1] - start[1:], 0.0, busy[1:])
        return float(busy.sum() - shared.sum() + self.weights_ns()[here].sum())

    def active_ns(self, engine: str) -> float:
        """How long an engine has an event under way."""
        intervals = self.busy_intervals(engine)
        return float((intervals[:, 1] - intervals[:, 0]).sum())
