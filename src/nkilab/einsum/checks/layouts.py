"""Layouts: every rank once, the same order where a tensor is made and read, tiles that the machine has."""

from __future__ import annotations

from collections.abc import Iterator

from ...machine import Machine
from ..grades import Finding, found
from ..language.spec import Placement
from ..written.ranks import Extent
from .model import Model, difference


def start_partitions(machine: Machine) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Where tiles of at most so many partitions may begin: at each quarter, each half, or at 0."""
    sizes = [int(machine["partitions"]) // n for n in (4, 2, 1)]
    return tuple((size, tuple(range(0, sizes[-1], size))) for size in sizes)


def check_placements(model: Model) -> Iterator[Finding]:
    """Each layout names the tensor's ranks once; memories and constructors agree."""
    for (tensor, einsum), placed in model.spec.placements.items():
        access = model.access(tensor, einsum)
        if access is None:
            told = "is for a tensor that it does not use"
            yield found("placement-ranks", placed, told=told, ranks="none")
            continue
        wanted = model.ranks.parts(einsum, access.variables)
        given = (*placed.unbound, *placed.ranks)
        told = difference(given, model.needed(einsum, wanted, given))
        if told:
            yield found("placement-ranks", placed, told=told, ranks=wanted)
        yield from _constructor(model, placed)
        if placed.component == "HBM" and placed.unbound:
            yield found("hbm-unbound", placed)
        made = model.ranks.producer(tensor)
        if made is not None and placed.component != made.component:
            yield found("memory-differs", placed, made=made.component)


def _constructor(model: Model, placed: Placement) -> Iterator[Finding]:
    tensor, einsum = placed.tensor, placed.einsum
    told = change = ""
    if tensor == einsum and not placed.constructor:
        told, change = "is made here and has no constructor", "add constructor: empty"
    elif tensor != einsum and placed.constructor:
        maker = "its producer" if model.ranks.producer(tensor) else "the caller"
        told = f"is read here and has a constructor; {maker} makes it"
        change = "leave constructor out"
    if told:
        yield found("constructor", placed, told=told, change=change)


def check_orders(model: Model) -> Iterator[Finding]:
    """Rank orders say what the binding says."""
    given = ((t, e, order) for t, orders in model.spec.rank_order.items() for e, order in orders.items())
    for tensor, einsum, order in given:
        node = model.spec.node("format", tensor, "rank-order", einsum)
        access = model.access(tensor, einsum)
        wanted = model.ranks.parts(einsum, access.variables) if access else ()
        told = difference(order, model.needed(einsum, wanted, order))
        if told:
            yield found("rank-order-ranks", node, tensor=tensor, einsum=einsum, told=told, ranks=wanted)
            continue
        placed = model.spec.placements.get((tensor, einsum))
        layout = (*placed.unbound, *placed.ranks) if placed else order
        if layout != order:
            yield found("rank-order", node, tensor=tensor, einsum=einsum, order=order, layout=layout)


def check_views(model: Model) -> Iterator[Finding]:
    """A tile is read in the order in which it lies."""
    for tensor, placed, key in differing_views(model):
        made = model.ranks.producer(tensor)
        assert made is not None
        mine, theirs = (made.outer, placed.outer) if key != "free" else (made.inner, placed.inner)
        fix = _rewritten(model, placed, model.order_of(tensor, mine)) or mine
        yield found(f"view-{key}", placed, made=mine, read=theirs, fix=fix)


def differing_views(model: Model) -> Iterator[tuple[str, Placement, str]]:
    """Tiles that are read in another layout than they are made in, and what that takes.

    Yields:
        The tensor, how a reader sees it, and: free, for a copy in another order; turned, for a transposed
        one; partition where neither gives what the reader needs.
    """
    tiles = (t for t in map(model.ranks.producer, model.einsums) if t is not None and t.component != "HBM")
    for made, placed in ((tile, reader) for tile in tiles for reader in model.consumers(tile.tensor)):
        tensor = made.tensor
        first, second = model.order_of(tensor, made.outer), model.order_of(placed.einsum, placed.outer)
        if first != second:
            yield tensor, placed, "turned" if _may_turn(model, placed, first, second) else "partition"
        elif model.order_of(tensor, made.inner) != model.order_of(placed.einsum, placed.inner):
            yield tensor, placed, "free"


def _may_turn(
    model: Model, placed: Placement, first: list[tuple[str, int, int | None]],
    second: list[tuple[str, int, int | None]],
) -> bool:  # fmt: skip
    """Whether a transpose gives what a reader needs: another rank, which its instruction has there too."""
    if not first or not second or first[0][0] == second[0][0]:
        return False
    held, result = model.spec.engines.get(placed.einsum), model.ranks.producer(placed.einsum)
    if held is not None and held.instruction == "MatVec":
        return True
    return result is not None and model.order_of(placed.einsum, result.outer) == second


def _rewritten(model: Model, placed: Placement, wanted: list[tuple[str, int, int | None]]) -> list[str]:
    """Ranks of a reader in the order of the maker; none if they do not fit."""
    left = {r: model.ranks.digit(placed.einsum, r) for r in placed.ranks}
    chosen: list[str] = []
    for base, low, high in wanted:
        fitting = [
            r for r, d in left.items()
            if d.base == base and d.stride >= low and (high is None or (d.high or high) <= high)
        ]  # fmt: skip
        chosen += sorted(fitting, key=lambda r: -left[r].stride)
    return chosen if model.order_of(placed.einsum, chosen) == wanted else []


def check_tiles(model: Model) -> Iterator[Finding]:
    """Tiles have partitions, at most as many as the chip, and a free axis."""
    most = model.machine["partitions"]
    for (tensor, einsum), placed in model.spec.placements.items():
        if placed.component == "HBM":
            continue
        if einsum == tensor and tensor in model.spec.cascade.outputs:
            yield found("output-memory", placed)
        if not placed.outer:
            yield found("no-partition", placed)
        count = model.count(einsum, placed.outer)
        if count is not None and count > most:
            widest = max(placed.outer, key=lambda r: model.count(einsum, [r]) or 0)
            facts = {"count": count, "chip": model.machine.name, "most": most}
            yield found("partition-extent", placed, rank=widest, **facts)


def check_starts(model: Model) -> Iterator[Finding]:
    """A loop over part of the partitions begins where the machine can begin."""
    for placed in model.spec.placements.values():
        if placed.component != "HBM":
            yield from _starts(model, placed)


def _starts(model: Model, placed: Placement) -> Iterator[Finding]:
    for number, rank in enumerate(placed.outer):
        inner = model.count(placed.einsum, placed.outer[number + 1 :])
        turns = model.count(placed.einsum, [rank])
        if not model.is_looped(placed.einsum, rank) or inner is None or not turns or turns == 1:
            continue
        allowed = next(starts for size, starts in start_partitions(model.machine) if inner <= size)
        starts = [turn * inner for turn in range(turns)]
        if not set(starts) <= set(allowed):
            told = ", ".join(map(str, starts[:3])) + (", ..." if len(starts) > 3 else "")
            yield found("start-partition", placed, starts=told, count=inner, allowed=allowed, rank=rank)


def check_shapes(model: Model) -> Iterator[Finding]:
    """What an instruction gives has the shape of what it is written to."""
    for einsum, held in model.spec.engines.items():
        placed = model.ranks.producer(einsum)
        given = given_shape(model, einsum)
        is_added = held.node.path.endswith("(completed)")
        if placed is None or given is None or einsum not in model.ordered or is_added:
            continue
        ranks = model.tile(placed)
        dst = model.ranks.extents(einsum, ranks)
        if dst == given:
            continue
        facts = {"dst": dst, "src": given, "instruction": held.instruction}
        if [e for e in dst if e != 1] == [e for e in given if e != 1]:
            # of several ranks of one element the last is named: where it is left out, the shapes agree
            unit = [r for r, e in zip(ranks, dst) if e == 1][-1:] if len(dst) > len(given) else []
            yield found("unit-rank", placed, rank=unit[0] if unit else "an axis", **facts)
        else:
            yield found("shape-differs", placed, **facts)


def given_shape(model: Model, einsum: str) -> tuple[Extent, ...] | None:
    """The shape of what the instruction of an Einsum gives; None where that is not known."""
    held = model.spec.engines[einsum]
    if held.instruction == "BroadcastTo":
        return model.ranks.extents(einsum, held.ranks[1:])
    if held.instruction not in ("Load", "Store", "SimpleTensorScalar", "SimpleTensorTensor", "LoopReduce"):
        return None
    accesses = model.einsums[einsum].accesses
    read = model.spec.placements.get((accesses[0].tensor, einsum)) if accesses else None
    return model.ranks.extents(einsum, model.tile(read)) if read else None
