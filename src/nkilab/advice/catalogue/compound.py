"""Instructions that do what a series of others does: statistics, scans, selections that select nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from msgspec.structs import replace

from ...isa.costs import engine_step
from ...isa.elementwise import Memset
from ...isa.operators import operator_named
from ...isa.scans import TensorTensorScan
from ...isa.select import AffineSelect
from ...tiles.tile import Layout
from ...tiles.tile import layout as view_layout
from ...trace.program import Program
from ..declare import POINTWISE, Candidate, Subject, of_rows, plural, transformation
from ..draft import Draft, Slot, Unfit, with_steps
from .fusing import read_out, without_steps

# steps of a recurrence from which on one scan is shorter
FEWEST_STEPS = 8


@transformation(
    "use_statistics", by_formula=True, relieves=POINTWISE,
    title="bn_stats gathers mean and variance in one pass",
    what="a sum and a sum of squares are taken of the same rows, each in a pass of its own",
    why="bn_stats reads a row once for both; bn_aggr makes mean and variance of what it gathered",
    fix="use nisa.bn_stats on parts of up to 512 elements, and nisa.bn_aggr",
    source="nki.isa.bn_stats; NKI performance guide, combine instructions",
)  # fmt: skip
def statistics(subject: Subject) -> Iterator[Candidate]:
    """Sums and sums of squares of one tile."""
    base = subject.base
    sums, squares = dict[int, int](), dict[int, list[int]]()
    for row in subject.rows_of("tensor_reduce", "activation_reduce").tolist():
        form = base.form_of(row)
        source = subject.read_by(row)[0]
        makers = [w for w in subject.writers.get(source, []) if _squares(subject, w)]
        adds = form.name == "tensor_reduce" and form.op.name == "add"  # type: ignore[attr-defined]
        if adds and makers:
            squares.setdefault(_squared(subject, makers[0]), []).extend((*makers, row))
        elif adds:
            sums[source] = row
        elif form.name == "activation_reduce" and form.op.name == "square":  # type: ignore[attr-defined]
            squares.setdefault(source, []).append(row)
    both = [tile for tile in sums if tile in squares]
    rows = [row for tile in both for row in (sums[tile], *squares[tile])]
    message = f"{plural(len(both), 'tile')} are read twice for their mean and variance"
    edit = "bn_stats and bn_aggr", lambda: _gathered(base, sums, squares, both)
    yield from of_rows(subject, rows, message, edit, rounds=True)


def _squares(subject: Subject, row: int) -> bool:
    form = subject.base.form_of(row)
    sources = [(a.storage, a.offset) for a in subject.base.accesses(row) if not a.is_written]
    name = getattr(getattr(form, "op", None), "name", "")
    product = form.name == "tensor_tensor" and name == "multiply" and len(set(sources)) == 1
    return product or (form.name == "activation" and name == "square")


def _squared(subject: Subject, row: int) -> int:
    """The tile whose elements a row squares, also where a number per row was subtracted from them first."""
    tile = subject.read_by(row)[0]
    for writer in subject.writers.get(tile, []):
        form = subject.base.form_of(writer)
        if form.name == "tensor_scalar" and form.op0.name == "subtract":  # type: ignore[attr-defined]
            return subject.read_by(writer)[0]
    return tile


def _gathered(
    base: Program, sums: dict[int, int], squares: dict[int, list[int]], tiles: list[int]
) -> Program:
    """A program in which statistics take the place of sums, and what is left of squares reads a register."""
    machine = base.machine
    one = np.array([sums[tile] for tile in tiles], np.int64)
    rest = np.array([row for tile in tiles for row in squares[tile]], np.int64)
    width = max(base.form_of(int(row)).layouts[1].free_size for row in one)
    stats = engine_step(machine, "vector", "BN_STATS", width)
    parts = -(-width // machine.limit("bn_stats_free_max"))
    combined = engine_step(machine, "vector", "BN_AGGR", 13 * 2 * parts)
    both = replace(stats, busy_ns=stats.busy_ns + combined.busy_ns, latency_ns=combined.latency_ns)
    return with_steps(with_steps(base, one, lambda _: both), rest, read_out)


@transformation(
    "use_scan", relieves=POINTWISE, title="one scan runs a recurrence",
    what="each step of a recurrence is an instruction on one column, which waits for the step before it",
    why="an instruction takes as long for one column as for sixty-four; a scan runs along the row",
    fix="lay the steps along the free axis and use nisa.tensor_tensor_scan",
    source="nki.isa.tensor_tensor_scan; fused Mamba tutorial",
)  # fmt: skip
def scans(subject: Subject) -> Iterator[Candidate]:
    """Steps r = a * r + b, or r = r + b, column by column, as one scan."""
    steps = _steps(subject)
    chains: list[list[tuple[list[int], list[Slot | None]]]] = []
    for rows, (result, one, other, summand) in steps:
        before = chains[-1][-1][1][0] if chains else None
        # factors may stand either way
        assert result is not None
        is_other = other is not None and other in (before, _column_before(result))
        continued, factor = (other, one) if is_other else (one, other)
        if continued != before:
            chains.append([])
        chains[-1].append((rows, [result, continued, factor, summand]))
    long = [chain for chain in chains if len(chain) >= FEWEST_STEPS]
    every = [row for chain in long for rows, _ in chain for row in rows]
    message = f"{plural(sum(map(len, long)), 'step')} of a recurrence, one column each"
    yield from of_rows(
        subject, every, message, ("one scan for each recurrence", lambda: _scanned(subject, long))
    )


def _column_before(slot: Slot) -> Slot:
    storage, offset, own = slot
    return storage, offset - 1, own


def _steps(subject: Subject) -> list[tuple[list[int], list[Slot | None]]]:
    """Per step of a recurrence its rows, and its result, what it continues, the factor and the summand.

    Of a running sum the factor is None.
    """
    base, result = subject.base, list[tuple[list[int], list[Slot | None]]]()
    draft = Draft(base) if len(subject.rows_of("tensor_tensor", "tensor_scalar")) else None
    products: dict[Slot, tuple[int, list[Slot]]] = {}
    for row in subject.rows_of("tensor_tensor", "tensor_scalar").tolist() if draft is not None else ():
        form, slots = base.form_of(row), draft.slots(row)  # type: ignore[union-attr]
        if any(s[2].free_size != 1 for s in slots):
            continue
        names = [getattr(getattr(form, name, None), "name", "") for name in ("op", "op0", "op1")]
        if names[1:] == ["multiply", "add"] and len(slots) == 4:
            result.append(([row], [*slots]))
        elif "multiply" in names[:2] and not names[2] and len(slots) == 3:
            products[slots[0]] = row, slots
        elif "add" in names[:2] and not names[2] and len(slots) == 3:
            product = next((s for s in slots[1:] if s in products), slots[0])
            before, operands = products.pop(product, (row, slots))
            other = slots[2] if slots[1] == product else slots[1]
            rows = [before, row] if before != row else [row]
            result.append((rows, _step(slots, operands, other, is_sum=before == row)))
    return [own for own in result if own[1]]


def _step(slots: list[Slot], operands: list[Slot], other: Slot, *, is_sum: bool) -> list[Slot | None]:
    """Result, what it continues, factor and summand of a step; none of a sum that continues no column."""
    if not is_sum:
        return [slots[0], *operands[1:], other]
    last = _column_before(slots[0])
    return [slots[0], last, None, slots[1] if slots[2] == last else slots[2]] if last in slots[1:] else []


def _scanned(subject: Subject, chains: list[list[tuple[list[int], list[Slot | None]]]]) -> Program:
    """A program with a scan behind the last step of each recurrence instead of its steps."""
    base, draft = subject.base, Draft(subject.base)
    op0, op1 = (operator_named(name) for name in ("multiply", "add"))
    ones: dict[Layout, Slot] = {}
    for chain in chains:
        rows = [row for own, _ in chain for row in own]
        result, summand, start = _row_of(chain, 0), _row_of(chain, 3), chain[0][1][1]
        assert start is not None
        if chain[0][1][2] is not None:
            factor = _row_of(chain, 2)
        elif (known := ones.get(result[2])) is not None:
            factor = known
        else:
            tile = draft.new_tile(result[0], base.storages[result[0]].shape)
            factor = ones[result[2]] = (tile, result[1], result[2])
            form = draft.shared_form(Memset, base.machine, (result[2],), ("unknown",))
            draft.insert(rows[0], form, (1.0,), [factor])
        form = draft.shared_form(
            TensorTensorScan,
            base.machine,
            (result[2], factor[2], summand[2], start[2]),
            (op0, op1, False, False),
        )
        draft.insert(rows[-1], form, (), [result, factor, summand, start])
        draft.drop(rows)
    return draft.program()


def _row_of(chain: list[tuple[list[int], list[Slot | None]]], place: int) -> Slot:
    """The columns that the steps of a recurrence have at a place, side by side, as one operand."""
    columns = [column for _, slots in chain if (column := slots[place]) is not None]
    storage, offset, own = columns[0]
    steps = {b[1] - a[1] for a, b in pairwise(columns)}
    if len({(c[0], c[2]) for c in columns}) > 1 or len(steps) != 1 or own.indices:
        raise Unfit
    shape, strides = (own.shape[0], len(columns)), (own.strides[0], *steps)
    return storage, offset, _columns(own, shape, strides)


def _columns(own: Layout, shape: tuple[int, ...], strides: tuple[int, ...]) -> Layout:
    return view_layout(shape, strides, own.dtype, own.memory, own.partition_axis, own.start_partition)


@transformation(
    "mask_tail", relieves=POINTWISE, title="tiles that a mask leaves as they are need no mask",
    what="a selection by position takes every element of its tile",
    why="it is a pass over the tile that changes nothing; in most tiles of a causal mask this is so",
    fix="select in the tiles on the diagonal alone; the others are all kept, or not computed at all",
    source="fused attention tutorial, causal masks; nki.isa.affine_select",
)  # fmt: skip
def selections(subject: Subject) -> Iterator[Candidate]:
    """Selections that select everything."""
    rows = [row for row in subject.rows_of("affine_select").tolist() if _selects_all(subject.base, row)]
    message = f"{plural(len(rows), 'selection', 'change')} nothing: all their elements are taken"
    yield from of_rows(subject, rows, message, ("left out", lambda: without_steps(subject, rows)))


def _selects_all(base: Program, row: int) -> bool:
    form, values = base.form_of(row), base.values_of(row)
    assert isinstance(form, AffineSelect)
    used = form.used_elements(None, None, *values)
    return bool(np.asarray(used["on_true_tile"]).all())
