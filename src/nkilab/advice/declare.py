"""How a transformation is written down: a rule, what finds it, and what edits a program.

`transformation(...)` stands above the function that looks through a `Subject` and yields candidates.
Explanations, pages, SARIF and tests follow from the declaration, as for rules of the checks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Unpack

import numpy as np
from msgspec import Struct

from ..checks.declare import Facts, Rule, rule
from ..checks.finding import Site
from ..place.slots import ENGINES
from ..trace.program import Program
from .subject import Subject as Subject

# makes the changed program, or says how long it takes where only costs or waits change
Edit = Callable[[], "Program | float"]
Detector = Callable[[Subject], Iterator["Candidate"]]


class Candidate(Struct, frozen=True):
    """Something that may save time, not tried yet.

    Args:
        line: number of the line, in the program's table.
        message: what is the matter.
        weight_ns: the most that it can save, before anything is simulated.
        edits: ways to do it by what each does, the likeliest first; the best is kept.
        rounds: whether results change, by rounding alone.
        since_ns: the latency that it begins with, where each load and each sum has a tile of its own first;
            0 for that of the subject.
    """

    line: int
    message: str
    weight_ns: float
    edits: tuple[tuple[str, Edit], ...]
    rounds: bool = False
    since_ns: float = 0.0


class Transformation(Struct, frozen=True):
    """A change of a kernel that nkilab can advise.

    Args:
        rule: what, why and how, with a kernel that needs it and one that does not.
        find: what looks for it.
        relieves: the engines, and "dma", that have less to do with it; the others are as busy as before.
        by_formula: whether an edited program only lasts as long as the changed kernel: what goes is part of
            another instruction, or of an argument, whose formula gives the same values.
        narrows: whether values have fewer bits afterwards, which the results may be too narrow for.
        adds_cores: whether it takes more cores, not less of one: it stands behind what makes a core faster,
            and by itself.
    """

    rule: Rule
    find: Detector
    relieves: frozenset[str]
    by_formula: bool
    narrows: bool
    adds_cores: bool


# engines that work element by element, and take over from each other
POINTWISE = ENGINES[1:4]
CATALOGUE: dict[str, Transformation] = {}
# What experts do first of changes that gain as much: what need not be done goes, then one instruction does
# what several did; then tiles get another size, loops another order, and engines other work.
_FIRST = (
    "dead_work", "hoist_loads", "hoist_transposes", "keep_on_chip", "avoid_spill", "fuse_activation",
    "fuse_alu", "fuse_reduction", "use_statistics", "use_scan", "fill_partitions", "block_mn",
    "widen_moving", "block_k", "bigger_transfers", "interchange_loops", "buffers", "fuse_loops",
    "finer_tiles", "software_pipeline", "split_precision",
)  # fmt: skip


def transformation(
    id: str, relieves: Sequence[str] = ENGINES, *, moves_rows: bool = True, by_formula: bool = False,
    narrows: bool = False, adds_cores: bool = False, **facts: Unpack[Facts],
) -> Callable[[Detector], Detector]:  # fmt: skip
    """Declare a transformation, with what a rule of the checks says; the function below finds it.

    Where it moves rows it looks only at programs whose rows may move; others change costs and waits alone.
    """
    own = rule(id, "advice", "advice", **facts)

    def register(find: Detector) -> Detector:
        def candidates(subject: Subject) -> Iterator[Candidate]:
            return find(subject) if subject.may_be_edited or not moves_rows else iter(())

        CATALOGUE[id] = Transformation(own, candidates, frozenset(relieves), by_formula, narrows, adds_cores)
        return find

    return register


def of_rows(
    subject: Subject, rows: Sequence[int] | np.ndarray, message: str, *edits: tuple[str, Edit],
    rounds: bool = False,
) -> Iterator[Candidate]:  # fmt: skip
    """One candidate of some rows of `base`, at the line of the first; none where there are no rows."""
    if len(rows):
        weight = subject.weight(np.asarray(rows, np.int64))
        yield Candidate(int(subject.base.line_column[rows[0]]), message, weight, edits, rounds)


def site_of(program: Program, line: int) -> Site:
    """A line of a program."""
    return Site(*program.lines[line])


def place_of(id: str) -> int:
    """The place of a transformation in the order in which experts make them."""
    return _FIRST.index(id) if id in _FIRST else len(_FIRST)


def plural(count: int, word: str, verb: str = "") -> str:
    """ "1 load", "2 loads"; "1 load waits", "2 loads wait"; "1 row multiplies"."""
    if count == 1:
        verb = re.sub("y$", "ie", verb) + "s" * bool(verb)
    return " ".join(filter(None, (f"{count} {word}{'s' * (count != 1)}", verb)))
