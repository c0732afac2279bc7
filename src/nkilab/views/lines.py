"""What each source line costs."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ..errors import printable
from ..place.slots import DMA, ENGINES
from ..timing.timeline import Timeline
from ..trace.program import Program
from .path import Path
from .traffic import Traffic


class LineCost(Struct, frozen=True):
    """One source line in a run."""

    path: str  # file, as the program has it
    line: int  # its number
    path_ns: float  # time on the critical path
    # time of engines that its instructions occupy, with weights that nothing hides, and of its transfers that
    # move bytes; what runs at once counts each
    busy_ns: float
    stalled_ns: float  # how long engines stood still right before its instructions
    count: int  # calls of instructions
    moved_bytes: int  # of its transfers
    opcodes: tuple[str, ...]  # of its instructions, as the vendor's profiler names them
    engines: tuple[str, ...]  # that run it

    @property
    def where(self) -> str:
        """ "file.py:41"."""
        name = printable(self.path.replace("\\", "/").rsplit("/", 1)[-1])
        return f"{name}:{self.line}"


def lines_of(
    program: Program, timeline: Timeline, path: Path, traffic: Traffic, before_ns: np.ndarray
) -> tuple[LineCost, ...]:
    """Lines with instructions, the costliest first: by time on the critical path, then by busy time.

    Transfers that planning inserted count for the line of the row that they make room for.
    """
    of_row = np.asarray(program.line_column, np.int64)
    of_event = of_row[timeline.row] if len(timeline) else np.zeros(0, np.int64)
    total = len(program.lines)
    on_path = path.row >= 0
    spent = np.bincount(of_row[path.row[on_path]], path.duration_ns[on_path], total)
    busy = np.bincount(of_event, timeline.busy_ns + timeline.weights_ns(), total)
    stalled = np.bincount(of_event, np.where(timeline.engine == DMA, 0.0, before_ns), total)
    count = np.bincount(of_row, minlength=total)
    moved = np.bincount(of_event[traffic.event], traffic.total_bytes, total)
    opcodes = _names(of_event, timeline.label, timeline.labels)
    engines = _names(of_event, timeline.engine, ENGINES)
    costs = [
        LineCost(
            *program.lines[n], float(spent[n]), float(busy[n]), float(stalled[n]), int(count[n]),
            int(moved[n]), opcodes.get(n, ()), engines.get(n, ()),
        )
        for n in np.flatnonzero(count).tolist()
    ]  # fmt: skip
    return tuple(sorted(costs, key=lambda c: (-c.path_ns, -c.busy_ns, c.path, c.line)))


def _names(line: np.ndarray, number: np.ndarray, names: tuple[str, ...]) -> dict[int, tuple[str, ...]]:
    """Per line the names that its events have, in the order of their numbers."""
    # with counts NumPy does not ask for masks, whose module is large
    pairs = np.unique(line * len(names) + number, return_counts=True)[0] if len(line) else line
    result: dict[int, tuple[str, ...]] = {}
    for pair in pairs.tolist():
        own, name = divmod(pair, len(names))
        result[own] = (*result.get(own, ()), names[name])
    return result
