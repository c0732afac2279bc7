"""Inputs that are read beyond their edges and do not fit on chip whole: copied once, with zeros around them.

Where the tile fits, its zeros are made on chip (`stage.py`). Where it does not, loops choose what comes on
chip, and whether that lies inside of the tensor differs from turn to turn. A copy in HBM with the zeros
that are read makes every access one inside of a tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import prod

from ...machine import Machine
from ...tiles.dtypes import as_dtype
from ..language.ast import Access, Affine, Cascade, Einsum, Iterate, Step, Tensor
from ..language.extents import bounds
from ..tree import nodes
from ..tree.expr import ZERO, expr
from ..tree.nodes import At, Buffer, Cut, View
from .build import Span, point
from .context import Context
from .storage import PARTITIONS

# part of the room on chip that a whole operand may take: of a product, and of other nests, which have more tiles
OF_PRODUCT, OF_NEST = 0.8, 0.4
# elements per partition of a tile that is copied
MOST_COPIED = 4096

Region = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Edges:
    """How far a tensor is read beyond its edges.

    Args:
        tensor: whose edges they are.
        zeros: before the first and behind the last element, per axis.
    """

    tensor: str
    zeros: tuple[tuple[int, int], ...]


def with_edges(
    cascade: Cascade, dtypes: Mapping[str, str], machine: Machine, share: float
) -> tuple[Cascade, dict[str, Edges]]:
    """The cascade that reads inputs with zeros around them, and those inputs by name.

    Args:
        cascade: every rank has an extent.
        dtypes: of inputs.
        machine: the chip.
        share: of SBUF that a plan may fill.
    """
    room = machine["sbuf_bytes_per_partition"] * share
    large: dict[str, list[tuple[tuple[int, int], ...]]] = {}
    for einsum in cascade.einsums:
        for access in einsum.accesses:
            zeros = _zeros(cascade, einsum, access)
            dtype = dtypes.get(access.tensor, "float32")
            if zeros and _bytes_of(cascade, einsum, access, zeros, dtype) > room:
                large.setdefault(access.tensor, []).append(zeros)
    tensors, sizes, edges = dict(cascade.tensors), dict(cascade.sizes), {}
    renamed: dict[str, str] = {}
    for tensor, found in large.items():
        name = f"{tensor}_edged"
        while name in tensors:
            name += "_"
        zeros = tuple((max(z[0] for z in axis), max(z[1] for z in axis)) for axis in zip(*found, strict=True))
        shape = cascade.shape(tensor)
        ranks = tuple(f"{name.upper()}_{n}" for n in range(len(shape)))
        sizes |= {r: low + size + high for r, size, (low, high) in zip(ranks, shape, zeros, strict=True)}
        tensors[name], edges[name], renamed[tensor] = Tensor(name, ranks), Edges(tensor, zeros), name
    if not edges:
        return cascade, edges

    def changed(einsum: Einsum) -> Einsum:
        operands = tuple(
            _shifted(o, renamed[o.tensor], edges[renamed[o.tensor]])
            if isinstance(o, Access) and o.tensor in renamed and _zeros(cascade, einsum, o)
            else o
            for o in einsum.operands
        )
        return einsum if operands == einsum.operands else replace(einsum, operands=operands, text="")

    steps: list[Step] = [
        replace(s, body=tuple(map(changed, s.body))) if isinstance(s, Iterate) else changed(s)
        for s in cascade.steps
    ]
    return replace(cascade, tensors=tensors, steps=tuple(steps), sizes=sizes), edges


def _zeros(cascade: Cascade, einsum: Einsum, access: Access) -> tuple[tuple[int, int], ...]:
    """How many positions before and behind a tensor an access reads, per axis; () for none."""
    if access.gathers or access.tensor not in cascade.inputs:
        return ()
    found = []
    for index, size in zip(access.indices, cascade.shape(access.tensor), strict=True):
        low, high = _bounds(cascade, einsum, index)
        found.append((max(-low, 0), max(high - size + 1, 0)))
    return tuple(found) if any(map(any, found)) else ()


def _bounds(cascade: Cascade, einsum: Einsum, index: object) -> tuple[int, int]:
    """The least and the greatest position that an index takes."""
    assert isinstance(index, Affine)
    held = index.at(cascade.sizes)
    return bounds(held, {v: cascade.extent(v, einsum) for v in held.variables})


def _bytes_of(
    cascade: Cascade, einsum: Einsum, access: Access, zeros: Sequence[tuple[int, int]], dtype: str
) -> float:
    """Bytes per partition that a whole operand takes, as if it had all of the room.

    A product needs the axes that have edges whole, and those it sums over in blocks of partitions; other
    nests need all, the largest of the axes without edges on the partitions.
    """
    is_product = einsum.map_op == "multiply" and einsum.reduce_op == "add" and len(einsum.accesses) == 2
    wide, others = 1, [1]
    for index, (low, high) in zip(access.indices, zeros, strict=True):
        assert isinstance(index, Affine)
        first, last = _bounds(cascade, einsum, index)
        if low or high or not index.plain:
            wide *= last - first + 1
        elif not is_product or index.plain in einsum.reduced:
            others.append(last - first + 1)
    most = others.pop(others.index(max(others)))
    blocks = -(-most // PARTITIONS) * prod(others)
    size = as_dtype(dtype).storage.itemsize
    return wide * blocks * size / (OF_PRODUCT if is_product else OF_NEST)


def _shifted(access: Access, name: str, edges: Edges) -> Access:
    """The same elements of the copy."""
    indices = []
    for index, (low, _) in zip(access.indices, edges.zeros, strict=True):
        assert isinstance(index, Affine)
        indices.append(replace(index, constant=index.constant + low))
    return Access(name, tuple(indices), access.place)


class EdgedCopy:
    """Lowers the copy of an input with zeros around it.

    Args:
        ctx: the plan.
        name: of the copy.
        edges: what it is a copy of.
    """

    def __init__(self, ctx: Context, name: str, edges: Edges) -> None:
        self.ctx, self.name, self.edges = ctx, name, edges
        self.source = ctx.storages[edges.tensor][0].buffer
        self.made = ctx.add_hbm(name, "scratch").buffer
        self.shape, self.inner = ctx.cascade.shape(name), ctx.cascade.shape(edges.tensor)
        outer = range(max(len(self.shape) - 1, 1))
        # rows of the last axis lie along the columns
        self.part = max(outer, key=lambda n: min(self.inner[n], PARTITIONS)) if len(self.shape) > 1 else None

    def lower(self) -> None:
        """Append loops that copy what is inside, and store zeros beyond the edges."""
        self.ctx.build.add(nodes.Comment(f"{self.edges.tensor} with zeros beyond its edges"))
        blocks, whole = self.blocks(self.inner)
        zeros = self.edges.zeros
        region = tuple((0 if n in whole else zeros[n][0], self.inner[n]) for n in range(len(self.shape)))
        with self.tiles(region, blocks) as at:
            self.copied(at, whole)
        for axis, (low, high) in enumerate(zeros):
            if axis in whole:
                continue
            for start, count in ((0, low), (low + self.inner[axis], high)):
                if count:
                    slab = tuple((start, count) if n == axis else (0, s) for n, s in enumerate(self.shape))
                    self.cleared(slab)

    def blocks(self, extents: Sequence[int]) -> tuple[list[int], set[int]]:
        """Elements of a tile along each axis, and the axes that a tile has whole, with their edges."""
        blocks, whole, room = [1] * len(extents), set(), MOST_COPIED
        for n in reversed(range(len(extents))):
            if n == self.part:
                blocks[n] = min(extents[n], PARTITIONS)
            elif self.shape[n] <= room:
                blocks[n], room = self.shape[n], room // self.shape[n]
                whole.add(n)
            else:
                blocks[n], room = min(room, extents[n]), 1
        return blocks, whole

    @contextmanager
    def tiles(self, region: Region, blocks: Sequence[int]) -> Iterator[list[Span]]:
        """Loops over the tiles of a region; yields what a tile covers of each axis of the copy."""
        with ExitStack() as stack:
            found = []
            for n, (start, count) in enumerate(region):
                total = max(count, blocks[n]) if blocks[n] > count else count
                span = stack.enter_context(self.ctx.build.tiles(f"e{n}", total, blocks[n]))
                found.append(Span(span.start + start, span.count, span.most))
            yield found

    def copied(self, at: list[Span], whole: set[int]) -> None:
        """One tile from the input to the copy."""
        tile = self.tile(at)
        zeros = self.edges.zeros
        if any(any(zeros[n]) for n in whole):
            self.ctx.build.add(nodes.Fill(self.view(tile, at), 0.0))
        inside = [
            Span(expr(zeros[n][0]), expr(self.inner[n]), self.inner[n]) if n in whole else s
            for n, s in enumerate(at)
        ]
        index = [Span(s.start - zeros[n][0], s.count, s.most) for n, s in enumerate(inside)]
        starts = [zeros[n][0] if n in whole else 0 for n in range(len(at))]
        self.ctx.build.add(nodes.Load(self.view(tile, inside, starts), self.hbm(self.source, index)))
        self.ctx.build.add(nodes.Store(self.hbm(self.made, at), self.view(tile, at)))

    def cleared(self, region: Region) -> None:
        """Zeros in a region of the copy, from one tile."""
        extents = [count for _, count in region]
        blocks, _ = self.blocks(extents)
        blocks = [min(b, e) for b, e in zip(blocks, extents, strict=True)]
        tile = self.tile([Span(ZERO, expr(b), b) for b in blocks])
        self.ctx.build.add(nodes.Fill(self.view(tile, [Span(ZERO, expr(b), b) for b in blocks]), 0.0))
        with self.tiles(region, blocks) as at:
            self.ctx.build.add(nodes.Store(self.hbm(self.made, at), self.view(tile, at)))

    def tile(self, at: Sequence[Span]) -> Buffer:
        """A new tile, the partitions in front."""
        rows = at[self.part].most if self.part is not None else 1
        rest = tuple(s.most for n, s in enumerate(at) if n != self.part)
        dtype = self.source.dtype
        return self.ctx.build.buffer(
            f"{self.edges.tensor.lower()}_edges", (rows, *rest), dtype, nodes.SBUF, "tile"
        )

    def view(self, tile: Buffer, at: Sequence[Span], starts: Sequence[int] = ()) -> View:
        """A part of a tile."""
        first = Cut(ZERO, at[self.part].count if self.part is not None else expr(1))
        rest = [
            Cut(expr(starts[n] if starts else 0), s.count) for n, s in enumerate(at) if n != self.part
        ]
        return View(tile, (first, *rest))

    def hbm(self, buffer: Buffer, at: Sequence[Span]) -> View:
        """The same part in HBM, the axis on the partitions in front."""
        index: list[At | Cut] = [Cut(s.start, s.count) for s in at]
        if self.part is None:
            return View(buffer, (Cut(ZERO, expr(1)), *index))
        rest = [n for n in range(len(at)) if n != self.part]
        return View(buffer, tuple(index), order=(self.part, *rest) if self.part else ())


__all__ = ["EdgedCopy", "Edges", "with_edges"]
