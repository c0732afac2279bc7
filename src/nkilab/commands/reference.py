"""The verbs that tell about nkilab, NKI and measurements: explain, ops, doctor, validate, calibrate, ..."""

from __future__ import annotations

from collections.abc import Sequence

import click

from .._lazy import part
from ..command_line import (
    CHIPS,
    COMPLETION,
    NAMES,
    OUTPUT,
    PATH,
    OneOf,
    completion_script,
    json_option,
    optional,
    show,
    verb,
)
from ..documents import print_document
from ..errors import UsageError

SHELLS = ("bash", "zsh", "fish")


@verb(
    "nkilab explain nc_matmul",
    "nkilab explain trn2",
    "nkilab explain mbu_estimated_percent",
    "nkilab explain race-two-cores --json",
    "nkilab explain NCC_INLA001",
)
@json_option
@click.argument("name", type=NAMES)
def explain(as_json: bool, name: str) -> None:
    """Explain a word, public name, instruction, type, chip, constant, metric, rule, error key or code."""
    if as_json:
        print_document(part("explain").explanation_data(name))
    else:
        part("explain").print_explanation(name)


@verb("nkilab ops", "nkilab ops nki.isa.nc_matmul", "nkilab ops --missing --json")
@click.option("--missing", "only_missing", is_flag=True, help="Show only what nkilab does not have yet.")
@json_option
@click.argument("name", default="")
def ops(only_missing: bool, as_json: bool, name: str) -> None:
    """Show which names of NKI are supported, accepted, refused or missing, per version."""
    operations = part("ops")
    matrix = operations.matrix(name, only_missing=only_missing)
    if as_json:
        print_document(matrix.to_dict())
    else:
        operations.print_matrix(matrix)


@verb(
    "nkilab doctor",
    "nkilab doctor --json",
    "nkilab doctor --cache",
    "nkilab doctor --cache --clear",
)
@json_option
@click.option("--cache", is_flag=True, help="Show what is kept on disk: compiled code and estimates.")
@click.option("--clear", is_flag=True, help="With --cache: delete it; it is made again when needed.")
def doctor(as_json: bool, cache: bool, clear: bool) -> None:
    """Show what is installed, whether AWS's own packages are, and what nkilab keeps."""
    if clear and not cache:
        raise UsageError("--clear deletes what --cache shows", hint="give both")
    own = part("doctor")
    show(own.report(has_cache=cache, is_cleared=clear), own.report_text, as_json=as_json)


@verb(
    'eval "$(nkilab completion bash)"      in ~/.bashrc',
    'eval "$(nkilab completion zsh)"       in ~/.zshrc',
    "nkilab completion fish > ~/.config/fish/completions/nkilab.fish",
)
@json_option
@click.argument("shell", metavar="SHELL", type=OneOf(*SHELLS))
def completion(as_json: bool, shell: str) -> None:
    """Print the script that lets SHELL (bash, zsh or fish) complete verbs, options, files and names."""
    script = completion_script(click.get_current_context().find_root().command, shell)
    document = {"schema": "nkilab.completion/1", "shell": shell, "variable": COMPLETION, "script": script}
    if as_json:
        print_document(document)
    else:
        click.echo(script)


@verb(
    "nkilab validate",
    "nkilab validate --family tensor_add --picture predicted.svg",
    "nkilab validate ours.yaml --json",
    "nkilab validate --regret",
)
@optional("--family", metavar="NAME", help="Only rows whose family begins with NAME.")
@json_option
@optional("--picture", metavar="FILE.svg", type=OUTPUT, help="Draw predicted against measured.")
@click.option("--leave-out", is_flag=True, help="Predict each family with constants fitted to the others.")
@click.option("--regret", is_flag=True, help="Show what is lost by choosing block sizes by prediction.")
@click.argument("ledger", metavar="[LEDGER.yaml]", default="", type=PATH)
def validate(
    family: str, as_json: bool, picture: str, leave_out: bool, regret: bool, ledger: str
) -> int:  # fmt: skip
    """Compare predictions with published measurements, or those of LEDGER.yaml.

    The exit status is 1 if they are further off than allowed.
    """
    load, validation = part("runner").kernel_from, part("validate")
    if regret and (picture or leave_out):
        raise UsageError("--regret goes with --family and --json alone", hint="leave the other options out")

    status: int
    if regret:
        status = validation.run_regret(ledger, family, as_json=as_json, load=load)
    else:
        options = {"as_json": as_json, "leave_out": leave_out, "load": load}
        status = validation.run_validation(ledger, family, picture, **options)
    return status


@verb(
    "nkilab calibrate --from measured.yaml -o ours.yaml",
    "nkilab estimate kernel.py:softmax --arg 'f32[512,2048]' --target ours.yaml",
)
@click.option("--from", "ledger", required=True, metavar="LEDGER.yaml", type=PATH, help="The measurements.")
@click.option(
    "-o", "output", required=True, metavar="MACHINE.yaml", type=OUTPUT, help="The machine file to write."
)
@optional("--target", metavar="CHIP", type=CHIPS, help="Only rows of this chip: trn1, trn2 or trn3.")
@json_option
def calibrate(ledger: str, output: str, target: str, as_json: bool) -> None:
    """Fit the constants of a chip to measurements of your own; the file it writes is a --target."""
    load = part("runner").kernel_from
    part("calibrate").run_calibration(ledger, output, target, as_json=as_json, load=load)


@verb(name="neuron-profile", context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def neuron_profile(arguments: Sequence[str]) -> int:
    """Capture, view or summarize our NEFF and NTFF files as the vendor's tool does its own."""
    status: int = part("neuron_profile").command.status(list(arguments), "neuron-profile")
    return status
