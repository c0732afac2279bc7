"""The same rows in another order on engines that run what they get in order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...place import dependences
from ..declare import Candidate, Subject, plural, transformation
from ..reorder import longest_after, reordered


@transformation(
    "reorder_independent",
    relieves=(),
    title="what everything waits for is issued first",
    what="an engine does work that nothing waits for before work that a long chain waits for",
    why="an engine runs its instructions in order: the chain begins when the rest is done",
    fix="issue the beginning of the longest chain first",
    source="NKI performance guide, order of instructions; trn1 architecture guide, engines",
)
def longest_first(subject: Subject) -> Iterator[Candidate]:
    """All rows by how much of the program depends on them."""
    if len(subject.base) > 1:
        waits, lines = dependences(subject.base), np.asarray(subject.base.line_column)
        each = np.zeros(len(subject.base.lines))
        each[: len(subject.line_spent)] = subject.line_spent[: len(each)]
        after = longest_after(waits, (each / np.maximum(np.bincount(lines, minlength=len(each)), 1))[lines])
        yield Candidate(
            int(lines[after.argmax()]), f"{plural(len(lines), 'row')} stand in an order of their own",
            subject.latency_ns,
            (("the longest chain first", lambda: reordered(subject.base, -after, waits)[0]),),
        )  # fmt: skip
