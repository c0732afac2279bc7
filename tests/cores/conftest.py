"""What holds after every test of this folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """No program of a launch outlives it."""
    yield
    assert not [t.name for t in threading.enumerate() if t.name.startswith("nkilab program")]
