"""`nkilab calibrate`: the constants of a chip fitted to measurements of one's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .disk import write_whole
from .documents import print_document
from .errors import FileError, UsageError, printable
from .hook import activate
from .ledger import Judged, Predictor, Row, judged
from .ledger.fitting import Fitted, fit
from .ledger.quantities import QUANTITIES
from .ledger.reading import ledger_rows
from .machine import chip_named
from .machine.file import SUFFIXES
from .progress import columns, say

SCHEMA = "nkilab.calibrate/1"


def run_calibration(
    ledger: str, output: str, chip: str, *, as_json: bool, load: Callable[[str], Any] | None = None
) -> None:
    """Fit the constants of a chip to a ledger and write a machine file.

    Args:
        ledger: path of the measurements.
        output: path of the machine file.
        chip: whose rows are used; "" if all rows are of one chip.
        as_json: print JSON alone.
        load: finds the kernel that "FILE.py:KERNEL" names.

    Raises:
        FileError: if the ledger cannot be read, or has no times that constants may be fitted to.
        UsageError: if the rows are of several chips and none is chosen, or the output is no YAML file.
    """
    path = Path(output)
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(
            f"-o is {output}; a machine file ends in .yaml", hint="name a file that ends in .yaml"
        )
    rows, chosen = _usable(ledger_rows(Path(ledger)), ledger, chip)
    with activate():
        predictor = Predictor(None if load is None else lambda named: load(str(Path(ledger).parent / named)))
        machine, measured = chip_named(chosen), judged(rows, predictor)
        calibrated = fit(measured, machine)
        pairs = [(one, one.predict(machine), one.predict(calibrated.machine)) for one in measured]
    write_whole(path, calibrated.file(Path(ledger).name).text().encode())
    if as_json:
        print_document(_as_dict(calibrated, pairs, output))
    else:
        _print(calibrated, pairs, output)


Pairs = list[tuple[Judged, float, float]]


def _usable(rows: tuple[Row, ...], ledger: str, chip: str) -> tuple[list[Row], str]:
    """The rows that constants may be fitted to, and their chip."""
    timed = [
        row for row in rows if QUANTITIES[row.metric].sort == "time" and not QUANTITIES[row.metric].has_host
    ]
    chosen = [row for row in timed if row.split == "fit" and chip in ("", row.chip)]
    chips = sorted({row.chip for row in chosen})
    if not chosen:
        raise FileError(
            f"{ledger} has no time{f' on {chip}' if chip else ''} that constants may be fitted to",
            hint="give rows split: fit, whose first quantity is a time on the core, such as nc_latency_us",
        )
    if len(chips) > 1:
        raise UsageError(f"{ledger} has rows of {', '.join(chips)}", hint="choose one of them with --target")
    return chosen, chips[0]


def _print(calibrated: Fitted, pairs: Pairs, output: str) -> None:
    """Rows, constants and errors."""
    wide = min(40, columns() - 57)
    say(f"{'row':<{wide}}{'quantity':<18}{'measured':>10}{'before':>10}{'after':>10}{'error':>8}")
    for one, before, after in pairs:
        start = f"{one.row.id}\n{'':<{wide}}" if len(one.row.id) >= wide else f"{one.row.id:<{wide}}"
        error = after / one.measured - 1
        say(f"{start}{one.metric:<18}{one.measured:>10,.5g}{before:>10,.5g}{after:>10,.5g}{error:>+8.1%}")
    say(f"\n{'constant of ' + calibrated.machine.name:<40}{'before':>10}{'after':>10}")
    for name, (before, after) in calibrated.changed.items():
        say(f"{name:<40}{before:>10,.4g}{after:>10,.4g}")
    if not calibrated.changed:
        say("no constant changed: the measurements agree with what is known, or say nothing about it")
    errors = f"{calibrated.before:.1%} before, {calibrated.after:.1%} after"
    say(f"\nmean error of {calibrated.rows} rows: {errors}")
    say(printable(f"written: {output}; use it with --target {output}"))


def _as_dict(calibrated: Fitted, pairs: Pairs, output: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "chip": calibrated.machine.name,
        "rows": [
            {"id": one.row.id, "metric": one.metric, "measured": one.measured, "before": b, "after": a}
            for one, b, a in pairs
        ],
        "constants": {name: {"before": b, "after": a} for name, (b, a) in calibrated.changed.items()},
        "mape": {"before": calibrated.before, "after": calibrated.after},
        "written": output,
    }
