"""The syntax tree of a cascade of Einsums.

A cascade is a list of steps in order, each an Einsum or an iterate block.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import TypeVar

from ...errors import NkilabError, SpecError
from .indices import NOWHERE as NOWHERE
from .indices import Access as Access
from .indices import Affine as Affine
from .indices import Around as Around
from .indices import Changed as Changed
from .indices import Digit as Digit
from .indices import Gather as Gather
from .indices import Index as Index
from .indices import Indexed as Indexed
from .indices import Operand as Operand
from .indices import Place as Place
from .indices import Position as Position
from .indices import Scalar as Scalar
from .indices import affine as affine
from .indices import is_variable as is_variable
from .indices import plain as plain
from .indices import strides as strides

Error = TypeVar("Error", bound=NkilabError)


@dataclass(frozen=True)
class Condition:
    """left relation right, over affine expressions."""

    left: Affine
    relation: str
    right: Affine

    @property
    def variables(self) -> tuple[str, ...]:
        """Rank variables of both sides."""
        return tuple(dict.fromkeys((*self.left.variables, *self.right.variables)))

    @property
    def difference(self) -> Affine:
        """left - right."""
        return affine(
            [*self.left.terms, *((n, -c) for n, c in self.right.terms)],
            self.left.constant - self.right.constant,
        )

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"


@dataclass(frozen=True)
class Recurrence:
    """What the values of an Einsum along a variable have to do with each other; no specification has one.

    A scan is r = (first op0 r) op1 second over its operands, from the third; `before` has at each place what
    stands one before it, at the first its second operand; `last` is what stands at the last place.
    `largest` are the largest values in order, `places` where these stand, the first of equal ones first.
    `turns` run in a block in a block: with those beside it along the same variable once per value of that.
    """

    variable: str  # along which
    kind: str = "scan"  # scan, before, last, largest, places or turns
    is_descending: bool = False  # whether the first value is that of the greatest index
    has_first: bool = False  # whether what it begins with is written too, one place before the others
    # op0, op1: names of operators of engines
    op0: str = ""
    op1: str = ""
    reverse0: bool = False  # whether r stands left of op0
    reverse1: bool = False  # whether `second` stands left of op1
    counted: str = ""  # variable of the output that counts the largest; "" for one alone


@dataclass(frozen=True)
class Einsum(Indexed):
    """One Einsum: output = reduce over the variables that only stand on the right of map(operands)."""

    output: Access  # what it writes
    operands: tuple[Operand, ...]  # what it reads, in order
    map_op: str = ""  # name of the operator that combines the operands; "" for a copy
    reduce_op: str = ""  # name of the operator over variables that vanish; ""
    condition: Condition | None = None  # where the mapped value counts; None for everywhere
    otherwise: float = 0.0  # the value elsewhere
    text: str = field(default="", compare=False)  # as written
    place: Place = field(default=Place(), compare=False)  # of the expression
    recurrence: Recurrence | None = None  # between its values; None for none
    before: str = field(default="", compare=False)  # what it was with other ranks; "" for itself
    formula: str = field(default="", compare=False)  # that it is a part of; "" for none

    @property
    def title(self) -> str:
        """What people call it: as it was before ranks were joined or split."""
        return self.before or str(self)

    @property
    def name(self) -> str:
        """Einsums are named by their output."""
        return self.output.tensor

    @cached_property
    def accesses(self) -> tuple[Access, ...]:
        """Operands that are tensors."""
        return tuple(o for o in self.operands if isinstance(o, Access))

    @cached_property
    def positions(self) -> tuple[Position, ...]:
        """Operands that are values of indices."""
        return tuple(o for o in self.operands if isinstance(o, Position))

    @cached_property
    def is_placed(self) -> bool:
        """Whether its values depend on where they stand, otherwise than by plain indices."""
        return self.is_bound or any(a.gathers for a in self.accesses)

    @cached_property
    def is_bound(self) -> bool:
        """Whether its values depend on where they stand, otherwise than by what they choose."""
        return bool(self.condition or self.recurrence or self.positions or self.output.gathers)

    @property
    def is_product(self) -> bool:
        """Whether it sums products of what plain indices name."""
        return (self.map_op, self.reduce_op) == ("multiply", "add") and not self.is_placed

    @property
    def is_contraction(self) -> bool:
        """Whether it sums products of two different tensors over a variable that both have."""
        if self.map_op != "multiply" or self.reduce_op != "add" or len(set(map(str, self.accesses))) < 2:
            return False
        shared = [v for v in self.reduced if all(v in a.variables for a in self.accesses)]
        own = [v for v in self.output.variables if not all(v in a.variables for a in self.accesses)]
        return bool(shared) and bool(own)

    @property
    def every_access(self) -> tuple[Access, ...]:
        """What it writes, then its operands that are tensors."""
        return (self.output, *self.accesses)

    @property
    def body(self) -> tuple[Einsum, ...]:
        """Itself: a step outside of blocks."""
        return (self,)

    def with_body(self, body: Iterable[Einsum]) -> Einsum:
        """The one that stands for it."""
        (einsum,) = body
        return einsum

    def located(self, error: Error, access: Access | None = None) -> Error:
        """An error at this Einsum, or at one of its accesses where that has a place."""
        place = access.place if access is not None and access.place.line else self.place
        error.located(str(place), "einsum.expressions", (f"expression: {self.formula or self.text or self}",))
        return error

    def reading(self, changed: Callable[[Access], Operand]) -> Einsum:
        """It with other operands for those that are tensors."""
        operands = tuple(changed(o) if isinstance(o, Access) else o for o in self.operands)
        return self if operands == self.operands else replace(self, operands=operands)

    def changing(self, changed: Callable[[Access], Access]) -> Einsum:
        """It with other accesses of what it reads and writes."""
        return replace(self.reading(changed), output=changed(self.output))

    def with_indices(self, changed: Changed) -> Einsum:
        """It with other affine indices: of what it writes, reads, gathers by and compares."""
        asked = self.condition
        if asked is not None:
            asked = Condition(changed(asked.left), asked.relation, changed(asked.right))
        operands = tuple(o.with_indices(changed) for o in self.operands)
        return replace(self, output=self.output.with_indices(changed), operands=operands, condition=asked)

    @cached_property
    def indices(self) -> tuple[Affine, ...]:
        """Every affine index: of what it writes, reads, gathers by and compares."""
        every: list[Affine] = []

        def noted(index: Affine) -> Affine:
            every.append(index)
            return index

        self.with_indices(noted)
        return tuple(every)

    def counted_back(self, extents: Mapping[str, int]) -> Einsum:
        """It with variables, in which nothing is gathered, counted the other way round."""
        return replace(self.with_indices(lambda index: index.counted_back(extents)), text="")

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """Every rank variable but what counts the largest, those of the output first."""
        inner = (v for operand in self.operands for v in operand.variables)
        asked = self.condition.variables if self.condition else ()
        every = dict.fromkeys((*self.output.variables, *inner, *asked))
        return tuple(v for v in every if v not in self.along[1:])

    @cached_property
    def along(self) -> tuple[str, ...]:
        """The variable that it goes through in order, and what counts the largest."""
        known = self.recurrence
        return tuple(filter(None, (known.variable, known.counted))) if known is not None else ()

    @cached_property
    def reduced(self) -> tuple[str, ...]:
        """Variables that vanish."""
        kept = {*self.output.variables, *self.along}
        return tuple(v for v in self.variables if v not in kept)

    @property
    def is_last(self) -> bool:
        """Whether all values of another tensor along a variable come before it."""
        return self.is_choice or (self.recurrence is not None and self.recurrence.kind == "last")

    @property
    def has_first(self) -> bool:
        """Whether it is a scan that writes what it begins with too."""
        return self.recurrence is not None and self.recurrence.has_first

    @property
    def is_choice(self) -> bool:
        """Whether it has the largest values along a variable, or their places."""
        return self.recurrence is not None and self.recurrence.kind in ("largest", "places")

    @property
    def turning(self) -> str:
        """The variable of a block in a block that it runs in; "" for none."""
        known = self.recurrence
        return known.variable if known is not None and known.kind == "turns" else ""

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Tensors it reads, those that hold indices too."""
        found: list[str] = []
        for access in self.accesses:
            found.append(access.tensor)
        found.extend(g.access.tensor for a in self.every_access for g in a.gathers)
        return tuple(dict.fromkeys(found))

    def __str__(self) -> str:
        actions = "".join(f" {a} {n}" for a, n in (("M", self.map_op), ("V", self.reduce_op)) if n)
        tail = f" if {self.condition} else {self.otherwise:g}" if self.condition else ""
        right = " . ".join(map(str, self.operands))
        if self.recurrence is not None:
            return (
                self.text
                or f"{self.output} = {self.recurrence.kind} over {self.recurrence.variable} of {right}"
            )
        return f"{self.output} = {right}{' ;;' + actions if actions else ''}{tail}"


@dataclass(frozen=True)
class Iterate:
    """Einsums that run once per value of a rank variable, in order."""

    variable: str
    body: tuple[Einsum, ...]
    place: Place = field(default=Place(), compare=False)

    def with_body(self, body: Iterable[Einsum]) -> Iterate:
        """It with other Einsums."""
        return replace(self, body=tuple(body))


Step = Einsum | Iterate


@dataclass(frozen=True)
class Tensor:
    """A declared tensor and its ranks."""

    name: str
    ranks: tuple[str, ...]
    place: Place = field(default=Place(), compare=False)


class Kind(Enum):
    """What a rewrite makes a tensor for; the value is the law that it rests on."""

    PART = "a sum of products is a sum of products of two"
    NOW = "a turn sees one value of its state"
    NEXT = "the next value of a state is written beside the present one"
    SUM = "a factor that a sum does not run over may be taken after it"
    DIAGONAL = "a diagonal is a sum over rows, of which one element counts each"
    TRANSPOSED = "a matrix is its transpose, read the other way round"
    REVERSED = "an index that runs backwards reads a reversed copy forwards"
    REPEATED = "a tensor has the same elements at each value of a rank that it lacks"
    PARTS = "a sum is the sum of the sums of its parts"
    LARGEST = "the largest are the largest of those of parts"
    STATE = "turns go on from the state that the turns before them leave"
    WINDOW = "windows are rows of a matrix"
    VIEW = "elements in the same order are the same tensor, however its axes are cut"
    PACKED = "products of small matrices are one of the matrix that has them on its diagonal"
    BAND = "a sum over a window is a product with a band of ones"
    ONCE = "what windows make of an element is the same in each of them"
    OVERLAP = "rows that overlap are the elements of a tensor, some of them again"
    EXACT = "terms may be summed in any order, as long as none is rounded"
    FACTOR = "operands that may be swapped are combined in any order"
    CHOSEN = "what indices choose of a tensor is a tensor"
    PIECE = "a tensor is its pieces, side by side"
    LINEAR = "what is linear in what it begins with is a sum over all that it begins with"
    PADDED = "beyond a tensor are the zeros of a copy with a border"

    @property
    def is_copy(self) -> bool:
        """Whether it has the type of what it is made of; others are computed in float32."""
        parts = Kind.PART, Kind.PARTS, Kind.PIECE, Kind.FACTOR, Kind.SUM, Kind.EXACT, Kind.LINEAR
        return self not in (*parts, Kind.ONCE, Kind.NOW, Kind.NEXT, Kind.DIAGONAL, Kind.LARGEST)


@dataclass(frozen=True)
class Derived:
    """Where a tensor comes from that no specification declares."""

    origin: str  # the tensor, or the Einsum, that it is made of or for
    kind: Kind  # what for


@dataclass(frozen=True)
class Cascade:
    """Einsums with what they declare."""

    tensors: Mapping[str, Tensor]  # by name, in the order of the declaration
    steps: tuple[Step, ...]  # in order
    outputs: tuple[str, ...]  # tensors that are returned
    scalars: Mapping[str, float] = field(default_factory=dict)  # parameters and their values
    sizes: Mapping[str, int] = field(default_factory=dict)  # extents of ranks, where known
    derived: Mapping[str, Derived] = field(default_factory=dict)  # tensors that rewrites added
    # tensors that hold indices, and of which rank, where no access shows it
    indexing: tuple[tuple[str, str], ...] = ()
    open_ranks: frozenset[str] = frozenset()  # whose extents the kernel takes as arguments

    @cached_property
    def index_ranks(self) -> tuple[tuple[str, str], ...]:
        """Tensors that hold indices, each with a rank that it holds indices of."""
        axes = (axis for e in self.einsums for a in e.every_access for axis in self.axes(a))
        pairs = [*self.indexing, *((i.access.tensor, rank) for rank, i in axes if isinstance(i, Gather))]
        for copy in (e for e in reversed(self.einsums) if not (e.map_op or e.reduce_op)):
            pairs += [(a.tensor, rank) for name, rank in pairs if name == copy.name for a in copy.accesses]
        return tuple(pairs)

    def types(self, dtypes: Mapping[str, str]) -> dict[str, str]:
        """The type of every tensor, given those of inputs and outputs: that of what it copies, or float32."""
        computed = [t for t in self.tensors if t not in self.derived or not self.derived[t].kind.is_copy]
        return {t: dtypes.get(declared(t, computed, self.derived), "float32") for t in self.tensors}

    @cached_property
    def einsums(self) -> tuple[Einsum, ...]:
        """All Einsums, those of iterate blocks too, in order."""
        return tuple(einsum for einsum, _ in self.walk())

    @cached_property
    def views(self) -> dict[str, Einsum]:
        """Tensors that are views of others, with what says of which elements."""
        kinds = {t: derived.kind for t, derived in self.derived.items()}
        return {e.name: e for e in self.einsums if kinds.get(e.name) in (Kind.VIEW, Kind.OVERLAP)}

    @cached_property
    def blocks(self) -> tuple[Iterate, ...]:
        """Its iterate blocks, in order."""
        return tuple(step for step in self.steps if isinstance(step, Iterate))

    def einsum(self, name: str) -> Einsum:
        """The Einsum that writes a tensor; of several the one with the most rank variables."""
        return max((e for e in self.einsums if e.name == name), key=lambda e: len(e.variables))

    def writers(self, tensor: str) -> list[Einsum]:
        """The Einsums that write a tensor, in order."""
        return [e for e in self.einsums if e.name == tensor]

    def readers(self, tensor: str) -> list[Einsum]:
        """The Einsums that read a tensor, in order."""
        return [e for e in self.einsums if tensor in e.reads]

    def walk(self) -> Iterator[tuple[Einsum, Iterate | None]]:
        """Every Einsum with the block it stands in."""
        for step in self.steps:
            yield from ((einsum, step if isinstance(step, Iterate) else None) for einsum in step.body)

    @cached_property
    def written(self) -> tuple[str, ...]:
        """Tensors that an Einsum writes, in order."""
        return tuple(dict.fromkeys(e.name for e in self.einsums))

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Tensors that no Einsum writes, in the order of the declaration."""
        written = set(self.written)
        return tuple(name for name in self.tensors if name not in written)

    def shape(self, name: str) -> tuple[int, ...]:
        """Extents of a tensor; every rank has a size."""
        return tuple(self.sizes[r] for r in self.tensors[name].ranks)

    def axes(self, access: Access) -> Iterator[tuple[str, Index]]:
        """Ranks of a tensor with what an access has there."""
        return zip(self.tensors[access.tensor].ranks, access.indices, strict=True)

    def extent(self, variable: str, einsum: Einsum) -> int:
        """How many values a rank variable takes in an Einsum.

        That of the rank of its name in capitals, else that of the first axis with an extent it indexes alone.
        """
        known = self.sizes.get(variable.upper())
        if known is not None:
            return known
        axes = (axis for access in einsum.every_access for axis in self.axes(access))
        for rank, index in axes:
            if index.plain == variable and rank in self.sizes:
                return self.sizes[rank]
        raise KeyError(variable)


def block_extent(block: Iterate, cascade: Cascade) -> int:
    """How often the body of an iterate block runs."""
    known = cascade.sizes.get(block.variable.upper())
    if known is not None:
        return known
    for einsum in block.body:
        try:
            return cascade.extent(block.variable, einsum)
        except KeyError:
            continue
    inner = dict.fromkeys(v for einsum in block.body for v in einsum.variables)
    problem, hint = "has no extent", f"add {block.variable.upper()}: NUMBER under einsum.shape"
    if block.variable not in inner:
        problem, hint = "is in no index of its block", f"iterate over one of {', '.join(inner)}"
    error = SpecError(f"the variable {block.variable} {problem}", hint=hint)
    raise error.located(str(block.place), "einsum.expressions")


def declared(name: str, known: Container[str], derived: Mapping[str, Derived]) -> str:
    """The first of some names that a tensor comes from: its own, or that of an origin; its own if none is."""
    origin = name
    while origin not in known and origin in derived:
        origin = derived[origin].origin
    return origin if origin in known else name
