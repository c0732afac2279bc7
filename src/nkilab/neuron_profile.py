"""`neuron-profile` over our own files: capture, view and summary, with the vendor's options."""

from __future__ import annotations

import json
from pathlib import Path

import click

from .api import estimate_program
from .errors import NkilabError, UsageError
from .files import neff, ntff
from .views.terminal import print_summary


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


@command.command()
@click.option("-n", "--neff", "neff_path", required=True, type=click.Path(path_type=Path), help="Our NEFF.")
@click.option("-s", "--session-file", "trace_path", default=None, type=click.Path(path_type=Path))
@click.option("--output-format", default="summary-text", type=click.Choice(["summary-text", "summary-json"]))
def view(neff_path: Path, trace_path: Path | None, output_format: str) -> None:
    """Show the summary of a NEFF and its trace."""
    _show(neff_path, trace_path, as_json=output_format == "summary-json")


@command.command()
@click.option("-n", "--neff", "neff_path", required=True, type=click.Path(path_type=Path), help="Our NEFF.")
@click.option("-s", "--session-file", "trace_path", default=None, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")
def summary(neff_path: Path, trace_path: Path | None, as_json: bool) -> None:
    """Show the summary of a NEFF and its trace."""
    _show(neff_path, trace_path, as_json=as_json)


def _show(neff_path: Path, trace_path: Path | None, *, as_json: bool) -> None:
    try:
        program = neff.read(neff_path)
        if trace_path is not None:
            ntff.read(trace_path).check_belongs_to(program)
        predicted = estimate_program(program)
    except NkilabError as error:
        raise _told(error) from None
    if as_json:
        click.echo(json.dumps(predicted.to_dict(), indent=2))
    else:
        print_summary(predicted.summary, predicted.timeline)


class Told(click.ClickException):
    """One of our errors as click tells it."""


class ToldUsage(Told):
    """A wrong usage as click tells it."""

    exit_code = 2


def _told(error: NkilabError) -> Told:
    return (ToldUsage if isinstance(error, UsageError) else Told)(str(error))
