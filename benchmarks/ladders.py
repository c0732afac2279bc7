"""Advice against what experts did: rank, sign and gain at each step of published sequences of versions.

    NKILAB_LADDERS=FOLDER python benchmarks/ladders.py LADDERS.yaml MEASUREMENTS.yaml [LADDER...] \
        [--all | --kept-back] [--table]

FOLDER holds checkouts of the repositories that the sequences come from, as ladder_kernels.yaml names them.
A third of the ladders, by a hash of their names, is kept back for the end; `--all` shows it too,
`--kept-back` it alone. Ladders weigh alike.
`--table` prints the table of docs/ladders.md at the end.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import nkilab
from nkilab.advice import CATALOGUE, Subject, advice_of, subject_of
from nkilab.advice.subject import subject_of_program
from nkilab.advice.trials import best_edit
from nkilab.api import as_kernel, machine_for
from nkilab.arguments import argument
from nkilab.conformal import advised_factors, gain_factors, least_gain
from nkilab.estimates import estimate_program
from nkilab.launches import launch
from nkilab.ledger import Predictor, own_rows
from nkilab.trace.program import Program

HELPFUL = 0.02
INVERSES = {"finer_tiles": "bigger_transfers", "bigger_transfers": "finer_tiles",
            "split_phases": "fuse_loops", "fuse_loops": "split_phases"}  # fmt: skip
# changes of one step that are made one after the other, and rows of programs in which they are
MOST_CHANGES, MOST_CHAINED = 4, 20_000
HERE = Path(__file__).parent


@dataclass
class Step:
    """What advice says of one step.

    Args:
        ladder, change: names.
        ids: of the expert's change, the primary first.
        direction: as measured or stated.
        measured: share of the time that it saved; None where nothing was published.
        runs: whether the version before is there and runs.
        candidates: places where a detector of the expert's change sees something to do.
        rank: of the expert's change among the advice, from 1; 0 if it is not there.
        predicted: share of the time that the edit saves; None if no edit makes the change.
        interval: between which that is believed to lie.
        rewritten: share of the time that the rewritten kernel saves by prediction.
        advice: ids, in order.
    """

    ladder: str
    change: str
    ids: list[str]
    direction: str
    measured: float | None
    runs: bool = False
    candidates: int = 0
    rank: int = 0
    predicted: float | None = None
    interval: tuple[float, float] = (0.0, 0.0)
    rewritten: float | None = None
    advice: list[str] = field(default_factory=list)

    @property
    def helped(self) -> bool:
        """Whether it helped by more than the model could miss."""
        return self.direction == "better" and (self.measured is None or self.measured > HELPFUL)

    @property
    def sign_is_right(self) -> bool:
        """Whether the expert's own two versions, or the edit where one does not run, go the way they went."""
        gain = self.predicted if self.rewritten is None else self.rewritten
        return gain is not None and (gain > 0 if self.direction == "better" else gain < 0)

    @property
    def is_inside(self) -> bool:
        """Whether the measured gain lies in the interval of the edit's."""
        return self.predicted is not None and self.interval[0] <= (self.measured or 0.0) <= self.interval[1]

    @property
    def is_inside_rewritten(self) -> bool:
        """Whether the measured gain lies in the interval that the expert's own two versions ask for."""
        low, high = gain_factors(1 - self.rewritten) if self.rewritten is not None else (1.0, 0.0)
        return low <= (self.measured or 0.0) <= high

    @property
    def reason(self) -> str:
        """Why the change is not among the first three pieces of advice; "" if it is."""
        if 0 < self.rank <= 3:
            return ""
        if not self.runs:
            return "no kernel that runs"
        if not set(self.ids) & set(CATALOGUE):
            return "no such transformation"
        if not self.candidates:
            return "detector silent"
        if self.predicted is None:
            return "no legal edit"
        if self.rank:
            return f"rank {self.rank}"
        return "gain below the resolution" if self.interval[0] <= 0 else "not tried"


class Ladders:
    """The versions of all ladders, each analysed once."""

    def __init__(self, folder: Path, measured: dict[str, float]) -> None:
        self._folder, self._measured = folder, measured
        self._map = yaml.safe_load((HERE / "ladder_kernels.yaml").read_text("utf-8"))
        self._rows = {row.id: row for row in own_rows()}
        self._predictor = Predictor()
        self._known: dict[tuple[str, str], Subject | None] = {}

    def subject(self, ladder: str, version: str, row: str) -> Subject | None:
        """A version of a ladder; None if there is no kernel of it here, or it does not run."""
        key = ladder, version
        if key not in self._known:
            try:
                self._known[key] = self._analysed(ladder, version, row)
            except Exception as error:  # a version that does not run is a miss, and said
                print(
                    f"  {ladder}: {version} does not run: {type(error).__name__} {str(error)[:150]}",
                    file=sys.stderr,
                )
                self._known[key] = None
        return self._known[key]

    def _analysed(self, ladder: str, version: str, row: str) -> Subject | None:
        entry = self._map.get(ladder, {})
        own = {
            **{k: v for k, v in entry.items() if k != "versions"},
            **entry.get("versions", {}).get(version, {}),
        }
        row = own.get("row", row)
        if "file" in own:
            program = self._traced(own, version)
        elif row in self._rows:
            programs = [
                p
                for n in range(len(self._rows[row].calls))
                for p in self._predictor.programs(self._rows[row], n)
            ]
            program = max(programs, key=len)
        else:
            return None
        estimate = estimate_program(program)
        return subject_of(program, estimate.program, estimate.plan, estimate.timeline)

    def _traced(self, own: dict[str, Any], version: str) -> Any:
        path = self._folder / own["file"].format(version=version)
        if "at" in own:
            top = self._folder / own["file"].split("/")[0]
            text = subprocess.run(
                ["git", "-C", str(top), "show", f"{own['at']}:{path.relative_to(top)}"],
                check=True, capture_output=True, text=True,
            ).stdout  # fmt: skip
            path = Path(tempfile.mkdtemp()) / path.name
            path.write_text(text, "utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        kernel = as_kernel(getattr(module, own["kernel"].format(version=version)))
        args = tuple(argument(text) if "[" in text else float(text) for text in own["args"])
        return launch(
            kernel, args, {}, machine_for(kernel, own.get("target", "trn2")), has_data=False
        ).programs[0]

    def gain(self, step: dict[str, Any]) -> float | None:
        """The share of the time that a step saved, where it was measured."""
        rows = [(step.get(side) or {}).get("row") for side in ("before", "after")]
        values = [self._measured.get(row) for row in rows if row]
        return 1 - values[1] / values[0] if len(values) == 2 and all(values) else None


def steps_of(ladders: Sequence[dict[str, Any]], kernels: Ladders) -> Iterator[Step]:
    """What is said of every scored step."""
    for ladder in ladders:
        for entry in ladder["steps"]:
            if not entry.get("scored", True):
                continue
            own = Step(
                ladder["id"], f"{entry['from']} -> {entry['to']}", entry["transformations"],
                entry["direction"],
                kernels.gain(entry),
            )  # fmt: skip
            sides = [
                kernels.subject(ladder["id"], entry[name], (entry.get(side) or {}).get("row", ""))
                for name, side in (("from", "before"), ("to", "after"))
            ]
            if sides[0] is not None:
                _judge(own, sides[0])
                if sides[1] is not None:
                    own.rewritten = 1 - sides[1].latency_ns / sides[0].latency_ns
            yield own


_ADVICE: dict[int, list[tuple[str, ...]]] = {}


def _judge(step: Step, subject: Subject) -> None:
    """Fill in what the advice for the version before says of a step, of so many edits that are tried."""
    if id(subject) not in _ADVICE:
        _ADVICE[id(subject)] = [(one.id, *one.also_called, *one.combined_with) for one in advice_of(subject)]
    step.runs, step.advice = True, ["+".join(ids) for ids in _ADVICE[id(subject)]]
    original, subject = subject, subject.part
    own = [id for id in step.ids if id in CATALOGUE]
    step.candidates = sum(1 for id in own for _ in CATALOGUE[id].find(subject))
    # a piece of several changes asks for each of them, one of several names for all of these
    ranks = [n for n, ids in enumerate(_ADVICE[id(original)], 1) if set(ids) & set(step.ids)]
    step.rank = min(ranks, default=0)
    share, program = _edited(subject, own)
    if share < 1 or program is not None:
        left = subject.left_share(frozenset[str]().union(*(CATALOGUE[id].relieves for id in own)))
        step.predicted, step.interval = 1 - share, advised_factors(share, left)


def _edited(subject: Subject, ids: Sequence[str]) -> tuple[float, Program | None]:
    """The share of the time that changes of a step leave, made one after the other, and the program then."""
    share, program = _best(subject, ids)
    following = program
    for _ in range(MOST_CHANGES - 1):
        if following is None or len(following) > MOST_CHAINED:
            break
        fewer, following = _best(subject_of_program(following), ids)
        if fewer > 1 - least_gain():
            break
        share, program = share * fewer, following
    return share, program


def _best(subject: Subject, ids: Sequence[str]) -> tuple[float, Program | None]:
    """The share of the time that the best edit of some transformations leaves, and the edited program."""
    every = (candidate for id in ids for candidate in CATALOGUE[id].find(subject))
    known = [
        (best[1] / (candidate.since_ns or subject.latency_ns), number, best[2])
        for number, candidate in enumerate(every)
        if (best := best_edit(subject, candidate))
    ]  # fmt: skip
    return min(known)[::2] if known else (1.0, None)


def undone_again(ladders: Sequence[dict[str, Any]], kernels: Ladders) -> list[str]:
    """Last versions that are advised to do again what the last step, which helped, had undone."""
    result = []
    for ladder in ladders:
        last = ladder["steps"][-1]
        row = (last.get("after") or {}).get("row", "")
        if (
            last["direction"] != "better"
            or (subject := kernels.subject(ladder["id"], last["to"], row)) is None
        ):
            continue
        inverse = {INVERSES[id] for id in last["transformations"] if id in INVERSES}
        advised = {one.id for one in advice_of(subject)}
        result += [f"{ladder['id']}: {id}" for id in sorted(inverse & advised)]
    return result


def weighted(steps: Sequence[Step], is_right: Any) -> str:
    """The share of steps for which something holds, ladders weighing alike, and their number."""
    by_ladder: dict[str, list[bool]] = {}
    for step in steps:
        by_ladder.setdefault(step.ladder, []).append(bool(is_right(step)))
    shares = [sum(own) / len(own) for own in by_ladder.values()]
    return (
        f"{sum(shares) / len(shares):5.0%} of {len(steps)} steps in {len(shares)} ladders"
        if shares
        else "none"
    )


def beyond(steps: Sequence[Step]) -> str:
    """What seven of eight experts stay below, ladders weighing alike: `EXPERTS` of `nkilab.conformal`."""
    counts = Counter(step.ladder for step in steps)
    scores = []
    for step in steps:
        measured, edit = (-np.log(max(1e-3, 1 - (g or 0.0))) for g in (step.measured, step.predicted))
        scores.append(((measured - edit) / (0.1 + abs(edit)), 1 / counts[step.ladder] / len(counts)))
    ordered = sorted(scores)
    place = int(np.searchsorted(np.cumsum([weight for _, weight in ordered]), 0.875 - 1e-9))
    return f"{ordered[place][0]:.2f}" if ordered else "-"


def report(title: str, coming: Iterable[Step]) -> list[Step]:
    """Print a line per step and the shares; gives the steps."""
    steps = []
    print(f"\n{title}")
    for step in coming:
        steps.append(step)
        numbers = [
            f"{value:+6.0%}" if value is not None else "     -"
            for value in (step.measured, step.predicted, step.rewritten)
        ]
        names = f"{step.ladder[:22]:22} {step.change[:44]:44} {step.ids[0]:18} {step.direction[:6]:6}"
        shares = f"measured {numbers[0]} edit {numbers[1]} rewritten {numbers[2]}"
        reason = f"[{step.reason}]" if step.helped and step.reason else ""
        print(f"{names} rank {step.rank or '-'} {shares}  {' '.join(step.advice)} {reason}", flush=True)
    helped = [s for s in steps if s.helped]
    known = [s for s in steps if s.direction in ("better", "worse")]
    valued = [s for s in helped if s.measured is not None]
    print("among the first three  ", weighted(helped, lambda s: 0 < s.rank <= 3))
    print("first                  ", weighted(helped, lambda s: s.rank == 1))
    print("sign right             ", weighted(known, lambda s: s.sign_is_right))
    print("gain inside interval   ", weighted(valued, lambda s: s.is_inside))
    print("  of the expert's pair ", weighted(valued, lambda s: s.is_inside_rewritten))
    print("experts gained beyond  ", beyond([s for s in valued if s.predicted is not None]))
    reasons = Counter(s.reason for s in helped if s.reason)
    print("missed because         ", ", ".join(f"{why}: {n}" for why, n in reasons.most_common()) or "-")
    return steps


JUDGED = {
    "among the first three": lambda s: s.helped and 0 < s.rank <= 3,
    "first": lambda s: s.helped and s.rank == 1,
    "sign right": lambda s: s.sign_is_right,
    "gain inside": lambda s: s.helped and s.is_inside,
}


def table(steps: Sequence[Step]) -> str:
    """Per ladder how many of its steps each bar counts, as Markdown."""
    counted = {
        "among the first three": [s for s in steps if s.helped],
        "first": [s for s in steps if s.helped],
        "sign right": [s for s in steps if s.direction in ("better", "worse")],
        "gain inside": [s for s in steps if s.helped and s.measured is not None],
    }
    rows = [f"| ladder | {' | '.join(JUDGED)} |", "|---" * (len(JUDGED) + 1) + "|"]
    for name in dict.fromkeys(step.ladder for step in steps):
        cells = []
        for title, is_right in JUDGED.items():
            own = [step for step in counted[title] if step.ladder == name]
            cells.append(f"{sum(map(is_right, own))} of {len(own)}" if own else "")
        rows.append(f"| {name} | {' | '.join(cells)} |")
    shares = [
        weighted(counted[title], is_right).split(" of ")[0].strip() for title, is_right in JUDGED.items()
    ]
    return "\n".join([*rows, f"| **all, alike** | {' | '.join(shares)} |"])


def main(words: Sequence[str]) -> None:
    """Judge the ladders that are not kept back, or those named, or all."""
    warnings.simplefilter("ignore")
    ladders = yaml.safe_load(Path(words[0]).read_text("utf-8"))
    rows = yaml.safe_load(Path(words[1]).read_text("utf-8"))
    measured = {row["id"]: float(row["value"]) for row in rows if isinstance(row.get("value"), int | float)}
    by_hash = sorted(ladders, key=lambda one: hashlib.sha256(one["id"].encode()).hexdigest())
    back = {one["id"] for one in by_hash[: len(ladders) // 3]}
    names = [word for word in words[2:] if not word.startswith("--")]
    kernels = Ladders(Path(os.environ["NKILAB_LADDERS"]), measured)
    begin = time.process_time()
    with nkilab.activate():
        groups = {
            "ladders that rules were written with": [
                one for one in ladders if one["id"] not in back and (not names or one["id"] in names)
            ],
            "ladders kept back": [one for one in ladders if one["id"] in back],
        }
        wanted = list(groups) if "--all" in words else list(groups)["--kept-back" in words :][:1]
        tables = {title: report(title, steps_of(groups[title], kernels)) for title in wanted}
        print("undone and advised again", ", ".join(undone_again(ladders, kernels)) or "-")
    if "--table" in words:
        for title, steps in tables.items():
            print(f"\n{title.capitalize()}:\n\n{table(steps)}")
    print(f"\n{time.process_time() - begin:.0f} s of processor time")


if __name__ == "__main__":
    main(sys.argv[1:])
