"""The verbs that time kernels from shapes: estimate, profile, diff, tune."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from .._lazy import part
from ..command_line import FOLDER, OUTPUT, PATH, Number, json_option, optional, verb
from ..errors import UsageError, printable
from .shapes import (
    grid_option,
    kernel_argument,
    kw_option,
    of_kernel,
    print_documents,
    target_option,
    timed,
    version_option,
)

if TYPE_CHECKING:
    from ..api import Estimate
    from ..profiles import Profile

text_option = click.option(
    "--text", "as_text", is_flag=True, help="Print the report although a file is written."
)


@verb(
    "nkilab estimate kernel.py:softmax --arg 'f32[512,2048]'",
    "nkilab estimate kernel.py:product --arg 'f32[64,64]' --arg 'f32[64,64]' --target trn1,trn2,trn3",
    "nkilab estimate kernel.py:gather --arg 'f32[4096,128]' --arg indices=@indices.npy --kw scale=0.5",
    "nkilab estimate kernel.py:halves --arg 'f32[256,512]' --grid 2 --json",
)
@kernel_argument
@of_kernel
def estimate(kernel: str, as_json: bool, **options: Any) -> None:
    """Predict the latency of a kernel from shapes alone."""
    try:
        results = timed(part("api").estimate, kernel, **options)
    except Exception as error:
        if begun := part("profiles").profile_until(error):
            _show_estimates([begun], as_json, error)
        raise
    _show_estimates(results, as_json)


def _show_estimates(results: Sequence[Estimate], as_json: bool, error: Exception | None = None) -> None:
    """Print estimates of whole kernels, or of what one did before an error."""
    if as_json:
        dicts = [r.to_dict() | {"advice": [own.to_dict() for own in r.run.guidance.advice]} for r in results]
        print_documents(_with_error(dicts, error))
        return
    terminal = part("views.terminal")
    if len(results) > 1:
        terminal.print_comparison(results)
    else:
        terminal.print_estimate(results[0])


@verb(
    "nkilab profile kernel.py:product --arg 'f32[512,256]' --arg 'f32[512,512]'",
    "nkilab profile kernel.py:softmax --arg 'f32[512,2048]' --html report.html --trace trace.json",
    "nkilab profile kernel.py:softmax --arg 'f32[512,2048]' --what-if dma_bandwidth=2x,psum_banks=16",
)
@kernel_argument
@of_kernel
@text_option
@optional("--html", metavar="F", type=OUTPUT, help="Write a report that shows everything: one HTML file.")
@optional("--trace", metavar="F", type=OUTPUT, help="Write a trace for ui.perfetto.dev.")
@optional("--parquet", metavar="DIR", type=FOLDER, help="Write tables as Neuron Explorer names them.")
@optional("--what-if", metavar="K=V,...", help="Show what changes with other constants: dma_bandwidth=2x.")
def profile(
    kernel: str, as_json: bool, as_text: bool, html: str, trace: str, parquet: str, what_if: str,
    **options: Any,
) -> None:  # fmt: skip
    """Show where the time of a kernel goes, and why, from shapes alone."""
    files = {"html": html, "trace": trace, "parquet": parquet}
    profiles = part("profiles")
    profiles.check_files(files, options["target"], what_if)
    changes = profiles.changes_in(what_if) if what_if else {}
    try:
        results = timed(profiles.profile, kernel, **options)
    except Exception as error:
        if begun := profiles.profile_until(error):
            _show_profiles([begun], files, as_json, as_text, error)
        raise
    if changes:
        differences = [r.diff(r.what_if(**changes), ("as it is", "what if"), what_if) for r in results]
        _show_differences(differences, as_json, as_text, html)
        return
    _show_profiles(results, files, as_json, as_text)


def _with_error(documents: list[dict[str, object]], error: Exception | None) -> list[dict[str, object]]:
    """Documents with the error that a kernel broke off with, if it did."""
    more = {} if error is None else {"error": part("failures").failure_of(error).to_dict()}
    return [one | more for one in documents]


def _show_profiles(
    results: Sequence[Profile], files: dict[str, str], as_json: bool, as_text: bool,
    error: Exception | None = None,
) -> None:  # fmt: skip
    """Write the files that are asked for, and print what is asked for besides."""
    for wrote in results[0].save(files):
        click.echo(printable(f"nkilab: wrote {wrote}"), err=True)
    if as_json:
        print_documents(_with_error([r.to_profile() for r in results], error))
    elif as_text or not any(files.values()):
        for result in results:
            click.echo(result.text(), nl=False)


def _show_differences(differences: list[Any], as_json: bool, as_text: bool, html: str) -> None:
    """Print differences, or write the page of the only one."""
    profiles = part("profiles")
    if html:
        profiles.save_comparison(differences[0], html)
        click.echo(printable(f"nkilab: wrote {html}"), err=True)
    if as_json:
        print_documents([difference.to_dict() for difference in differences])
    elif as_text or not html:
        for difference in differences:
            click.echo(profiles.difference_text(difference), nl=False)


@verb(
    "nkilab diff kernel.py:first kernel.py:second --arg 'f32[512,256]' --arg 'f32[512,512]'",
    "nkilab diff kernel.py:product kernel.py:product --arg 'f32[512,512]' --kw tiles=2 --kw-b tiles=4",
    "nkilab diff before.neff after.neff --html diff.html",
)
@click.argument("first", metavar="A", type=PATH)
@click.argument("second", metavar="B", type=PATH)
@of_kernel
@click.option(
    "--kw-b", "keywords_b", multiple=True, metavar="NAME=VALUE",
    help="A keyword argument of B alone, instead of A's.",
)  # fmt: skip
@text_option
@optional("--html", metavar="F", type=OUTPUT, help="Write both timelines side by side: one HTML file.")
def diff(
    first: str, second: str, as_json: bool, keywords_b: Sequence[str], as_text: bool, html: str,
    **options: Any,
) -> None:  # fmt: skip
    """Compare two kernels, FILE.py:KERNEL or a NEFF file that nkilab wrote each, from shapes alone.

    B may be a profile that the vendor's tool wrote of a run on a card: see nkilab compare.
    """
    profiles = part("profiles")
    is_profile = part("views.explorer.card").is_profile
    if is_profile(first):
        raise UsageError(f"{first} is a profile; name it after the kernel that predicts it")
    if is_profile(second):
        if html or keywords_b:
            raise UsageError(
                f"{'--html' if html else '--kw-b'} is of two kernels, and {second} is a profile",
                hint="leave it out",
            )
        _show_comparisons(timed(profiles.profile, first, **options), second, as_json)
        return
    profiles.check_files({"html": html}, options["target"])
    second_options = {**options, "keywords": profiles.with_changes(options["keywords"], keywords_b)}
    runs = []
    for kernel, own in ((first, options), (second, second_options)):
        is_program = kernel.endswith(".neff")
        runs.append([profiles.profile_in(kernel)] if is_program else timed(profiles.profile, kernel, **own))
    names = profiles.told_apart(first, second, options["keywords"], keywords_b)
    pairs = zip(*runs, strict=False)
    _show_differences([one.diff(other, names) for one, other in pairs], as_json, as_text, html)


@verb(
    "nkilab compare kernel.py:softmax summary.json --arg 'f32[512,2048]'",
    "nkilab compare kernel.py:softmax tables/ --arg 'f32[512,2048]' --target trn1 --json",
)
@kernel_argument
@click.argument("measured", metavar="PROFILE", type=PATH)
@of_kernel
def compare(kernel: str, measured: str, as_json: bool, **options: Any) -> None:
    """Compare a prediction with the vendor's profile of a run on a card, and say what would explain it."""
    results = timed(part("profiles").profile, kernel, **options)
    _show_comparisons(results, measured, as_json)


def _show_comparisons(results: Sequence[object], measured: str, as_json: bool) -> None:
    """Compare predictions of one or several chips with a profile."""
    comparison = part("compare")
    compared = [comparison.compare(one, measured) for one in results]
    if as_json:
        print_documents([one.to_dict() for one in compared])
        return
    for one in compared:
        comparison.print_comparison(one)


@verb(
    "nkilab tune kernel.py:product --space space.yaml --arg 'bf16[2048,2048]' --arg 'bf16[2048,2048]'",
    "nkilab tune kernel.py:scale --param rows=64,128 --arg 'f32[512,512]' --journal tuned.jsonl",
    "nkilab tune attention.yaml --kw S=1024 --seconds 60",
)
@target_option
@version_option
@click.argument("kernel", metavar="FILE.py:KERNEL|SPEC.yaml", type=PATH)
@click.option(
    "--param", "parameters", multiple=True, metavar="NAME=V,...",
    help="A parameter and its values: rows=64,128.",
)  # fmt: skip
@optional("--space", metavar="SPACE.yaml", type=PATH, help="Parameters, their values and constraints.")
@click.option(
    "--arg", "args", multiple=True, metavar="ARG",
    help="As for estimate; 'f32[128,512] | f32[128,4096]' for two cases.",
)  # fmt: skip
@kw_option
@grid_option
@optional("--weights", metavar="W,...", help="Weights of the cases, as in 3,1.")
@click.option(
    "--objective", default="latency", show_default=True, metavar="GOAL,...",
    help="latency, or latency,sbuf or latency,dma.",
)  # fmt: skip
@click.option("--trials", default=1000, show_default=True, type=Number(int, 1), help="Most points to try.")
@click.option("--seconds", default=0.0, type=Number(float, 0), help="Most seconds to search; 0 for no limit.")
@click.option(
    "--point-seconds", default=600.0, show_default=True, type=Number(float, 0),
    help="Seconds that one point may take; 0 for no limit.",
)  # fmt: skip
@click.option(
    "--seed", default=0, show_default=True, type=Number(int), help="The same seed looks at the same points."
)
@click.option(
    "--sampler", default="auto", show_default=True, metavar="NAME",
    help="exhaustive, random, tpe, nsga2 or gp.",
)  # fmt: skip
@click.option(
    "--workers", default="1", show_default=True, metavar="N",
    help="Processes, or the address of a dask scheduler.",
)  # fmt: skip
@optional(
    "--journal", metavar="FILE", type=OUTPUT,
    help="A file that keeps the results; the same command continues from it.",
)  # fmt: skip
@optional(
    "--confirm", metavar="FILE.yaml", type=PATH,
    help="Times measured on a card; if there is no such file, a form for them is written.",
)  # fmt: skip
@optional(
    "--measure", metavar="'CMD {file}'",
    help="A program of yours that measures a point and prints microseconds.",
)  # fmt: skip
@click.option(
    "--measurements", default=8, show_default=True, type=Number(int, 1),
    help="How many points it measures at most.",
)  # fmt: skip
@optional("--picture", metavar="FILE.svg", type=OUTPUT, help="Draw the points.")
@json_option
def tune(version: str, target: str, kernel: str, weights: str, objective: str, **options: Any) -> None:
    """Search the parameters of a kernel for the lowest predicted latency."""
    tuning = part("tune.verb")
    names = {name: options.pop(name) for name in ("args", "keywords", "grid")}
    goals = tuple(word.strip() for word in objective.split(","))
    work = tuning.Work(
        kernel, weights=tuning.numbers(weights), goals=goals, version=version, target=target, **names
    )  # fmt: skip
    is_spec = kernel.endswith((".yaml", ".yml"))
    tuning.run_tuning(part("einsum.verb").plan_task(work) if is_spec else work, tuning.Options(**options))
