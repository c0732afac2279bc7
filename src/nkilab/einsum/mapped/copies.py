"""Copies in between, where a tile is read in another layout than it is made in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..language.ast import Einsum
from ..language.spec import Placement, Spec


def copied(spec: Spec, views: Sequence[tuple[str, Placement]]) -> Spec:
    """A specification in which tiles are copied for readers that see them in another layout."""
    tensors, placements = dict(spec.cascade.tensors), dict(spec.placements)
    types = dict(spec.dtypes)
    steps = list(spec.cascade.steps)
    splits = {e: dict(s) for e, s in spec.partitioning.items()}
    for tensor, placed in views:
        name = f"{tensor}_for_{placed.einsum}"
        at = next(n for n, s in enumerate(steps) if isinstance(s, Einsum) and s.name == placed.einsum)
        reader = steps[at]
        assert isinstance(reader, Einsum)
        access = next(a for a in reader.accesses if a.tensor == tensor)
        copy = replace(access, tensor=name)
        operands = tuple(replace(o, tensor=name) if o == access else o for o in reader.operands)
        steps[at] = replace(reader, operands=operands)
        made = next(n for n, s in enumerate(steps) if isinstance(s, Einsum) and s.name == tensor)
        steps.insert(made + 1, Einsum(copy, (access,), text=f"{copy} = {access}", place=reader.place))
        tensors[name] = replace(tensors[tensor], name=name)
        splits[name] = {r: s for r, s in splits.get(placed.einsum, {}).items() if r in tensors[tensor].ranks}
        del placements[tensor, placed.einsum]
        placements[name, placed.einsum] = replace(placed, tensor=name)
        if tensor in types:
            types[name] = types[tensor]
    cascade = replace(spec.cascade, tensors=tensors, steps=tuple(steps))
    return replace(spec, cascade=cascade, placements=placements, dtypes=types, partitioning=splits)
