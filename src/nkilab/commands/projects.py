"""The verbs that write files to begin with: init, stubs."""

from __future__ import annotations

from pathlib import Path

import click

from .._lazy import part
from ..command_line import FOLDER, VERSIONS, Verb, json_option, optional, show


@click.command(cls=Verb, examples=["nkilab init softmax", "cd softmax && python3 -m pytest"])
@optional(
    "--nkilab", "source", metavar="SOURCE",
    help="Where the project gets nkilab from: a git address, that of a wheel, or a path; from where this one "
    "comes if not given.",
)  # fmt: skip
@json_option
@click.argument("folder", metavar="DIR", type=FOLDER)
def init(source: str, as_json: bool, folder: str) -> None:
    """Begin a project in DIR: a kernel, its test and a CI workflow that pass."""
    project = part("projects").make_project(Path(folder), source)
    show(project, part("projects").summary_text, as_json=as_json)


@click.command(cls=Verb, examples=["nkilab stubs typings", "nkilab stubs typings --nki 0.3"])
@optional(
    "--nki", "version", metavar="VERSION", type=VERSIONS,
    help="Names and parameters of exactly this version; of all versions if not given.",
)  # fmt: skip
@json_option
@click.argument("folder", metavar="DIR", type=FOLDER)
def stubs(version: str, as_json: bool, folder: str) -> None:
    """Write type stubs of nki and neuronxcc to DIR, for editors and type checkers."""
    written = part("stubs").write_stubs(Path(folder), version)
    show(written, part("stubs").summary_text, as_json=as_json)
