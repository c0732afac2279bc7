"""Whole numbers that a kernel computes: sums of products of names, kept in one normal form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from operator import floordiv, mod

ROUNDED: dict[str, Callable[[int, int], int]] = {"//": floordiv, "%": mod, "min": min}


@dataclass(frozen=True)
class Rounded:
    """A whole number that is no sum of products.

    Args:
        operator: of `ROUNDED`.
        value: the left operand.
        number: the right one.
    """

    operator: str
    value: Expr
    number: int

    def __str__(self) -> str:
        if self.operator == "min":
            return f"min({self.number}, {self.value})"
        value = f"({self.value})" if len(self.value.terms) > 1 else self.value
        return f"({value} {self.operator} {self.number})"

    def of(self, value: Expr) -> Expr:
        """The same of another value."""
        if value.value is not None:
            return expr(ROUNDED[self.operator](value.value, self.number))
        return _of(Rounded(self.operator, value, self.number))


Atom = str | Rounded


@dataclass(frozen=True)
class Expr:
    """A polynomial over names with whole coefficients.

    Args:
        terms: (factors, coefficient), sorted; the constant has no factors.
    """

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

    @property
    def atoms(self) -> frozenset[Atom]:
        """Its factors."""
        return frozenset(atom for factors, _ in self.terms for atom in factors)

    @property
    def names(self) -> frozenset[str]:
        """Names that occur."""
        return frozenset(n for a in self.atoms for n in ((a,) if isinstance(a, str) else a.value.names))

    def __add__(self, other: Whole) -> Expr:
        terms = dict(self.terms)
        for factors, c in expr(other).terms:
            terms[factors] = terms.get(factors, 0) + c
        return _normal(terms)

    __radd__ = __add__

    def __sub__(self, other: Whole) -> Expr:
        return self + expr(other) * -1

    def __rsub__(self, other: Whole) -> Expr:
        return expr(other) - self

    def __mul__(self, other: Whole) -> Expr:
        terms: dict[tuple[Atom, ...], int] = {}
        for factors, c in self.terms:
            for others, d in expr(other).terms:
                key = tuple(sorted((*factors, *others), key=str))
                terms[key] = terms.get(key, 0) + c * d
        return _normal(terms)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Expr:
        """The quotient, exact where every coefficient divides."""
        if self.divides(divisor):
            return _normal({factors: c // divisor for factors, c in self.terms})
        return Rounded("//", self, divisor).of(self)

    def __mod__(self, divisor: int) -> Expr:
        return Rounded("%", self, divisor).of(self)

    def at(self, names: Mapping[str, int]) -> int:
        """Its value, given those of its names."""

        def number(atom: Atom) -> int:
            if isinstance(atom, str):
                return names[atom]
            return ROUNDED[atom.operator](atom.value.at(names), atom.number)

        return sum(c * prod(map(number, factors)) for factors, c in self.terms)

    def replaced(self, atoms: Mapping[Atom, Expr]) -> Expr:
        """It with other expressions for some of its factors, those of quotients and the like too."""

        def other(atom: Atom) -> Expr:
            if atom in atoms or isinstance(atom, str):
                return atoms.get(atom, _of(atom))
            return atom.of(atom.value.replaced(atoms))

        return sum((prod(map(other, factors), start=expr(c)) for factors, c in self.terms), ZERO)

    def divides(self, divisor: int) -> bool:
        """Whether every coefficient is a multiple of a number."""
        return all(c % divisor == 0 for _, c in self.terms)

    def __str__(self) -> str:
        if self.rounded is not None and self.rounded.operator != "min":
            # what stands alone needs no parentheses of its own
            return str(self.rounded)[1:-1]
        # the constant last; the order of the alphabet says nothing
        ordered = sorted(self.terms, key=lambda t: (not t[0], -len(t[0]), -abs(t[1]), *map(str, t[0])))
        first = next((n for n, (_, c) in enumerate(ordered) if c > 0), 0)
        ordered[:0] = [ordered.pop(first)] if ordered else []
        text = ""
        for factors, c in ordered:
            numbers = [str(abs(c))] if abs(c) != 1 or not factors else []
            sign = "-" if c < 0 else "+"
            text += f" {sign} " if text else "-" if c < 0 else ""
            text += " * ".join([*map(str, factors), *numbers])
        return text or "0"


Whole = int | Expr


def _normal(terms: Mapping[tuple[Atom, ...], int]) -> Expr:
    kept = [term for term in terms.items() if term[1]]
    return Expr(tuple(sorted(kept, key=lambda term: (*map(str, term[0]),))))


def expr(value: Whole) -> Expr:
    """A number or expression as an expression."""
    return value if isinstance(value, Expr) else Expr((((), value),) if value else ())


def _of(atom: Atom) -> Expr:
    return Expr((((atom,), 1),))


def name_of(name: str) -> Expr:
    """A name."""
    return _of(name)


def at_most(bound: int, value: Whole) -> Expr:
    """The smaller of a number and an expression."""
    return Rounded("min", ZERO, bound).of(expr(value))


ZERO = expr(0)
