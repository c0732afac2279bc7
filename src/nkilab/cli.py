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
from .tune_command import tune

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
@click.option("--check", "checks", is_flag=True, help="Check every kernel that runs; 1 if there is an error.")
@click.option(
    "--profile", "folder", default="", metavar="DIR", help="Write a report of every kernel launch there."
)
@click.option(
    "--ranks", default=0, metavar="N", help="Run SCRIPT once per rank (RANK, WORLD_SIZE), kernels together."
)
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    version: str,
    target: str,
    as_module: bool,
    checks: bool,
    folder: str,
    ranks: int,
    script: str,
    arguments: Sequence[str],
) -> None:
    """Run SCRIPT with the NKI names served; options stand before SCRIPT, the rest is the script's."""
    runner = part("runner")
    runner.serve_names(version, target)
    if ranks and folder:
        raise UsageError("--ranks and --profile are both given", hint="leave one of them out")
    if folder:
        part("api").choose(watch=part("reports").Reports(Path(folder)))
    if ranks and checks:
        raise UsageError("--ranks and --check are both given", hint="leave one of them out")
    checking = part("checking") if checks else None
    with runner.put_tools_on_path(), checking.every_launch() if checking else nullcontext([]) as reports:
        status = runner.run_script(script, arguments, as_module=as_module, ranks=ranks)
    if checking is not None:
        status = checking.told_of_script(reports) or status
    sys.exit(status)


def _of_kernel(command: Callable[..., Any]) -> Callable[..., Any]:
    """Kernel, arguments and chip of verbs that time a kernel from shapes."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output."),
        click.option(
            "--trips", multiple=True, metavar="FILE.py:LINE=N", help="How often a register's loop goes round."
        ),
        click.option("--grid", default="", help="Program instances along each axis: 4,8."),
        click.option(
            "--kw", "keywords", multiple=True, help="A keyword argument that is no array: name=value."
        ),
        click.option(
            "--arg", "args", multiple=True, help="An argument: f32[128,512], @FILE.npy, or name=either."
        ),
    ):
        command = option(command)
    return _shared(command)


def _timed(
    how: Callable[..., Any],
    kernel: str,
    version: str,
    target: str,
    args: Sequence[str],
    keywords: Sequence[str],
    grid: str,
    trips: Sequence[str],
    as_json: bool,
) -> list[Any]:
    """What a function of `api` or `profiles` says of a kernel on each chip; exits where the kernel fails."""
    api, runner = part("api"), part("runner")
    targets = [name.strip() for name in target.split(",")] if target else [""]
    for name in targets if target else ():
        part("machine").machine_named(name)
    positional, named = part("arguments").call_arguments(args, keywords)
    instances, turns = part("arguments").extents(grid), part("arguments").trips(trips)
    runner.serve_names(version, targets[0])
    results: list[Any] = []

    def work() -> None:
        held = api.as_kernel(runner.kernel_from(kernel))
        held = held[instances] if instances else held
        for name in targets:
            results.append(how(held, *positional, target=name, trips=turns, **named))

    # what the user's module prints is not the result
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        status = runner.guarded(work)
    if status:
        sys.exit(status)
    return results


def _echo_json(dicts: list[dict[str, Any]]) -> None:
    click.echo(json.dumps(dicts[0] if len(dicts) == 1 else dicts, indent=2))


@main.command()
@click.argument("kernel", metavar="FILE.py:KERNEL")
@_of_kernel
def estimate(kernel: str, as_json: bool, **options: Any) -> None:
    """Predict the latency of a kernel from shapes alone."""
    results = _timed(part("api").estimate, kernel, as_json=as_json, **options)
    if as_json:
        _echo_json([r.to_dict() for r in results])
        return
    terminal = part("views.terminal")
    if len(results) > 1:
        terminal.print_comparison(results)
    else:
        terminal.print_estimate(results[0])


_CHECK_EXAMPLES = """
\b
Examples:
  nkilab check kernel.py:softmax --arg 'f32[512,2048]'
  nkilab check kernel.py:matmul --arg 'bf16[512,512]' --arg 'bf16[512,512]' --json
  nkilab check kernel.py:exchange --arg 'f32[128,512]' --grid 2 --sarif findings.sarif
  nkilab check kernel.py:attention --arg 'bf16[1024,128]' --replay 8 --numerics
  nkilab check --list
  nkilab explain race-two-cores
"""


@main.command(epilog=_CHECK_EXAMPLES)
@_shared
@click.argument("kernel", metavar="FILE.py:KERNEL", default="")
@click.option(
    "--list", "lists", is_flag=True, help="List the rules, and documented rules that are not covered."
)
@click.option("--arg", "args", multiple=True, help="An argument: f32[128,512], @FILE.npy, or name=either.")
@click.option("--kw", "keywords", multiple=True, help="A keyword argument that is no array: name=value.")
@click.option("--grid", default="", help="Program instances along each axis: 4,8.")
@click.option(
    "--replay",
    default=0,
    type=click.IntRange(0),
    metavar="N",
    help="Compute N other orders of the rows and compare.",
)
@click.option("--numerics", is_flag=True, help="Compute in float32 beside the stored types and compare.")
@click.option("--what-if", default="", metavar="RULE@LINE", help="Time it without what this advice is about.")
@click.option("--sarif", "sarif_file", default="", metavar="FILE", help="Write the findings as SARIF 2.1.0.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")
def check(
    version: str,
    target: str,
    kernel: str,
    lists: bool,
    args: Sequence[str],
    keywords: Sequence[str],
    grid: str,
    replay: int,
    numerics: bool,
    what_if: str,
    sarif_file: str,
    as_json: bool,
) -> None:
    """Run a kernel once and tell what the hardware would punish; 1 if there is an error."""
    checking, runner = part("checking"), part("runner")
    if lists:
        part("explain").print_rules(as_json=as_json)
        return
    if not kernel:
        raise UsageError("no kernel is named", hint="write nkilab check FILE.py:KERNEL")
    positional, named = part("arguments").call_arguments(args, keywords)
    instances = part("arguments").extents(grid)
    runner.serve_names(version, target)
    options = checking.Options(target, replay, numerics)
    status = checking.run_check(
        kernel,
        (positional, named, instances),
        options,
        runner.kernel_from,
        runner.guarded,
        as_json=as_json,
        what_if=what_if,
        sarif_file=sarif_file,
        version=__version__,
    )
    sys.exit(status)


@main.command()
@click.argument("kernel", metavar="FILE.py:KERNEL")
@_of_kernel
@click.option("--text", "as_text", is_flag=True, help="Print the profile, as it is if no file is asked for.")
@click.option("--html", default="", metavar="F", help="Write a report that shows everything: one HTML file.")
@click.option(
    "--trace", default="", metavar="F", help="Write a trace for ui.perfetto.dev: *.json, else protobuf."
)
@click.option("--parquet", default="", metavar="DIR", help="Write tables as Neuron Explorer names them.")
@click.option(
    "--what-if",
    default="",
    metavar="K=V,...",
    help="Show what changes with other constants: dma_bandwidth=2x.",
)
def profile(
    kernel: str,
    as_json: bool,
    as_text: bool,
    html: str,
    trace: str,
    parquet: str,
    what_if: str,
    **options: Any,
) -> None:
    """Show where the time of a kernel goes, and why, from shapes alone.

    \b
    nkilab profile kernel.py:product --arg f32[512,256] --arg f32[512,512]
    nkilab profile kernel.py:product --arg ... --html report.html --trace trace.json
    nkilab profile kernel.py:product --arg ... --what-if dma_bandwidth=2x,psum_banks=16
    """
    files = {"html": html, "trace": trace, "parquet": parquet}
    profiles = part("profiles")
    profiles.check_files(files, options["target"], what_if)
    changes = part("what_if").changes_in(what_if) if what_if else {}
    results = _timed(profiles.profile, kernel, as_json=as_json, **options)
    if changes:
        found = [r.diff(r.what_if(**changes), ("as it is", "what if"), what_if) for r in results]
        _show_differences(found, as_json, as_text, html)
        return
    for wrote in results[0].save(files):
        click.echo(f"nkilab: wrote {wrote}", err=True)
    if as_json:
        _echo_json([r.to_profile() for r in results])
    elif as_text or not any(files.values()):
        for result in results:
            click.echo(result.text(), nl=False)


def _show_differences(differences: list[Any], as_json: bool, as_text: bool, html: str) -> None:
    """Print differences, or write the page of the only one."""
    profiles = part("profiles")
    if html:
        profiles.save_comparison(differences[0], html)
        click.echo(f"nkilab: wrote {html}", err=True)
    if as_json:
        _echo_json([difference.to_dict() for difference in differences])
    elif as_text or not html:
        for difference in differences:
            click.echo(profiles.difference_text(difference), nl=False)


@main.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@_of_kernel
@click.option("--kw-b", "keywords_b", multiple=True, help="A keyword argument of B alone, instead of A's.")
@click.option(
    "--text", "as_text", is_flag=True, help="Print the difference, as it is if no file is asked for."
)
@click.option("--html", default="", metavar="F", help="Write both timelines side by side: one HTML file.")
def diff(
    first: str,
    second: str,
    as_json: bool,
    keywords_b: Sequence[str],
    as_text: bool,
    html: str,
    **options: Any,
) -> None:
    """Compare two kernels, FILE.py:KERNEL or a NEFF file that nkilab wrote each, from shapes alone.

    \b
    nkilab diff kernel.py:first kernel.py:second --arg f32[512,256] --arg f32[512,512]
    nkilab diff kernel.py:product kernel.py:product --arg ... --kw tiles=2 --kw-b tiles=4 --html diff.html
    """
    profiles = part("profiles")
    profiles.check_files({"html": html}, options["target"])
    second_options = {**options, "keywords": profiles.with_changes(options["keywords"], keywords_b)}
    found = []
    for kernel, given in ((first, options), (second, second_options)):
        if kernel.endswith(".neff"):
            found.append([profiles.profile_in(kernel)])
        else:
            found.append(_timed(profiles.profile, kernel, as_json=as_json, **given))
    names = profiles.told_apart(first, second, options["keywords"], keywords_b)
    pairs = zip(*found, strict=False)
    _show_differences([one.diff(other, names) for one, other in pairs], as_json, as_text, html)


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


main.add_command(tune)


@main.command()
@click.option("--family", default="", help="Only rows whose family begins so.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")
@click.option("--picture", default="", metavar="FILE.svg", help="Draw predicted against measured.")
@click.option("--leave-out", is_flag=True, help="Predict each family with constants fitted to the others.")
@click.option("--regret", is_flag=True, help="What choosing block sizes by prediction costs, grid by grid.")
@click.argument("ledger", metavar="[LEDGER.yaml]", default="")
def validate(
    family: str, as_json: bool, picture: str, leave_out: bool, regret: bool, ledger: str
) -> None:  # fmt: skip
    """Compare predictions with published measurements, or those of LEDGER.yaml; 1 if a bar is missed."""
    runner, held = part("runner"), part("validate")
    found: list[int] = []
    if regret and (picture or leave_out):
        raise UsageError("--regret goes with --family and --json alone", hint="leave the other options out")

    def work() -> None:
        if regret:
            found.append(held.run_regret(ledger, family, as_json=as_json, load=runner.kernel_from))
            return
        given = {"as_json": as_json, "leave_out": leave_out, "load": runner.kernel_from}
        found.append(held.run_validation(ledger, family, picture, **given))

    status = runner.guarded(work)
    sys.exit(status or found[0])


@main.command()
@click.option("--from", "ledger", required=True, metavar="LEDGER.yaml", help="The measurements.")
@click.option("-o", "output", required=True, metavar="MACHINE.yaml", help="The machine file to write.")
@click.option("--target", default="", metavar="CHIP", help="Only rows of this chip: trn1, trn2 or trn3.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")
def calibrate(ledger: str, output: str, target: str, as_json: bool) -> None:
    """Fit the constants of a chip to measurements of your own; the file it writes is a --target."""
    runner = part("runner")

    def work() -> None:
        part("calibrate").run_calibration(ledger, output, target, as_json=as_json, load=runner.kernel_from)

    sys.exit(runner.guarded(work))


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
