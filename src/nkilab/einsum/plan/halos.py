"""States that turns read beyond their edges, with the zeros of their halo around them.

They are there before the first turn, and no turn writes them: none has to copy its state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..language.additions import Additions, free_variable
from ..language.ast import Access, Affine, Cascade, Einsum, Index, Iterate, Scalar, plain
from ..lower.stencil import Stencil


def with_halos(cascade: Cascade, stencils: Sequence[Stencil], lanes: int) -> Cascade:
    """The cascade with wider states of blocks, but for long ones and those that stencils keep."""
    apart = {t for s in stencils for t in s.tensors} | {*cascade.outputs, *cascade.views}
    states = [(n, e.name) for n, b in enumerate(cascade.blocks) for e in b.body]
    for number, name in dict.fromkeys(state for state in states if state[1] not in apart):
        halo, block = _halo(cascade, name), cascade.blocks[number]
        is_short = all(
            size <= lanes for size, own in zip(cascade.shape(name), halo, strict=False) if any(own)
        )
        if is_short and any(map(any, halo)) and name in {t for e in block.body for t in e.reads}:
            cascade = _widened(cascade, block, name, halo)
    return cascade


def _halo(cascade: Cascade, name: str) -> list[tuple[int, int]]:
    """How far every axis of a tensor is read before its first element, and behind its last one."""
    halo = [(0, 0)] * len(cascade.shape(name))
    for einsum, access in ((e, a) for e in cascade.einsums for a in e.every_access if a.tensor == name):
        if access.gathers:
            return [(0, 0)]
        for axis, (index, size) in enumerate(zip(access.affine, cascade.shape(name), strict=True)):
            low, high = index.ends({v: cascade.extent(v, einsum) for v in index.variables})
            before, behind = halo[axis]
            halo[axis] = max(before, -low), max(behind, high + 1 - size)
    return halo


def _widened(cascade: Cascade, block: Iterate, name: str, halo: Sequence[tuple[int, int]]) -> Cascade:
    """The cascade with a state that has a halo, of zeros before the block."""
    added, tensor = Additions(cascade), cascade.tensors[name]
    extents = {(v, cascade.extent(v, e)) for e in cascade.einsums for v in e.variables}
    sizes = {v.upper(): size for v, size in extents if v.upper() not in cascade.sizes}
    if len({v for v, _ in extents}) < len(extents):
        return cascade
    pairs = zip(tensor.ranks, cascade.shape(name), halo, strict=True)
    ranks = [added.rank(f"{r}_HALO", size + sum(own)) if any(own) else r for r, size, own in pairs]
    added.tensors[name] = replace(tensor, ranks=tuple(ranks))

    def moved(access: Access) -> Access:
        if access.tensor != name:
            return access
        return replace(
            access, indices=tuple(_later(i, low) for i, (low, _) in zip(access.indices, halo, strict=True))
        )

    steps = [
        s.with_body(replace(e.reading(moved), output=moved(e.output)) for e in s.body) for s in cascade.steps
    ]
    # variables keep the extents that the narrower axes told
    added.sizes = {**sizes, **added.sizes}
    every = [free_variable(f"{rank.lower()}_all", cascade) for rank in ranks]
    added.sizes |= {v.upper(): added.sizes[rank] for v, rank in zip(every, ranks, strict=True)}
    zeros = Einsum(Access(name, plain(every)), (Scalar(),), place=block.place)
    place, again = cascade.steps.index(block), list[Einsum]()
    axes = enumerate(zip(cascade.shape(name), halo, strict=True))
    sides = ((n, at, count) for n, (size, (low, high)) in axes
             for at, count in ((0, low), (size + low, high)) if count)  # fmt: skip
    for axis, start, count in sides:
        part = Affine(((added.rank("HALO", count).lower(), 1),), start)
        indices = (*zeros.output.indices[:axis], part, *zeros.output.indices[axis + 1 :])
        again.append(replace(zeros, output=replace(zeros.output, indices=indices)))
    steps[place] = block.with_body([*steps[place].body, *again])
    return added.applied((zeros, *steps))


def _later(index: Index, by: int) -> Index:
    return replace(index, constant=index.constant + by) if isinstance(index, Affine) else index
