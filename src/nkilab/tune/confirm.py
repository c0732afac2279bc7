"""Measurements of some points, by whoever has the hardware: constants are fitted to them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, isfinite, log
from pathlib import Path
from statistics import stdev
from typing import Any

from ..errors import UsageError
from ..ledger import Judged, Row
from ..ledger.fitting import Fitted, fit
from ..ledger.row import Call, Source
from ..machine import Machine
from ..yaml_files import line_of, loaded, wrong
from .objective import Objective
from .outcome import Outcome, key_of
from .space import Point, Space
from .study import Found

SCHEMA = "nkilab.measured/1"
HINT = "see docs/tune.md for the format"
# What a measured time is off by when it is measured again, unless the file says.
NOISE = 0.02
# The variance of points about the mean of their kernel over that of kernels about the model: 0.06 and 0.13.
SHRINK = 0.2
# From so many measurements on, their own scatter says how far points are off against each other; and how many
# standard deviations the interval has on either side (Student's t, 90 %, by degrees of freedom).
ENOUGH = 4
_STUDENT = {3: 2.35, 4: 2.13, 5: 2.02, 6: 1.94, 7: 1.89, 8: 1.86, 9: 1.83, 10: 1.81}
# A measurement so many times another one than predicted is in another unit.
FAR = 100


@dataclass(frozen=True)
class Measured:
    """A point that somebody measured."""

    point: Point  # of the space
    latency_us: float  # the launch on the NeuronCore, over all cases by their weights, in microseconds
    noise: float  # relative spread of repeated measurements
    line: int  # of the file


@dataclass(frozen=True)
class Recalibrated:
    """What measurements changed."""

    measured: tuple[Measured, ...]
    fitted: Fitted
    scale: float  # what the measured points still have in common: measured over predicted
    spread: float | None  # how far points are off against each other after it, relatively; None of too few
    half_width: float | None  # of the interval, in the logarithm; None likewise

    @property
    def machine(self) -> Machine:
        """The chip with the constants that the measurements ask for."""
        return self.fitted.machine

    def applied(self, result: Found) -> Found:
        """What a search found, with measured latencies; the others scaled, with intervals of the scatter."""
        known = {key_of(one.point): one.latency_us for one in self.measured}
        return replace(
            result, outcomes=tuple(self.judged(o, known.get(key_of(o.point))) for o in result.outcomes)
        )

    def judged(self, outcome: Outcome, measured: float | None = None) -> Outcome:
        """An outcome under the new constants, scaled, with what was measured of it."""
        if not outcome.is_timed:
            return outcome
        latency = outcome.values["latency"] * self.scale
        low, high = (end * self.scale for end in outcome.interval_us)
        if self.half_width is not None:
            factor = exp(self.half_width)
            low, high = latency / factor, latency * factor
        values = {**outcome.values, "latency": latency}
        return replace(outcome, values=values, measured_us=measured, interval_us=(low, high))

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "points": [{**one.point, "latency_us": one.latency_us} for one in self.measured],
            "constants": {n: {"before": b, "after": a} for n, (b, a) in self.fitted.changed.items()},
            "mape": {"before": self.fitted.before, "after": self.fitted.after},
            "scale": self.scale,
            "spread_within_kernel": self.spread,
        }


def form(points: Sequence[Point], measured: Sequence[Measured] = ()) -> str:
    """A file of measured points: those that are known, and others with their times left to fill in."""
    known = [(one.point, f"{one.latency_us:g}") for one in measured]
    entries = [
        "  - {" + ", ".join(f"{n}: {json.dumps(v)}" for n, v in point.items()) + f", latency_us: {time}}}\n"
        for point, time in [*known, *((point, "null") for point in points)]
    ]
    return f"schema: {SCHEMA}\npoints:\n{''.join(entries)}"


def read_measured(path: Path, space: Space) -> list[Measured]:
    """The measurements in a YAML file; entries whose latency_us is null wait to be filled in.

    Raises:
        FileError: if it cannot be read, or is written otherwise; names the line.
    """
    document = loaded(path, HINT)
    if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
        schema = document.get("schema") if isinstance(document, Mapping) else None
        raise wrong(path, 1, f"the schema is {schema!r}; a file of measured points has {SCHEMA!r}", HINT)
    points = document.get("points")
    if not isinstance(points, list) or not points:
        raise wrong(
            path, line_of(document), f"points is {points!r}; it must be a list with at least one entry", HINT
        )
    measured_points = [
        _measured(path, entry, line_of(points, i), space)
        for i, entry in enumerate(points)
        if not (isinstance(entry, Mapping) and "latency_us" in entry and entry["latency_us"] is None)
    ]
    if not measured_points:
        raise wrong(
            path, line_of(document), "no point has a latency_us yet", "write the measured microseconds in"
        )
    keys = [key_of(one.point) for one in measured_points]
    for i, key in enumerate(keys):
        if key in keys[:i]:
            raise wrong(path, measured_points[i].line, f"{key} is measured twice", "give one value per point")
    return measured_points


def _measured(path: Path, entry: Any, line: int, space: Space) -> Measured:
    if not isinstance(entry, Mapping):
        raise wrong(path, line, f"an entry of points is {entry!r}; it must hold names and values", HINT)
    point = {str(k): v for k, v in entry.items() if k not in ("latency_us", "noise")}
    for name, value in point.items():
        kind = next((one for one in (bool, int, float, str) if isinstance(value, one)), None)
        if kind is None:
            raise wrong(path, line, f"{name} is {value!r}; in a point it is a number or a word", HINT)
        point[name] = kind(value)
    if not space.contains(point):
        raise wrong(
            path,
            line,
            f"{key_of(point)} is no point of the space",
            f"its parameters are {', '.join(space.names)}",
        )
    latency, noise = entry.get("latency_us"), entry.get("noise", NOISE)
    for name, value in (("latency_us", latency), ("noise", noise)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value <= 0:
            raise wrong(path, line, f"{name} is {value!r}; it must be a number above 0", HINT)
    if noise >= 1:
        raise wrong(path, line, f"noise is {noise!r}; it must be a relative spread, 0.02 for 2 %", HINT)
    assert latency is not None
    return Measured(point, float(latency), float(noise), line)


def recalibrated(measured: Sequence[Measured], objective: Objective) -> Recalibrated:
    """Constants of the chip that the measurements ask for.

    Raises:
        UsageError: if the kernel cannot be timed on a measured point.
    """
    for one in measured:
        outcome = objective.evaluate(one.point)
        if not outcome.is_timed:
            raise UsageError(f"{key_of(one.point)} is measured, but {outcome.state}:\n{outcome.message}")
        _check_unit(one, outcome)
    rows = [_judged(one, number, objective) for number, one in enumerate(measured)]
    fitted = fit(rows, objective.machine)
    after = objective.under(fitted.machine)
    residuals = [log(_latency(after, one.point) / one.latency_us) for one in measured]
    count = len(residuals)
    # one measurement says nearly all about what points of a kernel have in common, several say it better
    scale = exp(-sum(residuals) / (count + SHRINK))
    if count < ENOUGH:
        return Recalibrated(tuple(measured), fitted, scale, None, None)
    spread = stdev(residuals)
    factor = _STUDENT.get(count - 1, 1.75) * (1 + 1 / count) ** 0.5
    return Recalibrated(tuple(measured), fitted, scale, spread, factor * spread)


def _check_unit(one: Measured, outcome: Outcome) -> None:
    """Refuse a measurement that no error of the model explains."""
    predicted = outcome.values["latency"]
    if not 1 / FAR < one.latency_us / predicted < FAR:
        raise UsageError(
            f"{key_of(one.point)} is measured with {one.latency_us:g} us, predicted with {predicted:.2f} us",
            hint="write latency_us in microseconds",
        )


def _latency(objective: Objective, point: Point) -> float:
    return objective.evaluate(point).values["latency"]


def _judged(one: Measured, number: int, objective: Objective) -> Judged:
    """A measured point as constants are fitted to it."""
    row = Row(
        id=f"measured-{number}", family=objective.name, kernel=objective.name,
        calls=(Call(objective.name, ()),), measured={"nc_latency_us": one.latency_us},
        source=Source("measured", "the user's"), chip=objective.machine.name,
        dialect=objective.spelling, trust="B", split="fit", noise=one.noise,
        keywords=dict(one.point), line=one.line,
    )  # fmt: skip
    return Judged(
        row, row.metric, one.latency_us, lambda machine: _latency(objective.under(machine), one.point)
    )
