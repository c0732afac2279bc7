"""Estimates: what a traced launch takes in time, and what every view of it is made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp
from typing import Any

import numpy as np

from . import kept_estimates
from ._lazy import part
from .conformal import Band, Traits, residuals, traits_of
from .cores import neighbours, signature, simulate_together
from .machine import LINKS
from .place import Plan, plan
from .place.compiler_passes import compiled
from .progress import phase
from .timing import Timeline, simulate
from .trace.program import Program, program_until
from .views.cores import Cores, OneCore, Together
from .views.guidance import Guidance
from .views.run import Run
from .views.summary import Summary, hbm_traffic, summarize


@dataclass(frozen=True)
class Estimate:
    """A latency predicted from shapes, with how sure it is.

    Args:
        kernel_name: of the function.
        target: name of the chip.
        program: what was traced, as the compiler leaves it.
        plan: addresses, reuse and spills.
        timeline: when everything happens.
        notes: what the numbers leave out.
        cores: of a launch over several cores, all of them; program, plan and timeline are of the slowest.
        one_core: the same launch on one core; None if one does not do all of it, or nobody looked.
        beside_bytes: what the core that shares its HBM reads and writes there.
        written: the program as the kernel wrote it; None where only what the compiler left is known.
    """

    kernel_name: str
    target: str
    program: Program = field(repr=False)
    plan: Plan = field(repr=False)
    timeline: Timeline = field(repr=False)
    notes: tuple[str, ...] = field(default=(), repr=False)
    cores: tuple[Cores, ...] = field(default=(), repr=False)
    one_core: OneCore | None = field(default=None, repr=False)
    beside_bytes: float = field(default=0.0, repr=False)
    written: Program | None = field(default=None, repr=False)

    @property
    def latency_us(self) -> float:
        """Microseconds from the start of the kernel on the NeuronCore to its end."""
        return self.timeline.latency_ns / 1000

    @property
    def interval_us(self) -> tuple[float, float]:
        """Microseconds between which the latency is believed to lie, nine times of ten."""
        low, high = self.shares_within(self.band)
        return self.latency_us * low, self.latency_us * high

    def shares_within(self, band: Band) -> tuple[float, float]:
        """Least and most of the latency by a band, widened by what assumed costs contribute to the work.

        The least is never below a tenth.
        """
        factor = exp(band.half_width * self._widening)
        return max(1 / factor, 0.1), factor

    @cached_property
    def band(self) -> Band:
        """How far the latency may be off, by the errors of measured kernels."""
        return residuals().band(self.traits)

    @cached_property
    def traits(self) -> Traits:
        """How the kernel uses its chip."""
        machine = self.program.machine
        return traits_of(self.summary.values, machine["dma_engines"], machine.name, self.program.compiler)

    @property
    def cautions(self) -> tuple[str, ...]:
        """What says how sure the latency is, if nothing that was measured is like the kernel."""
        if not self.band.is_unlike:
            return ()
        *others, last = self.band.nearest
        return (
            "no measured kernel uses the chip as this one does, so the interval is wide; the most similar "
            f"are {', '.join(others)} and {last}",
        )

    @cached_property
    def _widening(self) -> float:
        """The mean of the steps' widening factors, weighted by the time they keep their engine busy.

        A transfer counts as long as all DMA engines together need for its bytes.
        """
        forms, machine = self.program.forms, self.program.machine
        rate = machine["dma_engines"] * machine["dma_bytes_per_ns"]
        counts = np.bincount(np.asarray(self.program.form_column, np.int64), minlength=len(forms)).tolist()
        spent = [
            (count * (step.busy_ns + step.moved_bytes / rate), step.widening)
            for form, count in zip(forms, counts, strict=True)
            for step in form.steps
        ]
        total = sum(time for time, _ in spent)
        return sum(time * factor for time, factor in spent) / total if total else 1.0

    @cached_property
    def link_bytes(self) -> dict[str, int]:
        """Bytes that this program receives from other ranks, by what carries them (`machine.LINKS`).

        Of a launch over several cores the slowest is told of; `cores` has the others.
        """
        forms = self.program.forms
        counts = np.bincount(np.asarray(self.program.form_column, np.int64), minlength=len(forms)).tolist()
        moved = dict.fromkeys(LINKS, 0)
        for form, count in zip(forms, counts, strict=True):
            for stage in (stage for step in form.steps for stage in step.stages):
                moved[stage.link] += count * stage.moved_bytes
        return moved

    @property
    def window_us(self) -> float:
        """Microseconds from the first to the last DMA byte."""
        return self.timeline.window_ns / 1000

    @property
    def profile_us(self) -> float:
        """Microseconds that a profile of the kernel spans: the latency, and what the profiler adds."""
        return self.latency_us + self.program.machine["profile_extra_ns"] / 1000

    @property
    def mfu_percent(self) -> float:
        """Model FLOPs utilization of all cores together."""
        return self.summary["mfu_estimated_percent"] if self.together is None else self.together.mfu_percent

    @cached_property
    def summary(self) -> Summary:
        """Metrics under the names of the vendor's profiler."""
        return summarize(self.program, self.plan, self.timeline, self.beside_bytes)

    @cached_property
    def run(self) -> Run:
        """What views of the run are made from: critical path, stalls, lines, memories, transfers."""
        notes = (*self.program.notes, *self.cautions)
        return Run(
            self.program, self.plan, self.timeline, self.summary, self.interval_us, notes, self.together,
            self._guided,
        )  # fmt: skip

    def _guided(self) -> Guidance:
        """What to do next; looking for it takes as long as several estimates."""
        # most estimates do without, so that its rules are loaded with the first that does not
        guidance: Guidance = part("advice").guidance_of(
            self.written or self.program, self.program, self.plan, self.timeline, self.summary
        )
        return guidance

    @cached_property
    def together(self) -> Together | None:
        """All cores of the launch; None if there is one."""
        if not self.cores:
            return None
        shown = next(c for c, one in enumerate(self.cores) if one.estimate.timeline is self.timeline)
        return Together(self.cores, shown, self.one_core)

    def _repr_html_(self) -> str:
        # a terminal does without the pages that notebooks show
        html: str = part("views.notebook").short_html(self.run)
        return html

    def to_dict(self) -> dict[str, Any]:
        """Everything but the rows, ready for JSON."""
        low, high = self.interval_us
        return {
            "schema": "nkilab.estimate/1",
            "kernel": self.kernel_name,
            "target": self.target,
            "model_version": self.timeline.model,
            "latency_us": self.latency_us,
            "interval_us": [low, high],
            "bound": self.summary.bound,
            "nearest_measured": list(self.band.nearest),
            "is_unlike_measured": self.band.is_unlike,
            "window_us": self.window_us,
            "profile_us": self.profile_us,
            "notes": [*self.notes, *self.cautions],
            "instructions": self.program.opcodes(),
            "summary": self.summary.to_dict(),
            "cores": [cores.to_dict() for cores in self.cores],
            "together": None if self.together is None else self.together.to_dict(),
        }


def broken_off(error: Exception) -> tuple[Program, str] | None:
    """What a kernel did before an error, and a sentence about it; None if that is nothing."""
    program = program_until(error)
    if program is None:
        return None
    said = getattr(error, "problem", "") or str(error) or type(error).__name__
    where = getattr(error, "where", "")
    count = f"{len(program)} instruction{'s' * (len(program) != 1)}"
    at = f" at {where}" if where else ""
    return program, f"the kernel broke off{at}, after {count}: {said}"


def estimate_programs(programs: Sequence[Program]) -> Estimate:
    """Predict the latency of programs that run together: that of the slowest, which is shown.

    Equal programs are compiled and placed once.
    """
    if len(programs) == 1:
        return estimate_program(programs[0])
    # programs of ranks that were traced once share their tables
    by_table = {id(program.storages): program for program in programs}
    known = {table: signature(program) for table, program in by_table.items()}
    keys = [known[id(program.storages)] for program in programs]
    first = {key: number for number, key in reversed(list(enumerate(keys)))}
    with phase("placing", total=sum(len(programs[number]) for number in first.values())):
        compiled_by_key = {key: compiled(programs[number]) for key, number in first.items()}
        plans = {key: plan(program) for key, program in compiled_by_key.items()}
    own = [compiled_by_key[key].named_as(program) for key, program in zip(keys, programs, strict=True)]
    with phase("simulating", total=sum(map(len, own))):
        together = simulate_together(own, [plans[key] for key in keys], keys)
    neighbour = neighbours(own)
    sharing = {keys[n] for p, n in enumerate(neighbour) if n != p}
    traffic = {key: hbm_traffic(compiled_by_key[key], plans[key]) for key in sharing}
    others_bytes = [traffic[keys[n]] if n != p else 0.0 for p, n in enumerate(neighbour)]
    each = [
        Estimate(
            own[p].kernel_name, own[p].machine.label, own[p], plans[keys[p]], timeline, tuple(own[p].notes),
            beside_bytes=others_bytes[p], written=programs[p],
        )
        for p, timeline in zip(together.members, together.timelines, strict=True)
    ]  # fmt: skip
    slowest = max(range(len(each)), key=lambda c: (each[c].latency_us, -c))
    titles = [[p.title for p, c in zip(own, together.of, strict=True) if c == n] for n in range(len(each))]
    cores = tuple(Cores(tuple(names), one) for names, one in zip(titles, each, strict=True))
    return replace(each[slowest], cores=cores, notes=(*each[slowest].notes, *(c.described() for c in cores)))


def estimate_program(program: Program) -> Estimate:
    """Predict the latency of a traced program, as the compiler leaves it."""
    with phase("placing", total=len(program)):
        left = compiled(program)
        path = kept_estimates.path_of(left)
        known = kept_estimates.recalled(path)
        placed = plan(left) if known is None else known.plan
    estimate = estimate_planned(left, placed, program, None if known is None else known.timeline)
    if known is None:
        kept_estimates.keep(path, placed, estimate.timeline)
    return estimate


def estimate_planned(
    program: Program, placed: Plan, written: Program | None = None, timeline: Timeline | None = None
) -> Estimate:
    """Predict the latency of a program as the compiler leaves it, whose tiles have their places.

    Args:
        program, placed: as the compiler leaves it, and its plan.
        written: as the kernel wrote it.
        timeline: of the plan, where it is known.
    """
    if timeline is None:
        with phase("simulating", total=len(program)):
            timeline = simulate(program, placed)
    return Estimate(
        program.kernel_name, program.machine.label, program, placed, timeline, tuple(program.notes),
        written=written,
    )  # fmt: skip
