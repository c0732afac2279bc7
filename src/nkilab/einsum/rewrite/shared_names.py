"""Readers call the axes of a result as its maker does: Einsums share loops over variables of one name."""

from __future__ import annotations

from dataclasses import replace

from ..language.ast import Access, Cascade, Einsum


def with_shared_names(cascade: Cascade) -> Cascade:
    """The cascade with other names of variables; every rank has an extent."""
    makers: dict[str, Access] = {}
    turns = {block.variable for block in cascade.blocks}

    def changed(einsum: Einsum) -> Einsum:
        fixed = turns | {*einsum.along}
        read = [(makers[a.tensor], a) for a in einsum.accesses if a.tensor in makers]
        pairs = [p for one, a in read for p in zip(one.indices, a.indices, strict=True)]
        names = {i.plain: own.plain for own, i in pairs[::-1] if i.plain and own.plain}
        names = {v: name for v, name in names.items() if v != name and not {v, name} & fixed}
        while clashing := [v for v, name in names.items() if _others(einsum, names, v).count(name)]:
            del names[clashing[-1]]
        other = einsum.with_indices(lambda index: index.renamed(names))
        is_same = all(cascade.extent(name, other) == cascade.extent(v, einsum) for v, name in names.items())
        other = replace(other, before=einsum.title) if names and is_same else einsum
        makers.setdefault(other.name, other.output)
        return other

    return replace(cascade, steps=tuple(s.with_body([*map(changed, s.body)]) for s in cascade.steps))


def _others(einsum: Einsum, names: dict[str, str], variable: str) -> list[str]:
    """What the other variables of an Einsum are called."""
    return [names.get(v, v) for v in einsum.variables if v != variable]
