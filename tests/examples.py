"""How many examples random tests draw: few by default, NKILAB_FUZZ of them on demand."""

from __future__ import annotations

import os


def examples(default: int) -> int:
    """Examples to draw.

    Args:
        default: where NKILAB_FUZZ is not set.
    """
    return int(os.environ.get("NKILAB_FUZZ", default))
