"""The same rows in another order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...place import dependences
from ...trace.program import Program
from ..declare import Candidate, Edit, Subject, plural, transformation
from ..loops import Loop
from ..reorder import longest_after, reordered

# assumed, to tell long chains of rows from short ones: how long a transfer takes before its first byte
_TRANSFER_NS = 2000.0


def _ordered(subject: Subject, key: np.ndarray) -> Edit:
    return lambda: reordered(subject.base, key)[0]


def _waiting_ns(subject: Subject) -> float:
    """Nanoseconds in which the busiest engine waits."""
    return subject.most_ns(frozenset())


def _bodies(subject: Subject) -> Iterator[Loop]:
    """Loops whose iterations work on several engines."""
    for loop in subject.loops[:6]:
        if len(set(subject.slots.engine[loop.rows()[0]].tolist())) > 1 and loop.length > 2:
            yield loop


@transformation(
    "reorder_independent",
    title="what others wait for longest is issued first",
    what="what nothing waits for long is loaded or computed before what begins a long chain of work",
    why="of transfers and instructions that are ready, those that stand first in the text go first",
    fix="within the loop, move what begins the longest chain to the front",
    source="NKI performance guide, engine parallelism",
)
def other_order(subject: Subject) -> Iterator[Candidate]:
    """The lines of a loop's body in the order of the longest chains that begin with them."""
    for loop in _bodies(subject):
        lasting = _lasting_ns(subject.base)
        after = longest_after(dependences(subject.base), lasting) - lasting
        rows = loop.rows()
        chains = (after[rows] - after[rows].min(axis=1, keepdims=True)).mean(axis=0)
        order = np.argsort(-chains, kind="stable")
        if (order == np.arange(loop.length)).all():
            continue
        key = np.arange(len(subject.base), dtype=np.float64)
        key[rows[:, order]] = rows
        yield Candidate(
            loop.line, f"{plural(loop.length, 'instruction', 'stand')} in another order than their "
                       f"results are needed",
            0.6 * _waiting_ns(subject), (("the longest chain first", _ordered(subject, key)),),
        )  # fmt: skip
        return


def _lasting_ns(program: Program) -> np.ndarray:
    """Per row about how long it lasts."""
    rate = program.machine["dma_engines"] * program.machine["dma_bytes_per_ns"]
    own = [
        sum(s.busy_ns + s.latency_ns for s in form.steps)
        + sum(_TRANSFER_NS + s.moved_bytes / rate for s in form.steps if s.engine == "dma")
        for form in program.forms
    ]
    lasting: np.ndarray = np.array(own)[program.form_column]
    return lasting


@transformation(
    "fuse_loops",
    title="a loop uses what it has just made",
    what="one loop makes tiles and a later loop of as many iterations uses them",
    why="all the tiles between the loops stay alive, and the engines of the second loop wait for the first",
    fix="make one loop of the two that follow each other, so that each tile is used as soon as it is made",
    source="NKI performance guide, operator fusion",
)
def one_loop(subject: Subject) -> Iterator[Candidate]:
    """Pairs of loops, iteration by iteration one behind the other."""
    loops = sorted(subject.loops[:12], key=lambda own: int(own.start[0]))
    for one, other in ((a, b) for a in loops for b in loops if len(a.start) == len(b.start)):
        first, second = one.rows(), other.rows()
        if first.max() >= second.min() or not _feeds(subject, first, second):
            continue
        key = np.arange(len(subject.base), dtype=np.float64)
        key[second] = first[:, -1:] + (1 + np.arange(other.length)) / (other.length + 2)
        yield Candidate(
            other.line, f"{plural(len(first), 'iteration', 'use')} what a loop before them made",
            0.4 * min(_waiting_ns(subject), subject.weight(second.ravel())),
            (("both loops as one", _ordered(subject, key)),),
        )  # fmt: skip
        return


def _feeds(subject: Subject, first: np.ndarray, second: np.ndarray) -> bool:
    """Whether most iterations of a loop read on chip what the same iteration of an earlier one wrote."""
    slots, count = subject.slots, 0
    on_chip = ~slots.kinds.lie_in("hbm")[slots.storage]
    for producing, used in zip(first[:8], second[:8], strict=True):
        written = slots.storage[np.isin(slots.row, producing) & slots.is_written & on_chip]
        count += bool(np.isin(slots.storage[np.isin(slots.row, used) & slots.is_read], written).any())
    return 2 * count > len(first[:8])
