"""Nodes of the loop tree: loops, buffers, views, and one class per kind of tile statement.

Operands are views of buffers: per axis a point or a cut, whose starts and counts are expressions over loop
variables. Ragged edges are counts that a loop computes (`Loop.count_name`). Emitters print nodes and decide
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from .expr import ZERO, Expr, Whole, expr

HBM, SBUF, PSUM = "hbm", "sbuf", "psum"
# the role of a tile whose second axis has a version for even turns of a loop and one for odd ones
TURNS = "turns"


@dataclass(frozen=True, eq=False)
class Buffer:
    """A tensor of the kernel."""

    name: str  # in the kernel
    shape: tuple[Whole, ...]  # extents; on chip the first is the partitions
    dtype: str  # name of its type
    memory: str  # hbm, sbuf or psum
    role: str = "tile"  # input, output, scratch, tile, sum or turns
    tensor: str = ""  # of the cascade that it holds; "" for none
    base: Buffer | None = None  # what it is another view of, in HBM; None for itself
    # of each axis how far one position goes along each axis of the base; () where a view is a reshape
    window: tuple[tuple[int, ...], ...] = ()
    first: tuple[int, ...] = ()  # of windows: where the first element lies along each axis of the base

    @property
    def root(self) -> Buffer:
        """What it is a view of, or a view of a view."""
        return self.base.root if self.base is not None else self


@dataclass(frozen=True)
class At:
    """One position along an axis."""

    at: Expr


@dataclass(frozen=True)
class Cut:
    """`count` positions from `start`, `step` apart."""

    start: Expr
    count: Expr
    step: int = 1
    each: Cut | None = None  # positions from each of them on, which are an axis behind; on chip alone

    @property
    def axes(self) -> tuple[Cut, ...]:
        """It, and what it has of each of its positions."""
        return (self,) if self.each is None else (self, self.each)


@dataclass(frozen=True)
class View:
    """A part of a buffer.

    An index longer than the buffer's shape views it with an axis of one in front.
    """

    buffer: Buffer  # whose part it is
    index: tuple[At | Cut, ...]  # per axis
    is_turned: bool = False  # whether its two cut axes are swapped, in HBM alone
    # partitions over which a part without a partition axis is repeated, in HBM alone; or None
    repeat: Expr | None = None
    # axis of HBM whose cut is seen as [partitions, blocks], in front, or turned, and how many partitions,
    # which divide it
    folded: tuple[int, Whole] | None = None
    # of its cut axes, where it is not that of the buffer; a count stands for an axis along which all of it is
    # repeated
    order: tuple[int | Expr, ...] = ()
    # of what a loop hands on: how many of its turns made what is there; it is proved, and not printed
    turn: Expr | None = field(default=None, compare=False)

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """Axes that are left, in order; blocks of partitions count as one axis, where it lies."""
        cuts = tuple(cut for i in self.index if isinstance(i, Cut) for cut in i.axes)
        ordered = (cuts[n] if isinstance(n, int) else Cut(ZERO, n, 0) for n in self.order)
        return cuts if self.folded is not None else tuple(ordered) or cuts

    @property
    def has_parts(self) -> bool:
        """Whether an axis of the buffer is seen as two."""
        return any(isinstance(i, Cut) and i.each is not None for i in self.index)


def columns_of(view: View, start: Expr, count: Expr) -> View:
    """Some columns of a view [rows, columns]."""
    place, last = max((n, i) for n, i in enumerate(view.index) if isinstance(i, Cut))
    cut = Cut(last.start + start * last.step, count, last.step)
    return View(view.buffer, (*view.index[:place], cut, *view.index[place + 1 :]), turn=view.turn)


def upto(count: Whole) -> Cut:
    """The first positions of an axis."""
    return Cut(ZERO, expr(count))


def all_of(buffer: Buffer) -> View:
    """All of a buffer."""
    return View(buffer, tuple(map(upto, buffer.shape)))


def names_in(index: Iterable[At | Cut]) -> frozenset[str]:
    """Names in an index."""
    return frozenset[str]().union(
        *((i.start.names | i.count.names) if isinstance(i, Cut) else i.at.names for i in index)
    )


Number = float | str | View


@dataclass(frozen=True)
class Statement:
    """A statement over tiles."""


@dataclass(frozen=True)
class Alloc(Statement):
    """Make a buffer."""

    buffer: Buffer


@dataclass(frozen=True)
class FromSource(Statement):
    """What a statement makes of one view alone."""

    dst: View
    src: View


class Load(FromSource):
    """HBM to SBUF."""


class Store(FromSource):
    """SBUF to HBM."""


class Move(FromSource):
    """SBUF to SBUF by DMA, between any partitions."""


@dataclass(frozen=True)
class Gather(Statement):
    """Rows of an HBM tensor that a column of indices chooses, or all of a slice that one index chooses."""

    dst: View  # [rows, axes...]
    table: View  # the tensor; the last of the axes that are joined to be chosen from is cut for rows alone
    axis: int  # that axis; the rows of an element are counted over it and all before it
    rows: View  # indices [rows, 1] in SBUF, or one for a slice

    @property
    def is_slice(self) -> bool:
        """Whether one index chooses all that is moved."""
        return isinstance(self.table.index[self.axis], At)


@dataclass(frozen=True)
class Pick(FromSource):
    """dst[p, i] = src[p, places[p, i]]."""

    places: View  # whole numbers


@dataclass(frozen=True)
class Copy(FromSource):
    """A copy on chip; types that differ are converted; on VectorE, or the engine named."""

    engine: str = ""


@dataclass(frozen=True)
class Fill(Statement):
    """A constant everywhere."""

    dst: View
    value: float


@dataclass(frozen=True)
class Count(Statement):
    """dst = offset + per_partition * p + per_element * i, computed in 32-bit integers."""

    dst: View
    offset: Expr
    per_partition: int
    per_element: int


@dataclass(frozen=True)
class MatMul(Statement):
    """dst (+)= stationary.T @ moving."""

    dst: View
    stationary: View
    moving: View
    over: tuple[str, ...]  # loop variables that the sum runs over; it overwrites where all of them are 0
    # tile_position, tile_size: of the part of the systolic array that it takes; () for all
    tile_position: tuple[int, ...] = ()
    tile_size: tuple[int, ...] = ()
    is_begun: bool = False  # whether it adds to what a sum has come to before, and overwrites nothing


class Transpose(FromSource):
    """SBUF [a, b] to PSUM [b, a]."""


@dataclass(frozen=True)
class Combine(Statement):
    """dst = left op right, two tiles; on VectorE, or the engine named."""

    dst: View
    left: View
    op: str
    right: View
    engine: str = ""


@dataclass(frozen=True)
class Scale(FromSource):
    """dst = (src op0 operand0) op1 operand1; operands are numbers, names of scalars or columns [P, 1]."""

    op0: str
    operand0: Number
    reverse0: bool = False
    op1: str = ""
    operand1: Number = 0.0
    reverse1: bool = False


@dataclass(frozen=True)
class ScaleCombine(FromSource):
    """dst = (src op0 operand0) op1 right."""

    op0: str
    operand0: Number
    op1: str
    right: View
    reverse0: bool = False
    reverse1: bool = False


@dataclass(frozen=True)
class Choose(FromSource):
    """dst = src where truth is not zero, or is, if reversed; elsewhere a number or a column [P, 1].

    total [P, 1] = the maxima of rows of dst, if given.
    """

    truth: View  # whole numbers
    otherwise: Number = 0.0
    is_reversed: bool = False
    left: View | None = None  # dst, where it stays as it is elsewhere
    total: View | None = None


@dataclass(frozen=True)
class Activate(Statement):
    """dst = function(src * scale + bias); total [P, 1] = row sums, if given."""

    dst: View
    function: str
    src: View
    scale: Number = 1.0
    bias: View | None = None
    total: View | None = None


class Invert(FromSource):
    """dst = 1 / src."""


@dataclass(frozen=True)
class Reduce(Statement):
    """dst = op over the last axes of src, one or more."""

    dst: View
    op: str
    src: View
    axes: int = 1


class Largest(FromSource):
    """The eight largest elements of each row, the largest first."""


@dataclass(frozen=True)
class Find(FromSource):
    """dst = where each of eight values stands first in its row, whole numbers; equal ones one by one."""

    values: View


@dataclass(frozen=True)
class TakeOut(FromSource):
    """dst = src with a number in place of the first of each of eight values."""

    values: View
    otherwise: float


@dataclass(frozen=True)
class Scan(Statement):
    """A recurrence along each row: r = (left op0 r) op1 right; dst holds every r."""

    dst: View
    left: View
    right: View
    initial: Number
    op0: str
    op1: str
    reverse0: bool = False
    reverse1: bool = False


@dataclass(frozen=True)
class Select(FromSource):
    """dst = src where offset + per_partition * p + per_element * i is in relation to 0, else a number.

    `left` are values of i, not among those of dst, for which no p is: nothing has them. It is not printed.
    """

    offset: Expr
    per_partition: int
    per_element: int
    relation: str
    otherwise: float
    left: tuple[Cut, ...] = ()


@dataclass(frozen=True)
class Loop(Statement):
    """A loop over 0 .. trips - 1."""

    variable: str  # its name
    trips: Whole  # how often
    body: list[Statement] = field(compare=False)  # what runs; filled while the tree is built
    is_sequential: bool = False  # whether an iteration needs the one before
    count_name: str = ""  # name of the number of elements in a ragged tile; "" where all tiles are full
    count: Expr | None = None  # what it is
    comment: str = ""  # above the loop
    # total, each: where the trips depend on a loop around it: elements that turns of `each` go through
    total: Expr | None = None
    each: int = 1
    usual: int = 1  # how often it runs about, if so
    apart: int = 0  # turns that stand before or behind it

    def turns_at(self, names: Mapping[str, int]) -> int:
        """How often it runs, given the values of names."""
        if self.total is not None:
            return -(-self.total.at(names) // self.each)
        return expr(self.trips).at(names)

    def last_count(self, names: Mapping[str, int]) -> int:
        """Elements of its last tile, given the values of names."""
        last = {**names, self.variable: self.turns_at(names) - 1}
        return self.count.at(last) if self.count is not None else 0

    @property
    def most_count(self) -> int:
        """Elements of a full tile, where the last is ragged; 0 where all are full."""
        rounded = self.count.rounded if self.count is not None else None
        return 0 if rounded is None else expr(rounded.number).value or 0


@dataclass(frozen=True)
class Comment(Statement):
    """A line that tells what follows."""

    text: str


@dataclass(frozen=True)
class Summed:
    """The values of a variable that one addition to a sum takes, and those that the sum is made of."""

    variable: str  # that is summed over
    # start, count: the values that are added
    start: Expr
    count: Expr
    # whole_start, whole_count: all values of the sum
    whole_start: Expr
    whole_count: Expr
    extent: int  # all values that the variable has
    # all_start, all_count: those that count, if not all do
    all_start: Expr = ZERO
    all_count: Expr | None = None

    @property
    def is_part(self) -> bool:
        """Whether the sum is made of some of the values."""
        every = expr(self.extent) if self.all_count is None else self.all_count
        return (self.whole_start, self.whole_count) != (self.all_start, every)


@dataclass(frozen=True)
class Tally(Statement):
    """What the statement before it adds to a sum. It is proved, and not printed."""

    into: View  # the elements that take it up
    added: tuple[Summed, ...]  # values that are added, per variable that is summed over
    # whether the partitions of the place are added up in the end, each having a part of the sum
    is_across: bool = False


@dataclass(frozen=True)
class Argument:
    """A parameter of the kernel."""

    name: str  # of it
    shape: tuple[Whole, ...] = ()  # for tensors, what the kernel is compiled for
    dtype: str = ""  # for tensors
    value: float | None = None  # for scalars, their default
    # for tensors, the shape in which they come, if the kernel views them in another
    declared: tuple[Whole, ...] = ()
    is_packed: bool = False  # for tensors, whether they come in a shape of their parts


@dataclass(frozen=True, eq=False)
class Kernel:
    """A whole kernel: its arguments, its body and the tensors it returns."""

    name: str
    arguments: tuple[Argument, ...]
    body: list[Statement]
    outputs: tuple[Buffer, ...]
    title: str = ""
    parameters: tuple[str, ...] = ()  # further arguments, whole numbers that extents are made of
    asserts: tuple[str, ...] = ()  # what must hold of them
    # names that numbers have, and their values; a comment stands before several
    constants: tuple[tuple[str, Mapping[str, int]], ...] = ()


def walked(
    body: Iterable[Statement], loops: tuple[Loop, ...] = ()
) -> Iterator[tuple[Statement, tuple[Loop, ...]]]:
    """Every statement, those in loops too, with the loops around it, the outermost first."""
    for statement in body:
        yield statement, loops
        if isinstance(statement, Loop):
            yield from walked(statement.body, (*loops, statement))


def statements(body: Iterable[Statement]) -> Iterator[Statement]:
    """Every statement, those in loops too."""
    return (statement for statement, _ in walked(body))


def unchanged(body: Iterable[Statement]) -> list[Statement]:
    """A body to be changed in place, its loops too, beside one that stays as it is."""
    return [replace(s, body=unchanged(s.body)) if isinstance(s, Loop) else s for s in body]


def weighted(body: Iterable[Statement], turns: int = 1) -> Iterator[tuple[Statement, int]]:
    """Statements but loops, with how often they run."""
    for statement in body:
        if isinstance(statement, Loop):
            yield from weighted(statement.body, turns * (expr(statement.trips).value or statement.usual))
        else:
            yield statement, turns


def run_by(body: Iterable[Statement]) -> int:
    """How many statements a body runs."""
    return sum(n for statement, n in weighted(body) if not isinstance(statement, Alloc | Comment | Tally))
