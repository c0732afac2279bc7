"""Loops and grids of Beta 1, whose iterations and instances the compiler may run in any order.

From `nki` on ranges are unrolled in order, whatever they are called, so that nothing here applies.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from msgspec.structs import replace

from ..isa.declare import Instruction
from ..isa.operators import Operator
from ..place.edges import waits_of
from ..place.slots import DMA
from ..place.walk import ANTI, KINDS
from ..tiles.tile import HBM
from .declare import Example, Rule, rule
from .evidence import Evidence, Track
from .finding import Finding, once

_UNROLLED = "`nki` runs the iterations of these ranges in order"
AFFINE = "nki.language.affine_range; err_unexpected_output_dependencies"
_RUNNING = """
tiles: out x.dtype[128,512] hbm < state
state = nl.zeros((128, 512), x.dtype, buffer=nl.sbuf)
for i in nl.{}(4):
    state[...] = nl.exp(state) + nl.load(x[i])
"""
_X = {"x": "f32[4,128,512]"}
CARRIED = rule(
    "affine-carried", "loops", "error", title="an iteration of affine_range needs nothing of another one",
    what="an iteration of an affine_range loop touches what another iteration wrote or reads, and the two "
    "do not accumulate by one associative operator",
    why="the compiler runs iterations in any order and side by side; only sums of matmuls, loop_reduce and "
    "updates such as `t += x` may be carried", fix="use nl.sequential_range", source=AFFINE,
    kernel=Example(_RUNNING, _X, "neuronxcc"), wrong="affine_range", right="sequential_range",
    one_spelling=_UNROLLED,
)  # fmt: skip

_FILL = """
tiles: out x.dtype[4,128,512] hbm
for i in nl.affine_range(4):
    nl.store(out[i], nl.load(x[i]))
for i in nl.affine_range(4):
    nl.store({}, nl.load(x[i]))
"""
TWICE = rule("affine-output", "loops", "error", title="iterations of affine_range write different places",
    what="two iterations of an affine_range loop write the same elements without accumulating",
    why="iterations run in any order: any of them may be the last",
    fix="index the destination with the loop variable, or use nl.sequential_range", source=AFFINE,
    kernel=Example(_FILL, _X, "neuronxcc"), wrong="out[0]", right="out[i]",
    one_spelling=f"{_UNROLLED}; `overwritten-result` tells of what is lost there",
)  # fmt: skip

_OF_INSTANCES = """
tiles: out x.dtype[4,128,512] hbm
i = nl.program_id(0)
nl.store(out[i], nl.load(x[i]))
{}
"""
INSTANCES = rule("instances-output", "loops", "error", title="instances of a grid write different places",
    what="two program instances write the same elements in HBM, or one reads what another wrote",
    why="instances run in any order, on one core or several; nothing orders them",
    fix="index the tensor with nl.program_id",
    source="NKI programming model, SPMD; err_unexpected_output_dependencies",
    kernel=Example(_OF_INSTANCES, _X, "neuronxcc", grid="4"),
    wrong="nl.store(out[0], nl.load(x[i]))", right="",
    one_spelling="a grid of `nki` is cores, of which `race-two-cores` tells",
)  # fmt: skip

_AFTER = """
tiles: out x.dtype[128,512] hbm < tile
tile = nl.zeros((128, 512), x.dtype, buffer=nl.sbuf)
for i in nl.sequential_range(4):
    tile{} = nl.load(x[i])
"""
SCOPE = rule("out-of-scope", "loops", "error",
    title="a tile is used in the iteration that makes it",
    what="a tile that was made inside a loop is used after the loop, or in a later iteration",
    why="the body is traced once and its tiles live in one iteration; Python's name still holds the last one",
    fix="make the tile before the loop and write it with tile[...] = inside",
    source="err_local_variable_used_out_of_scope",
    kernel=Example(_AFTER, _X, "neuronxcc"), wrong="", right="[...]",
    one_spelling=f"{_UNROLLED}; `lost-iterations` tells of what is lost there",
)  # fmt: skip

# kinds of loops whose body the compiler of Beta 1 traces once
_TRACED = ("affine", "sequential")


def find(evidence: Evidence) -> Iterator[Finding]:
    """What loops and grids of a Beta 1 kernel carry."""
    if evidence.kernel.spelling != "neuronxcc":
        return
    yield from once(f for track in evidence.tracks for f in (*_carried(track), *_scopes(track)))


def _carried(track: Track) -> Iterator[Finding]:
    """Pairs of rows of different iterations, or instances, that touch the same elements."""
    if "affine" not in track.marks.loops.values() and len(track.marks.instances) < 2:
        return
    program = track.program
    # no engine keeps the order of iterations: every read counts, not the last one of an engine
    slots = replace(track.slots, engine=np.full_like(track.slots.engine, DMA))
    waits = waits_of(program, slots, track.boxes, track.overlaps)
    later = np.repeat(np.arange(len(program)), np.diff(waits.start))
    earlier, kind = waits.node, waits.kind
    position = np.asarray(program.position_column, np.int64)
    starts = np.array([first for first, _ in track.marks.instances] or [0], np.int64)
    instance = np.searchsorted(starts, np.arange(len(program)), "right") - 1
    apart = (position[later] != position[earlier]) | (instance[later] != instance[earlier])
    line = np.asarray(program.line_column, np.int64)
    is_carried = cache(lambda here, there: carrier_of(track, here, there) is not None)
    reported: set[tuple[int, int]] = set()
    storages: set[int] = set()
    # what is read first and written later counts only where nothing else is told of the tensor
    edges = np.flatnonzero(apart)
    for edge in edges[np.argsort(kind[edges] == ANTI, kind="stable")].tolist():
        row, before = int(later[edge]), int(earlier[edge])
        elsewhere = bool(instance[row] != instance[before])
        pair = (int(line[row]), int(line[before]))
        if pair in reported or not (elsewhere or is_carried(int(position[row]), int(position[before]))):
            continue
        violation = _broken(track, row, before, KINDS[kind[edge]], elsewhere)
        if violation is not None and not (kind[edge] == ANTI and violation[0] in storages):
            reported.add(pair)
            storages.add(violation[0])
            yield violation[1]


def _broken(
    track: Track, row: int, before: int, kind: str, is_other_instance: bool
) -> tuple[int, Finding] | None:
    """The tensor that two rows share and what is wrong with that, if anything is."""
    shared = _shared(track, row, before)
    if shared is None:
        return None
    storage, is_hbm = shared
    if is_other_instance:
        finding = _finding_of(INSTANCES, track, row, before, storage, "instance", kind)
        return (storage, finding) if is_hbm else None
    carried = track.marks.carried
    if _accumulate(track, row, before) or any(a.storage in carried for a in track.program.accesses(row)):
        return None
    rule = TWICE if kind == "output" else CARRIED
    return storage, _finding_of(rule, track, row, before, storage, "iteration", kind)


def _finding_of(
    rule: Rule, track: Track, row: int, before: int, storage: int, who: str, kind: str
) -> Finding:
    verb = "reads" if kind == "flow" else "writes"
    other = "read" if kind == "anti" else "wrote"
    now = "reads" if kind == "anti" else "writes"
    return rule.finding(
        f"{track.called(row)} {verb} {track.describe(storage)}, which {track.called(before)} {other} in "
        f"another "
        f"{who}", track.site(row), track.site(before), f"{track.called(before)} {now} it here",
    )  # fmt: skip


def _shared(track: Track, row: int, before: int) -> tuple[int, bool] | None:
    """The storage that both rows touch and one writes, and whether it lies in HBM.

    Blocks of a tensor that rotate through one tile are serialized (direct allocation guide).
    """
    slots, overlaps = track.slots, track.overlaps
    mine, theirs = (range(track.slot_start[r], track.slot_start[r + 1]) for r in (row, before))
    for one in mine:
        storage, box = int(slots.storage[one]), int(track.boxes.of_slot[one])
        if storage in track.marks.rotating:
            continue
        near = {box, *overlaps.other[overlaps.start[box] : overlaps.start[box + 1]].tolist()}
        both = (o for o in theirs if slots.storage[o] == storage and int(track.boxes.of_slot[o]) in near)
        if any(slots.is_written[one] or slots.is_written[other] for other in both):
            return storage, track.program.storages[storage].memory == HBM
    return None


def carrier_of(track: Track, position: int, other_position: int) -> int | None:
    """The affine loop of which two places are in different iterations; None if another loop comes first."""
    here, there = track.loops_of_position[position], track.loops_of_position[other_position]
    for (loop, iteration), (other, other_iteration) in zip(here, there, strict=False):
        if loop != other:
            return None
        if iteration != other_iteration:
            return loop if track.marks.loops.get(loop) == "affine" else None
    return None


def _accumulate(track: Track, row: int, before: int) -> bool:
    """Whether both rows add to what is there, by one associative operator."""
    reduced = track.marks.reduced
    if row in reduced and reduced[row] == reduced.get(before):
        return True
    forms = [track.program.form_of(r) for r in (row, before)]
    if all(form.accumulates for form in forms):
        return True
    ways = [updates_by(track, r, form) for r, form in zip((row, before), forms, strict=True)]
    return ways[0] is not None and ways[0] == ways[1]


def updates_by(track: Track, row: int, form: Instruction) -> str | None:
    """The operator by which a row updates a tile in place, if its updates may come in any order; or None."""
    accesses = list(track.program.accesses(row))
    written = {(a.storage, a.offset, a.layout) for a in accesses if a.is_written}
    updated = [a.operand for a in accesses if not a.is_written and (a.storage, a.offset, a.layout) in written]
    combines = getattr(form, "dst_rmw_op", None)
    if combines is not None:
        return str(combines)
    if not updated:
        reduces = [value for value in form.attribute_values if isinstance(value, Operator)]
        is_sum = form.reads_dst and reduces and all(op.reduces for op in reduces)
        return ",".join(op.name for op in reduces) if is_sum else None
    # from what was there before to what is there after, one operator alone: t * 2 + x depends on the order
    steps = [step for operand in updated for step in _steps(form, operand)]
    (name, *others) = {op.name for op, _ in steps} or {""}
    if others or not all(op.reduces and (is_left or op.name != "subtract") for op, is_left in steps):
        return None
    return name or None


def _steps(form: Instruction, operand: str) -> list[tuple[Operator, bool]]:
    """The operators on the way of an operand to the result, and whether it stands left of each."""
    one = getattr(form, "op", None)
    if isinstance(one, Operator):
        return [(one, operand != "data2")]
    steps_of = []
    for number in range(2):
        op, is_reversed = getattr(form, f"op{number}", None), bool(getattr(form, f"reverse{number}", False))
        is_own = operand == f"operand{number}"
        if isinstance(op, Operator) and (is_own or not operand.startswith("operand")):
            steps_of.append((op, is_reversed if is_own else not is_reversed))
            operand = "result"
    return steps_of


def _scopes(track: Track) -> Iterator[Finding]:
    """Accesses of tiles outside of the iteration that made them."""
    marks, program = track.marks, track.program
    if not any(kind in _TRACED for kind in marks.loops.values()):
        return
    slots = track.slots
    births = np.array(marks.births, np.int64)[slots.storage]
    here = np.asarray(program.position_column, np.int64)[slots.row]
    on_chip = ~slots.kinds.lie_in(HBM)[slots.storage]
    memory = cache(lambda birth, position: _is_outside(track, birth, position))
    reported: set[tuple[int, int]] = set()
    for slot in np.flatnonzero(on_chip & (births != here) & (births > 0)).tolist():
        storage, row = int(slots.storage[slot]), int(slots.row[slot])
        key = (program.storages[storage].line, int(program.line_column[row]))
        if key in reported or storage in marks.carried or not memory(int(births[slot]), int(here[slot])):
            continue
        reported.add(key)
        yield SCOPE.finding(
            f"{track.called(row)} uses {track.describe(storage)} outside of the iteration that made it",
            track.site(row), track.birthplace(storage), "made here, inside a loop",
        )  # fmt: skip


def in_traced_loop(track: Track, position: int) -> bool:
    """Whether the body around a position is one that Beta 1 traces once."""
    return any(track.marks.loops.get(loop) in _TRACED for loop, _ in track.loops_of_position[position])


def _is_outside(track: Track, birth: int, position: int) -> bool:
    """Whether a position lies outside of an iteration of a traced loop in which a tile was made."""
    inside = set(track.loops_of_position[position])
    return any(
        (loop, iteration) not in inside
        for loop, iteration in track.loops_of_position[birth]
        if track.marks.loops.get(loop) in _TRACED
    )
