"""Splits, loop orders, fusion and what depends on them: nothing dropped, nothing read before it is whole."""

from __future__ import annotations

from collections.abc import Iterator

from ..grades import Finding, found
from ..language.nodes import Node
from ..language.spec import Execution, Fusion, Placement
from ..written.ranks import Group
from .model import Model, difference


def check_splits(model: Model) -> Iterator[Finding]:
    """Splits leave no elements over, and their names are free."""
    yield from check_parts(model)
    for rank, shapes, node in _splits(model):
        yield from _remainders(model, rank, shapes, node)


def _splits(model: Model) -> Iterator[tuple[str, tuple[int, ...], Node]]:
    """Ranks that are split, the sizes of their parts, and where they are given."""
    for einsum, splits in model.spec.partitioning.items():
        for rank, shapes in splits.items():
            yield rank, shapes, model.spec.node("mapping", "partitioning", einsum, rank)


def _remainders(model: Model, rank: str, shapes: tuple[int, ...], node: Node) -> Iterator[Finding]:
    """What each part of a split leaves over."""
    size = model.spec.cascade.sizes.get(rank)
    for number, part in enumerate(shapes):
        whole = size if number == 0 else shapes[number - 1]
        is_known = number == 0 or size is not None
        if whole is not None and whole % part and not (is_known and has_edge_tiles(model, rank)):
            at = node.items()[number] if isinstance(node.value, list) else node
            name = rank if number == 0 else f"a part of {rank}"
            yield found("split-remainder", at, rank=name, size=whole, part=part, rest=whole % part)


def check_parts(model: Model) -> Iterator[Finding]:
    """Names of parts are free."""
    for rank, shapes, node in _splits(model):
        names = (f"{rank}{n}" for n in range(len(shapes), -1, -1))
        for name in (n for n in names if n in model.ranks.declared):
            yield found("split-name", node.at_key, rank=rank, count=times(len(shapes)), part=name)


def has_edge_tiles(model: Model, rank: str) -> bool:
    """Whether loops run over the parts of a rank wherever it is split, so that the last may be shorter."""
    for einsum, splits in model.spec.partitioning.items():
        if rank not in splits:
            continue
        parts = model.ranks.names_after(einsum, rank)
        if einsum in model.spec.engines and not _are_inner_covered(model, einsum, parts):
            return False
        held = [p for (_, e), p in model.spec.placements.items() if e == einsum and p.component == "HBM"]
        in_hbm = [p.ranks for p in held if set(parts) & set(p.ranks)]
        if any(" ".join(parts) not in " ".join(ranks) for ranks in in_hbm):
            return False
    return True


def _are_inner_covered(model: Model, einsum: str, parts: tuple[str, ...]) -> bool:
    """Whether loops run over the outer parts of a rank, from the outside inwards, and the others are one."""
    loops = [p for p in model.spec.loop_order.get(einsum, ()) if p in parts and model.is_looped(einsum, p)]
    if not loops or tuple(loops) != parts[: len(loops)]:
        return False
    covered = " ".join(parts[len(loops) :])
    held = [p for (_, e), p in model.spec.placements.items() if e == einsum and p.component != "HBM"]
    on_chip = [p for p in held if set(parts[len(loops) :]) & set(p.ranks)]
    return all(covered in " ".join(p.outer) or covered in " ".join(p.inner) for p in on_chip)


def times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def check_orders(model: Model) -> Iterator[Finding]:
    """Loop orders and spacetime name every rank once."""
    spec = model.spec
    for einsum, order in spec.loop_order.items():
        # what an instruction consumes needs no place among the loops
        wanted = [
            r for r in model.ranks_of(einsum)
            if r in order or (einsum in spec.engines and not model.ranks.is_consumed(einsum, r))
        ]  # fmt: skip
        told = difference(order, model.needed(einsum, wanted, order))
        if told:
            node = spec.node("mapping", "loop-order", einsum)
            yield found("loop-order-ranks", node, einsum=einsum, told=told, ranks=model.ranks_of(einsum))
    for einsum, (space, time) in spec.spacetime.items():
        order = spec.loop_order.get(einsum, model.ranks_of(einsum))
        node = spec.node("mapping", "spacetime", einsum)
        told = difference((*space, *time), order)
        if told:
            told = told.replace("lacks", "lack").replace("has", "have")
            yield found("spacetime-ranks", node.at_key, einsum=einsum, told=told, order=order)
            continue
        for rank in (r for r in space if einsum in spec.engines and model.is_looped(einsum, r)):
            yield found("space-looped", node, rank=rank, instruction=spec.engines[einsum].instruction)


def check_fusion(model: Model) -> Iterator[Finding]:
    """Groups of ranks that share loops, and the list of Einsums beside them."""
    seen: dict[tuple[str, str], str] = {}
    for fusion in model.spec.fusion:
        for group, node in zip(fusion.groups, _groups(fusion)):
            yield from _group(model, group, node, seen)
        yield from _listed(model, fusion)
        alone = [g for g in fusion.groups if len(g) == 1]
        if alone:
            facts = {"count": len(alone), "total": len(fusion.groups)}
            node = fusion.node.within("ranks").at_key
            yield found("fusion-singletons", node, groups=[".".join(g[0]) for g in alone], **facts)


def _groups(fusion: Fusion) -> list[Node]:
    """Where the groups of ranks are written."""
    return fusion.node.within("ranks").items() if "ranks" in fusion.node.entries() else []


def _group(
    model: Model, group: tuple[tuple[str, str], ...], node: Node, seen: dict[tuple[str, str], str]
) -> Iterator[Finding]:
    text = f"[{', '.join('.'.join(m) for m in group)}]"
    by_einsum: dict[str, str] = {}
    for member, at in zip(group, node.items()):
        einsum, rank = member
        if member in seen:
            yield found("fused-twice", at, member=".".join(member), other=seen[member])
        elif einsum in by_einsum:
            first, second = (f"{einsum}.{r}" for r in (by_einsum[einsum], rank))
            yield found("fused-with-itself", at, einsum=einsum, first=first, second=second)
        else:
            yield from _length(model, group[0], member, at)
        seen.setdefault(member, text)
        by_einsum.setdefault(einsum, rank)


def _length(model: Model, first: tuple[str, str], member: tuple[str, str], at: Node) -> Iterator[Finding]:
    size, other = model.ranks.extent(*first), model.ranks.extent(*member)
    if size != other and not _may_be_equal(model, first, member):
        names = {"first": ".".join(first), "second": ".".join(member)}
        yield found("fused-extents", at, size=size, other=other, **names)


def _may_be_equal(model: Model, first: tuple[str, str], second: tuple[str, str]) -> bool:
    """Whether extents that are formulas of different ranks could be the same number."""
    extents = model.ranks.extent(*first), model.ranks.extent(*second)
    a, b = model.ranks.digit(*first), model.ranks.digit(*second)
    return not all(isinstance(e, int) for e in extents) and a.base != b.base


def _listed(model: Model, fusion: Fusion) -> Iterator[Finding]:
    if fusion.einsums is None:
        return
    used = {einsum for group in fusion.groups for einsum, _ in group}
    everything = [name for name in model.einsums if name in used]
    missing = [name for name in everything if name not in fusion.einsums]
    extra = [name for name in fusion.einsums if name not in used]
    if extra:
        yield found("fusion-extra", fusion, extra=extra, all=everything)
    elif missing:
        told = f"{', '.join(missing[:-1])} and {missing[-1]}" if len(missing) > 1 else missing[0]
        yield found("fusion-list", fusion, missing=told, all=everything)


def check_consumed(model: Model) -> Iterator[Finding]:
    """No rank is both consumed by an instruction and looped over."""
    for einsum, held in model.spec.engines.items():
        groups = ((rank, model.ranks.group(einsum, rank)) for rank in held.ranks)
        for rank, group in ((r, g) for r, g in groups if g is not None and g.is_loop):
            kept = [r for r in held.ranks if not model.is_looped(einsum, r)]
            yield found("consumed-and-looped", held, rank=rank, loop=loop_name(group), kept=kept)


def loop_name(group: Group) -> str:
    """A loop in words: its first member."""
    return ".".join(group.members[0])


def reducing_loops(model: Model, einsum: str) -> list[tuple[int, Group, str]]:
    """Loops over which an Einsum reduces: depth, group and its own rank."""
    reduced = set(model.ranks.parts(einsum, model.einsums[einsum].reduced))
    found_at = []
    for depth, group in enumerate(model.ordered.get(einsum, ())):
        own = next((r for e, r in group.members if e == einsum), "")
        if own in reduced:
            found_at.append((depth, group, own))
    return found_at


def check_dependences(model: Model) -> Iterator[Finding]:
    """What is read is written before, and whole."""
    position = {name: number for number, name in enumerate(model.emitted)}
    reads = ((e, t) for e in model.ordered for t in model.einsums[e].reads if t in model.ordered and t != e)
    for consumer, tensor in reads:
        if position[tensor] > position[consumer]:
            yield from _too_early(model, consumer, tensor)
        else:
            yield from _incomplete(model, consumer, tensor)


def _incomplete(model: Model, consumer: str, tensor: str) -> Iterator[Finding]:
    """Loops that sum up a tensor and that its reader shares."""
    shared = model.common(tensor, consumer)
    node = model.spec.node("mapping", "loop-order", consumer)
    for depth, group, own in reducing_loops(model, tensor):
        if depth < shared:
            rank = group.rank_of(consumer)
            yield found(
                "incomplete-reduction", _member(model, consumer, rank, node), consumer=consumer,
                tensor=tensor, loop=loop_name(group), rank=rank, own=own,
            )  # fmt: skip


def _too_early(model: Model, consumer: str, tensor: str) -> Iterator[Finding]:
    depth = model.common(tensor, consumer)
    group = model.ordered[consumer][depth]
    first = next((e for e in model.emitted if e != consumer and (e, group) in _pairs(model)), consumer)
    rank = group.rank_of(consumer)
    node = _member(model, consumer, rank, model.spec.node("binding", "fusion"))
    yield found("runs-before", node, consumer=consumer, loop=loop_name(group), first=first, tensor=tensor)


def _pairs(model: Model) -> set[tuple[str, Group]]:
    return {(name, group) for name, loops in model.ordered.items() for group in loops}


def _member(model: Model, einsum: str, rank: str, otherwise: Node) -> Node:
    """The entry EINSUM.RANK of the binding."""
    nodes = (node for fusion in model.spec.fusion for group in _groups(fusion) for node in group.items())
    return next((node for node in nodes if node.value == f"{einsum}.{rank}"), otherwise)


def check_carried(model: Model) -> Iterator[Finding]:
    """Loops whose turns depend on one another run in order."""
    for einsum, held in model.spec.engines.items():
        placed = model.ranks.producer(einsum)
        if placed is None or placed.component == "PSUM":
            continue
        for _, group, own in reducing_loops(model, einsum):
            yield from _carried(model, held, placed, group, own)


def _carried(model: Model, held: Execution, placed: Placement, group: Group, own: str) -> Iterator[Finding]:
    """What a sum over the turns of a loop means for the loop and for the tile that holds the sum."""
    einsum, loop = held.einsum, loop_name(group)
    node = model.spec.node("mapping", "loop-order", einsum, own)
    yield found("carried-loop", node, einsum=einsum, loop=loop)
    if model.bytes_of(einsum) < 4:
        node, dtype = model.spec.node("format", einsum), model.spec.dtypes[einsum]
        yield found("narrow-sum", node, tensor=einsum, dtype=dtype, loop=loop)
    if placed.constructor == "zeros":
        yield found("zeros-sum", placed, instruction=held.instruction)


def check_scopes(model: Model) -> Iterator[Finding]:
    """Tiles live inside the outermost loops of what makes them, and what reads them is there too."""
    for (tensor, einsum), placed in model.spec.placements.items():
        if einsum not in model.ordered or (placed.component == "HBM" and einsum != tensor):
            continue
        loops = model.ordered[einsum]
        groups = [model.ranks.group(einsum, r) for r in placed.unbound]
        if len(groups) > len(loops) or any(g is not h for g, h in zip(groups, loops)):
            names = [g.rank_of(einsum) for g in loops]
            yield found("unbound-prefix", placed, loops=names, first=names[: len(groups)])
        elif einsum != tensor:
            yield from _out_of_reach(model, placed)


def _out_of_reach(model: Model, placed: Placement) -> Iterator[Finding]:
    """Loops around a tile in which what reads it does not stand."""
    tensor, einsum = placed.tensor, placed.einsum
    made = model.ranks.producer(tensor)
    if made is None or tensor not in model.ordered:
        return
    shared = model.common(tensor, einsum)
    if shared < len(made.unbound):
        names = [g.rank_of(tensor) for g in model.ordered[tensor]]
        yield found("unbound-differs", placed, loops=names[: len(made.unbound)], shared=shared or "none")
