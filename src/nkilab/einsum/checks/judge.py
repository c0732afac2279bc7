"""All checks in order: names before what they refer to, so that one mistake is told once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...machine import Machine
from ..grades import Finding, Grade
from ..language.spec import Spec
from . import advice, engines, layouts, loops, memory
from .model import Model
from .names import check_cascade, check_references, check_writers

Check = Callable[[Model], Iterator[Finding]]

# Of a stage that finds an error the next ones are not asked: they rely on it.
STAGES: tuple[tuple[Check, ...], ...] = (
    (loops.check_splits, loops.check_orders, layouts.check_placements),
    (loops.check_fusion, loops.check_consumed, engines.check_instructions, layouts.check_tiles),
    (
        loops.check_dependences,
        loops.check_carried,
        loops.check_scopes,
        layouts.check_orders,
        layouts.check_views,
        layouts.check_starts,
        layouts.check_shapes,
        memory.check_memory,
    ),
    (advice.check_rows, advice.check_repeats, advice.check_zeros),
)


# what can be said of a mapping some parts of which are missing
ENGINES, FUSION = (engines.check_engines,), (loops.check_fusion,)
GIVEN = ((loops.check_parts, loops.check_orders, layouts.check_placements), ENGINES, FUSION)


def judge(
    spec: Spec, machine: Machine, stages: tuple[tuple[Check, ...], ...] = STAGES
) -> tuple[Finding, ...]:
    """Everything that may be wrong with a specification, in the order of its text.

    Args:
        spec: names in its expressions exist; extents as far as known.
        stages: of checks of the mapping: all, or `GIVEN` for what is not completed yet.
    """
    found = list(check_cascade(spec))
    if not _has_error(found):
        found += check_references(spec)
        # a plan may keep what is given for each of several
        found += check_writers(spec) if stages is STAGES else ()
    if not _has_error(found):
        found += _mapped(Model(spec, machine), stages)
        found += [*advice.check_format(spec), *advice.check_use(spec), *advice.check_differences(spec)]
    return tuple(sorted(found, key=lambda f: (f.node.place.line, f.node.place.column)))


def _mapped(model: Model, stages: tuple[tuple[Check, ...], ...]) -> Iterator[Finding]:
    for stage in stages:
        found = [finding for check in stage for finding in check(model)]
        yield from found
        if _has_error(found):
            return


def _has_error(found: list[Finding]) -> bool:
    return any(f.grade is Grade.ERROR for f in found)
