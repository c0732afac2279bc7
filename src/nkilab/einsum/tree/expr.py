"""Whole numbers that a kernel computes: sums of products of names, kept in one normal form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from math import prod
from operator import floordiv, mod

ROUNDED: dict[str, Callable[[int, int], int]] = {"//": floordiv, "%": mod, "min": min}


@dataclass(frozen=True)
class Rounded:
    """A whole number that is no sum of products."""

    operator: str  # of `ROUNDED`
    value: Expr  # the left operand
    number: Whole  # the right one: a number, or an expression over names of constants

    def __str__(self) -> str:
        if self.operator == "min":
            return f"min({self.number}, {self.value})"
        value, number = (f"({e})" if len(e.terms) > 1 else e for e in (self.value, expr(self.number)))
        return f"({value} {self.operator} {number})"

    @property
    def names(self) -> frozenset[str]:
        """Names that occur."""
        return self.value.names | expr(self.number).names

    def of(self, value: Expr) -> Expr:
        """The same of another value."""
        number = expr(self.number).value
        if value.value is not None and number is not None:
            return expr(ROUNDED[self.operator](value.value, number))
        return _of(Rounded(self.operator, value, self.number if number is None else number))

    def replaced(self, atoms: Mapping[Atom, Expr]) -> Expr:
        """It with other expressions for some factors on both sides."""
        number = expr(self.number).replaced(atoms)
        return replace(self, number=number).of(self.value.replaced(atoms))


Atom = str | Rounded


class Constant(str):
    """The name of a number at the top of a kernel."""

    value: int
    place: int

    def __new__(cls, name: str, value: int, place: int) -> Constant:
        """A name that knows its value."""
        constant = super().__new__(cls, name)
        constant.value, constant.place = value, place
        return constant


def constants_in(factor: object) -> list[Constant]:
    """The constants that a factor is made of; none if a loop counts it."""
    names = factor.names if isinstance(factor, Rounded) else {factor}
    return (
        [n for n in names if isinstance(n, Constant)] if all(isinstance(n, Constant) for n in names) else []
    )


def _weight(term: tuple[tuple[object, ...], int]) -> tuple[int, int]:
    """How many factors of a term loops count, and by how much it grows with these: more stand first."""
    factors, size = term
    fixed = [f for f in factors if constants_in(f)]
    for factor in fixed:
        values = {str(n): n.value for n in constants_in(factor)}
        size *= _of(factor).at(values) if isinstance(factor, str | Rounded) else 1
    return len(fixed) - len(factors), -abs(size)


def _place(factor: object) -> tuple[int, str]:
    """What loops count stands before constants, these in their order: the alphabet decides little."""
    constants = constants_in(factor)
    return (1 + min(c.place for c in constants), "") if constants else (0, str(factor))


@dataclass(frozen=True)
class Expr:
    """A polynomial over names with whole coefficients."""

    # (factors, coefficient), sorted; the constant has no factors
    terms: tuple[tuple[tuple[Atom, ...], int], ...]

    @cached_property
    def value(self) -> int | None:
        """The number that it is; None if names occur."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def rounded(self) -> Rounded | None:
        """The quotient, remainder or minimum that it is alone."""
        is_atom = len(self.terms) == 1 and len(self.terms[0][0]) == 1 and self.terms[0][1] == 1
        atom = self.terms[0][0][0] if is_atom else ""
        return None if isinstance(atom, str) else atom

    @cached_property
    def atoms(self) -> frozenset[Atom]:
        """Its factors."""
        return frozenset(atom for factors, _ in self.terms for atom in factors)

    @cached_property
    def names(self) -> frozenset[str]:
        """Names that occur."""
        return frozenset(n for a in self.atoms for n in ((a,) if isinstance(a, str) else a.names))

    def __add__(self, other: Whole) -> Expr:
        added = expr(other)
        if not added.terms or not self.terms:
            return self if self.terms else added
        terms = dict(self.terms)
        for factors, c in added.terms:
            terms[factors] = terms.get(factors, 0) + c
        return _normal(terms)

    __radd__ = __add__

    def __sub__(self, other: Whole) -> Expr:
        return self + expr(other) * -1

    def __rsub__(self, other: Whole) -> Expr:
        return expr(other) - self

    def __mul__(self, other: Whole) -> Expr:
        times = expr(other)
        if (number := times.value) == 1:
            return self
        if number is not None:
            return Expr(tuple((f, c * number) for f, c in self.terms)) if number else ZERO
        terms: dict[tuple[Atom, ...], int] = {}
        for factors, c in self.terms:
            for others, d in times.terms:
                key = tuple(sorted((*factors, *others), key=str))
                terms[key] = terms.get(key, 0) + c * d
        return _normal(terms)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: Whole) -> Expr:
        """The quotient, exact where every coefficient divides."""
        number = expr(divisor).value
        if self == divisor:
            return expr(1)
        if number is not None and self.divides(number):
            return _normal({factors: c // number for factors, c in self.terms})
        return Rounded("//", self, divisor).of(self)

    def __mod__(self, divisor: int) -> Expr:
        return Rounded("%", self, divisor).of(self)

    def at(self, names: Mapping[str, int]) -> int:
        """Its value, given those of its names."""

        def number(atom: Atom) -> int:
            if isinstance(atom, str):
                return names[atom]
            return ROUNDED[atom.operator](atom.value.at(names), expr(atom.number).at(names))

        return sum(c * prod(map(number, factors)) for factors, c in self.terms)

    def replaced(self, atoms: Mapping[Atom, Expr]) -> Expr:
        """It with other expressions for some of its factors, those of quotients and the like too."""

        def other(atom: Atom) -> Expr:
            if atom in atoms or isinstance(atom, str):
                return atoms.get(atom, _of(atom))
            return atom.replaced(atoms)

        return sum((prod(map(other, factors), start=expr(c)) for factors, c in self.terms), ZERO)

    def divides(self, divisor: int) -> bool:
        """Whether every coefficient is a multiple of a number."""
        return all(c % divisor == 0 for _, c in self.terms)

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        # the constant last; the order of the alphabet says nothing
        ordered = sorted(self._shifted(), key=lambda t: (not t[0], _weight(t), *map(str, t[0])))
        first = next((n for n, (_, c) in enumerate(ordered) if c > 0), 0)
        ordered[:0] = [ordered.pop(first)] if ordered else []
        text = ""
        for factors, c in ordered:
            numbers = [str(abs(c))] if abs(c) != 1 or not factors else []
            sign = "-" if c < 0 else "+"
            text += f" {sign} " if text else "-" if c < 0 else ""
            names = [str(factor) for factor in sorted(factors, key=_place)]
            is_single = len(names) == 1 and not numbers and isinstance(factors[0], Rounded)
            is_bare = is_single and names[0][0] == "(" and c > 0
            text += names[0][1:-1] if is_bare else " * ".join([*names, *numbers])
        return text or "0"

    def _shifted(self) -> list[tuple[tuple[object, ...], int]]:
        """Its terms, with i * c + c as (i + 1) * c."""
        terms: dict[tuple[object, ...], int] = dict(self.terms)
        for (factors, added), (longer, c) in product(self.terms, sorted(self.terms, key=_weight)):
            # a factor may stand several times
            rest = [*(Counter(longer) - Counter(factors)).elements()]
            is_one_more = len(longer) == len(factors) + 1 and len(rest) == 1
            if is_one_more and added % c == 0 and (factors or abs(c) > 1) and isinstance(rest[0], str):
                del terms[factors], terms[longer]
                terms[*factors, f"({rest[0]} {'+' if added * c > 0 else '-'} {abs(added // c)})"] = c
                break
        return list(terms.items())


Whole = int | Expr


def _normal(terms: Mapping[tuple[Atom, ...], int]) -> Expr:
    kept = [term for term in terms.items() if term[1]]
    if len(kept) > 1:
        kept.sort(key=lambda term: (*map(str, term[0]),))
    return Expr(tuple(kept))


def expr(value: Whole) -> Expr:
    """A number or expression as an expression."""
    return value if isinstance(value, Expr) else _number(value)


@lru_cache(maxsize=4096)
def _number(value: int) -> Expr:
    return Expr((((), value),) if value else ())


def _of(atom: Atom) -> Expr:
    return Expr((((atom,), 1),))


def name_of(name: str) -> Expr:
    """A name."""
    return _of(name)


def at_most(bound: int, value: Whole) -> Expr:
    """The smaller of a number and an expression."""
    return Rounded("min", ZERO, bound).of(expr(value))


ZERO = expr(0)
