"""A partial mapping as the planner follows it: plans under what is given, the first that keeps all of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

from ...errors import NkilabError, SpecError, UnsupportedError
from ...machine import Machine
from ..language.ast import Cascade
from ..language.spec import Spec
from ..plan.context import Context, is_fault, reason
from ..plan.given import Given, Part
from ..plan.knobs import RULES, Knobs
from ..plan.lower import lower
from ..prove import proved
from ..room import NoRoomError
from ..sets import PlaceError
from ..tree.nodes import Kernel
from ..written.ranks import Ranks
from .followed import Entry, Followed, parts_of
from .nests import is_instructions, is_whole, scheduled

# choices that are tried where the rules do not keep what is given, for how many ways to ask
MOST_PLANS, MOST_SEARCHED = 12, 2
FAILURES = (NkilabError, AssertionError)


@dataclass(frozen=True)
class Guided:
    """A plan that keeps what is given."""

    kernel: Kernel  # its tree
    ctx: Context  # the plan
    proofs: tuple[str, ...]  # what was proved of it
    given: Given  # what the plan was asked for
    knobs: Knobs  # its choices
    guide: Guide  # who asked
    changes: tuple[str, ...] = ()  # what it does in another way than the words say


class Guide:
    """Plans a cascade under a mapping.

    Args:
        spec: what is given; all extents are known.
        cascade: what is compiled.
    """

    def __init__(self, spec: Spec, cascade: Cascade, machine: Machine, title: str) -> None:
        self.spec, self.cascade, self.machine, self.title = spec, cascade, machine, title
        self.broken: tuple[Entry, ...] = ()
        self.faults: list[str] = []
        self.problem = ""  # of the last plan that could not be made

    def plans(self) -> Iterator[Guided]:
        """Plans that keep all that is given, those first that are like the plan of nothing given.

        Where there is none, `broken` has the entries that the nearest plan does not keep, and `faults` why
        plans that might keep them could not be made.
        """
        if is_instructions(self.cascade):
            yield from self.in_loops()
        if is_whole(self.spec):
            return
        free = self.attempt(Given(is_watched=True), RULES)
        if free is not None:
            yield free
            return
        held = list(variants(self.spec, self.cascade, int(self.machine["partitions"])))
        is_found = False
        for given in held:
            found = self.first(given, (RULES, replace(RULES, is_fused=False)))
            if found is not None:
                is_found = True
                yield found
        if is_found:
            return
        for given in held[:MOST_SEARCHED]:
            found = self.first(given, self.choices(given))
            if found is not None:
                yield found
                return

    def in_loops(self) -> Iterator[Guided]:
        """The plan of a cascade that names every instruction, in the loops of its mapping."""
        held = scheduled(self.spec, self.cascade, given_of(self.spec, self.cascade))
        guide = Guide(held.spec, held.cascade, self.machine, self.title)
        found = guide.attempt(held.given, RULES)
        self.broken, self.faults, self.problem = guide.broken, guide.faults, guide.problem
        if found is not None:
            yield replace(found, changes=held.changes)

    def choices(self, given: Given) -> Iterator[Knobs]:
        """Another option at one choice of the rules."""
        try:
            _, ctx = self.built(given, RULES)
        except FAILURES:
            return
        others = (knobs for decision in ctx.decisions for _, knobs in decision.others(2))
        yield from islice(others, MOST_PLANS)

    def built(self, given: Given, knobs: Knobs) -> tuple[Kernel, Context]:
        """A tree and its plan."""
        name, types = self.spec.kernel_name, self.spec.dtypes
        return lower(self.cascade, types, self.machine, name, self.title, knobs, given)

    def first(self, given: Given, choices: Iterable[Knobs]) -> Guided | None:
        """The plan of the first choices that keep what is given; None if none do."""
        tried = (self.attempt(given, knobs) for knobs in choices)
        return next((found for found in tried if found is not None), None)

    def attempt(self, given: Given, knobs: Knobs) -> Guided | None:
        """A plan, with less of SBUF filled where its tiles do not fit; None if none keeps what is given."""
        try:
            return self.fitting(given, knobs)
        except FAILURES as error:
            if is_of_cascade(error):
                raise
            # what is given may ask for what no nest covers; what ends otherwise is a fault of ours
            self.faults += [reason(error)] if is_fault(error) and not isinstance(error, PlaceError) else []
            self.problem = reason(error)
            return None

    def fitting(self, given: Given, knobs: Knobs) -> Guided | None:
        """The plan of the first share of SBUF whose tiles fit; None if those of none do."""
        for less in knobs.shares():
            with suppress(NoRoomError):
                kernel, ctx = self.kept(given, less)
                return Guided(kernel, ctx, proved(kernel, self.cascade, self.machine), given, less, self)
        return None

    def kept(self, given: Given, knobs: Knobs) -> tuple[Kernel, Context]:
        """A tree and its plan.

        Raises:
            UnsupportedError: if it does not keep what is given.
        """
        kernel, ctx = self.built(given, knobs)
        broken = tuple(Followed(self.spec, self.cascade, ctx).broken())
        if broken:
            if not self.broken or len(broken) < len(self.broken):
                self.broken = broken
            raise UnsupportedError(f"the plan does not keep {broken[0].node.path}")
        return kernel, ctx


def is_of_cascade(error: Exception) -> bool:
    """Whether an error is one of the cascade, whatever the mapping is."""
    return isinstance(error, SpecError) and error.called.startswith("einsum.")


def variants(spec: Spec, cascade: Cascade, partitions: int) -> Iterator[Given]:
    """What to ask for: what is given, then loops around groups too, then Einsums in nests of their own."""
    given = given_of(spec, cascade)
    yield given
    loops = _loops(spec, cascade, partitions)
    alone = frozenset({*given.parts, *given.orders, *given.sides, *given.instructions})
    if loops:
        yield replace(given, tiles=loops)
    if alone:
        yield replace(given, alone=alone)
        if loops:
            yield replace(given, tiles=loops, alone=alone)


def given_of(spec: Spec, cascade: Cascade) -> Given:
    """What a specification fixes of a plan."""
    ranks = Ranks(spec)
    einsums = {name: cascade.einsum(name) for name in cascade.written}

    def parts(einsum: str, names: tuple[str, ...]) -> tuple[Part, ...]:
        return tuple(parts_of(ranks, einsum, names, cascade))

    shapes = {
        e: {
            r.lower(): tuple(n for n in s if n < cascade.extent(r.lower(), einsums[e]))
            for r, s in held.items() if r.lower() in einsums[e].variables
        }
        for e, held in spec.partitioning.items()
    }  # fmt: skip
    sides: dict[str, str] = {}
    for einsum, (space, _) in spec.spacetime.items():
        # a product has what it sums over on the partitions of its operands
        one = einsums[einsum]
        lanes = one.output.variables if one.is_contraction else one.variables
        held = [p.variable for p in parts(einsum, space) if p.variable in lanes]
        sides |= {einsum: held[0]} if held else {}
    kept, bound = set(), {}
    for (tensor, einsum), placed in spec.placements.items():
        if placed.component == "HBM" or tensor not in einsums:
            continue
        kept.add(tensor)
        bound[tensor] = frozenset(p.variable for p in parts(einsum, placed.unbound))
        held = [p.variable for p in parts(einsum, placed.outer) if p.high > p.low]
        if tensor == einsum and placed.outer:
            sides.setdefault(tensor, (*held, "")[0])
    orders = {e: parts(e, o) for e, o in spec.loop_order.items()}
    plain = {v for held in shapes.values() for v in held} | {p.variable for o in orders.values() for p in o}
    plain |= set(sides.values()) | {
        ranks.digit(e, r).base.lower() for f in spec.fusion for g in f.groups for e, r in g
    }
    instructions = {e: held.instruction for e, held in spec.engines.items()}
    return Given(
        shapes, orders, sides, instructions, frozenset(kept), bound, plain=frozenset(plain), is_watched=True
    )


def _loops(spec: Spec, cascade: Cascade, partitions: int) -> Mapping[str, Mapping[str, int]]:
    """Per Einsum, loops that a group may have around it: over shared ranks, and over parts of ranks."""
    ranks, found = Ranks(spec), {}  # type: Ranks, dict[str, dict[str, int]]
    for einsum, rank in (m for f in spec.fusion for g in f.groups for m in g):
        digit = ranks.digit(einsum, rank)
        is_part = ranks.split(einsum, rank) is not None
        found.setdefault(einsum, {})[digit.base.lower()] = digit.stride if is_part else 0
    splits = (
        (e, r.lower(), s) for e in cascade.einsums for r, s in spec.partitioning.get(e.name, {}).items()
    )
    for held, variable, shapes in splits:
        if variable not in held.variables:
            continue
        whole = cascade.extent(variable, held)
        block = next((s for s in shapes if s <= partitions or whole % s == 0), 0)
        if block:
            found.setdefault(held.name, {}).setdefault(variable, block)
    return found
