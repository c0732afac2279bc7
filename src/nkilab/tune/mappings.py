"""Searching how an Einsum is mapped: the choices that its compiler makes by rules, judged as kernels are."""

from __future__ import annotations

from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path

from ..einsum import compile
from ..einsum.compiler import title_of
from ..einsum.emit.nki import NkiPrinter
from ..einsum.plan.knobs import RULES, Knobs
from ..einsum.plan.lower import lower
from ..einsum.search import COLUMNS, GROUP_BLOCKS, SHARES, TRANSFERS
from ..errors import NkilabError, UnsupportedError, UsageError
from ..machine import Machine, machine_named
from ..timing import MODEL_VERSION
from .objective import constants_of, known_goals, outcome_of, pruned, timed
from .outcome import Outcome, Timed
from .space import Point, Space, choices

NAMES = tuple(f.name for f in fields(Knobs))
# What is searched unless a space says otherwise; the first of each is what the rules take.
SPACE = Space(
    (
        choices("group_blocks", GROUP_BLOCKS),
        choices("most_columns", COLUMNS),
        choices("transfer_bytes", TRANSFERS),
        choices("share", SHARES),
    )
)


class MappingObjective:
    """The predicted latency of an Einsum compiled with other choices than those of the rules.

    Args:
        spec: path of the specification, without a mapping of its own.
        sizes: extents of ranks that it leaves open.
        target: chip; trn2 if "".
        goals: names of `objective.GOALS`.

    Raises:
        SpecError: if the specification has no meaning.
        UnsupportedError: if it has a mapping, which decides everything.
    """

    def __init__(
        self, spec: Path, sizes: dict[str, int], target: str = "", goals: tuple[str, ...] = ("latency",)
    ) -> None:
        self.goals = known_goals(goals)
        self.machine: Machine = machine_named(target or "trn2")
        self._rules = compile(spec, sizes=sizes, target=target or "trn2")
        if self._rules.spec.is_mapped:
            raise UnsupportedError(
                f"{spec.name} has a mapping, which decides; the choices of the rules are searched, and a "
                "mapping leaves none",
                hint="leave its mapping out",
            )
        held = (spec.read_text(), sorted(sizes.items()), self._rules.target, MODEL_VERSION)
        self.digest = sha256(repr(held).encode()).hexdigest()[:16]
        self.constants = constants_of(self.machine)
        self.target = self.machine.label
        self._timed: dict[str, Timed] = {}

    @property
    def name(self) -> str:
        """Of the kernel."""
        return self._rules.name

    @property
    def rules_us(self) -> float:
        """The predicted latency of what the rules choose."""
        return self._rules.estimate.latency_us

    def check(self, space: Space) -> None:
        """Refuse a space of other things than the compiler's choices.

        Raises:
            UsageError: if a parameter is none of them.
        """
        for name in space.names:
            if name not in NAMES:
                raise UsageError(
                    f"{name} is no choice of the Einsum compiler; there are {', '.join(NAMES)}",
                    hint="leave --space out to search all of them",
                )

    def evaluate(self, point: Point) -> Outcome:
        """What becomes of a point; kernels that come out the same are timed once."""
        rules = self._rules
        try:
            knobs = Knobs(**{**vars(RULES), **point})
            tree, _ = lower(
                rules.cascade, rules.dtypes, self.machine, rules.name, title_of(rules.cascade), knobs
            )
            source = NkiPrinter(tree).text()
            if source not in self._timed:
                self._timed[source] = timed(replace(rules, source=source, tree=tree).estimate)
        except NkilabError as error:
            return pruned(point, error)
        return outcome_of(point, self.goals, [1.0], [self._timed[source]])

    def under(self, machine: Machine) -> MappingObjective:
        """Refuse other constants.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            "measured points of an Einsum are not read back yet", hint="tune the kernel that it compiles to"
        )
