"""The bound and the critical path in words, with source lines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..place.slots import ENGINES
from .bound import BOUNDS
from .path import KINDS
from .quantities import duration
from .run import Run

# What to look at first, by bound.
HINTS = {
    "tensor engine": "use a type that TensorE multiplies faster, or give it less to multiply",
    "vector engine": "move work to ScalarE or GpSimdE, or fuse instructions",
    "scalar engine": "move work to VectorE, or fuse instructions",
    "gpsimd engine": "move work to VectorE or ScalarE",
    "sync engine": "move work to another engine",
    "DMA bandwidth": "move fewer bytes: keep in SBUF what is used again, block the loops",
    "DMA issue": "make fewer and larger transfers: load several tiles at once",
    "DMA latency": "start transfers earlier: load the next tile while this one is worked on",
    "dependence": "let engines work on different tiles at once: use more tiles and PSUM banks",
    "nothing": "",
}
ENGINE_NAMES = {
    "tensor": "TensorE", "vector": "VectorE", "scalar": "ScalarE", "gpsimd": "GpSimdE", "sync": "SyncE",
    "dma": "DMA",
}  # fmt: skip


@dataclass(frozen=True)
class Spent:
    """Time of one kind on the critical path.

    Args:
        kind: a key of `path.KINDS`.
        engine: who spends it, of `ENGINES`; "" for launch and end.
        time_ns: in all.
        share: of the latency, from 0 to 1.
        lines: "file.py:41" of its source lines with their times, the longest first.
    """

    kind: str
    engine: str
    time_ns: float
    share: float
    lines: tuple[tuple[str, float], ...]

    @property
    def text(self) -> str:
        """What happens in that time."""
        if self.kind == "execute":
            return f"{ENGINE_NAMES[self.engine]} executes instructions"
        if self.kind == "result":
            return f"a result travels through {ENGINE_NAMES[self.engine]} until others see it"
        return KINDS[self.kind]


def spent_on_path(run: Run) -> tuple[Spent, ...]:
    """The critical path by kind and engine, what takes longest first."""
    path = run.path
    if not len(path):
        return ()
    engine = (
        np.where(path.event >= 0, run.timeline.engine[path.event], -1) if len(run.timeline) else path.event
    )
    engine = np.where(path.kind == list(KINDS).index("signal"), -1, engine)
    line = np.where(path.row >= 0, np.asarray(run.program.line_column, np.int64)[path.row], -1) if len(
        run.program
    ) else path.row  # fmt: skip
    total = run.timeline.latency_ns
    result = []
    for key in np.unique(path.kind.astype(np.int64) * 100 + engine + 1).tolist():
        kind, owner = divmod(key, 100)
        here = (path.kind == kind) & (engine + 1 == owner)
        time = float(path.duration_ns[here].sum())
        by_line = np.bincount(line[here] + 1, path.duration_ns[here])
        lines = tuple(
            (_where(run, n - 1), float(by_line[n]))
            for n in sorted(np.flatnonzero(by_line).tolist(), key=lambda n: -by_line[n])
            if n
        )
        name = ENGINES[owner - 1] if owner else ""
        result.append(Spent(list(KINDS)[kind], name, time, time / total, lines))
    return tuple(sorted(result, key=lambda s: -s.time_ns))


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
        where = f", most of it at {spent.lines[0][0]}" if spent.lines else ""
        sentences.append(
            f"{100 * spent.share:.1f} % of the time ({duration(spent.time_ns)}) {spent.text}{where}."
        )
    sentences += [_stalled(run, engine) for engine in run.stalls.busy_ns if engine != "dma"]
    if HINTS[summary.bound]:
        sentences.append(f"First thing to try: {HINTS[summary.bound]}.")
    return [s for s in sentences if s]


def _stalled(run: Run, engine: str) -> str:
    """The greatest loss of an engine that works at least a quarter of the time; "" if there is none."""
    busy = run.stalls.busy_ns[engine]
    lost = {r: t for r, t in run.stalls.of(engine).items() if r not in ("start", "end")}
    if busy < run.stalls.span_ns / 4 or not lost:
        return ""
    reason, time = max(lost.items(), key=lambda item: item[1])
    share = time / run.stalls.span_ns
    if share < 0.02:
        return ""
    stall = next(s for s in run.stalls.stalls if s.engine == engine and s.reason == reason)
    where = run.program.place_of(int(run.timeline.row[stall.event]))
    return (
        f"{ENGINE_NAMES[engine]} stands still for {100 * share:.1f} % of the time ({duration(time)}) and "
        f"waits for {_waits_for(reason)}, the longest at {where} ({duration(stall.longest_ns)})."
    )


def _waits_for(reason: str) -> str:
    if reason in ENGINE_NAMES:
        return "transfers" if reason == "dma" else ENGINE_NAMES[reason]
    return {"buffer": "a buffer to be free", "spill": "spills", "weights": "weights to load"}.get(
        reason, reason
    )
