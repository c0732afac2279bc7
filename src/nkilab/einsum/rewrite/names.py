"""Readers that call the axes of a result as what made it does: Einsums share loops over variables of one name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..language.ast import Cascade, Einsum, Index


def with_shared_names(cascade: Cascade) -> Cascade:
    """The cascade with other names of variables; every rank has an extent."""
    made: dict[str, tuple[Index, ...]] = {}

    def changed(einsum: Einsum) -> Einsum:
        other = _renamed(einsum, _names(einsum, made, fixed), cascade)
        made.setdefault(other.name, other.output.indices)
        return other

    fixed = {block.variable for block in cascade.blocks}
    steps = tuple(step.with_body([*map(changed, step.body)]) for step in cascade.steps)
    return replace(cascade, steps=steps)


def _names(einsum: Einsum, made: Mapping[str, tuple[Index, ...]], fixed: set[str]) -> dict[str, str]:
    """What makers of operands call variables of an Einsum, where none of its others is called so."""
    fixed = fixed | ({einsum.recurrence.variable} if einsum.recurrence else set())
    names: dict[str, str] = {}
    for access in (a for a in einsum.accesses if a.tensor in made):
        for own, index in zip(made[access.tensor], access.indices, strict=True):
            if own.plain and index.plain and not {own.plain, index.plain} & fixed:
                names.setdefault(index.plain, own.plain)
    while True:
        kept = [names.get(v, v) for v in einsum.variables]
        clashes = [v for v, name in names.items() if kept.count(name) > 1 and v != name]
        if not clashes:
            return {v: name for v, name in names.items() if v != name}
        del names[clashes[-1]]


def _renamed(einsum: Einsum, names: Mapping[str, str], cascade: Cascade) -> Einsum:
    """An Einsum with other names of variables, if these take as many values."""
    if not names:
        return einsum
    other = replace(einsum.with_indices(lambda index: index.renamed(names)), before=einsum.title)
    is_same = all(cascade.extent(name, other) == cascade.extent(v, einsum) for v, name in names.items())
    return other if is_same else einsum
