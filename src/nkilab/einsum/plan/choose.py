"""Which variable of a cluster lies on the partitions, which along the columns, and which are looped over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from ...errors import UnsupportedError
from ..language.ast import Access, Affine, Einsum, Index, block_extent
from .build import Span
from .context import Context
from .fetch import is_along, is_fetched, last_chosen, may_turn
from .reach import leaving
from .storage import Storage
from .want import Want

# nanoseconds that an instruction, a transfer and a transposed block cost whatever their size
INSTRUCTION_NS, TRANSFER_NS, TURN_NS = 60.0, 150.0, 350.0
BYTES_PER_NS, ELEMENT_NS = 300.0, 1.0
# rows of a transfer that are shorter than this cost as much as longer ones: nanoseconds, all engines together
SMALL_ROW_BYTES, ROW_NS = 512, 20.0 / 16
# pieces of a scan that overlap, and columns of one from which the next may as well be another instruction
FEWEST_PIECES, WIDE_SCAN = 8, 512
# times that an element is read, from which it is copied to where neighbours are read together
READS = 4
# part of the room on chip of a row that columns are picked out of
OF_ROW = 0.3
# layouts of one nest that a search may try
MOST_OPTIONS = 6


@dataclass
class Cluster:
    """Einsums over the same variables that run tile by tile together."""

    einsums: list[Einsum]  # in order
    kept: set[str]  # tensors that are read outside of it, or returned

    @property
    def title(self) -> str:
        """What it computes."""
        return "; ".join(e.title for e in self.einsums)


@dataclass(frozen=True)
class Choice:
    """How a cluster runs."""

    part: str  # variable on the partitions; "" for none
    free: str  # variable along the columns; "" for none
    loops: tuple[str, ...]  # the others, one value at a time, the outermost first
    blocks: Mapping[str, int]  # elements of a tile per variable; 0 where no loop is needed
    cost_ns: float = 0.0  # what the choice was judged by

    def block(self, variable: str) -> int:
        """Elements of a tile."""
        return self.blocks.get(variable, 0)


def choose(ctx: Context, einsums: list[Einsum], spans: dict[str, Span]) -> Choice:
    """The cheapest choice for Einsums over the same variables, or the one that a search wants.

    Raises:
        UnsupportedError: if none is possible.
    """
    options = choices_for(ctx, einsums, spans)
    names = "; ".join(str(e) for e in einsums)
    options = [o for o in options if all(ctx.given.side(e.name) in ("", o.part) for e in einsums)] or options
    if not options:
        raise einsums[0].located(UnsupportedError(f"no variable of {names} can lie on the partitions"))
    picked = ctx.pick(
        f"the layout of {names}", options[:MOST_OPTIONS], lambda c: f"{c.part or 1} on partitions",
        [c.cost_ns for c in options[:MOST_OPTIONS]],
    )  # fmt: skip
    if picked.free:
        ctx.widest = max(ctx.widest, picked.block(picked.free) or spans[picked.free].most)
    return picked


def choices_for(ctx: Context, einsums: list[Einsum], spans: dict[str, Span]) -> list[Choice]:
    """All choices for Einsums over the same variables, the cheapest first."""
    variables = tuple(dict.fromkeys(v for e in einsums for v in e.variables))
    wide = [v for v in variables if not spans[v].is_point]
    fixed = [v for v in wide if spans[v].start.names or spans[v].count.value is None]
    sides = [(part, free) for part, free in product((*wide, ""), repeat=2) if not part or part != free]
    sides = [(part, free) for part, free in sides if {part, free}.issuperset(fixed)]
    apart = [running(ctx, e, spans) for e in einsums]
    sides = [(part, free) for part, free in sides if all(not own or part in own for own in apart)]
    for how in ((False, False), (True, False), (True, True)):
        judged = (_judged(ctx, einsums, spans, how, *side) for side in sides)
        options = sorted((c for c in judged if c is not None), key=lambda c: c.cost_ns)
        if options:
            return options
    return []


def _judged(
    ctx: Context, einsums: list[Einsum], spans: dict[str, Span], how: tuple[bool, bool], part: str, free: str
) -> Choice | None:
    wide = [v for v in dict.fromkeys(v for e in einsums for v in e.variables) if not spans[v].is_point]
    accesses = [(a, a is e.output) for e in einsums for a in e.every_access]
    along = {e.recurrence.variable for e in einsums if e.recurrence is not None}
    if not along <= {free} and any(not spans[v].is_point or free for v in along):
        return None
    if not all(_is_legal(ctx, a, (is_out, *how), spans, part, free) for a, is_out in accesses):
        return None
    reduced = {v for e in einsums for v in e.reduced}
    # those of results first
    loops = sorted((v for v in wide if v not in (part, free)), key=lambda v: v in reduced)
    columns, rows = (spans[v].most if v else 1 for v in (free, part))
    chunk = _chunk(ctx, einsums, columns, reduced, part, spans, free)
    blocks, names = dict.fromkeys(loops, 1), [e.name for e in einsums]
    if part and not is_settled(spans[part], ctx.lanes):
        blocks[part] = ctx.given.fitting(names, part, ctx.lanes)
    if free and not is_settled(spans[free], ctx.lanes):
        tiles = prod(-(-spans[v].most // b) for v, b in blocks.items())
        is_folded = any(_is_folded(i, spans, part, free) for a, _ in accesses for i in a.indices)
        least = FEWEST_PIECES if not is_folded and any(e.along and not e.is_choice for e in einsums) else 0
        while tiles * -(-columns // chunk) < least and chunk >= 2 * WIDE_SCAN:
            chunk = -(-chunk // 2)
        blocks[free] = chunk = ctx.given.fitting(names, free, chunk)
        if is_folded and chunk < columns:
            return None
    rows, columns = min(rows, ctx.lanes), min(columns, chunk)
    trips = {v: -(-spans[v].most // b) for v, b in blocks.items()}
    count = sum(max(1, len(e.operands) - 1 + bool(e.reduced)) for e in einsums)
    cost = prod(trips.values()) * count * (INSTRUCTION_NS + columns * ELEMENT_NS)
    cost += sum(turned_ns(ctx, e, spans, part) for e in einsums)
    for access, is_out in accesses:
        times = prod(t for v, t in trips.items() if v in access.variables)
        cost += times * transfer_ns(ctx, access, is_out, spans, part, free, rows, columns)
    if part in reduced:
        # columns of sums are combined tile by tile
        cost += 2000.0 * (1 if free in reduced else trips.get(free, 1))
    return Choice(part, free, tuple(loops), blocks, cost)


def turned_ns(ctx: Context, einsum: Einsum, spans: dict[str, Span], part: str) -> float:
    """What turns of a block take to transpose what is made before it with another variable on partitions."""
    wanted, name = ctx.wanted.get(einsum.name, ""), einsum.name
    if wanted in ("", part) or wanted not in spans or ctx.chip(name) is not None:
        return 0.0
    blocks = (b for b in ctx.cascade.blocks if einsum not in b.body and any(name in e.reads for e in b.body))
    turns = max((block_extent(b, ctx.cascade) for b in blocks), default=0)
    return TURN_NS * -(-spans[wanted].most // ctx.lanes) * turns


def running(ctx: Context, einsum: Einsum, spans: Mapping[str, Span]) -> list[str]:
    """Variables of a sum of which loops that a group shares take tiles."""
    held = {} if einsum.name in ctx.given.nests else spans
    return [v for v in einsum.reduced if v in held and held[v].start.names and not held[v].is_point]


def is_settled(span: Span, partitions: int) -> bool:
    """Whether loops around the nest have chosen a tile: what they chose needs no loop."""
    return (bool(span.start.names) or span.count.value is None) and span.most <= partitions


def _chunk(
    ctx: Context, einsums: list[Einsum], columns: int, reduced: set[str], part: str, spans: dict[str, Span],
    free: str,
) -> int:  # fmt: skip
    if all(e.name in ctx.given.covered for e in einsums):
        return columns
    each = 4  # what is computed on the way
    for access in {str(a): a for e in einsums for a in e.accesses}.values():
        if free in access.variables and ctx.chip(access.tensor) is None and access.tensor in ctx.storages:
            each += ctx.bytes_of(ctx.dtypes[access.tensor])
    for einsum in einsums:
        if free in einsum.output.variables and "hbm" in ctx.homes.get(einsum.name, "hbm"):
            each += ctx.bytes_of(ctx.dtypes[einsum.name])
    limit = min(ctx.knobs.most_columns, int(ctx.machine["max8_free_max"]))
    limit = limit if any(e.is_choice for e in einsums) else ctx.knobs.most_columns
    most = ctx.bank
    while most < limit and most * 2 * each * 2 <= max(ctx.room(), 0) * 0.9:
        most *= 2
    if most < columns <= limit and columns * each * 2 <= ctx.room() * 0.9:
        most = columns
    is_running = any(running(ctx, e, spans) for e in einsums)
    if part in reduced and free not in reduced and not is_running:
        most = ctx.bank
    if columns <= most:
        return columns
    # ragged columns can only be turned or spread in one piece
    needs_pieces = columns % most and any(
        _is_awkward(ctx, a, spans, part, free) for e in einsums for a in (*e.accesses, e.output)
    )
    return ctx.lanes if needs_pieces else most


def _is_awkward(ctx: Context, access: Access, spans: dict[str, Span], part: str, free: str) -> bool:
    if free not in access.variables:
        return False
    chip = ctx.chip(access.tensor)
    if chip is not None:
        return chip.part_variable(access) != part
    buffers = ctx.storages.get(access.tensor)
    if buffers and part not in access.variables and leaving(ctx, access, spans):
        return True  # one row with its edges on chip, spread over the partitions
    return bool(buffers) and part in access.variables and access.axis_of(part) == len(access.indices) - 1


def _is_legal(
    ctx: Context, access: Access, how: tuple[bool, bool, bool], spans: dict[str, Span], part: str, free: str
) -> bool:
    """Whether an access can be fetched, or delivered, as [part, free].

    Args:
        ctx: the plan.
        access: what is read or written.
        how: whether it is written; whether rows may be moved from partition to partition, one by one; whether
            what readers of a result would rather have counts for nothing.
        spans: of all variables.
        part, free: on the partitions, and along the columns.
    """
    is_out, may_move, is_any = how
    for index in (i for i in access.indices if not i.plain):
        held = [v for v in index.variables if v in (part, free) and not spans[v].is_point]
        is_pair = len(held) > 1 and isinstance(index, Affine)
        if is_pair and not (_is_folded(index, spans, part, free) and _is_far(ctx, access, is_out)):
            return False
        if isinstance(index, Affine) and any(index.coefficient(v) < 0 for v in held):
            return False
    if access.gathers:
        # each partition gathers a row of what lies behind the last axis that has an index of its own
        chosen = access.indices[: last_chosen(access, part) + 1]
        if any(free in i.variables for i in chosen):
            size = ctx.cascade.shape(access.tensor)[-1] * ctx.bytes_of(ctx.dtypes[access.tensor])
            return is_along(access, free) and size <= ctx.room() * OF_ROW
        if access.tensor not in ctx.cascade.inputs:
            return False  # no transfer by indices awaits a store
    for variable in (free,) if access.gathers else (part, free):
        if variable in access.repeated:
            return False
    is_input = not is_out and ctx.hbm(access.tensor) is not None and not access.gathers
    # what is read beyond an edge lies on chip with a tensor's own axis on the partitions
    edges = leaving(ctx, access, spans) if part and is_input else []
    if any(part in i.variables and i.plain != part for i in edges):
        return False
    chip = ctx.chip(access.tensor)
    if chip is not None:
        is_wide = part in access.variables and not spans[part].is_point and spans[free or part].most > 1
        if is_out and is_wide and free and not chip.part_variable(access):
            return False  # all of it lies on one partition
        is_moved = may_move and not is_out and not chip.has_blocks
        is_turned = not is_out and may_turn(chip, access, part, free)
        return is_moved or is_turned or _is_reachable(chip, access, spans, part, free)
    return not is_out or not is_barred(ctx, access, part, is_any)


def _is_folded(index: Index, spans: dict[str, Span], part: str, free: str) -> bool:
    """Whether an index goes through neighbours, all columns for one partition after the other."""
    if not isinstance(index, Affine) or not {part, free} <= {*index.variables}:
        return False
    return index.coefficient(free) == 1 and index.coefficient(part) == spans[free].count.value


def _is_far(ctx: Context, access: Access, is_out: bool) -> bool:
    """Whether a tensor lies in HBM alone."""
    home = ctx.homes.get(access.tensor, "hbm") if is_out else "hbm"
    return home == "hbm" and ctx.chip(access.tensor) is None


def is_barred(ctx: Context, output: Access, part: str, is_any: bool = False) -> bool:
    """Whether a reader of a result runs along an axis in a way that partitions cannot, or hardly, serve."""
    if not part or "chip" not in ctx.homes.get(output.tensor, ""):
        return False
    avoided = () if is_any else ctx.avoided.get(output.tensor, ())
    axes = (*ctx.barred.get(output.tensor, ()), *avoided)
    return any(part in output.indices[axis].variables for axis in axes)


def _is_reachable(chip: Storage, access: Access, spans: dict[str, Span], part: str, free: str) -> bool:
    q = chip.part_variable(access)
    if q and not spans[q].is_point and q not in (part, free):
        return False
    dim = chip.part_dim
    if dim is None:
        return True
    index = access.indices[dim]
    return index.plain == q or (
        isinstance(index, Affine) and not any(not spans[v].is_point for v in index.variables)
    )


def transfer_ns(
    ctx: Context, access: Access, is_out: bool, spans: dict[str, Span], part: str, free: str, rows: int,
    columns: int,
) -> float:  # fmt: skip
    """Nanoseconds that one fetch or delivery of an access is judged to cost."""
    has_part, has_free = part in access.variables, free in access.variables
    if access.gathers and is_along(access, free):
        return float(TRANSFER_NS + columns / ctx.machine["gpsimd_clock_ghz"])
    columns = columns if has_free else 1
    chip = ctx.chip(access.tensor)
    if chip is not None or (is_out and ctx.homes.get(access.tensor) == "chip"):
        q = chip.part_variable(access) if chip is not None else part
        if q and spans[q].is_point:
            q = ""
        if has_part and q == part:
            return 0.0
        blocks, copies = -(-columns // ctx.lanes), chip.copies if chip is not None else 1
        if has_part or (q and q == free):
            return TURN_NS * blocks
        return 0.0 if rows <= copies else TURN_NS * -(-columns // ctx.bank)
    if access.tensor not in ctx.storages and not is_out:
        return 0.0
    if not is_out and is_fetched(ctx, Want(access, spans, part, free)):
        return 0.0
    size = ctx.bytes_of(ctx.dtypes[access.tensor])
    last = len(access.indices) - 1
    cost = TRANSFER_NS + rows * columns * size / BYTES_PER_NS
    if has_part and has_free and access.axis_of(part) == last != access.axis_of(free):
        return cost + TURN_NS * -(-columns // ctx.lanes)
    row_bytes = columns * size if has_free and access.axis_of(free) == last else size
    if has_part and has_free and access.axis_of(free) == last:
        # transfers of the turns of a loop over axes between are one
        between = access.indices[(access.axis_of(part) or 0) + 1 : last]
        row_bytes *= prod(spans[v].most for i in between for v in i.variables)
    if row_bytes < SMALL_ROW_BYTES:
        pieces = rows * columns * size / row_bytes if (has_part or has_free) else 1.0
        cost += pieces * ROW_NS
    return cost


def sums_last(
    einsums: Sequence[Einsum], accesses: Sequence[Access], spans: Mapping[str, Span], axes: list[str],
    turns: int = 1,
) -> list[str]:  # fmt: skip
    """Axes with those of sums of products last, where all that lies otherwise is read several times.

    Args:
        einsums, accesses, spans: of a nest.
        axes: of its tiles.
        turns: of a block around it, which read it again.
    """
    summed = [v for v in axes if any(v in e.reduced and e.map_op for e in einsums)]
    across = [a for a in accesses if {*summed[-1:]} <= {*a.variables[:-1]}]
    elements = [prod(spans[v].most for v in axes if v in a.variables) for a in across]
    is_less = max(elements, default=0) * READS <= prod(spans[v].most for v in axes) * turns
    return [*(v for v in axes if v not in summed), *summed] if summed and is_less else axes


def tiles_of_axes(
    axes: Sequence[str], extents: Mapping[str, int], moved: Sequence[Access], room: int
) -> Iterator[dict[str, int]]:
    """Elements of the axes that a tile cuts: the outer ones, or both that rows of what is moved lie along."""
    sizes, left = dict[str, int](), room
    for v in reversed(axes):
        sizes |= {v: max(left, 1)} if extents[v] > left else {}
        left //= extents[v]
    yield sizes
    last = {next((v for i in a.indices[::-1] for v in i.variables if v in axes), "") for a in moved} - {""}
    if len(last) == 2 and prod(extents[v] for v in last) > room:
        first, second = sorted(last, key=axes.index)
        for power in range(room.bit_length()):
            size = min(extents[first], 1 << power)
            other = min(extents[second], 1 << (max(room // size, 1).bit_length() - 1))
            yield {**dict.fromkeys(axes, 1), first: size, second: other}
