"""From a cascade with extents to a kernel: rewrites, then one form, then the loop tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...machine import Machine
from ..language.ast import Cascade
from ..lower.stencil import stencils_in
from ..rewrite.diagonals import with_diagonals
from ..rewrite.recurrences import with_scans
from ..rewrite.shared_names import with_shared_names
from ..tree.nodes import Kernel
from .context import Context
from .defer import deferred
from .edges import with_edges
from .forwards import with_forward_indices
from .given import NOTHING, Given
from .groups import ordered_steps
from .inlined import inlined
from .knobs import RULES, Knobs, Picker
from .normal import normal
from .recurrence import without_turns
from .rewritten import beyond_decays, rewritten_by
from .stage import BeyondEdges
from .steps import Lowering
from .turned import turned_once


def lower(
    cascade: Cascade, dtypes: Mapping[str, str], machine: Machine, name: str, title: str = "",
    knobs: Knobs = RULES, given: Given = NOTHING,
) -> tuple[Kernel, Context]:  # fmt: skip
    """The loop tree of a cascade.

    Args:
        cascade: every rank has an extent.
        dtypes: of inputs and outputs; others are computed in float32.

    Raises:
        UnsupportedError: if an Einsum has a form that no nest covers.
        PlanError: if a choice leads to where no nest goes on; a fault of the rules.
    """
    partitions = int(machine["partitions"])
    is_free = not any(given.instruction(e.name) for e, block in cascade.walk() if block is not None)
    cascade, left_out = inlined(cascade) if is_free and not given.is_watched else (cascade, [])
    cascade = cascade if given.is_watched else with_diagonals(cascade)
    held, reasons = with_scans(cascade) if is_free else (cascade, [])
    reasons = [*left_out, *reasons]
    picker = Picker(knobs, is_rewrite=True)
    if not given.is_watched:
        scans, held = held, rewritten_by(picker, held, partitions, machine)
        reasons += beyond_decays(scans, held, partitions)
        held = rewritten(held, dtypes, machine)
    form = normal(held, partitions, given.plain, machine=machine, picker=picker)
    form = form if given.is_watched else with_shared_names(form)
    held = without_turns(ordered_steps(form) if knobs.is_ordered else form)
    if given.is_watched:
        return Lowering(cascade, held, dtypes, machine, name, title, knobs, given, {}).planned()
    held, back = with_forward_indices(held)
    stencils = stencils_in(held, machine)

    def kernel(knobs: Knobs) -> tuple[Kernel, Context]:
        known, edges = with_edges(held, held.types(dtypes), machine, knobs, stencils)
        lowering = Lowering(cascade, known, dtypes, machine, name, title, knobs, given, back | edges)
        tree, ctx = lowering.planned()
        ctx.choices.extend(reasons)
        ctx.decisions[:0] = picker.decisions
        return tree, ctx

    try:
        return kernel(knobs)
    except BeyondEdges:
        return kernel(replace(knobs, is_edged=True))


def rewritten(cascade: Cascade, dtypes: Mapping[str, str], machine: Machine) -> Cascade:
    """A cascade with the same results that is faster to compute."""
    # float16 has no room for what a factor has yet to make smaller
    held = cascade if "float16" in dtypes.values() else deferred(cascade)
    return turned_once(held, dtypes, machine)
