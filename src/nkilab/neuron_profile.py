"""`neuron-profile` over our own files: capture, view and summary, with the vendor's options."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import click

from .api import Estimate, estimate_program
from .errors import NkilabError, UsageError
from .files import neff, ntff
from .files.container import write_whole, write_whole_folder
from .place import plan
from .views.explorer.formats import summary_json, summary_text, whole_json
from .views.explorer.parquet import parquet_files
from .views.perfetto import trace_protobuf
from .views.run import Run
from .views.terminal import print_summary
from .views.text import print_profile


@click.group()
def command() -> None:
    """Profile kernels from NEFF files that nkilab wrote."""


def _nth_name(path: Path, nth: int) -> Path:
    return path if nth < 2 else path.with_name(f"{path.stem}_exec_{nth}{path.suffix}")


@command.command()
@click.option("-n", "--neff", "neff_path", required=True, type=click.Path(path_type=Path), help="Our NEFF.")
@click.option("-s", "--session-file", "trace_path", default="profile.ntff", type=click.Path(path_type=Path))
@click.option("--profile-nth-exec", "nth", default=1, help="Which execution; it only names the file.")
def capture(neff_path: Path, trace_path: Path, nth: int) -> None:
    """Time the program of a NEFF and write its trace."""
    try:
        predicted = estimate_program(neff.read(neff_path))
        target = _nth_name(trace_path, nth)
        ntff.write(target, predicted.program, predicted.timeline)
    except NkilabError as error:
        raise _told(error) from None
    click.echo(f"wrote {target}: {predicted.latency_us:.1f} us predicted on {predicted.target}")


def _json(run: Run, path: Path) -> None:
    write_whole(path, (whole_json(run) + "\n").encode())


def _perfetto(run: Run, path: Path) -> None:
    write_whole(path, trace_protobuf(run))


def _parquet(run: Run, path: Path) -> None:
    write_whole_folder(path, parquet_files(run))


# What is written to a file, and the name it has unless --output-file says otherwise.
_WRITTEN: dict[str, tuple[Callable[[Run, Path], None], str]] = {
    "json": (_json, "ntff.json"),
    "perfetto": (_perfetto, "ntff.pftrace"),
    "parquet": (_parquet, "ntff_parquet"),
}


@command.command()
@click.option("-n", "--neff", "neff_path", required=True, type=click.Path(path_type=Path), help="Our NEFF.")
@click.option("-s", "--session-file", "trace_path", default=None, type=click.Path(path_type=Path))
@click.option(
    "--output-format", default="text", show_default=True,
    type=click.Choice(["text", "summary-text", "summary-json", *_WRITTEN]),
)  # fmt: skip
@click.option("--output-file", "output", default=None, type=click.Path(path_type=Path), help="For files.")
def view(neff_path: Path, trace_path: Path | None, output_format: str, output: Path | None) -> None:
    """Show the profile of a NEFF and its trace, or write it in one of the vendor's formats."""
    try:
        shown = _shown(neff_path, trace_path)
        if output_format in _WRITTEN:
            write, usual = _WRITTEN[output_format]
            write(shown.run, output or Path(usual))
            click.echo(f"wrote {output or usual}")
            return
    except NkilabError as error:
        raise _told(error) from None
    match output_format:
        case "summary-text":
            click.echo(summary_text(shown.run), nl=False)
        case "summary-json":
            click.echo(summary_json(shown.run, neff.digest_of(shown.program)))
        case _:
            print_profile(shown.run)


@command.command()
@click.option("-n", "--neff", "neff_path", required=True, type=click.Path(path_type=Path), help="Our NEFF.")
@click.option("-s", "--session-file", "trace_path", default=None, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")
def summary(neff_path: Path, trace_path: Path | None, as_json: bool) -> None:
    """Show the summary of a NEFF and its trace."""
    try:
        shown = _shown(neff_path, trace_path)
    except NkilabError as error:
        raise _told(error) from None
    if as_json:
        click.echo(json.dumps(shown.to_dict(), indent=2))
    else:
        print_summary(shown.summary, shown.timeline)


def _shown(neff_path: Path, trace_path: Path | None) -> Estimate:
    """The program of a NEFF with the timeline of its trace; without a trace it is timed anew."""
    program = neff.read(neff_path)
    if trace_path is None:
        return estimate_program(program)
    trace = ntff.read(trace_path)
    trace.check_belongs_to(program)
    return Estimate(
        program.kernel_name,
        program.machine.name,
        program,
        plan(program),
        trace.timeline,
        tuple(program.notes),
    )


class Told(click.ClickException):
    """One of our errors as click tells it."""


class ToldUsage(Told):
    """A wrong usage as click tells it."""

    exit_code = 2


def _told(error: NkilabError) -> Told:
    return (ToldUsage if isinstance(error, UsageError) else Told)(str(error))
