"""Splits that are left out while other parts of a mapping name their pieces: K1 and K0 are parts of K."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...machine import Machine
from ..language.ast import Einsum
from ..language.spec import Spec


def with_parts(spec: Spec, machine: Machine) -> tuple[Spec, tuple[str, ...]]:
    """A specification in which every rank is split whose parts are named, and notes for the report.

    The innermost part has as many elements as lie on partitions, or along the columns of a product; the
    others one of the next inner each.
    """
    splits = {e: dict(held) for e, held in spec.partitioning.items()}
    known = {r: s for held in spec.partitioning.values() for r, s in held.items()}
    found: dict[str, tuple[int, ...]] = {}
    names = {einsum.name: set(_named(spec, einsum.name)) for einsum in spec.cascade.einsums}
    for einsum, rank in ((e, v.upper()) for e in spec.cascade.einsums for v in e.variables):
        count = _count(spec, rank, names[einsum.name])
        if not count or rank in splits.get(einsum.name, {}):
            continue
        shapes = known.get(rank, ())
        if len(shapes) != count:
            shapes = found.get(rank, ()) if len(found.get(rank, ())) == count else ()
        if not shapes:
            shapes = _rule(spec, einsum, rank, count, machine)
            found[rank] = shapes
        splits.setdefault(einsum.name, {})[rank] = shapes
    if not found and splits == {e: dict(held) for e, held in spec.partitioning.items()}:
        return spec, ()
    told = tuple(f"completed: {rank} in parts of {', '.join(map(str, s))}" for rank, s in found.items())
    return clipped(replace(spec, partitioning=splits)), told


def _named(spec: Spec, einsum: str) -> Iterator[str]:
    """Ranks that a mapping names for an Einsum."""
    yield from spec.loop_order.get(einsum, ())
    for ranks in spec.spacetime.get(einsum, ()):
        yield from ranks
    if einsum in spec.engines:
        yield from spec.engines[einsum].ranks
    for (_, seen_in), placed in spec.placements.items():
        if seen_in == einsum:
            yield from (*placed.unbound, *placed.ranks)
    yield from (r for f in spec.fusion for g in f.groups for e, r in g if e == einsum)


def _count(spec: Spec, rank: str, names: set[str]) -> int:
    """How often a rank is split by the names of its parts; 0 if they name none, or itself."""
    declared = {r for t in spec.cascade.tensors.values() for r in t.ranks}
    parts = {n[len(rank) :] for n in names - declared if n.startswith(rank)}
    numbers = [int(n) for n in parts if n.isdigit()]
    return max(numbers, default=0) if rank not in names else 0


def _rule(spec: Spec, einsum: Einsum, rank: str, count: int, machine: Machine) -> tuple[int, ...]:
    inner = f"{rank}0"
    sides = [p.outer for (_, e), p in spec.placements.items() if e == einsum.name and p.component != "HBM"]
    sides += [spec.spacetime[e.name][0] for e in spec.cascade.einsums if e.name in spec.spacetime]
    is_column = (
        bool(sides) and not any(inner in side for side in sides) and rank.lower() not in einsum.reduced
    )
    most = int(machine["moving_free_max"] if is_column else machine["partitions"])
    return (most,) * count


def clipped(spec: Spec) -> Spec:
    """A specification whose parts are no larger than what is split: a rank of 3 has no part of 128."""
    sizes = spec.cascade.sizes
    splits = {
        einsum: {r: _clipped(shapes, sizes[r]) if r in sizes else shapes for r, shapes in held.items()}
        for einsum, held in spec.partitioning.items()
    }
    return replace(spec, partitioning=splits)


def _clipped(shapes: tuple[int, ...], size: int) -> tuple[int, ...]:
    parts: list[int] = []
    for part in reversed(shapes):
        inner = parts[0] if parts else 1
        parts.insert(0, min(part, -(-size // inner) * inner))
    return tuple(parts)
