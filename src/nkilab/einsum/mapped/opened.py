"""Extents that a mapped specification leaves open: planned for some, told as arguments of the kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from math import prod

from ...errors import UnsupportedError
from ...machine import Machine
from ...tiles.dtypes import as_dtype
from ..artefacts.drivers import with_small_extents
from ..compiled import PRINTERS
from ..emit.sizes import mapped, named
from ..language.ast import Cascade
from ..language.spec import Spec
from ..prove import prove
from ..tree.expr import ZERO, Atom, Expr, expr, name_of
from ..tree.nodes import PSUM, SBUF, Alloc, Kernel, statements
from ..written.ranks import Ranks

PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)


def open_ranks(spec: Spec) -> tuple[str, ...]:
    """Ranks without an extent, in the order of the declaration."""
    return tuple(r for r in Ranks(spec).declared if r not in spec.cascade.sizes)


def points(spec: Spec) -> Iterator[Spec]:
    """A specification with small extents for those that are open: all alike, then all different."""
    for times in (repeat(2), PRIMES):
        yield replace(spec, cascade=with_small_extents(spec, spec.cascade, times))


def opened(spec: Spec, trees: Sequence[Kernel], machine: Machine) -> tuple[Kernel, tuple[str, ...]]:
    """The tree for all extents, of those for some; and what is proved of it.

    Raises:
        UnsupportedError: if the extents change more than numbers that they name.
    """
    first, *others = (_opened(spec, tree, at.cascade) for tree, at in zip(trees, points(spec), strict=True))
    texts = {PRINTERS["nki"](tree).text() for tree in (first, *others)}
    if len(texts) > 1:
        node = next(n for n in (spec.node(key) for key in ("mapping", "binding")) if n.path)
        problem = f"the plan differs from one size of {', '.join(open_ranks(spec))} to another"
        error = UnsupportedError(problem, hint="give the extents in einsum.shape")
        raise error.located(str(node.place), node.path)
    tree = replace(first, asserts=tuple(_asserts(spec, first, machine)))
    return tree, tuple(prove(tree, machine))


def _opened(spec: Spec, tree: Kernel, cascade: Cascade) -> Kernel:
    """A tree with names of ranks for the extents that are open."""
    names = named(tree, cascade)
    ranks = open_ranks(spec)
    known: dict[Atom, Expr] = {n: expr(v) for _, group in names.kernel.constants for n, v in group.items()}
    known |= {name: name_of(rank) for name, rank in names.extents.items() if rank in ranks}
    result = mapped(replace(names.kernel, constants=()), lambda e: e.replaced(known), {})
    assert isinstance(result, Kernel)
    return replace(result, parameters=ranks)


def _asserts(spec: Spec, tree: Kernel, machine: Machine) -> Iterator[str]:
    """Claims on open extents, which cannot be proved: splits leave nothing over, tiles fit."""
    parts = dict.fromkeys((r, s[0]) for splits in spec.partitioning.values() for r, s in splits.items())
    yield from (f"{rank} % {part} == 0" for rank, part in parts if rank in tree.parameters and part > 1)
    buffers = [s.buffer for s in statements(tree.body) if isinstance(s, Alloc)]
    each = [prod(map(expr, b.shape[1:]), start=expr(as_dtype(b.dtype).storage.itemsize)) for b in buffers]
    tiles, sums = ([n for n, b in zip(each, buffers, strict=True) if b.memory == m] for m in (SBUF, PSUM))
    total = sum(tiles, ZERO)
    if total.names:
        yield f"{total} <= {machine['sbuf_bytes_per_partition']}"
    if any(size.names for size in sums):
        banks = " + ".join(f"-(-({size}) // {machine['psum_bank_bytes']})" for size in sums)
        yield f"{banks} <= {machine['psum_banks']}"
