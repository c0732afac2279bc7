"""Turns in chunks: ranks of chunks, of their rows and columns, and Einsums over these; inverses of blocks.

A chunk has blocks of 1, 2, 4, ... turns, each two halves: in one of them, and there alone, two turns meet.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

from ..language.additions import Additions
from ..language.ast import Cascade, Einsum, Iterate, Recurrence, Step
from ..language.indices import Access, Affine, Indexed, Operand, Position, Scalar, plain

Kept = TypeVar("Kept", bound=Indexed)


def at(operand: Kept, variable: str, place: Affine) -> Kept:
    """An operand with an index instead of a variable."""
    return operand.replaced({variable: place})


class InChunks:
    """Writes Einsums over chunks instead of over turns.

    Args:
        origin: an Einsum over all turns, which new tensors are called after.
        turn: the variable of these.
        length: turns of a chunk; the last may have fewer.
        gone: Einsums that chunks take the place of.
    """

    def __init__(
        self, cascade: Cascade, origin: Einsum, turn: str, length: int, gone: Collection[Einsum]
    ) -> None:
        self.source, self.origin, self.turn, self.length = cascade, origin, turn, length
        self.added, self.turns = Additions(cascade), cascade.extent(turn, origin)
        self.count = -(-self.turns // length)
        every = ((v, e) for e in cascade.einsums if e in gone for v in e.variables)
        self.ranks = {v: self.added.rank_of(v, e) for v, e in every}
        self.chunk = self.variable("CHUNK", self.count)
        self.row, self.column = self.variable("ROW", length), self.variable("COLUMN", length)
        self.levels = (length - 1).bit_length()
        self.level, self.size = self.variable("LEVEL", self.levels), self.variable("SIZE", self.levels + 1)
        self.ahead, self.body = list[Step](), list[Step]()

    def variable(self, hint: str, size: int) -> str:
        """The variable of a new rank."""
        rank = self.added.rank(f"{self.turn.upper()}_{hint}", size)
        self.ranks[rank.lower()] = rank
        return rank.lower()

    def new(self, hint: str, variables: Collection[str], origin: str = "") -> Access:
        """An access of a new tensor by variables; of the type of another tensor, if it has that in chunks."""
        inner = [v for v in (self.row, self.column) if v in variables]
        outer = [v for v in (self.chunk, *self.ranks) if v in variables and v not in inner]
        order = [*dict.fromkeys(outer), *inner]
        return self.added.by(f"{self.origin.name}_{hint}", {v: self.ranks[v] for v in order}, origin)

    def add(
        self, hint: str, operands: Sequence[Operand], of: str = "", *, summed: Sequence[str] = (),
        along: Sequence[str] = (), recurrence: Recurrence | None = None,
    ) -> Access:  # fmt: skip
        """Add an Einsum of operands, whose result is a new tensor, to what a chunk computes, or before all.

        It has the same values along variables that no operand has.
        """
        known = {v for o in operands for v in o.variables if v not in summed} | {*along}
        known |= {recurrence.variable} if recurrence is not None else set()
        output = self.new(hint, known)
        self.put(Einsum(output, tuple(operands), of, "add" if summed else "", recurrence=recurrence))
        return output

    def put(self, einsum: Einsum) -> None:
        """Add an Einsum to what a chunk computes, or before all chunks."""
        steps = self.body if self.chunk in einsum.variables else self.ahead
        steps.append(replace(einsum, place=self.origin.place))

    def block(self, variable: str, steps: Sequence[Step]) -> Iterate:
        """A block whose turns run steps that are computed one by one."""
        return Iterate(variable, tuple(e for s in steps for e in s.body), self.origin.place)

    def one(self, hint: str, factors: Sequence[Operand]) -> Operand:
        """The product of factors."""
        return factors[0] if len(factors) == 1 else self.add(hint, factors, "multiply")

    def turn_at(self, place: str, chunk: str = "") -> Affine:
        """The turn at a place of a chunk, the present one if no other is named."""
        return Affine(((chunk or self.chunk, self.length), (place, 1)))

    def in_columns(self, operand: Kept) -> Kept:
        """An operand at the column instead of at the row."""
        return at(operand, self.row, *plain([self.column]))

    @cached_property
    def same(self) -> Access:
        """1 where the row is the column."""
        return self.add("same", [Position(*plain([v])) for v in (self.row, self.column)], "equal")

    def finite(self, matrix: Operand) -> Access:
        """A matrix with 0 for what is beyond float32, which no 0 of another matrix would make 0."""
        nothing = self.add("nothing", (matrix, Scalar()), "multiply")
        is_finite = self.add("is_finite", (nothing, Scalar()), "equal")
        return self.add("finite", (is_finite, matrix, Scalar()), "where")

    @cached_property
    def joins(self) -> Access:
        """1 where a row lies in the right half of a block that has the column in its left half.

        Columns before a half, but not before its block: of both sizes it is known where that of a row begins.
        """
        add, row = self.add, Position(*plain([self.row]))
        doubled = Recurrence(self.size, op0="multiply", op1="add")
        size = add("sizes", (Scalar(value=2.0), Scalar(), Scalar(value=0.5)), recurrence=doubled)
        begin = add("begins", (row, add("inside", (row, size), "mod")), "subtract")
        early = add("early", (begin, Position(*plain([self.column]))), "greater")
        sides = (at(early, self.size, Affine(((self.level, 1),), n)) for n in range(2))
        return add("joins", (*sides,), "subtract")

    def inverse(self, matrix: Access) -> Access:
        """That of 1 minus a matrix of which rows have what stands before them.

        Inverses of blocks of two halves are X + X P X, of the inverses X of these and what P of the matrix
        joins them. That is as stable as turn after turn, which powers of the matrix are not. Turns have X and
        its transpose, so that products sum over the first axis of either operand.
        """
        middle, row, column = plain([self.variable("MIDDLE", self.length), self.row, self.column])
        stack, parts = self.variable("LEVELS", self.levels + 1), (matrix, self.joins)
        own = {*matrix.variables, stack} - {self.level}
        every = [self.new(hint, own) for hint in ("transpose", "inverse")]
        for one in every:
            self.put(Einsum(at(one, stack, Affine()), (self.same,)))
        outside, self.ahead, self.body = (self.ahead, self.body), [], []
        transpose, inverse = (at(one, stack, *plain([self.level])) for one in every)
        behind = [at(one, stack, Affine(((self.level, 1),), 1)) for one in every]

        def factors(left: Access, right: Access) -> tuple[Access, Access]:
            return at(at(left, self.row, middle), self.column, row), at(right, self.row, middle)

        def product(hint: str, left: Access, right: Access) -> Access:
            return self.add(hint, factors(left, right), "multiply", summed=middle.variables)

        joined = product("joined", self.add("part", parts, "multiply"), transpose)
        more = self.add("more", (self.same, joined), "add")
        self.put(Einsum(behind[0], factors(inverse, more), "multiply", "add"))
        # what is beyond float32 does not leave its row, but where rows of an inverse are summed
        self.put(Einsum(behind[1], (self.finite(product("product", more, inverse)),)))
        block = self.block(self.level, [*self.ahead, *self.body])
        self.ahead, self.body = outside
        (self.body if self.chunk in matrix.variables else self.ahead).append(block)
        last = at(every[0], stack, Affine(constant=self.levels))
        return at(at(at(last, self.row, middle), self.column, row), middle.plain, column)
