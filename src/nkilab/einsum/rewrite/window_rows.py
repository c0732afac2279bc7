"""Windows that hardly overlap, as rows of a matrix: a patch of an image is one row, and a filter one column.

`Z[p, q, k] = X[c, 4*p + r, 4*q + s] . F[c, r, s, k]` sums over rows of a few values, far apart.
With `P[p, q, 16*c + 4*r + s] = X[c, 4*p + r, 4*q + s]` it is one sum over all values of a window.

Frames, `Y[t, f] = X[160*t + n] . C[f, n]`, need no copy: `F[t, n] = X[160*t + n]` lies in HBM already, its
rows 160 elements apart, and TensorE sums over an index of its own. Beyond its edges it is copied with zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from ..language.additions import Additions, free_variable, reading_others
from ..language.ast import Access, Affine, Cascade, Einsum, Gather, Kind, Tensor, affine, plain
from .batch_order import is_sum
from .views import viewing

# times the elements of a tensor that its windows may have
MOST_OVERLAP = 16
# elements of a window from which a sum over it, and more, is one of TensorE
LONG = 32


def with_windows_as_rows(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade with a matrix of windows before each sum over them; every rank has an extent."""
    other = reading_others(cascade, lambda einsum, access: access is _image(einsum, cascade), _copied)
    return cascade if other is cascade else viewing(other, partitions, {*other.tensors} - {*cascade.tensors})


def with_overlapping_rows(cascade: Cascade) -> Cascade:
    """The cascade with rows that overlap instead of each tensor that a product of matrices reads so."""
    return reading_others(
        cascade,
        lambda e, a: bool(_between(a, e, cascade)) or _overlaps(a, e, cascade) or _is_frame(a, e, cascade),
        view_of_rows,
    )


def _through(access: Access, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Affine]]:
    """Ranks with what an access has there, where it chooses those of what chooses."""
    for rank, index in zip(tensors[access.tensor].ranks, access.indices, strict=True):
        if isinstance(index, Gather):
            yield from _through(index.access, tensors)
        else:
            yield rank, index


def _between(access: Access, einsum: Einsum, cascade: Cascade) -> dict[int, tuple[int, int]]:
    """Axes that several variables of a result go through, T[i - j, h], and from where to where.

    They run against each other, or each element is read several times and other axes lie behind.
    """
    indices, windows = [i for _, i in _through(access, cascade.tensors)], dict[int, tuple[int, int]]()
    plain_ones = [i.plain for i in indices if len(i.variables) < 2]
    is_bound = einsum.recurrence or einsum.output.gathers or einsum.name in cascade.views
    if is_bound or not all(plain_ones) or len({*plain_ones}) < len(plain_ones):
        return {}
    for n, index in enumerate(indices):
        extents = {v: cascade.extent(v, einsum) for v in index.variables}
        low, high = index.at(cascade.sizes).ends(extents)
        is_mixed = len({index.coefficient(v) > 0 for v in extents}) > 1
        is_read_again = len(extents) > 1 and (high - low + 1) * 2 <= prod(extents.values())
        is_kept = {*extents} <= {*einsum.output.variables} and not {*extents} & {*plain_ones}
        windows |= (
            {n: (low, high)} if is_kept and (is_mixed or (is_read_again and n + 1 < len(indices))) else {}
        )
    return windows


def _copied(einsum: Einsum, image: Access, added: Additions) -> list[Einsum]:
    """A copy of windows, that of a place as a row."""
    names = [v for v in einsum.output.variables if v in image.variables]
    weights = next(a for a in einsum.accesses if a is not image)
    names += [i.plain for i in weights.indices if i.plain in einsum.reduced]
    copy = added.along(f"{image.tensor}_windows", names, einsum, Kind.WINDOW, image.tensor)
    return [Einsum(copy, (image,))]


def _image(einsum: Einsum, cascade: Cascade) -> Access | None:
    """The operand that a sum reads in windows of not many times its elements; None if it reads none so.

    The second operand has all that is summed side by side.
    """
    is_plain = is_sum(einsum) and len(einsum.operands) == 2
    for image, weights in (einsum.accesses, einsum.accesses[::-1]) if is_plain else ():
        axes = [n for n, i in enumerate(weights.indices) if i.plain in einsum.reduced]
        is_beside = len(axes) > 1 and axes == [*range(axes[0], axes[0] + len(axes))]
        is_whole = sorted(weights.indices[n].plain for n in axes) == sorted(einsum.reduced)
        size = prod(cascade.extent(v, einsum) for v in {*einsum.reduced, *image.variables})
        is_worth = size <= MOST_OVERLAP * prod(cascade.shape(image.tensor))
        if is_beside and is_whole and is_worth and any(len(i.variables) > 1 for i in image.indices):
            return image
    return None


def _overlaps(image: Access, einsum: Einsum, cascade: Cascade) -> bool:
    """Whether rows of a tensor that may overlap, each summed over, are a factor of a product of matrices.

    The tensor is no output, whose axes others choose. A sum over more than one variable has none by itself.
    """
    if not einsum.is_product or image.tensor in cascade.outputs:
        return False
    summed = {v for v in einsum.reduced if v in image.variables and cascade.extent(v, einsum) > 1}
    # parts of an axis that is summed whole are no windows
    windows = [{*i.variables} for i in image.affine if {*i.variables} - {*einsum.reduced}]
    moved = {v for names in windows if len(names) > 1 for v in summed & names}
    is_long = max((cascade.extent(v, einsum) for v in moved), default=0) >= LONG
    is_row = bool(moved) and moved == summed and (len(summed) == 1 or is_long)
    return is_row and not {*einsum.output.variables} <= {*image.variables}


def _is_frame(image: Access, einsum: Einsum, cascade: Cascade) -> bool:
    """Whether a result has rows of a tensor that overlap, F[t, n] = X[160*t + n], no axes behind them."""
    if not image.indices:
        return False
    index, shape = image.indices[-1], cascade.shape(image.tensor)
    if not isinstance(index, Affine) or einsum.recurrence or image.tensor in cascade.outputs:
        return False
    extents = {v: cascade.extent(v, einsum) for v in index.variables}
    low, high = index.at(cascade.sizes).ends(extents)
    is_once = not image.repeated and not image.gathers
    is_kept = is_once and {*extents} <= {*einsum.output.variables} and einsum.name not in cascade.views
    is_up = all(index.coefficient(v) > 0 for v in extents) and 0 <= low <= high < shape[-1]
    return is_kept and is_up and high - low + 1 < prod(extents.values())


def view_of_rows(einsum: Einsum, image: Access, added: Additions) -> list[Einsum]:
    """A view of the rows that an Einsum reads: of a copy if the axes of a batch are not in front.

    Axes that variables of the result go through together are last, and the last of these counts up.
    """
    between, source, chosen = _between(image, einsum, added.cascade), image.tensor, list[Einsum]()
    ranks, indices = (list(each) for each in zip(*_through(image, added.cascade.tensors), strict=True))
    # rows of a result lie as they are read
    batch = {*einsum.output.variables}.intersection(*(a.variables for a in einsum.accesses if einsum.reduced))
    order = sorted(range(len(ranks)), key=lambda n: (n in between, not {*indices[n].variables} & batch))
    axes = plain(free_variable(f"{source.lower()}_{n}", added.cascade) for n in range(len(ranks)))
    read, copies, kind = [*axes], list[Einsum](), Kind.WINDOW if between else Kind.TRANSPOSED
    if image.gathers:
        each, source = iter(axes), added.tensor(f"{source}_chosen", tuple(ranks), source, Kind.CHOSEN)
        chosen = [Einsum(Access(source, axes), (image.with_indices(lambda _: next(each)),))]
    for n, (low, high) in between.items():
        index, last = indices[n].at(added.sizes), max(indices[n].variables, key=einsum.output.variables.index)
        step, first = (1, low) if index.coefficient(last) > 0 else (-1, -high)
        ranks[n] = added.rank(f"{ranks[n]}_REACH", high - low + 1)
        read[n] = affine([(axes[n].plain, step)], step * first)
        indices[n] = affine([(v, step * c) for v, c in index.terms], step * index.constant - first)
    if between or order != sorted(order):
        copy = added.tensor(f"{source}_rows", tuple(ranks[n] for n in order), source, kind)
        copies = [Einsum(Access(copy, tuple(axes[n] for n in order)), (Access(source, tuple(read)),))]
        source, indices = copy, [indices[n] for n in order]
    seen = Access(source, tuple(indices))
    view = added.along(f"{image.tensor}_windows", _slowest_first(seen, einsum), einsum, Kind.OVERLAP, source)
    return [*chosen, *copies, Einsum(view, (seen,))]


def _slowest_first(image: Access, einsum: Einsum) -> list[str]:
    """The variables of an operand, that of neighbouring elements last, counted up where one is."""
    steps = {v: max((i.coefficient(v) for i in image.affine), key=abs) for v in image.variables}
    places = {v: max(n for n, i in enumerate(image.affine) if v in i.variables) for v in steps}
    return sorted(places, key=lambda v: (places[v], -abs(steps[v]), steps[v] > 0, v not in einsum.reduced))
