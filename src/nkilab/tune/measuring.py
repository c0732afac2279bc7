"""Points measured by a program of the user's, which prints microseconds."""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from ..arrays import framework_of
from ..errors import UsageError
from ..tiles.dtypes import as_dtype
from .binding import setting_of
from .confirm import NOISE, Measured
from .objective import Case, KernelObjective
from .outcome import Outcome, key_of
from .space import Point, Space
from .verdict import Verdict

SCHEMA = "nkilab.point/1"
PLACE = "{file}"
# How many points are worth measuring at first: from so many on their scatter says how sure the choice is.
FIRST = 4
HINT = "docs/tune.md has a program that does it"


@dataclass(frozen=True)
class Command:
    """A program of the user's that measures a point.

    Raises:
        UsageError: if the text names no place for the document.
    """

    text: str  # with {file} where the path of the point's document belongs
    kernel: str  # "FILE.py:KERNEL"
    seconds: float  # that one point may take, 0 for no limit

    def __post_init__(self) -> None:
        if PLACE not in self.text:
            raise UsageError(
                f"--measure is {self.text!r}; it needs {PLACE} where the path of the point belongs",
                hint=f"write --measure 'python3 measure.py {PLACE}'",
            )

    def measured(self, objective: KernelObjective, point: Point) -> Measured:
        """What the program says of a point.

        Raises:
            UsageError: if it cannot be started, fails, takes too long, or prints no time.
        """
        with _written(document_of(objective, self.kernel, point)) as path:
            words = [word.replace(PLACE, str(path)) for word in shlex.split(self.text)]
            try:
                done = subprocess.run(
                    words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False,
                    timeout=self.seconds or None,
                )  # fmt: skip
            except OSError as error:
                raise self._refused(f"cannot be started: {error.strerror}", point) from None
            except subprocess.TimeoutExpired:
                raise self._refused(f"takes more than {self.seconds:g} seconds", point) from None
        if done.returncode:
            raise self._refused(f"ends with status {done.returncode}", point)
        return Measured(point, self._time_in(done.stdout, point), NOISE, 0)

    def _time_in(self, output: str, point: Point) -> float:
        lines = output.split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        try:
            latency = float(last)
        except ValueError:
            latency = 0.0
        if not isfinite(latency) or latency <= 0:
            raise self._refused(
                f"prints {last[:60]!r} last; it must be a number of microseconds above 0", point
            )
        return latency

    def _refused(self, problem: str, point: Point) -> UsageError:
        return UsageError(f"--measure {self.text!r} {problem}, for {key_of(point)}", hint=HINT)


@contextmanager
def _written(document: dict[str, object]) -> Iterator[Path]:
    """The path of a document, inside."""
    with tempfile.TemporaryDirectory(prefix="nkilab-") as folder:
        path = Path(folder) / "point.json"
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        yield path


def document_of(objective: KernelObjective, kernel: str, point: Point) -> dict[str, object]:
    """What a program needs to know to measure a point, as docs/schemas/nkilab.point-1.json describes it."""
    settings: dict[str, dict[str, object]] = {"parameter": {}, "field": {}, "constant": {}, "launch": {}}
    for name, value in point.items():
        settings[setting_of(objective.kernel, name)][name] = value
    return {
        "schema": SCHEMA,
        "kernel": kernel,
        "spelling": objective.spelling,
        "target": objective.machine.name,
        "grid": [int(extent) for extent in objective.kernel.grid],
        "point": point,
        "parameters": settings["parameter"],
        "fields": settings["field"],
        "constants": settings["constant"],
        "launch": settings["launch"],
        "cases": [_case(case) for case in objective.cases],
    }


def _case(case: Case) -> dict[str, object]:
    return {
        "weight": case.weight,
        "args": [_argument(value) for value in case.args],
        "kwargs": {name: _argument(value) for name, value in case.kwargs.items()},
    }


def _argument(value: Any) -> object:
    """An array by its shape and type, what JSON holds as it is, anything else as Python writes it."""
    if framework_of(value):
        return {"shape": list(value.shape), "dtype": str(as_dtype(value.dtype))}
    return value if value is None or isinstance(value, bool | int | float | str) else {"text": repr(value)}


def worth_measuring(verdict: Verdict, measured: Sequence[Measured], count: int) -> list[Outcome]:
    """Points that the model cannot separate from its choice and that say most, if they are measured.

    Args:
        verdict: of a search.
        measured: points whose times are known.
        count: how many at most.

    Returns:
        The choice, then each time the point farthest from all that are taken or known, in places along the
        values of the parameters. Once the choice is measured, the fastest that are too close to it.
    """
    if not count:
        return []
    known = {key_of(one.point) for one in measured}
    others = [o for o in verdict.close or verdict.overlapping if key_of(o.point) not in known]
    if key_of(verdict.best.point) in known:
        return [o for o in others if o in verdict.close][:count]
    space = verdict.found.space
    taken = [verdict.best]
    places = [_place(space, point) for point in (verdict.best.point, *(one.point for one in measured))]
    while others and len(taken) < count:
        # of equally far ones the fastest: they stand in order of latency
        farthest = max(
            others, key=lambda o: min(_distance(_place(space, o.point), place) for place in places)
        )
        others.remove(farthest)
        taken.append(farthest)
        places.append(_place(space, farthest.point))
    return taken


def _place(space: Space, point: Point) -> list[float]:
    """Where a point lies: per parameter from 0 at its first value to 1 at its last."""
    return [p.values.index(point[p.name]) / max(1, len(p.values) - 1) for p in space.parameters]


def _distance(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True))
