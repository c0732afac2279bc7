"""`nkilab advise`: what pays, and a piece of it as a change of the kernel's text, run and compared."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill
from typing import NamedTuple, cast

import numpy as np
from msgspec import structs

from . import api
from .advice.equal_results import NARROW, REORDERED, ROUNDED, difference
from .checking import Launch, Options, begun_before, examined, status_of
from .checks.report import Prediction, Report
from .conformal import gain_factors
from .disk import replace_whole
from .documents import print_document
from .edits import Refusal, rewritten
from .errors import EXIT_FINE, UsageError, printable
from .failures import failure_of
from .migrate.source import read, unified
from .packages import home_of
from .progress import columns
from .runner import kernel_from, parts_of
from .trace.program import Program
from .views.guidance import Advice
from .watching import fresh_modules

SCHEMA = "nkilab.advise/1"
# Changes of a text that are run for one piece of advice.
MOST_TRIED = 16


class Ran(NamedTuple):
    """What a kernel left: its results, programs, and the report of a check."""

    results: list[np.ndarray]
    programs: Sequence[Program]
    report: Report
    predicted: Prediction

    @property
    def advice(self) -> Sequence[Advice]:
        """What pays, the most first."""
        return cast("Sequence[Advice]", self.report.pieces)

    @property
    def why_none(self) -> str:
        """The sentence where nothing makes one core faster: how near the roofline is."""
        return api.estimate_programs(self.programs).run.guidance.sentence


@dataclass(frozen=True)
class Applied:
    """A change that was run."""

    advice: Advice  # that asked for it
    text: str  # the whole file with it
    diff: str  # from the file as it is
    difference: float  # the most that a result differs by, as a share of the largest
    # before, after: as predicted
    before: Prediction
    after: Prediction

    @property
    def gain(self) -> tuple[float, float, float]:
        """Microseconds saved, and between which they are believed to lie."""
        before, after = self.before.latency_us, self.after.latency_us
        low, high = gain_factors(after / before)
        return before - after, before * low, before * high

    def to_dict(self) -> dict[str, object]:
        """Ready for JSON, as docs/schemas/nkilab.advise-1.json describes it."""
        gain, low, high = self.gain
        return {
            "id": self.advice.id, "where": self.advice.where, "diff": self.diff,
            "is_equal": self.difference == 0, "difference": self.difference,
            "before": structs.asdict(self.before), "after": structs.asdict(self.after),
            "gain_us": gain, "interval_us": [low, high],
        }  # fmt: skip

    def lines(self) -> Iterator[str]:
        """What came out."""
        equal = "the results are equal, bit for bit"
        rounding = f"the results differ by rounding, {self.difference:.1e} of the largest at most"
        yield equal if self.difference == 0 else rounding
        for name, own in (("before", self.before), ("after", self.after)):
            low, high = own.interval_us
            yield f"{name}: {own.latency_us:.2f} us predicted, {low:.2f} to {high:.2f}"
        yield "saved: {:.2f} us, {:.2f} to {:.2f}".format(*self.gain)
        if self.advice.combined_with:
            rest = " and ".join(self.advice.combined_with)
            yield f"this is {self.advice.id} of several changes that pay together: ask again for {rest}"


def run_advise(
    designation: str, call: Launch, target: str, number: int = 0, *, writes: bool = False,
    as_json: bool = False,
) -> int:  # fmt: skip
    """List what pays for a kernel; apply one piece of it, if a number above 0 names it.

    Raises:
        UsageError: if there is no such piece of advice, or its change is not mechanical or does not pay.
    """
    if writes and not number:
        raise UsageError("--write has nothing to write", hint="name a piece of advice: --apply 1 --write")
    try:
        before = ran(designation, call, target)
    except Exception as error:
        if not as_json and (begun := begun_before(error)):
            print(f"note: the kernel stopped before its end{begun}; advice is for kernels that run to it")
        raise
    report = before.report
    applied = applied_to(designation, call, target, number, before) if number else None
    path = applied.advice.path if applied and writes else ""
    if applied and path:
        replace_whole(path, applied.text.encode(read(path).encoding))
    if as_json:
        print_document(
            {"schema": SCHEMA, "kernel": report.kernel, "target": report.target, "passes": report.passes,
             "predicted": structs.asdict(before.predicted),
             "advice": [own.to_dict() for own in before.advice],
             "applied": applied.to_dict() if applied else None, "written": path}
        )  # fmt: skip
        return EXIT_FINE if number else status_of([report])
    if applied:
        print(printable(applied.diff) + "\n".join(applied.lines()))
        print(
            printable(f"wrote {os.path.relpath(path)}")
            if path
            else "the file is as it was; --write changes it"
        )
        return EXIT_FINE
    if not before.advice or before.advice[0].adds_cores:
        print(fill(before.why_none, columns()))
    _print_list(before.advice)
    return status_of([report])


def _print_list(advice: Sequence[Advice]) -> None:
    for place, own in enumerate(advice, 1):
        first, *rest = own.lines()
        for line in (f"{place:>2}  {first}", *(f"  {line}" for line in rest)):
            print(printable(fill(line, columns(), subsequent_indent="      ")))
    if advice:
        print("--apply N writes one as a diff, runs it and compares")


def ran(designation: str, call: Launch, target: str) -> Ran:
    """Run, check and time a kernel on arrays; findings that fail are told when it is not asked for advice.

    Raises:
        UsageError: if it cannot be timed.
    """
    args, kwargs, grid = call
    kernel = api.as_kernel(kernel_from(designation))
    launched, report = examined(kernel[grid] if grid else kernel, args, kwargs, Options(target))
    if report.predicted is None:
        raise UsageError(f"{report.kernel} cannot be timed", hint="nkilab check says why")
    results = launched.results if isinstance(launched.results, list | tuple) else [launched.results]
    return Ran([np.asarray(own) for own in results], launched.programs, report, report.predicted)


def applied_to(designation: str, call: Launch, target: str, number: int, before: Ran) -> Applied:
    """The change of a text that takes the least time with equal results.

    Raises:
        UsageError: if none does.
    """
    if number > len(before.advice):
        count = len(before.advice)
        hint = f"give a number from 1 to {count}" if count else "no change that nkilab knows pays here"
        raise UsageError(f"there is no advice {number}", hint=hint)
    advice = before.advice[number - 1]
    source = read(advice.path)
    done: list[tuple[str, float, Prediction]] = []
    failed = []
    try:
        for text in islice(rewritten(source, advice), MOST_TRIED):
            outcome = _outcome(text, (designation, call, target), advice, before)
            failed += [outcome] if isinstance(outcome, str) else []
            done += [(text, *outcome)] if not isinstance(outcome, str) else []
    except Refusal as refusal:
        failed.append(str(refusal))
    if not done:
        raise UsageError(f"advice {number} is not mechanical: {advice.id}: {failed[0]}", hint=advice.fix)
    text, difference, after = min(done, key=lambda own: own[2].latency_us)
    diff = unified(os.path.relpath(source.path), source.text, text)
    return Applied(advice, text, diff, difference, before.predicted, after)


def _outcome(
    text: str, how: tuple[str, Launch, str], advice: Advice, before: Ran
) -> tuple[float, Prediction] | str:
    """How far the results of a changed kernel are off, and its time; or why it will not do."""
    path, name = parts_of(how[0])
    try:
        with changed_copy(path, Path(advice.path), text) as copy, fresh_modules({}):
            after = ran(f"{copy}:{name}", *how[1:])
    except Exception as error:
        failure = failure_of(error)
        if failure.kind == "bug":
            raise
        return f"the changed kernel does not run: {getattr(error, 'problem', error)}"
    most = max(map(difference, before.results, after.results), default=0.0)
    is_narrow = any(own.itemsize < 4 for own in before.results)
    if not most <= (ROUNDED if advice.rounds else NARROW if is_narrow else REORDERED):
        return f"the results of the changed kernel differ by {most:.1e} of the largest"
    known = {own.rule for own in before.report.findings.verdict}
    fresh = [own for own in after.report.findings.verdict if own.fails and own.rule not in known]
    if fresh:
        return f"the changed kernel fails a check: {fresh[0].message} [{fresh[0].rule}]"
    # the first of several changes may only prepare the others
    if not advice.combined_with and after.predicted.latency_us >= before.predicted.latency_us:
        return "the changed kernel is predicted to take no less time"
    return most, after.predicted


@contextmanager
def changed_copy(kernel: Path, file: Path, text: str) -> Iterator[Path]:
    """A kernel's file among the modules that it imports, of which one has another text; removed afterwards.

    Raises:
        UsageError: if the file is outside of the folder that the kernel's imports begin in.
    """
    kernel, file = kernel.resolve(), file.resolve()
    root = home_of(kernel).root
    if root not in file.parents:
        raise UsageError(f"{file} is outside of {root}", hint="change it by hand")
    with TemporaryDirectory(prefix="nkilab-advise-") as folder:
        top = Path(folder).resolve()
        _mirror(root, top, {kernel, file})
        (top / file.relative_to(root)).unlink()
        (top / file.relative_to(root)).write_bytes(text.encode(read(str(file)).encoding))
        yield top / kernel.relative_to(root)


def _mirror(folder: Path, copy: Path, files: set[Path]) -> None:
    """Fill a folder with links to all of another one, but for the way to some files, which are copied."""
    for entry in folder.iterdir():
        own = copy / entry.name
        if entry in files:
            own.write_bytes(entry.read_bytes())
        elif any(entry in file.parents for file in files):
            own.mkdir()
            _mirror(entry, own, files)
        elif entry.name != "__pycache__":
            own.symlink_to(entry)
