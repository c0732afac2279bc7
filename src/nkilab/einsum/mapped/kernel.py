"""The kernel of a mapped specification: of a plan that keeps all entries, else of a mapping that is whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...errors import SpecError, UnsupportedError
from ...machine import Machine
from ..checks.judge import judge
from ..checks.names import check_writers
from ..compiled import CompiledEinsum
from ..grades import Finding, Grade, enforce
from ..language.ast import Cascade
from ..language.extents import sized
from ..language.spec import Spec
from ..plan.normal import live
from ..prove import prove
from ..sets import ProofError
from ..tree.nodes import Kernel, run_by
from .build import build
from .complete import completed, is_entry, is_instructions, is_whole
from .followed import Entry
from .guided import Guide, Guided, is_of_cascade

# statements of a kernel that is timed beside others
MOST_TIMED = 20_000


# a kernel of its tree, the specification with all that was completed, findings, notes and proofs
Compiled = Callable[[Kernel, Spec, tuple[Finding, ...], Sequence[str], Sequence[str]], CompiledEinsum]


def kernel_of(
    spec: Spec, machine: Machine, title: str, found: tuple[Finding, ...], strict: bool, compiled: Compiled
) -> CompiledEinsum:
    """The kernel of a specification with a mapping.

    Args:
        spec: with extents as far as they are given.
        compiled: makes a kernel of a tree.

    Raises:
        SpecError: if what is given contradicts itself.
        UnsupportedError: if no kernel keeps all that is given.
    """
    if is_whole(spec):
        return _built(spec, machine, title, found, strict, compiled)
    guide = guide_of(spec, machine, title)
    kernels = [planned(spec, p, found, compiled) for p in guide.plans()] if guide is not None else []
    failure: Exception | None = None
    try:
        if is_instructions(spec.cascade):
            kernels.append(_built(spec, machine, title, found, strict, compiled))
    except (SpecError, UnsupportedError, ProofError) as error:
        failure = error
    if failure is not None and (
        is_of_cascade(failure) or (not kernels and is_entry(getattr(failure, "called", "")))
    ):
        raise failure
    if not kernels:
        raise _refused(spec, guide, failure) from failure
    short = [k for k in kernels if k.tree is not None and run_by(k.tree.body) <= MOST_TIMED]
    if len(short) < 2:
        return (short or kernels)[0]
    return min(short, key=lambda kernel: kernel.estimate.latency_us)


def guide_of(spec: Spec, machine: Machine, title: str) -> Guide | None:
    """What plans a cascade under its mapping; None where that is whole, or extents are open."""
    ranks = {r for t in spec.cascade.tensors.values() for r in t.ranks}
    if is_whole(spec) or not ranks <= set(spec.cascade.sizes):
        return None
    return Guide(spec, live(sized(spec.cascade))[0], machine, title)


def planned(spec: Spec, guided: Guided, found: tuple[Finding, ...], compiled: Compiled) -> CompiledEinsum:
    """The kernel of the planner, which lays tensors of HBM out as declared."""
    placements = {k: replace(p, is_plain=True) for k, p in spec.placements.items()}
    notes = ("completed: by a plan that keeps all that is given", *guided.ctx.choices)
    return compiled(guided.kernel, replace(spec, placements=placements), found, notes, guided.proofs)


def _refused(spec: Spec, guide: Guide | None, error: Exception | None = None) -> UnsupportedError:
    """The error for a mapping that no plan keeps, at the first entry that the nearest plan does not keep."""
    entries = guide.broken if guide is not None else ()
    if not entries:
        node = next(n for n in (spec.node(key) for key in ("mapping", "binding")) if n.path)
        problem = str(getattr(error, "problem", error or "")) or "extents are open"
        entries = (Entry(node, f"no plan keeps this, and what follows from it is no kernel: {problem}"),)
    paths = [e.node.path for e in entries]
    rest = f"; nor does it keep {', '.join(paths[1:])}" if paths[1:] else ""
    hint = f"leave {' and '.join(paths)} out"
    if guide is not None and guide.faults:
        hint += f"; a plan that may keep it ends in a fault of nkilab, please report it: {guide.faults[0]}"
    refused = UnsupportedError(f"{entries[0].told}{rest}", hint=hint)
    refused.located(str(entries[0].node.place), paths[0])
    return refused


def _built(
    spec: Spec, machine: Machine, title: str, found: tuple[Finding, ...], strict: bool, compiled: Compiled
) -> CompiledEinsum:
    """The kernel with every loop, instruction and place as given, or as follows from what is given."""
    enforce(check_writers(spec))
    _need_used_inputs(spec.cascade)
    whole, notes = completed(spec, machine)
    findings = list(found)
    if whole is not spec:
        before = {(f.row.id, f.place) for f in found}
        findings += [f for f in judge(whole, machine) if _is_news(f, before)]
        enforce(findings, strict=strict)
    tree, changes = build(whole, machine, spec.kernel_name, title)
    changes = list(dict.fromkeys((*notes, *changes)))
    return compiled(tree, whole, tuple(findings), changes, prove(tree, machine))


def _is_news(finding: Finding, before: set[tuple[str, str]]) -> bool:
    """Whether a finding in a completed mapping is one about what is given, or says that both do not fit."""
    is_new = (finding.row.id, finding.place) not in before
    return is_new and (finding.grade is Grade.ERROR or is_entry(finding.node.path))


def _need_used_inputs(cascade: Cascade) -> None:
    """Refuse inputs that no Einsum reads."""
    read = {t for e in cascade.einsums for t in e.reads}
    for tensor in cascade.inputs:
        if tensor not in read:
            error = UnsupportedError(f"{tensor} is used by no Einsum, and a mapping places it nowhere",
                                     hint="leave it out")  # fmt: skip
            raise error.located(str(cascade.tensors[tensor].place), "einsum.declaration")
