"""Where tensors lie: whole in HBM, or as tiles on chip with one axis on the partitions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count

from ...tiles.dtypes import as_dtype
from ..language.ast import Access, Affine
from ..tree.expr import ZERO, Expr, expr
from ..tree.nodes import HBM, At, Buffer, Cut, View
from .build import Span, UnreachableError

_versions = count()
# of what no turns hand on
APART = (None, None)


def position(index: Affine, spans: dict[str, Span], is_apart: bool = False) -> At | Cut:
    """An affine index over spans, of which those that are no points go through neighbours together.

    With `is_apart` two of them are an axis each, if the positions of one lie between those of the other.

    Raises:
        UnreachableError: if two variables leave positions between them out, or one runs backwards.
    """
    start = expr(index.constant)
    for name, c in index.terms:
        start = start + spans[name].start * c
    wide = [(spans[name].count, c) for name, c in index.terms if not spans[name].is_point]
    if len(wide) == 2:
        (outer, step), (inner, c) = sorted(wide, key=lambda one: -one[1])
        if is_apart and c == 1 and outer.value and inner.value and step >= inner.value:
            return Cut(start, outer, step, Cut(ZERO, inner))
        if inner.value and step == c * inner.value:
            wide = [(outer * inner.value, c)]
    if len(wide) > 1 or any(c < 0 for _, c in wide):
        raise UnreachableError(f"no view steps through {index}")
    return Cut(start, *wide[0]) if wide else At(start)


def counted(index: Affine, spans: dict[str, Span], part: str, free: str) -> tuple[Expr, int, int]:
    """The value of an index over a tile: the first, and what each partition and each column adds to it."""
    start = sum((spans[v].start * c for v, c in index.terms), expr(index.constant))
    return start, index.coefficient(part), index.coefficient(free)


def positions(access: Access, spans: dict[str, Span], is_apart: bool = False) -> list[At | Cut]:
    """All indices of an access over spans."""
    found = []
    for index in access.indices:
        assert isinstance(index, Affine)
        found.append(position(index, spans, is_apart))
    return found


@dataclass
class Storage:
    """A place that holds a tensor, or the part of it that the present scope works on."""

    buffer: Buffer  # in HBM whole; on chip [partitions, blocks of 128 if there are several, free axes...]
    dims: tuple[str, ...]  # per axis of the tensor: "part", "free", "gone" (one value) or, in HBM, "hbm"
    bases: tuple[Expr, ...]  # the index at which each axis of the tile begins
    has_blocks: bool = False  # whether the partition axis needs several blocks
    depth: int = 0  # of the scope in which it is complete
    version: int = field(default_factory=lambda: next(_versions))
    # positions of the tensor from one element of an axis to the next; () where all are one
    steps: tuple[int, ...] = ()
    copies: int = 1  # partitions that each have all of a tile with no axis on the partitions
    # of what turns hand on: how many of them made what is there, and what is written now
    turns: tuple[Expr | None, Expr | None] = APART

    @property
    def is_hbm(self) -> bool:
        """Whether it lies in HBM."""
        return self.buffer.memory == HBM

    @property
    def part_dim(self) -> int | None:
        """The axis of the tensor that lies on the partitions."""
        return self.dims.index("part") if "part" in self.dims else None

    def enter(self, depth: int, turns: tuple[Expr | None, Expr | None]) -> None:
        """A scope opens or closes: it is complete at another depth, and what it has is of these turns."""
        self.depth, self.turns = depth, turns
        self.changed()

    def changed(self) -> None:
        """Its elements are no longer those that were fetched before."""
        self.version = next(_versions)

    def part_variable(self, access: Access) -> str:
        """The variable that an access runs along the partitions with; "" for none."""
        dim = self.part_dim
        if dim is None:
            return ""
        index = access.indices[dim]
        return index.variables[0] if index.variables else ""

    def view(self, at: list[At | Cut]) -> View:
        """A part of a tile on chip as [partitions, columns]; `at` in positions of the tensor."""
        first: list[At | Cut] = [Cut(ZERO, expr(1))]
        free: list[At | Cut] = []
        steps = self.steps or (1,) * len(self.dims)
        for dim, base, step, index in zip(self.dims, self.bases, steps, at, strict=True):
            local = (index.start if isinstance(index, Cut) else index.at) - base
            local = local // step if step > 1 else local
            if dim == "part":
                first = self._partitions(index, local)
            elif dim == "free":
                inner = isinstance(index, Cut) and replace(index, start=local, step=index.step // step)
                free.append(inner or At(local))
        if not any(isinstance(i, Cut) for i in free):
            last = free.pop() if free else At(ZERO)
            assert isinstance(last, At)
            free.append(Cut(last.at, expr(1)))
        return View(self.buffer, (*first, *free), turn=self.turns[0])

    def place(self, at: list[At | Cut]) -> View:
        """The part of a tile that a result is written to, with every copy of it."""
        view = replace(self.view(at), turn=self.turns[1])
        return first_rows(view, expr(self.copies)) if self.copies > 1 else view

    def _partitions(self, index: At | Cut, local: Expr) -> list[At | Cut]:
        count = index.count if isinstance(index, Cut) else expr(1)
        step = index.step if isinstance(index, Cut) else 1
        if not self.has_blocks:
            return [Cut(local, count, step)]
        first = local % self.lanes if local.value is not None else ZERO
        if step != 1 or not (local - first).divides(self.lanes):
            raise UnreachableError(f"rows of {self.buffer.name} from {local} on may lie in two of its blocks")
        return [Cut(first, count), At(local // self.lanes)]

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return as_dtype(self.buffer.dtype).storage.itemsize

    @property
    def lanes(self) -> int:
        """Partitions of a tile whose rows are cut into blocks."""
        return expr(self.buffer.shape[0]).value or 1


def first_rows(view: View, count: Expr) -> View:
    """So many partitions of a view, from its first on."""
    start = view.cuts[0].start if isinstance(view.index[0], Cut) else ZERO
    return View(view.buffer, (Cut(start, count), *view.index[1:]), turn=view.turn)


def in_hbm(buffer: Buffer, ranks: int) -> Storage:
    """A tensor that lies in HBM whole."""
    return Storage(buffer, ("hbm",) * ranks, (ZERO,) * ranks)


def tile_shape(
    extents: tuple[int, ...], dims: tuple[str, ...], lanes: int, copies: int = 1
) -> tuple[tuple[int, ...], bool]:
    """The shape of a tile on a chip of so many partitions, and whether it has blocks."""
    part = extents[dims.index("part")] if "part" in dims else copies
    blocks = -(-part // lanes)
    free = tuple(e for e, d in zip(extents, dims, strict=True) if d == "free") or (1,)
    head = (lanes, blocks) if blocks > 1 else (part,)
    return (*head, *free), blocks > 1
