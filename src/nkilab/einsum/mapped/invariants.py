"""Loops on which an Einsum does not depend."""

from __future__ import annotations

from ..language.ast import Einsum
from ..language.spec import Spec


def invariant(spec: Spec, einsum: Einsum) -> list[str]:
    """Ranks of an Einsum on which nothing it reads depends, directly or by Einsums that gain it too."""
    gained: dict[str, set[str]] = {}
    stored = {e.name for e in spec.cascade.einsums if _is(spec, e, "Store")}
    for one in spec.cascade.einsums:
        found: set[str] = set()
        gained[one.name] = found
        if stored & set(one.reads):
            # what comes back from HBM, directly or as a row for all partitions, waits for who stores it
            stored |= {one.name} if _is(spec, one, "Load") else set()
            continue
        found |= {
            v
            for v in one.output.variables
            if all(v in gained.get(a.tensor, set()) for a in one.accesses if v in a.variables)
        }
        if one is einsum:
            return [v.upper() for v in one.output.variables if v in found]
    return []


def _is(spec: Spec, einsum: Einsum, instruction: str) -> bool:
    return einsum.name in spec.engines and spec.engines[einsum.name].instruction == instruction
