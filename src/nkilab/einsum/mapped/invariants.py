"""Loops on which an Einsum does not depend."""

from __future__ import annotations

from ..language.ast import Einsum
from ..language.spec import Spec


def invariant(spec: Spec, einsum: Einsum) -> list[str]:
    """Ranks of an Einsum on which nothing it reads depends, directly or by Einsums that gain it too."""
    gained: dict[str, set[str]] = {}
    for one in spec.cascade.einsums:
        found = set()
        for variable in one.output.variables:
            holders = [a for a in one.accesses if variable in a.variables]
            if all(variable in gained.get(a.tensor, set()) for a in holders):
                found.add(variable)
        gained[one.name] = found
        if one is einsum:
            return [v.upper() for v in one.output.variables if v in found]
    return []
