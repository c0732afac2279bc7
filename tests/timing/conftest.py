"""Every test of this folder runs with plain jobs and with compiled ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ways import WAYS, jobs_run


@pytest.fixture(autouse=True, params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    with jobs_run(request.param):
        yield request.param
