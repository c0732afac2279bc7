"""Kernels of the ledger with the names that they import served."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from nkilab._lazy import part
from nkilab.hook import activate


@pytest.fixture
def served() -> Iterator[None]:
    with activate():
        yield


def kernel(name: str):
    """ "module.function" of `ledger.kernels`."""
    module, _, function = name.rpartition(".")
    return getattr(part(f"ledger.kernels.{module}"), function)


def random(*shape: int, scale: float = 1.0) -> np.ndarray:
    # a seed of its own per shape, so that no test depends on another
    return np.random.default_rng(shape).standard_normal(shape, dtype=np.float32) * np.float32(scale)


def off(result: np.ndarray, wanted: np.ndarray) -> float:
    """The largest error relative to the largest value."""
    return float(np.abs(np.asarray(result, np.float64) - wanted).max() / np.abs(wanted).max())
