"""Random programs against a plain model of engines and transfers, which shares no code with the clock.

The model looks at everything anew after each event, knows the dependences from how the program was made, and
finds the shares of the DMA engines by halving an interval.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from msgspec.structs import replace

from nkilab.machine import Machine
from tests.place.handmade import Kernel

from .round_numbers import ROUND, fact, spans, timed

# ns of ROUND: a signal of an engine, one of a transfer, the first byte of a transfer, issuing one
SIGNAL, DONE, FIRST_BYTE, ISSUE, UNITS, LANES = 50.0, 300.0, 1000.0, 120.0, 2, 16.0
CHIP = replace(
    ROUND,
    vector_duration_ns=fact(130.0),
    dma_done_ns=fact(DONE),
    dma_issue_ns=fact(ISSUE),
    dma_spread_ns=fact(3.0),
)


@dataclass(eq=False)
class Op:
    """An instruction or a transfer: what it waits for, how long it occupies its engine, when it is seen.

    Args:
        engine: "vector", "scalar", or "load" and "store" of DMA.
        waits: the operation that made what it reads.
        busy, seen: of an engine, in nanoseconds.
        work: of a transfer, the time of all of its lanes; `lanes`: how many it uses; `spread`: between the
            start of the first lane and the last one.
        rate: bytes in HBM per nanosecond of work.
    """

    engine: str
    waits: list[Op] = field(default_factory=list)
    busy: float = 0.0
    seen: float = 0.0
    work: float = 0.0
    lanes: float = 0.0
    spread: float = 0.0
    rate: float = 10.0
    start: float = -1.0
    done: float = -1.0

    @property
    def is_transfer(self) -> bool:
        return self.engine in ("load", "store")

    @property
    def ready(self) -> float:
        """When all that it waits for is seen; -1 as long as that is not known."""
        if any(w.done < 0 for w in self.waits):
            return -1.0
        return max((w.done + self._signal(w) for w in self.waits), default=0.0)

    def _signal(self, earlier: Op) -> float:
        if earlier.is_transfer:
            return DONE
        return 0.0 if earlier.engine == self.engine else SIGNAL


def water(wanted: list[float], limit: float) -> list[float]:
    """As much as each wants, but none more than a level at which all together get no more than the limit."""
    low, high = 0.0, max(wanted, default=0.0)
    if sum(wanted) <= limit:
        return wanted
    for _ in range(100):
        middle = (low + high) / 2
        if sum(min(w, middle) for w in wanted) > limit:
            high = middle
        else:
            low = middle
    return [min(w, low) for w in wanted]


class Model:
    """Operations in the order of the program, and what is under way."""

    def __init__(self, ops: list[Op], hbm: float) -> None:
        self.ops, self.hbm, self.now = ops, hbm, 0.0
        self.new = list(ops)
        self.free = {"vector": 0.0, "scalar": 0.0}
        self.units = [0.0] * UNITS
        self.issued: list[tuple[float, tuple[int, str], Op]] = []
        self.queues: dict[tuple[int, str], list[Op]] = {}

    def run(self) -> None:
        """Let one event happen after the other, the earliest first."""
        while any(op.done < 0 for op in self.ops):
            at, happens = min(self.events(), key=lambda event: event[0])
            for queue, rate in self.rates().items():
                self.queues[queue][0].work -= rate * (at - self.now)
            self.now = at
            happens()

    def rates(self) -> dict[tuple[int, str], float]:
        """Lanes of each queue: shared out fairly, then slowed down until HBM gives what they ask for."""
        busy = [queue for queue, ops in self.queues.items() if ops]
        heads = [self.queues[queue][0] for queue in busy]
        lanes = water([head.lanes for head in heads], LANES)
        asked = sum(lane * head.rate for lane, head in zip(lanes, heads, strict=True))
        factor = min(1.0, self.hbm / asked) if asked else 1.0
        return {queue: lane * factor for queue, lane in zip(busy, lanes, strict=True)}

    def events(self) -> list[tuple[float, Callable[[], None]]]:
        known = [op for op in self.new if op.ready >= 0]
        starts: list[tuple[float, Callable[[], None]]] = []
        for engine, free in self.free.items():
            own = [op for op in known if op.engine == engine]
            if own:
                at = max(free, min(op.ready for op in own))
                first = next(op for op in own if op.ready <= at)
                starts.append((at, lambda op=first, at=at: self.begin(op, at)))
        moved = [op for op in known if op.is_transfer]
        if moved:
            oldest = min(moved, key=lambda op: op.ready)
            starts.append((oldest.ready, lambda: self.issue(oldest)))
        if self.issued:
            starts.append((self.issued[0][0], self.arrive))
        for queue, rate in self.rates().items():
            starts.append((self.now + self.queues[queue][0].work / rate, lambda queue=queue: self.end(queue)))
        return starts

    def begin(self, op: Op, at: float) -> None:
        self.new.remove(op)
        op.start, op.done = at, at + op.seen
        self.free[op.engine] = at + op.busy

    def issue(self, op: Op) -> None:
        self.new.remove(op)
        unit = self.units.index(min(self.units))
        at = max(op.ready, self.units[unit])
        self.units[unit] = at + ISSUE
        self.issued.append((at + FIRST_BYTE, (unit, op.engine), op))

    def arrive(self) -> None:
        at, queue, op = self.issued.pop(0)
        waiting = self.queues.setdefault(queue, [])
        waiting.append(op)
        if waiting[0] is op:
            op.start = at

    def end(self, queue: tuple[int, str]) -> None:
        op = self.queues[queue].pop(0)
        op.done = self.now + op.spread
        for head in self.queues[queue][:1]:
            head.start = self.now


def random_program(seed: int, machine: Machine) -> tuple[Kernel, list[Op]]:
    """Copies, loads and stores of tiles, each written once, all of another size, none too short."""
    draw, k = Random(seed), Kernel(machine)
    tiles: list[tuple[object, Op]] = []
    ops: list[Op] = []
    for width in draw.sample(range(64, 400), 30):
        kind = draw.choice(["load", "load", "store", "vector", "scalar", "scalar"])
        if kind == "load" or not tiles:
            height = draw.choice([1, 7, 16, 40, 128])
            tile, op = k.tile(height, width), transfer("load", height, width, [])
            k.load(tile, k.hbm(height, width))
            tiles.append((tile, op))
        else:
            source, source_op = draw.choice(tiles[-4:])
            shape = source.layout.shape
            if kind == "store":
                op = transfer("store", *shape, [source_op])
                k.store(k.hbm(*shape), source)
            else:
                op, tile = copy(kind, shape[1], source_op), k.tile(*shape)
                k.copy(tile, source, kind)
                tiles.append((tile, op))
        ops.append(op)
    return k, ops


def transfer(kind: str, height: int, width: int, waits: list[Op]) -> Op:
    """Rows dealt out over 16 engines of 10 bytes a nanosecond; it lasts as long as the fullest of them."""
    row, used = width * 4 / 10, min(height, 16)
    fullest = max(len(range(first, height, used)) for first in range(used)) * row
    return Op(kind, waits, work=height * row, lanes=height * row / fullest, spread=(used - 1) * 3.0)


def copy(engine: str, width: int, source: Op) -> Op:
    """An element a nanosecond; VectorE shows its result 30 ns after it accepts the next instruction."""
    if engine == "vector":
        return Op(engine, [source], busy=width + 100.0, seen=width + 130.0)
    return Op(engine, [source], busy=width + 200.0, seen=width + 200.0)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("hbm", [1000.0, 60.0], ids=["wide", "narrow"])
def test_random_programs_happen_when_the_plain_model_says(seed: int, hbm: float) -> None:
    k, ops = random_program(seed, replace(CHIP, hbm_bytes_per_ns=fact(hbm)))
    Model(ops, hbm).run()
    timeline = timed(k)
    for row, op in enumerate(ops):
        ((_, start, end),) = spans(timeline, row)
        assert (start, end) == pytest.approx((op.start, op.done), rel=1e-9), f"row {row}"
