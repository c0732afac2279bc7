"""What other tensors choose of a tensor as a tile of several axes behind the partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from ..language.ast import Access, Affine, Index
from ..language.indices import plain
from ..plan.build import Span
from ..plan.fetch import gather, last_chosen
from ..plan.nest import Nest
from ..plan.storage import Storage, positions
from ..plan.values import Value
from ..plan.want import Want
from ..tree.expr import ZERO
from ..tree.nodes import Cut, View


def chosen(nest: Nest, access: Access, axes: Sequence[str]) -> tuple[Access, Storage]:
    """The tile of what indices choose, and an access to it: that of a result which is no more than that.

    Args:
        nest: over tiles of several axes.
        access: that is gathered.
        axes: variables of a tile behind the partitions.
    """
    ctx, part, (einsum, *more) = nest.ctx, nest.choice.part, nest.cluster.einsums
    dtype, target = ctx.dtypes[access.tensor], nest.targets.get(einsum.name)
    if not (more or einsum.map_op or einsum.reduce_op) and target and target.tile and target.dtype == dtype:
        _gather(nest, access, axes, einsum.output, target.tile)
        return einsum.output, target.tile
    own = replace(access, indices=plain(access.variables))
    spans = [nest.spans[v] for v in own.variables]
    dims = ["part" if v == part else "gone" if nest.spans[v].is_point else "free" for v in own.variables]

    def gathered() -> Storage:
        free = [s.most for s, dim in zip(spans, dims, strict=True) if dim == "free"] or [1]
        shape = (nest.rows.most, *free)
        tile = ctx.build.buffer(f"{access.tensor.lower()}_rows", shape, dtype, "sbuf")
        storage = Storage(tile, tuple(dims), tuple(s.start for s in spans), depth=ctx.build.depth)
        _gather(nest, access, axes, own, storage)
        return storage

    depth = ctx.build.depth_of(frozenset().union(*(s.start.names | s.count.names for s in spans)))
    return own, ctx.build.once(
        ("chosen", str(access), *((s.start, s.count) for s in spans), part), depth, gathered
    )


def _gather(nest: Nest, access: Access, axes: Sequence[str], own: Access, tile: Storage) -> None:
    """Bring what indices choose into a tile, one value of further variables that choose after the other."""
    spans = dict(nest.spans)
    with ExitStack() as stack:
        for v in chosen_by(access, nest.choice.part, axes):
            spans[v] = spans[v].tile(stack.enter_context(nest.ctx.build.pieces(v, spans[v], 1, over=v)))
        view = tile.view(positions(own, spans))
        if not tile.has_blocks:
            view = replace(view, index=(Cut(ZERO, nest.rows.count), *view.index[1:]))
        gather(nest.ctx, Want(access, spans, nest.choice.part), view)


def is_simple(access: Access) -> bool:
    """Whether all indices count upwards, and each variable stands in one alone, but where it also chooses."""
    indices = [i for i in access.indices if isinstance(i, Affine)]
    variables = [v for i in indices for v in i.variables]
    is_upwards = all(c > 0 for i in indices for _, c in i.terms)
    is_plain = not access.gathers or all(i.plain or not i.variables for i in indices)
    is_plain &= all(is_simple(g.access) for g in access.gathers)
    return is_upwards and is_plain and len(set(variables)) == len(variables)


def tile_of(value: Value, hbm: Storage) -> View | None:
    """The tile of a value, if it may be stored as it lies."""
    view = value.view
    if view is None or (view.buffer.memory, view.buffer.dtype) != ("sbuf", hbm.buffer.dtype) or view.order:
        return None
    return view if all(isinstance(i, Cut) and i.step == 1 for i in view.index) else None


def behind_chosen(access: Access, part: str) -> Sequence[Index]:
    """The indices of an operand that are gone through as they lie: those behind what chooses."""
    return access.indices[last_chosen(access, part) + 1 if access.gathers else 0 :]


def chosen_by(access: Access, part: str, axes: Sequence[str]) -> list[str]:
    """Axes of a tile by which an operand is chosen, one value after the other."""
    indices = access.indices[: len(access.indices) - len(behind_chosen(access, part))]
    return [v for v in axes if any(v in i.variables for i in indices)]


def in_whole_turns(
    tiles: Iterable[dict[str, int]], read: Sequence[Access], part: str, spans: Mapping[str, Span]
) -> Iterator[dict[str, int]]:
    """Elements of the axes that tiles cut: of those that choose, as many in each turn."""
    for sizes in tiles:
        looped = {v for a in read for v in chosen_by(a, part, tuple(sizes))}
        divisors = {v: [n for n in range(1, sizes[v] + 1) if spans[v].most % n == 0] for v in looped}
        yield {**sizes, **{v: some[-1] for v, some in divisors.items()}}
