"""Profiles: estimates that show themselves; and what they would be, were the chip different."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from dataclasses import replace as dataclass_replace
from io import StringIO
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ._lazy import part
from .api import Estimate, as_kernel, beside_one_core, estimate_programs, traced
from .argument_checks import mapping, need
from .argument_checks import path as path_of
from .disk import write_whole, write_whole_folder
from .errors import NkilabError, UsageError, did_you_mean
from .estimates import broken_off
from .files import neff
from .machine import Machine, Topology
from .trace.program import Program, recosted
from .tracebacks import public
from .views.difference import Difference
from .views.explorer.parquet import parquet_files
from .views.guidance import Guidance
from .views.perfetto import trace_json
from .views.record import profile_dict
from .views.report import report_html
from .views.report.page import comparison_html
from .views.text import print_difference, print_profile


@dataclass(frozen=True)
class Profile(Estimate):
    """An estimate with views: what the time went to, as text, page, trace, tables and plain data.

    Args:
        traced: the programs of the launch as the kernel wrote them, one per core.
    """

    traced: tuple[Program, ...] = field(default=(), repr=False)

    def _repr_html_(self) -> str:
        html: str = part("views.notebook").framed_html(self.run)
        return html

    @public
    def what_if(self, **changes: float | str) -> Profile:
        """The profile of the same programs on a chip with other constants.

        Args:
            changes: see `changed`: dma_bandwidth="2x", psum_banks=16.

        Raises:
            UsageError: if a change names no constant, or it cannot have the value.
            KernelError: if the programs do not fit the changed chip.
        """
        machine = changed(self.program.machine, changes)
        return profile_of([recosted(program, machine) for program in self.traced])

    @public
    def diff(self, other: Estimate, names: tuple[str, str] = ("A", "B"), changes: str = "") -> Difference:
        """What changes from this run to another.

        Args:
            other: the second run.
            names: what the two are called.
            changes: of the chip, if that is all that tells them apart.
        """
        need("the other run", other, Estimate, "an Estimate or a Profile", "pass what nkilab.profile returns")
        return Difference(self.run, other.run, names, changes)

    @public
    def text(self) -> str:
        """The profile as text, 100 columns wide."""
        out = StringIO()
        print_profile(self.run, out)
        return out.getvalue()

    @public
    def save_html(self, path: str | PathLike[str]) -> None:
        """Write the report: one HTML file that needs nothing else.

        Raises:
            FileError: if the file cannot be written.
        """
        write_whole(path_of("path", path), report_html(self.run).encode())

    @public
    def save_trace(self, path: str | PathLike[str]) -> None:
        """Write a trace for ui.perfetto.dev, as JSON.

        Raises:
            FileError: if the file cannot be written.
        """
        write_whole(path_of("path", path), trace_json(self.run))

    @public
    def save_tables(self, folder: str | PathLike[str]) -> None:
        """Write Summary.parquet, Instruction.parquet, ... as the vendor's profiler names them.

        Raises:
            FileError: if the folder cannot be written.
            UsageError: if pyarrow is missing.
        """
        write_whole_folder(path_of("folder", folder), parquet_files(self.run))

    @public
    def save(self, files: dict[str, str]) -> list[str]:
        """Write the files that are asked for.

        Args:
            files: paths by what is written ("html", ...), "" where nothing is.

        Returns:
            The paths that were written.

        Raises:
            FileError: if a file cannot be written.
        """
        mapping("files", files, '{"html": "report.html"}')
        for kind, path in files.items():
            if kind not in _SAVES:
                raise UsageError(f"files names {kind!r}; there are {', '.join(_SAVES)}")
            if path:
                _SAVES[kind](self, path)
        return [path for path in files.values() if path]

    @public
    def to_profile(self) -> dict[str, Any]:
        """The profile as plain data, ready for JSON: schema nkilab.profile/1."""
        return profile_dict(self.run)


@public
def profile(
    kernel: Any, *args: Any, target: str = "", trips: Mapping[str, int] | None = None, ranks: int = 1,
    topology: Topology | None = None, **kwargs: Any,
) -> Profile:  # fmt: skip
    """Time a kernel from the shapes of its arguments and keep everything that can be seen of it.

    Args:
        kernel: decorated by nki.jit of either spelling, with or without a grid.
        args: arrays or specs, and whatever else the kernel takes.
        target: chip; see `api.machine_for` for the default.
        trips, ranks, topology: see `api.estimate`.
        kwargs: as args.
    """
    profile_made = profile_of(traced(kernel, args, kwargs, target, trips, ranks, topology))
    if ranks > 1:
        return profile_made
    return beside_one_core(profile_made, as_kernel(kernel), args, kwargs, target, trips)


def profile_of(programs: Sequence[Program]) -> Profile:
    """The profile of the programs of a launch, all in one time; details are of the slowest."""
    estimate_made = estimate_programs(programs)
    own = {f.name: getattr(estimate_made, f.name) for f in fields(Estimate)}
    return Profile(**own, traced=tuple(programs))


def profile_until(error: Exception) -> Profile | None:
    """The profile of what a kernel did before it broke off; None if that is nothing, or cannot be timed."""
    begun = broken_off(error)
    if begun is None:
        return None
    program, said = begun
    try:
        profile_made = profile_of([program])
    except NkilabError:
        return None
    note = f"{said}; this is what ran"
    run = replace(profile_made.run, guide=_no_advice, notes=(note, *profile_made.run.notes))
    profile_made = dataclass_replace(profile_made, notes=(note, *profile_made.notes))
    vars(profile_made)["run"] = run
    return profile_made


def _no_advice() -> Guidance:
    """Half of a kernel is full of work that nobody reads: it gets no advice."""
    return Guidance(why_none="Advice is for kernels that run to their end.")


# What a profile is saved as, by the name of its option.
_SAVES: dict[str, Callable[[Profile, str], None]] = {
    "html": Profile.save_html,
    "trace": Profile.save_trace,
    "parquet": Profile.save_tables,
}


def check_files(files: dict[str, str], target: str, what_if: str = "") -> None:
    """Refuse files that one run cannot fill, before anything is run.

    Args:
        files: paths by option, "" where none is asked for.
        target: chips, as the command line has them.
        what_if: changes of the chip, likewise.

    Raises:
        UsageError: if files are asked for and several chips are named.
    """
    asked = [path for path in files.values() if path]
    if asked and "," in target:
        raise UsageError(f"--target names {target}; a file shows one chip", hint="name one chip")
    for kind in ("trace", "parquet"):
        if what_if and files.get(kind):
            raise UsageError(
                f"--{kind} and --what-if are both given; a {kind} file shows one run",
                hint="leave one of them out, or write both runs with --html",
            )


def difference_text(difference: Difference) -> str:
    """What changes from one run to another as text, 100 columns wide."""
    out = StringIO()
    print_difference(difference, out)
    return out.getvalue()


def save_comparison(difference: Difference, path: str | PathLike[str]) -> None:
    """Write both runs side by side: one HTML file that needs nothing else.

    Raises:
        FileError: if the file cannot be written.
    """
    write_whole(path, comparison_html(difference).encode())


def profile_in(path: str | PathLike[str]) -> Profile:
    """The profile of the program in one of our NEFF files.

    Raises:
        FileError: if the file cannot be read.
    """
    return profile_of([neff.read(path)])


def with_changes(keywords: Sequence[str], changes: Sequence[str]) -> list[str]:
    """Keyword arguments as a command line has them, name=value, those of one name replaced by changes."""
    names = {change.partition("=")[0].strip() for change in changes}
    return [own for own in keywords if own.partition("=")[0].strip() not in names] + list(changes)


def told_apart(first: str, second: str, keywords: Sequence[str], changes: Sequence[str]) -> tuple[str, str]:
    """What two kernels of a command line are called: as short as tells them apart."""
    if changes:
        names = [change.partition("=")[0].strip() for change in changes]
        own = [keyword for keyword in keywords if keyword.partition("=")[0].strip() in names]
        first, second = f"{_short(first)} {' '.join(own)}".strip(), f"{_short(second)} {' '.join(changes)}"
        return first, second
    one, other = _short(first), _short(second)
    if first == second:
        first, second = f"A: {one}", f"B: {other}"
    return (one, other) if one != other else (first, second)


def _short(designation: str) -> str:
    """A kernel without its file, a file without its folder."""
    return designation.rpartition(":")[2] if not designation.endswith(".neff") else Path(designation).name


# Names that are shorter than those of constants, or stand for several: what divides an absolute value.
ALIASES: dict[str, dict[str, str]] = {
    "dma_bandwidth": {"dma_bytes_per_ns": "dma_engines", "hbm_bytes_per_ns": ""},
    "hbm_bandwidth": {"hbm_bytes_per_ns": ""},
    "dma_latency": {"dma_start_ns": "", "dma_static_start_ns": ""},
    "dma_issue": {"dma_issue_ns": ""},
    "semaphore": {"semaphore_ns": ""},
    "sbuf_bytes": {"sbuf_bytes_per_partition": ""},
    "tensor_clock": {"tensor_clock_ghz": ""},
    "vector_clock": {"vector_clock_ghz": ""},
    "scalar_clock": {"scalar_clock_ghz": ""},
    "gpsimd_clock": {"gpsimd_clock_ghz": ""},
}


def changes_in(text: str) -> dict[str, str]:
    """Changes by name from "dma_bandwidth=2x,psum_banks=16".

    Raises:
        UsageError: if one is no NAME=VALUE, or stands twice.
    """
    changes: dict[str, str] = {}
    for change in text.split(","):
        name, sign, value = (piece.strip() for piece in change.partition("="))
        if not sign or not name or not value:
            raise UsageError(f"--what-if has {change!r}; write NAME=VALUE, as in dma_bandwidth=2x")
        if name in changes:
            raise UsageError(f"--what-if names {name} twice")
        changes[name] = value
    return changes


def changed(machine: Machine, changes: Mapping[str, Any]) -> Machine:
    """A chip with other constants.

    Args:
        machine: the chip.
        changes: by constant of the chip, or by a name of `ALIASES`: a number in the constant's unit
            (bandwidths in bytes per nanosecond, which is GB/s), or how many times it is, as "2x".

    Raises:
        UsageError: if there is no such constant, or it cannot have the value.
    """
    values: dict[str, float] = {}
    for name, factor in changes.items():
        value, is_factor = _number(name, factor)
        for constant, divisor in _constants(machine, name).items():
            new_value = (
                machine[constant] * value if is_factor else value / (machine[divisor] if divisor else 1)
            )
            values[constant] = _allowed(machine, constant, new_value, f"{name}={factor}", is_factor=is_factor)
    changes_text = ",".join(f"{name}={factor}" for name, factor in changes.items())
    label = f"{machine.calibration}, {changes_text}" if machine.calibration else changes_text
    return machine.with_constants(values, f"what if {changes_text}", label, "assumed")


def _allowed(machine: Machine, constant: str, value: float, change: str, *, is_factor: bool) -> float:
    """A value that a constant may have; a factor may leave a part of what counts, which does not count."""
    if is_factor and "whole" in machine.needs(constant, value):
        value = int(value)
    needed = machine.needs(constant, value)
    if needed:
        raise UsageError(f"{change} makes {constant} {value:g}; it must be {needed}")
    return value


def _constants(machine: Machine, name: str) -> Mapping[str, str]:
    if name in ALIASES:
        return ALIASES[name]
    facts = machine.facts()
    if name in facts:
        return {name: ""}
    raise UsageError(
        f"{machine.name} has no constant {name}",
        hint=did_you_mean(name, [*ALIASES, *facts], "nkilab explain CHIP lists them all"),
    )


def _number(name: str, value_text: Any) -> tuple[float, bool]:
    """A value, and whether it is a factor."""
    text = str(value_text).strip()
    is_factor = text.endswith(("x", "X"))
    try:
        value = float(text[:-1] if is_factor else text)
    except ValueError:
        value = -1.0
    if not isfinite(value) or value < 0:
        raise UsageError(f"{name} is {text}; a change is a number from 0 on, or a factor such as 2x")
    return value, is_factor
