"""Tensors and ranks that rewrites add to a cascade, under names out of which nothing is read."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from .ast import Cascade, Derived, Einsum, Kind, Step, Tensor


class Additions:
    """What a rewrite adds to a cascade."""

    def __init__(self, cascade: Cascade) -> None:
        self.cascade, self.tensors = cascade, dict(cascade.tensors)
        self.derived, self.sizes = dict(cascade.derived), dict(cascade.sizes)

    def tensor(self, hint: str, ranks: tuple[str, ...], origin: str, kind: Kind) -> str:
        """Declare a tensor; returns its name, out of which nothing is read."""
        name = self.unused(hint)
        self.tensors[name] = Tensor(name, ranks)
        self.derived[name] = Derived(origin, kind)
        return name

    def rank(self, hint: str, size: int) -> str:
        """Declare a rank that no variable of the cascade has the name of; returns its name."""
        taken = {v.upper() for e in self.cascade.einsums for v in e.variables}
        name = unused(hint, {*self.sizes, *taken})
        self.sizes[name] = size
        return name

    def unused(self, hint: str) -> str:
        """A name that no tensor has."""
        return unused(hint, self.tensors)

    def rank_of(self, variable: str, einsum: Einsum) -> str:
        """The rank that a variable of an Einsum runs over."""
        axes = (axis for access in einsum.every_access for axis in self.cascade.axes(access))
        own = next((rank for rank, index in axes if index.plain == variable), "")
        return variable.upper() if variable.upper() in self.sizes else own

    def extent(self, variable: str, einsum: Einsum) -> int:
        """How many values a variable of an Einsum takes."""
        return self.cascade.extent(variable, einsum)

    def applied(self, steps: tuple[Step, ...]) -> Cascade:
        """The cascade with other steps."""
        return replace(
            self.cascade, tensors=self.tensors, steps=steps, sizes=self.sizes, derived=self.derived
        )


def unused(hint: str, taken: Container[str]) -> str:
    """A name that nothing has yet."""
    while hint in taken:
        hint += "_"
    return hint


def free_variable(hint: str, cascade: Cascade) -> str:
    """A variable that takes its extent from what it indexes: no rank is named as it is."""
    return unused(hint, {rank.lower() for rank in cascade.sizes})
