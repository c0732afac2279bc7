"""Windows that hardly overlap, as rows of a matrix: a patch of an image is one row, and a filter one column.

`Z[p, q, k] = X[c, 4*p + r, 4*q + s] . F[c, r, s, k]` sums over rows of a few values, far apart.
With `P[p, q, 16*c + 4*r + s] = X[c, 4*p + r, 4*q + s]` it is one sum over all values of a window.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..language.additions import Additions
from ..language.ast import Access, Cascade, Einsum, Kind, Step, plain
from .batch_order import is_sum
from .views import viewing

# times the elements of a tensor that its windows may have
MOST_OVERLAP = 16


def with_windows_as_rows(cascade: Cascade, partitions: int) -> Cascade:
    """The cascade with a matrix of windows before each sum over them; every rank has an extent."""
    added, steps, windows = Additions(cascade), list[Step](), set[str]()
    for step in cascade.steps:
        image = _image(step, cascade) if isinstance(step, Einsum) else None
        if isinstance(step, Einsum) and image is not None:
            names = [v for v in step.output.variables if v in image.variables]
            weights = next(a for a in step.accesses if a is not image)
            names += [i.plain for i in weights.indices if i.plain in step.reduced]
            ranks = tuple(added.rank_of(v, step) for v in names)
            apart = Access(
                added.tensor(f"{image.tensor}_windows", ranks, image.tensor, Kind.WINDOW), plain(names)
            )
            windows.add(apart.tensor)
            steps.append(Einsum(apart, (image,)))
            operands = tuple(apart if o is image else o for o in step.operands)
            step = replace(step, operands=operands, before=step.title)
        steps.append(step)
    return viewing(added.applied(tuple(steps)), partitions, windows) if windows else cascade


def _image(einsum: Einsum, cascade: Cascade) -> Access | None:
    """The operand whose windows a sum runs over; None if it runs over none."""
    is_plain = is_sum(einsum) and len(einsum.operands) == 2
    for image, weights in (einsum.accesses, einsum.accesses[::-1]) if is_plain else ():
        axes = [n for n, i in enumerate(weights.indices) if i.plain in einsum.reduced]
        if _is_summed_whole(einsum, image, weights, axes) and _is_worth(einsum, image, cascade):
            return image
    return None


def _is_summed_whole(einsum: Einsum, image: Access, weights: Access, axes: list[int]) -> bool:
    """Whether the second operand has all that is summed side by side, and the first in windows."""
    summed = [weights.indices[n].plain for n in axes]
    is_beside = len(axes) > 1 and axes == [*range(axes[0], axes[0] + len(axes))]
    is_windowed = any(len(i.variables) > 1 for i in image.indices)
    return is_beside and is_windowed and sorted(summed) == sorted(einsum.reduced)


def _is_worth(einsum: Einsum, image: Access, cascade: Cascade) -> bool:
    """Whether windows have few more elements than what they are read of, which an input is."""
    names = (*einsum.reduced, *(v for v in einsum.output.variables if v in image.variables))
    return prod(cascade.extent(v, einsum) for v in names) <= MOST_OVERLAP * prod(cascade.shape(image.tensor))
