"""From a cascade with extents to a kernel: rewrites, then one form, then the loop tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from ...machine import Machine
from ..hardware import Hardware
from ..language.ast import Cascade
from ..lower.stencil import stencils_in, with_whole_operands
from ..rewrite.common import with_common_results, with_shared_names
from ..rewrite.defer import deferred
from ..rewrite.diagonals import with_diagonals
from ..rewrite.inlined import inlined
from ..rewrite.recurrences import with_scans
from ..rewrite.scales import with_scales_last
from ..rewrite.splits import with_split_ranks
from ..tree.nodes import Kernel
from .context import Context
from .edges import turned_once, with_edges, with_halos
from .forwards import with_forward_indices
from .given import NOTHING, Given
from .groups import ordered_steps
from .knobs import RULES, Knobs, Picker
from .normal import normal
from .recurrence import without_turns
from .rewritten import beyond_decays, rewritten_by
from .stage import BeyondEdges
from .steps import Lowering


def lower(
    cascade: Cascade, dtypes: Mapping[str, str], machine: Machine, name: str, title: str = "",
    knobs: Knobs = RULES, given: Given = NOTHING,
) -> tuple[Kernel, Context]:  # fmt: skip
    """The loop tree of a cascade; see `Planning`."""
    return Planning(cascade, dtypes, machine, name, title, given).of(knobs)


class Planning:
    """The loop trees of a cascade.

    Args:
        cascade: every rank has an extent.
        dtypes: of inputs and outputs; others are computed in float32.
    """

    def __init__(
        self, cascade: Cascade, dtypes: Mapping[str, str], machine: Machine, name: str, title: str = "",
        given: Given = NOTHING,
    ) -> None:  # fmt: skip
        self.dtypes, self.machine, self.given, self.hardware = dtypes, machine, given, Hardware(machine)
        is_free = not any(given.instruction(e.name) for e, block in cascade.walk() if block is not None)
        cascade, left_out = inlined(cascade) if is_free and not given.is_watched else (cascade, [])
        self.cascade = cascade if given.is_watched else with_diagonals(cascade)
        apart = self.cascade if given.is_watched else with_split_ranks(self.cascade, are_shared=True)
        self.scans, self.stepwise = with_scans(apart) if is_free else (apart, dict[str, str]())
        self.left_out = left_out
        self.known: list[tuple[Picker, Cascade, list[str]]] = []
        self.nests: list[tuple[Picker, Lowering]] = []
        self.cascades: dict[str, Cascade] = {}
        self.lowering = partial(
            Lowering, self.cascade, dtypes=dtypes, hardware=self.hardware, name=name, title=title
        )

    def of(self, knobs: Knobs) -> tuple[Kernel, Context]:
        """A tree and its plan.

        Raises:
            UnsupportedError: if an Einsum has a form that no nest covers.
            PlanError: if a choice leads to where no nest goes on; a fault of the rules.
        """
        picker, form, reasons = self.form(knobs)
        alike = (nests for own, nests in self.nests if own is picker and nests.lays_alike(knobs))
        if (nests := next(alike, None)) is None:
            nests = self.laid_out(form, knobs)
            self.nests.append((picker, nests))
        tree, ctx = nests.planned(knobs)
        ctx.choices.extend(reasons)
        ctx.decisions[:0] = picker.decisions
        return tree, ctx

    def laid_out(self, form: Cascade, knobs: Knobs) -> Lowering:
        """The nests of a cascade in one form."""
        held = without_turns(ordered_steps(form) if knobs.is_ordered else form)
        if self.given.is_watched:
            return self.lowering(held, knobs=knobs, fixed=self.given, edges={}).laid_out()
        held, back = with_forward_indices(held)
        held = with_whole_operands(held, self.machine)
        stencils = stencils_in(held, self.machine)
        held = with_halos(held, stencils, int(self.machine["partitions"]))

        def nests(knobs: Knobs) -> Lowering:
            known, edges = with_edges(held, held.types(self.dtypes), self.machine, knobs, stencils)
            # of cascades that are alike one: what is judged of an Einsum is known by its identity
            known = self.cascades.setdefault(repr(known), known)
            return self.lowering(known, knobs=knobs, fixed=self.given, edges=back | edges).laid_out()

        try:
            return nests(knobs)
        except BeyondEdges:
            return nests(replace(knobs, is_edged=True))

    def form(self, knobs: Knobs) -> tuple[Picker, Cascade, list[str]]:
        """The cascade in one form as choices want it, what was decided, and reasons."""
        for known in self.known:
            if known[0].decides_alike(knobs):
                return known
        partitions, picker = int(self.machine["partitions"]), Picker(knobs, is_rewrite=True)
        held, risks = self.scans, list[str]()
        if not self.given.is_watched:
            held = rewritten_by(picker, _deferred(held, self.dtypes), partitions, self.machine)
            risks = beyond_decays(self.scans, held, partitions)
            held = rewritten(held, self.dtypes, self.machine)
        turns = {block.variable for block in self.scans.blocks}
        stay = {e.name for block in held.blocks if block.variable in turns for e in block.body}
        stepwise = (why for state, why in self.stepwise.items() if state in stay)
        reasons = [*self.left_out, *stepwise, *risks]
        form = normal(held, partitions, self.given.plain, machine=self.machine, picker=picker)
        form = form if self.given.is_watched else with_shared_names(with_common_results(form))
        self.known.append((picker, form, reasons))
        return self.known[-1]


def rewritten(cascade: Cascade, dtypes: Mapping[str, str], machine: Machine) -> Cascade:
    """A cascade with the same results that is faster to compute."""
    return turned_once(_deferred(cascade, dtypes), dtypes, machine)


def _deferred(cascade: Cascade, dtypes: Mapping[str, str]) -> Cascade:
    # float16 has no room for what a factor has yet to make smaller
    if "float16" in dtypes.values():
        return cascade
    scaled = with_scales_last(cascade)
    return deferred(scaled, scaled.types(dtypes))
