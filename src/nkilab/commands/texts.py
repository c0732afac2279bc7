"""The verbs that read and write text: einsum, migrate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .._lazy import part
from ..command_line import FOLDER, OUTPUT, PATH, VERSIONS, Number, OneOf, json_option, optional, show, verb
from ..documents import print_document
from ..errors import EXIT_FAULT, EXIT_FINE, UsageError, printable
from ..progress import say
from .shapes import target_option


@verb(
    "nkilab einsum 'mk,kn->mn' --size M=300 --size K=200 --size N=100",
    "nkilab einsum attention.yaml -o attention.py --test",
    "nkilab einsum attention.yaml --dialect neuronxcc --search 30 --explain",
)
@optional("-o", "output", metavar="KERNEL.py", type=OUTPUT, help="Write the kernel to this file.")
@click.option(
    "--dialect", type=OneOf("nki", "neuronxcc"), default=None, metavar="nki|neuronxcc",
    help="Which spelling of NKI to write; nki if not given.",
)  # fmt: skip
@click.option("--as-written", is_flag=True, help="Print what the published generator prints, faults and all.")
@click.option("--strict", is_flag=True, help="Stop at faults of SPEC that are otherwise repaired.")
@click.option(
    "--search", default=0.0, metavar="SECONDS", type=Number(float, 0),
    help="Try other loops and tiles on the timing model for so long.",
)  # fmt: skip
@click.option(
    "--workers", default="1", show_default=True, metavar="N",
    help="Of --search: processes, or the address of a dask scheduler.",
)  # fmt: skip
@optional(
    "--journal", metavar="FILE", type=OUTPUT,
    help="A file that keeps the results of --search; the same command continues from it.",
)  # fmt: skip
@click.option(
    "--test", "tests", is_flag=True, help="Run the kernel on probes; with -o write test and drivers."
)
@optional("--notebook", metavar="F.ipynb", type=OUTPUT, help="Write all six parts as a notebook.")
@click.option(
    "--explain", "explains", is_flag=True,
    help="Show loops, where tensors lie, traffic, and what limits the speed.",
)  # fmt: skip
@click.option(
    "--size",
    "sizes",
    multiple=True,
    metavar="RANK=N",
    help="Extent of a rank that SPEC leaves open, or all of FIRST..LAST:STEP.",
)
@click.option("--dtype", "dtypes", multiple=True, metavar="[TENSOR=]TYPE", help="Type of inputs and outputs.")
@target_option
@json_option
@click.argument("spec", type=PATH)
def einsum(
    spec: str, dialect: str | None, target: str, search: float, workers: str, journal: str, **options: Any
) -> int:  # fmt: skip
    """Compile the Einsums of SPEC (YAML, docstring, notebook or expressions) into a kernel."""
    compiler = part("einsum.verb")
    options |= {"dialect": dialect or "", "target": target or "trn2"}
    status: int = compiler.run(spec, search=compiler.search_of(search, workers, journal), **options)
    return status


@verb(
    "nkilab migrate kernel.py",
    "nkilab migrate kernel.py --to 0.3 --diff",
    "nkilab migrate kernel.py --from beta1 --to 0.6 --write",
)
@optional("--to", metavar="VERSION", type=VERSIONS, help="NKI version to reach; the newest if not given.")
@optional("--from", "since", metavar="VERSION", type=VERSIONS, help="Version that FILE is written for.")
@click.option("--diff", "shows_diff", is_flag=True, help="Print the mechanical rewrites as a unified diff.")
@click.option("--write", is_flag=True, help="Do the mechanical rewrites in FILE.")
@json_option
@click.argument("file", metavar="FILE.py", type=PATH)
def migrate(to: str, since: str, shows_diff: bool, write: bool, as_json: bool, file: str) -> int:
    """List what to change in FILE.py for another NKI version; exit status 1 if anything."""
    if as_json and shows_diff:
        raise UsageError("--json and --diff are both given", hint="leave one of them out")
    part_of = part("migrate")
    migration = part_of.migration(file, to, since)
    if as_json:
        print_document(migration.to_dict())
    elif shows_diff:
        click.echo(printable(migration.diff), nl=False)
    else:
        say(part_of.report_text(migration), "  ")
    if write and migration.write():
        click.echo(printable(f"nkilab: {file} is rewritten"), err=True)
    return EXIT_FAULT if migration.is_needed else EXIT_FINE


@verb("nkilab init softmax", "cd softmax && python3 -m pytest")
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


@verb("nkilab stubs typings", "nkilab stubs typings --nki 0.3")
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
