"""A law over the kernels of all tests: a launch that is replayed leaves the bits that the first one left.

    pytest -p tests.replay_law tests/FOLDER

Each launch on data is followed by three more, the first two of which write its tape on other data, the same
elements in the reverse order. What the last one leaves is held against the first.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from nkilab import launches
from nkilab.arrays import to_numpy
from nkilab.border import map_arrays
from nkilab.errors import NkilabError
from nkilab.tapes import forget_tapes
from nkilab.trace.source import _IS_PASSED_OVER

_on_data = launches._on_data
# lines of this file are none of a user's
_IS_PASSED_OVER[__file__] = True
replayed = 0


def _bits(launched: launches.Launched) -> list[bytes]:
    results: list[bytes] = []
    map_arrays(launched.results, "", lambda value, _: results.append(to_numpy(value).tobytes()))
    return results


def _reversed(value: Any, _: str) -> Any:
    if not isinstance(value, np.ndarray) or type(value) is not np.ndarray:
        return value
    return np.ascontiguousarray(value.reshape(-1)[::-1]).reshape(value.shape)


def _held_to_the_law(kernel: Any, call: Any, *others: Any) -> launches.Launched:
    global replayed
    first = _on_data(kernel, call, *others)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tape = launches.tape_of(kernel, call, others[1])
        if tape is None or tape.launched is None:
            return first
        args, kwargs = call
        other = (
            tuple(map_arrays(a, "", _reversed) for a in args),
            {name: map_arrays(a, "", _reversed) for name, a in kwargs.items()},
        )
        try:
            _on_data(kernel, other, *others)
            _on_data(kernel, other, *others)
        except NkilabError:
            # data that the kernel does not take
            forget_tapes()
            return first
        again = _on_data(kernel, call, *others)
    replayed += 1
    assert _bits(again) == _bits(first), f"{kernel.name}: replayed, it leaves other bits"
    return first


@pytest.fixture(autouse=True)
def _law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "_on_data", _held_to_the_law)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"{replayed} launches were replayed and held against the first")
