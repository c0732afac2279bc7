"""All checks in order: names before what they refer to, so that one mistake is told once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...machine import Machine
from ..grades import Finding, Grade
from ..language.spec import Spec
from . import advice, engines, layouts, loops, memory
from .model import Model
from .names import check_cascade, check_references

# Of a stage that finds an error the next ones are not asked: they rely on it.
STAGES = (
    (loops.check_splits, loops.check_orders, layouts.check_placements),
    (loops.check_fusion, loops.check_consumed, engines.check_instructions, layouts.check_tiles),
    (loops.check_dependences, loops.check_carried, loops.check_scopes, layouts.check_orders, layouts.check_views,
     layouts.check_shapes, memory.check_memory),
    (advice.check_rows, advice.check_repeats, advice.check_zeros),
)  # fmt: skip


def judge(spec: Spec, machine: Machine) -> tuple[Finding, ...]:
    """Everything that may be wrong with a specification, in the order of its text.

    Args:
        spec: names in its expressions exist; extents as far as known.
        machine: the chip that it is for.
    """
    found = list(check_cascade(spec))
    if not _has_error(found):
        found += check_references(spec)
    if not _has_error(found):
        found += _mapped(Model(spec, machine))
        found += [*advice.check_format(spec), *advice.check_use(spec)]
    return tuple(sorted(found, key=lambda f: (f.node.place.line, f.node.place.column)))


def _mapped(model: Model) -> Iterator[Finding]:
    for stage in STAGES:
        found = [finding for check in stage for finding in check(model)]
        yield from found
        if _has_error(found):
            return


def _has_error(found: list[Finding]) -> bool:
    return any(f.grade is Grade.ERROR for f in found)


def repaired(spec: Spec, findings: tuple[Finding, ...]) -> Spec:
    """A specification as the report says it was taken."""
    ids = {f.row.id for f in findings if f.grade is Grade.REPAIR}
    held = spec
    if ids & {"fusion-list", "fusion-singletons"}:
        fusion = tuple(
            replace(f, einsums=None, groups=tuple(g for g in f.groups if len(g) > 1)) for f in spec.fusion
        )
        held = replace(held, fusion=fusion)
    for finding in findings:
        if finding.row.id == "rank-order":
            held = replace(held, rank_order={})
        elif finding.row.id == "consumed-and-looped":
            held = _without_loops(held, finding)
        elif finding.row.id == "unit-rank":
            held = _without_unit(held, finding)
    return held


def _without_loops(spec: Spec, finding: Finding) -> Spec:
    """Execution without a rank that a loop runs over."""
    engines = {
        e: replace(x, ranks=tuple(r for r in x.ranks if r != finding.about[1])) if e == finding.about[0] else x
        for e, x in spec.engines.items()
    }
    return replace(spec, engines=engines)


def _without_unit(spec: Spec, finding: Finding) -> Spec:
    """Layouts of a tensor without a rank of one element."""
    tensor, rank = finding.about
    placements = {
        key: replace(p, inner=tuple(r for r in p.inner if r != rank)) if key == (tensor, tensor) else p
        for key, p in spec.placements.items()
    }
    return replace(spec, placements=placements)
