"""Kernels that need a change, in either spelling."""

from __future__ import annotations

from .dst_first import DST_FIRST
from .value_returning import VALUE_RETURNING

CASES = {**DST_FIRST, **VALUE_RETURNING}

# changes of which the text has more ways than the simulated edit: they may gain more than it did
SEVERAL_WAYS = {"interchange_loops", "hoist_loads"}
