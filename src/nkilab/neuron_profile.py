"""`neuron-profile` over our own files: capture, view and summary, with the vendor's options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from .api import Estimate, estimate_program
from .command_line import OUTPUT, PATH, Number, OneOf, Program, json_option
from .disk import check_outputs, write_whole, write_whole_folder
from .documents import print_document
from .errors import printable
from .files import neff, ntff
from .place import plan
from .views.explorer.formats import summary_json, summary_text, whole_json
from .views.explorer.parquet import parquet_files
from .views.perfetto import trace_json
from .views.run import Run
from .views.terminal import print_summary
from .views.text import print_profile


@click.group(cls=Program)
def command() -> None:
    """Profile kernels from NEFF files that nkilab wrote."""


neff_option = click.option(
    "-n",
    "--neff",
    "neff_path",
    required=True,
    metavar="FILE.neff",
    type=PATH,
    help="A NEFF that nkilab wrote.",
)
trace_option = click.option(
    "-s", "--session-file", "trace_path", default="", metavar="FILE.ntff", type=PATH,
    help="Its trace; without one the program is timed again.",
)  # fmt: skip


@command.command(examples=["neuron-profile capture -n kernel.neff -s kernel.ntff"])
@neff_option
@click.option(
    "-s", "--session-file", "trace_path", default="profile.ntff", metavar="FILE.ntff", show_default=True,
    type=OUTPUT, help="The NTFF to write.",
)  # fmt: skip
@click.option(
    "--profile-nth-exec", "nth", default=1, metavar="N", type=Number(int, 1),
    help="Which execution; it only names the file.",
)  # fmt: skip
@json_option
def capture(neff_path: str, trace_path: str, nth: int, as_json: bool) -> None:
    """Time the program of a NEFF and write its trace."""
    path = Path(trace_path)
    target = path if nth < 2 else path.with_name(f"{path.stem}_exec_{nth}{path.suffix}")
    check_outputs({"--session-file": str(target)}, [neff_path])
    predicted = estimate_program(neff.read(Path(neff_path)))
    ntff.write(target, predicted.program, predicted.timeline)
    if as_json:
        print_document(predicted.to_dict())
    else:
        click.echo(
            f"wrote {printable(str(target))}: {predicted.latency_us:.2f} us predicted on {predicted.target}"
        )


# What is written to a file, and the name it has unless --output-file says otherwise.
_WRITTEN: dict[str, tuple[Callable[[Run, Path], None], str]] = {
    "json": (lambda run, path: write_whole(path, (whole_json(run) + "\n").encode()), "ntff.json"),
    "perfetto": (lambda run, path: write_whole(path, trace_json(run)), "ntff.perfetto.json"),
    "parquet": (lambda run, path: write_whole_folder(path, parquet_files(run)), "ntff_parquet"),
}


@command.command(
    examples=[
        "neuron-profile view -n kernel.neff -s kernel.ntff",
        "neuron-profile view -n kernel.neff -s kernel.ntff --output-format summary-text",
        "neuron-profile view -n kernel.neff --output-format perfetto --output-file kernel.trace.json",
    ]
)
@neff_option
@trace_option
@click.option(
    "--output-format", default="text", show_default=True, metavar="FORMAT",
    type=OneOf("text", "summary-text", "summary-json", *_WRITTEN),
    help=f"text, summary-text, summary-json, {', '.join(_WRITTEN)}.",
)  # fmt: skip
@click.option(
    "--output-file", "output", default="", metavar="FILE", type=PATH, help="Where a file is written."
)
@json_option
def view(neff_path: str, trace_path: str, output_format: str, output: str, as_json: bool) -> None:
    """Show the profile of a NEFF and its trace, or write it in one of the vendor's formats."""
    write, usual = _WRITTEN.get(output_format, (None, ""))
    path = output or usual
    if write is not None:
        folders = ["--output-file"] if output_format == "parquet" else []
        check_outputs({"--output-file": path}, [neff_path, trace_path], folders)
    shown = _shown(neff_path, trace_path)
    if write is not None:
        write(shown.run, Path(path))
        click.echo(f"wrote {printable(str(path))}")
    if as_json:
        print_document(shown.to_dict())
        return
    match output_format:
        case "summary-text":
            click.echo(summary_text(shown.run), nl=False)
        case "summary-json":
            click.echo(summary_json(shown.run, neff.digest_of(shown.program)))
        case "text":
            print_profile(shown.run)


@command.command(examples=["neuron-profile summary -n kernel.neff --json"])
@neff_option
@trace_option
@json_option
def summary(neff_path: str, trace_path: str, as_json: bool) -> None:
    """Show the summary of a NEFF and its trace."""
    shown = _shown(neff_path, trace_path)
    if as_json:
        print_document(shown.to_dict())
    else:
        print_summary(shown.summary, shown.timeline)


def _shown(neff_path: str, trace_path: str) -> Estimate:
    """The program of a NEFF with the timeline of its trace; without a trace it is timed anew."""
    program = neff.read(Path(neff_path))
    if not trace_path:
        return estimate_program(program)
    trace = ntff.read(Path(trace_path))
    trace.check_belongs_to(program)
    return Estimate(
        program.kernel_name,
        program.machine.name,
        program,
        plan(program),
        trace.timeline,
        tuple(program.notes),
    )
