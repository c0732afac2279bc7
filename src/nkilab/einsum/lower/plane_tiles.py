"""Which tiles of several axes Einsums run over: what may lie how, and what it is judged to cost."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ..language.ast import Access, Affine, Einsum, Index
from ..plan.build import Span
from ..plan.choose import (
    BYTES_PER_NS,
    INSTRUCTION_NS,
    ROW_NS,
    SMALL_ROW_BYTES,
    TRANSFER_NS,
    TURN_NS,
    is_barred,
    sums_last,
    tiles_of_axes,
    turned_ns,
)
from ..plan.context import Context
from ..plan.reach import leaving
from ..plan.stage import bytes_around
from ..plan.storage import Storage
from .chosen import behind_chosen, chosen_by, in_whole_turns, is_simple

# axes of a tile behind the partitions, and elements of one on a partition
MOST_AXES, MOST_ELEMENTS = 3, 4096
# parts in which a turn of a block goes through a tile, each a bank of PSUM or more
PARTS_OF_TURN = 4


@dataclass(frozen=True)
class Planes:
    """How Einsums run over tiles of several axes."""

    part: str  # the variable on the partitions
    axes: tuple[str, ...]  # variables of a tile behind them, the outermost first
    blocks: Mapping[str, int]  # elements of a turn, of every variable that a loop cuts
    # variables that run one value at a time over what all of their values have brought on chip
    single: frozenset[str]
    cost_ns: float  # what it was judged by
    # variables whose parts a turn of a block goes through, over what all of it has brought on chip
    parted: frozenset[str] = frozenset()

    @property
    def whole(self) -> frozenset[str]:
        """Variables of which what is loaded has all values."""
        return self.single | self.parted


def planes_for(ctx: Context, einsums: Sequence[Einsum], spans: dict[str, Span]) -> Planes | None:
    """The cheapest way to run Einsums over the same variables in tiles of several axes; None if none does."""
    wide = [v for v in dict.fromkeys(v for e in einsums for v in e.variables) if not spans[v].is_point]
    accesses = [a for e in einsums for a in (e.output, *e.accesses)]
    is_watched = ctx.given.is_watched or any(ctx.given.instruction(e.name) for e in einsums)
    has_more = any(e.is_bound for e in einsums) or not all(map(is_simple, accesses))
    is_plain = all(i.plain or not i.variables for a in accesses for i in a.indices)
    if len(wide) < (MOST_AXES if is_plain else 2) or is_watched or has_more:
        return None
    indices = [i for a in accesses for i in a.indices]
    shortest = sorted(indices, key=lambda i: sum(not spans[v].is_point for v in i.variables))
    reduced = {v for e in einsums for v in e.reduced}
    apart = [i for a in accesses for i in a.indices if _is_apart(ctx, a, i, spans)]
    ways = {_single([i for i in order if i not in apart], spans, reduced) for order in (indices, shortest)}
    sides = [v for v in wide if not any(v in i.variables for i in apart)]
    options = (_planes(ctx, einsums, spans, p, single) for single in sorted(ways, key=sorted) for p in sides)
    return min((p for p in options if p is not None), key=lambda p: p.cost_ns, default=None)


def _is_apart(ctx: Context, access: Access, index: Index, spans: Mapping[str, Span]) -> bool:
    """Whether an index on chip goes through parts of an axis, each of which is an axis of a view."""
    if not isinstance(index, Affine):
        return False
    wide = sorted((c, spans[v].most) for v, c in index.terms if v in spans and not spans[v].is_point)
    is_chip = ctx.chip(access.tensor) is not None or ctx.homes.get(access.tensor) == "chip"
    return is_chip and len(wide) == 2 and wide[0][0] == 1 and wide[1][0] >= wide[0][1]


def _single(indices: Sequence[Index], spans: Mapping[str, Span], reduced: Container[str]) -> frozenset[str]:
    """Variables without which no index has two of several values: those of sums, and of few values."""
    single: set[str] = set()
    for index in (i for i in indices if isinstance(i, Affine)):
        wide = [v for v in index.variables if not spans[v].is_point and v not in single]
        single |= set(sorted(wide, key=lambda v: (v not in reduced, spans[v].most))[:-1])
    return frozenset(single)


def _planes(
    ctx: Context, einsums: Sequence[Einsum], spans: dict[str, Span], part: str, single: frozenset[str]
) -> Planes | None:
    """The way with a variable on the partitions, if it can lie there."""
    reduced, outputs = {v for e in einsums for v in e.reduced}, [e.output for e in einsums if not e.reduced]
    read = [a for e in einsums for a in e.accesses if a.tensor not in {e.name for e in einsums}]
    behind = {t for e in ctx.cascade.einsums if e not in einsums for t in e.reads} | {*ctx.cascade.outputs}
    written = [e.output for e in einsums if "hbm" in ctx.homes.get(e.name, "hbm") and e.name in behind]
    is_whole = all(part in o.variables for o in outputs) and part not in reduced and part not in single
    is_whole &= not any(is_barred(ctx, e.output, part) for e in einsums)
    for einsum in (e for e in einsums if "chip" in ctx.homes.get(e.name, "hbm")):
        chip, output = ctx.chip(einsum.name), einsum.output
        plain = [i.plain for i in output.indices]
        is_whole &= part in plain if chip is None else chip.part_variable(output) == part
    is_whole &= all(is_staged(ctx, a, spans, part) or _can_lie(ctx, a, spans, part) for a in read)
    if not is_whole or not all(_can_lie(ctx, a, spans, part) for a in written):
        return None
    natural = max((*read, *outputs), key=lambda a: len(a.variables)).variables
    every = dict.fromkeys((*natural, *(v for e in einsums for v in e.variables)))
    axes = [v for v in every if not spans[v].is_point and v not in single and v != part]
    turns = {b.variable: n for b in ctx.cascade.blocks for v, n in ctx.loops if v == b.variable}
    axes = sums_last(einsums, (*read, *outputs), spans, axes, max(turns.values(), default=1))
    blocks = {v: 1 for v in every if v in single}
    blocks |= {part: ctx.lanes} if spans[part].most > ctx.lanes else {}
    moved, options, extents = (*read, *written), list[Planes](), {v: spans[v].most for v in axes}
    parts = {str(o): prod(spans[v].most for v in o.variables if v in single) for o in written}
    each = {str(a): ctx.bytes_of(ctx.dtypes[a.tensor]) * parts.get(str(a), 1) for a in moved}
    bytes_of_all = 2 * (sum(each.values()) + 4 * len(einsums))
    room = max(1, min(MOST_ELEMENTS, int(ctx.room() * 0.8 - _edges(ctx, read, spans, part)) // bytes_of_all))
    for sizes in in_whole_turns(tiles_of_axes(axes, extents, moved, room), read, part, spans):
        # what is gathered is brought for all of a tile
        whole = bool(sizes) or any(a.gathers for a in read)
        parted = _parted(axes, reduced, extents, ctx.bank) if turns and not whole else {}
        sizes |= parted
        tile = [v for v in axes if sizes.get(v) != 1][-MOST_AXES:]
        cut = {**blocks, **sizes, **{v: 1 for v in axes if v not in tile}}
        if any(spans[v].count.value is None for v in cut if v != part or spans[v].most > ctx.lanes):
            return None
        planes = Planes(part, tuple(tile), cut, single, 0.0, frozenset(parted))
        options.append(replace(planes, cost_ns=_cost(ctx, einsums, spans, planes, moved)))
    return min(options, key=lambda p: p.cost_ns)


def _edges(ctx: Context, read: Sequence[Access], spans: dict[str, Span], part: str) -> int:
    """Bytes per partition of blocks with zeros around them."""
    edged = [a for a in read if any(part not in i.variables for i in leaving(ctx, a, spans))]
    around = {(a.tensor, *(str(i) for i in a.affine if part in i.variables)): a for a in edged}
    return sum(bytes_around(ctx, a, spans, part) for a in around.values())


def _parted(
    axes: Sequence[str], reduced: Container[str], extents: Mapping[str, int], least: int
) -> dict[str, int]:
    """Parts of an axis in which a turn of a block goes through a tile, and engines share it; {} for none."""
    parts = min(PARTS_OF_TURN, prod(extents.values()) // least)
    first = next((v for v in axes if v not in reduced), "")
    return {first: -(-extents[first] // parts)} if first and 1 < parts <= extents[first] else {}


def _can_lie(ctx: Context, access: Access, spans: dict[str, Span], part: str) -> bool:
    """Whether an operand or a result lies with a variable on the partitions, or comes there in long rows."""
    wide = [v for v in access.variables if not spans[v].is_point]
    chip = ctx.chip(access.tensor)
    is_known = all(spans[v].count.value is not None for v in wide if v != part)
    if not wide or (access.gathers and not (is_known and access.tensor in ctx.cascade.inputs)):
        return not wide
    if chip is not None:
        is_right = chip.part_dim is not None and access.indices[chip.part_dim].plain == part
        return is_right or is_row(access, spans, part) or _is_turned(chip, access, spans, part)
    is_across = wide != [part] and any(part in i.variables for i in behind_chosen(access, "")[-1:])
    return not is_across and not leaving(ctx, access, spans)


def is_staged(ctx: Context, access: Access, spans: dict[str, Span], part: str) -> bool:
    """Whether an operand in HBM is transposed on its way, or has zeros around it."""
    wide = [v for v in access.variables if not spans[v].is_point]
    own = [i for i in access.indices if isinstance(i, Affine) and part in i.variables]
    # what blocks of partitions read beyond edges is known only to their loop
    is_alone = not access.gathers and [i.terms for i in own] == [((part, 1),)]
    is_alone = is_alone and (bool(own[0].plain) or spans[part].most <= ctx.lanes)
    is_across = is_alone and wide != [part] and access.indices[-1].plain == part
    return access.tensor in ctx.storages and is_alone and (is_across or bool(leaving(ctx, access, spans)))


def is_row(access: Access, spans: Mapping[str, Span], part: str) -> bool:
    """Whether an operand is one row, of which every partition reads the same."""
    wide = [v for v in access.variables if not spans[v].is_point]
    return len(wide) == 1 and part not in wide and all(i.plain or not i.variables for i in access.indices)


def _is_turned(chip: Storage, access: Access, spans: dict[str, Span], part: str) -> bool:
    """Whether a small matrix on chip, its other axis on partitions, may be transposed for a nest."""
    wide = [v for v in access.variables if not spans[v].is_point]
    is_plain = all(i.plain for i in access.indices) and chip.part_dim is not None
    elements = prod(spans[v].most for v in wide)
    is_across = chip.part_variable(access) in wide
    return is_plain and is_across and part in wide and elements <= MOST_ELEMENTS * 8


def _cost(
    ctx: Context, einsums: Sequence[Einsum], spans: dict[str, Span], planes: Planes, moved: Sequence[Access]
) -> float:
    trips = {v: -(-spans[v].most // b) for v, b in planes.blocks.items()}
    elements = prod(min(spans[v].most, planes.blocks.get(v, spans[v].most)) for v in planes.axes)
    count = sum(max(1, len(e.operands) - 1 + bool(e.reduced)) for e in einsums)
    cost = prod(trips.values()) * count * (INSTRUCTION_NS + elements)
    cost += sum(turned_ns(ctx, e, spans, planes.part) for e in einsums)
    for chip, access in ((c, a) for a in moved if (c := ctx.chip(a.tensor)) is not None):
        # transposed on chip, a matrix for each value of further axes
        sides = (planes.part, chip.part_variable(access))
        apart = {v for v in access.variables if not spans[v].is_point}.difference(sides)
        is_turned = planes.part in access.variables and chip.part_variable(access) != planes.part
        cost += is_turned * TURN_NS * prod(spans[v].most for v in apart)
    for access in {str(a): a for a in moved if ctx.chip(a.tensor) is None}.values():
        size = ctx.bytes_of(ctx.dtypes[access.tensor])
        wide = [v for v in access.variables if not spans[v].is_point]
        total = prod(spans[v].most for v in wide) * size
        if planes.part not in wide:
            # every block of partitions has all of it, anew where loops inside take parts of it
            is_cut = any(trips.get(v, 1) > 1 and v not in planes.whole for v in wide)
            total *= ctx.lanes * (trips.get(planes.part, 1) if is_cut else 1)
        if is_staged(ctx, access, spans, planes.part):
            is_across = access.indices[-1].plain == planes.part
            cost += total / BYTES_PER_NS + TURN_NS * total / size / ctx.lanes**2 * is_across
            continue
        row = size * _run(access, spans, planes)
        cost += total / BYTES_PER_NS + (total / row * ROW_NS if row < SMALL_ROW_BYTES else 0.0)
        cost += prod(t for v, t in trips.items() if v in wide and v not in planes.whole) * TRANSFER_NS
        for v in chosen_by(access, planes.part, planes.axes):
            cost += (min(spans[v].most, planes.blocks.get(v, spans[v].most)) - 1) * TRANSFER_NS
    return cost


def _run(access: Access, spans: dict[str, Span], planes: Planes) -> int:
    """Elements side by side of what a tile takes of an access."""
    run, cut = 1, {v: n for v, n in planes.blocks.items() if v not in planes.whole}
    for index in reversed(behind_chosen(access, planes.part)):
        own = (v for v in index.variables if v != planes.part)
        run *= prod(min(spans[v].most, cut.get(v, spans[v].most)) for v in own)
        if planes.part in index.variables or any(v in planes.blocks for v in index.variables):
            break
    return run
