"""`nkilab validate`: what the timing model predicts against what was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

from .api import Estimate
from .conformal import residuals
from .disk import write_whole
from .documents import print_document
from .errors import EXIT_FAULT, EXIT_FINE, UsageError, did_you_mean
from .hook import activate
from .ledger import (
    Compared,
    Predictor,
    Row,
    Score,
    judged,
    leave_one_structure_out,
    left_out,
    own_rows,
    score_of,
)
from .ledger.bars import Bar, bars_of, regret_bars
from .ledger.choice import demand_of
from .ledger.identified import all_telling, bar_of_constants
from .ledger.picture import svg
from .ledger.quantities import QUANTITIES
from .ledger.reading import ledger_rows
from .ledger.regret import Grid, compared_grids, grids_of
from .ledger.score import families_of
from .machine import chip_named
from .progress import columns, phase, say
from .timing import MODEL_VERSION

SCHEMA, REGRET_SCHEMA = "nkilab.validate/1", "nkilab.regret/1"


def run_validation(
    ledger: str, family: str, picture: str, *, as_json: bool, leave_out: bool = False,
    load: Callable[[str], Any] | None = None,
) -> int:  # fmt: skip
    """Compare a ledger with the model, print what was found, and return the exit status.

    Args:
        ledger: path of a ledger; "" for the one that comes with nkilab.
        family: which rows, by the start of their family's name; "" for all.
        picture: path of the SVG to write; "" for none.
        as_json: print JSON alone.
        leave_out: predict each structure anew, with constants fitted to the others.
        load: finds the kernel that "FILE.py:KERNEL" names.

    Returns:
        0 if every bar is met, else 1.

    Raises:
        FileError: if the ledger cannot be read or names a kernel that does not exist.
        UsageError: if no row has such a family, or the picture is no SVG.
    """
    if picture and Path(picture).suffix != ".svg":
        raise UsageError(f"--picture is {picture}; pictures are SVG", hint="name a file that ends in .svg")
    rows = _chosen(ledger_rows(Path(ledger)) if ledger else own_rows(), family)
    with activate():
        predictor = Predictor(_loader_beside(ledger, load))
        compared = compare(rows, predictor)
        known = {} if ledger or family else residuals().left_out
        left = without_structures(rows, predictor) if leave_out else known
        identifying = {} if ledger or family else all_telling(rows, predictor)
        grids = compared_grids(compared, predictor)
    report = Report(compared, grids, is_own=not ledger, left=left, identifying=identifying)
    if picture:
        shown = report.whole
        if not shown:
            raise UsageError(
                "there is no whole kernel to draw", hint="leave --picture out, or choose another family"
            )
        write_whole(Path(picture), svg(shown, f"nkilab timing model {MODEL_VERSION}: whole kernels").encode())
    if as_json:
        print_document(report.to_dict())
    else:
        report.print_text()
    return EXIT_FINE if all(bar.is_met for bar in report.bars) else EXIT_FAULT


def run_regret(
    ledger: str, family: str, *, as_json: bool, load: Callable[[str], Any] | None = None
) -> int:  # fmt: skip
    """Choose on every grid of block sizes by prediction, print what that costs, and return the exit status.

    Args:
        ledger, family, as_json, load: as of `run_validation`.

    Returns:
        0 if the bar is met, else 1.

    Raises:
        FileError: if the ledger cannot be read or names a kernel that does not exist.
        UsageError: if no row has such a family, or no two rows differ in block sizes alone.
    """
    rows = _chosen(ledger_rows(Path(ledger)) if ledger else own_rows(), family)
    own = [row for grid in grids_of(rows) for row in grid]
    with activate():
        predictor = Predictor(_loader_beside(ledger, load))
        compared = compare(own, predictor)
        grids = compared_grids(compared, predictor)
    if not grids:
        raise UsageError("no two rows differ in block sizes alone", hint="docs/tune.md says what a grid is")
    bars = regret_bars(grids)
    if as_json:
        document = {"schema": REGRET_SCHEMA, "model_version": MODEL_VERSION, "bars": list(map(asdict, bars))}
        print_document({**document, "grids": [grid.to_dict() for grid in grids]})
    else:
        _print_grids(grids)
        _print_bars(bars)
    return EXIT_FINE if all(bar.is_met for bar in bars) else EXIT_FAULT


def _print_grids(grids: Sequence[Grid]) -> None:
    """A grid in two lines, those with the host's time last."""
    for grid in sorted(grids, key=lambda g: g.has_host):
        tau = "none" if grid.tau is None else f"{grid.tau:.2f}"
        host = "  host" if grid.has_host else ""
        say(grid.name)
        say(
            f"  {len(grid.compared):>3} points  regret {grid.regret:>6.1%}, searched {grid.searched:>6.1%}  "
            f"Kendall tau {tau:>5}  spread {grid.spread:>6.1%}{host}"
        )
        if grid.regret:
            say(f"      chosen {grid.chosen.row.id}, best {grid.best.row.id}")


def _print_bars(bars: Sequence[Bar]) -> None:
    """A bar a line: whether it is met, what was reached, what is asked for."""
    for bar in bars:
        say(f"{'met   ' if bar.is_met else 'MISSED'}  {bar.name}: {bar.reached}; {bar.demand}")


def _chosen(rows: Sequence[Row], family: str) -> list[Row]:
    rows_of_family = [row for row in rows if row.family.startswith(family)]
    if not rows_of_family:
        known = ", ".join(sorted({row.family for row in rows}))
        near = did_you_mean(family, {row.family for row in rows})
        raise UsageError(f"--family is {family}; the ledger has {known}", hint=near)
    return rows_of_family


def _loader_beside(ledger: str, load: Callable[[str], Any] | None) -> Callable[[str], Any] | None:
    """Find "FILE.py:KERNEL" in the folder of the ledger."""
    return (lambda named: load(str(Path(ledger).parent / named))) if load and ledger else None


def without_structures(rows: Sequence[Row], predictor: Predictor) -> dict[str, dict[str, float]]:
    """Per structure and chip the errors of its kernels under constants that others were fitted to."""
    timed = [
        r for r in rows
        if QUANTITIES[r.metric].sort == "time" and not QUANTITIES[r.metric].has_host
        and r.kind != "collective" and r.split == "fit"
    ]  # fmt: skip
    result: dict[str, dict[str, float]] = {}
    for chip in sorted({row.chip for row in timed}):
        own = [row for row in timed if row.chip == chip]
        whole = [row for row in own if row.kind == "kernel" and not row.contradicts]
        if len({row.structure for row in own}) > 1:
            left = leave_one_structure_out(judged(own, predictor), judged(whole, predictor), chip_named(chip))
            result |= {f"{structure}, {chip}": errors for structure, errors in left.items()}
    return result


def compare(rows: Sequence[Row], predictor: Predictor) -> list[Compared]:
    """Every measured quantity of every row with its prediction.

    Args:
        rows: of a ledger.
        predictor: runs their kernels; the names that they import are served.
    """
    result: list[Compared] = []
    shapes: dict[str, set[str]] = {}
    for row in rows:
        shapes.setdefault(row.shape, set()).add(row.id)
    done = set[str]()
    with phase("comparing", lambda: len(done), len(rows), "rows"):
        for row in rows:
            estimates, twins = predictor.estimates(row), frozenset(shapes[row.shape])
            measured = row.measured.items()
            result += [_compared(row, metric, value, estimates, twins) for metric, value in measured]
            done.add(row.id)
    return result


def _compared(
    row: Row, metric: str, measured: float, estimates: Sequence[Estimate], twins: frozenset[str]
) -> Compared:
    """A quantity with its prediction; its interval is as if rows of its shape had not been measured."""
    quantity = QUANTITIES[metric]
    predicted = quantity.predict(row, estimates)
    longest = max(estimates, key=lambda e: e.latency_us)
    interval = None
    if quantity.sort == "time":
        # the interval of a time is as wide, relatively, as that of the latency it is part of
        band = residuals().band(longest.traits, twins)
        low, high = longest.shares_within(band)
        interval = (predicted * low, predicted * high)
    return Compared(row, metric, measured, predicted, interval, longest.summary.bound, demand_of(estimates))


def _groups(compared: Sequence[Compared], whole: Sequence[Compared]) -> dict[str, list[Compared]]:
    """What is scored together, by what it is called; `whole` are times of whole kernels."""
    judge = [c for c in whole if c.row.split == "judge"]
    fit = [c for c in whole if c.row.split == "fit"]
    collectives = [c for c in compared if c.row.kind == "collective"]
    hosted = [c for c in compared if QUANTITIES[c.metric].has_host and c.row.kind == "kernel"]
    return {
        "judged kernels": judge,
        "judged kernels that no other measurement contradicts": [c for c in judge if not c.row.contradicts],
        "judged kernels, compute-bound": [c for c in judge if not c.is_dma_bound],
        "judged kernels, DMA-bound": [c for c in judge if c.is_dma_bound],
        "kernels that may be fitted": fit,
        "kernels that may be fitted, compute-bound": [c for c in fit if not c.is_dma_bound],
        "kernels that may be fitted, DMA-bound": [c for c in fit if c.is_dma_bound],
        "kernels for context": [c for c in whole if c.row.split == "context"],
        "times with the host": [c for c in hosted if c.row.split != "context"],
        "times with the host, for context": [c for c in hosted if c.row.split == "context"],
        "collectives alone": [c for c in collectives if not QUANTITIES[c.metric].has_host],
        "collectives in kernels, with the host": [c for c in collectives if QUANTITIES[c.metric].has_host],
        "single instructions and transfers": [
            c for c in compared if c.row.kind == "instruction" and c.sort == "time"
        ],
    }


class Report:
    """Comparisons, sorted into what is told together.

    Args:
        compared: every quantity of every row.
        grids: of block sizes among them.
        is_own: whether the ledger is the one that comes with nkilab.
        left: the errors of structures under constants that the others were fitted to, if that was asked for.
        identifying: per fitted constant rows that tell it, if the ledger is whole.
    """

    def __init__(
        self, compared: Sequence[Compared], grids: Sequence[Grid] = (), *, is_own: bool,
        left: Mapping[str, Mapping[str, float]] | None = None,
        identifying: Mapping[str, Sequence[str]] | None = None,
    ) -> None:  # fmt: skip
        left, self.identifying = left or {}, dict(identifying or {})
        self.left = {name: mean(map(abs, errors.values())) for name, errors in left.items()}
        self.compared = compared
        self.is_own = is_own
        self.whole = [c for c in compared if c.is_whole]
        self.groups = _groups(compared, self.whole)
        self.scores: dict[str, Score] = {
            name: score for name, group in self.groups.items() if (score := score_of(group)) is not None
        }
        self.grids = grids
        self.bars: list[Bar] = bars_of(compared, grids, self.left)
        self.bars += [bar_of_constants(self.identifying)] if self.identifying else []
        self.exact = [c for c in compared if c.sort == "count"]
        self.activity = [c for c in compared if c.sort == "activity"]

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "schema": SCHEMA,
            "model_version": MODEL_VERSION,
            "rows": [_row_dict(c) for c in self.compared],
            "scores": {name: _score_dict(score) for name, score in self.scores.items()},
            "counts": {"compared": len(self.exact), "equal": sum(_is_equal(c) for c in self.exact)},
            "left_one_out": self.left,
            "fitted_constants": self.identifying,
            "activity": {"compared": len(self.activity), "mape": _mape(self.activity)},
            "grids": [grid.to_dict() for grid in self.grids],
            "bars": list(map(asdict, self.bars)),
            "left_out": left_out() if self.is_own else {},
        }

    def print_text(self) -> None:
        """Rows by family, then scores and bars."""
        for family, own in families_of(self.compared).items():
            say(f"\n{family}")
            say(f"  {'row':<{columns() - 57}}{'quantity':<22}{'measured':>11}{'predicted':>11}{'error':>8}")
            for one in own:
                say(_line(one))
        if self.grids:
            say("\ngrids of block sizes")
            _print_grids(self.grids)
        say(f"\ntiming model {MODEL_VERSION}, {len({c.row.id for c in self.compared})} rows")
        for name, score in self.scores.items():
            _print_score(name, score)
        equal = sum(_is_equal(c) for c in self.exact)
        if self.exact:
            say(f"\ncounts of bytes, transfers and instructions: {equal} of {len(self.exact)} are exact")
        if self.activity:
            say(f"times and shares of engines: MAPE {_mape(self.activity):.1%} of {len(self.activity)}")
        if self.left:
            say(f"\nstructures under constants of the others: {mean(self.left.values()):.1%} on average")
            for family, error in self.left.items():
                say(f"  {family:<44}{error:>7.1%}")
        for constant, rows in self.identifying.items():
            say(f"{constant:<35} is fitted; told by {', '.join(rows) or 'nothing'}")
        if self.is_own:
            say("\npublished measurements without a prediction; docs/validation.md names them")
            for reason, count in Counter(left_out().values()).items():
                say(f"  {count:>3}  {reason}")
        _print_bars(self.bars)


def _line(one: Compared) -> str:
    name = one.row.id if one.is_primary else ""
    marks = "".join(
        mark
        for mark, holds in (
            ("j", one.row.split == "judge" and one.is_primary),
            ("c", one.row.split == "context" and one.is_primary),
            ("!", bool(one.row.contradicts) and one.is_primary),
        )
        if holds
    )
    figures = f" {one.measured:>10,.6g} {one.predicted:>10,.6g}{one.error:>+8.1%}"
    within = ""
    if one.interval is not None:
        within = f"  {span(*one.interval)}{'' if one.is_inside else '  outside'}"
    # a name that is longer than its column stands on a line of its own
    wide = columns() - 60
    start = f"  {name}\n  {'':<{wide}}" if len(name) >= wide else f"  {name:<{wide}}"
    return f"{start}{marks:<3}{one.metric:<22}{figures}{within}"


def span(low: float, high: float) -> str:
    """An interval with four figures, without exponents."""
    rounded = [float(f"{end:.4g}") for end in (low, high)]
    return " to ".join(f"{end:,.0f}" if end >= 1000 else f"{end:.4g}" for end in rounded)


def _print_score(name: str, score: Score) -> None:
    count = "1 setting" if score.settings == 1 else f"{score.settings} settings"
    worst = f"{score.worst.error:+.1%} ({score.worst.row.id})"
    say(f"\n{name}: {count}, MAPE {score.mape:.1%}, worst {worst}")
    say(f"  {score.coverage:.0%} inside their interval, median half-width {score.half_width:.0%}")
    ranks = [f"{family} {tau:.2f}" for family, tau in score.tau.items()]
    if ranks:
        say(f"  Kendall tau: {', '.join(ranks)}")


def _is_equal(one: Compared) -> bool:
    return one.measured == one.predicted


def _mape(compared: Sequence[Compared]) -> float:
    return sum(abs(c.error) for c in compared) / len(compared) if compared else 0.0


def _row_dict(one: Compared) -> dict[str, Any]:
    row = one.row
    return {
        "id": row.id, "family": row.family, "kind": row.kind, "kernel": row.kernel,
        "calls": [{"kernel": call.kernel, "args": list(call.args)} for call in row.calls],
        "keywords": row.keywords, "chip": row.chip,
        "dialect": row.dialect, "options": row.options, "metric": one.metric,
        "base": QUANTITIES[one.metric].base, "is_primary": one.is_primary, "measured": one.measured,
        "predicted": one.predicted, "error": one.error,
        "interval": list(one.interval) if one.interval else None, "is_inside": one.is_inside,
        "bound": one.bound, "trust": row.trust, "split": row.split, "noise": row.noise,
        "source": f"{row.source.ref}@{row.source.commit}" if row.source.commit else row.source.ref,
        "contradicts": list(row.contradicts), "reason": row.reason, "notes": row.notes,
    }  # fmt: skip


def _score_dict(score: Score) -> dict[str, Any]:
    worst = {"id": score.worst.row.id, "metric": score.worst.metric, "error": score.worst.error}
    own = {"settings": score.settings, "mape": score.mape, "tau": score.tau, "worst": worst}
    return {**own, "coverage": score.coverage, "median_half_width": score.half_width}
