"""`nkilab.check` and `nkilab check`: run a kernel once and tell what the hardware would punish."""

from __future__ import annotations

import json
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import structs

from . import api, checks
from .advice import findings as advice
from .advice.trials import best_edit
from .argument_checks import need, whole
from .arguments import Call
from .arrays import dtype_of, framework_of
from .checks import baseline, comments, faults, sarif, terminal
from .checks.baseline import NO_FILES, Files
from .checks.capacity import occupancy
from .checks.evidence import Evidence, Track, definition_of
from .checks.finding import Finding
from .checks.graph import Graph
from .checks.numerics import numerics
from .checks.recording import Recording
from .checks.replay import Replay, replays
from .checks.report import SCHEMA, Advised, Prediction, Report, summary_line
from .checks.sources import Sources
from .checks.watch import Watcher, around_ranks
from .cores import Rendezvous
from .dialects.kernel import Kernel
from .disk import write_whole
from .documents import print_document
from .errors import (
    EXIT_FAULT,
    EXIT_FINE,
    LimitError,
    NkilabError,
    NkilabWarning,
    UnsupportedError,
    UsageError,
    did_you_mean,
    printable,
)
from .estimates import Estimate, broken_off, estimate_programs
from .launches import Launched, launch, launch_ranks
from .machine import Machine
from .place import DEPENDENCES, Dependence
from .tiles.dtypes import as_dtype
from .tiles.tile import check_room
from .tracebacks import is_from_outside, public
from .views.guidance import Advice

_SEED = 1
# Other orders that a check computes at most: each computes the whole kernel again.
MOST_REPLAYS = 10_000
WHAT_IF = "nkilab.what-if/1"
# Positional and keyword arguments, and the grid.
Launch = tuple[Sequence[Any], Mapping[str, Any], tuple[int, ...]]


@dataclass(frozen=True)
class Options:
    """What a check is asked for."""

    target: str = ""  # chip; "" for the default
    replays: int = 0  # how many other orders to compute
    has_numerics: bool = False  # whether to compute in float32 beside
    table: Mapping[str, Dependence] | None = None  # which kinds of pairs are ordered
    is_advised: bool = True  # whether to look for changes that pay, once somebody asks for them
    is_told: bool = True  # whether the report has what is predicted, and how full memory is


@public
def check(
    kernel: Any, *args: Any, target: str = "", replay: int = 0, numerics: bool = False, **kwargs: Any
) -> Advised[Finding]:
    """Run a kernel once and return what is wrong with it, and advice, without what comments silence.

    Args:
        kernel: decorated by nki.jit of either spelling, with or without a grid.
        args: arrays, or specs, which are filled with random numbers; and whatever else the kernel takes.
        target: chip.
        replay: how many other orders of its instructions to compute.
        numerics: whether to compute in float32 beside the stored types.
        kwargs: as args.

    Returns:
        Findings in the order of lines, advice last; `Finding.fails` tells the two apart. Advice, which takes
        many times as long as the rest, is looked for when it is looked at; `verdict` has all before it.

    Raises:
        UnsupportedError: where nkilab does not model what the kernel does.
        UsageError: if replay is no whole number from 0 to `MOST_REPLAYS`.
    """
    whole("replay", replay, 0, MOST_REPLAYS)
    need("numerics", numerics, bool, "True or False")
    options = Options(target, replay, numerics, is_told=False)
    return report_of(kernel, args, kwargs, options).findings


@contextmanager
def _heard() -> Iterator[list[warnings.WarningMessage]]:
    """Our warnings of a launch; others are nobody's business."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", NkilabWarning)
        yield heard


# kernel, arguments of its only rank, that rank, chip, options
_Call = tuple[Kernel, list[Call], list[int], Machine, Options]


def report_of(
    kernel: Any, args: Sequence[Any], kwargs: Mapping[str, Any], options: Options = Options()
) -> Report:
    """As `check`, with everything that was measured."""
    call = _call_of(kernel, args, kwargs, options)
    try:
        return _launched(*call)[1]
    except NkilabError as error:
        if isinstance(error, UnsupportedError) and not error.key:
            raise
        return _stopped(call[0], call[3], error, error)
    except Exception as error:
        if is_from_outside(error) or (problem := faults.of_python(error)) is None:
            raise
        return _stopped(call[0], call[3], problem, error)


def examined(
    kernel: object, args: Sequence[object], kwargs: Mapping[str, object], options: Options = Options()
) -> tuple[Launched, Report]:
    """What a kernel leaves on arrays, specs filled, and the report of it; what it raises is raised."""
    (launched,), report = _launched(*_call_of(kernel, args, kwargs, options))
    return launched, report


def _call_of(kernel: object, args: Sequence[object], kwargs: Mapping[str, object], options: Options) -> _Call:
    """What is launched: specs are filled."""
    checked_kernel = api.as_kernel(kernel)
    machine = api.machine_for(checked_kernel, options.target)
    named = {name: filled(value) for name, value in kwargs.items()}
    return checked_kernel, [(tuple(map(filled, args)), named)], [0], machine, options


def _launched(
    kernel: Kernel, calls: Sequence[Call], ranks: Sequence[int], machine: Machine, options: Options,
    how: Mapping[str, Any] = MappingProxyType({"launched": 1, "has_data": True}),
) -> tuple[list[Launched], Report]:  # fmt: skip
    """Launch a kernel on some ranks and check what each leaves; what the kernel raises is raised.

    Replays and numerics are of a launch of one rank.
    """
    is_asked = bool(options.replays) or options.has_numerics
    is_single = how["launched"] == 1
    is_file = Path(definition_of(kernel).file).is_file()
    command = command_of(kernel, *calls[0], options) if is_single and is_file else ""
    watchers = {rank: Watcher(records=is_asked and is_single) for rank in ranks}
    with _heard() as heard:
        left = launch_ranks(kernel, calls, ranks, machine, **how, watch=around_ranks(watchers))
    findings, sources = list(faults.from_warnings(heard)), Sources()
    launches: list[Evidence] = []
    done, apart, notes, tensors = list[Replay](), list[Finding](), list[str](), list[dict[str, Any]]()
    for place, (watcher, launched) in enumerate(zip(watchers.values(), left, strict=True)):
        own = structs.replace(launched, rendezvous=left[0].rendezvous)
        evidence = structs.replace(
            _evidence(kernel, own, options, command, place),
            sources=sources, repeated=watcher.repeated, masked=watcher.masked,
        )  # fmt: skip
        graph = Graph(evidence)
        findings += checks.examine(evidence, watcher, graph)
        launches.append(evidence)
        if watcher.recording is not None:
            done, apart, notes, tensors = _computed_again(graph, watcher.recording, options)
    if is_asked and not is_single:
        notes.append("a launch over several ranks is neither replayed nor compared with float32")
    tracks = [track for evidence in launches for track in evidence.tracks]
    occupancies = _occupancies(tracks) if options.is_told else ()
    advised = launches if options.is_advised else ()
    report = _report_on(kernel, machine.name, findings + apart, sources, tuple(notes), advised)
    predicted = _predicted(tracks) if is_single and options.is_told else None
    shown = tuple(one.to_dict() for one in done)
    return left, replace(
        report, occupancy=occupancies, predicted=predicted, replays=shown, tensors=tuple(tensors)
    )


def _computed_again(
    graph: Graph, recording: Recording, options: Options
) -> tuple[list[Replay], list[Finding], list[str], list[dict[str, Any]]]:
    """What a launch shows in other orders and in float32: replays, findings, notes, tensors."""
    done, differing, notes = replays(graph, recording, options.replays) if options.replays else ([], [], [])
    apart, tensors, left_out = numerics(graph.evidence, recording) if options.has_numerics else ([], [], [])
    return done, differing + apart, notes + left_out, tensors


def _within(all_rendezvous: Sequence[Rendezvous], place: int, cores: int) -> tuple[Rendezvous, ...]:
    """The rendezvous of the cores of one rank among those of a launch over several ranks."""
    first = place * cores
    mine = (m for m in all_rendezvous if len(m.programs) == cores > 1)
    return tuple(m for m in mine if all(first <= number < first + cores for number in m.programs))


def _evidence(kernel: Kernel, launched: Launched, options: Options, command: str, place: int = 0) -> Evidence:
    """What the rank at a place of a launch left for the checks."""
    tracks = tuple(Track(program, rank) for rank, program in enumerate(launched.programs))
    table = DEPENDENCES if options.table is None else options.table
    own_rendezvous = _within(launched.rendezvous, place, len(tracks))
    return Evidence(kernel, tracks, launched.memories, own_rendezvous, table, command, Sources())


def command_of(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any], options: Options) -> str:
    """The command line that checks a kernel on arrays of the same shapes."""
    words = ["nkilab", "check", f"{definition_of(kernel).file}:{kernel.name}"]
    named = [("", value) for value in args] + [(f"{name}=", value) for name, value in kwargs.items()]
    for name, value in named:
        if framework_of(value):
            extents = ",".join(str(int(n)) for n in value.shape)
            words += ["--arg", f"{name}{dtype_of(value, name)}[{extents}]"]
        elif name:
            words += ["--kw", f"{name}{value!r}"]
    if kernel.grid:
        words += ["--grid", ",".join(str(int(n)) for n in kernel.grid_sizes)]
    if options.target:
        words += ["--target", options.target]
    return shlex.join(words)


def try_out(
    kernel: Any, args: Sequence[Any], kwargs: Mapping[str, Any], options: Options, name: str
) -> dict[str, Any]:
    """Time a kernel as it is, and without what a piece of advice is about.

    Args:
        kernel, args, kwargs, options: as for `report_of`.
        name: of the advice: RULE@LINE.

    Returns:
        Both latencies in microseconds, ready for JSON.

    Raises:
        UsageError: if there is no such piece of advice.
    """
    checked_kernel, [(positional, named)], _, machine, _ = _call_of(kernel, args, kwargs, options)
    launched = launch(checked_kernel, positional, named, machine, has_data=True)
    known: list[str] = []
    for own, subject, candidate in advice.named_candidates(_evidence(checked_kernel, launched, options, "")):
        known.append(own)
        best = best_edit(subject, candidate) if own == name else None
        if best is not None:
            latency, without = subject.latency_ns / 1000, best[1] / 1000
            return {
                "schema": WHAT_IF, "kernel": checked_kernel.name, "target": machine.name, "what_if": name,
                "message": candidate.message, "edit": best[0], "latency_us": latency, "without_us": without,
                "gain_us": latency - without,
            }  # fmt: skip
    listing = (
        f"its advice is {', '.join(dict.fromkeys(known))}" if known else "there is no advice on this kernel"
    )
    hint = did_you_mean(name, known) if len(known) > 8 else listing
    rule, _, line = name.partition("@")
    what = f"no advice {rule} at line {line}" if line else f"no advice {name}; write RULE@LINE"
    raise UsageError(f"{checked_kernel.name} has {what}", hint=hint or listing)


@contextmanager
def every_launch(options: Options = Options()) -> Iterator[list[Report]]:
    """Check every kernel that is launched in a block; gives the list that the reports go to."""
    reports: list[Report] = []

    def checked(
        kernel: Kernel, calls: Sequence[Call], ranks: Sequence[int], machine: Machine, **how: Any
    ) -> list[Launched]:
        left, report = _launched(kernel, calls, ranks, machine, options, how)
        reports.append(report)
        # advice that was looked for keeps nothing of the launch
        report.to_dict()
        return left

    before, api.WORLD.launching = api.WORLD.launching, checked
    try:
        yield reports
    finally:
        api.WORLD.launching = before


def merged(reports: Sequence[Report]) -> list[Report]:
    """Reports of many launches without what was told before."""
    seen: set[tuple[Any, ...]] = set()
    fresh_reports = []
    for report in reports:
        fresh = Advised(f for f in report.findings if (f.rule, f.site, f.other_site) not in seen)
        seen |= {(f.rule, f.site, f.other_site) for f in fresh}
        if fresh:
            fresh_reports.append(replace(report, findings=fresh))
    return fresh_reports


def begun_before(error: Exception) -> str:
    """What ran of a kernel before an error, and how long it takes; "" where that is nothing."""
    begun = broken_off(error)
    if begun is None:
        return ""
    program = begun[0]
    count = f", after {len(program)} instruction{'s' * (len(program) != 1)}"
    try:
        return f"{count} ({estimate_programs([program]).latency_us:.2f} us predicted)"
    except NkilabError:
        return count


def _stopped(kernel: Kernel, machine: Machine, error: NkilabError, cause: Exception) -> Report:
    """The report of a kernel that does not run to its end: an error as it is told, and as it was raised."""
    note = f"the kernel stopped before its end{begun_before(cause)}, so only its text was checked"
    sources = Sources()
    findings = [faults.from_error(error, kernel), *checks.examine_text(kernel, sources, machine.generation)]
    return _report_on(kernel, machine.name, findings, sources, (note,))


def _occupancies(tracks: Sequence[Track]) -> tuple[dict[str, Any], ...]:
    """How full memory is, of programs that fit."""
    try:
        return tuple(occupancy(track) for track in tracks)
    except LimitError:
        return ()


def _predicted(tracks: Sequence[Track]) -> Prediction | None:
    """Latency and bound as `nkilab estimate` predicts them, of programs that fit."""
    try:
        if len(tracks) == 1:
            (track,) = tracks
            names = track.program.kernel_name, track.program.machine.label
            predicted = Estimate(*names, track.compiled, track.plan, track.timeline)
        else:
            predicted = estimate_programs([track.program for track in tracks])
    except LimitError:
        return None
    bound, model = predicted.summary.bound, predicted.timeline.model
    return Prediction(predicted.latency_us, predicted.interval_us, bound, model)


def _report_on(
    kernel: Kernel, target: str, findings: list[Finding], sources: Sources, notes: tuple[str, ...],
    launches: Sequence[Evidence] = (),
) -> Report:  # fmt: skip
    """The report of some findings, ordered, without what is silenced; and of advice on some launches."""
    home = definition_of(kernel)
    files = dict.fromkeys(f for f in (home.file, *(f.site.file for f in findings)) if f)
    findings += comments.find(sources, files)
    settings = comments.settings_near(home.file) if home.file else comments.Settings()

    @cache
    def advised() -> list[tuple[Finding, Advice]]:
        return [(advice.finding_of(own, of), own) for of in launches for own in advice.find(of)]

    def chosen(known: Iterable[Finding], is_silent: bool) -> Iterator[Finding]:
        every = dict.fromkeys(known)
        return (f for f in every if comments.is_silenced(f, sources, settings) == is_silent)

    def of_advice(is_silent: bool) -> Iterator[Finding]:
        return chosen((finding for finding, _ in advised()), is_silent)

    ordered = sorted(findings, key=lambda f: f.order)
    kept, silenced = (Advised(chosen(ordered, own), partial(of_advice, own)) for own in (False, True))
    pieces = Advised((), lambda: (own for _, own in advised()))
    return Report(kernel.name, target, kept, silenced, notes, sources=sources, pieces=pieces)


def filled(value: Any) -> Any:
    """A spec as an array of random numbers, the same in every run: floats around 0, whole numbers 0."""
    if framework_of(value) != "spec":
        return value
    dtype = as_dtype(value.dtype)
    shape = tuple(int(n) for n in value.shape)
    check_room(shape, dtype)
    if not dtype.is_float:
        return np.zeros(shape, dtype.storage)
    rng = np.random.default_rng(_SEED)
    return rng.standard_normal(shape, dtype=np.float32).astype(dtype.storage)


def run_check(
    designation: str, call: Launch, options: Options, load: Callable[[str], Any], *, as_json: bool = False,
    files: Files = NO_FILES, what_if: str = "", version: str = "",
) -> int:  # fmt: skip
    """What `nkilab check` does: check one kernel, print what was found, return the exit status.

    Args:
        designation: FILE.py:KERNEL, which `load` finds.
        call: positional and keyword arguments, and the grid.
        options: of the check.
        load: runs the user's file.
        as_json: print JSON alone.
        files: that are read and written.
        what_if: RULE@LINE, advice to try out instead; "" to check.
        version: of nkilab.
    """
    args, kwargs, grid = call
    checked_kernel = api.as_kernel(load(designation))
    checked_kernel = checked_kernel[grid] if grid else checked_kernel
    report: Report | None = None
    if what_if:
        document = try_out(checked_kernel, args, kwargs, options, what_if)
    else:
        report = _with_files(report_of(checked_kernel, args, kwargs, options), files, version)
        document = report.to_dict()
    if as_json:
        print_document(document)
    elif report:
        print_reports([report])
    else:
        print(_tried_text(document))
    return status_of([report]) if report and not files.new_baseline else EXIT_FINE


def _with_files(report: Report, files: Files, version: str) -> Report:
    """Read and write what is asked for; the report without what the baseline knows.

    Raises:
        UsageError: if a baseline is none.
    """
    known = Path(files.baseline)
    fresh = baseline.without_known(report, baseline.read(known), known.parent) if files.baseline else report
    if files.sarif:
        sarif_text = json.dumps(sarif.sarif([fresh], version, Path.cwd()), indent=1)
        write_whole(files.sarif, sarif_text.encode())
    if files.new_baseline:
        path = Path(files.new_baseline)
        before = baseline.read(path) if path.exists() else {}
        write_whole(path, baseline.updated(report, before, path.parent))
        note = f"{path} holds what this kernel shows now; --baseline {path} leaves it out"
        fresh = replace(fresh, notes=(*fresh.notes, note))
    return fresh


def _tried_text(tried: Mapping[str, Any]) -> str:
    return (
        f"{tried['kernel']} on {tried['target']}: {tried['latency_us']:.2f} us predicted, "
        f"{tried['without_us']:.2f} us with {tried['edit']} ({tried['gain_us']:.2f} us less)\n"
        f"  {tried['message']}"
    )


def status_of(reports: Sequence[Report]) -> int:
    """The exit status that reports mean."""
    return EXIT_FINE if all(report.passes for report in reports) else EXIT_FAULT


def print_reports(reports: Sequence[Report]) -> None:
    """Findings, figures and the summary line on standard output."""
    for report in reports:
        terminal.print_report(report)
        for note in report.notes:
            print(f"note: {note}")
        for line in terminal.figures(report):
            print(printable(line))
    names = ", ".join(f"{report.kernel} on {report.target}" for report in reports)
    print(f"{names}: {summary_line(reports)}")


def told_of_script(reports: Sequence[Report]) -> int:
    """Print what a script's kernels were found to do, on standard error; the exit status that follows."""
    with redirect_stdout(sys.stderr):
        merged_reports = merged(reports)
        for report in merged_reports:
            terminal.print_report(report)
        count = f"{len(reports)} launch{'es' * (len(reports) != 1)}"
        print(f"{count} checked: {summary_line(merged_reports)}")
    return status_of(reports)


__all__ = ["SCHEMA", "Options", "Report", "check", "report_of"]
