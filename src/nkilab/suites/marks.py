"""What the plugins of this folder tell each other."""

from __future__ import annotations

from typing import Any

import pytest

# Of a report: the test failed because it ran out of memory.
OUT_OF_MEMORY = ("nkilab", "out of memory")
# Of a report: the most memory that its process had resident meanwhile, looked at now and then.
RESIDENT_GIB = "nkilab resident GiB"
# Per test that ran again, alone: its line of the outcomes.
AGAIN = pytest.StashKey[dict[str, dict[str, Any]]]()
