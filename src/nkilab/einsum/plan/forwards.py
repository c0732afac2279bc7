"""Indices that run backwards, X[p - r]: variables of sums are counted the other way round.

A sum over r is one over R - 1 - r, and then X[p - r] is a window X[p + r - (R - 1)]. An index that all
variables run backwards in, as that of a filter then, reads a copy whose axis is turned round. Sums around
products take one value at a time, whichever way they run.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import NoReturn

from ...errors import UnsupportedError
from ..language.additions import Additions, free_variable
from ..language.ast import Access, Affine, Cascade, Einsum, Iterate, Kind, Step, affine, plain
from .edges import Edges, is_product


def with_forward_indices(cascade: Cascade) -> tuple[Cascade, dict[str, Edges]]:
    """The cascade with indices that run forwards, and the copies that it reads by name.

    Raises:
        UnsupportedError: at an index that runs both ways, or backwards in what an Einsum writes.
    """
    turning = _Turning(cascade)
    steps: list[Step] = []
    for step in cascade.steps:
        changed = step.with_body(map(turning.changed, step.body))
        made = [n for n in turning.new if turning.copies[n].tensor not in cascade.inputs]
        if isinstance(step, Iterate):
            _need_no_turn(step.body, {turning.copies[n].tensor for n in made})
        steps += [turning.copying(n) for n in made]
        turning.new.clear()
        steps.append(changed)
        for einsum in step.body:
            turning.forget(einsum.name)
    if not turning.copies and tuple(steps) == cascade.steps:
        return cascade, {}
    return turning.added.applied(tuple(steps)), turning.copies


def _runs_back(index: object) -> bool:
    return isinstance(index, Affine) and any(index.coefficient(v) < 0 for v in index.variables)


def _runs_forth(index: object) -> bool:
    return isinstance(index, Affine) and any(index.coefficient(v) > 0 for v in index.variables)


def _refuse(einsum: Einsum, access: Access, index: object) -> NoReturn:
    error = UnsupportedError(
        f"the index {index} of {access.tensor} runs backwards", hint="count the variable the other way round"
    )
    raise einsum.located(error, access)


def need_forward_indices(cascade: Cascade) -> None:
    """Refuse indices that run backwards."""
    for einsum, access in ((e, a) for e in cascade.einsums for a in e.every_access):
        for index in filter(_runs_back, access.indices):
            _refuse(einsum, access, index)


def _need_no_turn(body: Sequence[Einsum], copied: Container[str]) -> None:
    """Refuse to copy what a turn of the same block computes."""
    written = {e.name for e in body}
    for einsum, access in ((e, a) for e in body for a in e.accesses):
        index = next((i for i in access.indices if _runs_back(i)), None)
        if index is not None and access.tensor in written and access.tensor in copied:
            _refuse(einsum, access, index)


class _Turning:
    """Turns indices of a cascade."""

    def __init__(self, cascade: Cascade) -> None:
        self.cascade, self.added = cascade, Additions(cascade)
        self.copies: dict[str, Edges] = {}
        self.current: dict[tuple[str, frozenset[int]], str] = {}
        self.new: list[str] = []

    def changed(self, einsum: Einsum) -> Einsum:
        """An Einsum whose indices run forwards."""
        back = [(a, i) for a in einsum.every_access for i in a.indices if _runs_back(i)]
        if not back or einsum.name in self.cascade.views or self.is_taken_singly(einsum):
            return einsum
        held = self.counted_back(einsum)
        if back[0][0] is einsum.output or not all(self.may_be_read(a) for a in held.accesses):
            _refuse(einsum, *back[0])
        known = dict(self.copies)
        forward = replace(held.reading(self.turned), text="")
        if self.is_copy(einsum) and forward.accesses[0].indices == einsum.output.indices:
            # it is the copy
            self.copies = {**known, einsum.name: self.copies[forward.reads[0]]}
            self.new = [n for n in self.new if n in self.copies]
            self.current = {key: n for key, n in self.current.items() if n in self.copies}
            return einsum
        return forward

    def is_taken_singly(self, einsum: Einsum) -> bool:
        """Whether only sums run backwards, around products on TensorE: one value at a time."""
        back = {v for a in einsum.every_access for i in a.affine for v, c in i.terms if c < 0}
        return not einsum.is_placed and is_product(self.cascade, einsum) and back <= {*einsum.reduced}

    def is_copy(self, einsum: Einsum) -> bool:
        """Whether an Einsum outside of blocks is no more than what alone it reads and writes, whole."""
        names = [i.plain for i in einsum.output.indices]
        is_alone = einsum in self.cascade.steps and len(self.cascade.writers(einsum.name)) == 1
        is_bound = einsum.map_op or einsum.reduce_op or einsum.is_placed or not (is_alone and all(names))
        return not is_bound and self.cascade.shape(einsum.name) == self.cascade.shape(einsum.reads[0])

    def may_be_read(self, access: Access) -> bool:
        """Whether a copy with axes turned round has all indices of an access run forwards."""
        back = [i for i in access.indices if _runs_back(i)]
        return not back or (not access.gathers and not any(map(_runs_forth, back)))

    def counted_back(self, einsum: Einsum) -> Einsum:
        """An Einsum with variables of its sum counted back that run against others in an index."""
        mixed = [i for a in einsum.accesses for i in a.indices if _runs_back(i) and _runs_forth(i)]
        found = {v for i in mixed for v in i.variables if isinstance(i, Affine) and i.coefficient(v) < 0}
        extents = {v: self.cascade.extent(v, einsum) for v in found & set(einsum.reduced)}
        for access in einsum.accesses:
            if any(set(g.variables) & set(extents) for g in access.gathers):
                _refuse(einsum, access, mixed[0])
        return einsum.counted_back(extents)

    def turned(self, access: Access) -> Access:
        """An access, of a copy where indices run backwards."""
        axes = frozenset(n for n, i in enumerate(access.indices) if _runs_back(i))
        if not axes:
            return access
        return replace(self.from_end(access, axes), tensor=self.copy_of(access.tensor, axes))

    def from_end(self, access: Access, axes: frozenset[int]) -> Access:
        """An access that counts some axes from their ends."""
        sizes = self.cascade.shape(access.tensor)
        indices = (
            affine([(v, -c) for v, c in i.terms], sizes[n] - 1 - i.constant) if n in axes else i
            for n, i in enumerate(access.affine)
        )
        return replace(access, indices=tuple(indices))

    def copy_of(self, tensor: str, axes: frozenset[int]) -> str:
        """The name of the copy of a tensor with some axes turned round."""
        if (tensor, axes) not in self.current:
            ranks = self.added.tensors[tensor].ranks
            name = self.added.tensor(f"{tensor}_back", ranks, tensor, Kind.REVERSED)
            self.copies[name] = Edges(tensor, ((0, 0),) * len(ranks), axes)
            self.current[tensor, axes] = name
            self.new.append(name)
        return self.current[tensor, axes]

    def copying(self, name: str) -> Einsum:
        """The Einsum that makes the copy of a result."""
        copy = self.copies[name]
        hints = (f"{name.lower()}_{n}" for n in range(len(copy.zeros)))
        indices = plain(free_variable(hint, self.cascade) for hint in hints)
        return Einsum(Access(name, indices), (self.from_end(Access(copy.tensor, indices), copy.back),))

    def forget(self, tensor: str) -> None:
        """A tensor is written again: what reads it later reads another copy."""
        self.current = {k: name for k, name in self.current.items() if k[0] != tensor}
