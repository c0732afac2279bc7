"""The verbs about measurements: validate, calibrate; and neuron-profile."""

from __future__ import annotations

from collections.abc import Sequence

import click

from .._lazy import part
from ..command_line import CHIPS, OUTPUT, PATH, Verb, json_option, optional
from ..errors import UsageError


@click.command(
    cls=Verb,
    examples=[
        "nkilab validate",
        "nkilab validate --family tensor_add --picture predicted.svg",
        "nkilab validate ours.yaml --json",
        "nkilab validate --regret",
    ],
)
@optional("--family", metavar="NAME", help="Only rows whose family begins so.")
@json_option
@optional("--picture", metavar="FILE.svg", type=OUTPUT, help="Draw predicted against measured.")
@click.option("--leave-out", is_flag=True, help="Predict each family with constants fitted to the others.")
@click.option("--regret", is_flag=True, help="What choosing block sizes by prediction costs, grid by grid.")
@click.argument("ledger", metavar="[LEDGER.yaml]", default="", type=PATH)
def validate(
    family: str, as_json: bool, picture: str, leave_out: bool, regret: bool, ledger: str
) -> int:  # fmt: skip
    """Compare predictions with published measurements, or those of LEDGER.yaml.

    The exit status is 1 if they are further off than allowed.
    """
    load, verb = part("runner").kernel_from, part("validate")
    if regret and (picture or leave_out):
        raise UsageError("--regret goes with --family and --json alone", hint="leave the other options out")

    status: int
    if regret:
        status = verb.run_regret(ledger, family, as_json=as_json, load=load)
    else:
        options = {"as_json": as_json, "leave_out": leave_out, "load": load}
        status = verb.run_validation(ledger, family, picture, **options)
    return status


@click.command(
    cls=Verb,
    examples=[
        "nkilab calibrate --from measured.yaml -o ours.yaml",
        "nkilab estimate kernel.py:softmax --arg 'f32[512,2048]' --target ours.yaml",
    ],
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


@click.command(
    "neuron-profile", cls=Verb, context_settings={"ignore_unknown_options": True}, add_help_option=False
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def neuron_profile(arguments: Sequence[str]) -> int:
    """Capture, view or summarize our NEFF and NTFF files as the vendor's tool does its own."""
    status: int = part("neuron_profile").command.status(list(arguments), "neuron-profile")
    return status
