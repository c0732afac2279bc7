"""`nkilab watch` and `%%nki`: a kernel is timed and checked again whenever its text changes."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain

from . import api
from ._lazy import watchfiles
from .checking import Launch, Options, report_of
from .checks import terminal
from .checks.finding import Finding
from .checks.report import Advised, Report, summary_line
from .dialects.loop_text import forget_files
from .documents import print_document
from .errors import UsageError, printable
from .failures import failure_of, users_frames
from .packages import users_file
from .runner import kernel_from, parts_of

SCHEMA = "nkilab.watch/1"
# Milliseconds after which a wait for the file system ends, to see whether a file changed before it began.
_LONGEST_WAIT = 250

Stamps = dict[str, tuple[int, int]]


class Watched:
    """A kernel that is looked at again and again: what was seen of it last, and each time."""

    def __init__(self) -> None:
        self._last: Report | None = None
        self._timed: Report | None = None
        self.rounds: list[dict[str, object]] = []
        self.files: Stamps = {}

    def look(self, kernel: Callable[[], object], call: Launch, target: str) -> str:
        """Time and check a kernel; what is to be said of it, and of the difference to the last time.

        Args:
            kernel: reads it; what goes wrong is said too.
            call: positional and keyword arguments, and the grid.
            target: chip; "" for the default.
        """
        args, named, grid = call
        try:
            function = api.as_kernel(kernel())
            report = report_of(function[grid] if grid else function, args, named, Options(target))
        except (Exception, SystemExit) as error:
            failure = failure_of(error)
            self.files |= _stamps({frame.file for frame in users_frames(error)} - self.files.keys())
            self.rounds.append(
                {"predicted": None, "passes": False, "error": failure.to_dict()} | _listed((), ())
            )
            return failure.text
        last, self._last = self._last, report
        new, gone = (_others(report, last), _others(last, report)) if last else (report.findings, ())
        if report.predicted is None:
            # advice is for kernels that run to their end: it is not gone
            gone = tuple(one for one in gone if one.severity != "advice")
        document = report.to_dict()
        shown = {key: document[key] for key in ("predicted", "passes")}
        self.rounds.append({**shown, "error": None} | _listed(new, gone))
        lines = [f"gone: {one.where}: {one.severity}: {one.message} [{one.rule}]" for one in gone]
        lines += [f"{terminal.text_of(replace(report, findings=Advised(new)))}\n"] if new else []
        timed, self._timed = self._timed, self._timed if report.predicted is None else report
        return "\n".join([*lines, _headline(report, timed)])


def _listed(new: Iterable[Finding], gone: Iterable[Finding]) -> dict[str, object]:
    return {"new": [one.to_dict() for one in new], "gone": [one.to_dict() for one in gone]}


def _others(report: Report, than: Report) -> tuple[Finding, ...]:
    """The findings of a report that another has not; lines and numbers may differ between the two."""
    known = Counter(map(_same_as, than.findings))
    fresh = []
    for one in report.findings:
        known[_same_as(one)] -= 1
        if known[_same_as(one)] < 0:
            fresh.append(one)
    return tuple(fresh)


def _same_as(finding: Finding) -> tuple[str, str]:
    return finding.rule, re.sub(r"\d+", "", finding.message)


def _headline(report: Report, last: Report | None) -> str:
    """Latency, bound and number of findings, and how the latency differs from the last."""
    counts = f"{report.kernel} on {report.target}: {summary_line([report])}"
    if (own := report.predicted) is None:
        return f"{counts}; it cannot be timed"
    latency, (low, high) = own.latency_us, own.interval_us
    text = f"{counts}\n{latency:.2f} us predicted, {low:.2f} to {high:.2f} us; bound by {own.bound}"
    if last is None or last.predicted is None:
        return text
    before = last.predicted.latency_us
    change = f"{abs(before - latency):.2f} us {'less' if latency < before else 'more'} than the last time"
    text += f" instead of {last.predicted.bound}" if last.predicted.bound != own.bound else ""
    return f"{text}\n{change if latency != before else 'as long as the last time'}"


def run_watch(designation: str, call: Launch, target: str, *, as_json: bool = False) -> None:
    """Watch a kernel until Ctrl-C; then print all rounds as a document, if that is asked for.

    Raises:
        UsageError: if it is no file, or watchfiles is not installed.
    """
    watched = Watched()
    watched.files[str(parts_of(designation)[0].resolve())] = (0, 0)
    with suppress(KeyboardInterrupt):
        for text in rounds(watched, designation, (call, target), saves(watched.files)):
            print(printable(text), flush=True)
    if as_json:
        print_document({"schema": SCHEMA, "kernel": designation, "rounds": watched.rounds})


def rounds(
    watched: Watched, designation: str, how: tuple[Launch, str], changes: Iterable[object]
) -> Iterator[str]:
    """What is to be said of a kernel at once, and again after each change; its modules are imported anew.

    Args:
        watched: remembers what was seen.
        designation: FILE.py:KERNEL.
        how: what it is called on, and the chip.
        changes: of its files, one item each.
    """
    for place, _ in enumerate(chain([None], changes)):
        with fresh_modules(watched.files):
            text = watched.look(lambda: kernel_from(designation), *how)
        yield f"\n{text}" if place else f"{text}\nwatching {designation}; Ctrl-C ends it"


def saves(files: Stamps) -> Iterator[object]:
    """One item where files are no longer as they were read, or Python text beside them changes; until Ctrl-C.

    Raises:
        UsageError: if watchfiles is not installed.
    """
    try:
        watching = watchfiles()
    except ImportError:
        hint = "pip install 'nkilab[watch]'"
        raise UsageError("nkilab watch needs the package watchfiles", hint=hint) from None
    how = {"watch_filter": watching.PythonFilter(), "rust_timeout": _LONGEST_WAIT, "yield_on_timeout": True}
    while True:
        folders = {os.path.dirname(file) for file in files}
        yield from _news(watching.watch(*folders, recursive=False, **how), files, folders)


def _news(changes: Iterable[set[tuple[object, str]]], files: Stamps, folders: set[str]) -> Iterator[object]:
    """The changes that mean another round, until the files lie in other folders than those watched."""
    for changed in changes:
        if {path for _, path in changed} - files.keys() or _stamps(files) != files:
            yield changed
        if {os.path.dirname(file) for file in files} != folders:
            return


def _stamps(files: Iterable[str]) -> Stamps:
    """When files were changed last, and their sizes; zeroes for those that are away."""
    known = dict.fromkeys(files, (0, 0))
    for file in known:
        if os.path.isfile(file):
            status = os.stat(file)
            known[file] = (status.st_mtime_ns, status.st_size)
    return known


@contextmanager
def fresh_modules(files: Stamps) -> Iterator[None]:
    """Forget afterwards what a block imports of the user's; note its files, whose text is read anew."""
    before, path, writes_none = {**sys.modules}, [*sys.path], sys.dont_write_bytecode
    # a file that is saved twice in a second would be taken for the one that was compiled
    sys.dont_write_bytecode = True
    forget_files()
    files |= _stamps(files)
    try:
        yield
    finally:
        sys.path[:], sys.dont_write_bytecode = path, writes_none
        loaded = {name: own for name, own in sys.modules.items() if before.get(name) is not own}
        imported = {name: users_file(own) for name, own in loaded.items()}
        for name in filter(imported.get, imported):
            del sys.modules[name]
            sys.modules |= {name: before[name]} if name in before else {}
        files |= _stamps({file for file in imported.values() if file} - files.keys())
