"""Whether a plan keeps what a mapping gives, entry by entry: by where it computes and keeps tensors."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from ..language.ast import Cascade, Einsum, declared
from ..language.nodes import Node
from ..language.operators import OPERATORS
from ..language.spec import Execution, Placement, Spec
from ..plan.context import Context
from ..plan.given import Made, Part, Ran, Turn, is_in_order, lies_within
from ..tree import nodes
from ..written.ranks import Ranks

# statements that compute nothing but bring and take away; those that may be the instruction that is given
MOVING = (
    nodes.Alloc, nodes.Comment, nodes.Tally, nodes.Load, nodes.Store, nodes.Move, nodes.Gather, nodes.Copy,
    nodes.Transpose, nodes.MatMul, nodes.Fill, nodes.Loop,
)  # fmt: skip
COMPUTING: dict[str, tuple[type[nodes.Statement], ...]] = {
    # an operand with one element per partition makes the one the other
    "SimpleTensorTensor": (nodes.Combine, nodes.Scale),
    "SimpleTensorScalar": (nodes.Scale, nodes.ScaleCombine),
    "Activation": (nodes.Activate,),
    "TensorCopy": (nodes.Copy,),
    "TensorReduce": (nodes.Reduce, nodes.Combine),
    "LoopReduce": (nodes.Combine,),
    "Load": (nodes.Load,),
    "BroadcastTo": (nodes.Load,),
    "Store": (nodes.Store,),
}
TRANSFERS = ("Load", "Store", "BroadcastTo")
ENGINES = {"scalar": "ScalarEngine", "gpsimd": "GpSimdEngine"}


def parts_of(ranks: Ranks, einsum: str, names: Sequence[str], cascade: Cascade) -> list[Part]:
    """Ranks of an Einsum as parts of variables."""
    one, found = cascade.einsum(einsum), []
    for digit in (ranks.digit(einsum, name) for name in names):
        variable = digit.base.lower()
        whole = cascade.extent(variable, one) if variable in one.variables else 1
        found.append(Part(variable, min(digit.stride, whole), min(digit.high or whole, whole)))
    return found


@dataclass(frozen=True)
class Entry:
    """An entry of a mapping."""

    node: Node  # where it stands
    told: str  # what is wrong where no plan keeps it


@dataclass(frozen=True)
class Followed:
    """Compares a plan with a specification."""

    spec: Spec  # what is given
    cascade: Cascade  # of it, with extents
    ctx: Context  # the plan

    def broken(self) -> Iterator[Entry]:
        """Entries that are given and not kept."""
        return (entry for entry, is_kept in self.entries() if not is_kept)

    def entries(self) -> Iterator[tuple[Entry, bool]]:
        """Every entry, and whether it is kept."""
        spec, ends = self.spec, {*self.cascade.inputs, *self.cascade.outputs}

        def at(told: str, *keys: str) -> Entry:
            return Entry(spec.node(*keys).at_key, told)

        for einsum, splits in spec.partitioning.items():
            for rank, sizes in splits.items():
                told = f"no plan computes {einsum} within such parts of {rank}"
                entry = at(told, "mapping", "partitioning", einsum, rank)
                yield entry, self.is_split(einsum, rank.lower(), sizes)
        for einsum, order in spec.loop_order.items():
            entry = at(f"no plan has the loops of {einsum} in this order", "mapping", "loop-order", einsum)
            yield entry, self.is_ordered(einsum, order)
        for einsum, (space, _) in spec.spacetime.items():
            entry = at(f"no plan computes {einsum} with {', '.join(space)} on the partitions",
                       "mapping", "spacetime", einsum)  # fmt: skip
            yield entry, self.is_side_by_side(einsum, space)
        for held in spec.engines.values():
            told = f"no plan computes {held.einsum} by {held.instruction} of such ranks"
            yield Entry(held.node, told), self.is_executed(held)
        for placed in spec.placements.values():
            told = f"no plan has {placed.tensor} in {placed.component} like this in {placed.einsum}"
            yield Entry(placed.node, told), self.is_placed(placed)
        for fusion in spec.fusion:
            is_kept = all(self.is_shared(g) for g in fusion.groups)
            yield Entry(fusion.node, "no plan has these ranks share their loops"), is_kept
        for tensor, einsum, ranks in (
            (t, e, o) for t, held in spec.rank_order.items() for e, o in held.items() if t in ends
        ):
            told = f"no plan has {tensor} in HBM in this order"
            entry = at(told, "format", tensor, "rank-order", einsum)
            yield entry, self.is_as_declared(tensor, einsum, ranks)

    # where Einsums are computed

    @property
    def ranks(self) -> Ranks:
        """Parts of ranks."""
        return Ranks(self.spec)

    def runs(self, einsum: str) -> list[Ran]:
        """Where an Einsum, or a piece of it, is computed."""
        names = {e.name for e in self.cascade.einsums}
        return [r for r in self.ctx.build.ran if self.declared(r.einsum, names) == einsum]

    def einsum(self, name: str) -> Einsum:
        return self.cascade.einsum(name)

    def extents(self, einsum: str) -> dict[str, int]:
        held = self.einsum(einsum)
        return {v: self.cascade.extent(v, held) for v in held.variables}

    def parts(self, einsum: str, names: Sequence[str]) -> list[Part]:
        return parts_of(self.ranks, einsum, names, self.cascade)

    def is_split(self, einsum: str, variable: str, sizes: Sequence[int]) -> bool:
        """Whether no statement crosses from one part of a rank into the next."""
        whole = self.extents(einsum).get(variable)
        runs = [r for r in self.runs(einsum) if variable in r.covers]
        if whole is None or not runs:
            return False
        statements = [s for r in runs for s in r.statements]
        if statements and all(isinstance(s, nodes.Load | nodes.Store) for s in statements):
            return True  # a transfer takes what lies side by side
        if (held := self.spec.engines.get(einsum)) is not None and held.ranks:
            # an instruction takes the parts of its ranks together
            taken = {p.low for p in self.parts(einsum, held.ranks) if p.variable == variable}
            sizes = [s for s in sizes if s not in taken]
        sizes = [s for s in sizes if s < whole]
        return all(
            lies_within([t.block for t in r.loops if t.variable == variable], r.covers[variable], sizes)
            for r in runs
        )

    def is_ordered(self, einsum: str, names: Sequence[str]) -> bool:
        runs, extents = self.runs(einsum), self.extents(einsum)
        order = self.parts(einsum, names)
        return bool(runs) and all(is_in_order(order, r.loops, extents) for r in runs)

    def is_side_by_side(self, einsum: str, names: Sequence[str]) -> bool:
        """Whether the ranks in space are those on the partitions, of TensorE also those that it sums up."""
        runs, extents = self.runs(einsum), self.extents(einsum)
        space = {p.variable for p in self.parts(einsum, names) if p.high > p.low}
        for ran in runs:
            part = ran.part if ran.part and ran.covers.get(ran.part, 1) > 1 else ""
            lanes = {part} - {""}
            if not lanes <= space or space - lanes - ({ran.over} if ran.over else set()):
                return False
        return bool(runs) and all(extents.get(v, 1) > 1 for v in space)

    def is_executed(self, held: Execution) -> bool:
        """Whether an instruction of an engine computes an Einsum, over the ranks that it consumes."""
        runs = self.runs(held.einsum)
        if not runs or not all(self.is_instruction(r, held) for r in runs):
            return False
        if not held.ranks:
            return True
        consumed = self.parts(held.einsum, held.ranks)
        variables = [v.upper() for v in self.einsum(held.einsum).variables]
        names = [n for v in variables for n in self.ranks.names_after(held.einsum, v)]
        every = [p for p in self.parts(held.einsum, names) if p.high > p.low]
        extents = self.extents(held.einsum)
        if held.instruction in TRANSFERS:
            every = [p for p in every if p in consumed]
        return all((p in consumed) != bool(self.loops_over(p, r.loops, extents)) for p in every for r in runs)

    def is_instruction(self, ran: Ran, held: Execution) -> bool:
        if held.instruction == "MatVec":
            return bool(ran.over) and held.component in ("", "TensorEngine")
        kinds, writers = COMPUTING.get(held.instruction), self.writers(held.einsum)
        is_sum = held.instruction in ("TensorReduce", "LoopReduce")
        has_sum = any(e.reduce_op for e in writers)
        if kinds is None or not ran.statements or ran.over or (is_sum and not has_sum):
            return False
        own = [
            s for s in nodes.statements(ran.statements) if isinstance(s, kinds) or not isinstance(s, MOVING)
        ]
        component = "" if held.instruction == "BroadcastTo" else held.component  # a transfer spreads it
        fitting = [isinstance(s, kinds) and component in ("", engine_of(s)) for s in own]
        # an operator of several steps takes several instructions, as a map and a sum do; one of them is this
        has_steps = any(e.map_op and (OPERATORS[e.map_op].steps or is_sum) for e in writers)
        return any(fitting) if has_steps else all(fitting)

    def writers(self, name: str) -> list[Einsum]:
        return [e for e in self.cascade.einsums if e.name == name]

    def loops_over(self, part: Part, loops: Sequence[Turn], extents: dict[str, int]) -> set[int]:
        """Loops that a part of a rank turns in."""
        span, found = extents.get(part.variable, 1), set()
        for turn in (t for t in loops if t.variable == part.variable):
            if turn.block < part.high and span > part.low:
                found.add(turn.number)
            span = turn.block
        return found

    def is_shared(self, group: Sequence[tuple[str, str]]) -> bool:
        """Whether ranks advance in the same loops."""
        found = []
        for einsum, rank in group:
            (part,) = self.parts(einsum, [rank])
            runs, extents = self.runs(einsum), self.extents(einsum)
            if not runs:
                return False
            found += [self.loops_over(part, r.loops, extents) for r in runs]
        return all(f == found[0] for f in found)

    # where tensors lie

    def is_placed(self, placed: Placement) -> bool:
        if placed.component == "HBM":
            is_there = placed.tensor in self.cascade.inputs or self.ctx.hbm(placed.tensor) is not None
            is_plain = self.is_as_declared(placed.tensor, placed.einsum, placed.ranks)
            return is_there and is_plain and not placed.unbound
        own = self.spec.placements.get((placed.tensor, placed.tensor), placed)
        if self.sides(own) != self.sides(placed):
            return True  # it is turned for who reads it so
        names = self.cascade.tensors
        made = (m for m in self.ctx.made if self.declared(m.tensor, names) == placed.tensor)
        return any(self.is_tile(m, placed) for m in made)

    def sides(self, placed: Placement) -> list[int | None]:
        """The axes of a tensor that a place has on the partitions."""
        indices = self.indices(placed.tensor, placed.einsum)
        parts = [p for p in self.parts(placed.einsum, placed.outer) if p.high > p.low]
        return [indices.index(p.variable) if p.variable in indices else None for p in parts]

    def declared(self, name: str, known: Container[str]) -> str:
        """What an Einsum or a tensor of the plan is, or comes from, in the specification."""
        return declared(name, known, self.ctx.cascade.derived)

    def is_as_declared(self, tensor: str, einsum: str, names: Sequence[str]) -> bool:
        """Whether ranks, with their parts side by side, are those of the declaration."""
        declared = self.cascade.tensors[tensor].ranks
        parts = [n for r in declared for n in self.ranks.names_after(einsum, r)]
        return list(names) in (parts, list(declared)) and self.indices(tensor, einsum) == [
            r.lower() for r in declared
        ]

    def indices(self, tensor: str, einsum: str) -> list[str]:
        """The variables that index a tensor in an Einsum, "" where it is no variable alone."""
        held = self.einsum(einsum)
        access = next((a for a in held.every_access if a.tensor == tensor), None)
        if access is None:
            return []
        turn = self.turns.get(einsum, "")
        return [turn if i.variables == (turn,) else i.plain for i in access.indices]

    def is_tile(self, made: Made, placed: Placement) -> bool:
        """Whether a tile has the layout, and lives inside the loops, that are given."""
        variables = self.indices(placed.tensor, placed.einsum)
        turn = self.turns.get(placed.einsum, "")
        if len(made.dims) == len(variables) - 1 and turn in variables:
            # state has one value at a time, which every turn writes again
            variables.remove(turn)
        if made.memory != placed.component.lower() or len(made.dims) != len(variables) or "" in variables:
            return False
        extents = self.extents(placed.einsum)
        side = [v for v, d in zip(variables, made.dims, strict=True) if d == "part" and extents[v] > 1]
        around = [t for t in made.loops if t.variable in variables]
        layout, outer, inner, bound = (
            [p for p in self.parts(placed.einsum, names) if p.high > p.low and p.variable in variables]
            for names in (placed.ranks, placed.outer, placed.inner, placed.unbound)
        )
        is_free = not any(self.loops_over(p, around, extents) for p in layout)
        is_bound = all(self.loops_over(p, around, extents) for p in bound)
        free = [v for v in variables if v in {p.variable for p in layout} - {p.variable for p in outer}]
        # blocks of partitions come before all else
        is_in_order = list(dict.fromkeys(p.variable for p in inner if p.variable in free)) == free
        return is_free and is_bound and is_in_order and {p.variable for p in outer} == set(side)

    @property
    def turns(self) -> dict[str, str]:
        """The variable whose turns an Einsum stands in."""
        return {e.name: block.variable for e, block in self.cascade.walk() if block is not None}


def engine_of(statement: nodes.Statement) -> str:
    """The engine that a statement runs on, as mappings call it."""
    if isinstance(statement, nodes.Activate):
        return "ScalarEngine"
    if isinstance(statement, nodes.Load | nodes.Store):
        return "DMAEngine"
    return ENGINES.get(getattr(statement, "engine", ""), "VectorEngine")
