"""Indices, and what stands with them: affine sums, parts of variables, what tensors hold; operands.

Every index is affine in rank variables (lower case) and extents (upper case), or the value of another tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, product
from operator import mul
from typing import TypeVar

from .operators import OPERATORS

Item = TypeVar("Item", bound="Indexed")


@dataclass(frozen=True)
class Place:
    """Where something stands; line and column count from 1, 0 where unknown."""

    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part)


class Digit(str):
    """The name of what is taken of a variable: variable // divisor % modulus."""

    variable: str  # of which
    divisor: int | str  # a number, or the rank that has so many elements; 1 for none
    modulus: int | str  # the same; 0 for none

    def __new__(cls, variable: str, divisor: int | str, modulus: int | str) -> Digit:
        """A name that knows what it is made of."""
        tail = f" // {divisor}" * (divisor != 1) + f" % {modulus}" * (modulus != 0)
        digit = super().__new__(cls, f"({variable}{tail})")
        digit.variable, digit.divisor, digit.modulus = variable, divisor, modulus
        return digit

    @property
    def extents(self) -> tuple[str, ...]:
        """Ranks whose extents it divides by."""
        return tuple(n for n in (self.divisor, self.modulus) if isinstance(n, str))

    def steps(self, sizes: Mapping[str, int]) -> tuple[int, int]:
        """What one step of it is worth of its variable, and where it begins anew; 0 for never."""
        divisor, modulus = (sizes[n] if isinstance(n, str) else n for n in (self.divisor, self.modulus))
        return divisor, divisor * modulus

    def at(self, values: Mapping[str, int]) -> int | None:
        """How many it is at values of names; None where one is not known."""
        if not all(name in values for name in (self.variable, *self.extents)):
            return None
        divisor, end = self.steps(values)
        return (values[self.variable] % end if end else values[self.variable]) // divisor


@dataclass(frozen=True)
class Affine:
    """constant + sum of coefficient * name over rank variables and extents."""

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """Its rank variables, in order."""
        names = (name.variable if isinstance(name, Digit) else name for name, _ in self.terms)
        return tuple(dict.fromkeys(filter(is_variable, names)))

    @cached_property
    def plain(self) -> str:
        """The variable that it is alone; "" if it is anything else."""
        is_one = len(self.terms) == 1 and self.terms[0][1] == 1 and not self.constant
        return self.terms[0][0] if is_one and is_variable(self.terms[0][0]) else ""

    @property
    def extents(self) -> tuple[str, ...]:
        """Names of ranks whose extents it counts with."""
        names = (((*n.extents, n.variable) if isinstance(n, Digit) else (n,)) for n, _ in self.terms)
        return tuple(name for several in names for name in several if not is_variable(name))

    def coefficient(self, name: str) -> int:
        """What a name is multiplied with; 0 if it does not occur."""
        return dict(self.terms).get(name, 0)

    def at(self, values: Mapping[str, int]) -> Affine:
        """With names replaced by values where known."""
        known = {n: n.at(values) if isinstance(n, Digit) else values.get(n) for n, _ in self.terms}
        constant = self.constant + sum(c * (known[n] or 0) for n, c in self.terms)
        return Affine(tuple((n, c) for n, c in self.terms if known[n] is None), constant)

    def ends(self, extents: Mapping[str, int]) -> tuple[int, int]:
        """Its least and its greatest value, where every name of it counts from 0 and has an extent."""
        ends = [sorted((0, c * (extents[n] - 1))) for n, c in self.terms]
        return self.constant + sum(e[0] for e in ends), self.constant + sum(e[1] for e in ends)

    def counted_back(self, extents: Mapping[str, int]) -> Affine:
        """With variables counted the other way round, which have these extents."""
        moved = sum(c * (extents[n] - 1) for n, c in self.terms if n in extents)
        return affine([(n, -c if n in extents else c) for n, c in self.terms], self.constant + moved)

    def renamed(self, names: Mapping[str, str]) -> Affine:
        """With other names."""
        return affine([(names.get(n, n), c) for n, c in self.terms], self.constant)

    def replaced(self, values: Mapping[str, Affine]) -> Affine:
        """With indices instead of some names."""
        terms = [(values.get(n, Affine(((n, 1),))), c) for n, c in self.terms]
        every = [(n, c * own) for value, c in terms for n, own in value.terms]
        return affine(every, self.constant + sum(c * value.constant for value, c in terms))

    def __str__(self) -> str:
        text = ""
        for name, c in self.terms:
            body = name if abs(c) == 1 else f"{abs(c)}*{name}"
            text += (f" {'-' if c < 0 else '+'} " if text else "-" if c < 0 else "") + body
        if self.constant or not text:
            sign = "-" if self.constant < 0 else "+"
            text = f"{text} {sign} {abs(self.constant)}" if text else str(self.constant)
        return text


@dataclass(frozen=True)
class Around(Affine):
    """An index that goes on at the other edge: (n + 1) % N is n + 1, or n + 1 - N where that lies inside."""

    last: Affine = Affine()  # the greatest it is: one less than its period
    moved: int | None = None  # by how many periods as one of its ways; None if it stands for all

    @property
    def leaves(self) -> tuple[bool, bool]:
        """Whether its signs let it leave its axis, before 0 and beyond the end."""
        grows = sum(c for _, c in self.terms if c > 0)
        return self.constant < 0 or any(c < 0 for _, c in self.terms), self.constant > 0 or grows > 1

    def ways(self) -> Iterator[Around]:
        """Itself and what lies a period further on; where one of them is inside, no other is."""
        for by in (0, *(by for by, may in zip((1, -1), self.leaves, strict=True) if may)):
            terms = [*self.terms, *((name, by * c) for name, c in self.last.terms)]
            index = affine(terms, self.constant + by * (self.last.constant + 1))
            yield Around(index.terms, index.constant, self.last, by)


def affine(terms: list[tuple[str, int]], constant: int = 0) -> Affine:
    """An affine index with the terms of one name taken together."""
    merged: dict[str, int] = {}
    for name, c in terms:
        merged[name] = merged.get(name, 0) + c
    return Affine(tuple((n, c) for n, c in merged.items() if c), constant)


def strides(sizes: Sequence[int]) -> list[int]:
    """How many elements behind each other those of axes lie, the last axis innermost."""
    return [*accumulate(sizes[:0:-1], mul, initial=1)][::-1]


def plain(names: Iterable[str]) -> tuple[Affine, ...]:
    """Indices of one variable each."""
    return tuple(Affine(((name, 1),)) for name in names)


class Indexed:
    """What has affine indices."""

    def with_indices(self: Item, changed: Changed) -> Item:
        """It with other affine indices."""
        raise NotImplementedError

    def renamed(self: Item, names: Mapping[str, str]) -> Item:
        """It with other names in all indices."""
        return self.with_indices(lambda index: index.renamed(names))

    def replaced(self: Item, values: Mapping[str, Affine]) -> Item:
        """It with indices instead of some names."""
        return self.with_indices(lambda index: index.replaced(values))


@dataclass(frozen=True)
class Gather(Indexed):
    """An index that a tensor holds."""

    access: Access

    @property
    def variables(self) -> tuple[str, ...]:
        """Rank variables of its indices."""
        return self.access.variables

    def with_indices(self, changed: Changed) -> Gather:
        """It with other affine indices."""
        return Gather(self.access.with_indices(changed))

    @property
    def plain(self) -> str:
        """It is no variable."""
        return ""

    def __str__(self) -> str:
        return str(self.access)


Index = Affine | Gather
Changed = Callable[[Affine], Affine]


@dataclass(frozen=True)
class Access(Indexed):
    """A tensor with its indices."""

    tensor: str
    indices: tuple[Index, ...] = ()
    place: Place = field(default=Place(), compare=False)

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """Rank variables in order of first appearance."""
        return tuple(dict.fromkeys(v for index in self.indices for v in index.variables))

    @cached_property
    def repeated(self) -> frozenset[str]:
        """Rank variables that several indices have."""
        every = Counter(v for index in self.indices for v in {*index.variables})
        return frozenset(v for v, times in every.items() if times > 1)

    @cached_property
    def gathers(self) -> tuple[Gather, ...]:
        """Indices that other tensors hold."""
        return tuple(i for i in self.indices if isinstance(i, Gather))

    @cached_property
    def affine(self) -> tuple[Affine, ...]:
        """Its indices, none of which another tensor holds."""
        assert not self.gathers, f"{self} is gathered"
        return tuple(i for i in self.indices if isinstance(i, Affine))

    def with_indices(self, changed: Changed) -> Access:
        """It with other affine indices, those of what gathers too."""
        indices = (changed(i) if isinstance(i, Affine) else i.with_indices(changed) for i in self.indices)
        return replace(self, indices=tuple(indices))

    def with_axis(self, axis: int, *indices: Index) -> Access:
        """It with other indices, or none, in the place of one."""
        return replace(self, indices=(*self.indices[:axis], *indices, *self.indices[axis + 1 :]))

    def ways(self) -> list[Access]:
        """It at every place where an index of it that goes on at the other edge may be."""
        each = (i.ways() if isinstance(i, Around) else (i,) for i in self.indices)
        return [replace(self, indices=indices) for indices in product(*each)]

    def axis_of(self, variable: str) -> int | None:
        """The first axis whose index has a variable; None if none has."""
        return next((n for n, i in enumerate(self.indices) if variable in i.variables), None)

    def __str__(self) -> str:
        return f"{self.tensor}[{', '.join(map(str, self.indices))}]"


@dataclass(frozen=True)
class Scalar(Indexed):
    """A parameter by name, a number, or what an operator makes of several: its name is what Python writes."""

    name: str = ""
    value: float = 0.0
    op: str = ""
    parts: tuple[Scalar, ...] = ()

    @classmethod
    def of(cls, op: str, parts: Iterable[Scalar]) -> Scalar:
        """What one of the operators that Python has makes of scalars."""
        parts = tuple(parts)
        each = (str(p) if p.name else repr(p.value) for p in parts)
        return cls(f" {OPERATORS[op].infix} ".join(each), op=op, parts=parts)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters in it."""
        names = (n for part in self.parts for n in part.parameters)
        return tuple(names) if self.parts or not self.name else (self.name,)

    def at(self, values: Mapping[str, float]) -> float:
        """The number that it is at values of parameters."""
        if self.parts:
            return OPERATORS[self.op].on(*(part.at(values) for part in self.parts))
        return float(values[self.name]) if self.name else self.value

    @property
    def variables(self) -> tuple[str, ...]:
        """It has none."""
        return ()

    def with_indices(self, changed: Changed) -> Scalar:
        """Itself."""
        return self

    def __str__(self) -> str:
        return f"({self.name})" if self.parts else self.name or f"{self.value:g}"


@dataclass(frozen=True)
class Position(Indexed):
    """The value of an affine index as an operand."""

    index: Affine

    @property
    def variables(self) -> tuple[str, ...]:
        """Rank variables of the index."""
        return self.index.variables

    def with_indices(self, changed: Changed) -> Position:
        """It with another index."""
        return Position(changed(self.index))

    def __str__(self) -> str:
        return f"({self.index})"


Operand = Access | Scalar | Position


NOWHERE = Place()


def is_variable(name: str) -> bool:
    """Whether a name is a rank variable: its first letter is small."""
    return name[:1].islower()
