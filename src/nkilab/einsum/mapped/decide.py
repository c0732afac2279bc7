"""What is decided about the Einsums of a mapped specification before anything is built."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...errors import UnsupportedError
from ..language.ast import Einsum
from ..language.spec import Placement, Spec
from ..written.ranks import Group, Ranks, merged


@dataclass
class Plan:
    """What is decided about one Einsum."""

    einsum: Einsum  # the Einsum
    instruction: str  # that computes it
    placed: Placement  # where its result lies
    loops: list[Group]  # around its statement, the outermost first
    consumed: set[str]  # ranks that its statement covers at once
    # ranks whose loops it left, because nothing it reads depends on them
    dropped: list[str] = field(default_factory=list)
    is_skipped: bool = False  # whether another statement does its work
    # whether a loop that it left stands around one that it stays in: it has loops of its own
    is_apart: bool = False

    @property
    def name(self) -> str:
        """Of the Einsum."""
        return self.einsum.name

    @property
    def source(self) -> str:
        """The first tensor that it reads."""
        return self.einsum.reads[0]

    @property
    def columns(self) -> list[str]:
        """Ranks along the columns of its result that a statement covers."""
        return [r for r in self.placed.inner if r in self.consumed]


class Decisions:
    """Loops, transfers and types, better than written where nothing forbids it.

    Args:
        dtypes: of its tensors, which sums may widen.
    """

    def __init__(self, spec: Spec, ranks: Ranks, dtypes: dict[str, str]) -> None:
        self.spec, self.ranks, self.dtypes = spec, ranks, dtypes
        self.notes: list[str] = []
        self.sequential: set[tuple[str, str]] = set()
        self.einsums = {e.name: e for e in spec.cascade.einsums}
        for name in self.einsums:
            if name not in spec.engines or name not in spec.loop_order:
                raise UnsupportedError(
                    f"{name} has no engine or no loop order while others have; that is not completed",
                    hint=f"give {name} both, or leave mapping and binding out",
                )
        self.plans = {e.name: self.planned(e) for e in spec.cascade.einsums}
        self.drop_broadcast_sources()
        self.mark_sums()

    def planned(self, einsum: Einsum) -> Plan:
        name, bound = einsum.name, self.spec.engines[einsum.name]
        loops = list(self.ranks.loops(name))
        looped = {r for g in loops for e, r in g.members if e == name}
        placed = self.ranks.placement(name, name)
        plan = Plan(einsum, bound.instruction, placed, loops, {r for r in bound.ranks if r not in looped})
        before = tuple(loops)
        # what lies in HBM is written for every value of every rank
        for rank in invariant(self.spec, einsum) if placed.component != "HBM" else ():
            group = self.ranks.group(name, rank)
            if group in plan.loops:
                assert group is not None
                plan.loops.remove(group)
                plan.dropped.append(rank)
        plan.is_apart = before[: len(plan.loops)] != tuple(plan.loops)
        if plan.dropped:
            self.notes.append(
                f"changed: {name} does not depend on {', '.join(plan.dropped)} and is done once"
            )
        if plan.instruction in ("Load", "Store"):
            self.merge_rows(plan)
        return plan

    def merge_rows(self, plan: Plan) -> None:
        """Take the innermost loops of a transfer into it where memory goes on on both sides."""
        name, joined = plan.name, []
        while plan.loops and len(plan.loops[-1].members) == 1:
            (_, rank), *_ = plan.loops[-1].members
            if self.ranks.edge_of(name, rank) or not all(
                self.goes_on(t, name, rank, plan.consumed) for t in (plan.source, name)
            ):
                break
            plan.consumed.add(rank)
            plan.loops.pop()
            joined.append(rank)
        if joined:
            self.notes.append(
                f"changed: the transfer of {name} takes {', '.join(joined)} too, so that its rows are longer"
            )

    def goes_on(self, tensor: str, einsum: str, rank: str, consumed: set[str]) -> bool:
        """Whether a rank stands right before the consumed ranks along the columns of a tensor."""
        placed = self.ranks.placement(tensor, einsum)
        names = [
            r
            for r in (placed.ranks if placed.component == "HBM" else placed.inner)
            if self.ranks.size(einsum, r).value != 1
        ]
        if rank not in names:
            return False
        behind = names[names.index(rank) + 1 :]
        return bool(behind) and all(r in consumed for r in behind)

    def drop_broadcast_sources(self) -> None:
        """A broadcast of what was just loaded is a transfer that repeats the row."""
        for name, plan in self.plans.items():
            if plan.instruction != "BroadcastTo":
                continue
            source, maker = plan.source, self.plans.get(plan.source)
            readers = [e.name for e in self.einsums.values() if source in e.reads]
            if maker is None or maker.instruction != "Load" or readers != [name]:
                raise UnsupportedError(f"{name} broadcasts {source}, which is not loaded for it alone")
            maker.is_skipped = True
            self.merge_broadcast(plan)
            self.notes.append(
                f"changed: {name} is loaded to every partition from {maker.source}, without {source}"
            )

    def merge_broadcast(self, plan: Plan) -> None:
        name, placed = plan.name, plan.placed
        while plan.loops and len(plan.loops[-1].members) == 1:
            (_, rank), *_ = plan.loops[-1].members
            if rank not in placed.inner:
                break
            own = self.ranks.digit(name, rank)
            inner = self.ranks.digits(name, placed.inner)
            finer = [d for d in inner if d.base == own.base and d.stride < own.stride]
            if not own.is_unit and (not finer or len(merged([own, *finer])) != 1):
                break
            plan.consumed.add(rank)
            plan.loops.pop()

    def mark_sums(self) -> None:
        """Sums are float32 where they grow; loops that carry them run in order."""
        for name, plan in self.plans.items():
            if plan.instruction in ("LoopReduce", "TensorReduce"):
                self.mark_sum(plan)
            elif plan.instruction == "MatVec":
                self.notes.append(
                    f"changed: the first product of {name} overwrites PSUM; nothing relies on zeros set there"
                )

    def mark_sum(self, plan: Plan) -> None:
        name = plan.name
        if self.dtypes[name] != "float32":
            self.notes.append(f"changed: {name} is summed in float32, not {self.dtypes[name]}")
            self.dtypes[name] = "float32"
        for group in plan.loops:
            if any(self.is_reduced(plan.einsum, r) for e, r in group.members if e == name):
                self.sequential.add((name, group.variable))

    def is_reduced(self, einsum: Einsum, rank: str) -> bool:
        return any(rank in self.ranks.names_after(einsum.name, v.upper()) for v in einsum.reduced)


def invariant(spec: Spec, einsum: Einsum) -> list[str]:
    """Ranks of an Einsum on which nothing it reads depends, directly or by Einsums that gain it too."""
    gained: dict[str, set[str]] = {}
    instructions = {e: held.instruction for e, held in spec.engines.items()}
    stored = {e.name for e in spec.cascade.einsums if instructions.get(e.name) == "Store"}
    for one in spec.cascade.einsums:
        found: set[str] = set()
        gained[one.name] = found
        if stored & set(one.reads):
            # what comes back from HBM, directly or as a row for all partitions, waits for who stores it
            stored |= {one.name} if instructions.get(one.name) == "Load" else set()
            continue
        found |= {
            v
            for v in one.output.variables
            if all(v in gained.get(a.tensor, set()) for a in one.accesses if v in a.variables)
        }
        if one is einsum:
            return [v.upper() for v in one.output.variables if v in found]
    return []
