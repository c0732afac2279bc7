"""The kernel of a mapped specification: as given where all is given, else completed, section by section."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...errors import UnsupportedError
from ...machine import Machine
from ..checks.judge import GIVEN, judge
from ..checks.names import check_writers
from ..grades import Finding, Grade, enforce
from ..language.ast import Cascade
from ..language.extents import sized
from ..language.spec import Placement, Spec
from ..plan.lower import lower
from ..plan.normal import live
from ..prove import prove
from ..tree.nodes import Kernel, run_by
from .build import build
from .complete import completed, is_whole
from .culprit import FAILURES, explained, is_entry, is_of_cascade, is_told
from .guided import Guide, Guided
from .join import joined
from .sections import Section, is_free, sections_of
from .words import clipped

# statements of a kernel that is timed beside others
MOST_TIMED = 20_000


@dataclass(frozen=True)
class Mapped:
    """A kernel with a mapping.

    Args:
        tree: of it.
        spec: with everything that was completed.
        findings: those given, and those in what was completed.
        changes: notes for the report.
        proofs: what was proved.
    """

    tree: Kernel
    spec: Spec
    findings: tuple[Finding, ...]
    changes: tuple[str, ...]
    proofs: tuple[str, ...]


Judge = Callable[[Mapped], float]


def kernel_of(
    spec: Spec, machine: Machine, title: str, found: tuple[Finding, ...], strict: bool, judge_of: Judge
) -> Mapped:  # fmt: skip
    """The kernel of a specification with a mapping.

    Args:
        spec: with extents as far as they are given.
        machine: the chip.
        title: of the kernel.
        found: findings so far.
        strict: whether repairs are refused.
        judge_of: predicts the latency of one of several kernels.

    Raises:
        SpecError: if what is given contradicts itself.
        UnsupportedError: if no kernel keeps all that is given.
    """
    try:
        return _made(spec, machine, title, found, strict, judge_of)
    except FAILURES as error:
        if is_whole(spec) or is_told(error) or is_of_cascade(error):
            raise

        def build(rest: Spec) -> Mapped:
            enforce(judge(rest, machine, GIVEN))
            return _made(rest, machine, title, (), False, None)

        raise explained(spec, error, build) from error


def guide_of(spec: Spec, machine: Machine, title: str) -> Guide | None:
    """What plans a cascade under its mapping; None where that is whole, or extents are open."""
    ranks = {r for t in spec.cascade.tensors.values() for r in t.ranks}
    if is_whole(spec) or not ranks <= set(spec.cascade.sizes):
        return None
    return Guide(spec, live(sized(spec.cascade))[0], machine, title)


def _made(
    spec: Spec, machine: Machine, title: str, found: tuple[Finding, ...], strict: bool,
    judge_of: Judge | None,
) -> Mapped:  # fmt: skip
    """The fastest of the plans that keep what is given; completed by rules where there is none."""
    guide = guide_of(spec, machine, title)
    plans = [] if guide is None else list(guide.plans(is_brief=judge_of is None))
    kernels = [planned(spec, p, found) for p in plans]
    if judge_of is None or len(kernels) == 1:
        return kernels[0] if kernels else _completed(spec, machine, title, found, strict)
    if kernels:
        try:
            kernels.append(_completed(spec, machine, title, found, strict))
        except (*FAILURES, AssertionError):
            # plans keep what is given where rules do not reach it
            pass
        short = [k for k in kernels if run_by(k.tree.body) <= MOST_TIMED]
        return min(short, key=judge_of) if short else kernels[0]
    return _completed(spec, machine, title, found, strict)


def planned(spec: Spec, guided: Guided, found: tuple[Finding, ...]) -> Mapped:
    """The kernel of the planner, which lays tensors of HBM out as declared."""
    placements = {k: replace(p, is_plain=True) for k, p in spec.placements.items()}
    held = replace(spec, placements=placements)
    told = "completed: by a plan that keeps all that is given"
    return Mapped(guided.kernel, held, found, (told, *guided.ctx.choices), guided.proofs)


def _completed(spec: Spec, machine: Machine, title: str, found: tuple[Finding, ...], strict: bool) -> Mapped:
    """The kernel with every loop, instruction and place as given, or added by rules."""
    enforce(check_writers(spec))
    _need_used_inputs(spec.cascade)
    spec = clipped(spec)
    if not is_free(spec):
        # Einsums without a mapping are compiled for their extents
        spec = replace(spec, cascade=sized(spec.cascade))
    maker = _Maker(machine, spec.kernel_name, title, strict, list(found))
    if is_free(spec):
        tree, whole = maker.mapped(spec)
    else:
        sections, notes = sections_of(spec)
        maker.changes += notes
        tree, whole = maker.sections(sections, spec)
    proofs = prove(tree, machine)
    return Mapped(tree, whole, tuple(maker.found), tuple(dict.fromkeys(maker.changes)), tuple(proofs))


class _Maker:
    def __init__(self, machine: Machine, name: str, title: str, strict: bool, found: list[Finding]) -> None:
        self.machine, self.name, self.title, self.strict = machine, name, title, strict
        self.found, self.changes = found, []  # type: list[Finding], list[str]

    def mapped(self, spec: Spec) -> tuple[Kernel, Spec]:
        """Einsums with a mapping, completed where parts of it are missing."""
        whole, notes = completed(spec, self.machine)
        if whole is not spec:
            before = {(f.row.id, f.place) for f in self.found}
            self.found += [f for f in judge(whole, self.machine) if _is_told(f, before)]
            enforce(self.found, strict=self.strict)
        kernel, changes = build(whole, self.machine, self.name, self.title)
        self.changes += [*notes, *changes]
        return kernel, whole

    def sections(self, sections: list[Section], spec: Spec) -> tuple[Kernel, Spec]:
        """Sections one after the other in one kernel; the specification has what was completed of all."""
        kernels, types = [], dict(spec.dtypes)
        placements: dict[tuple[str, str], Placement] = {}
        splits = dict(spec.partitioning)
        for section in sections:
            held = replace(section.spec, dtypes=types)
            if section.is_mapped:
                kernel, whole = self.mapped(held)
                placements |= whole.placements
                splits |= whole.partitioning
                types |= {t: whole.dtypes[t] for t in held.cascade.outputs if t in whole.dtypes}
            else:
                kernel, ctx = lower(held.cascade, types, self.machine, self.name)
                self.changes += ctx.choices
            kernels.append(kernel)
        placements = {k: p for k, p in placements.items() if p.component == "HBM"}
        tree = joined(kernels, spec.cascade, self.name, self.title) if len(kernels) > 1 else kernels[0]
        return tree, replace(spec, placements=placements, dtypes=types, partitioning=splits)


def _is_told(finding: Finding, before: set[tuple[str, str]]) -> bool:
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
