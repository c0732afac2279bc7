"""What windows make of each of their elements: once for each element of the axis, not for each window.

`Z[y, k] = X[y + k - 2] ** 2`, which a filter sums over k, is `S[e] = X[e] ** 2`, of which windows are read:
`S[y + k - 2]`. In `Y[y] = G[k] . P[y + k] . Q[y + k]` the product of P and Q is one at each element, too, and
in `Y[y, x] = G[r] . H[s] . X[y + r, x + s]` the sum over r is one at each element along the other axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Einsum, Index, Kind, Operand, Scalar, plain
from ..language.operators import OPERATORS
from .common import reading
from .filters import Window, windows_of

# times as many elements as their axis that windows have, from which they are worth it
OVERLAP = 2
# by which windows are read, and the extent of their axis
WindowIndex = tuple[Affine, int]


def with_elements_once(cascade: Cascade) -> Cascade:
    """The cascade in which windows read what is made of each element once; every rank has an extent."""
    for n, step in enumerate(cascade.steps):
        added, same = Additions(cascade), dict[str, tuple[Access, Access]]()
        own = _once(step, added, same) if isinstance(step, Einsum) else []
        if own:
            later = [s.with_body([reading(e, same) for e in s.body]) for s in cascade.steps[n + 1 :]]
            return with_elements_once(added.applied((*cascade.steps[:n], *own, *later)))
    return cascade


def _once(einsum: Einsum, added: Additions, same: dict[str, tuple[Access, Access]]) -> list[Einsum]:
    """What stands for an Einsum, and how the others read it then; [] if it stays."""
    window = _of_each_element(einsum, added)
    if window is None:
        return _with_product_once(einsum, added) or _with_filter_once(einsum, added)
    product, once = _made_once(einsum, einsum.operands, window, added)
    same[einsum.name] = (einsum.output, once)
    del added.tensors[einsum.name]
    return [product]


def _made_once(
    einsum: Einsum, operands: Sequence[Operand], window: WindowIndex, added: Additions
) -> tuple[Einsum, Access]:
    """What an Einsum makes of operands at each element of an axis, and how its windows read that."""
    along = added.rank(f"{einsum.name.upper()}_ALONG", window[1]).lower()
    names = dict.fromkeys(v for o in operands for v in o.variables if v not in window[0].variables)
    once = added.along(f"{einsum.name}_once", [*names, along], einsum, Kind.ONCE)
    here = once.affine[-1]
    own = (o.with_indices(lambda i: here if i.at(added.sizes) == window[0] else i) for o in operands)
    product = replace(einsum, output=once, operands=tuple(own), reduce_op="", text="", before=einsum.title)
    return product, replace(once, indices=(*plain(names), window[0]))


def _of_each_element(einsum: Einsum, added: Additions) -> WindowIndex | None:
    """The windows that an element-wise Einsum reads, where it has zeros beyond their axis; None if not so."""
    cascade, output = added.cascade, [i.plain for i in einsum.output.affine]
    if einsum.name in cascade.outputs or einsum.is_placed or einsum.reduced:
        return None
    window = next(_windows(einsum.accesses, einsum, added), None)
    if window is None or not {*window[0].variables} <= {*output} or len(cascade.writers(einsum.name)) > 1:
        return None
    is_kept = _is_within(*window, einsum, cascade) or _keeps_zeros(einsum, window[0], added)
    return window if is_kept and _is_read(einsum, window[0], cascade) else None


def _is_read(einsum: Einsum, window: Affine, cascade: Cascade) -> bool:
    """Whether affine indices alone read what an Einsum writes, of windows those alone that there are."""
    read = [(e, a) for e in cascade.readers(einsum.name) for a in e.accesses if a.tensor == einsum.name]
    axes = [*zip((i.plain for i in einsum.output.affine), cascade.shape(einsum.name), strict=True)]
    return all(
        not access.gathers and (v not in window.variables or _is_within(index, size, reader, cascade))
        for reader, access in read for index, (v, size) in zip(access.indices, axes, strict=True)
    )  # fmt: skip


def _is_within(index: Index, size: int, einsum: Einsum, cascade: Cascade) -> bool:
    """Whether an index of an Einsum never leaves an axis."""
    known = index.at(cascade.sizes) if isinstance(index, Affine) else Affine(constant=size)
    low, high = known.ends({v: cascade.extent(v, einsum) for v in known.variables})
    return low >= 0 and high < size


def _windows(accesses: Iterable[Access], einsum: Einsum, added: Additions) -> Iterator[WindowIndex]:
    """By which indices operands read windows that overlap, and have their variables nowhere else."""
    axes = dict.fromkeys(
        (i.at(added.sizes), n)
        for a in accesses for i, n in zip(a.affine, added.cascade.shape(a.tensor), strict=True)
    )  # fmt: skip
    for index, size in axes:
        extents = {v: added.extent(v, einsum) for v in index.variables}
        others = {v for other, _ in axes if other != index for v in other.variables}
        if len(extents) > 1 and others.isdisjoint(extents) and prod(extents.values()) >= OVERLAP * size:
            yield index, size


def _keeps_zeros(einsum: Einsum, index: Affine, added: Additions) -> bool:
    """Whether an Einsum makes zero of the zeros that lie beyond an edge."""
    if einsum.map_op == "multiply":
        return True
    in_windows = all(index in (i.at(added.sizes) for i in a.affine) for a in einsum.accesses)
    numbers = [o.value if isinstance(o, Scalar) else 0.0 for o in einsum.operands]
    is_known = all(
        isinstance(o, Access) or (isinstance(o, Scalar) and not o.parameters) for o in einsum.operands
    )
    with np.errstate(all="ignore"):
        return in_windows and is_known and (not einsum.map_op or OPERATORS[einsum.map_op].on(*numbers) == 0)


def _with_product_once(einsum: Einsum, added: Additions) -> list[Einsum]:
    """A sum of products behind the product of those factors that have the same windows; [] if none have."""
    if not einsum.is_product or len(einsum.accesses) < 3:
        return []
    for access in einsum.accesses:
        alike = [a for a in einsum.accesses if {*a.variables} == {*access.variables}]
        window = next(_windows(alike, einsum, added), None)
        if window is not None and 1 < len(alike) < len(einsum.accesses):
            product, once = _made_once(einsum, alike, window, added)
            left = tuple(o for o in einsum.operands if o not in alike)
            return [product, replace(einsum, operands=(*left, once), text="", before=einsum.title)]
    return []


def _with_filter_once(einsum: Einsum, added: Additions) -> list[Einsum]:
    """A sum with a filter of each of two axes behind the sum with the filter of one; [] if it is no such."""
    windows = windows_of(einsum, added.cascade) if len(einsum.accesses) > 2 else ()
    for window in windows:
        inner = [a for a in einsum.accesses if window.summed in a.variables]
        filters = [a for a in inner if a.variables == (window.summed,)]
        axes = [i for i in window.image.affine if i.at(added.sizes) != window.index]
        apart = [i for i in axes if not i.plain]
        is_image = apart and all(len(i.variables) > 1 for i in apart) and len({*axes}) == len(axes)
        if len(inner) == 2 and len(filters) == 1 and is_image:
            return _along_one(einsum, window, filters[0], added)
    return []


def _along_one(einsum: Einsum, window: Window, weights: Access, added: Additions) -> list[Einsum]:
    """The sum with the filter of one axis, at each element of the others, and the sum with their filters."""
    image, whole = window.image, list[Affine]()
    for index, size in zip(image.affine, added.cascade.shape(image.tensor), strict=True):
        is_along = window.summed not in index.variables and not index.plain
        along = added.rank(f"{einsum.name.upper()}_ALONG", size).lower() if is_along else ""
        whole += plain([along]) if along else [index]
    names = [window.place if window.summed in i.variables else i.plain for i in whole]
    once = added.along(f"{einsum.name}_once", names, einsum, Kind.ONCE)
    read = [
        own if window.summed in i.variables else i for own, i in zip(once.affine, image.affine, strict=True)
    ]
    inner = (weights, replace(image, indices=tuple(whole)))
    rest = [
        replace(once, indices=tuple(read)) if o is image else o for o in einsum.operands if o is not weights
    ]
    return [
        replace(einsum, output=once, operands=inner, text="", before=einsum.title),
        replace(einsum, operands=tuple(rest), text="", before=einsum.title),
    ]
