"""A law over the kernels of all tests: a launch that is replayed leaves what the first one left.

    pytest -p tests.replay_law tests/FOLDER

Each launch on data that a tape may repeat is followed by five more, as if none had been: a first one of which
the kernel runs on data, two on other data, the same elements in the reverse order, one that is replayed, and
a first one that may be traced from shapes. The last two are held against the first: the bits of their
results, which of their elements were written, and what the user was told.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from nkilab import launches
from nkilab.arrays import to_numpy
from nkilab.border import BoundCall, map_arrays
from nkilab.dialects.kernel import Kernel
from nkilab.errors import NkilabError
from nkilab.tapes import forget_tapes
from nkilab.tiles.tile import View
from nkilab.trace.session import Session
from nkilab.trace.source import _IS_PASSED_OVER

_on_data = launches._on_data
_output_array = launches.output_array
# lines of this file are none of a user's
_IS_PASSED_OVER[__file__] = True
replayed = 0
_shadow_bits: list[bytes] = []


def _noting(session: Session, kernel: Kernel, tensor: View, framework: Any) -> Any:
    array = _output_array(session, kernel, tensor, framework)
    if session.has_data:
        missing = tensor.storage.written.missing(tensor)
        # a tape whose calls were written down returns what was written whole, and does not come by here
        _shadow_bits.extend([missing.tobytes()] if missing.any() else [])
    return array


def _left(launch: Callable[[], launches.Launched]) -> tuple[list[bytes], list[bytes], list[tuple[Any, ...]]]:
    """Bits of the results, those that say what was not written, and the warnings with their lines."""
    results: list[bytes] = []
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        _shadow_bits.clear()
        map_arrays(launch().results, "", lambda value, _: results.append(to_numpy(value).tobytes()))
    return results, [*_shadow_bits], [(str(own.message), own.filename, own.lineno) for own in heard]


def _reversed(value: Any, _: str) -> Any:
    if not isinstance(value, np.ndarray) or type(value) is not np.ndarray:
        return value
    return np.ascontiguousarray(value.reshape(-1)[::-1]).reshape(value.shape)


def _held_to_the_law(kernel: Any, call: Any, *others: Any) -> launches.Launched:
    global replayed
    launched = _on_data(kernel, call, *others)
    tape = launches.tape_of(kernel, BoundCall.of(kernel, call), others[1])
    # what is looked up is neither first nor replayed
    if tape is None or tape.launched is None or os.environ.get("NKILAB_REMEMBER"):
        return launched
    forget_tapes()
    args, kwargs = call
    other = (
        tuple(map_arrays(a, "", _reversed) for a in args),
        {name: map_arrays(a, "", _reversed) for name, a in kwargs.items()},
    )
    with pytest.MonkeyPatch.context() as changes:
        changes.setattr(launches, "has_uniform_loops", lambda function: False)
        first = _left(lambda: _on_data(kernel, call, *others))
    for _ in range(2):
        with suppress(NkilabError):
            # data that the kernel may not take
            _left(lambda: _on_data(kernel, other, *others))
    again = _left(lambda: _on_data(kernel, call, *others))
    assert again == first, f"{kernel.name}: replayed, it leaves something else"
    if launches.has_uniform_loops(kernel.function):
        forget_tapes()
        traced = _left(lambda: _on_data(kernel, call, *others))
        assert traced == first, f"{kernel.name}: traced from shapes, it leaves something else"
    replayed += 1
    return launched


@pytest.fixture(autouse=True)
def _law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "_on_data", _held_to_the_law)
    monkeypatch.setattr(launches, "output_array", _noting)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"{replayed} launches were replayed and held against the first")
