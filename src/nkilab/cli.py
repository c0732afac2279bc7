"""The program `nkilab`: its verbs in the order in which help lists them."""

from __future__ import annotations

import click

from . import __version__
from .command_line import Program
from .commands.reference import calibrate, completion, doctor, explain, neuron_profile, ops, validate
from .commands.scripts import advise, check, demo, run, watch
from .commands.texts import einsum, init, migrate, stubs
from .commands.times import compare, diff, estimate, profile, tune

VERBS = (
    demo, run, estimate, check, advise, watch, profile, diff, compare, einsum, tune, validate, calibrate,
    neuron_profile, explain, migrate, ops, init, stubs, doctor, completion,
)  # fmt: skip


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nkilab")
def main() -> None:
    """Run, time and profile AWS Trainium NKI kernels on any computer."""


for _verb in VERBS:
    main.add_command(_verb)
