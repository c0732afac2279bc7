"""The kernel of a mapped specification: of a plan that keeps all entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...errors import UnsupportedError
from ...machine import Machine
from ..compiled import CompiledEinsum
from ..grades import Finding
from ..language.extents import sized
from ..language.spec import Spec
from ..prove import prove
from ..rewrite.live import live
from ..tree.nodes import Kernel, run_by
from .followed import Entry
from .guided import Guide, Guided
from .hbm_layouts import laid_out
from .nests import is_whole
from .opened import open_ranks, opened, points

# statements of a kernel that is timed beside others
MOST_TIMED = 20_000


# a kernel of its tree, the specification, findings, notes and proofs
Compiled = Callable[[Kernel, Spec, tuple[Finding, ...], Sequence[str], Sequence[str]], CompiledEinsum]


def kernel_of(
    spec: Spec, machine: Machine, title: str, found: tuple[Finding, ...], compiled: Compiled
) -> CompiledEinsum:
    """The kernel of a specification with a mapping.

    Args:
        spec: with extents as far as they are given.
        compiled: makes a kernel of a tree.

    Raises:
        SpecError: if what is given contradicts itself.
        UnsupportedError: if no kernel keeps all that is given.
    """
    if not open_ranks(spec):
        plans = plans_of(spec, machine, title)
        kernels = [planned(spec, p, found, compiled) for p in plans]
        short = [k for k in kernels if k.tree is not None and run_by(k.tree.body) <= MOST_TIMED]
        if len(short) < 2:
            return (short or kernels)[0]
        return min(short, key=lambda kernel: kernel.estimate.latency_us)
    plans = [plans_of(at, machine, title)[0] for at in points(spec)]
    tree, proofs = opened(spec, [p.kernel for p in plans], machine)
    plan = replace(plans[0], kernel=tree, proofs=(*plans[0].proofs, *proofs))
    return planned(spec, plan, found, compiled)


def guide_of(spec: Spec, machine: Machine, title: str) -> Guide:
    """What plans a cascade under its mapping; all extents are known."""
    return Guide(spec, live(sized(spec.cascade))[0], machine, title)


def in_layouts(spec: Spec, plan: Guided, machine: Machine) -> Guided:
    """A plan of a whole mapping with tensors of HBM as it has them."""
    kernel = laid_out(spec, plan.kernel) if is_whole(spec) else plan.kernel
    is_same = kernel is plan.kernel
    return plan if is_same else replace(plan, kernel=kernel, proofs=tuple(prove(kernel, machine)))


def plans_of(spec: Spec, machine: Machine, title: str) -> list[Guided]:
    """Plans of a specification with all extents, which keep all that is given."""
    guide = guide_of(spec, machine, title)
    plans = list(guide.plans())
    if not plans:
        raise _refused(spec, guide)
    return [in_layouts(spec, plan, machine) for plan in plans]


def planned(spec: Spec, guided: Guided, found: tuple[Finding, ...], compiled: Compiled) -> CompiledEinsum:
    """The kernel of a plan; where a mapping says a part alone, tensors of HBM lie as declared."""
    is_plain = not is_whole(spec)
    placements = {k: replace(p, is_plain=is_plain) for k, p in spec.placements.items()}
    notes = (*guided.changes, *guided.ctx.choices)
    is_planned = is_plain and not guided.given.nests
    notes = ("completed: by a plan that keeps all that is given", *notes) if is_planned else notes
    return compiled(guided.kernel, replace(spec, placements=placements), found, notes, guided.proofs)


def _refused(spec: Spec, guide: Guide) -> UnsupportedError:
    """The error for a mapping that no plan keeps, at the first entry that the nearest plan does not keep."""
    entries = guide.broken
    if not entries:
        node = next(n for n in (spec.node(key) for key in ("mapping", "binding")) if n.path)
        entries = (Entry(node, f"no plan keeps this: {guide.problem}"),)
    paths = [e.node.path for e in entries]
    rest = f"; nor does it keep {', '.join(paths[1:])}" if paths[1:] else ""
    hint = f"leave {' and '.join(paths)} out"
    if guide.faults:
        hint += f"; a plan that may keep it ends in a fault of nkilab, please report it: {guide.faults[0]}"
    refused = UnsupportedError(f"{entries[0].told}{rest}", hint=hint)
    refused.located(str(entries[0].node.place), paths[0])
    return refused
