"""What verbs share that run a kernel on shapes: their options, and the run itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import BoundArguments
from typing import Any

import click
from click.decorators import FC

from .._lazy import part
from ..arguments import MOST_RANKS
from ..command_line import CHIPS, PATH, VERSIONS, Number, json_option, optional
from ..documents import print_document
from ..errors import UseError

target_option = optional(
    "--target", metavar="CHIP", type=CHIPS,
    help="trn1, trn2 (default) or trn3, or a machine file, MACHINE.yaml.",
)  # fmt: skip
targets_option = optional(
    "--target", metavar="CHIP[,...]", type=CHIPS,
    help="trn1, trn2 (default) or trn3, or a machine file, MACHINE.yaml; several to compare them.",
)  # fmt: skip
version_option = optional(
    "--nki", "version", metavar="VERSION", type=VERSIONS, help="Accept only what this version of NKI accepts."
)
arg_option = click.option(
    "--arg", "args", multiple=True, metavar="ARG",
    help="An array argument: f32[128,512] or @FILE.npy; NAME=... gives it by name.",
)  # fmt: skip
kw_option = click.option(
    "--kw", "keywords", multiple=True, metavar="NAME=VALUE",
    help="A keyword argument other than an array: factor=2.",
)  # fmt: skip
grid_option = optional("--grid", metavar="N[,...]", help="Launch grid, instances along each axis: 4,8.")
ranks_option = click.option(
    "--ranks", default=1, metavar="N", type=Number(int, 1, MOST_RANKS, "no cluster has more"),
    help="How many ranks run it together.",
)  # fmt: skip
trips_option = click.option(
    "--trips", multiple=True, metavar="FILE.py:LINE=N",
    help="How often the loop in this line runs, where only the data decides it.",
)  # fmt: skip
kernel_argument = click.argument("kernel", metavar="FILE.py:KERNEL", type=PATH)


def of_call(command: FC) -> FC:
    """Give a verb the kernel, what it is called on, and the one chip and version that it is for."""
    for add in (grid_option, kw_option, arg_option, kernel_argument, version_option, target_option):
        command = add(command)
    return command


def of_kernel(command: FC) -> FC:
    """Give a verb the options of all that time a kernel from shapes."""
    for add in (json_option, trips_option, ranks_option, grid_option, kw_option, arg_option, version_option):
        command = add(command)
    return targets_option(command)


def timed(
    how: Callable[..., Any], kernel: str, version: str, target: str, args: Sequence[str], keywords:
    Sequence[str], grid: str, ranks: int, trips: Sequence[str],
) -> list[Any]:  # fmt: skip
    """What a function of `api` or `profiles` says of a kernel on each chip."""
    api, runner = part("api"), part("runner")
    targets = [name.strip() for name in target.split(",")] if target else [""]
    for name in targets if target else ():
        part("machine").machine_named(name)
    positional, named = part("arguments").call_arguments(args, keywords)
    instances, trip_counts = part("arguments").extents(grid), part("arguments").trips(trips)
    runner.serve_names(version, targets[0])
    named = part("ranks").with_groups(named) if named else named
    timed_kernel = api.as_kernel(runner.kernel_from(kernel))
    timed_kernel = timed_kernel[instances] if instances else timed_kernel
    call = _bound(timed_kernel, positional, named)
    return [
        how(timed_kernel, *call.args, target=name, trips=trip_counts, ranks=ranks, **call.kwargs)
        for name in targets
    ]


def _bound(kernel: Any, positional: Sequence[Any], named: dict[str, Any]) -> BoundArguments:
    """The arguments of a call by position, as a parameter of a kernel may be called `ranks` or `target`, too.

    Raises:
        UseError: if they do not fit.
    """
    border = part("border")
    try:
        bound: BoundArguments = border.bind(kernel, tuple(positional), named)
    except UseError as error:
        more = "; give an array with --arg, as in f32[128,512], anything else with --kw NAME=VALUE"
        hint = error.hint if error.hint.startswith("did you mean") else error.hint + more
        raise UseError(error.problem, hint=hint).located(border.definition(kernel), kernel.name) from None
    return bound


def print_documents(dicts: Sequence[dict[str, object]]) -> None:
    """Print one object, or several as a list."""
    print_document(dicts[0] if len(dicts) == 1 else dicts)
