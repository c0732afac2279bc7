"""Searching how an Einsum is mapped: the choices that its compiler makes by rules, judged as kernels are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path

from ..disk import read_text
from ..einsum import compile
from ..einsum.compiler import title_of
from ..einsum.emit.nki import NkiPrinter
from ..einsum.plan.knobs import RULES, Knobs
from ..einsum.plan.lower import lower
from ..einsum.prove import proved
from ..einsum.search import COLUMNS, GROUP_BLOCKS, SHARES, TRANSFERS
from ..errors import NkilabError, UnsupportedError, UsageError
from ..hook import activate
from ..machine import Machine, machine_named
from ..timing import MODEL_VERSION
from .objective import Case, KernelObjective, constants_of, known_goals, pruned
from .outcome import Outcome
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

    Choices that compile to the same kernel are judged once.

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
        self, spec: Path, sizes: Mapping[str, int], target: str = "", goals: Sequence[str] = ("latency",),
    ) -> None:  # fmt: skip
        self.goals = known_goals(goals)
        self._rules = compile(spec, sizes=sizes, target=target or "trn2")
        if self._rules.spec.is_mapped:
            raise UnsupportedError(
                f"{spec.name} has a mapping, which decides; the choices of the rules are searched, and a "
                "mapping leaves none",
                hint="leave its mapping out",
            )
        key = (read_text(spec), sorted(sizes.items()), self._rules.target, MODEL_VERSION)
        self.digest = sha256(repr(key).encode()).hexdigest()[:16]
        self._chip: Machine = machine_named(self._rules.target)
        self.machine = self._chip
        # what choices compile to
        self._sources: dict[Knobs, str] = {}
        # by their text, under the chip's own constants and under those of `machine`
        self._compiled: dict[str, KernelObjective] = {}
        self._kernels: dict[str, KernelObjective] = {}

    @property
    def name(self) -> str:
        """Of the kernel."""
        return self._rules.name

    @property
    def spelling(self) -> str:
        """Of the kernel."""
        return self._rules.dialect

    @property
    def target(self) -> str:
        """The chip, as results call it."""
        return self.machine.label

    @property
    def constants(self) -> str:
        """What names the chip's constants."""
        return constants_of(self.machine)

    def by_rules(self) -> Outcome:
        """What becomes of what the rules choose."""
        return self.evaluate({})

    @staticmethod
    def begins(space: Space) -> Point | None:
        """What the rules choose, as a point of a space; None if it is none."""
        point = {p.name: getattr(RULES, p.name) for p in space.parameters}
        is_there = all(point[p.name] in p.values for p in space.parameters) and space.holds(point)
        return point if is_there else None

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
        """What becomes of a point; what it leaves open the rules choose."""
        try:
            kernel = self._kernel(Knobs(**{**vars(RULES), **point}))
        except (NkilabError, AssertionError) as error:
            # what no nest covers, or what the proof refuses
            return pruned(point, error)
        with activate():
            return replace(kernel.evaluate({}), point=point)

    def _kernel(self, knobs: Knobs) -> KernelObjective:
        """What judges the kernel that some choices compile to."""
        if knobs not in self._sources:
            self._sources[knobs] = self._compile(knobs)
        source = self._sources[knobs]
        if source not in self._kernels:
            self._kernels[source] = self._compiled[source].under(self.machine)
        return self._kernels[source]

    def _compile(self, knobs: Knobs) -> str:
        """The text that some choices compile to, proved."""
        rules = self._rules
        tree, _ = lower(rules.cascade, rules.dtypes, self._chip, rules.name, title_of(rules.cascade), knobs)
        source = NkiPrinter(tree).text()
        if source not in self._compiled:
            proved(tree, rules.cascade, self._chip)
            new_rules = replace(rules, source=source, tree=tree)
            case = Case((), new_rules.specs)
            self._compiled[source] = KernelObjective(new_rules.kernel, [case], self._chip, self.goals)
        return source

    def under(self, machine: Machine) -> MappingObjective:
        """The same with other constants of the chip; what was compiled and traced is not made again."""
        other = copy(self)
        other.machine, other._kernels = machine, {}
        return other
