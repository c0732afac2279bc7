"""What an iterate block cannot do at once, as iterations need each other: scans, and chains of turns.

A block that is a scan for each state takes no less than VectorE needs for the declared cycles of the
instruction, helped by TensorE where products of chunks do the same; or than its turns one by one, if that is
less. Then the least time is that of its turns times the longest path from what a turn takes over to what it
hands on. A reduction ends before what reads it begins; an instruction takes two operators, and those before a
reduction go along with it. Each instruction takes at least its latency on the quickest engine that has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from ..isa.declare import NUMBER, REGISTRY
from ..isa.operators import operator_named
from ..machine import Machine
from ..tiles.dtypes import DTYPES
from ..tiles.tile import compact_strides, layout
from .language.ast import Access, Affine, Cascade, Einsum, Iterate, block_extent
from .rewrite.chunks import is_chunked, is_delta
from .rewrite.live import live
from .rewrite.recurrences import with_scans
from .rewrite.substitution import is_substitution
from .rewrite.turns_in_parts import are_linear

# operators of one instruction
TOGETHER = 2


# columns of which the time tells that of one
FEW, MANY = 512, 1024


def blocks_ns(cascade: Cascade, machine: Machine, passes: float) -> tuple[float, float, set[str]]:
    """Nanoseconds that blocks need as scans, and that others need, however many engines share their work.

    The variables of blocks that products of chunks compute come third: not even their states need be there.

    Args:
        passes: of TensorE over an operand.
    """
    distributed, _ = with_scans(cascade)
    scans = [e for e in distributed.einsums if e.recurrence is not None and e.recurrence.kind == "scan"]
    total, chunked, needed = {"scan": 0.0, "chain": 0.0}, set[str](), live(distributed)[0]
    for block in cascade.blocks:
        own = [e for e in scans if e.name in {b.name for b in block.body}]
        left = [b for b in needed.blocks if b.variable == block.variable]
        is_solved = is_delta(block, cascade) or any(is_substitution(b, needed) for b in left)
        if (not own and is_solved) or (own and all(is_chunked(e, needed) for e in own)):
            chunked.add(block.variable)
            continue
        if not own and any(are_linear(b, needed) for b in left):
            continue  # in parts, with few turns after each other
        if any(e.turning for e in block.body):
            own_names = {e.name for e in block.body}
            rows = next(b for b in distributed.blocks if own_names & {e.name for e in b.body})
            total["chain"] += _nested_ns(rows, distributed, machine, passes)
            continue
        stepped = block_extent(block, cascade) * _turn_ns(block, cascade, machine, passes)
        scanned = sum(_scan_ns(e, distributed, machine, passes) for e in own)
        is_scan = bool(own) and scanned < stepped
        total["scan" if is_scan else "chain"] += scanned if is_scan else stepped
    return total["scan"], total["chain"], chunked


def _nested_ns(block: Iterate, cascade: Cascade, machine: Machine, passes: float) -> float:
    """The least time of a block whose turns have scans: row by row, column by column, or along diagonals."""
    scans, turns = [e for e in block.body if e.along], block_extent(block, cascade)
    inner = scans[0].along[0]
    columns = cascade.extent(inner, scans[0])
    one = replace(cascade, sizes={**cascade.sizes, inner.upper(): 1})
    turn_ns, alone_ns = (_turn_ns(block, c, machine, passes) for c in (cascade, one))
    lanes = max(prod(cascade.extent(v, e) for v in e.output.variables) for e in scans) / turns / columns
    column_ns = max(1.0, lanes / machine["partitions"]) * scanned_column_ns(machine)
    by_rows, by_columns = turns * (turn_ns + columns * column_ns), columns * (alone_ns + turns * column_ns)
    return float(min(by_rows, by_columns, (turns + columns - 1) * alone_ns))


def _scan_ns(scan: Einsum, cascade: Cascade, machine: Machine, passes: float) -> float:
    """The least time of a scan: VectorE's by its declaration, shared with TensorE where it is linear."""
    rate = 1.0 / scanned_column_ns(machine)
    assert scan.recurrence is not None
    if scan.recurrence.op0 == "multiply" and scan.recurrence.op1 in ("add", "subtract"):
        # a column of 128 turns makes as many values of a lane
        rate += machine["tensor_clock_ghz"] / passes
    return float(prod(cascade.extent(v, scan) for v in scan.variables) / machine["partitions"] / rate)


def scanned_column_ns(machine: Machine) -> float:
    """What a column of a scan takes, all partitions together, by the declaration of the instruction."""

    def time(columns: int) -> float:
        shape = (int(machine["partitions"]), columns)
        tile = layout(shape, compact_strides(shape), DTYPES["float32"], "sbuf", 0, 0, ())
        attributes = (operator_named("multiply"), operator_named("add"), False, False)
        form = REGISTRY["tensor_tensor_scan"](machine, [tile, tile, tile, NUMBER], attributes)
        return float(sum(step.busy_ns for step in form.steps))

    return (time(MANY) - time(FEW)) / (MANY - FEW)


def _turn_ns(block: Iterate, cascade: Cascade, machine: Machine, passes: float) -> float:
    """The longest chain of one turn."""
    longest = 0.0
    handed_on = ((path, n) for first, last, n in _handed_on(block) for path in _paths(block, first, last))
    for path, turns in handed_on:
        longest = max(longest, _path_ns(path, block, cascade, machine, passes) / turns)
    return longest


def _handed_on(block: Iterate) -> Iterator[tuple[int, int, int]]:
    """Einsums that read what a turn before wrote, which wrote it, and how many turns before."""
    reads = ((number, access) for number, reader in enumerate(block.body) for access in reader.accesses)
    for (number, access), (place, writer) in product(reads, enumerate(block.body)):
        turns = _turns_between(writer.output, access, block.variable)
        if turns:
            yield number, place, turns


def _turns_between(written: Access, read: Access, variable: str) -> int:
    """How many turns before an element was written; 1 where all turns before are read, 0 in the same turn."""
    if written.tensor != read.tensor:
        return 0
    for made, asked in zip(written.indices, read.indices, strict=True):
        if variable not in made.variables:
            continue
        if not isinstance(made, Affine) or not isinstance(asked, Affine):
            return 1
        is_step = variable in asked.variables and made.terms == asked.terms
        return max(0, made.constant - asked.constant) if is_step else 1
    return 0


def _paths(block: Iterate, first: int, last: int) -> Iterator[list[Einsum]]:
    """Ways from an Einsum to another through what the same turn wrote before."""
    if first == last:
        yield [block.body[first]]
    for number in range(first + 1, last + 1):
        reader, writer = block.body[number], block.body[first]
        reads = (a for a in reader.accesses if a.tensor == writer.name)
        if any(not _turns_between(writer.output, a, block.variable) for a in reads):
            yield from ([writer, *rest] for rest in _paths(block, number, last))


def _path_ns(
    path: Sequence[Einsum], block: Iterate, cascade: Cascade, machine: Machine, passes: float
) -> float:
    """The time of the fewest instructions that compute Einsums which wait for each other."""
    total = 0.0
    run: list[float] = []
    for einsum in path:
        own = [v for v in einsum.variables if v != block.variable]
        points = prod(cascade.extent(v, einsum) for v in own)
        columns = points / machine["partitions"]
        if einsum.along:
            total += sum(_steps(run)) + _least_ns(0.0, machine)
            run = []
            continue
        if not einsum.reduced:
            run.append(_least_ns(columns, machine))
            continue
        total += sum(_steps(run[:-TOGETHER])) + _sum_ns(einsum, points, machine, passes)
        run = []
    return total + sum(_steps(run))


def _steps(run: Sequence[float]) -> list[float]:
    """Operators after each other, as many as go together in one instruction."""
    return [max(run[n : n + TOGETHER]) for n in range(0, len(run), TOGETHER)]


def _least_ns(columns: float, machine: Machine) -> float:
    """The least latency of an instruction over columns of all partitions, of the engines that compute."""
    vector = machine["vector_duration_ns"] + columns / (
        machine["vector_clock_ghz"] * max(machine["vector_mode_speedup"], machine["vector_fp32_lanes"])
    )
    scalar = machine["scalar_duration_ns"] + columns / machine["scalar_clock_ghz"]
    gpsimd = (machine["gpsimd_overhead_cycles"] + columns) / machine["gpsimd_clock_ghz"]
    return float(min(vector, scalar, gpsimd))


def _sum_ns(einsum: Einsum, points: int, machine: Machine, passes: float) -> float:
    """The least latency of a reduction: that of a product on TensorE, if it is one and that is less."""
    least = _least_ns(points / machine["partitions"], machine)
    if einsum.reduce_op != "add" or einsum.map_op not in ("multiply", ""):
        return least
    columns = max(machine["matmul_interval_cycles"], points / machine["partitions"] ** 2)
    return min(least, machine["tensor_latency_ns"] + columns * passes / machine["tensor_clock_ghz"])
