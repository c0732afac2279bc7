"""Sums over long windows as products of matrices: rows of one operand, and of the other a band.

`Y[i] = X[i + k] . W[k]` has no matrix. With i = 128*a + p and e = p + k it is `Y[128*a + p] = X[128*a + e] .
W[e - p]`, where W is zero beyond its edges: a product of rows of X that overlap with a band that is W again
in each row, moved on by one. `Y[i] = T[i - k] . X[k]` is the same with e = p - k.
"""

from __future__ import annotations

from dataclasses import replace
from math import isqrt, prod

from ..language.additions import Additions, reading_others
from ..language.ast import Access, Affine, Cascade, Einsum, Kind, Step, affine, plain
from .filters import Window, windows_of
from .splits import with_split_ranks
from .window_rows import view_of_rows

# elements of a window from which TensorE may gain, and places
SHORT, FEW = 5, 32
# columns of its own from which the other operand fills TensorE as it is
ENOUGH_COLUMNS = 64
# times as many elements of a band as of the other operand, as they come in longer pieces
LONGER = 2


def with_bands(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade with products of bands instead of sums over long windows; every rank has an extent."""
    added, steps, bands = Additions(cascade), list[Step](), set[str]()
    for step in cascade.steps:
        sizes = ((w, _rows(w, added, partitions)) for w in windows_of(step, cascade))
        window, rows = next((known for known in sizes if known[1]), (None, 0))
        if window is None:
            steps.append(step)
            continue
        own, band = _banded(window, added, rows)
        steps, bands = [*steps, *own], bands | {band}
    products = added.applied(tuple(steps))
    seen = reading_others(products, lambda e, a: e.is_product and bool(bands & {*a.variables}), view_of_rows)
    return with_split_ranks(seen) if bands else cascade


def _rows(window: Window, added: Additions, partitions: int) -> int:
    """How many places a block of the band has, about as many as there are blocks; 0 where it is not worth it.

    A window is worth it if it is not short, leaves nothing out and has its place alone, beside few columns.
    """
    einsum, size = window.einsum, added.extent(window.place, window.einsum)
    uses = sum(window.place in i.variables for i in einsum.indices)
    is_pair = len(einsum.accesses) == len(einsum.operands) == 2 == uses
    if not is_pair or window.length < SHORT or size < FEW or abs(window.steps[1]) > 1:
        return 0
    (other,) = (a for a in einsum.accesses if a is not window.image)
    own, others = {*window.image.variables}, {*other.variables}
    rows, columns = (
        prod(added.extent(v, einsum) for v in einsum.output.variables if v in side)
        for side in (own - others, others - own)
    )
    best = max(1, min(partitions // columns, size, isqrt(LONGER * rows // columns)))
    divisors = (n for n in range(best, best // 2, -1) if size % n == 0)
    return next(divisors, best) if columns < ENOUGH_COLUMNS else 0


def _banded(window: Window, added: Additions, rows: int) -> tuple[list[Einsum], str]:
    """A sum over windows as a product, what orders its places, and the variable of rows of the band."""
    einsum, place, summed, (step, back) = window.einsum, window.place, window.summed, window.steps
    size = added.extent(place, einsum)
    parts = (("BLOCK", -(-size // rows)), ("ROW", rows))
    block, row = (added.rank(f"{place.upper()}_{part}", n).lower() for part, n in parts)
    band = added.rank(f"{summed.upper()}_BAND", abs(step) * (rows - 1) + window.length).lower()
    start = min(0, step * (rows - 1)) + min(0, back * (window.length - 1))
    whole = affine([(block, rows), (row, 1)])
    values = {place: whole, summed: affine([(band, back), (row, -back * step)], back * start)}
    other = next(a for a in einsum.accesses if a is not window.image)
    before = list[Einsum]()
    if not window.is_whole or other.tensor in added.cascade.outputs:
        # beyond a copy of what the sum has of it lie zeros
        part = added.along(f"{other.tensor}_part", other.variables, einsum, Kind.WINDOW, other.tensor)
        before.append(Einsum(part, (other,)))
    read = einsum.reading(lambda a: before[0].output if before and a is other else a)
    sizes, behind = added.cascade.sizes, list[Einsum]()
    product = read.with_indices(lambda index: index.at(sizes).replaced(values))
    product = replace(product, text="", before=einsum.title)
    if size % rows or any(einsum.name in e.reads for e in added.cascade.einsums):
        product, behind = _apart(einsum, product, place, whole, added)
    return [*before, product, *behind], row


def _apart(
    einsum: Einsum, product: Einsum, place: str, whole: Affine, added: Additions
) -> tuple[Einsum, list[Einsum]]:
    """A product with a result of its own in blocks, of which the places that there are are copied."""
    names = einsum.output.variables
    apart = [v for name in names for v in (whole.variables if name == place else [name])]
    rows = added.rank(f"{place.upper()}_ROWS", prod(added.sizes[v.upper()] for v in whole.variables))
    blocks = added.along(f"{einsum.name}_blocks", apart, einsum, Kind.PART)
    joined = tuple(rows if v == place else added.rank_of(v, einsum) for v in names)
    view = added.tensor(f"{einsum.name}_rows", joined, blocks.tensor, Kind.VIEW)
    seen = Access(view, tuple(whole if v == place else i for v, i in zip(names, plain(names), strict=True)))
    copy = Einsum(einsum.output, (Access(view, plain(names)),), before=einsum.title)
    return replace(product, output=blocks), [Einsum(seen, (blocks,)), copy]
