"""Hearing the warnings of a block."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from nkilab.errors import NkilabWarning


@contextmanager
def heard(where: str = "") -> Iterator[list[str]]:
    """The texts of the warnings raised within, all of which are ours, and told at a file if one is given."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    assert all(w.category is NkilabWarning for w in caught)
    assert not where or all(w.filename == where for w in caught)
    texts.extend(str(w.message) for w in caught)
