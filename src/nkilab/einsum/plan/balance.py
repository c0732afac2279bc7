"""Sharing out what VectorE and ScalarE can both do: sums of rows, and copies out of PSUM.

Both are VectorE's by rule. Where it has more to do in a part of a kernel than ScalarE and TensorE, ScalarE
takes over sums, which it adds up while it copies, and copies or blocks of them, until both are done at the
same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...machine import Machine
from ...tiles.dtypes import as_dtype
from ..chain import scanned_column_ns
from ..room import views_of
from ..tree.expr import expr
from ..tree.nodes import (
    PSUM,
    SBUF,
    Activate,
    Alloc,
    Comment,
    Copy,
    Cut,
    Gather,
    Kernel,
    Load,
    Loop,
    MatMul,
    Move,
    Reduce,
    Scale,
    Scan,
    Statement,
    Store,
    Tally,
    Transpose,
    View,
)

# cycles below which no instruction ends
SHORTEST = 64
PARTITIONS = 128
# columns of a piece of a copy
PIECE = 128
# columns from which a sum takes longer than it takes to begin
BANK = 512
# VectorE is relieved where it has so many times as much to do as the other engines
MARGIN = 1.1


def columns_of(view: View) -> int:
    """Elements per partition of a view; a ragged one as many as its tile has."""
    found = 1
    held = zip(view.index, view.buffer.shape, strict=False)
    for index, extent in list(held)[1:] if len(view.index) == len(view.buffer.shape) else ():
        if isinstance(index, Cut):
            found *= index.count.value or expr(extent).value or 1
    return found


class Loads:
    """Nanoseconds that instructions keep engines busy, roughly.

    Args:
        machine: the chip.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def of(self, statement: Statement) -> tuple[str, float]:
        """The engine of a statement and its time; "" for none."""
        match statement:
            case Loop() | Alloc() | Comment() | Tally():
                return "", 0.0
            case Load() | Store() | Move() | Gather():
                return "dma", self.transfer(statement.src if isinstance(statement, Store) else statement.dst)
            case MatMul(moving=moving) | Transpose(src=moving):
                passes = self.machine["fp32_passes"] if moving.buffer.dtype == "float32" else 1
                passes = passes if isinstance(statement, MatMul) else 1
                cycles = max(columns_of(moving), SHORTEST) * passes + self.machine["matmul_overhead_cycles"]
                return "tensor", cycles / self.machine["tensor_clock_ghz"]
            case Copy(dst, _, engine):
                return engine or "vector", self.copy(statement, columns_of(dst), engine or "vector")
        columns = max(columns_of(v) for _, v in views_of(statement))
        if isinstance(statement, Scan):
            return "vector", self.busy("vector", 0) + columns * scanned_column_ns(self.machine)
        if isinstance(statement, Activate):
            read = self.machine["accumulator_read_cycles"] if statement.total is not None else 0
            return "scalar", self.busy("scalar", columns) + read / self.machine["scalar_clock_ghz"]
        engine = getattr(statement, "engine", "") or "vector"
        speed = self.speed(statement.dst, statement.src) if isinstance(statement, Scale) else 1.0
        return engine, self.busy(engine, columns / speed)

    def transfer(self, view: View) -> float:
        """Time of a transfer: until the next may be issued, or to move its bytes, whichever is longer."""
        rows = view.index[0].count.value if isinstance(view.index[0], Cut) else 1
        size = (rows or PARTITIONS) * columns_of(view) * as_dtype(view.buffer.dtype).storage.itemsize
        return float(max(self.machine["dma_issue_ns"], size / self.machine["hbm_bytes_per_ns"]))

    def busy(self, engine: str, cycles: float) -> float:
        """Time of an instruction of so many cycles."""
        if engine == "gpsimd":
            return float((self.machine["gpsimd_overhead_cycles"] + cycles) / self.machine["gpsimd_clock_ghz"])
        clock, overhead = self.machine[f"{engine}_clock_ghz"], self.machine[f"{engine}_overhead_ns"]
        return float(max(cycles, SHORTEST) / clock + overhead)

    def copy(self, copy: Copy, columns: int, engine: str) -> float:
        """Time of a copy of so many columns."""
        return self.busy(engine, columns / (self.speed(copy.dst, copy.src) if engine == "vector" else 1.0))

    def speed(self, *views: View) -> float:
        """Elements per cycle that VectorE takes of one tile."""
        sizes = {as_dtype(v.buffer.dtype).storage.itemsize for v in views}
        in_sbuf = all(v.buffer.memory == SBUF for v in views)
        if sizes == {2}:
            return float(self.machine["vector_mode_speedup"]) if in_sbuf else 2.0
        return float(self.machine["vector_fp32_lanes"]) if sizes == {4} and in_sbuf else 1.0

    def total(self, body: list[Statement], turns: int = 1) -> dict[str, float]:
        """Time per engine of a body with its loops."""
        found: dict[str, float] = {}
        for statement, times in weighted(body, turns):
            engine, time = self.of(statement)
            found[engine] = found.get(engine, 0.0) + time * times
        return found


def weighted(body: list[Statement], turns: int = 1) -> Iterator[tuple[Statement, int]]:
    """Statements with how often they run."""
    for statement in body:
        if isinstance(statement, Loop):
            yield from weighted(statement.body, turns * (expr(statement.trips).value or 1))
        else:
            yield statement, turns


def balanced(kernel: Kernel, machine: Machine) -> Kernel:
    """A kernel in which ScalarE takes over copies, nest after nest, where VectorE has most to do."""
    for statement in kernel.body:
        if isinstance(statement, Loop):
            _Part(statement, Loads(machine)).relieve()
    return kernel


class _Part:
    def __init__(self, loop: Loop, loads: Loads) -> None:
        self.loop, self.loads = loop, loads
        held = loads.total([loop])
        self.vector, self.scalar = (held.get(e, 0.0) for e in ("vector", "scalar"))
        self.others = held.get("tensor", 0.0)

    def relieve(self) -> None:
        """Move copies, those with most to do first, as long as that helps."""
        if self.vector <= MARGIN * max(self.scalar, self.others):
            return
        chained = set(_chained([self.loop]))
        for statement, times in weighted([self.loop]):
            if isinstance(statement, Reduce) and statement.op == "add" and id(statement) not in chained:
                self.summed(statement, times)
        copies = [
            (s, times)
            for s, times in weighted([self.loop])
            if isinstance(s, Copy) and not s.engine and s.src.buffer.memory == PSUM
            and as_dtype(s.dst.buffer.dtype).is_float
        ]  # fmt: skip
        for copy, times in sorted(copies, key=lambda c: -c[1] * columns_of(c[0].dst)):
            self.share(copy, times)

    def summed(self, reduce: Reduce, times: int) -> None:
        """Give a sum of rows to ScalarE, which copies them onto themselves, if both end sooner."""
        src = reduce.src
        if len(src.cuts) != 2 or not as_dtype(src.buffer.dtype).is_float:
            return
        other = Activate(src, "copy", src, total=reduce.dst)
        vector = self.vector - self.loads.of(reduce)[1] * times
        scalar = self.scalar + self.loads.of(other)[1] * times
        if max(vector, scalar) < max(self.vector, self.scalar):
            self.vector, self.scalar = vector, scalar
            _exchange(self.loop.body, reduce, [other])

    def share(self, copy: Copy, times: int) -> None:
        """Give as many blocks of a copy to ScalarE as lets both end soonest."""
        columns, (blocks, _, _) = columns_of(copy.dst), _pieces(copy)
        whole = self.loads.copy(copy, columns, "vector") * times

        def ends(taken: int) -> tuple[float, float]:
            part = columns * taken // blocks
            vector = self.loads.copy(copy, columns - part, "vector") * times if taken < blocks else 0.0
            scalar = self.loads.copy(copy, part, "scalar") * times if taken else 0.0
            return self.vector - whole + vector, self.scalar + scalar

        best = min(range(blocks + 1), key=lambda n: max(ends(n)))
        if max(ends(best)) * MARGIN**0.25 < max(self.vector, self.scalar):
            self.vector, self.scalar = ends(best)
            _exchange(self.loop.body, copy, _split(copy, blocks - best))


def _chained(body: list[Statement], is_sequential: bool = False) -> Iterator[int]:
    """Short sums that the rest of a turn waits for: ScalarE begins too late for them."""
    readers = [s for s in body if not isinstance(s, Loop | Store | Tally)]
    read = {id(v.buffer) for s in readers for n, v in views_of(s) if n != "dst"}
    for statement in body:
        if isinstance(statement, Loop):
            yield from _chained(statement.body, statement.is_sequential)
        elif not isinstance(statement, Reduce) or not is_sequential:
            continue
        elif columns_of(statement.src) < BANK and id(statement.dst.buffer) in read:
            yield id(statement)


def _pieces(copy: Copy) -> tuple[int, int, int]:
    """Pieces that a copy may be cut into, the axis, and how much of it each has.

    128 columns make a piece, as other instructions made them and will read them; of a copy of several blocks
    with no more columns, a block does.
    """
    cuts = copy.dst.cuts, copy.src.cuts
    axis = len(cuts[0]) - 1
    if len(cuts[0]) != len(cuts[1]) or axis not in (1, 2):
        return 1, 1, 0
    columns = cuts[0][axis].count.value or 1
    if columns == cuts[1][axis].count.value and columns % PIECE == 0 and columns > PIECE:
        return columns // PIECE, axis, PIECE
    if axis == 2 and cuts[0][1].count == cuts[1][1].count:
        return cuts[0][1].count.value or 1, 1, 1
    return 1, 1, 0


def _split(copy: Copy, first: int) -> list[Statement]:
    """A copy of which VectorE makes so many pieces, the last ones; none for 0."""
    if first == 0:
        return [replace(copy, engine="scalar")]
    pieces, axis, each = _pieces(copy)
    whole, rest = pieces * each, (pieces - first) * each
    return [
        Copy(_piece(copy.dst, axis, 0, rest), _piece(copy.src, axis, 0, rest), "scalar"),
        replace(
            copy,
            dst=_piece(copy.dst, axis, rest, whole - rest),
            src=_piece(copy.src, axis, rest, whole - rest),
        ),
    ]


def _piece(view: View, axis: int, start: int, count: int) -> View:
    place = [n for n, i in enumerate(view.index) if isinstance(i, Cut)][axis]
    held = view.cuts[axis]
    cut = Cut(held.start + start * held.step, expr(count), held.step)
    return replace(view, index=(*view.index[:place], cut, *view.index[place + 1 :]))


def _exchange(body: list[Statement], old: Statement, new: list[Statement]) -> None:
    for place, statement in enumerate(body):
        if statement is old:
            body[place : place + 1] = new
            return
        if isinstance(statement, Loop):
            _exchange(statement.body, old, new)


__all__ = ["Loads", "balanced"]
