"""The idea of nkilab in one file: a kernel for AWS Trainium is run, placed, timed, checked and looked at.

    python docs/tiny.py

Nothing of nkilab is imported here; NumPy is all it needs. Read it from top to bottom, as a story. What is
claimed is asserted, and all of it runs in a fraction of a second. The numbers of the chapters lead to the
real thing at the end.

A NeuronCore, the thing that is programmed, has these parts, and they work side by side:

    HBM                       large and far: where the arguments and results of a kernel are
    DMA queues                move rectangles between HBM and the memories on the chip
    SBUF                      128 partitions (rows) of 224 KiB, 208 for kernels: tiles are worked on here
    TensorE -> PSUM           multiplies matrices; sums land in PSUM, 128 partitions of 16 KiB
    VectorE, ScalarE, ...     work on tiles: one lane per partition, one element per cycle

Nothing is cached and nothing is hidden: a kernel says what moves where, and which engine does what. An
engine works through its own list of instructions, and waits for others only where it has to. All questions
follow from that. Is it allowed? Does it fit? Who waits for whom? How long does it take? And what if
somebody does not wait?
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

# 1. A chip is a row of numbers.
#
# Limits, costs and messages read this row; no other line knows what a trn2 is. In nkilab every number also
# says whether it is documented, measured, fitted or assumed, and where it is from: `nkilab explain trn2`.


@dataclass(frozen=True)
class Chip:
    """What one NeuronCore of a chip has. Times in ns, rates per ns."""

    name: str
    partitions: int = 128
    array_rows: int = 128
    array_columns: int = 128
    psum_columns: int = 512
    sbuf_bytes: int = 224 * 1024  # of each partition
    psum_bytes: int = 16 * 1024
    tensor_ghz: float = 2.4
    tensor_result_ns: float = 170.0
    vector_ghz: float = 0.96
    vector_overhead_ns: float = 40.0
    vector_result_ns: float = 158.0
    dma_bytes_per_ns: float = 435.0
    dma_latency_ns: float = 1069.0  # 750 to the first byte, 319 from the last one until it is seen
    semaphore_ns: float = 58.0  # a signal from one engine to another


TRN2 = Chip("trn2")

# 2. A tile is an array that knows where it is.


@dataclass(frozen=True, eq=False)
class Tile:
    """A rectangle in a memory. A slice is a tile too: it shares its elements, and knows the whole."""

    name: str
    array: np.ndarray
    memory: str
    address: int | None = None  # bytes into each partition, where the kernel chose
    whole: Tile | None = None

    @property
    def root(self) -> Tile:
        return self.whole or self

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def __getitem__(self, key: Any) -> Tile:
        return Tile(self.name, self.array[key], self.memory, self.address, self.root)

    def __str__(self) -> str:
        return f"{self.name}: {self.array.dtype}{list(self.shape)} in {self.memory}"


# 3. An instruction is declared once.
#
# This is the heart. One class says what goes in and out, what is refused, what it means and what it costs.
# All that follows reads the class: both spellings, checks and their messages, values, times, the profile,
# the tests. So that nothing is forgotten, Python refuses to define a class that leaves a part out.

REGISTRY: dict[str, type[Instruction]] = {}


class KernelError(Exception):
    """What the hardware would not do, told at the kernel's line."""


@dataclass(frozen=True)
class Operand:
    axes: list[str]
    memories: list[str]
    is_written: bool


def Out(axes: str, memories: str) -> Any:
    return Operand(axes.split(), memories.split(), is_written=True)


def In(axes: str, memories: str) -> Any:
    return Operand(axes.split(), memories.split(), is_written=False)


@dataclass(frozen=True)
class Rule:
    """What has to hold, the sentence that it does not, a use that breaks it: one object, so they agree."""

    sentence: str
    broken_by: dict[str, str]  # operand -> memory
    holds: Callable[[Any], bool]


def rule(sentence: str, **broken_by: str) -> Callable[[Callable[[Any], bool]], Rule]:
    return lambda holds: Rule(sentence, broken_by, holds)


@dataclass(frozen=True)
class Cost:
    """An engine is busy; the result is seen some time after that."""

    engine: str
    busy_ns: float
    result_ns: float


class Instruction:
    """Base of all declarations. An instance is one call, and exists only if the call is allowed."""

    name: ClassVar[str]
    limits: ClassVar[dict[str, str]]  # axis -> the number of the chip that bounds it
    example: ClassVar[dict[str, Any]]  # typed by hand
    operands: ClassVar[dict[str, Operand]]
    rules: ClassVar[list[Rule]]
    compute: ClassVar[Callable[..., None]]
    cost: ClassVar[Callable[..., Cost]]

    def __init_subclass__(cls) -> None:
        parts = ("__doc__", "limits", "example", "compute", "cost")
        if missing := [part for part in parts if not cls.__dict__.get(part)]:
            raise TypeError(f"{cls.__name__} declares no {', '.join(missing)}")
        cls.name = "".join("_" + c.lower() if c.isupper() else c for c in cls.__name__).lstrip("_")
        cls.operands = {k: v for k, v in cls.__dict__.items() if isinstance(v, Operand)}
        cls.rules = [v for v in cls.__dict__.values() if isinstance(v, Rule)]
        REGISTRY[cls.name] = cls

    def __init__(self, chip: Chip, line: str, values: dict[str, Any]) -> None:
        self.chip, self.line, self.values = chip, line, values
        self.sizes: dict[str, int] = {}
        for name, operand in self.operands.items():
            self._check(name, values[name], operand)
        for axis, constant in self.limits.items():
            size, most = self.sizes[axis], getattr(chip, constant)
            if size > most:
                raise self.error(f"{axis} is {size}; {chip.name} allows {most} ({constant})")
        for broken in (rule for rule in self.rules if not rule.holds(self)):
            raise self.error(broken.sentence)

    def _check(self, name: str, tile: Tile, operand: Operand) -> None:
        if tile.memory not in operand.memories:
            raise self.error(f"{name} is in {tile.memory}; it must be in {' or '.join(operand.memories)}")
        for axis, size in zip(operand.axes, tile.shape):
            if self.sizes.setdefault(axis, size) != size:
                raise self.error(f"axis {axis} of {name} is {size}; before it is {self.sizes[axis]}")

    def error(self, problem: str) -> KernelError:
        tiles = "".join(f"\n  {name} = {self.values[name]}" for name in self.operands)
        return KernelError(f"{self.line}: {self.name}: {problem}{tiles}")

    def run(self) -> None:
        self.compute(**{k: v.array if isinstance(v, Tile) else v for k, v in self.values.items()})

    def touched(self) -> list[tuple[Tile, bool]]:
        """Its tiles, and whether it writes them."""
        return [(self.values[name], operand.is_written) for name, operand in self.operands.items()]


class DmaCopy(Instruction):
    """Move a rectangle between memories."""

    dst = Out("P F", "sbuf hbm")
    src = In("P F", "sbuf hbm")
    limits = {"P": "partitions"}
    example = {"src": [[1, 2]], "dst": [[1, 2]]}

    def compute(self, dst, src):
        dst[...] = src

    def cost(self) -> Cost:
        # a queue for loads and one for stores: a store does not hold up the loads behind it
        queue = "load" if self.values["dst"].memory == "sbuf" else "store"
        moved = self.values["src"].array.nbytes
        return Cost(queue, moved / self.chip.dma_bytes_per_ns, self.chip.dma_latency_ns)


class NcMatmul(Instruction):
    """dst[M, N] = stationary[K, M] transposed times moving[K, N]; K lies along the partitions."""

    dst = Out("M N", "psum")
    stationary = In("K M", "sbuf")
    moving = In("K N", "sbuf")
    limits = {"K": "array_rows", "M": "array_columns", "N": "psum_columns"}
    example = {"stationary": [[1, 2]], "moving": [[3, 4, 5]], "dst": [[3, 4, 5], [6, 8, 10]]}

    def compute(self, dst, stationary, moving):
        dst[...] = stationary.T @ moving

    def cost(self) -> Cost:
        # a column of moving per cycle, at least 64; float32 takes four passes
        passes = self.values["moving"].array.itemsize
        cycles = max(64, self.sizes["N"]) * passes
        return Cost("tensor", cycles / self.chip.tensor_ghz, self.chip.tensor_result_ns)


class TensorTensor(Instruction):
    """dst = data1 op data2, element by element."""

    dst = Out("P F", "sbuf psum")
    data1 = In("P F", "sbuf psum")
    data2 = In("P F", "sbuf psum")
    limits = {"P": "partitions"}
    example = {"data1": [[1, 2]], "data2": [[3, 5]], "op": operator.add, "dst": [[4, 7]]}

    @rule("data1 and data2 are both in psum; at least one must be in sbuf", data1="psum", data2="psum")
    def one_input_in_sbuf(self) -> bool:
        return "sbuf" in (self.values["data1"].memory, self.values["data2"].memory)

    def compute(self, dst, data1, data2, op):
        dst[...] = op(data1, data2)

    def cost(self) -> Cost:
        busy = max(64, self.sizes["F"]) / self.chip.vector_ghz + self.chip.vector_overhead_ns
        return Cost("vector", busy, self.chip.vector_result_ns)


# 4. A kernel runs once, and leaves a program.
#
# The kernel is plain Python and runs as such: each call is checked, computed at once, and appended as one
# row. Mistakes surface at their line, a debugger shows live values, and a loop is unrolled by running it.


@dataclass
class Program:
    chip: Chip
    rows: list[Instruction] = field(default_factory=list)
    tiles: int = 0
    sbuf: np.ndarray = field(default_factory=lambda: np.full((128, 8192), 0xFF, np.uint8))


_open: list[Program] = []


@contextmanager
def tracing(chip: Chip = TRN2) -> Iterator[Program]:
    _open.append(Program(chip))
    try:
        yield _open[-1]
    finally:
        _open.pop()


def traced(cls: type[Instruction], values: dict[str, Any]) -> None:
    """Check, compute, append. The frame two further up is the kernel's."""
    frame = sys._getframe(2)
    line = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
    row = cls(_open[-1].chip, line, values)
    row.run()
    _open[-1].rows.append(row)


def ndarray(shape: Any, dtype: Any = np.float32, buffer: str = "sbuf", address: Any = None) -> Tile:
    """A tile of NaN, for what was never written should hurt; at an address, a view of what lies there."""
    program = _open[-1]
    program.tiles += 1
    name = f"{buffer}{program.tiles}"
    if address is None:
        return Tile(name, np.full(shape, np.nan, dtype), buffer)
    _, start = address
    size = shape[1] * np.dtype(dtype).itemsize
    return Tile(name, program.sbuf[: shape[0], start : start + size].view(dtype), buffer, start)


nl = SimpleNamespace(
    ndarray=ndarray, float32=np.float32, sbuf="sbuf", psum="psum", shared_hbm="hbm", add=operator.add
)

# 5. NKI has two spellings, and both are generated.
#
# Since NKI 0.1 the caller gives the destination; in Beta 1 an instruction returned its result. None of
# these functions is written by hand.


def dst_first(cls: type[Instruction]) -> Callable[..., None]:
    def function(**values: Any) -> None:
        traced(cls, values)

    return function


def value_returning(cls: type[Instruction]) -> Callable[..., Tile]:
    out = cls.operands["dst"]

    def function(**values: Any) -> Tile:
        inputs = [(cls.operands[k].axes, v.shape) for k, v in values.items() if k in cls.operands]
        sizes = {axis: size for axes, shape in inputs for axis, size in zip(axes, shape)}
        dst = ndarray([sizes[axis] for axis in out.axes], buffer=out.memories[0])
        traced(cls, {"dst": dst, **values})
        return dst

    return function


nisa = SimpleNamespace(**{name: dst_first(cls) for name, cls in REGISTRY.items()})
beta1 = SimpleNamespace(**{name: value_returning(cls) for name, cls in REGISTRY.items()})

# 6. A kernel: a product with a bias, 512 columns at a time. It is real NKI; a test runs this very function
# on nkilab.


def biased_product(lhsT, rhs, bias):
    out = nl.ndarray(bias.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    weights = nl.ndarray(lhsT.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=weights, src=lhsT)
    for j in range(0, rhs.shape[1], 512):
        moving = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=moving, src=rhs[0:128, j : j + 512])
        above = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=above, src=bias[0:128, j : j + 512])
        multiplied = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=multiplied, stationary=weights, moving=moving)
        total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=total, data1=multiplied, data2=above, op=nl.add)
        nisa.dma_copy(dst=out[0:128, j : j + 512], src=total)
    return out


def biased_product_of_beta1(lhsT, rhs, bias):
    out = nl.ndarray(bias.shape, buffer=nl.shared_hbm)
    weights = beta1.dma_copy(src=lhsT)
    for j in range(0, rhs.shape[1], 512):
        moving = beta1.dma_copy(src=rhs[0:128, j : j + 512])
        above = beta1.dma_copy(src=bias[0:128, j : j + 512])
        multiplied = beta1.nc_matmul(stationary=weights, moving=moving)
        total = beta1.tensor_tensor(data1=multiplied, data2=above, op=nl.add)
        nisa.dma_copy(dst=out[0:128, j : j + 512], src=total)
    return out


def launched(kernel: Callable[..., Tile], *arrays: np.ndarray, chip: Chip = TRN2) -> tuple[Any, Program]:
    """What a kernel returns, and the program that it left."""
    with tracing(chip) as program:
        out = kernel(*(Tile(f"input{n}", array, "hbm") for n, array in enumerate(arrays)))
    return out.array, program


# 7. Tiles get addresses.
#
# A tile lives from the first row that touches it to the last. Addresses go round through the memory, so
# that the next turn of a loop gets other bytes than this one and need not wait for it: as many buffers as
# fit. A tile on the bytes of a dead one waits until that is dead. nkilab also spills to HBM what does not
# fit, as the vendor's compiler does.

Span = tuple[int, int]  # bytes of each partition, from and up to


def lifetimes(program: Program) -> dict[Tile, Span]:
    """First and last row of every tile on the chip."""
    spans: dict[Tile, Span] = {}
    for number, row in enumerate(program.rows):
        for tile in (tile.root for tile, _ in row.touched() if tile.memory != "hbm"):
            spans[tile] = (spans.get(tile, (number,))[0], number)
    return spans


def placed(program: Program) -> dict[Tile, Span]:
    """Where every tile on the chip lies: in the first free run from where the tile before it ended."""
    lives, spans = lifetimes(program), {}
    last_end = {"sbuf": 0, "psum": 0}
    for tile, (born, _) in lives.items():
        size, most = tile.array[0].nbytes, getattr(program.chip, f"{tile.memory}_bytes")
        alive = [spans[t] for t in spans if t.memory == tile.memory and lives[t][1] >= born]
        free = [
            start
            for start in (last_end[tile.memory], 0, *(end for _, end in alive))
            if start + size <= most and all(start >= end or start + size <= begin for begin, end in alive)
        ]
        if tile.address is None and not free:
            raise KernelError(f"{tile} does not fit; {program.chip.name} has {most} bytes per partition")
        start = free[0] if tile.address is None else tile.address
        spans[tile] = (start, start + size)
        last_end[tile.memory] = start + size
    return spans


# 8. Who waits for whom: whoever touches bytes that an earlier row touched, if one of the two writes.


def conflicts(program: Program, spans: dict[Tile, Span]) -> Iterator[tuple[int, int, bool]]:
    """Pairs of rows, the earlier one first; and whether they meet in one tile, or only in its bytes."""
    for later, row in enumerate(program.rows):
        for earlier, before in enumerate(program.rows[:later]):
            for (a, a_writes), (b, b_writes) in product(before.touched(), row.touched()):
                if not (a_writes or b_writes) or a.memory != b.memory:
                    continue
                if a.root is b.root:
                    if np.shares_memory(a.array, b.array):
                        yield earlier, later, True
                elif a.memory != "hbm":
                    (x, x_end), (y, y_end) = spans[a.root], spans[b.root]
                    if x < y_end and y < x_end:
                        yield earlier, later, False


# 9. Time.
#
# An engine takes its rows in order, and begins one when it is free and all that the row waits for is seen.
# Every event remembers which of these decided. That is the whole secret of a profiler. (Here each queue has
# the full bandwidth; in nkilab 16 DMA engines are shared, and descriptors, weights, function tables and
# warm-up have their times.)


@dataclass(frozen=True)
class Event:
    row: Instruction
    engine: str
    start: float
    free: float
    seen: float
    because: int | None  # the event that decided when this one started


def timed(program: Program) -> list[Event]:
    waits: list[set[int]] = [set() for _ in program.rows]
    for earlier, later, _ in conflicts(program, placed(program)):
        waits[later].add(earlier)
    events: list[Event] = []
    last: dict[str, int] = {}
    for row, others in zip(program.rows, waits):
        cost = row.cost()
        reasons: list[tuple[float, int | None]] = [(0.0, None)]
        if cost.engine in last:
            reasons.append((events[last[cost.engine]].free, last[cost.engine]))
        for other in others:
            signal = program.chip.semaphore_ns if events[other].engine != cost.engine else 0.0
            reasons.append((events[other].seen + signal, other))
        start, because = max(reasons, key=lambda reason: reason[0])
        free = start + cost.busy_ns
        last[cost.engine] = len(events)
        events.append(Event(row, cost.engine, start, free, free + cost.result_ns, because))
    return events


def latency(events: list[Event]) -> float:
    return max(event.seen for event in events)


# 10. Races.
#
# A simulator that runs line after line never sees a race: it has just decided who comes first. So the table
# of what the *vendor's* framework orders is written down, and nothing else counts: rows of one engine, and
# rows that meet in one tile. Tiles that a kernel lays over the same bytes by hand are not in it, as nobody
# promises an order for the direct allocation of Beta 1 (in `nki` they are ordered by now). A pair that no
# chain of orders joins is a race, and the proof is cheap: compute the same rows in another order, as legal
# as the first.


def ordered(program: Program, spans: dict[Tile, Span]) -> list[set[int]]:
    """For each row, the rows that are surely before it."""
    before: list[set[int]] = [set() for _ in program.rows]
    for earlier, later, is_one_tile in conflicts(program, spans):
        if is_one_tile or all(tile.root.address is None for tile, _ in program.rows[later].touched()):
            before[later].add(earlier)
    last: dict[str, int] = {}
    for number, row in enumerate(program.rows):
        before[number] |= {last[e] for e in (row.cost().engine,) if e in last}
        last[row.cost().engine] = number
        before[number] |= {old for known in list(before[number]) for old in before[known]}
    return before


def races(program: Program) -> list[tuple[int, int]]:
    spans = placed(program)
    before = ordered(program, spans)
    return sorted({(a, b) for a, b, _ in conflicts(program, spans) if a not in before[b]})


def replayed(program: Program, race: tuple[int, int]) -> None:
    """Compute again, the later row of a race as early as may be."""
    first = ordered(program, placed(program))[race[1]] | {race[1]}
    for number in sorted(range(len(program.rows)), key=lambda n: (n not in first, n)):
        program.rows[number].run()


def in_turns(x):
    """Both halves of x through the same bytes of SBUF: who says that the first one has left by then?"""
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    for j in range(0, 1024, 512):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf, address=(0, 0))
        nisa.dma_copy(dst=tile, src=x[0:128, j : j + 512])
        nisa.dma_copy(dst=out[0:128, j : j + 512], src=tile)
    return out


# 11. A profile: who was busy when, and which lines the time went to.


def critical_path(events: list[Event]) -> Iterator[tuple[Event, float]]:
    """From the last result back to what it waited for, and so on; each event with the time it answers for."""
    end, at = latency(events), max(range(len(events)), key=lambda n: events[n].seen)
    while at is not None:
        event = events[at]
        yield event, end - event.start
        end, at = event.start, event.because


def profile(events: list[Event], width: int = 88) -> str:
    total = latency(events)
    lines = [f"{total / 1000:.2f} us"]
    for engine in dict.fromkeys(event.engine for event in events):
        busy = np.zeros(width)
        for event in (e for e in events if e.engine == engine):
            busy += np.diff(np.clip(np.linspace(0, total, width + 1), event.start, event.free))
        levels = np.rint(8 * busy * width / total).astype(int)
        lines.append(f"{engine:>7} |{''.join(' ▁▂▃▄▅▆▇█'[level] for level in levels)}|")
    blame: dict[str, float] = {}
    for event, spent in critical_path(events):
        line = f"{event.row.line} {event.row.name}"
        blame[line] = blame.get(line, 0.0) + spent
    for line, spent in sorted(blame.items(), key=lambda pair: -pair[1]):
        lines.append(f"{spent / total:7.1%} of the critical path: {line}")
    return "\n".join(lines)


# 12. The proofs.


def refused(use: Callable[[], Any]) -> str:
    try:
        use()
    except KernelError as error:
        return str(error)
    raise AssertionError("it was accepted")


def laws() -> None:
    """Each instruction computes its example and refuses what breaks its rules. No name is named."""
    for cls in REGISTRY.values():
        arrays = {k: np.array(cls.example[k], np.float32) for k in cls.operands}
        tiles = {k: Tile(k, arrays[k] * 1, operand.memories[0]) for k, operand in cls.operands.items()}
        tiles["dst"].array[...] = np.nan
        cls(TRN2, "law", {**cls.example, **tiles}).run()
        assert np.array_equal(tiles["dst"].array, arrays["dst"]), cls.name
        for rule in cls.rules:
            moved = {k: Tile(k, arrays[k], memory) for k, memory in rule.broken_by.items()}
            values = {**cls.example, **tiles, **moved}
            assert rule.sentence in refused(lambda cls=cls, values=values: cls(TRN2, "law", values))


def main() -> None:
    laws()
    random = np.random.default_rng(0)
    lhsT, rhs, bias = (random.standard_normal((128, n), np.float32) for n in (128, 4096, 4096))

    # Both spellings give the values of NumPy, and the same program.
    result, program = launched(biased_product, lhsT, rhs, bias)
    of_beta1, program_of_beta1 = launched(biased_product_of_beta1, lhsT, rhs, bias)
    assert np.allclose(result, lhsT.T @ rhs + bias, atol=1e-4)
    assert np.array_equal(result, of_beta1)
    assert [row.name for row in program.rows] == [row.name for row in program_of_beta1.rows]
    print(f"{len(program.rows)} rows, the same in both spellings; the values are those of NumPy\n")

    # A limit is the chip's, and is told at the line that breaks it.
    with tracing():
        weights, moving, sums = (
            ndarray((128, 128)),
            ndarray((128, 1024)),
            ndarray((128, 1024), buffer=nl.psum),
        )
        message = refused(lambda: nisa.nc_matmul(dst=sums, stationary=weights, moving=moving))
    assert "nc_matmul: N is 1024; trn2 allows 512 (psum_columns)" in message
    assert "\n  dst = psum3: float32[128, 1024] in psum" in message
    print(f"{message}\n")

    # One turn of the loop, by hand: 64 KiB of weights and 256 KiB of rhs come, then it is multiplied,
    # added, stored. The bias comes meanwhile. Pieces of the critical path leave no gap.
    turn = timed(launched(biased_product, lhsT, rhs[:, :512], bias[:, :512])[1])
    loads, multiply = (65536 + 262144) / 435 + 1069, 4 * 512 / 2.4 + 170
    by_hand = loads + 58 + multiply + 58 + (512 / 0.96 + 40 + 158) + 58 + (262144 / 435 + 1069)
    assert abs(latency(turn) - by_hand) < 1e-6
    assert abs(sum(spent for _, spent in critical_path(turn)) - by_hand) < 1e-6

    # Eight turns overlap: less than four times as long. With room for one turn alone they cannot.
    events = timed(program)
    small = Chip("small", sbuf_bytes=6656, psum_bytes=2048)
    _, squeezed = launched(biased_product, lhsT, rhs, bias, chip=small)
    assert latency(events) < 4 * by_hand
    assert latency(timed(squeezed)) > 1.5 * latency(events)
    print(f"{profile(events)}\n\nwhere SBUF has room for the weights and three tiles:")
    print(f"{profile(timed(squeezed))}\n")

    # A race: in program order the values are right; in another order, as legal, half of them are not.
    x = random.standard_normal((128, 1024), np.float32)
    out, careless = launched(in_turns, x)
    assert np.array_equal(out, x)
    assert races(program) == races(squeezed) == []
    (race,) = races(careless)
    replayed(careless, race)
    assert np.array_equal(out, np.hstack([x[:, 512:], x[:, 512:]]))
    earlier, later = (careless.rows[number] for number in race)
    print(f"{later.line}: {later.name} may write before {earlier.name} at {earlier.line} has read;")
    print(f"computed in that order, {np.mean(out != x):.0%} of the result is wrong")


if __name__ == "__main__":
    main()

# The real thing, in src/nkilab: 1 machine/chips.py, 2 tiles/tile.py, 3 isa/declare.py and its neighbours, 4
# trace/, 5 dialects/, 7 and 8 place/, 9 timing/, 10 checks/, 11 views/, 12
# tests/isa/test_every_instruction.py.
