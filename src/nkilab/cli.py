"""The program `nkilab`: verbs, options, exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

import click

from . import __version__
from ._lazy import part
from .errors import NkilabError, UsageError

EXIT_FAULT, EXIT_USAGE, EXIT_BUG = 1, 2, 3


class Program(click.Group):
    """The group of verbs; tells our errors in one message and chooses the exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Verbs in the order they are declared."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            click.echo(f"nkilab: {error}", err=True)
            sys.exit(EXIT_USAGE)
        except NkilabError as error:
            click.echo(str(error) if error.where else f"nkilab: {error}", err=True)
            sys.exit(EXIT_FAULT)


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nkilab")
def main() -> None:
    """Run, time and profile AWS Trainium NKI kernels on any computer."""


def _shared(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of every verb that runs a kernel."""
    command = click.option(
        "--nki", "version", default="", metavar="VERSION", help="NKI version to hold kernels to."
    )(command)
    return click.option("--target", default="", metavar="CHIP", help="trn1, trn2 (default) or trn3.")(command)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")
@click.option("--output", default="nkilab-demo", show_default=True, help="Folder for the files it writes.")
def demo(as_json: bool, output: str) -> None:
    """Do the main job on real input: run, check, time, save a profile."""
    sys.exit(part("demo").run_demo(Path(output), as_json=as_json))


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@_shared
@click.option("-m", "as_module", is_flag=True, help="SCRIPT is the name of a module.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(version: str, target: str, as_module: bool, script: str, arguments: Sequence[str]) -> None:
    """Run SCRIPT with the NKI names served; options stand before SCRIPT, the rest is the script's."""
    runner = part("runner")
    runner.serve_names(version, target)
    with runner.put_tools_on_path():
        status = runner.run_script(script, arguments, as_module=as_module)
    sys.exit(status)


@main.command()
@_shared
@click.argument("kernel", metavar="FILE.py:KERNEL")
@click.option("--arg", "args", multiple=True, help="An argument: f32[128,512], @FILE.npy, or name=either.")
@click.option("--kw", "keywords", multiple=True, help="A keyword argument that is no array: name=value.")
@click.option("--grid", default="", help="Program instances along each axis: 4,8.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")
def estimate(
    version: str,
    target: str,
    kernel: str,
    args: Sequence[str],
    keywords: Sequence[str],
    grid: str,
    as_json: bool,
) -> None:
    """Predict the latency of a kernel from shapes alone."""
    api, runner = part("api"), part("runner")
    targets = [name.strip() for name in target.split(",")] if target else [""]
    for name in targets if target else ():
        part("machine").machine_named(name)
    positional, named = part("arguments").call_arguments(args, keywords)
    instances = part("arguments").extents(grid)
    runner.serve_names(version, targets[0])
    results: list[Any] = []

    def work() -> None:
        held = api.as_kernel(runner.kernel_from(kernel))
        held = held[instances] if instances else held
        for name in targets:
            results.append(api.estimate(held, *positional, target=name, **named))

    # what the user's module prints is not the result
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        status = runner.guarded(work)
    if status:
        sys.exit(status)
    if as_json:
        dicts = [r.to_dict() for r in results]
        click.echo(json.dumps(dicts[0] if len(dicts) == 1 else dicts, indent=2))
        return
    for result in results:
        part("views.terminal").print_estimate(result)


@main.command()
@click.option("-o", "output", default="", metavar="KERNEL.py", help="Write the kernel's module there.")
@click.option(
    "--dialect", type=click.Choice(["nki", "neuronxcc"]), default=None, help="Spelling; nki if not given."
)
@click.option("--as-written", is_flag=True, help="Print what the published generator prints, faults and all.")
@click.option("--strict", is_flag=True, help="Refuse what is otherwise repaired.")
@click.option(
    "--search", default=0.0, metavar="SECONDS", help="Try other choices on the timing model so long."
)
@click.option(
    "--test", "tests", is_flag=True, help="Run the kernel on probes; with -o write test and drivers."
)
@click.option("--notebook", default="", metavar="F.ipynb", help="Write all six parts as a notebook.")
@click.option("--explain", "explains", is_flag=True, help="Tell loops, places, traffic, and what binds.")
@click.option(
    "--size", "sizes", multiple=True, metavar="RANK=N", help="Extent of a rank that SPEC leaves open."
)
@click.option("--dtype", "dtypes", multiple=True, metavar="[TENSOR=]TYPE", help="Type of inputs and outputs.")
@click.option("--target", default="trn2", metavar="CHIP", help="trn1, trn2 (default) or trn3.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")
@click.argument("spec")
def einsum(spec: str, dialect: str | None, **options: Any) -> None:
    """Compile the Einsums of SPEC (YAML, docstring, notebook or expressions) into a kernel."""
    status: list[int] = []
    verb = part("einsum.verb")
    code = part("runner").guarded(lambda: status.append(verb.run(spec, dialect=dialect or "", **options)))
    sys.exit(code or status[0])


@main.command()
@click.option("--family", default="", help="Only rows whose family begins so.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")
@click.option("--picture", default="", metavar="FILE.svg", help="Draw predicted against measured.")
@click.argument("ledger", metavar="[LEDGER.yaml]", default="")
def validate(family: str, as_json: bool, picture: str, ledger: str) -> None:
    """Compare predictions with published measurements, or those of LEDGER.yaml; 1 if a bar is missed."""
    runner, held = part("runner"), part("validate")
    found: list[int] = []

    def work() -> None:
        found.append(held.run_validation(ledger, family, picture, as_json=as_json, load=runner.kernel_from))

    status = runner.guarded(work)
    sys.exit(status or found[0])


@main.command("neuron-profile", context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def neuron_profile(arguments: Sequence[str]) -> None:
    """Capture, view or summarize our NEFF and NTFF files as the vendor's tool does its own."""
    part("neuron_profile").command.main(
        args=list(arguments), prog_name="neuron-profile", standalone_mode=True
    )


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")
@click.argument("name")
def explain(as_json: bool, name: str) -> None:
    """Explain an instruction, operator, data type, chip, metric, rule or error key."""
    if as_json:
        click.echo(json.dumps(part("explain").explanation_data(name), indent=2))
    else:
        part("explain").print_explanation(name)


@main.command()
@click.option("--to", default="", metavar="VERSION", help="NKI version to reach; the newest if not given.")
@click.option("--from", "since", default="", metavar="VERSION", help="Version that FILE is written for.")
@click.option("--diff", "shows_diff", is_flag=True, help="Print the mechanical rewrites as a unified diff.")
@click.option("--write", is_flag=True, help="Do the mechanical rewrites in FILE.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")
@click.argument("file", metavar="FILE.py")
def migrate(to: str, since: str, shows_diff: bool, write: bool, as_json: bool, file: str) -> None:
    """Tell what FILE.py has to change for another NKI version; 1 if anything has."""
    if as_json and shows_diff:
        raise UsageError("--json and --diff are both given", hint="leave one of them out")
    part_of = part("migrate")
    found = part_of.migration(file, to, since)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
    elif shows_diff:
        click.echo(found.diff, nl=False)
    else:
        click.echo(part_of.report_text(found))
    if write and found.write():
        click.echo(f"nkilab: {file} is rewritten", err=True)
    sys.exit(EXIT_FAULT if found.is_needed else 0)


@main.command()
@click.option("--missing", "only_missing", is_flag=True, help="Show only what nkilab does not have yet.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")
@click.argument("name", default="")
def ops(only_missing: bool, as_json: bool, name: str) -> None:
    """Show which names of NKI are supported, accepted, refused or missing, per version."""
    held = part("ops")
    matrix = held.matrix(name, only_missing=only_missing)
    if as_json:
        click.echo(json.dumps(matrix.to_dict(), indent=2))
    else:
        held.print_matrix(matrix)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")
def doctor(as_json: bool) -> None:
    """Tell what is installed, and whether real vendor wheels are present."""
    found = part("doctor").report()
    click.echo(json.dumps(found, indent=2) if as_json else part("doctor").report_text(found))
