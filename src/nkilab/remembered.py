"""Results of launches, remembered by the bytes of their arrays: the same launch again is looked up.

Only of launches of which `tapes` knows that nothing else decides them, and only where NKILAB_REMEMBER says
how many megabytes of arrays are kept.
"""

from __future__ import annotations

import atexit
import sys
from collections import Counter, OrderedDict
from functools import cache
from operator import eq
from typing import Any

import numpy as np
from msgspec import Struct

from .argument_checks import megabytes
from .arrays import from_numpy, loses_gradient, origin_of, to_numpy
from .border import BoundCall

# bytes of an array by which it is looked up, before all of them are compared
SAMPLE = 512


class Asked(Struct, frozen=True):
    """A launch to look up."""

    key: tuple[object, ...]  # its tape, and a sample of each array
    arrays: list[np.ndarray]  # those among its arguments
    framework: Any  # of its results


# bytes of the arrays, and results, of launches, those used last at the end
_launches: OrderedDict[tuple[object, ...], tuple[list[bytearray], list[np.ndarray]]] = OrderedDict()
_answers: Counter[bool] = Counter()


def limit() -> int:
    """Bytes that may be kept; 0 where nothing is remembered."""
    return megabytes("NKILAB_REMEMBER", "0", "arrays")


def asked(tape: object, call: BoundCall) -> Asked | None:
    """What to look a launch up by; None where nothing is remembered, or more matters than arrays' bytes."""
    if tape is None or not limit():
        return None
    values = call.arrays.values()
    if not all(type(a) is np.ndarray or (origin_of(a) == "torch" and not loses_gradient(a)) for a in values):
        return None
    arrays = [to_numpy(array) for array in values]
    samples = [array.reshape(-1)[:: 1 + array.nbytes // SAMPLE].tobytes() for array in arrays]
    return Asked((tape, *samples), arrays, call.framework)


def recalled(launch: Asked | None) -> list[Any] | None:
    """The results of a launch as new arrays; None if they are not known."""
    if launch is None:
        return None
    _tell_at_the_end()
    known, results = _launches.get(launch.key, ([], []))
    # a bytearray compares with memory at once: what NumPy makes for it takes as long again
    is_known = bool(results) and all(map(eq, known, map(_bytes_of, launch.arrays)))
    _answers[is_known] += 1
    if not is_known:
        return None
    _launches.move_to_end(launch.key)
    return [from_numpy(array.copy(), launch.framework) for array in results]


def remember(launch: Asked | None, results: Any) -> None:
    """Keep what a kernel returned, an array or several, in place of what was asked for longest ago."""
    if launch is None:
        return
    returned = results if isinstance(results, list | tuple) else [results]
    known = [bytearray(_bytes_of(array)) for array in launch.arrays]
    _launches[launch.key] = known, [to_numpy(array).copy() for array in returned]
    kept, most = sum(map(_size, _launches.values())), limit()
    while kept > most:
        kept -= _size(_launches.popitem(last=False)[1])


def forget_launches() -> None:
    """Have every launch computed again."""
    _launches.clear()
    _answers.clear()


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _size(launch: tuple[list[bytearray], list[np.ndarray]]) -> int:
    return sum(map(len, launch[0])) + sum(result.nbytes for result in launch[1])


@cache
def _tell_at_the_end() -> None:
    atexit.register(_tell)


def _tell() -> None:
    if _answers:
        print(f"nkilab: {_answers[True]} of {_answers.total()} launches were remembered", file=sys.stderr)
