"""Whether a plan keeps what a mapping gives, entry by entry: by where it computes and keeps tensors."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from ..language.ast import Cascade, Einsum, declared
from ..language.operators import OPERATORS
from ..language.spec import Execution, Placement, Spec
from ..plan.context import Context
from ..plan.given import Made, Part, Ran, Turn, is_in_order, lies_within
from ..tree import nodes
from ..written.ranks import Ranks

# statements that bring operands, and those that may compute what an instruction is given for
BRINGING = (nodes.Alloc, nodes.Comment, nodes.Tally, nodes.Load, nodes.Transpose, nodes.Fill)
COMPUTING: dict[str, tuple[type[nodes.Statement], ...]] = {
    # an operand with one element per partition makes the one the other
    "SimpleTensorTensor": (nodes.Combine, nodes.Scale),
    "SimpleTensorScalar": (nodes.Scale, nodes.ScaleCombine),
    "Activation": (nodes.Activate,),
    "TensorCopy": (nodes.Copy,),
    "TensorReduce": (nodes.Reduce, nodes.Combine),
}
ENGINES = {"scalar": "ScalarEngine", "gpsimd": "GpSimdEngine"}


def parts_of(spec: Spec, ranks: Ranks, einsum: str, names: Sequence[str], cascade: Cascade) -> list[Part]:
    """Ranks of an Einsum as parts of variables."""
    held = cascade.einsum(einsum)
    found = []
    for name in names:
        split = ranks.split(einsum, name)
        variable = (split[0] if split else name).lower()
        whole = cascade.extent(variable, held) if variable in held.variables else 1
        if split is None:
            found.append(Part(variable, 1, whole))
            continue
        shapes = spec.partitioning[einsum][split[0]]
        at = len(shapes) - split[1]
        low, high = shapes[at] if at < len(shapes) else 1, shapes[at - 1] if at else whole
        found.append(Part(variable, min(low, whole), min(high, whole)))
    return found


@dataclass(frozen=True)
class Followed:
    """Compares a plan with a specification.

    Args:
        spec: what is given.
        cascade: of it, with extents.
        ctx: the plan.
    """

    spec: Spec
    cascade: Cascade
    ctx: Context

    def broken(self) -> Iterator[str]:
        """Paths of what is given and not kept."""
        spec = self.spec
        for einsum, splits in spec.partitioning.items():
            yield from (
                f"mapping.partitioning.{einsum}.{r}" for r, s in splits.items()
                if not self.is_split(einsum, r.lower(), s)
            )  # fmt: skip
        yield from (
            f"mapping.loop-order.{e}" for e, o in spec.loop_order.items() if not self.is_ordered(e, o)
        )
        yield from (
            f"mapping.spacetime.{e}" for e, (space, _) in spec.spacetime.items()
            if not self.is_side_by_side(e, space)
        )  # fmt: skip
        yield from (h.node.path for h in spec.engines.values() if not self.is_executed(h))
        yield from (p.node.path for p in spec.placements.values() if not self.is_placed(p))
        for fusion in spec.fusion:
            yield from (fusion.node.path for g in fusion.groups if not self.is_shared(g))
        for tensor, orders in spec.rank_order.items():
            yield from (
                f"format.{tensor}.rank-order.{e}" for e, order in orders.items()
                if tensor in (*self.cascade.inputs, *self.cascade.outputs)
                and not self.is_as_declared(tensor, e, order)
            )  # fmt: skip

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
        return parts_of(self.spec, self.ranks, einsum, names, self.cascade)

    def is_split(self, einsum: str, variable: str, sizes: Sequence[int]) -> bool:
        """Whether no statement crosses from one part of a rank into the next."""
        whole = self.extents(einsum).get(variable)
        runs = [r for r in self.runs(einsum) if variable in r.covers]
        if whole is None or not runs:
            return False
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
        return all((p in consumed) != bool(self.loops_over(p, r.loops, extents)) for p in every for r in runs)

    def is_instruction(self, ran: Ran, held: Execution) -> bool:
        if held.instruction == "MatVec":
            return bool(ran.over) and held.component in ("", "TensorEngine")
        kinds = COMPUTING.get(held.instruction)
        own = [s for s in ran.statements if not isinstance(s, BRINGING)]
        if kinds is None or not ran.statements or ran.over:
            return False
        fitting = [isinstance(s, kinds) and held.component in ("", engine_of(s)) for s in own]
        # an operator of several steps takes several instructions, one of them this
        has_steps = any(OPERATORS[e.map_op].steps for e in self.writers(held.einsum) if e.map_op)
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
        names = self.cascade.tensors
        made = (m for m in self.ctx.made if self.declared(m.tensor, names) == placed.tensor)
        return any(self.is_tile(m, placed) for m in made)

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
        access = next((a for a in (held.output, *held.accesses) if a.tensor == tensor), None)
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
        is_in_order = list(dict.fromkeys(p.variable for p in inner)) == free
        return is_free and is_bound and is_in_order and {p.variable for p in outer} == set(side)

    @property
    def turns(self) -> dict[str, str]:
        """The variable whose turns an Einsum stands in."""
        return {e.name: block.variable for e, block in self.cascade.walk() if block is not None}


def engine_of(statement: nodes.Statement) -> str:
    """The engine that a statement runs on, as mappings call it."""
    if isinstance(statement, nodes.Activate):
        return "ScalarEngine"
    return ENGINES.get(getattr(statement, "engine", ""), "VectorEngine")
