"""What of a partial mapping stands in the way: the entry without which the rest can be completed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from ...errors import NkilabError, SpecError, UnsupportedError
from ..checks.model import at_key, within
from ..checks.names import node_of
from ..language.nodes import Node
from ..language.spec import Spec
from ..sets import ProofError

# entries that are left out one by one, at most
MOST_TRIED = 60
Key = TypeVar("Key")
Value = TypeVar("Value")
FAILURES = (SpecError, UnsupportedError, ProofError)


@dataclass(frozen=True)
class Entry:
    """A part of a mapping that may be left out.

    Args:
        node: where it stands.
        rest: the specification without it.
    """

    node: Node
    rest: Spec


def explained(spec: Spec, error: Exception, build: Callable[[Spec], object]) -> UnsupportedError:
    """The error for a mapping that cannot be completed, at the entry that stands in the way.

    Args:
        spec: as given.
        error: what went wrong.
        build: completes a specification, proves it, and raises one of `FAILURES` if it cannot.
    """
    problem = error.problem if isinstance(error, NkilabError) else str(error)
    entries = list(entries_of(spec))
    for entry in entries[:MOST_TRIED]:
        if _is_built(entry.rest, build):
            return _at(entry.node, problem, f"leave {entry.node.path} out; with the rest it compiles")
    return _at(entries[0].node, problem, "leave mapping and binding out")


def _is_built(spec: Spec, build: Callable[[Spec], object]) -> bool:
    """Whether a specification compiles; one without a mapping does."""
    try:
        if spec.is_mapped:
            build(spec)
    except FAILURES:
        return False
    return True


def is_told(error: Exception) -> bool:
    """Whether an error stands at an entry that is given, not at what was completed or at an expression."""
    return isinstance(error, NkilabError) and is_entry(error.called)


def is_of_cascade(error: Exception) -> bool:
    """Whether an error is one of the cascade, whatever the mapping is."""
    return isinstance(error, SpecError) and error.called.startswith("einsum.")


def is_entry(path: str) -> bool:
    """Whether a path leads to what is given for one Einsum or tensor."""
    is_part = path.startswith(("mapping.", "binding.", "format.")) and (path.count(".") > 1 or "[" in path)
    return is_part and "(completed)" not in path


def entries_of(spec: Spec) -> Iterator[Entry]:
    """Every part of a mapping that may be left out, the small ones first."""
    for einsum, splits in spec.partitioning.items():
        for rank in splits:
            node = at_key(node_of(spec, "mapping", "partitioning", einsum, rank))
            rest = {e: {r: s for r, s in held.items() if (e, r) != (einsum, rank)}
                    for e, held in spec.partitioning.items()}  # fmt: skip
            yield Entry(node, replace(spec, partitioning={e: s for e, s in rest.items() if s}))
    for einsum in spec.loop_order:
        node = at_key(node_of(spec, "mapping", "loop-order", einsum))
        yield Entry(node, replace(spec, loop_order=_without(spec.loop_order, einsum)))
    for einsum in spec.spacetime:
        node = at_key(node_of(spec, "mapping", "spacetime", einsum))
        yield Entry(node, replace(spec, spacetime=_without(spec.spacetime, einsum)))
    for einsum, held in spec.engines.items():
        yield Entry(held.node, replace(spec, engines=_without(spec.engines, einsum)))
    for key, placed in spec.placements.items():
        yield Entry(placed.node, replace(spec, placements=_without(spec.placements, key)))
    for number, fusion in enumerate(spec.fusion):
        rest_of = spec.fusion[:number] + spec.fusion[number + 1 :]
        yield Entry(within(fusion.node), replace(spec, fusion=rest_of))
    if spec.partitioning:
        yield Entry(at_key(node_of(spec, "mapping", "partitioning")), replace(spec, partitioning={}))
    if spec.loop_order:
        yield Entry(at_key(node_of(spec, "mapping", "loop-order")), replace(spec, loop_order={}))


def _without(held: Mapping[Key, Value], key: Key) -> dict[Key, Value]:
    return {k: v for k, v in held.items() if k != key}


def _at(node: Node, problem: str, hint: str) -> UnsupportedError:
    error = UnsupportedError(f"this and the rest of the mapping do not go together: {problem}", hint=hint)
    error.located(str(node.place), node.path)
    return error
