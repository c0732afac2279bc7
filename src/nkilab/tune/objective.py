"""What a point is judged by: the kernel traced, placed and timed on every case."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

from .. import api
from ..arguments import call_arguments, calls_of
from ..arrays import framework_of
from ..checks import examine_shapes
from ..checks.capacity import PSUM_FULL
from ..checks.comments import is_silenced, settings_near
from ..checks.evidence import Evidence, Track
from ..dialects.kernel import Kernel
from ..errors import LimitError, NkilabError, UsageError, UseError, did_you_mean
from ..estimates import Estimate
from ..isa.declare import Instruction
from ..launches import Launched, launch_ranks
from ..ledger.choice import demand_of
from ..ledger.predict import recosted
from ..machine import Machine
from ..tiles.dtypes import as_dtype
from ..timing import MODEL_VERSION
from ..trace.affine import REPEATS, Repeats
from ..trace.builder import FORMS
from ..trace.program import Program
from ..views.guidance import Advice
from .binding import BoundCall, bound, check_names
from .identity import identity_of
from .outcome import FAILED, PRUNED, TIMED, Outcome, Timed
from .space import Point, Space

# goals, less of each is better, with what they are
GOALS = {
    "latency": "predicted microseconds, over all cases by their weights",
    "sbuf": "bytes per partition of SBUF in use at once, of the case that needs most",
    "dma": "bytes that transfers move, over all cases by their weights",
}
# How often a case may count, so that sums stay numbers.
MOST_WEIGHT = 1e12
# Traces and times of so many programs are kept, and traces of so many rows: about 70 bytes each.
KEPT, ROWS_KEPT = 256, 2_000_000


class Objective(ABC):
    """What judges points: a kernel on shapes, or the kernels that an Einsum compiles to."""

    # name, spelling: of the kernel
    name: str
    spelling: str
    machine: Machine  # the chip
    goals: tuple[str, ...]  # names of `GOALS`, the one that decides first
    space: Space | None = None  # what is searched unless a space is given; None if one must be

    @property
    def target(self) -> str:
        """The chip, as results call it."""
        return self.machine.label

    @property
    def constants(self) -> str:
        """What names the chip's constants."""
        return constants_of(self.machine)

    @property
    @abstractmethod
    def digest(self) -> str:
        """What names everything that an outcome depends on besides its point and the chip's constants."""

    @abstractmethod
    def check(self, space: Space) -> None:
        """Refuse a space of what is no parameter."""

    def begins(self, space: Space) -> Point | None:
        """The point that comes first, what is taken without a search; None if the space has none."""
        return None

    @abstractmethod
    def evaluate(self, point: Point) -> Outcome:
        """What becomes of a point; no error of the point leaves it."""

    @abstractmethod
    def under(self, machine: Machine) -> Objective:
        """The same with other constants of the chip."""


@dataclass(frozen=True)
class Case:
    """One call of the kernel.

    Args:
        args, kwargs: what it is called with besides the point.
        weight: how often it counts.
        text: how messages call it.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 1.0
    text: str = ""


class KernelObjective(Objective):
    """The predicted latency of a kernel on one or several cases.

    A trace does not depend on the constants of the clock: under others it is kept and gets new costs. What
    traces to the same program is placed and timed once.

    Args:
        kernel: with its grid.
        cases: at least one.
        machine: the chip.
        goals: names of `GOALS`.
        repeats: what is known of the kernel's loops; nothing if None.
    """

    def __init__(
        self, kernel: Any, cases: Sequence[Case], machine: Machine, goals: Sequence[str] = ("latency",),
        repeats: Repeats | None = None,
    ) -> None:  # fmt: skip
        self.kernel: Kernel = api.as_kernel(kernel)
        self.cases = tuple(cases)
        self.name, self.spelling, self.machine = self.kernel.name, self.kernel.spelling, machine
        self.goals = known_goals(goals)
        self._traces: OrderedDict[tuple[int, str], tuple[Program, ...]] = OrderedDict()
        self._timed: OrderedDict[Hashable, Timed] = OrderedDict()
        self._forms: dict[Hashable, Instruction] = {}
        self._repeats = repeats or Repeats()

    @property
    def digest(self) -> str:
        """The kernel's code, its name, grid and version, the cases, the chip and the model's version."""
        kernel = self.kernel
        text = identity_of(kernel.function)
        cases = [
            ([_named(a) for a in c.args], [(k, _named(v)) for k, v in sorted(c.kwargs.items())], c.weight)
            for c in self.cases
        ]
        options = sorted((k, repr(v)) for k, v in kernel.options.items())
        key = (
            kernel.name,
            kernel.spelling,
            kernel.version,
            kernel.grid,
            options,
            cases,
            self.machine.name,
            MODEL_VERSION,
        )
        return sha256(repr((text, key)).encode()).hexdigest()[:16]

    def under(self, machine: Machine) -> KernelObjective:
        """The same with other constants of the chip; what was traced is not traced again."""
        other = KernelObjective(self.kernel, self.cases, machine, self.goals, self._repeats)
        other._traces = self._traces
        return other

    def check(self, space: Space) -> None:
        """Refuse a space that the kernel cannot be called with.

        Raises:
            UsageError: if a name stands for nothing, or for a parameter that has a value already.
        """
        check_names(self.kernel, space)
        signature = self.kernel.signature
        for case in self.cases:
            try:
                arguments = signature.bind_partial(*case.args, **case.kwargs).arguments
            except TypeError as error:
                raise UsageError(f"{self.kernel.name} cannot be called with {case.text}: {error}") from None
            twice = [name for name in space.names if name in arguments]
            if twice:
                raise UsageError(
                    f"{twice[0]} is in the search space and is also given a value",
                    hint="leave one of the two out",
                )

    def evaluate(self, point: Point) -> Outcome:
        """What becomes of a point; no error of the point leaves it."""
        try:
            cases = [self._case(number, point) for number in range(len(self.cases))]
        except NkilabError as error:
            return pruned(point, error)
        except (Exception, SystemExit) as error:
            where, name = _place_of(error), type(error).__name__
            message = f"{where}: {name}: {_text_of(error)}".removesuffix(": ")
            return Outcome(point, FAILED, reason=f"{name}, {where}", message=message)
        return outcome_of(point, self.goals, [case.weight for case in self.cases], cases)

    def advice(self, point: Point) -> tuple[Advice, ...]:
        """What would make the first case faster at a point, beyond its parameters."""
        own = [recosted(program, self.machine) for program in self._programs(0, point)]
        return api.estimate_programs(own).run.guidance.advice

    def _case(self, number: int, point: Point) -> Timed:
        programs = self._programs(number, point)
        key = tuple(map(_content, programs))
        known = self._timed.get(key)
        if known is None:
            own = [recosted(program, self.machine) for program in programs]
            estimate = api.estimate_programs(own)
            _refuse_full(estimate)
            known = self._timed[key] = timed(estimate)
            _keep(self._timed)
        for program in programs:
            # the trace stays, columns made of it would take as much again
            program.kept = (-1, None)
        return known

    def _programs(self, number: int, point: Point) -> tuple[Program, ...]:
        """What a point traces on a case; the chip's limits and rules are kept from here on."""
        key = (number, repr(sorted(point.items())))
        known = self._traces.get(key)
        if known is None:
            case = self.cases[number]
            call = bound(self.kernel, case.args, case.kwargs, point)
            with call.constants_set():
                launched = self._launched(call)
                self._refuse_faults(launched)
            known = self._traces[key] = tuple(program for one in launched for program in one.programs)
            _keep(self._traces)
            while len(self._traces) > 1 and sum(map(_rows, self._traces.values())) > ROWS_KEPT:
                self._traces.popitem(last=False)
        return known

    def _launched(self, call: BoundCall) -> list[Launched]:
        """What a call leaves, per rank."""
        keyed = {FORMS: self._forms, REPEATS: self._repeats}
        return launch_ranks(
            call.kernel, calls_of(call.args, call.kwargs, call.ranks), range(call.ranks), self.machine,
            launched=call.ranks, has_data=False, keyed=keyed,
        )  # fmt: skip

    def _refuse_faults(self, launched: Sequence[Launched]) -> None:
        """Refuse what checks find on shapes alone and hardware would punish."""
        first = launched[0]
        tracks = tuple(Track(program, core) for core, program in enumerate(first.programs))
        evidence = Evidence(self.kernel, tracks, first.memories, first.rendezvous)
        for finding in examine_shapes(evidence):
            silencing = settings_near(finding.site.file)
            if finding.fails and not is_silenced(finding, evidence.sources, silencing):
                raise UseError(finding.message, hint=finding.fix).located(finding.where, finding.rule)


def _named(value: Any) -> str:
    """An argument in words: of an array, what a trace on shapes depends on."""
    return f"{as_dtype(value.dtype)}{list(value.shape)}" if framework_of(value) else repr(value)


def _rows(programs: Sequence[Program]) -> int:
    return sum(map(len, programs))


def _keep(cache: OrderedDict[Any, Any]) -> None:
    if len(cache) > KEPT:
        cache.popitem(last=False)


def known_goals(goals: Sequence[str]) -> tuple[str, ...]:
    """Goals, if `GOALS` has them and the latency stands first.

    Raises:
        UsageError: if not.
    """
    unknown = [goal for goal in goals if goal not in GOALS]
    if unknown or not goals or goals[0] != "latency" or len(set(goals)) < len(goals):
        raise UsageError(
            f"the objective is {','.join(goals)!r}; it must be latency, or latency and some of "
            f"{', '.join(list(GOALS)[1:])}",
            hint=did_you_mean(unknown[0], GOALS)
            if unknown
            else "write latency,sbuf for the front of latency against bytes of SBUF",
        )
    return tuple(goals)


def _refuse_full(estimate: Estimate) -> None:
    """Refuse a kernel that needs more banks of PSUM than there are."""
    plans = [estimate.plan, *(cores.estimate.plan for cores in estimate.cores)]
    for finding in (finding for plan in plans for finding in plan.findings if finding.rule == PSUM_FULL.id):
        raise LimitError(finding.message, hint=finding.fix).located(finding.where, finding.rule)


def pruned(point: Point, error: NkilabError | AssertionError) -> Outcome:
    """The outcome of a point that a limit, a rule, a lack of memory or a proof forbids."""
    where = (error.called, error.where) if isinstance(error, NkilabError) else ()
    reason = ", ".join(p for p in (type(error).__name__, *where) if p)
    return Outcome(point, PRUNED, reason=reason, message=str(error))


def outcome_of(
    point: Point, goals: Sequence[str], weights: Sequence[float], cases: Sequence[Timed]
) -> Outcome:
    """The outcome of a point that was timed on every case."""
    low, high = (_sum(weights, [getattr(t, s) for t in cases]) for s in ("low_us", "high_us"))
    return Outcome(point, TIMED, {g: _value(g, weights, cases) for g in goals}, (low, high), tuple(cases))


def _value(goal: str, weights: Sequence[float], cases: Sequence[Timed]) -> float:
    if goal == "sbuf":
        return float(max(t.sbuf_bytes for t in cases))
    return _sum(weights, [getattr(t, "latency_us" if goal == "latency" else "dma_bytes") for t in cases])


def _sum(weights: Sequence[float], values: Sequence[float]) -> float:
    return float(sum(w * v for w, v in zip(weights, values, strict=True)))


def timed(estimate: api.Estimate) -> Timed:
    """What of an estimate a search remembers."""
    low, high = estimate.interval_us
    demand = demand_of([estimate])
    return Timed(
        estimate.latency_us, low, high, demand.dma_bytes, demand.transfers, demand.sbuf_bytes,
        demand.spilled_bytes, estimate.summary.bound, dict(estimate.summary.occupancy),
    )  # fmt: skip


def constants_of(machine: Machine) -> str:
    """What names the constants of a chip."""
    facts = {name: fact.value for name, fact in machine.facts().items()}
    return sha256(repr((machine.name, sorted(facts.items()))).encode()).hexdigest()[:16]


def _content(program: Program) -> Hashable:
    """Everything of a program that its plan and its time depend on."""
    columns = (
        program.form_column, program.line_column, program.position_column, program.value_column,
        program.storage_column, program.offset_column, program.positions.table,
    )  # fmt: skip
    return (
        tuple((type(form), tuple(form.layouts), form.attribute_values) for form in program.forms),
        tuple(program.lines),
        tuple(program.unrolled),
        repr(program.values),
        tuple(program.storages),
        (program.kernel_name, program.compiler, program.has_static_descriptors, program.core),
        tuple(program.met),
        blake2b(b"".join(column.tobytes() for column in columns), digest_size=32).digest(),
    )


def _text_of(error: BaseException) -> str:
    """What an error says, which is the user's own and may itself break off."""
    try:
        return str(error)
    except Exception as another:
        return f"its text breaks off with {type(another).__name__}"


def _place_of(error: BaseException) -> str:
    """File and line where an error was raised."""
    entries = traceback.extract_tb(error.__traceback__)
    return f"{Path(entries[-1].filename).name}:{entries[-1].lineno}" if entries else ""


def cases_of(args: Sequence[str], keywords: Sequence[str], weights: Sequence[float] = ()) -> list[Case]:
    """Cases from a command line: an --arg with alternatives, separated by |, has one for each case.

    Args:
        args: as `--arg` gives them: "f32[2048,512]" for every case, "f32[2048,512] | f32[2048,4096]" for two.
        keywords: as `--kw` gives them, of every case.
        weights: one per case; 1 each if there are none.

    Raises:
        UsageError: if the numbers of alternatives and weights do not agree, or an argument is not understood.
    """
    written = [[word.strip() for word in text.split("|")] for text in args]
    count = max((len(words) for words in written), default=1)
    for text, words in zip(args, written, strict=True):
        if len(words) not in (1, count):
            raise UsageError(
                f"--arg {text!r} has {len(words)} shapes, another one has {count}",
                hint="give one shape for all cases, or one for each",
            )
    if weights and (len(weights) != count or min(weights) <= 0 or max(weights) > MOST_WEIGHT):
        raise UsageError(
            f"--weights is {','.join(f'{w:g}' for w in weights)}; it must have a number above 0 for each of "
            f"{count} cases, {MOST_WEIGHT:g} at most"
        )
    cases = []
    for number in range(count):
        own = [words[number if len(words) > 1 else 0] for words in written]
        positional, named = call_arguments([_renamed(text, w) for text, w in zip(args, own)], keywords)
        weight = weights[number] if weights else 1.0
        cases.append(Case(tuple(positional), named, weight, " ".join(own) or "no arguments"))
    return cases


def _renamed(text: str, own: str) -> str:
    """An alternative with the name that stands before the first: "x=f32[8] | f32[16]"."""
    name, equals, _ = text.partition("=")
    is_named = bool(equals) and name.strip().isidentifier() and "=" not in own
    return f"{name.strip()}={own}" if is_named else own
