"""Proofs of sums: whatever adds a block twice, leaves one out, or is read early is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from nkilab.einsum.compiler import compile
from nkilab.einsum.prove import ProofError, prove
from nkilab.einsum.tree import nodes
from nkilab.einsum.tree.expr import expr
from nkilab.einsum.tree.nodes import Kernel, Loop, Statement, Tally
from nkilab.machine import machine_named
from tests.einsum.specs import PRODUCT, SUMS

pytestmark = pytest.mark.corpus

TRN2 = machine_named("trn2")
SPECS = {
    "a product": ("Z[m, n] = A[k, m] . B[k, n] ;; M mul V add", {"M": 200, "N": 600, "K": 300}),
    "a product in blocks": ("Z[m, n] = A[k, m] . B[k, n] ;; M mul V add", {"M": 4096, "N": 512, "K": 32768}),
    "sums of rows": ("Z[m] = A[m, n] ;; V add", {"M": 130, "N": 100_000}),
    "maxima of columns": ("Z[n] = A[m, n] ;; V max", {"M": 40_000, "N": 40}),
    "a sum of all": ("Z[] = A[m] . B[m] ;; M mul V add", {"M": 1 << 23}),
    "a convolution": ("Z[k, p] = X[c, p+r] . W[r, c, k] ;; M mul V add",
                      {"K": 30, "P": 40, "R": 3, "C": 200, "X": 42}),
    "a function on the way": ("E[m, n] = A[m, n] ;; M unary(exp)\nZ[m] = E[m, n] ;; V add",
                              {"M": 130, "N": 100_000}),
    "a mapping": (PRODUCT, {}),
    "a mapping with sums over loops": (SUMS, {}),
}  # fmt: skip
every = pytest.mark.parametrize("name", SPECS)


@cache
def tree_of(name: str) -> Kernel:
    """A tree; what a test changes in it, it puts back."""
    text, sizes = SPECS[name]
    kernel = compile(text, sizes={r: n for r, n in sizes.items() if r != "X"}, shapes=shapes_of(sizes)).tree
    assert kernel is not None
    return kernel


def shapes_of(sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
    """The shape of X where an index leaves its rank without a name of its own."""
    return {"X": (sizes["C"], sizes["X"])} if "X" in sizes else {}


def bodies(body: list[Statement]) -> Iterator[list[Statement]]:
    yield body
    for statement in body:
        if isinstance(statement, Loop):
            yield from bodies(statement.body)


def places(kernel: Kernel) -> list[tuple[list[Statement], int]]:
    """Where tallies stand."""
    return [(b, n) for b in bodies(kernel.body) for n, s in enumerate(b) if isinstance(s, Tally)]


def refused(kernel: Kernel, match: str = "sum") -> None:
    with pytest.raises(ProofError, match=match):
        prove(kernel, TRN2)


@every
def test_what_is_compiled_is_proved(name: str) -> None:
    kernel = tree_of(name)
    assert places(kernel)
    # what adds to a sum may stand in several loops
    count = len({id(s.into.buffer) for b in bodies(kernel.body) for s in b if isinstance(s, Tally)})
    assert f"{count} sums add every value once, and are read after that" in prove(kernel, TRN2)


@every
def test_a_sum_that_leaves_out_the_last_turn_of_a_loop_is_refused(name: str) -> None:
    kernel, refused_sums = tree_of(name), 0
    for body in list(bodies(kernel.body)):
        for n, loop in enumerate(body):
            if isinstance(loop, Loop) and is_summed_over(loop):
                body[n] = replace(loop, trips=expr(loop.trips) - 1)
                refused(kernel, "does not take up every value")
                body[n] = loop
                refused_sums += 1
    assert refused_sums


def is_summed_over(loop: Loop) -> bool:
    """Whether a tally inside says that a loop chooses what is added."""
    return any(
        loop.variable in s.start.names
        for t in nodes.statements(loop.body)
        if isinstance(t, Tally)
        for s in t.added
    )


@every
def test_a_statement_that_adds_once_more_is_refused(name: str) -> None:
    kernel = tree_of(name)
    for body, n in places(kernel):
        again = body[n - 1 : n + 1]
        if not isinstance(again[0], nodes.MatMul | nodes.Combine):
            continue
        body[n + 1 : n + 1] = again
        refused(kernel, "two statements|once more")
        body[n + 1 : n + 3] = []
        # without a word of it too
        body[n + 1 : n + 1] = again[:1]
        refused(kernel, "once more")
        body[n + 1 : n + 2] = []


@every
def test_a_sum_whose_turns_add_the_same_values_is_refused(name: str) -> None:
    kernel, refused_sums = tree_of(name), 0
    for body, n in places(kernel):
        covered = body[n]
        assert isinstance(covered, Tally)
        for number, summed in enumerate(covered.added):
            if summed.start.names:
                stuck = [replace(s, start=expr(0)) if m == number else s for m, s in enumerate(covered.added)]
                body[n] = replace(covered, added=tuple(stuck))
                refused(kernel, "in two turns|every value|touch")
                body[n] = covered
                refused_sums += 1
    assert refused_sums


@every
def test_a_sum_that_is_read_while_it_grows_is_refused(name: str) -> None:
    kernel, refused_sums = tree_of(name), 0
    for body, n in places(kernel):
        covered = body[n]
        assert isinstance(covered, Tally)
        if not any(s.start.names for s in covered.added):
            continue
        copy = nodes.Buffer("early", covered.into.buffer.shape, "float32", nodes.SBUF)
        body[n + 1 : n + 1] = [
            nodes.Alloc(copy),
            nodes.Copy(replace(covered.into, buffer=copy), covered.into),
        ]
        refused(kernel, "before its sum is complete|a part of")
        body[n + 1 : n + 3] = []
        refused_sums += 1
    assert refused_sums


def test_a_part_of_a_sum_that_passes_for_the_whole_is_refused() -> None:
    kernel = tree_of.__wrapped__("a product in blocks")
    for body, n in places(kernel):
        added = body[n - 1]
        if isinstance(added, nodes.Combine):
            body[n - 1 : n + 1] = [nodes.Copy(added.dst, added.right)]
    refused(kernel, "as if it were the whole sum")
