"""Whole numbers that a kernel computes: sums of products of names, kept in one normal form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod


@dataclass(frozen=True)
class Expr:
    """A polynomial over names with whole coefficients.

    Args:
        terms: (names, coefficient), sorted; the constant has no names. A name may be any Python atom.
    """

    terms: tuple[tuple[tuple[str, ...], int], ...]

    @cached_property
    def value(self) -> int | None:
        """The number that it is; None if names occur."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def is_bracketed(self) -> bool:
        """Whether its one atom is an expression in parentheses."""
        atom = self.terms[0][0][0]
        return atom.startswith("(") and atom.endswith(")")

    @property
    def names(self) -> frozenset[str]:
        """Names that occur."""
        return frozenset(name for names, _ in self.terms for name in names)

    def __add__(self, other: Whole) -> Expr:
        held = dict(self.terms)
        for names, c in expr(other).terms:
            held[names] = held.get(names, 0) + c
        return _normal(held)

    __radd__ = __add__

    def __sub__(self, other: Whole) -> Expr:
        return self + expr(other) * -1

    def __rsub__(self, other: Whole) -> Expr:
        return expr(other) - self

    def __mul__(self, other: Whole) -> Expr:
        held: dict[tuple[str, ...], int] = {}
        for names, c in self.terms:
            for others, d in expr(other).terms:
                key = tuple(sorted((*names, *others)))
                held[key] = held.get(key, 0) + c * d
        return _normal(held)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Expr:
        """The quotient, exact where every coefficient divides."""
        if all(c % divisor == 0 for _, c in self.terms):
            return _normal({names: c // divisor for names, c in self.terms})
        return name_of(f"({self} // {divisor})")

    def at(self, names: Mapping[str, int]) -> int:
        """Its value, given those of its names; a name may stand in a quotient (N // 128)."""

        def atom(text: str) -> int:
            if text in names:
                return names[text]
            over, _, under = text.removeprefix("(").removesuffix(")").partition(" // ")
            return names[over] // int(under)

        return sum(c * prod(atom(name) for name in found) for found, c in self.terms)

    def divides(self, divisor: int) -> bool:
        """Whether every coefficient is a multiple of a number."""
        return all(c % divisor == 0 for _, c in self.terms)

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        if len(self.terms) == 1 and len(self.terms[0][0]) == 1 and self.terms[0][1] == 1:
            # an atom that stands alone needs no parentheses of its own
            return (
                self.terms[0][0][0].removeprefix("(").removesuffix(")")
                if self.is_bracketed
                else self.terms[0][0][0]
            )
        # names first, the constant last
        ordered = sorted(self.terms, key=lambda term: (not term[0], -len(term[0]), term[0]))
        first = next((n for n, (_, c) in enumerate(ordered) if c > 0), 0)
        ordered.insert(0, ordered.pop(first))
        text = ""
        for names, c in ordered:
            factors = [*names, *([str(abs(c))] if abs(c) != 1 or not names else [])]
            sign = "-" if c < 0 else "+"
            text += (f" {sign} " if text else "-" if c < 0 else "") + " * ".join(factors)
        return text


Whole = int | Expr


def _normal(held: Mapping[tuple[str, ...], int]) -> Expr:
    return Expr(tuple(sorted((names, c) for names, c in held.items() if c)))


def expr(value: Whole) -> Expr:
    """A number or expression as an expression."""
    return value if isinstance(value, Expr) else Expr((((), value),) if value else ())


def name_of(name: str) -> Expr:
    """A name, or any other atom of Python."""
    return Expr((((name,), 1),))


def at_most(bound: int, value: Whole) -> Expr:
    """The smaller of a number and an expression."""
    held = expr(value)
    return expr(min(bound, held.value)) if held.value is not None else name_of(f"min({bound}, {held})")


ZERO = expr(0)
