"""Sums over long windows as products of matrices: rows of one operand, and of the other a band.

`Y[i] = X[i + k] . W[k]` has no matrix. With i = 128*a + p and e = p + k it is `Y[128*a + p] = X[128*a + e] .
W[e - p]`, where W is zero beyond its edges: a product of rows of X that overlap with a band that is W again
in each row, moved on by one. `Y[i] = T[i - k] . X[k]` is the same with e = p - k.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt, prod

from ..language.additions import Additions, reading_others
from ..language.ast import Access, Affine, Cascade, Einsum, Kind, Step, affine, plain
from .splits import with_split_ranks
from .window_rows import LONG, view_of_rows

# columns of its own from which the other operand fills TensorE as it is
ENOUGH_COLUMNS = 64
# times as many elements of a band as of the other operand, as they come in longer pieces
LONGER = 2


@dataclass(frozen=True)
class _Window:
    """An operand that a sum of products reads in windows, and what else it reads."""

    image: Access  # read at step * place + back * summed
    weights: Access
    place: str  # variable of the result
    summed: str  # variable that vanishes
    step: int
    back: int  # 1, or -1 where it is read backwards


def with_bands(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade with products of bands instead of sums over long windows; every rank has an extent."""
    added, steps, rows = Additions(cascade), list[Step](), set[str]()
    for step in cascade.steps:
        window = _window(step, added) if isinstance(step, Einsum) and step.is_product else None
        if isinstance(step, Einsum) and window is not None:
            own, row = _banded(step, window, added, partitions)
            steps, rows = [*steps, *own], rows | {row}
        else:
            steps.append(step)
    if not rows:
        return cascade
    products = added.applied(tuple(steps))
    return with_split_ranks(
        reading_others(products, lambda e, a: e.is_product and bool(rows & {*a.variables}), view_of_rows)
    )


def _window(einsum: Einsum, added: Additions) -> _Window | None:
    """The long window that a sum of products runs over; None if it runs over none."""
    is_pair = len(einsum.accesses) == len(einsum.operands) == 2
    for image, weights in (einsum.accesses, einsum.accesses[::-1]) if is_pair else ():
        for index in (i.at(added.cascade.sizes) for i in image.affine if len(i.variables) == 2):
            place, summed = sorted(index.variables, key=lambda v: v in einsum.reduced)
            step, back = index.coefficient(place), index.coefficient(summed)
            window = _Window(image, weights, place, summed, step, back)
            if summed in einsum.reduced and abs(back) == 1 and _is_long(einsum, window, added):
                return window
    return None


def _is_long(einsum: Einsum, window: _Window, added: Additions) -> bool:
    """Whether a window is long, alone has its place, and the other operand has few columns of its own."""
    place, summed = window.place, window.summed
    uses = [[i for i in access.indices if place in i.variables] for access in einsum.every_access]
    is_alone = sum(map(len, uses)) == 2 and [i.plain for i in uses[0]] == [place]
    sums = [i for a in einsum.accesses for i in a.affine if summed in i.variables]
    is_alone &= len(sums) == 2 and (summed,) in [i.variables for i in sums]
    columns = prod(added.extent(v, einsum) for v in _own(einsum, window.weights, window.image))
    sizes = [added.extent(v, einsum) for v in (place, summed)]
    return is_alone and min(sizes) >= LONG and columns < ENOUGH_COLUMNS


def _own(einsum: Einsum, access: Access, other: Access) -> list[str]:
    """Variables of a result that one operand alone has."""
    return [v for v in einsum.output.variables if v in access.variables and v not in other.variables]


def _rows(einsum: Einsum, window: _Window, added: Additions, partitions: int) -> int:
    """How many places a block of the band has: as many as there are blocks, if these divide the places."""
    size = added.extent(window.place, einsum)
    columns, rows = (
        prod(added.extent(v, einsum) for v in own)
        for own in (_own(einsum, window.weights, window.image), _own(einsum, window.image, window.weights))
    )
    rows //= size
    most = max(1, min(partitions // columns, size))
    best = max(1, min(most, isqrt(LONGER * size * rows // columns)))
    return next((n for n in range(best, best // 2, -1) if size % n == 0), best)


def _banded(einsum: Einsum, window: _Window, added: Additions, partitions: int) -> tuple[list[Einsum], str]:
    """A sum over windows as a product, what orders its places, and the variable of rows of the band."""
    place, summed, step = window.place, window.summed, window.step
    size, length = (added.extent(v, einsum) for v in (place, summed))
    rows = _rows(einsum, window, added, partitions)
    block, row = (
        added.rank(f"{place.upper()}_{part}", n).lower()
        for part, n in (("BLOCK", -(-size // rows)), ("ROW", rows))
    )
    band = added.rank(f"{summed.upper()}_BAND", abs(step) * (rows - 1) + length).lower()
    start = min(0, step * (rows - 1)) + min(0, window.back * (length - 1))
    whole = affine([(block, rows), (row, 1)])
    along = affine([(band, window.back), (row, -window.back * step)], window.back * start)
    weights, before = _whole(einsum, window, added)
    operands = tuple(weights if o is window.weights else o for o in einsum.operands)
    read = replace(einsum, operands=operands, text="", before=einsum.title)
    values, sizes = {place: whole, summed: along}, added.cascade.sizes
    product, behind = read.with_indices(lambda index: index.at(sizes).replaced(values)), list[Einsum]()
    if size % rows or any(einsum.name in e.reads for e in added.cascade.einsums):
        product, behind = _apart(einsum, product, place, whole, added)
    return [*before, product, *behind], row


def _whole(einsum: Einsum, window: _Window, added: Additions) -> tuple[Access, list[Einsum]]:
    """The second operand, or a copy of what of it a window has, so that zeros lie beyond; of outputs too."""
    access, summed = window.weights, window.summed
    axis = next(n for n, i in enumerate(access.indices) if summed in i.variables)
    size = added.cascade.shape(access.tensor)[axis]
    is_whole = access.indices[axis].plain and added.extent(summed, einsum) == size
    if is_whole and access.tensor not in added.cascade.outputs:
        return access, []
    ranks = tuple(added.rank_of(v, einsum) for v in access.variables)
    name = added.tensor(f"{access.tensor}_part", ranks, access.tensor, Kind.WINDOW)
    part = Access(name, plain(access.variables))
    return part, [Einsum(part, (access,))]


def _apart(
    einsum: Einsum, product: Einsum, place: str, whole: Affine, added: Additions
) -> tuple[Einsum, list[Einsum]]:
    """A product with a result of its own in blocks, of which the places that there are are copied."""
    names = einsum.output.variables
    apart = [v for name in names for v in (whole.variables if name == place else [name])]
    sizes = {v: added.sizes[v.upper()] for v in whole.variables}
    rows = added.rank(f"{place.upper()}_ROWS", prod(sizes.values()))
    ranks = [v.upper() if v in sizes else added.rank_of(v, einsum) for v in apart]
    blocks = Access(added.tensor(f"{einsum.name}_blocks", (*ranks,), einsum.name, Kind.PART), plain(apart))
    joined = tuple(rows if v == place else added.rank_of(v, einsum) for v in names)
    view = added.tensor(f"{einsum.name}_rows", joined, blocks.tensor, Kind.VIEW)
    seen = Access(view, tuple(whole if v == place else i for v, i in zip(names, plain(names), strict=True)))
    copy = Einsum(einsum.output, (Access(view, plain(names)),), before=einsum.title)
    return replace(product, output=blocks), [Einsum(seen, (blocks,)), copy]
