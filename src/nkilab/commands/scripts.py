"""The verbs that run Python: demo, run, check, advise, watch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import __version__
from .._lazy import part
from ..command_line import FOLDER, OUTPUT, PATH, Number, OneOf, json_option, optional, verb
from ..errors import EXIT_FINE, UsageError
from .shapes import arg_option, grid_option, kw_option, of_call, target_option, version_option

if TYPE_CHECKING:
    from ..checking import Launch


@verb("nkilab demo", "nkilab demo --output /srv/first-look --json")
@json_option
@click.option(
    "--output", default="nkilab-demo", show_default=True, metavar="DIR", type=FOLDER,
    help="Folder that its files are written to.",
)  # fmt: skip
def demo(as_json: bool, output: str) -> int:
    """Run, check, time and profile two small kernels that nkilab brings."""
    status: int = part("demo").run_demo(Path(output), as_json=as_json)
    return status


@verb(
    "nkilab run train.py --epochs 2",
    "nkilab run --nki 0.2 --target trn1 --check train.py",
    "nkilab run --profile reports --json launches.json -m pytest tests",
    "nkilab run --ranks 4 all_reduce.py",
    context_settings={"allow_interspersed_args": False},
)
@target_option
@version_option
@click.option("-m", "as_module", is_flag=True, help="SCRIPT is the name of a module.")
@click.option(
    "--check", "checks", is_flag=True,
    help="Check every kernel that runs; exit status 1 if there is a finding.",
)  # fmt: skip
@optional(
    "--profile", "folder", metavar="DIR", type=FOLDER, help="Write a report of every kernel launch to DIR."
)
@optional(
    "--json", "json_file", metavar="FILE", type=OUTPUT,
    help="Write all launches, with predictions, to FILE as JSON.",
)  # fmt: skip
@click.option(
    "--ranks", metavar="N", type=Number(int, 1, 1024, "each rank runs SCRIPT on a thread of its own"),
    help="Run SCRIPT once per rank (RANK, WORLD_SIZE), kernels together.",
)  # fmt: skip
@click.option(
    "--backend", default="", metavar="sim|vendor", type=OneOf("", "sim", "vendor"),
    help="Whose nki SCRIPT imports where both are installed: nkilab's or the vendor's.",
)  # fmt: skip
@click.argument("script", type=PATH)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(backend: str, **options: object) -> int:
    """Run SCRIPT with the NKI names served; options stand before SCRIPT, the rest is the script's."""
    own = {"--profile": "folder", "--check": "checks", "--json": "json_file", "--nki": "version"}
    for option, name in {**own, "--target": "target"}.items() if backend == "vendor" else ():
        if options[name]:
            raise UsageError(
                f"--backend vendor and {option} are both given; only nkilab has {option}",
                hint="leave one of them out",
            )
    status: int = part("scripts").run(backend=backend, **options)
    return status


@verb(
    "nkilab check kernel.py:softmax --arg 'f32[512,2048]'",
    "nkilab check kernel.py:matmul --arg 'bf16[512,512]' --arg 'bf16[512,512]' --json",
    "nkilab check kernel.py:exchange --arg 'f32[128,512]' --grid 2 --sarif findings.sarif",
    "nkilab check kernel.py:attention --arg 'bf16[1024,128]' --replay 8 --numerics",
    "nkilab check kernel.py:softmax --arg 'f32[512,2048]' --write-baseline known.json",
    "nkilab check kernel.py:softmax --arg 'f32[512,2048]' --baseline known.json",
    "nkilab check --list",
    "nkilab explain race-two-cores",
)
@target_option
@version_option
@click.argument("kernel", metavar="FILE.py:KERNEL", default="", type=PATH)
@click.option(
    "--list", "lists", is_flag=True, help="List the rules, and documented rules that are not covered."
)
@arg_option
@kw_option
@grid_option
@click.option(
    "--replay", default=0, type=Number(int, 0, 10_000, "each computes the whole kernel again"), metavar="N",
    help="Run the instructions in N other legal orders, and compare the results.",
)  # fmt: skip
@click.option("--numerics", is_flag=True, help="Compute everything in float32 too, and compare.")
@optional("--what-if", metavar="RULE@LINE", help="Show the predicted time with this advice followed.")
@optional("--sarif", metavar="FILE", type=OUTPUT, help="Write the findings as SARIF 2.1.0.")
@optional("--baseline", metavar="FILE", type=PATH, help="Leave out the findings that FILE lists.")
@optional(
    "--write-baseline", "new_baseline", metavar="FILE", type=OUTPUT,
    help="Write the findings to FILE, instead of those it has of this kernel; the exit status is 0.",
)  # fmt: skip
@json_option
def check(
    version: str, target: str, kernel: str, lists: bool, args: Sequence[str], keywords: Sequence[str],
    grid: str, replay: int, numerics: bool, what_if: str, as_json: bool, **files: str,
) -> int:  # fmt: skip
    """Run a kernel once and list what hardware or compiler would refuse; exit status 1 if anything."""
    checking, runner = part("checking"), part("runner")
    if lists:
        part("explain").print_rules(as_json=as_json)
        return EXIT_FINE
    if not kernel:
        raise UsageError("no kernel is named", hint="write nkilab check FILE.py:KERNEL")
    launch = launch_of(args, keywords, grid)
    runner.serve_names(version, target)
    options = checking.Options(target, replay, numerics)
    status: int = checking.run_check(
        kernel,
        launch,
        options,
        runner.kernel_from,
        as_json=as_json,
        what_if=what_if,
        files=checking.Files(**files),
        version=__version__,
    )
    return status


@verb(
    "nkilab watch kernel.py:softmax --arg 'f32[512,2048]'",
    "nkilab watch kernel.py:product --arg 'bf16[512,512]' --arg 'bf16[512,512]' --target trn3",
)
@of_call
@json_option
def watch(kernel: str, version: str, target: str, as_json: bool, **call: str) -> None:
    """Time and check a kernel again whenever its file is saved, and tell what has changed; Ctrl-C ends it."""
    part("runner").serve_names(version, target)
    part("watching").run_watch(kernel, launch_of(**call), target, as_json=as_json)


@verb(
    "nkilab advise kernel.py:softmax --arg 'f32[512,2048]'",
    "nkilab advise kernel.py:softmax --arg 'f32[512,2048]' --apply 1",
    "nkilab advise kernel.py:softmax --arg 'f32[512,2048]' --apply 1 --write",
)
@of_call
@click.option(
    "--apply", "number", metavar="N", type=Number(int, 1),
    help="Print the change that advice N asks for, with results and times before and after.",
)  # fmt: skip
@click.option("--write", "writes", is_flag=True, help="Make that change in FILE.py.")
@json_option
def advise(
    kernel: str, version: str, target: str, number: int | None, writes: bool, as_json: bool, **call: str
) -> int:
    """List what would make a kernel faster, and make the changes that are mechanical."""
    part("runner").serve_names(version, target)
    run_advise = part("advising").run_advise
    status: int = run_advise(kernel, launch_of(**call), target, number or 0, writes=writes, as_json=as_json)
    return status


def launch_of(args: Sequence[str], keywords: Sequence[str], grid: str) -> Launch:
    """What options say of a launch: positional and keyword arguments, and the grid."""
    return *part("arguments").call_arguments(args, keywords), part("arguments").extents(grid)
