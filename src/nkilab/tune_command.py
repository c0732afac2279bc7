"""The options of `nkilab tune`; loads nothing of the tuner before it runs."""

from __future__ import annotations

import sys
from typing import Any

import click

from ._lazy import part


@click.command()
@click.option("--target", default="", metavar="CHIP", help="trn1, trn2 (default) or trn3.")
@click.option("--nki", "version", default="", metavar="VERSION", help="NKI version to hold kernels to.")
@click.argument("kernel", metavar="FILE.py:KERNEL|EINSUM.yaml")
@click.option("--space", default="", metavar="SPACE.yaml", help="Parameters, their values and constraints.")
@click.option(
    "--arg", "args", multiple=True, help="As of estimate; 'f32[128,512] | f32[128,4096]' for two cases."
)
@click.option("--kw", "keywords", multiple=True, help="A keyword argument that is no array: name=value.")
@click.option("--grid", default="", help="Program instances along each axis: 4,8.")
@click.option("--weights", default="", metavar="W,...", help="How often each case counts.")
@click.option(
    "--objective", default="latency", show_default=True, help="latency, or latency,sbuf or latency,dma."
)
@click.option("--trials", default=1000, show_default=True, type=click.IntRange(1), help="Points at most.")
@click.option("--seconds", default=0.0, type=click.FloatRange(0), help="Seconds at most; 0 for no limit.")
@click.option(
    "--seed", default=0, show_default=True, type=int, help="The same seed looks at the same points."
)
@click.option("--sampler", default="auto", show_default=True, help="exhaustive, random, tpe, nsga2 or gp.")
@click.option(
    "--workers", default="1", show_default=True, help="Processes, or the address of a dask scheduler."
)
@click.option(
    "--journal", default="", metavar="FILE", help="Where outcomes are kept; again, it goes on there."
)
@click.option("--confirm", default="", metavar="FILE.yaml", help="Measured points to calibrate with.")
@click.option("--picture", default="", metavar="FILE.svg", help="Draw the points.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")
def tune(version: str, target: str, kernel: str, weights: str, objective: str, **given: Any) -> None:
    """Search the parameters of a kernel for the lowest predicted latency."""
    runner, verb = part("runner"), part("tune.verb")
    found: list[int] = []

    def work() -> None:
        held = verb.Work(
            kernel, given.pop("args"), given.pop("keywords"), verb.numbers(weights), given.pop("grid"),
            tuple(word.strip() for word in objective.split(",")), version, target,
        )  # fmt: skip
        found.append(verb.run_tuning(held, verb.Options(**given)))

    status = runner.guarded(work)
    sys.exit(status or found[0])
