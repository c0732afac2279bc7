"""Blocks of 1, 2, 4, ... turns of a chunk, each two halves: in one of them, and there alone, two turns meet.

Where each key decays by itself, what is left of a turn at a later one is what is left of it at the middle of
that block, times what is left of the middle at the later one. So one product for each size of blocks has all
pairs of turns. From size to size keys of a left half and queries of a right half decay by all of the other
half: nothing is divided, and decays may be 0. Queries are of the turn before: q S[t] is q a S[t-1] + q k v.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from ..language.ast import Einsum
from ..language.indices import Access, Affine, Operand, Scalar, plain
from .in_chunks import at

if TYPE_CHECKING:
    from .chunks import Chunks


class Levels:
    """The blocks of all sizes of a chunk."""

    def __init__(self, chunks: Chunks) -> None:
        self.chunks, self.count = chunks, chunks.levels

    @cached_property
    def blocks(self) -> list[tuple[Operand, str]]:
        """What is left of a state behind blocks of each size, with the variable that counts these."""
        every = [(self.chunks.decay, self.chunks.row)]
        for n in range(1, self.count + 1):
            block = self.chunks.variable(f"BLOCK{n}", self.chunks.length >> n)
            halves = [at(*every[-1], Affine(((block, 2),), half)) for half in (0, 1)]
            every.append((self.chunks.add("total", halves, "multiply"), block))
        return every

    def scaled(self, hint: str, operand: Operand, side: int) -> list[Access]:
        """An operand, and it with what is left in its half of blocks of each size up to all of the chunk.

        Args:
            hint: of its name.
            operand: at the row.
            side: the half that decays from the middle on, 0 towards the left or 1 towards the right.
        """
        chunks, sizes = self.chunks, self.chunks.variable("SIZE", self.count + 1)
        stack = chunks.new(hint, {*operand.variables, *self.blocks[0][0].variables, chunks.row, sizes})
        levels = [at(stack, sizes, Affine(constant=n)) for n in range(self.count + 1)]
        chunks.put(Einsum(levels[0], (operand,)))
        for n, (one, more) in enumerate(pairwise(levels)):
            inside = chunks.variable(f"INSIDE{n}", 1 << n)
            total, block = self.blocks[n][0], self.blocks[n + 1][1]
            for half in (0, 1):
                place = Affine(((block, 2 << n), (inside, 1)), half << n)
                own, into = at(one, chunks.row, place), at(more, chunks.row, place)
                other = at(total, self.blocks[n][1], Affine(((block, 2),), 1 - half))
                product, of = ((own, other), "multiply") if half == side else ((own,), "")
                chunks.put(Einsum(into, product, of))
        return [at(stack, sizes, plain([chunks.level])[0]), levels[-1]]

    @cached_property
    def keys(self) -> list[list[Access]]:
        """Keys of all levels, and at the end of the chunk, term by term."""
        return [self.scaled("keys", key, 0) for key in self.chunks.keys]

    def weighed(self, reader: Einsum, query: Operand, is_own: bool) -> tuple[list[Access], Access]:
        """What a reader has of each turn of a chunk at each level, and of the state before it."""
        chunks, add, more = self.chunks, self.chunks.add, list[Operand]()
        if is_own:
            for key, term in zip(chunks.keys, chunks.form.terms, strict=True):
                own = add("own", (query, key), "multiply", summed=reader.reduced)
                value = at(chunks.value(term), chunks.column, *plain([chunks.row]))
                more.append(add("own", (own, value), "multiply"))
            query = add("decayed", (query, chunks.decay), "multiply")
        queries, whole = self.scaled("queries", query, 1)
        # of decays that may grow, what is left may be infinite where turns do not meet
        weights = list[Access]()
        for keys, _ in self.keys:
            score = add("scores", (queries, chunks.in_columns(keys)), "multiply", summed=reader.reduced)
            chosen = ((score, chunks.joins), "multiply"), ((chunks.joins, score, Scalar()), "where")
            weights.append(add("weights", *chosen[not chunks.is_bounded]))
        outer = add("outer", (whole, chunks.states), "multiply", summed=reader.reduced)
        return weights, add("sum", (outer, *more), "add") if more else outer

    @property
    def end(self) -> tuple[list[Operand], Operand]:
        """What is left of keys, and of the state before, at the end of a chunk."""
        return [self.chunks.in_columns(last) for _, last in self.keys], at(*self.blocks[-1], Affine())
