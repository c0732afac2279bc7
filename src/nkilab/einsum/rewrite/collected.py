"""Results that are written in strides, collected on chip first: what leaves is side by side.

`Y[2*p] = ..` and `Y[2*p + 1] = ..` each store single elements, far apart. With `Y'[2*p]`, `Y'[2*p + 1]` and
`Y[n] = Y'[n]` they lie between each other on chip, where strides cost nothing, and are stored in rows.
"""

from __future__ import annotations

from dataclasses import replace

from ..language.additions import Additions
from ..language.ast import Access, Cascade, Einsum, Kind, Step, plain


def with_collected_results(cascade: Cascade) -> Cascade:
    """The cascade with outputs of sums that are written in strides copied from others."""
    added, names = Additions(cascade), dict[str, str]()
    for tensor in cascade.outputs:
        own = [(n, e) for n, s in enumerate(cascade.steps) for e in s.body if e.name == tensor]
        is_free = all(isinstance(cascade.steps[n], Einsum) and not e.recurrence for n, e in own)
        if is_free and any(e.reduce_op and _is_strided(e.output) for _, e in own):
            ranks = cascade.tensors[tensor].ranks
            names[tensor] = added.tensor(f"{tensor}_whole", ranks, tensor, Kind.WHOLE)

    def renamed(access: Access) -> Access:
        return replace(access, tensor=names.get(access.tensor, access.tensor))

    steps: list[Step] = []
    for number, step in enumerate(cascade.steps):
        steps.append(step.with_body(_renamed(e, renamed) for e in step.body))
        later = {e.name for s in cascade.steps[number + 1 :] for e in s.body}
        for tensor in names.keys() & {e.name for e in step.body} - later:
            indices = plain(rank.lower() for rank in cascade.tensors[tensor].ranks)
            steps.append(Einsum(Access(tensor, indices), (Access(names[tensor], indices),)))
    return added.applied(tuple(steps)) if names else cascade


def _renamed(einsum, renamed):
    other = replace(einsum.reading(renamed), output=renamed(einsum.output))
    return einsum if other == einsum else replace(other, before=einsum.title)


def _is_strided(output: Access) -> bool:
    """Whether what is written lies in steps along the last axis."""
    return any(c > 1 for _, c in output.affine[-1].terms)
