"""Which operands of an Einsum TensorE multiplies, and how: the variables of partitions, columns and sum."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product as pairs
from math import isqrt, prod

from ...isa.array_tiles import ARRAY, smallest_columns
from ...tiles.dtypes import SMALL_INTEGERS
from ..language.ast import Access, Affine, Einsum, Kind
from ..tolerance import is_narrow
from ..tree.expr import ZERO, expr
from ..tree.nodes import At, Buffer, Cut, View
from .build import Span
from .choose import (
    BYTES_PER_NS,
    MOST_OPTIONS,
    ROW_NS,
    SMALL_ROW_BYTES,
    TRANSFER_NS,
    TURN_NS,
    is_barred,
    is_settled,
    transfer_ns,
)
from .context import Context
from .given import Turn
from .want import Want

# to bring another stationary operand into TensorE, besides a cycle per column
WEIGHTS_NS = 52.0
# parts, at most, that blocks with a rest cut an extent into
MOST_PARTS = 256
# values of a sum along the last axis of an operand that are worth bringing it on chip whole
FEWEST_ALONG = 32
# columns of results of a batch whose operands come in one transfer
BATCH_COLUMNS = 4096


@dataclass(frozen=True)
class Product:
    """How a contraction runs."""

    left: Access | None  # operand whose variable `part` becomes the partitions of the result; None for ones
    right: Access | None  # operand whose variable `free` becomes its columns; None for ones
    over: str  # variable on the partitions of both operands
    # part, free: variables of the result; "" for none
    part: str
    free: str
    outer: tuple[str, ...]  # other variables of the output, one value at a time
    inner: tuple[str, ...]  # other variables summed over, one value at a time
    cost_ns: float  # what it was judged by


@dataclass(frozen=True)
class Blocks:
    """How much of the result is worked on at once, and whether the sum is cut too."""

    # part, free: elements of a block of the result
    part: int
    free: int
    over: int  # elements of a block of the sum
    is_free_first: bool = False  # whether the loop over blocks of columns stands outside


def product_of(ctx: Context, einsum: Einsum, outer: dict[str, Span]) -> Product | None:
    """How TensorE computes an Einsum: the cheapest way, or the one that a search wants; None if it cannot."""
    options = products_for(ctx, einsum, outer)
    if not options:
        return None
    told = f"how TensorE computes {einsum}"
    return ctx.pick(
        told, options[:MOST_OPTIONS], lambda p: f"{p.left or 1} stationary, sum over {p.over}",
        [p.cost_ns for p in options[:MOST_OPTIONS]],
    )  # fmt: skip


def products_for(ctx: Context, einsum: Einsum, outer: dict[str, Span]) -> list[Product]:
    """All ways in which TensorE can compute an Einsum, the cheapest first."""
    is_sum = einsum.reduce_op == "add" and einsum.map_op in ("multiply", "") and not einsum.positions
    if not is_sum or not 1 <= len(einsum.accesses) <= 2 or any(a.gathers for a in einsum.accesses):
        return []
    types = {ctx.dtypes[a.tensor] for a in einsum.accesses}
    if any("int" in t and t not in SMALL_INTEGERS for t in types):
        return []
    spans = ctx.spans(einsum, outer)
    options: list[Product] = []
    pair: tuple[Access | None, ...] = (
        (*einsum.accesses, None) if len(einsum.accesses) == 1 else einsum.accesses
    )
    for left, right in (pair, pair[::-1]):
        options.extend(_products(ctx, einsum, spans, left, right))
    side = ctx.given.side(einsum.name)
    options = [o for o in options if side in ("", o.part)] or options
    values, is_new = prod(spans[v].most for v in einsum.output.variables), ctx.chip(einsum.name) is None

    def is_beyond(product: Product) -> bool:
        """Whether the result, which is to stay on chip, has no room there with these rows on partitions."""
        rows = spans[product.part].most if product.part else 1
        is_near = is_new and ctx.homes.get(einsum.name) == "chip"
        return is_near and values // rows * -(-rows // ctx.lanes) * 4 > ctx.room()

    return sorted(options, key=lambda p: (is_beyond(p), p.cost_ns))


def _products(
    ctx: Context, einsum: Einsum, spans: dict[str, Span], left: Access | None, right: Access | None
) -> Iterator[Product]:
    wide = [v for v in einsum.variables if not spans[v].is_point]
    for over, part, free in _assignments(einsum, spans, left, right):
        rest = [v for v in wide if v not in (over, part, free)]
        is_open = not any(is_settled(spans[v], ctx.lanes) for v in rest)
        if not is_open or not _can_lie(ctx, einsum, spans, (left, right), over, part, free):
            continue
        outer = tuple(v for v in rest if v in einsum.output.variables)
        inner = tuple(v for v in rest if v not in einsum.output.variables)
        cost = _cost(ctx, einsum, spans, left, right, over, part, free, (*outer, *inner))
        yield Product(left, right, over, part, free, outer, inner, cost)


def _assignments(
    einsum: Einsum, spans: dict[str, Span], left: Access | None, right: Access | None
) -> Iterator[tuple[str, str, str]]:
    """Variables that may be summed over, lie on the partitions of the result, and lie along its columns."""
    held = [a for a in (left, right) if a is not None]
    for over in einsum.reduced:
        # it is exactly one index of each
        own = [[i.plain == over for i in a.indices if over in i.variables] for a in held]
        if not spans[over].is_point and all(places == [True] for places in own):
            parts, frees = (_own(einsum, spans, a, b, over) for a, b in ((left, right), (right, left)))
            yield from pairs([over], parts, frees)


def _can_lie(
    ctx: Context, einsum: Einsum, spans: dict[str, Span], sides: tuple[Access | None, Access | None],
    over: str, part: str, free: str,
) -> bool:  # fmt: skip
    """Whether both operands of a product can come, and its result can go, as the product has them."""
    if not all(_can_fetch(ctx, a, spans, over, v) for a, v in zip(sides, (part, free), strict=True) if a):
        return False
    return _can_deliver(ctx, einsum, spans, part, free) and _can_mask(einsum, spans, over, part, free)


def _own(
    einsum: Einsum, spans: dict[str, Span], access: Access | None, other: Access | None, over: str
) -> list[str]:
    """Variables of the output that one operand has and the other has not; "" if there is none."""
    if access is None:
        return [""]
    theirs = set(other.variables) if other is not None else set()

    def is_alone(variable: str) -> bool:
        """Whether it stands in one index of each, and runs forwards there, without that of the sum."""
        index, *more = (i for i in access.indices if variable in i.variables)
        written = [i for i in einsum.output.indices if variable in i.variables]
        is_plain = isinstance(index, Affine) and index.coefficient(variable) >= 0
        return is_plain and not more and len(written) == 1 and over not in index.variables

    held = (v for v in einsum.output.variables if v in access.variables and v not in theirs)
    return [v for v in held if not spans[v].is_point and is_alone(v)] or [""]


def _can_fetch(ctx: Context, access: Access, spans: dict[str, Span], over: str, own: str) -> bool:
    chip = ctx.chip(access.tensor)
    if chip is None:
        return True
    q = chip.part_variable(access)
    if chip.part_dim is not None and q and not isinstance(access.indices[chip.part_dim], Affine):
        return False
    if q and access.indices[chip.part_dim or 0].plain != q and not spans[q].is_point:
        return False
    return not q or spans[q].is_point or q in (over, own)


def _can_deliver(ctx: Context, einsum: Einsum, spans: dict[str, Span], part: str, free: str) -> bool:
    chip = ctx.chip(einsum.name)
    if chip is None:
        return not is_barred(ctx, einsum.output, part)
    q = chip.part_variable(einsum.output)
    return not q or spans[q].is_point or q in (part, free)


def _can_mask(einsum: Einsum, spans: dict[str, Span], over: str, part: str, free: str) -> bool:
    if einsum.condition is None:
        return True
    asked = {v for v in einsum.condition.variables if not spans[v].is_point}
    return einsum.otherwise == 0 and (asked <= {over, part} or asked <= {over, free})


def _cost(
    ctx: Context, einsum: Einsum, spans: dict[str, Span], left: Access | None, right: Access | None,
    over: str, part: str, free: str, loops: tuple[str, ...],
) -> float:  # fmt: skip
    sizes, every = {over: ctx.lanes, part: ctx.lanes, free: ctx.bank}, (over, part, free, *loops)
    trips = {v: -(-spans[v].most // sizes.get(v, 1)) for v in every if v}
    rows = min(spans[part].most, ctx.lanes) if part else 1
    columns = min(spans[free].most, ctx.bank) if free else 1
    depth, is_wide = min(spans[over].most, ctx.lanes), matmul_dtype(ctx, left, right) == "float32"
    beside = min(_rows_beside(einsum, spans, left, right, free, loops), max(1, ctx.bank // columns))
    clock = ctx.machine["tensor_clock_ghz"]
    moved = max(64.0, columns * beside) / clock * (ctx.machine["fp32_passes"] if is_wide else 1)
    beside *= _copies(ctx, einsum, spans, left, right, depth, loops)
    loading = rows / clock * (ctx.machine["fp32_passes"] * (1 + _is_far(ctx, left, part)) if is_wide else 1)
    across = spans[free].most if free and beside == 1 else 1
    # float32 takes its part of the array twice in a row, which keeps what comes behind waiting
    abreast = min(len(places_of(ctx, part, spans)), 2 if is_wide else ARRAY)
    abreast = abreast if width_of(ctx, range(abreast), across) else 1
    cost = prod(trips.values()) / beside * (max(moved, WEIGHTS_NS + loading) + 8) / abreast
    batch = together(ctx, einsum, spans, part, free, loops)
    sides = ((left, part, rows), (right, free, columns))
    for access, own, count in sides[len({_unnamed(a, v) for a, v, _ in sides}) == 1 :]:
        if access is not None:
            beside_it = along(einsum, access, spans, loops, batch) if ctx.chip(access.tensor) is None else 0
            moved_ns = _moved_ns(ctx, Want(access, spans, over, own), depth, count, beside_it, batch)
            cost += _all_moved(access, trips, batch, moved_ns)
    home = transfer_ns(ctx, einsum.output, True, spans, part, free, rows, columns)
    home -= _collected_ns(ctx, einsum, spans, part, free, rows * columns) if home else 0.0
    home -= (TRANSFER_NS if home else 0.0) * (1 - 1 / max(batch.values(), default=1))
    is_new = ctx.chip(einsum.name) is None and ctx.homes.get(einsum.name) != "hbm"
    is_across = is_new and ctx.wanted.get(einsum.name, "") not in ("", part)
    # a matrix that turns transpose leaves PSUM before
    is_late = bool(part and free) and any(einsum in b.body for b in ctx.cascade.blocks)
    home += TURN_NS * -(-columns // ctx.lanes) * (1 + is_late) if is_across else 0.0
    served, lost_ns = ctx.served.get(einsum.name, (frozenset[str](), 0.0))
    cost += lost_ns if is_new and part and part not in served else 0.0
    return cost + prod(t for v, t in trips.items() if v in einsum.output.variables) * (home + 60 + columns)


def _collected_ns(
    ctx: Context, einsum: Einsum, spans: dict[str, Span], part: str, free: str, elements: int
) -> float:
    """What short rows of a result cost less because all that lies behind its partitions leaves together."""
    indices, size = einsum.output.affine, ctx.bytes_of(ctx.dtypes[einsum.name])
    places = [n for n, i in enumerate(indices) if part and part in i.variables]
    columns = spans[free].most if free and free in indices[-1].variables else 1
    run = prod(spans[v].most for i in indices[places[0] + 1 :] for v in i.variables) if places else columns
    is_far = ctx.chip(einsum.name) is None and ctx.homes.get(einsum.name) != "chip"
    if not is_far or not places or columns * size >= SMALL_ROW_BYTES or run <= columns:
        return 0.0
    return elements * ROW_NS * (1 / columns - (1 / run if run * size < SMALL_ROW_BYTES else 0.0))


def _moved_ns(
    ctx: Context, operand: Want, depth: int, count: int, neighbours: int, batch: dict[str, int]
) -> float:
    """Nanoseconds of a transfer of an operand, of so many values of the sum and of its own variable."""
    access, size = operand.access, depth * count * ctx.bytes_of(ctx.dtypes[operand.access.tensor])
    if neighbours:
        # what is summed over lies side by side, and comes at once
        return TRANSFER_NS / neighbours + size / BYTES_PER_NS
    moved_ns = transfer_ns(ctx, access, False, dict(operand.spans), operand.part, operand.free, depth, count)
    if not batch or operand.part not in access.indices[-1].variables or moved_ns <= TURN_NS:
        return moved_ns
    # transposes fill a bank, which one instruction copies
    tiles = min(max(batch.values()), ctx.bank_bytes // (ctx.lanes * size // (depth * count)))
    return moved_ns - (TURN_NS - 64.0 / ctx.machine["tensor_clock_ghz"]) * (1 - 1 / tiles)


def _unnamed(access: Access | None, own: str) -> str:
    """An operand, whatever its own variable is called."""
    return str(access and access.renamed({own: "_"}))


def places_of(ctx: Context, part: str, spans: Mapping[str, Span]) -> list[tuple[int, ...]]:
    """Where products of few rows run beside each other on the systolic array; [] where only one fits."""
    size, rows = smallest_columns(ctx.machine), spans[part].most if part else 1
    while size < rows:
        size *= 2
    return [(0, at) for at in range(0, ARRAY, size)] if 2 * size <= ARRAY and ctx.lanes <= ARRAY else []


def width_of(ctx: Context, places: Sequence[object], columns: int) -> int:
    """How many columns each of some places has; 0 where these cannot be dealt out."""
    widths = range(ctx.bank, 0, -ctx.lanes) if places else ()
    return next((w for w in widths if columns % (w * len(places)) == 0), 0)


def _is_far(ctx: Context, access: Access | None, part: str) -> bool:
    """Whether weights of float32 come on chip so far apart that they load half as fast."""
    is_loaded = access is not None and ctx.chip(access.tensor) is None
    return is_loaded and access is not None and bool(part) and access.indices[-1].plain not in ("", part)


def _all_moved(access: Access, trips: dict[str, int], batch: dict[str, int], moved_ns: float) -> float:
    """What all transfers of an operand cost; windows that overlap come once, and a batch's have one start."""
    apart = {v for i in access.indices if len(i.variables) == 1 for v in i.variables}
    each = max((n for v, n in batch.items() if v in access.variables), default=1)
    saved = TRANSFER_NS * (1 - 1 / each) if moved_ns > TRANSFER_NS else 0.0
    return prod(t for v, t in trips.items() if v in apart) * (moved_ns - saved)


def along(
    einsum: Einsum, access: Access, spans: dict[str, Span], loops: Sequence[str], batch: Collection[str] = ()
) -> int:
    """Values along the last axis of an operand that are gone through one by one; 0 if none are worth it."""
    last = access.indices[-1].plain if access.indices else ""
    is_inner = last in batch or (last in loops and last not in einsum.output.variables)
    return spans[last].most if is_inner and spans[last].most >= FEWEST_ALONG else 0


def is_batch(ctx: Context, einsum: Einsum, part: str, free: str, variable: str) -> bool:
    """Whether products with one value of a variable each may have their transfers together.

    The variable alone is an index of the result, and of all operands that have it.
    """
    output = einsum.output
    is_stored = "hbm" in ctx.homes.get(einsum.name, "hbm")
    if not part or (is_stored and output.indices[-1].plain == part) or variable not in output.variables:
        return False
    accesses = [a for a in (*einsum.accesses, output) if variable in a.variables]
    own = {v for v in (variable, part, free) if v}
    is_alone = all([i.plain for i in a.indices if variable in i.variables] == [variable] for a in accesses)
    return is_alone and all(i.plain or not own & {*i.variables} for i in output.indices)


def together(
    ctx: Context, einsum: Einsum, spans: dict[str, Span], part: str, free: str, loops: tuple[str, ...]
) -> dict[str, int]:
    """How many products with one value of a variable each are judged to have their transfers together."""
    rows, columns = (spans[v].most if v else 1 for v in (part, free))
    is_high = rows > ctx.lanes and ctx.homes.get(einsum.name) != "hbm"
    if is_high or columns > ctx.bank or einsum.condition or ctx.given.is_watched:
        return {}
    batches = [v for v in loops if spans[v].count.value is not None and is_batch(ctx, einsum, part, free, v)]
    return {v: max(1, min(spans[v].most, BATCH_COLUMNS // columns)) for v in batches[-1:]}


def _copies(
    ctx: Context, einsum: Einsum, spans: dict[str, Span], left: Access | None, right: Access | None,
    depth: int, loops: tuple[str, ...],
) -> int:  # fmt: skip
    """How many values that a sum runs over besides may lie on the partitions of both operands."""
    inner = [v for v in loops if v not in einsum.output.variables]
    if left is None or right is None or not inner or einsum.condition or ctx.loops or ctx.given.is_watched:
        return 1
    is_near = all(s.is_hbm for a in (left, right) for s in ctx.storages.get(a.tensor, ()))
    if not is_near:
        return 1
    least = min(spans[v].most for v in inner)
    return (
        max(1, min(prod(spans[v].most for v in inner), ctx.lanes // depth))
        if least * depth <= ctx.lanes
        else 1
    )


def _rows_beside(
    einsum: Einsum, spans: dict[str, Span], left: Access | None, right: Access | None, free: str,
    loops: tuple[str, ...],
) -> int:  # fmt: skip
    """How many short rows of the moving operand, before its columns, go through TensorE at once."""
    theirs = left.variables if left is not None else ()
    order = right.variables if right is not None else ()
    before = order[: order.index(free)] if free in order else order
    rows = [v for v in loops if v in einsum.output.variables and v not in theirs and v in before]
    return max((spans[v].most for v in rows), default=1) if free and spans[free].most > 1 else 1


def matmul_dtype(ctx: Context, *operands: Access | None) -> str:
    """The type in which TensorE reads: that of narrow operands, or of all inputs; else float32.

    Integers of 8 bits come as it reads the other operand: bfloat16 has them exactly, and products of two.
    What computed values lose as they become bfloat16, where inputs are, is what any kernel may lose
    (`tolerance.py`); as floats of 8 bits they would lose more.
    """
    derived = ctx.cascade.derived
    if any(a and a.tensor in derived and derived[a.tensor].kind is Kind.EXACT for a in operands):
        return "float32"
    every = [ctx.chip_dtype(a.tensor) if ctx.chip(a.tensor) else ctx.dtypes[a.tensor] for a in operands if a]
    types = [t for t in every if t not in SMALL_INTEGERS]
    written = ctx.cascade.written
    narrow = {t for t in types if t != "float32"}
    if not types:
        return "bfloat16"
    rounded = written if is_narrow(ctx.cascade, ctx.dtypes) else ()
    if any(a and a.tensor not in rounded and ctx.dtypes[a.tensor] == "float32" for a in operands):
        return "float32"
    if not narrow:
        are_computed = len(types) > 1 and all(a and a.tensor in rounded for a in operands)
        is_other = not {"float16", "tfloat32"}.isdisjoint(ctx.dtypes.values())
        return "bfloat16" if are_computed and not is_other else "float32"
    if len(set(every)) > 1:
        # types of two bytes have every number of those of one
        narrow = {t for t in narrow if ctx.bytes_of(t) > 1} or {"bfloat16"}
    return narrow.pop() if len(narrow) == 1 else "float32"


def even_blocks(extent: int, step: int) -> set[int]:
    """Whole steps, fewer than all, that divide an extent; none if it is ragged."""
    count = 0 if extent % step else extent // step
    low = [n for n in range(1, isqrt(count) + 1) if count % n == 0]
    return {n * step for own in low for n in (own, count // own) if n < count}


def block_sizes(ctx: Context, extent: int, unit: int) -> list[int]:
    """Block sizes to try, the largest first; what few divide may have a rest, of more than one value."""
    step = unit if extent % unit == 0 else ctx.lanes
    sizes = even_blocks(extent, step)
    if len(sizes) < 2 and not ctx.given.is_watched:
        count = -(-extent // unit)
        ragged = {-(-count // parts) * unit for parts in range(2, min(count, MOST_PARTS) + 1)}
        sizes |= {n for n in ragged if n < extent and extent % n != 1}
    return sorted({extent, *sizes, min(step, extent)}, reverse=True)


def even_tile(ctx: Context, extent: int) -> int:
    """The most blocks of columns that a bank holds and that divide an extent; one if none do."""
    widths = range(ctx.bank, ctx.lanes, -ctx.lanes)
    return next((w for w in widths if extent % w == 0), ctx.lanes)


def lies_turned(ctx: Context, access: Access | None, over: str) -> bool:
    """Whether an operand, where it is, has another variable than that of the sum along the partitions."""
    if access is None:
        return False
    chip = ctx.chip(access.tensor)
    return over in access.indices[-1].variables if chip is None else chip.part_variable(access) != over


def traffic(ctx: Context, einsum: Einsum, product: Product, spans: dict[str, Span], blocks: Blocks) -> float:
    """Bytes that blocks of a product read, with a share for short rows."""
    part_blocks = -(-(spans[product.part].most if product.part else 1) // blocks.part)
    size = ctx.bytes_of(matmul_dtype(ctx, product.left, product.right))
    left, right = (
        prod(spans[v].most for v in a.variables) * size if a is not None and not ctx.chip(a.tensor) else 0
        for a in (product.left, product.right)
    )
    total = float(left + right * part_blocks)
    if blocks.over < spans[product.over].most:
        total += prod(spans[v].most for v in einsum.output.variables) * 4 * 2
    # shorter rows of a transfer cost as much as one of 2 KiB
    for access, own, count, moved in (
        (product.left, product.part, blocks.part, left),
        (product.right, product.free, blocks.free, right * part_blocks),
    ):
        if access is not None and own and moved:
            total += moved * max(0.0, 2048 / (count * size) - 1) * 0.2
    return total


def keeps_given(
    ctx: Context, einsum: Einsum, product: Product, blocks: Blocks, tiles: Sequence[tuple[str, int]]
) -> bool:
    """Whether blocks and tiles go with the parts and the order of loops that a mapping gives.

    Args:
        tiles: variables with the sizes of tiles, the outer loop first, the sum last.
    """
    given, name = ctx.given, einsum.name
    if not (given.parts or given.orders):
        return True
    sides = [(product.part, blocks.part), (product.free, blocks.free)][:: -1 if blocks.is_free_first else 1]
    *results, over = tiles
    inner = [*results, *((v, 1) for v in product.inner), over]
    extents = {v: s.most for v, s in ctx.spans(einsum, {}).items()}
    real, spans = [], dict(extents)
    for turn in (*ctx.build.turns, *(Turn(v, n) for v, n in (*sides, (product.over, blocks.over), *inner))):
        if turn.block < spans.get(turn.variable, 1):
            real.append(turn)
            spans[turn.variable] = turn.block
    return given.permits(name, real, extents) and all(
        given.is_within(name, v, [t.block for t in real if t.variable == v], spans[v])
        for v in einsum.variables
    )


def of_total(total: Buffer, rows: Span, columns: Span, spans: dict[str, Span], product: Product) -> View:
    """A tile of a sum that blocks are added to."""
    start = rows.start - (spans[product.part].start if product.part else ZERO)
    column = columns.start - (spans[product.free].start if product.free else ZERO)
    lanes = expr(total.shape[0]).value or 1
    return View(total, (Cut(ZERO, rows.count), At(start // lanes), Cut(column, columns.count)))
