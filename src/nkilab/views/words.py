"""The bound and the critical path in words, with source lines."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ..place.slots import DMA, ENGINES
from .bound import BOUNDS, is_collective
from .path import KINDS
from .run import Run
from .units import duration

# What helps against each bound in general; what helps a kernel is found by simulation (`guidance.py`).
HINTS = {
    "tensor engine": "use a type that TensorE multiplies faster, or give it less to multiply",
    "vector engine": "move work to ScalarE or GpSimdE, or fuse instructions",
    "scalar engine": "move work to VectorE, or fuse instructions",
    "gpsimd engine": "move work to VectorE or ScalarE",
    "sync engine": "move work to another engine",
    "DMA bandwidth": "move fewer bytes: keep in SBUF what is used again, block the loops",
    "HBM bandwidth": "move fewer bytes: keep in SBUF what is used again, also for the other core",
    "DMA issue": "make fewer and larger transfers: load several tiles at once",
    "collectives": "exchange fewer bytes, or in parts, while engines work on the next one",
    "DMA latency": "start transfers earlier: load the next tile while this one is worked on",
    "dependence": "let engines work on different tiles at once: use more tiles and PSUM banks",
    "nothing": "",
}
ENGINE_NAMES = {
    "tensor": "TensorE", "vector": "VectorE", "scalar": "ScalarE", "gpsimd": "GpSimdE", "sync": "SyncE",
    "dma": "DMA",
}  # fmt: skip
_AWAITED = ENGINE_NAMES | {"dma": "transfers", "buffer": "a free buffer", "spill": "spills", "port": "a port"}
# Transfers that a kernel asks for, that planning inserts, and those of collectives are told apart.
_SORTS = ("", "spill", "collective")


class Spent(Struct, frozen=True):
    """Time of one kind on the critical path."""

    kind: str  # a key of `path.KINDS`
    engine: str  # who spends it, of `ENGINES`; "" for launch, end and signals
    # whether it is spent on transfers that planning inserted; lines are then those they stand before
    is_spill: bool
    is_collective: bool  # whether it is spent on collectives
    time_ns: float  # in all
    share: float  # of the latency, from 0 to 1
    # "file.py:41" of its source lines with their times, the longest first
    lines: tuple[tuple[str, float], ...]

    @property
    def text(self) -> str:
        """What happens in that time."""
        if self.kind == "execute":
            return f"{ENGINE_NAMES[self.engine]} executes instructions"
        if self.kind == "result":
            return f"a result travels through {ENGINE_NAMES[self.engine]} until others see it"
        what = (
            "a spill or reload" if self.is_spill else "a collective" if self.is_collective else "a transfer"
        )
        return KINDS[self.kind].replace("a transfer", what)


def spent_on_path(run: Run) -> tuple[Spent, ...]:
    """The critical path by kind and engine, what takes longest first."""
    path, timeline = run.path, run.timeline
    if not len(path):
        return ()
    own = path.event >= 0
    engine, sort, line = np.full(len(path), -1), np.zeros(len(path), np.int64), np.full(len(path), -1)
    engine[own] = timeline.engine[path.event[own]]
    engine[path.kind == list(KINDS).index("signal")] = -1
    inserted = timeline.node[path.event[own]].astype(np.int64) - len(run.program)
    sort[own] = np.where(
        (inserted >= 0) & (inserted < len(run.plan.transfers)) & (engine[own] == DMA),
        _SORTS.index("spill"),
        np.where(is_collective(timeline)[path.event[own]], _SORTS.index("collective"), 0),
    )
    sort[engine < 0] = 0
    line[own] = np.asarray(run.program.line_column, np.int64)[path.row[own]]
    key = (path.kind.astype(np.int64) * 100 + engine + 1) * len(_SORTS) + sort
    places = [_spent(run, key == one, one, line) for one in sorted({*key.tolist()})]
    return tuple(sorted(places, key=lambda s: -s.time_ns))


def _spent(run: Run, here: np.ndarray, key: int, line: np.ndarray) -> Spent:
    """What one kind of pieces takes, and where."""
    key, sort = divmod(key, len(_SORTS))
    kind, owner = divmod(key, 100)
    lasts = run.path.duration_ns[here]
    by_line = np.bincount(line[here] + 1, lasts)
    order = sorted(np.flatnonzero(by_line).tolist(), key=lambda n: -by_line[n])
    lines = tuple((_where(run, n - 1), float(by_line[n])) for n in order if n)
    total = float(lasts.sum())
    name = ENGINES[owner - 1] if owner else ""
    return Spent(
        list(KINDS)[kind],
        name,
        _SORTS[sort] == "spill",
        _SORTS[sort] == "collective",
        total,
        run.timeline.share(total),
        lines,
    )


def _where(run: Run, line: int) -> str:
    path, number = run.program.lines[line]
    return f"{run.sources[path].name}:{number}"


def verdict(run: Run) -> list[str]:
    """What bounds the kernel and why it takes as long as it does: a sentence each."""
    summary = run.summary
    sentences = [f"It is bound by {summary.bound}: {BOUNDS[summary.bound]}."]
    for spent in spent_on_path(run)[:3]:
        if spent.share < 0.05:
            break
        at = "before" if spent.is_spill else "at"
        where = f", most of it {at} {spent.lines[0][0]}" if spent.lines else ""
        sentences.append(
            f"{100 * spent.share:.1f} % of the time ({duration(spent.time_ns)}) {spent.text}{where}."
        )
    sentences += [_stalled(run, engine) for engine in run.stalls.busy_ns if engine != "dma"]
    sentences.append(run.guidance.sentence)
    return [s for s in sentences if s]


def _stalled(run: Run, engine: str) -> str:
    """The greatest loss of an engine that works at least a quarter of the time; "" if there is none."""
    busy = run.stalls.busy_ns[engine]
    lost = {r: t for r, t in run.stalls.of(engine).items() if r not in ("start", "end")}
    if busy < run.timeline.latency_ns / 4 or not lost:
        return ""
    reason, time = max(lost.items(), key=lambda item: item[1])
    share = run.timeline.share(time)
    if share < 0.02:
        return ""
    stall = next(s for s in run.stalls.stalls if s.engine == engine and s.reason == reason)
    where = run.program.place_of(int(run.timeline.row[stall.event]))
    return (
        f"{ENGINE_NAMES[engine]} waits for {_AWAITED.get(reason, reason)} {100 * share:.1f} % of the time "
        f"({duration(time)}); the longest wait is at {where} ({duration(stall.longest_ns)})."
    )
