"""One kernel for ranges of sizes: planned for one, proved for each, its size an argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from ..errors import NkilabError, UnsupportedError, UsageError
from .compiled import CompiledEinsum
from .emit.sizes import mapped, named
from .prove import prove
from .room import views_of
from .tree.expr import Atom, Expr, Whole, expr, name_of
from .tree.nodes import Alloc, Cut, Kernel, statements

Sizes = Mapping[str, int]
# sizes that a kernel is proved for, and those that plans are made for until one serves all
MOST_SIZES, MOST_PLANS = 64, 4


class UnfitError(UnsupportedError):
    """A plan for one size does not serve all others.

    Args:
        served: those that it serves.
    """

    def __init__(self, problem: str, served: Sequence[Point]) -> None:
        super().__init__(problem)
        self.served = served


@dataclass(frozen=True)
class Point:
    """A size of each range."""

    chosen: Sizes  # by rank
    sizes: Sizes  # the extents of all ranks then

    def __str__(self) -> str:
        return ", ".join(f"{rank}={size}" for rank, size in self.chosen.items())


def compiled_over(
    ranges: Mapping[str, range], compiled_at: Callable[[Sizes], CompiledEinsum],
    extents_at: Callable[[Sizes], Sizes],
) -> CompiledEinsum:  # fmt: skip
    """A kernel that takes extents as arguments, planned for the largest sizes whose plan serves all.

    Args:
        compiled_at: the kernel for one size of each.
        extents_at: the extents of all ranks then.

    Raises:
        UsageError: if a range has no size, or there are too many.
        UnsupportedError: if no plan serves all sizes.
    """
    for rank, sizes in ranges.items():
        if not sizes or min(sizes) < 1:
            raise UsageError(f"the sizes of {rank} are {sizes}; they are whole numbers of at least 1")
    if (count := prod(map(len, ranges.values()))) > MOST_SIZES:
        problem = f"there are {count:,} sizes in the ranges; each is proved, and at most {MOST_SIZES} are"
        raise UsageError(problem, hint="give a larger step")
    chosen = (dict(zip(ranges, sizes)) for sizes in product(*ranges.values()))
    points = sorted((Point(c, extents_at(c)) for c in chosen), key=lambda p: prod(p.chosen.values()))
    unfit = []
    last = len(points) - 1
    # large sizes have the faster plans, small ones those of more sizes
    halves = [*dict.fromkeys(last >> n for n in range(last.bit_length() + 1))]
    for point in [points[n] for n in (*halves, *range(last, -1, -1))][:MOST_PLANS]:
        try:
            return _opened(compiled_at(point.chosen), point, points, ranges)
        except UnfitError as error:
            unfit.append(error)
    best = max(unfit, key=lambda error: len(error.served))
    served = {rank: sorted({p.chosen[rank] for p in best.served}) for rank in ranges}
    listed = "; ".join(f"{rank} {', '.join(map(str, sizes))}" for rank, sizes in served.items())
    raise UnsupportedError(
        f"no plan serves all {count} sizes: {best.problem}",
        hint=f"give what one plan serves, {listed}, and compile the others apart",
    )


def _opened(
    base: CompiledEinsum, point: Point, points: Sequence[Point], ranges: Mapping[str, range]
) -> CompiledEinsum:
    """The kernel of one size for all of them."""
    assert base.tree is not None
    base_names = named(base.tree, base.cascade)
    names = {rank: name for name, rank in base_names.extents.items()}
    if unnamed := [rank for rank in ranges if rank not in names]:
        raise UnfitError(
            f"the kernel for {point} has the size of {unnamed[0]} in numbers that have no name", [point]
        )
    _need_all(base, point, [(p, base_names.at({names[r]: p.sizes[r] for r in ranges})) for p in points])
    known: dict[Atom, Expr] = {names[r]: name_of(r) for r in ranges}
    groups = (
        (what, {n: v for n, v in group.items() if n not in known})
        for what, group in base_names.kernel.constants
    )
    tree = replace(base_names.kernel, constants=tuple(group for group in groups if group[1]))
    opened = mapped(tree, lambda e: e.replaced(known), {})
    assert isinstance(opened, Kernel)
    claims = [f"{rank} in {sizes}" for rank, sizes in ranges.items()]
    asserts = tuple(f'{claim}, f"{r} is {{{r}}}; proved is {claim}"' for r, claim in zip(ranges, claims))
    opened = replace(opened, parameters=tuple(ranges), asserts=asserts)
    result = replace(base.of_tree(opened), tree=replace(base_names, kernel=opened).at({}))
    proofs = (*base.proofs, f"all of it for each of {len(points)} sizes: {', '.join(claims)}")
    return replace(result, proofs=proofs, changes=(*base.changes, f"planned for {point}"))


def _need_all(base: CompiledEinsum, point: Point, trees: Sequence[tuple[Point, Kernel]]) -> None:
    """See that the tree of one size is right at all: by proofs, and at the smallest by values, too."""
    reasons = [_why_not(base, tree, other) for other, tree in trees]
    served = [one for one, reason in zip(trees, reasons) if not reason]
    # that a number is of one size alone shows in the values of any other
    for other, tree in [one for one in served if one[0] is not point][:1]:
        try:
            is_right = all(verdict.is_fine for verdict in _at(base, other).of_tree(tree).verify())
        except NkilabError as error:
            raise UnfitError(f"that for {point} fails at {other}: {error.problem}", [point]) from error
        if not is_right:
            raise UnfitError(f"that for {point} computes something else at {other}", [point])
    failed = next((f"{other}: {why}" for (other, _), why in zip(trees, reasons) if why), "")
    if failed:
        raise UnfitError(f"that for {point} fails at {failed}", [other for other, _ in served])


def _at(base: CompiledEinsum, point: Point) -> CompiledEinsum:
    return replace(base, cascade=replace(base.cascade, sizes=point.sizes))


def _count(shape: Sequence[Whole]) -> int:
    return prod(expr(extent).value or 0 for extent in shape)


def _why_not(base: CompiledEinsum, tree: Kernel, point: Point) -> str:
    """Why a tree is no kernel for some sizes; "" where it is proved to be one."""
    cascade = _at(base, point).cascade
    shapes = {a.name: tuple(expr(e).value for e in a.declared or a.shape) for a in tree.arguments}
    buffers = [s.buffer for s in statements(tree.body) if isinstance(s, Alloc)]
    bases = [(b.base, b) for b in buffers if b.base and not b.window]
    given = [(a.declared, a) for a in tree.arguments if a.declared]
    reshaped = [(_count(base.shape), b) for base, b in bases] + [(_count(shape), a) for shape, a in given]
    other = [t for t in cascade.inputs if shapes[t] != (cascade.shape(t) or (1,))]
    if other := [*other, *(what.name for count, what in reshaped if count != _count(what.shape))]:
        return f"{other[0]} has numbers in its shape that have no name"
    try:
        prove(tree, base.machine)
    except NkilabError as error:
        return error.problem
    except (AssertionError, ValueError) as error:
        return str(error)
    views = (view for s in statements(tree.body) for _, view in views_of(s))
    counts = (i.count.value for view in views for i in view.index if isinstance(i, Cut))
    return "a slice is empty" if any(n is not None and n < 1 for n in counts) else ""
