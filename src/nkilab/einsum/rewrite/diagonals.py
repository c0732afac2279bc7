"""Diagonals, `S[i, i]`: every so many elements of a view, which no loop takes one by one.

With `V[C*r + c] = S[r, c]`, which has the elements of S in the same order, `S[i, i]` is `V[(C + 1)*i]`.
"""

from __future__ import annotations

from itertools import pairwise

from ..language.additions import Additions
from ..language.ast import Access, Cascade, Einsum, Kind, Operand, Step, affine, plain


def with_diagonals(cascade: Cascade) -> Cascade:
    """A cascade that reads diagonals of neighbouring axes through views."""
    added, views, steps = Additions(cascade), dict[tuple[str, int], Einsum](), list[Step]()
    bound = {e.name for block in cascade.blocks for e in block.body}

    def viewed(access: Access) -> Operand:
        names = [i.plain for i in access.indices]
        first = next((n for n, (a, b) in enumerate(pairwise(names)) if a and a == b), None)
        if first is None or access.tensor in bound or access.gathers:
            return access
        if (key := (access.tensor, first)) not in views:
            views[key] = _view(access.tensor, first, added)
            steps.append(views[key])
        columns = cascade.shape(access.tensor)[first + 1]
        index = affine([(names[first], columns + 1)])
        indices = (*access.indices[:first], index, *access.indices[first + 2 :])
        return Access(views[key].name, indices)

    for step in cascade.steps:
        steps.append(step.reading(viewed) if isinstance(step, Einsum) else step)
    return added.applied(tuple(steps)) if views else cascade


def _view(tensor: str, first: int, added: Additions) -> Einsum:
    """The Einsum that says which elements of a tensor a view has, of which two axes are one."""
    ranks = added.tensors[tensor].ranks
    both = ranks[first : first + 2]
    joined = added.rank("".join(both), added.sizes[both[0]] * added.sizes[both[1]])
    name = added.tensor(f"{tensor}_row", (*ranks[:first], joined, *ranks[first + 2 :]), tensor, Kind.VIEW)
    names = [f"{rank.lower()}{n}" for n, rank in enumerate(ranks)]
    one = affine([(names[first], added.sizes[both[1]]), (names[first + 1], 1)])
    indices = plain(names)
    return Einsum(Access(name, (*indices[:first], one, *indices[first + 2 :])), (Access(tensor, indices),))
