"""`nkilab tune`: search the parameters of a kernel."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from math import inf, isclose, isfinite
from pathlib import Path

from ..arguments import literal
from ..disk import write_whole
from ..documents import print_document
from ..errors import UsageError, UseError
from ..runner import serve_names
from ..timing import MODEL_VERSION
from ..views.guidance import Advice
from .carrying_out import Options, carried_out
from .confirm import Measured, Recalibrated, form, read_measured, recalibrated
from .executors import Task, Work
from .measuring import FIRST, Command, worth_measuring
from .objective import KernelObjective, Objective
from .outcome import Outcome, key_of
from .report import print_advice, print_verdict, svg
from .samplers import Beginning, Sampler, sampler_named
from .space import Space, read_space, space_of
from .study import Found
from .verdict import WITHIN, Verdict, verdict_of


def run_tuning(work: Task, options: Options) -> None:
    """Search, and print what was found.

    Raises:
        UsageError: if the kernel, the space and the options do not go together, or no point is legal.
        FileError: if a file cannot be read or written.
    """
    if options.picture and Path(options.picture).suffix != ".svg":
        raise UsageError(
            f"--picture is {options.picture}; pictures are SVG", hint="name a file that ends in .svg"
        )
    space = _space(options)
    work = replace(work, limit=options.point_seconds)
    serve_names(work.version, "")
    objective = work.objective()
    space = space or objective.space
    if space is None:
        raise UsageError("no parameter is named", hint="write --param NAME=VALUE,VALUE or --space SPACE.yaml")
    objective.check(space)
    verdict, confirmed = _judged(space, objective, work, options)
    name, result = objective.name, verdict.found
    advice: tuple[Advice, ...] = ()
    if isinstance(objective, KernelObjective):
        _check_best(objective, verdict.best, confirmed)
        advice = objective.advice(verdict.best.point)
    if options.picture:
        title = f"{name} on {result.target}, timing model {MODEL_VERSION}"
        write_whole(Path(options.picture), svg(verdict, title).encode())
    rules_us = _by_rules(objective, confirmed) if objective.space else None
    if options.as_json:
        _print_json(verdict, name, confirmed, rules_us, advice)
    else:
        print_verdict(verdict, name, confirmed)
        if options.confirm and confirmed is None:
            _write_form(Path(options.confirm), verdict)
        if rules_us is not None:
            print(_compared(rules_us, verdict.best.latency_us))
        print_advice(advice)


def _space(options: Options) -> Space | None:
    """The space that is given, if one is."""
    if options.space and options.parameters:
        raise UsageError("--param and --space are both given", hint="leave one of them out")
    if options.parameters:
        return space_of(dict(map(_values, options.parameters)))
    return read_space(Path(options.space)) if options.space else None


def _values(text: str) -> tuple[str, list[object]]:
    """A parameter and its values, of "NAME=VALUE,VALUE"."""
    name, _, values = text.partition("=")
    if not name or not values:
        raise UsageError(f"--param is {text!r}; write NAME=VALUE,VALUE", hint="as in rows=64,128")
    return name, [literal(own.strip()) for own in values.split(",")]


def _judged(
    space: Space, objective: Objective, work: Task, options: Options
) -> tuple[Verdict, Recalibrated | None]:
    """The verdict on a search, with what is measured of it: known before, or by the user's program."""
    path = Path(options.confirm) if options.confirm else None
    measured = read_measured(path, space) if path and path.exists() else []
    command = None
    if options.measure:
        if not isinstance(work, Work):
            raise UsageError(
                "--measure takes a kernel, not an Einsum", hint="tune the kernel that it compiles to"
            )
        command = Command(options.measure, work.absolute.kernel, options.point_seconds)
    left = options.measurements if command else 0
    while True:
        result, confirmed = _searched(space, objective, work, options, measured)
        if not result.timed:
            text = _nothing(result, objective.name, options.seconds)
            raise UsageError(text, hint="change the space, or the kernel")
        verdict = _verdict(result, confirmed)
        points = worth_measuring(verdict, measured, min(left, 1 if measured else FIRST))
        if command is None or not isinstance(objective, KernelObjective) or not points:
            return verdict, confirmed
        measured = _measured(command, objective, points, measured, path)
        left -= len(points)


def _measured(
    command: Command, objective: KernelObjective, points: Sequence[Outcome], known: Sequence[Measured],
    path: Path | None,
) -> list[Measured]:  # fmt: skip
    """What is known and what a program says of further points; each time is written down at once."""
    measured = list(known)
    for outcome in points:
        measured.append(command.measured(objective, outcome.point))
        print(f"{key_of(outcome.point)}: measured {measured[-1].latency_us:g} us", file=sys.stderr)
        if path:
            write_whole(path, form((), measured).encode())
    return measured


def _write_form(path: Path, verdict: Verdict) -> None:
    """Write down the points that are worth measuring, for their times to be filled in."""
    points = [outcome.point for outcome in worth_measuring(verdict, (), FIRST)]
    write_whole(path, form(points).encode())
    print(f"wrote {path} with {len(points)} points: fill in latency_us and give the same command again")


def _check_best(objective: KernelObjective, best: Outcome, confirmed: Recalibrated | None) -> None:
    """Refuse a best point that another trace of the kernel judges otherwise."""
    machine = confirmed.machine if confirmed else objective.machine
    again = KernelObjective(objective.kernel, objective.cases, machine, objective.goals).evaluate(best.point)
    if confirmed:
        again = confirmed.judged(again)
    if not isclose(again.values.get("latency", 0.0), best.values["latency"], rel_tol=1e-9):
        outcome_text = (
            f"{again.values['latency']:.2f} us" if again.is_timed else f"{again.state}: {again.message}"
        )
        raise UseError(
            f"the best point of {objective.name}, {key_of(best.point)}, has {best.values['latency']:.2f} us; "
            f"evaluated again it is {outcome_text}",
            hint="let the kernel depend on its arguments alone; if it does, delete the journal",
        )


def _compared(rules_us: float, found_us: float) -> str:
    """What was found beside what the rules choose, which a space of one's own may leave out."""
    gain = rules_us / found_us - 1
    comparison = (
        "no faster" if gain == 0 else f"{gain:.1%} faster" if gain > 0 else f"{1 / (1 + gain) - 1:.1%} slower"
    )
    return f"by the rules: {rules_us:.2f} us; what was found is {comparison}"


def _print_json(
    verdict: Verdict, name: str, confirmed: Recalibrated | None, rules_us: float | None,
    advice: Sequence[Advice],
) -> None:  # fmt: skip
    """Everything, as docs/schemas/nkilab.tune-1.json describes it."""
    document = {
        "kernel": name,
        **verdict.to_dict(),
        "confirmed": confirmed.to_dict() if confirmed else None,
        "rules_us": rules_us,
        "advice": [own.to_dict() for own in advice],
    }
    print_document(document)


def _by_rules(objective: Objective, confirmed: Recalibrated | None) -> float:
    """The predicted latency of what the rules choose, under the constants that measurements ask for."""
    if confirmed is None:
        return objective.evaluate({}).latency_us
    return confirmed.judged(objective.under(confirmed.machine).evaluate({})).latency_us


def numbers(text: str) -> tuple[float, ...]:
    """Weights as --weights writes them: 3,1; none for an empty text.

    Raises:
        UsageError: if one is no number.
    """
    try:
        values = tuple(float(word) for word in text.split(",")) if text else ()
    except ValueError:
        values = (float("nan"),)
    if not all(map(isfinite, values)):
        raise UsageError(f"--weights is {text!r}; write numbers, as in 3,1")
    return values


def _searched(
    space: Space, objective: Objective, work: Task, options: Options, measured: Sequence[Measured],
) -> tuple[Found, Recalibrated | None]:  # fmt: skip
    confirmed = None
    if measured:
        confirmed = recalibrated(measured, objective)
        objective = objective.under(confirmed.machine)
        work = replace(work, machine=confirmed.machine)
    sampler: Sampler = sampler_named(
        options.sampler, space, options.trials, len(objective.goals), options.seed
    )
    first = objective.begins(space)
    if first is not None:
        sampler = Beginning(first, sampler)
    result = carried_out(space, objective, sampler, work, options)
    return (confirmed.applied(result) if confirmed else result), confirmed


def _verdict(result: Found, confirmed: Recalibrated | None) -> Verdict:
    if confirmed is None or confirmed.spread is None:
        return verdict_of(result, WITHIN)
    return verdict_of(result, confirmed.spread, f"{len(confirmed.measured)} measured points")


def _nothing(result: Found, name: str, seconds: float) -> str:
    """Why no point is legal: the most frequent reason, with one message in full."""
    if not result.outcomes and result.seconds < (seconds or inf):
        return f"no point of {name} is found: nearly all combinations break a constraint"
    if not result.outcomes:
        return f"no point of {name} was looked at: the time was up"
    first = result.outcomes[0]
    reasons = result.pruned or {"failed": len(result.failed)}
    reasons_text = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
    return f"none of {len(result.outcomes)} points of {name} can be timed: {reasons_text}\n{first.message}"
