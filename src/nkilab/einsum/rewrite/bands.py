"""Sums over long windows as products of matrices: rows of one operand, and of the other a band.

`Y[i] = X[i + k] . W[k]` has no matrix. With i = 128*a + p and e = p + k it is `Y[128*a + p] = X[128*a + e] .
W[e - p]`, where W is zero beyond its edges: a product of rows of X that overlap with a band that is W again
in each row, moved on by one. `Y[i] = T[i - k] . X[k]` is the same with e = p - k.
"""

from __future__ import annotations

from dataclasses import replace
from math import isqrt, prod

from ..language.additions import Additions, reading_others
from ..language.ast import (
    Access,
    Affine,
    Cascade,
    Condition,
    Einsum,
    Kind,
    Scalar,
    Step,
    affine,
    plain,
)
from .filters import Window, windows_of
from .splits import with_split_ranks
from .window_rows import view_of_rows

# elements of a window from which TensorE may gain, and places
SHORT, FEW = 5, 32
# elements of a window of which the sum is one of TensorE, where they are on partitions
FEWEST = 3
# operators that make zero of zeros
ZEROS_OF_ZEROS = ("", "multiply", "add", "subtract", "maximum", "minimum", "square", "abs", "relu", "tanh")
# columns of its own from which the other operand fills TensorE as it is
ENOUGH_COLUMNS = 64
# times as many elements of a band as of the other operand, as they come in longer pieces
LONGER = 2
# tiles of partitions that a band as long as an axis has at most: of more, most are zeros
TILES = 8


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


def with_whole_bands(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade with products of bands that are as long as an axis; every rank has an extent.

    `Y[i] = X[i + k - 2] . W[k]` is `Y[i] = X[e] . B[e, i]` with `B[e, i] = W[e - i + 2]`: a product of
    matrices, which reads nothing beyond an edge of X. B is no larger than X and not much longer than a tile.
    """
    added, steps, known = Additions(cascade), list[Step](), dict[object, Access]()
    for step in cascade.steps:
        windows = (w for w in windows_of(step, cascade) if w.is_whole and _is_long(w, added, FEWEST))
        window = next((w for w in windows if _is_small(w, added, partitions)), None)
        steps += _as_whole(window, added, known) if window else [step]
    return added.applied(tuple(steps)) if known else cascade


def _is_small(window: Window, added: Additions, partitions: int) -> bool:
    """Whether a band as long as an axis has no more elements than the image."""
    names = {v for v in _filter_of(window).variables if v != window.summed}
    sizes = (added.extent(v, window.einsum) for v in {*names, window.place})
    is_short = window.size <= TILES * partitions
    return is_short and window.size * prod(sizes) <= prod(added.cascade.shape(window.image.tensor))


def _as_whole(window: Window, added: Additions, known: dict[object, Access]) -> list[Einsum]:
    """A sum over windows of an axis as a product with a band along all of that, made unless it is known."""
    einsum, place, (stride, back) = window.einsum, window.place, window.steps
    other, size = _filter_of(window), added.extent(place, einsum)
    key = (other, window.summed, place, window.index, window.size, size)
    steps = list[Einsum]()
    if key not in known:
        along = added.rank(f"{place.upper()}_BAND", window.size).lower()
        names = [along, place, *(v for v in other.variables if v != window.summed)]
        known[key] = added.along(f"{other.tensor}_band", names, einsum, Kind.BAND, other.tensor)
        at = affine([(along, back), (place, -back * stride)], -back * window.index.constant)
        whole = other.replaced({window.summed: at})
        steps = [Einsum(known[key], (whole,))]
    here = known[key].affine[0]

    def read(access: Access) -> Access:
        if access is other:
            return known[key]
        return access.with_indices(lambda i: here if i.at(added.sizes) == window.index else i)

    return [*steps, replace(einsum.reading(read), text="", before=einsum.title)]


def _filter_of(window: Window) -> Access:
    """What the elements of a window are multiplied by."""
    return next(a for a in window.einsum.accesses if a is not window.image)


def _is_long(window: Window, added: Additions, least: int) -> bool:
    """Whether a window is long, leaves nothing out, and has its place alone, beside one operand."""
    einsum, size = window.einsum, added.extent(window.place, window.einsum)
    uses = sum(window.place in i.variables for i in einsum.indices)
    is_pair = len(einsum.accesses) == len(einsum.operands) == 2 == uses
    return is_pair and window.length >= least and size >= FEW and abs(window.steps[1]) == 1


def _rows(window: Window, added: Additions, partitions: int) -> int:
    """How many places a block of the band has, about as many as there are blocks; 0 beside many columns."""
    if not _is_long(window, added, SHORT):
        return 0
    einsum, size = window.einsum, added.extent(window.place, window.einsum)
    own, others = {*window.image.variables}, {*_filter_of(window).variables}
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
    other = _filter_of(window)
    before = list[Einsum]()
    if not window.is_whole or other.tensor in added.cascade.outputs or other.variables[-1] != summed:
        # beyond a copy of what the sum has of it lie zeros; a band moves on along its last axis
        names = sorted(other.variables, key=lambda v: v == summed)
        part = added.along(f"{other.tensor}_part", names, einsum, Kind.WINDOW, other.tensor)
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


def with_bands_of_ones(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade with products of bands of ones instead of sums over windows; every rank has an extent.

    `S[c, x] = X[c + r - 2, x]`, summed over r, takes X from other partitions for each r. It is `S[c, x] =
    X[j, x] . B[j, c]` with `B[j, c] = 1 if c - 2 <= j < c + 3 else 0`, which reads nothing beyond an edge.
    """
    added, steps = Additions(cascade), list[Step]()
    for step in cascade.steps:
        window = _in_lanes(step, cascade, partitions) if isinstance(step, Einsum) else None
        steps += _with_ones(step, *window, added) if isinstance(step, Einsum) and window else [step]
    return added.applied(tuple(steps)) if len(steps) > len(cascade.steps) else cascade


def _in_lanes(einsum: Einsum, cascade: Cascade, partitions: int) -> tuple[str, Affine, int] | None:
    """The place on partitions of the windows that a sum goes over, their index, and the size of its axis."""
    names = (v for v in einsum.output.variables if cascade.extent(v, einsum) * 2 >= partitions)
    place = next(names, "") if einsum.reduce_op == "add" and not einsum.is_placed else ""
    axes = (
        axis for a in einsum.accesses if place for axis in zip(a.affine, cascade.shape(a.tensor), strict=True)
    )
    uses = [(i.at(cascade.sizes), n) for i, n in axes if place in i.variables]
    if len({*uses}) != 1 or len(uses) < len(einsum.accesses):
        return None
    index, size = uses[0]
    extents = {v: cascade.extent(v, einsum) for v in index.variables}
    summed = [v for v in extents if v in einsum.reduced and abs(index.coefficient(v)) == 1]
    others = [i for i in einsum.indices if i.at(cascade.sizes) != index and {*extents} & {*i.variables}]
    low, high = index.ends(extents)
    is_window = others == [*plain([place])] and len(extents) == 2 == len(summed) + 1
    is_window &= index.coefficient(place) > 0 and extents[[*summed, place][0]] >= FEWEST
    # what stands for elements beyond an edge is not summed
    is_kept = (low >= 0 and high < size) or einsum.map_op in ZEROS_OF_ZEROS
    is_scaled = len(einsum.accesses) == len(einsum.operands) or einsum.map_op == "multiply"
    return (place, index, size) if is_window and is_kept and is_scaled else None


def _with_ones(einsum: Einsum, place: str, index: Affine, size: int, added: Additions) -> list[Einsum]:
    """A sum over windows as what it sums at each element of their axis, a band, and the product of both."""
    (summed,), along = {*index.variables} - {place}, added.rank(f"{place.upper()}_BAND", size).lower()
    (here,), step, count = plain([along]), index.coefficient(summed), added.extent(summed, einsum)
    whole = einsum.with_indices(lambda i: here if i.at(added.sizes) == index else i)
    whole = replace(whole, text="", before=einsum.title)
    numbers = tuple(o for o in whole.operands if not isinstance(o, Access))
    steps, image, is_sum = list[Einsum](), whole.accesses[0], len(einsum.reduced) > 1
    map_op = "" if numbers and len(whole.accesses) == 1 else whole.map_op
    if map_op or is_sum:
        names = [along if v == place else v for v in einsum.output.variables]
        image = added.along(f"{einsum.name}_each", names, whole, Kind.EXACT)
        each = replace(whole, output=image, operands=whole.accesses, map_op=map_op)
        steps.append(replace(each, reduce_op="add" if is_sum else ""))
    start = affine([(place, index.coefficient(place))], index.constant + min(0, step * (count - 1)))
    end, band = replace(start, constant=start.constant + count), list[Access | Scalar]([Scalar(value=1.0)])
    for condition in (Condition(start, "<=", here), Condition(here, "<", end)):
        ones = added.along(f"{einsum.name}_band", [along, place], whole, Kind.BAND, image.tensor)
        steps.append(Einsum(ones, (band[-1],), condition=condition))
        band.append(ones)
    return [*steps, replace(whole, operands=(image, band[-1], *numbers), map_op="multiply")]
