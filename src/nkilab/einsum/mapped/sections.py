"""A cascade in sections: Einsums with a mapping, and Einsums that have none and a form it has no words for.

The first are compiled as given, the second as without any mapping; sections hand tensors on through HBM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from ...errors import UnsupportedError
from ..checks.model import within
from ..checks.names import known_ranks, node_of
from ..language.ast import Cascade, Einsum, Iterate, Step
from ..language.nodes import Node
from ..language.spec import Placement, Spec
from ..plan.groups import einsums_of
from ..written.ranks import Ranks
from .words import Words, given_names, is_plain


@dataclass(frozen=True)
class Section:
    """Steps that are compiled together.

    Args:
        spec: of its steps alone.
        is_mapped: whether a mapping, completed, says how they run.
    """

    spec: Spec
    is_mapped: bool


def is_free(spec: Spec) -> bool:
    """Whether every Einsum has a form that a mapping has words for as it stands."""
    has_ranks = all(t.ranks for t in spec.cascade.tensors.values())
    return has_ranks and all(
        isinstance(s, Einsum)
        and is_plain(s)
        and s.condition is None
        and len(s.operands) <= 2
        and bool(s.reduced) == bool(s.reduce_op)
        for s in spec.cascade.steps
    )


def sections_of(spec: Spec) -> tuple[list[Section], tuple[str, ...]]:
    """Sections in order, and notes for the report.

    Raises:
        UnsupportedError: if a mapping is given for what it has no words for.
    """
    given = given_names(spec)
    kinds = _kinds(spec, given)
    names = {s.name for s, k in zip(spec.cascade.steps, kinds) if k == "mapped" and isinstance(s, Einsum)}
    words = Words(spec, names)
    spec = words.rewritten()
    mapped = names | set(words.homes)
    runs = _runs(spec.cascade, mapped)
    _need_whole_tensors(spec, runs)
    if len(runs) == 1:
        return [Section(_placed(spec, set()), runs[0][1])], tuple(words.notes)
    parts = [_with_tensors(spec, steps, runs) for steps, _ in runs]
    between = {t for held in parts for t in held.cascade.outputs} - set(spec.cascade.outputs)
    told = [f"completed: {', '.join(dict.fromkeys(e.name for e in einsums_of(steps)))} without a mapping"
            for steps, is_mapped in runs if not is_mapped]  # fmt: skip
    if between:
        names_of = [t for t in spec.cascade.tensors if t in between]
        told.append(f"completed: {', '.join(names_of)} handed on through HBM")
    uses = Counter(t for held in parts for t in held.cascade.tensors)
    shared = {t for t, times in uses.items() if times > 1}
    found = [Section(_placed(s, shared), is_mapped) for s, (_, is_mapped) in zip(parts, runs)]
    return found, (*words.notes, *told)


def _kinds(spec: Spec, given: set[str]) -> list[str]:
    """Per step: mapped, or planned where nothing is given and it has no words or stands beside such."""
    kinds = [_kind(spec, step, given) for step in spec.cascade.steps]
    if "planned" in kinds:
        _spread(kinds)
    return ["mapped" if k == "free" else k for k in kinds]


def _kind(spec: Spec, step: Step, given: set[str]) -> str:
    """How a step is done: mapped, planned, or free to be either."""
    if isinstance(step, Iterate):
        bound = next((e for e in step.body if e.name in given), None)
        if bound is not None:
            raise _refused(spec, bound, f"{bound.name} stands in the turns of {step.variable}")
        return "planned"
    if step.name not in given:
        times = [e.name for e in spec.cascade.einsums].count(step.name)
        return "planned" if times > 1 or not is_plain(step) else "free"
    if not step.accesses:
        raise _refused(spec, step, f"{step.name} reads no tensor")
    if any(not i.plain for i in step.output.indices):
        raise _refused(spec, step, f"{step.name} writes at other indices than variables")
    return "mapped"


def _spread(kinds: list[str]) -> None:
    """What is free beside what is planned is planned too."""
    numbers = range(len(kinds))
    for before, n in (*pairwise(numbers), *pairwise(reversed(numbers))):
        if kinds[n] == "free" and kinds[before] == "planned":
            kinds[n] = "planned"


def _refused(spec: Spec, einsum: Einsum, what: str) -> UnsupportedError:
    """The error for a mapping of what it has no words for, at the first place that gives it."""
    node = _first_given(spec, einsum.name)
    error = UnsupportedError(
        f"{what}, and no plan keeps what is given for it", hint=f"leave {node.path or 'the mapping'} out"
    )
    is_entry = node.path.endswith("]") or not node.key_place.line
    place = node.place if is_entry else node.key_place
    error.located(str(place), node.path, (f"expression: {einsum.text or einsum}",))
    return error


def _first_given(spec: Spec, name: str) -> Node:
    """The first key that says something about an Einsum."""
    for key in ("partitioning", "loop-order", "spacetime"):
        node = node_of(spec, "mapping", key, name)
        if node.path.endswith(f".{name}"):
            return node
    for fusion in spec.fusion:
        if any(e == name for g in fusion.groups for e, _ in g):
            return fusion.node
    if name in spec.engines:
        return spec.engines[name].node
    for (_, einsum), placed in spec.placements.items():
        if einsum == name:
            return placed.node
    return node_of(spec, "format")


def _runs(cascade: Cascade, mapped: set[str]) -> list[tuple[list[Step], bool]]:
    """Steps in an order that keeps what depends on one another in order and one kind together."""
    rest = list(cascade.steps)
    found: list[tuple[list[Step], bool]] = []
    while rest:
        kind = _is_mapped(rest[0], mapped)
        held, rest = _run(rest, kind, mapped)
        found.append((held, kind))
    return found


def _is_mapped(step: Step, mapped: set[str]) -> bool:
    return isinstance(step, Einsum) and step.name in mapped


def _run(steps: list[Step], kind: bool, mapped: set[str]) -> tuple[list[Step], list[Step]]:
    """The steps of a kind that depend on none of another, and what is left."""
    held: list[Step] = []
    left: list[Step] = []
    for step in steps:
        if _is_mapped(step, mapped) == kind and not any(_depends(step, other) for other in left):
            held.append(step)
        else:
            left.append(step)
    return held, left


def _depends(step: Step, earlier: Step) -> bool:
    """Whether a step must stay behind an earlier one."""
    (reads, writes), (read, written) = _uses(step), _uses(earlier)
    return bool(written & (reads | writes) or read & writes)


def _uses(step: Step) -> tuple[set[str], set[str]]:
    einsums = einsums_of([step])
    return {t for e in einsums for t in e.reads}, {e.name for e in einsums}


def _need_whole_tensors(spec: Spec, runs: Sequence[tuple[list[Step], bool]]) -> None:
    """Refuse tensors that two sections write."""
    seen: dict[str, int] = {}
    numbered = ((number, e) for number, (steps, _) in enumerate(runs) for e in einsums_of(steps))
    for number, einsum in numbered:
        if seen.setdefault(einsum.name, number) != number:
            error = UnsupportedError(
                f"{einsum.name} is written before and after Einsums that have a mapping",
                hint="leave their mapping out, or give each part a tensor of its own",
            )
            raise error.located(str(einsum.place), "einsum.expressions", (f"expression: {einsum.text}",))


def _with_tensors(spec: Spec, steps: list[Step], runs: Sequence[tuple[list[Step], bool]]) -> Spec:
    """The part of a specification that is about some steps."""
    reads = {t for e in einsums_of(steps) for t in e.reads}
    writes = dict.fromkeys(e.name for e in einsums_of(steps))
    elsewhere = {t for other, _ in runs if other is not steps for e in einsums_of(other) for t in e.reads}
    cascade = spec.cascade
    outputs = [t for t in cascade.outputs if t in writes]
    outputs += [t for t in writes if t in elsewhere and t not in outputs]
    tensors = {n: t for n, t in cascade.tensors.items() if n in reads or n in writes}
    held = replace(cascade, tensors=tensors, steps=tuple(steps), outputs=tuple(outputs))
    ranks = known_ranks(held)
    held = replace(held, sizes={r: n for r, n in cascade.sizes.items() if r in ranks})
    return replace(spec, cascade=held, placements={
        key: p for key, p in spec.placements.items() if key[1] in writes
    })  # fmt: skip


def _placed(spec: Spec, shared: set[str]) -> Spec:
    """A section in which tensors that others use too, and those of one element, lie as declared."""
    cascade = spec.cascade
    bare = {n for n, t in cascade.tensors.items() if prod(cascade.sizes.get(r, 2) for r in t.ranks) == 1}
    plain = shared | bare
    placements = {}
    for key, placed in spec.placements.items():
        if placed.tensor in plain and placed.component == "HBM":
            _need_declared_order(spec, placed)
            placed = replace(placed, is_plain=True)
        placements[key] = placed
    return replace(spec, plain=spec.plain | plain, placements=placements)


def _need_declared_order(spec: Spec, placed: Placement) -> None:
    """Refuse another layout in HBM than the declared one."""
    ranks, tensor = Ranks(spec), spec.cascade.tensors[placed.tensor]
    wanted = tuple(part for r in tensor.ranks for part in ranks.names_after(placed.einsum, r))
    if placed.ranks not in (wanted, tensor.ranks):
        node = within(placed.node, "ranks")
        error = UnsupportedError(
            f"{tensor.name} lies in HBM as [{', '.join(placed.ranks)}], and Einsums without a mapping use it "
            f"as [{', '.join(wanted)}]",
            hint="leave this entry out",
        )
        raise error.located(str(node.place), node.path)
