"""Copies that are made once: of what is read beyond edges, with zeros around it; of what turns transpose.

Where the tile of an input fits on chip whole, its zeros are made there (`stage.py`). Where it does not, loops
choose what comes on chip, and whether that lies inside of the tensor differs from turn to turn; a result may
lie anywhere. A copy in HBM with the zeros that are read makes every access one inside of a tensor.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import prod

from ...machine import Machine
from ...tiles.dtypes import as_dtype
from ..language.additions import Additions, free_variable
from ..language.ast import (
    Access,
    Affine,
    Cascade,
    Derived,
    Einsum,
    Index,
    Iterate,
    Kind,
    Scalar,
    block_extent,
    plain,
)
from ..lower.stencil import Stencil
from ..rewrite.batch_order import copied, reordered
from ..tree import nodes
from ..tree.expr import ZERO, expr
from ..tree.nodes import At, Buffer, Cut, View
from .build import Span
from .context import Context
from .knobs import Knobs
from .stage import READ_AGAIN

# part of the room on chip that a whole operand may take: of a product; of other nests, which have more tiles
OF_PRODUCT, OF_NEST = 0.8, 0.4
# elements per partition of a tile that is copied
MOST_COPIED = 4096
# turns from which a transposed copy of a matrix is worth making
FEWEST_TURNS = 8

# positions before the first and behind the last, per axis; () where all lie inside
Zeros = tuple[tuple[int, int], ...]
# first and count, per axis
Region = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Edges:
    """How a copy of a tensor differs from it."""

    tensor: str  # that is copied
    zeros: Zeros  # before the first and behind the last element, per axis
    back: frozenset[int] = frozenset()  # axes that are turned round

    @property
    def told(self) -> str:
        """For the report."""
        if self.back:
            return f"{self.tensor}: copied with axes turned round, as it is read backwards"
        return f"{self.tensor}: copied with zeros around it, as it is read beyond its edges"


def with_edges(
    cascade: Cascade, dtypes: Mapping[str, str], machine: Machine, knobs: Knobs,
    apart: Sequence[Stencil] = (),
) -> tuple[Cascade, dict[str, Edges]]:  # fmt: skip
    """The cascade that reads tensors with zeros around them, and what it reads so by name.

    Copies of inputs count as inputs; those of results are Einsums of their own.

    Args:
        knobs: the share of SBUF that a plan may fill, and whether inputs that fit are copied too.
        apart: blocks that have such zeros around what they write themselves.
    """
    room = machine["sbuf_bytes_per_partition"] * (0.0 if knobs.is_edged else knobs.share)
    partitions = int(machine["partitions"])
    found: dict[str, list[Zeros]] = {}
    for einsum, block, access in ((e, b, a) for e, b in cascade.walk() for a in e.accesses):
        zeros, is_input = _zeros(cascade, einsum, access), access.tensor in cascade.inputs
        dtype = dtypes[access.tensor]
        # no tile has zeros around what other tensors choose of it, what one turn alone reads, or a view
        turns = block is not None and any(
            any(z) and block.variable in i.variables for z, i in zip(zeros, access.indices, strict=False)
        )
        is_tiled = is_input and not access.gathers and not turns and einsum.name not in cascade.views
        if not zeros or any(s.block is block and access.tensor in s.edges for s in apart):
            continue
        if is_tiled and _bytes_of(cascade, einsum, access, zeros, dtype, partitions) <= room:
            continue
        found.setdefault(access.tensor, []).append(zeros)
    if not found:
        return cascade, {}
    edging = _Edging(cascade, found)
    return edging.cascade(), edging.edges


class _Edging:
    """Puts copies with zeros around them into a cascade.

    Args:
        found: zeros that accesses read, per tensor.
    """

    def __init__(self, given: Cascade, found: Mapping[str, Sequence[Zeros]]) -> None:
        self.given, self.edges = given, dict[str, Edges]()
        self.added = Additions(given)
        self.zeros = {
            t: tuple((max(z[0] for z in axis), max(z[1] for z in axis)) for axis in zip(*held, strict=True))
            for t, held in found.items()
        }
        self.copies: dict[str, str] = {}

    def cascade(self) -> Cascade:
        """The cascade with the copies, each before the first step that reads it."""
        steps = list[Einsum | Iterate]()
        for step in self.given.steps:
            own = {e.name for e in step.body}
            steps += self.new_copies(step.body, own if isinstance(step, Iterate) else set())
            body = list[Einsum]()
            for einsum in step.body:
                # of what turns write, each has copies of its own
                body += self.new_copies([einsum]) if isinstance(step, Iterate) else []
                body.append(self.changed(einsum))
                self.copies.pop(einsum.name, None)
            steps.append(step.with_body(body))
            self.copies = {t: copy for t, copy in self.copies.items() if t not in own}
        for copy in (e for step in steps for e in step.body if self.is_copied(e)):
            self.added.derived[copy.name] = Derived(copy.reads[0], Kind.VIEW)
        return self.added.applied(tuple(steps))

    def is_copied(self, einsum: Einsum) -> bool:
        """Whether what an Einsum adds is all of a copy with zeros, as it lies there."""
        kind = self.added.derived[einsum.name].kind if einsum.name in self.added.derived else None
        if kind is not Kind.WINDOW or einsum.map_op or einsum.reads[0] not in self.edges:
            return False
        shapes = (
            [self.added.sizes[r] for r in self.added.tensors[a.tensor].ranks]
            for a in (einsum.output, *einsum.accesses)
        )
        return einsum.accesses[0].indices == einsum.output.indices and len({*map(tuple, shapes)}) == 1

    def new_copies(self, body: Sequence[Einsum], apart: Container[str] = ()) -> list[Einsum]:
        """Declare what a step is the first to read; returns the Einsums that make the copies of results."""
        read = dict.fromkeys(a.tensor for e in body for a in e.accesses if self.is_beyond(e, a))
        read = {t: None for t in read if t not in apart}
        names = {t: self.declared(t) for t in read if t not in self.copies}
        self.copies |= names
        return [self.copying(name) for tensor, name in names.items() if tensor not in self.given.inputs]

    def is_beyond(self, einsum: Einsum, access: Access) -> bool:
        """Whether an access reads a copy."""
        return access.tensor in self.zeros and bool(_zeros(self.given, einsum, access))

    def declared(self, tensor: str) -> str:
        """The name of a new copy."""
        shape, zeros = self.given.shape(tensor), self.zeros[tensor]
        sizes = [low + size + high for size, (low, high) in zip(shape, zeros, strict=True)]
        ranks = tuple(self.added.rank(f"{tensor.upper()}_EDGED_{n}", size) for n, size in enumerate(sizes))
        name = self.added.tensor(f"{tensor}_edged", ranks, tensor, Kind.PADDED)
        self.edges[name] = Edges(tensor, zeros)
        return name

    def copying(self, name: str) -> Einsum:
        """The Einsum that makes a copy."""
        edges = self.edges[name]
        indices = plain(rank.lower() for rank in self.added.tensors[name].ranks)
        inside = (replace(i, constant=-low) for i, (low, _) in zip(indices, edges.zeros, strict=True))
        return Einsum(Access(name, indices), (Access(edges.tensor, tuple(inside)),))

    def changed(self, einsum: Einsum) -> Einsum:
        """An Einsum that reads the copies."""
        changed = einsum.reading(lambda a: self.shifted(a) if self.is_beyond(einsum, a) else a)
        return einsum if changed is einsum else replace(changed, text="")

    def shifted(self, access: Access) -> Access:
        """The same elements of the copy."""
        name = self.copies[access.tensor]
        axes = zip(access.indices, self.edges[name].zeros, strict=True)
        moved = (replace(i, constant=i.constant + n) if isinstance(i, Affine) else i for i, (n, _) in axes)
        return Access(name, tuple(moved), access.place)


def _zeros(cascade: Cascade, einsum: Einsum, access: Access) -> Zeros:
    """How many positions before and behind a tensor an access reads, per axis; () for none."""
    zeros = []
    for index, size in zip(access.indices, cascade.shape(access.tensor), strict=True):
        extents = {v: cascade.extent(v, einsum) for v in index.variables}
        low, high = index.ends(extents) if isinstance(index, Affine) else (0, size - 1)
        zeros.append((max(-low, 0), max(high - size + 1, 0)))
    return tuple(zeros) if any(map(any, zeros)) else ()


def _bytes_of(
    cascade: Cascade, einsum: Einsum, access: Access, zeros: Zeros, dtype: str, partitions: int
) -> float:
    """Bytes per partition that a whole operand takes, as if it had all of the room.

    A product needs the axes that have edges whole, and those it sums over in blocks of partitions; other
    nests need all, the largest of the axes without edges on the partitions.
    """
    has_product = is_product(cascade, einsum)
    wide, others = 1, [1]
    for index, (low, high) in zip(access.affine, zeros, strict=True):
        first, last = index.ends({v: cascade.extent(v, einsum) for v in index.variables})
        if low or high or not index.plain:
            wide *= last - first + 1
        elif not has_product or index.plain in einsum.reduced:
            others.append(last - first + 1)
    most = others.pop(others.index(max(others)))
    blocks = -(-most // partitions) * prod(others)
    size = as_dtype(dtype).storage.itemsize
    return wide * blocks * size / (OF_PRODUCT if has_product else OF_NEST)


def is_product(cascade: Cascade, einsum: Einsum) -> bool:
    """Whether TensorE may sum over a variable that both operands have alone in an index."""
    if einsum.map_op != "multiply" or einsum.reduce_op != "add" or len(einsum.accesses) != 2:
        return False
    alone = set.intersection(*({i.plain for i in a.indices} for a in einsum.accesses))
    return any(cascade.extent(v, einsum) > 1 for v in alone & set(einsum.reduced))


def from_end(index: At | Cut, last: int) -> At | Cut:
    """The same positions of an axis, counted from its end."""
    return Cut(last - index.start, index.count, -1) if isinstance(index, Cut) else At(last - index.at)


class EdgedCopy:
    """Lowers the copy of an input with zeros around it."""

    def __init__(self, ctx: Context, name: str, edges: Edges) -> None:
        self.ctx, self.name, self.edges = ctx, name, edges
        held = ctx.hbm(edges.tensor)
        assert held is not None, "what is copied with its edges lies in HBM"
        self.source = held.buffer
        place = ctx.hbm(name) or ctx.add_hbm(name, "scratch")
        self.made, place.depth = place.buffer, ctx.build.depth
        self.shape, self.inner = ctx.cascade.shape(name), ctx.cascade.shape(edges.tensor)
        if edges.back and len(self.shape) == 1:
            self.as_rows()
        # rows of the last axis lie along the columns
        outer = range(len(self.shape) - 1)
        self.part = max(outer, key=lambda n: min(self.inner[n], ctx.lanes), default=None)

    def as_rows(self) -> None:
        """See a vector as rows, all of which are turned round, and their elements."""
        (size,) = self.shape
        rows = max(n for n in range(1, self.ctx.lanes + 1) if size % n == 0)
        self.shape = self.inner = (rows, size // rows)
        self.edges = replace(self.edges, back=frozenset({0, 1}), zeros=((0, 0), (0, 0)))
        views = []
        for buffer in (self.source, self.made):
            name = self.ctx.build.fresh(f"{buffer.name.lower()}_rows")
            views.append(replace(buffer, name=name, shape=self.shape, base=buffer.root))
            with self.ctx.build.hoisted(0):
                self.ctx.build.allocated(views[-1])
        self.source, self.made = views

    def lower(self) -> None:
        """Append loops that copy what is inside, and store zeros beyond the edges."""
        told = "its axes turned round" if self.edges.back else "zeros beyond its edges"
        self.ctx.build.add(nodes.Comment(f"{self.edges.tensor} with {told}"))
        blocks, whole = self.blocks(self.inner)
        zeros = self.edges.zeros
        region = tuple((0 if n in whole else zeros[n][0], self.inner[n]) for n in range(len(self.shape)))
        with self.tiles(region, blocks) as at:
            self.copied(at, whole)
        for slab in self.slabs(whole):
            self.cleared(slab)

    def slabs(self, whole: set[int]) -> list[Region]:
        """The regions beyond the edges of the axes that no tile has whole."""
        everything = tuple((0, size) for size in self.shape)
        edges = [
            (axis, edge)
            for axis, (low, high) in enumerate(self.edges.zeros)
            for edge in ((0, low), (low + self.inner[axis], high))
            if axis not in whole
        ]
        return [(*everything[:n], edge, *everything[n + 1 :]) for n, edge in edges if edge[1]]

    def blocks(self, extents: Sequence[int]) -> tuple[list[int], set[int]]:
        """Elements of a tile along each axis, and the axes that a tile has whole, with their edges."""
        blocks, whole, room = [1] * len(extents), set(), MOST_COPIED
        last = len(extents) - 1
        for n in reversed(range(len(extents))):
            if n == self.part:
                blocks[n] = min(extents[n], self.ctx.lanes)
            elif n in self.edges.back and n == last:
                most, room = extents[n] if extents[n] <= 2 * MOST_COPIED else MOST_COPIED, 1
                # all tiles have as many
                blocks[n] = max(b for b in range(1, most + 1) if extents[n] % b == 0)
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
                # a tile that has its edges reaches over more than what lies inside
                span = stack.enter_context(self.ctx.build.tiles(f"e{n}", max(count, blocks[n]), blocks[n]))
                found.append(Span(span.start + start, span.count, span.most))
            yield found

    def copied(self, at: list[Span], whole: set[int]) -> None:
        """One tile from the input to the copy."""
        tile, axes = self.tile(at), self.axes(at)
        zeros = self.edges.zeros
        if any(any(zeros[n]) for n in whole):
            self.ctx.build.add(nodes.Fill(self.view(tile, at, axes), 0.0))
        inside = [
            Span(expr(zeros[n][0]), expr(self.inner[n]), self.inner[n]) if n in whole else s
            for n, s in enumerate(at)
        ]
        index = [Span(s.start - zeros[n][0], s.count, s.most) for n, s in enumerate(inside)]
        for n in self.edges.back & {len(at) - 1}:
            index[n] = replace(index[n], start=self.inner[n] - index[n].start - index[n].count)
        starts = [zeros[n][0] if n in whole else 0 for n in range(len(at))]
        place, add = self.view(tile, inside, axes, starts), self.ctx.build.add
        add(nodes.Load(place, self.hbm(self.source, index, axes, self.edges.back - {len(at) - 1})))
        if len(at) - 1 in self.edges.back:
            tile = self.tile(at)
            self.ctx.turn_columns(self.view(tile, at, axes), place)
        add(nodes.Store(self.hbm(self.made, at, axes), self.view(tile, at, axes)))

    def cleared(self, region: Region) -> None:
        """Zeros in a region of the copy, from one tile."""
        extents = [count for _, count in region]
        blocks = [min(b, e) for b, e in zip(self.blocks(extents)[0], extents, strict=True)]
        first = [Span(ZERO, expr(b), b) for b in blocks]
        tile, axes = self.tile(first), self.axes(first)
        self.ctx.build.add(nodes.Fill(self.view(tile, first, axes), 0.0))
        with self.tiles(region, blocks) as at:
            self.ctx.build.add(nodes.Store(self.hbm(self.made, at, axes), self.view(tile, at, axes)))

    def axes(self, at: Sequence[Span]) -> list[int]:
        """Axes that a tile has behind its partitions: those of more than one position, and the last."""
        last = len(at) - 1
        return [n for n, s in enumerate(at) if n != self.part and (s.most > 1 or n == last)]

    def tile(self, at: Sequence[Span]) -> Buffer:
        """A new tile, the partitions in front."""
        rows = at[self.part].most if self.part is not None else 1
        shape = (rows, *(at[n].most for n in self.axes(at)))
        return self.ctx.build.buffer(
            f"{self.edges.tensor.lower()}_edges", shape, self.source.dtype, nodes.SBUF, "tile"
        )

    def view(self, tile: Buffer, at: Sequence[Span], axes: Sequence[int], starts: Sequence[int] = ()) -> View:
        """A part of a tile that has some axes."""
        first = Cut(ZERO, at[self.part].count if self.part is not None else expr(1))
        return View(tile, (first, *(Cut(expr(starts[n] if starts else 0), at[n].count) for n in axes)))

    def hbm(
        self, buffer: Buffer, at: Sequence[Span], axes: Sequence[int], back: frozenset[int] = frozenset()
    ) -> View:
        """The same part in HBM, the axis on the partitions in front; of some axes counted from the end."""
        held = [n for n in range(len(at)) if n in axes or n == self.part]
        ahead = (Cut(s.start, s.count) if n in held else At(s.start) for n, s in enumerate(at))
        index = tuple(from_end(i, self.inner[n] - 1) if n in back else i for n, i in enumerate(ahead))
        if self.part is None:
            # one partition: the first axis, which is turned round, or one that the tensor has not
            front = (
                (Cut(at[0].start, expr(1)), *index[1:]) if len(index) > 1 else (Cut(ZERO, expr(1)), *index)
            )
            return View(buffer, front)
        place = held.index(self.part)
        order = (place, *(n for n in range(len(held)) if n != place)) if place else ()
        return View(buffer, index, order=order)


def with_halos(cascade: Cascade, stencils: Sequence[Stencil], lanes: int) -> Cascade:
    """The cascade with zeros around states of blocks, but for long ones and those that stencils keep."""
    apart = {t for s in stencils for t in s.tensors} | {*cascade.outputs, *cascade.views}
    states = [(n, e.name) for n, b in enumerate(cascade.blocks) for e in b.body]
    for number, name in dict.fromkeys(state for state in states if state[1] not in apart):
        halo, block = _halo(cascade, name), cascade.blocks[number]
        is_short = all(
            size <= lanes for size, own in zip(cascade.shape(name), halo, strict=False) if any(own)
        )
        if is_short and any(map(any, halo)) and name in {t for e in block.body for t in e.reads}:
            cascade = _widened(cascade, block, name, halo)
    return cascade


def _halo(cascade: Cascade, name: str) -> list[tuple[int, int]]:
    """How far every axis of a tensor is read before its first element, and behind its last one."""
    halo = [(0, 0)] * len(cascade.shape(name))
    for einsum, access in ((e, a) for e in cascade.einsums for a in e.every_access if a.tensor == name):
        if access.gathers:
            return [(0, 0)]
        for axis, (index, size) in enumerate(zip(access.affine, cascade.shape(name), strict=True)):
            low, high = index.ends({v: cascade.extent(v, einsum) for v in index.variables})
            before, behind = halo[axis]
            halo[axis] = max(before, -low), max(behind, high + 1 - size)
    return halo


def _widened(cascade: Cascade, block: Iterate, name: str, halo: Sequence[tuple[int, int]]) -> Cascade:
    """The cascade with a state that has a halo, of zeros before the block."""
    added, tensor = Additions(cascade), cascade.tensors[name]
    extents = {(v, cascade.extent(v, e)) for e in cascade.einsums for v in e.variables}
    sizes = {v.upper(): size for v, size in extents if v.upper() not in cascade.sizes}
    if len({v for v, _ in extents}) < len(extents):
        return cascade
    pairs = zip(tensor.ranks, cascade.shape(name), halo, strict=True)
    ranks = [added.rank(f"{r}_HALO", size + sum(own)) if any(own) else r for r, size, own in pairs]
    added.tensors[name] = replace(tensor, ranks=tuple(ranks))

    def moved(access: Access) -> Access:
        if access.tensor != name:
            return access
        return replace(
            access, indices=tuple(_later(i, low) for i, (low, _) in zip(access.indices, halo, strict=True))
        )

    steps = [s.with_body(e.changing(moved) for e in s.body) for s in cascade.steps]
    # variables keep the extents that the narrower axes told
    added.sizes = {**sizes, **added.sizes}
    every = [free_variable(f"{rank.lower()}_all", cascade) for rank in ranks]
    added.sizes |= {v.upper(): added.sizes[rank] for v, rank in zip(every, ranks, strict=True)}
    zeros = Einsum(Access(name, plain(every)), (Scalar(),), place=block.place)
    place, again = cascade.steps.index(block), list[Einsum]()
    axes = enumerate(zip(cascade.shape(name), halo, strict=True))
    sides = ((n, at, count) for n, (size, (low, high)) in axes
             for at, count in ((0, low), (size + low, high)) if count)  # fmt: skip
    for axis, start, count in sides:
        part = Affine(((added.rank("HALO", count).lower(), 1),), start)
        again.append(replace(zeros, output=zeros.output.with_axis(axis, part)))
    steps[place] = block.with_body([*steps[place].body, *again])
    return added.applied((zeros, *steps))


def _later(index: Index, by: int) -> Index:
    return replace(index, constant=index.constant + by) if isinstance(index, Affine) else index


def turned_once(cascade: Cascade, dtypes: Mapping[str, str], machine: Machine) -> Cascade:
    """The cascade with a transposed copy of each large matrix that turns multiply with a vector."""
    blocks = [b for b in cascade.blocks if block_extent(b, cascade) >= FEWEST_TURNS]
    tensors = {a.tensor for b in blocks for e in b.body for a in e.accesses if _is_turned(a, e, b.variable)}
    every = [(e, b.variable if b else "", a) for e, b in cascade.walk() for a in e.accesses]
    tensors -= {a.tensor for e, turn, a in every if not _is_turned(a, e, turn)}
    orders = {t: (1, 0) for t in cascade.inputs if t in tensors and _is_large(cascade, t, dtypes, machine)}
    added = Additions(cascade)
    names = {t: added.tensor(f"{t}_turned", (), t, Kind.TRANSPOSED) for t in orders}
    body, ordered = reordered(added, orders, names)
    return added.applied((*(copied(ordered, t, cascade, True) for t in orders), *body)) if orders else cascade


def _is_turned(matrix: Access, einsum: Einsum, turn: str) -> bool:
    """Whether an operand is a matrix that is multiplied with a vector, summed over its last axis."""
    own, names = {*einsum.output.variables} - {turn}, [i.plain for i in matrix.indices]
    others = {v for a in einsum.accesses if a is not matrix for v in a.variables}
    is_matrix = len(names) == 2 and names[0] in own and names[1] in einsum.reduced and turn not in names
    is_pair = einsum.is_product and len(einsum.operands) == len(einsum.accesses) == 2
    return is_matrix and is_pair and not others & own


def _is_large(cascade: Cascade, tensor: str, dtypes: Mapping[str, str], machine: Machine) -> bool:
    """Whether to copy an input: of two bytes an element, in whole blocks, too many to stay on chip."""
    dtype, shape = as_dtype(dtypes.get(tensor, "float32")), cascade.shape(tensor)
    lanes = machine.limit("partitions")
    is_whole = dtype.is_float and dtype.storage.itemsize == 2 and not any(size % lanes for size in shape)
    room = machine["sbuf_bytes_per_partition"] * Knobs().share * READ_AGAIN
    return is_whole and prod(shape) * 2 > room * lanes
