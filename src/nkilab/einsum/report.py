"""What a compilation tells: repairs and changes, predicted time and roofline, the story of the kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from ..tiles.dtypes import as_dtype
from ..views.bound import is_of_transfers
from ..views.words import ENGINE_NAMES
from .compiled import CompiledEinsum
from .language.ast import Cascade
from .rewrite.recurrences import STEPWISE
from .roofline import RESOURCES, work_of
from .tree.expr import expr
from .tree.instructions import instruction_of
from .tree.nodes import HBM, Alloc, Buffer, Gather, Load, Loop, Statement, Store, statements, walked

SCHEMA = "nkilab.einsum/1"
# times of the roofline from which a summary says why a kernel takes so long
FAR = 4.0


def data(compiled: CompiledEinsum) -> dict[str, Any]:
    """Everything as a dictionary ready for JSON."""
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "kernel": compiled.name,
        "dialect": compiled.dialect,
        "target": compiled.target,
        "inputs": list(compiled.inputs),
        "outputs": list(compiled.outputs),
        "findings": [finding.data() for finding in compiled.findings],
        "changes": list(compiled.changes),
        "source": compiled.source,
    }
    if compiled.has_extents:
        roof, estimate = compiled.roofline, compiled.estimate
        found |= {
            "latency_us": estimate.latency_us,
            "interval_us": list(estimate.interval_us),
            "roofline_us": roof.least_us,
            "roofline_bound": roof.bound,
            "engine_roofline_us": compiled.engine_roofline_us,
            "roofline_ns": dict(roof.times_ns),
            "bound": estimate.summary.bound,
            "instructions": estimate.program.opcodes(),
            "traffic_bytes": traffic(compiled),
            "input_output_bytes": roof.bytes,
            "sbuf_peak_bytes": estimate.summary["sbuf_peak_bytes"],
            "psum_peak_banks": estimate.summary["psum_peak_banks"],
        }
    return found


def traffic(compiled: CompiledEinsum) -> int:
    """Bytes that the loop tree moves between HBM and SBUF."""
    if compiled.tree is None:
        return 0
    return sum(moved for _, moved in transfers(compiled.tree.body, 1, compiled.extents))


def transfers(body: list[Statement], times: int, names: Mapping[str, int]) -> Iterator[tuple[Buffer, int]]:
    """Per transfer of a tree, the HBM tensor and the bytes of all turns."""
    for statement in body:
        if isinstance(statement, Loop):
            counted = _turns(statement, names)
            yield from (t for turns, held in counted for t in transfers(statement.body, times * turns, held))
        elif isinstance(statement, Load | Store | Gather):
            far = statement.table if isinstance(statement, Gather) else statement.src
            hbm, chip = (statement.dst, far) if isinstance(statement, Store) else (far, statement.dst)
            size = as_dtype(hbm.buffer.dtype).itemsize
            yield hbm.buffer, times * size * prod(cut.count.at(names) for cut in chip.cuts)


def _turns(loop: Loop, names: Mapping[str, int]) -> list[tuple[int, Mapping[str, int]]]:
    """Turns of a loop that are alike, and the names in them: the last may count fewer values."""
    turns, inner = loop.turns_at(names), [*statements(loop.body)]
    found = [(turns, names)]
    if loop.count_name:
        last = {**names, loop.count_name: loop.last_count(names)}
        found = [(turns - 1, {**names, loop.count_name: loop.most_count}), (1, last)]
    counts = [s.total for s in inner if isinstance(s, Loop) and s.total is not None]
    counts += [cut.count for s in inner if isinstance(s, Load | Store) for cut in (*s.dst.cuts, *s.src.cuts)]
    if not any(loop.variable in count.names for count in counts):
        return found
    ends = [held for times, held in found for _ in range(times)]
    return [(1, {**held, loop.variable: turn}) for turn, held in enumerate(ends)]


def summary(compiled: CompiledEinsum) -> str:
    """A few lines: what was repaired or changed, the predicted time, the roofline."""
    lines = [f"{compiled.name}: {compiled.dialect}, for {compiled.target}"]
    for finding in (*compiled.repairs, *compiled.advice):
        lines += [f"{finding.grade.value}: {finding.text}"]
    reasons = [c for c in compiled.changes if STEPWISE in c]
    lines += [f"  {change}" for change in compiled.changes if change not in reasons]
    if compiled.has_extents:
        estimate, roof = compiled.estimate, compiled.roofline
        low, high = estimate.interval_us
        lines.append(
            f"  predicted {estimate.latency_us:.1f} us ({low:.1f} to {high:.1f}), "
            f"bound by {estimate.summary.bound}"
        )
        times = {**{RESOURCES[n]: t for n, t in roof.times_ns.items() if t}, "launch": roof.launch_ns}
        told = ", ".join(f"{name} {time / 1000:.1f}" for name, time in times.items())
        ratio = estimate.latency_us / roof.least_us if roof.least_us else float("inf")
        reasons += [reason(compiled)] if ratio > FAR and not reasons else []
        lines += [f"  latency is {ratio:.3g}x its roofline: {why}" for why in reasons]
        lines.append(f"  roofline of the cascade {roof.least_us:.1f} us ({told}); {ratio:.2f} times of it")
        own = compiled.engine_roofline_us
        ratio = estimate.latency_us / own
        lines.append(f"  roofline of these instructions {own:.1f} us; {ratio:.2f} times of it")
        lines.append(f"  moves {traffic(compiled):,} bytes; inputs and outputs have {roof.bytes:,}")
    return "\n".join(lines)


def reason(compiled: CompiledEinsum) -> str:
    """What takes most of the latency of a kernel: an engine, bytes moved again, transfers, or waiting."""
    latency, moved = compiled.estimate.latency_us, traffic(compiled)
    moved_us = moved / compiled.machine["hbm_bytes_per_ns"] / 1000
    works = {engine: time / 1000 for engine, time in work_of(compiled.estimate).items()}
    engine = max(works, key=lambda name: works[name])
    name, start = ENGINE_NAMES.get(engine, engine), f"it takes {latency:.1f} us because"
    if 2 * works[engine] >= latency and works[engine] >= moved_us:
        return f"{start} {name} works {works[engine]:.1f}"
    if 2 * moved_us >= latency:
        return f"{start} it moves {moved:,} bytes; inputs and outputs have {compiled.roofline.bytes:,}"
    run = compiled.estimate.summary
    if is_of_transfers(run.bound):
        return f"{start} it is bound by {run.bound}: {run.bound_text}"
    waits = "instructions and transfers wait for each other"
    return f"{start} {waits}: the busiest engine, {name}, works {works[engine]:.1f}"


def explain(compiled: CompiledEinsum) -> str:
    """The story: Einsums, passes, the loop tree, where tensors live, instructions, other choices."""
    cascade = compiled.cascade
    parts = [summary(compiled), "", "Einsums", *_einsums(cascade), "", "Passes", *_passes(cascade)]
    if compiled.tree is not None:
        parts += ["", "Loop tree", *_tree(compiled.tree.body, 1), "", "Tensors", *_tensors(compiled)]
        parts += ["", "Instructions", *_instructions(compiled)]
    if compiled.has_extents:
        parts += ["", "Other choices", *_others(compiled)]
    return "\n".join(parts)


def _einsums(cascade: Cascade) -> list[str]:
    told = []
    for einsum in cascade.einsums:
        kind = (
            "sum of products" if einsum.is_contraction else "reduction" if einsum.reduced else "element-wise"
        )
        told.append(f"  {einsum.text or einsum}   ({kind})")
    return told


def _passes(cascade: Cascade) -> list[str]:
    """Per rank, how often a fibre is gone through, and the reductions that must be complete in between."""
    found = []
    for rank in dict.fromkeys(r for t in cascade.tensors.values() for r in t.ranks):
        deepest, forcing = _passes_along(cascade, rank.lower())
        if deepest:
            why = f", forced by {', '.join(forcing)}" if forcing and deepest > 1 else ""
            found.append(f"  {rank}: {deepest} pass{'es' if deepest > 1 else ''}{why}")
    return found


def _passes_along(cascade: Cascade, variable: str) -> tuple[int, list[str]]:
    """Passes over the fibres of a variable, and the reductions before the last."""
    level: dict[str, int] = {}
    forcing: list[str] = []
    deepest = 0
    for einsum in cascade.einsums:
        before = max((level.get(t, 0) for t in einsum.reads), default=0)
        if variable in einsum.variables:
            deepest = max(deepest, before + 1)
        ends = variable in einsum.reduced
        level[einsum.name] = before + 1 if ends else before
        if ends:
            forcing.append(einsum.name)
    return deepest, [name for name in forcing if level[name] < deepest]


def _tree(body: list[Statement], depth: int) -> list[str]:
    told = []
    pad = "  " * depth
    for statement in body:
        if isinstance(statement, Loop):
            order = " (in order)" if statement.is_sequential else ""
            told.append(f"{pad}for {statement.variable} in {statement.trips}{order}")
            told += _tree(statement.body, depth + 1)
    counts = Counter(call[0].name for s in body if (call := instruction_of(s)) is not None)
    if counts:
        told.insert(0, pad + ", ".join(f"{n} {name}" if n > 1 else name for name, n in counts.items()))
    return told


def _tensors(compiled: CompiledEinsum) -> list[str]:
    assert compiled.tree is not None
    moved: Counter[str] = Counter()
    for buffer, size in transfers(compiled.tree.body, 1, compiled.extents):
        moved[buffer.tensor] += size
    told = [f"  {name}: HBM, {moved[name]:,} bytes moved" for name in (*compiled.inputs, *compiled.outputs)]
    allocs = ((s.buffer, loops) for s, loops in walked(compiled.tree.body) if isinstance(s, Alloc))
    for buffer, loops in ((b, e) for b, e in allocs if b.tensor and b.memory != HBM):
        size = prod(expr(e).at(compiled.extents) for e in buffer.shape[1:]) * as_dtype(buffer.dtype).itemsize
        names = ", ".join(loop.variable for loop in loops)
        lives = f"for a turn of {names}" if loops else "for the whole kernel"
        told.append(
            f"  {buffer.tensor}: {buffer.memory} [{', '.join(map(str, buffer.shape))}] as {buffer.name}, "
            f"{size:,} bytes per partition, {lives}"
        )
    return told


def _instructions(compiled: CompiledEinsum) -> list[str]:
    assert compiled.tree is not None
    told, title = [], ""
    counts: Counter[str] = Counter()

    def close() -> None:
        if title and counts:
            told.append(
                f"  {title}: " + ", ".join(f"{n} {name}" if n > 1 else name for name, n in counts.items())
            )
        counts.clear()

    for statement in statements(compiled.tree.body):
        text = getattr(statement, "text", "") or getattr(statement, "comment", "")
        if text and "=" in text:
            close()
            title = text
        elif (call := instruction_of(statement)) is not None:
            counts[call[0].name] += 1
    close()
    return told


def _others(compiled: CompiledEinsum) -> list[str]:
    none = "none is judged close by the rules; --search SECONDS tries further ones"
    return [f"  {choice}" for choice in compiled.alternatives or (none,)]


# compiled.py cannot import what reads it
setattr(CompiledEinsum, "report", property(summary, doc=summary.__doc__))  # noqa: B010
