"""Writes the pages that are made from the program: the command line, and predictions against measurements.

python docs/site/reference.py cli            docs/cli.md
python docs/site/reference.py advice         docs/advice.md
python docs/site/reference.py validation     docs/validation.md and its picture; runs the ledger
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from pathlib import Path
from textwrap import fill
from typing import Any

import click

from nkilab.advice import CATALOGUE
from nkilab.cli import main as program
from nkilab.validate import run_validation, span

DOCS = Path(__file__).resolve().parents[1]
MARK = "<!-- written by `python docs/site/reference.py {}`; changes by hand are lost -->\n"
PICTURE = "validation.svg"
# heads of columns that hold numbers
NUMBERS = {
    "Settings", "Mean error", "Inside", "Half-width", "Measured", "Predicted", "Error", "Interval", "Points",
    "Regret", "Searched", "Kendall tau",
}  # fmt: skip


def cli() -> str:
    """The page of the command line: a section per verb, as its --help says it."""
    parts = [
        "# The command line",
        wrapped(
            "What each verb says with `--help`. With `--json` a verb prints JSON alone, of a schema that has "
            "a version. Exit status: 0 fine, 1 what was looked at is at fault, 2 wrong usage, 3 a bug of "
            "nkilab."
        ),
        *_verbs(program, "nkilab"),
    ]
    return "\n\n".join(parts) + "\n\n" + MARK.format("cli")


def _verbs(command: click.Command, name: str) -> list[str]:
    width = {"max_content_width": 100, "terminal_width": 100}
    context = click.Context(command, info_name=name, **width, **command.context_settings)
    help_text = command.get_help(context)
    parts = [] if command is program else [f"## {name}"]
    parts.append(f"```text\n{_plain(help_text)}\n```")
    if isinstance(command, click.Group):
        for verb in command.list_commands(context):
            verb_command = command.get_command(context, verb)
            if verb_command is not None and not verb_command.hidden:
                parts += _verbs(verb_command, f"{name} {verb}")
    return parts


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in re.sub(r"\x1b\[[\d;]*m", "", text).strip("\n").splitlines())


ADVICE = """Advice is found by simulation. Each transformation below has a *detector*, which searches the
program of a kernel, its plan and its timeline, and an *edit*, which makes the change in the program. The
edited program is compiled, placed and timed like any other, so that a gain is the difference of two
simulations, never a guess. `nkilab check` and `nkilab profile` show the advice; their JSON and that of
`estimate` and `diff` have it under `advice`. `nkilab advise` prints the advice alone, and `nkilab tune`
prints it for the best point: changes that no parameter of its space can make.

`nkilab advise kernel.py:softmax --arg 'f32[512,2048]' --apply 1` prints the first piece of advice as a diff
of the file, if the change is local: a statement moves out of a loop; a tile moves into one; copies, scales
and sums become part of another instruction; a type, an engine or the size of a tile changes. Comments stay.
The changed kernel and the kernel as it is are run on the same random data. The diff is printed if the
results are equal (or differ by rounding, where the change has to round), no check fails that did not fail
before, and the time falls. Other changes are left to you, and the command says why. `--write` changes the
file.

Each piece says how it is known that the edit keeps the results (`equal`). *Computed*: a small program and
the edited one were computed on random numbers, and their results are equal. *Proved*: the edit drops work
that value numbering proves equal to earlier work, reorders rows as dependences allow, or joins neighbouring
rows into one. *By formula*: the removed work becomes part of another instruction whose formula gives the
same result, or of an argument (`avoid_transpose` and `fold_algebra` ask the caller for another one).
*Assumed*: only costs or waits were changed, as if the rest of the work were done. If results change by
rounding, the piece says so (`rounds`).

Two or three changes that pay only together are one piece (`combined_with`). After each change that pays, or
costs nothing, other edits are tried on the edited program, and they are reported if they save more there
than by themselves. Such a piece is ranked by what the changes after the first add; make its first change,
and ask again. If several changes of one line make the same program, they are one piece with several names
(`also_called`). Every verb tries the same edits, more for a short program and fewer for a long one, and
shows the same list.

The interval of a gain comes from measured pairs of kernels, each pair with the same arguments and timed by
the same clock on the device. From a predicted gain of 4 % on, nine pairs of ten have the predicted sign;
smaller gains are not reported. Nine of ten measured gains lie above the lower end, and nine of ten below the
upper end (from logarithms of 1506 ratios in 30 groups; each group has the same weight; gains up to 10 %, up
to 30 % and larger ones are taken separately; the constants of the model were fitted with some of these
kernels). Errors that two predictions share cancel, so that a ratio is more certain than either latency. The
upper end is higher where experts gained more than the edit because they also made the changes that go with
it: seven of eight published gains lie below it.

The largest saving stands first. A gain of at least three quarters of a larger one counts as equal to it, and
such gains stand in the order in which experts make the changes: first unnecessary work is removed, then
several instructions become one, then tiles get another size and loops another order. A gain that is only
*assumed* counts half. One that narrows the operands of products counts three tenths, since the results may
need the precision. A second piece of the same transformation stands after the first piece of every other
one. If the same edit gains about as much at several lines, it is one piece that lists its lines (`places`).
The number of simulated edits is limited; changes of costs or waits alone are timed in addition. For a
program of more than 120,000 instructions, the first iterations of its outermost loop are edited and stand
for the whole program.

`nkilab profile` also shows how far the kernel is from four ideals: the *best order* (the same instructions,
with a tile of its own for each result), the *least traffic* (the same instructions, with each byte of HBM
moved once), *perfect overlap* (the busiest engine never waits) and the *roofline* (multiplications at the
peak rate, or arguments and results at full bandwidth).

How often the advice is what experts did next: [ladders](ladders.md).
"""


def advice() -> str:
    """The page of transformations: a section for each, as it is declared."""
    parts = ["# Advice", *(wrapped(" ".join(text.split())) for text in ADVICE.split("\n\n"))]
    for id, own in CATALOGUE.items():
        rule = own.rule
        texts = [f"{rule.what[0].upper()}{rule.what[1:]}.", f"Why it costs time: {rule.why}.",
                 f"What to do: {rule.fix}.", f"Source: {rule.source}."]  # fmt: skip
        parts += [f"## {id}", wrapped(" ".join(texts))]
    return "\n\n".join(parts) + "\n\n" + MARK.format("advice")


def validation(report: dict[str, Any]) -> str:
    """The page of predictions against measurements, from what `nkilab validate --json` prints."""
    rows = [row for row in report["rows"] if row["is_primary"]]
    count = len({row["id"] for row in report["rows"]})
    parts = [
        "# Predictions against measurements",
        wrapped(
            f"What `nkilab validate` says of timing model {report['model_version']}: {count} published "
            "measurements, each beside the prediction for a kernel of the same structure. "
            "[The ledger](ledger.md) says what a row is and how far it is trusted. Constants are never "
            f"fitted to rows marked *judge*. The end lists {len(report['left_out'])} further measurements, "
            "with the reason why each is not predicted."
        ),
        f"![Predicted against measured, on logarithmic axes; a point per row]({PICTURE})",
        "## Bars",
        table(("Bar", "Asked for", "Reached", "Met"), [_bar(bar) for bar in report["bars"]]),
        "## Grids of block sizes",
        wrapped(
            "Regret: how much longer the point that `nkilab tune` chooses was measured than the best one; "
            "Searched: the worst regret of searches that see 20 points. Kendall's rank correlation leaves "
            "out pairs within 2 %. Times that include the host are not judged."
        ),
        table(
            ("Grid", "Points", "Regret", "Searched", "Kendall tau"), [_grid(grid) for grid in report["grids"]]
        ),
        "## Scores",
        wrapped(
            "The mean error is the mean of |predicted - measured| / measured, one value per setting; the "
            "last two columns are how many measurements lie inside the interval of their prediction, and how "
            "wide that is."
        ),
        table(
            ("Rows", "Settings", "Mean error", "Worst", "Inside", "Half-width"),
            [_score(name, score) for name, score in report["scores"].items()],
        ),
        "## Row by row",
        wrapped(
            "The unit of a quantity is the end of its name, and [the ledger](ledger.md#time-bases) says "
            "which time it is. The error is (predicted - measured) / measured. The kernels are nkilab's own, "
            "written to have the structure of the measured ones."
        ),
    ]
    for family in dict.fromkeys(row["family"] for row in rows):
        own = [row for row in rows if row["family"] == family]
        kernels = dict.fromkeys(call["kernel"] for row in own for call in row["calls"])
        heads = ("Row", "Chip", "Rows are to", "Quantity", "Measured", "Predicted", "Error", "Interval")
        names = wrapped("Predicted for " + ", ".join(f"`{kernel}`" for kernel in kernels) + ".")
        parts += [f"### {family}", names, table(heads, list(map(_row, own)))]
    parts.append("## Without a prediction")
    for reason in dict.fromkeys(report["left_out"].values()):
        ids = [name for name, own_reason in report["left_out"].items() if own_reason == reason]
        parts.append(wrapped(f"*{reason[0].upper()}{reason[1:]}*: {', '.join(ids)}."))
    return "\n\n".join(parts) + "\n\n" + MARK.format("validation")


def _bar(bar: dict[str, Any]) -> tuple[str, ...]:
    return bar["name"], bar["demand"], bar["reached"], "yes" if bar["is_met"] else "**no**"


def _grid(grid: dict[str, Any]) -> tuple[str, ...]:
    tau = "" if grid["tau"] is None else f"{grid['tau']:.2f}"
    name = grid["name"] + (", with the host" if grid["has_host"] else "")
    return name, str(grid["points"]), f"{grid['regret']:.1%}", f"{grid['regret_of_searches']:.1%}", tau


def _score(name: str, score: dict[str, Any]) -> tuple[str, ...]:
    worst = score["worst"]
    return (
        name, str(score["settings"]), f"{score['mape']:.1%}", f"{worst['error']:+.1%} ({worst['id']})",
        f"{score['coverage']:.0%}", f"{score['median_half_width']:.0%}",
    )  # fmt: skip


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    low, high = row["interval"] or (None, None)
    interval = "" if low is None else f"{span(low, high)}{'' if row['is_inside'] else ', outside'}"
    return (
        row["id"], row["chip"], row["split"], f"`{row['metric']}`", f"{row['measured']:,.6g}",
        f"{row['predicted']:,.6g}", f"{row['error']:+.1%}", interval,
    )  # fmt: skip


def wrapped(words: str) -> str:
    """A paragraph."""
    return fill(words, 120, break_long_words=False, break_on_hyphens=False)


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [heads, tuple("---:" if head in NUMBERS else "---" for head in heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def measured() -> dict[str, Any]:
    """Run the ledger that comes with nkilab, draw its picture, and return its report."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        run_validation("", "", str(DOCS / PICTURE), as_json=True)
    return json.loads(printed.getvalue())


def main(arguments: list[str]) -> int:
    """Write the pages that are named; returns the exit code."""
    if not arguments or set(arguments) - {"cli", "advice", "validation"}:
        sys.stderr.write("usage: python docs/site/reference.py cli|advice|validation ...\n")
        return 2
    if "cli" in arguments:
        (DOCS / "cli.md").write_text(cli(), "utf-8")
    if "advice" in arguments:
        (DOCS / "advice.md").write_text(advice(), "utf-8")
    if "validation" in arguments:
        (DOCS / "validation.md").write_text(validation(measured()), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
