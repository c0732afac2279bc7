"""Edited programs computed on numbers: whether their results are those of the kernel as it is written."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..errors import NkilabError
from ..tapes import computed
from ..tiles.convert import widen
from ..tiles.tile import HBM, SEQUENCER, Storage
from ..trace.program import Program
from ..trace.session import RunNeeded

# By how much results may differ, as a share of the largest: where a change rounds otherwise by intent, where
# results have 8 or 11 significant bits, and where sums of float32 are taken in another order.
ROUNDED, NARROW, REORDERED = 0.02, 2.0**-7, 1e-5
# Elements that the rows of a program may work on, so that computing it takes a fraction of a second.
MOST_ELEMENTS = 1 << 23
Results = Mapping[int, np.ndarray]


def results_of(program: Program) -> Results | None:
    """What leaves a program, computed on random numbers; None where that takes long or means nothing.

    Addresses that only the run knows, and inputs of whole numbers, which stand for places, are not made up.
    """
    forms, records = program.forms, program.storages
    work = np.array([form.largest for form in forms], np.int64)[program.form_column].sum()
    if work > MOST_ELEMENTS or program.addresses or program.met or any(form.is_indirect for form in forms):
        return None
    if any(r.memory == SEQUENCER or (r.scope == "input" and not r.dtype.is_float) for r in records):
        return None
    try:
        every = computed(program, _random)
    except (NkilabError, RunNeeded):
        # refused, or data say what a row leaves written
        return None
    leaving = {number for number, record in enumerate(records) if record.memory == HBM
               and record.scope in ("shared", "output", "input")}  # fmt: skip
    return {number: widen(data, records[number].dtype) for number, data in every.items() if number in leaving}


def _random(storage: Storage) -> np.ndarray:
    rng = np.random.default_rng(storage.number)
    return rng.standard_normal(storage.shape, dtype=np.float32).astype(storage.dtype.storage)


def are_equal(one: Results, other: Results, program: Program, *, rounds: bool) -> bool:
    """Whether results of an edited program are those of `program`, as near as their types let them be."""
    for number, expected in one.items():
        is_narrow = program.storages[number].dtype.itemsize < 4
        most = ROUNDED if rounds else NARROW if is_narrow else REORDERED
        if number not in other or difference(expected, other[number]) > most:
            return False
    return True


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """The most that two arrays differ by, as a share of the largest; two that are no numbers are equal."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return np.inf
    if np.array_equal(one, other):
        return 0.0
    # what no instruction wrote may be a signalling NaN
    with np.errstate(invalid="ignore", over="ignore"):
        wide, others = one.astype(np.float64), other.astype(np.float64)
        same = (wide == others) | (np.isnan(wide) & np.isnan(others))
        apart = np.abs(np.subtract(wide, others, out=np.zeros_like(wide), where=~same))
        scale = np.max(np.abs(wide), initial=np.finfo(np.float64).tiny, where=np.isfinite(wide))
        most = float(np.max(apart, initial=0.0) / scale)
    return np.inf if np.isnan(most) else most
