"""How many examples random tests draw: a sixth, all with -m corpus, NKILAB_FUZZ of them on demand."""

from __future__ import annotations

import os

from hypothesis import settings

# of a hundred; a profile for each is loaded by conftest.py
ALL, DRAWN = 100, 16


def examples(count: int) -> int:
    """Examples to draw.

    Args:
        count: where all are asked for and NKILAB_FUZZ is not set.
    """
    share = settings.default.max_examples if settings.default else ALL
    return int(os.environ.get("NKILAB_FUZZ", -(-count * share // ALL)))
