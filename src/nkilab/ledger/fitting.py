"""Constants of a chip fitted to measurements: as far from what is known as the measurements ask for.

Predictions approach measurements in the sense of least squares, of their logarithms, while every constant
pulls towards its known value, the more the surer that is. So a few rows move only what they tell something
about, and no row moves a constant that is documented.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import mean

import numpy as np

from ..errors import UsageError
from ..machine import FREE, Machine
from ..machine.file import MachineFile
from ..progress import phase
from .predict import Judged

# How far a constant may be off, relatively, by its certainty: one standard deviation.
SPREAD = {"documented": 0.0, "measured": 0.1, "fitted": 0.3, "assumed": 0.5}
# What the model is off by with the best constants, relatively; a row's noise comes on top.
MODEL_ERROR = 0.05
# A change of a constant that shows in times which depend on it in steps.
STEP = 0.1
# Beyond so many standard deviations a row pulls no stronger.
OUTLIER = 2.0
ROUNDS = 4


@dataclass(frozen=True)
class Fitted:
    """Constants that were fitted."""

    machine: Machine  # the chip with them
    # by name, the value before and after, of those that moved by more than a thousandth
    changed: dict[str, tuple[float, float]]
    # before, after: mean absolute relative error of the rows
    before: float
    after: float
    rows: int  # how many there were

    def file(self, measured_in: str) -> MachineFile:
        """The machine file that holds them."""
        return MachineFile(
            self.machine.name,
            {name: after for name, (_, after) in self.changed.items()},
            f"fitted to {self.rows} measurements of {measured_in}",
        )


@dataclass(frozen=True)
class Sensitivities:
    """Predictions of rows, and how they change with the constants."""

    rows: Sequence[Judged]  # what was measured
    names: tuple[str, ...]  # of the constants
    log_ratio: np.ndarray  # per row, log(predicted / measured)
    slopes: np.ndarray  # [rows, constants], the change of log(predicted) by that of log(constant)

    def change(self, machine: Machine, moved: np.ndarray, keep: np.ndarray | None = None) -> np.ndarray:
        """Log changes of the constants that fit best, in linear approximation.

        Args:
            machine: what the slopes were taken at.
            moved: how far that is from what is known, as log changes.
            keep: per row, whether it counts; all if None.
        """
        keep = np.ones(len(self.rows), np.bool_) if keep is None else keep
        family = Counter(row.row.family for row, kept in zip(self.rows, keep, strict=True) if kept)
        sigma = np.array([np.hypot(MODEL_ERROR, one.row.noise) for one in self.rows])
        # many rows of one family tell little more than a few
        weight = np.array([max(1, family[one.row.family]) ** -0.25 for one in self.rows])
        scaled = self.log_ratio / sigma
        weight *= np.sqrt(np.minimum(1.0, OUTLIER / np.maximum(np.abs(scaled), 1e-9))) * keep
        pull = np.array([1 / SPREAD[getattr(machine, name).certainty] for name in self.names])
        left = np.vstack([self.slopes * (weight / sigma)[:, None], np.diag(pull)])
        right = -np.concatenate([scaled * weight, moved * pull])
        shifts: np.ndarray = np.linalg.lstsq(left, right, rcond=None)[0]
        return shifts


def free_constants(machine: Machine) -> tuple[str, ...]:
    """Names of the constants that measurements may move: none that is documented or zero."""
    return tuple(n for n in FREE if SPREAD[getattr(machine, n).certainty] and machine[n])


def sensitivities(rows: Sequence[Judged], machine: Machine, names: Sequence[str]) -> Sensitivities:
    """Predict rows under a machine, and under machines with one constant changed at a time."""
    base = _log_ratios(rows, machine)
    slopes, column = np.zeros((len(rows), len(names))), 0
    with phase("fitting", lambda: column, len(names), "constants"):
        for column, name in enumerate(names):
            nudged = changed(machine, {name: STEP})
            slopes[:, column] = (_log_ratios(rows, nudged) - base) / STEP
    return Sensitivities(rows, tuple(names), base, slopes)


def fit(rows: Sequence[Judged], machine: Machine) -> Fitted:
    """Fit the free constants of a machine to measurements.

    Args:
        rows: of its chip.
        machine: with the constants as they are known.

    Raises:
        UsageError: if there are no rows, or not all are of its chip.
    """
    rows = [one for one in rows if not one.row.contradicts]
    chips = {one.row.chip for one in rows}
    if not rows or chips != {machine.name}:
        known_chips = ", ".join(sorted(chips)) or "none"
        raise UsageError(
            f"the measurements are of {known_chips}; the constants are of {machine.name}",
            hint="give rows of one chip, none of which contradicts another",
        )
    names = free_constants(machine)
    moved = np.zeros(len(names))
    first = best = _log_ratios(rows, machine)
    for _ in range(ROUNDS):
        now = changed(machine, dict(zip(names, moved, strict=True)))
        slopes = sensitivities(rows, now, names)
        moved, tried = _searched(slopes, machine, moved)
        gained = _size(best) - _size(tried)
        best = tried
        if gained < 1e-3:
            break
    after = changed(machine, dict(zip(names, moved, strict=True)))
    pairs = {n: (machine[n], after[n]) for n, by in zip(names, moved, strict=True) if abs(by) > 1e-3}
    return Fitted(after, pairs, _error(first), _error(best), len(rows))


def changed(machine: Machine, log_changes: Mapping[str, float]) -> Machine:
    """A machine with some constants multiplied by exp(change)."""
    values = {name: machine[name] * exp(by) for name, by in log_changes.items() if by}
    return machine.with_constants(values, "calibrated")


def leave_one_structure_out(
    rows: Sequence[Judged], whole: Sequence[Judged], machine: Machine
) -> dict[str, dict[str, float]]:
    """How far predictions are off for kernels of structures that the constants were not fitted to.

    The slopes are taken once, at the machine given; each structure is then predicted with the constants that
    the others ask for.

    Args:
        rows: that constants may be fitted to, of one chip.
        whole: the kernels that are predicted; structures of a single one as well.
        machine: with the constants as they are known.

    Returns:
        Per structure, and row of it, predicted / measured - 1.
    """
    rows = [one for one in rows if not one.row.contradicts]
    names = free_constants(machine)
    slopes = sensitivities(rows, machine, names)
    result: dict[str, dict[str, float]] = {}
    for structure in dict.fromkeys(one.row.structure for one in whole):
        keep = np.array([one.row.structure != structure for one in rows], np.bool_)
        moved = slopes.change(machine, np.zeros(len(names)), keep)
        other = changed(machine, dict(zip(names, moved, strict=True)))
        own = [one for one in whole if one.row.structure == structure]
        off = np.expm1(_log_ratios(own, other)).tolist()
        result[structure] = {one.row.id: error for one, error in zip(own, off, strict=True)}
    return result


def _searched(slopes: Sensitivities, machine: Machine, moved: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The step that the slopes suggest, or the half or quarter of it that improves most; its predictions."""
    step = slopes.change(machine, moved)
    known = _size(slopes.log_ratio)
    for share in (1.0, 0.5, 0.25):
        tried = moved + share * step
        ratios = _log_ratios(slopes.rows, changed(machine, dict(zip(slopes.names, tried, strict=True))))
        if _size(ratios) < known:
            return tried, ratios
    return moved, slopes.log_ratio


def _log_ratios(rows: Sequence[Judged], machine: Machine) -> np.ndarray:
    return np.array([log(one.predict(machine) / one.measured) for one in rows])


def _size(log_ratio: np.ndarray) -> float:
    """What an outlier does not rule: the mean absolute logarithm, cut off at a factor of two."""
    return float(np.minimum(np.abs(log_ratio), log(2)).mean())


def _error(log_ratio: np.ndarray) -> float:
    return mean(abs(exp(x) - 1) for x in log_ratio.tolist())
