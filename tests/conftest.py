"""Fixtures that every folder of tests shares."""

from __future__ import annotations

import pytest
from hypothesis import settings

from nkilab.machine import MACHINES, Machine
from nkilab.trace.session import Session
from tests.uses import open_session

# one seed for all: a property that fails fails again
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.load_profile("fixed")


@pytest.fixture(params=MACHINES.values(), ids=list(MACHINES))
def machine(request: pytest.FixtureRequest) -> Machine:
    """Every chip in turn."""
    return request.param


@pytest.fixture
def session() -> Session:
    """A launch on trn2 that computes; nothing is in it."""
    return open_session(MACHINES["trn2"])
