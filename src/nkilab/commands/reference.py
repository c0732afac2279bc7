"""The verbs that tell about nkilab and NKI: explain, ops, doctor, completion."""

from __future__ import annotations

import click

from .._lazy import part
from ..command_line import COMPLETION, NAMES, OneOf, Verb, completion_script, json_option, show
from ..documents import print_document
from ..errors import UsageError

SHELLS = ("bash", "zsh", "fish")


@click.command(
    cls=Verb,
    examples=[
        "nkilab explain nc_matmul",
        "nkilab explain trn2",
        "nkilab explain mbu_estimated_percent",
        "nkilab explain race-two-cores --json",
        "nkilab explain NCC_INLA001",
    ],
)
@json_option
@click.argument("name", type=NAMES)
def explain(as_json: bool, name: str) -> None:
    """Explain an instruction, operator, type, chip, constant, metric, rule, error key or compiler code."""
    if as_json:
        print_document(part("explain").explanation_data(name))
    else:
        part("explain").print_explanation(name)


@click.command(
    cls=Verb, examples=["nkilab ops", "nkilab ops nki.isa.nc_matmul", "nkilab ops --missing --json"]
)
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


@click.command(
    cls=Verb,
    examples=[
        "nkilab doctor",
        "nkilab doctor --json",
        "nkilab doctor --cache",
        "nkilab doctor --cache --clear",
    ],
)
@json_option
@click.option("--cache", is_flag=True, help="Tell what is kept on disk: compiled code and estimates.")
@click.option("--clear", is_flag=True, help="With --cache: take it away; it is made again when it is needed.")
def doctor(as_json: bool, cache: bool, clear: bool) -> None:
    """Tell what is installed, whether real vendor wheels are present, and what is kept."""
    if clear and not cache:
        raise UsageError("--clear takes away what --cache tells of", hint="give both")
    own = part("doctor")
    show(own.report(has_cache=cache, is_cleared=clear), own.report_text, as_json=as_json)


@click.command(
    cls=Verb,
    examples=[
        'eval "$(nkilab completion bash)"      in ~/.bashrc',
        'eval "$(nkilab completion zsh)"       in ~/.zshrc',
        "nkilab completion fish > ~/.config/fish/completions/nkilab.fish",
    ],
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
