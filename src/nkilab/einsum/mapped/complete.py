"""A mapping that lacks entries made whole: what is given stays as it is, the rest follows from it.

The cascade names every instruction, copies between memories too. So a loop order follows from loops inside
which tiles live, a place from that of the same tile elsewhere, and shared loops from tiles living in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ...machine import Machine
from ..language.ast import Cascade, Einsum, Iterate
from ..language.nodes import Node
from ..language.spec import Execution, Fusion, Placement, Spec
from ..roofline import is_contraction
from ..written.ranks import Digit, Ranks

PRODUCT, TRANSFERS = "MatVec", ("Load", "Store", "BroadcastTo")
ENGINE_OF = {
    "Load": "DMAEngine", "Store": "DMAEngine", "BroadcastTo": "DMAEngine", PRODUCT: "TensorEngine",
    "Transpose": "TensorEngine", "Activation": "ScalarEngine",
}  # fmt: skip
UNBOUNDED = 1 << 40
Member = tuple[str, str]


def is_whole(spec: Spec) -> bool:
    """Whether a mapping says everything: loops, instructions and layouts of every Einsum."""
    einsums = spec.cascade.einsums
    return all(
        e.name in spec.loop_order
        and e.name in spec.engines
        and all((t, e.name) in spec.placements for t in (e.name, *e.reads))
        for e in einsums
    ) and bool(spec.fusion or len(einsums) == 1 or not any(p.unbound for p in spec.placements.values()))


def is_instructions(cascade: Cascade) -> bool:
    """Whether every Einsum is one instruction: copies between HBM and the chip are Einsums of their own."""
    if any(isinstance(step, Iterate) for step in cascade.steps):
        return False
    is_written_once = len(cascade.einsums) == len(cascade.written)
    return is_written_once and all(_is_instruction(cascade, e) for e in cascade.einsums)


def _is_instruction(cascade: Cascade, einsum: Einsum) -> bool:
    indices = [[i.plain for i in a.indices] for a in einsum.every_access]
    is_indexed = all(all(names) and len(set(names)) == len(names) for names in indices)
    in_hbm = sum(t in cascade.inputs or t in cascade.outputs for t in (einsum.name, *einsum.reads))
    is_copy = not einsum.map_op and not einsum.reduce_op
    is_simple = not (einsum.map_op and einsum.reduce_op) or is_contraction(einsum)
    is_moved = in_hbm == 0 or (in_hbm == 1 and is_copy)
    return bool(einsum.accesses) and is_indexed and is_simple and is_moved and len(einsum.operands) <= 2


def completed(spec: Spec, machine: Machine) -> tuple[Spec, tuple[str, ...]]:
    """A specification with a whole mapping, and notes on what was added."""
    return (spec, ()) if is_whole(spec) else _Completion(spec, machine).spec()


class _Completion:
    def __init__(self, spec: Spec, machine: Machine) -> None:
        self.given, self.machine = spec, machine
        self.cascade, self.ranks = spec.cascade, Ranks(spec)
        self.einsums = {e.name: e for e in self.cascade.einsums}
        self.placed = dict(spec.placements)
        self.part: dict[str, str] = {}
        for einsum in self.cascade.einsums:
            self.part[einsum.name] = self.part_of(einsum)
        self.instructions = {e.name: self.instruction_of(e) for e in self.cascade.einsums}
        self.consumed = {e.name: self.consumes(e) for e in self.cascade.einsums}
        self.orders = {e.name: self.order(e) for e in self.cascade.einsums}
        written = [g for f in spec.fusion for g in f.groups]
        groups = written if spec.fusion else [*map(tuple, self.shared_loops())]
        node = spec.fusion[0].node if spec.fusion else self.node("binding.fusion")
        fusion = Fusion(None, tuple(groups), Node(None, node.path, node.place))
        engines = {name: self.execution(e) for name, e in self.einsums.items()}
        self.run = replace(spec, loop_order=self.orders, engines=engines, fusion=(fusion,) if groups else ())
        self.looped = Ranks(self.run)

    def spec(self) -> tuple[Spec, tuple[str, ...]]:
        """The whole specification, and notes."""
        for einsum in self.cascade.einsums:
            for tensor in (einsum.name, *einsum.reads):
                self.placed[tensor, einsum.name] = self.place(tensor, einsum)
        placed = replace(self.run, placements=self.placed, dtypes=self.types(), spacetime={}, rank_order={})
        return placed, tuple(self.notes())

    def node(self, path: str) -> Node:
        """A node of what was added, at the mapping."""
        key = next((k for k in ("binding", "mapping") if self.given.node(k).path == k), "einsum")
        return Node(None, f"{path} (completed)", self.given.node(key).place)

    def notes(self) -> Iterator[str]:
        """What was added, for the report."""
        for what, known in (("loop order", self.given.loop_order), ("instruction", self.given.engines)):
            names = [n for n in self.einsums if n not in known]
            if names:
                yield f"completed: the {what} of {', '.join(names)}"
        tensors = [f"{t} in {e}" for t, e in self.placed if (t, e) not in self.given.placements]
        if tensors:
            yield f"completed: the place of {', '.join(tensors)}"
        if not self.given.fusion:
            groups = (g for f in self.run.fusion for g in f.groups)
            shared = (" and ".join(".".join(member) for member in group) for group in groups)
            yield from (f"completed: {members} share a loop" for members in shared)

    def types(self) -> dict[str, str]:
        """Types of all tensors: given, else that of what is copied, else float32."""
        found = dict(self.given.dtypes)
        for name, einsum in self.einsums.items():
            is_copy = self.instructions[name] in (*TRANSFERS, "TensorCopy", "Transpose")
            found.setdefault(name, found.get(einsum.reads[0], "float32") if is_copy else "float32")
        return found

    # partitions

    def in_hbm(self, tensor: str) -> bool:
        """Whether a tensor lies in HBM."""
        declared = {*self.cascade.inputs, *self.cascade.outputs}
        return tensor in declared or any(
            t == tensor and p.component == "HBM" for (t, _), p in self.given.placements.items()
        )

    def readers(self, tensor: str) -> list[Einsum]:
        """Einsums that read a tensor."""
        return [e for e in self.cascade.einsums if tensor in e.reads]

    def base(self, einsum: str, rank: str) -> str:
        """The variable that a rank is a part of."""
        split = self.ranks.split(einsum, rank)
        return (split[0] if split else rank).lower()

    def placed_part(self, tensor: str) -> str:
        """The variable that a place puts on the partitions of a tile; "" if none does."""
        for (name, einsum), placed in self.given.placements.items():
            if name == tensor and placed.component != "HBM" and placed.outer:
                wide = [r for r in placed.outer if self.ranks.size(einsum, r).value != 1]
                return self.base(einsum, (wide or placed.outer)[0])
        return ""

    def bound_part(self, einsum: Einsum) -> str:
        """The variable on the partitions that space, or the ranks of an instruction, name."""
        held = self.given.engines.get(einsum.name)
        space = self.given.spacetime.get(einsum.name, ((), ()))[0]
        ranks = held.ranks if held is not None else ()
        # the first rank of a broadcast is the one of its transfer
        ranks = space or (ranks[1:] if held is not None and held.instruction == "BroadcastTo" else ranks)
        bases = [self.base(einsum.name, r) for r in ranks]
        return next((v for v in bases if v in einsum.output.variables), "")

    def part_of(self, einsum: Einsum) -> str:
        """The variable on the partitions of a result."""
        out, readers = einsum.output.variables, self.readers(einsum.name)
        products = [self.summed(e) for e in readers if is_contraction(e)]
        held = [self.part.get(a.tensor, "") for a in einsum.accesses]
        kept = [v for v in out if not any(v in e.reduced for e in readers)]
        wishes = [self.placed_part(einsum.name), self.bound_part(einsum), *products]
        if is_contraction(einsum):
            # of a product one operand has the variable, and is stationary
            first, second = ({*a.variables} for a in einsum.accesses)
            out = tuple(v for v in out if v in first ^ second) or out
        return next((v for v in (*wishes, *held, *kept, *out) if v in out), "")

    def summed(self, einsum: Einsum) -> str:
        """The variable of a product that runs over the partitions of its operands."""
        held = self.given.engines.get(einsum.name)
        places = [self.placed_part(a.tensor) for a in einsum.accesses]
        named = [self.base(einsum.name, r) for r in held.ranks] if held is not None else []
        widest = max(einsum.reduced, key=lambda v: self.cascade.sizes.get(v.upper(), UNBOUNDED))
        return next((v for v in (*places, *named) if v in einsum.reduced), widest)

    # instructions

    def instruction_of(self, einsum: Einsum) -> str:
        """The instruction of an Einsum: given, or the one of its form."""
        name = einsum.name
        if name in self.given.engines:
            return self.given.engines[name].instruction
        if not einsum.map_op and not einsum.reduce_op:
            return self.copy_of(einsum)
        if is_contraction(einsum):
            return PRODUCT
        if einsum.reduce_op:
            return "LoopReduce" if self.is_summed_by_loops(einsum) else "TensorReduce"
        if len(einsum.operands) == 1:
            return "Activation"
        own = set(einsum.output.variables)
        has_column = any(set(a.variables) != own for a in einsum.accesses) or len(einsum.accesses) == 1
        return "SimpleTensorScalar" if has_column else "SimpleTensorTensor"

    def copy_of(self, einsum: Einsum) -> str:
        """The instruction of a copy."""
        source, part = einsum.accesses[0], self.part[einsum.name]
        if self.in_hbm(source.tensor):
            return "Load"
        if self.in_hbm(einsum.name):
            return "Store"
        if part not in source.variables:
            return "BroadcastTo"
        return "TensorCopy" if self.part[source.tensor] == part else "Transpose"

    def is_summed_by_loops(self, einsum: Einsum) -> bool:
        """Whether what a reduction runs over is no axis of the tile that it reads."""
        name, source = einsum.name, einsum.accesses[0].tensor
        tile = self.given.placements.get((source, name)) or self.given.placements.get((source, source))
        if tile is not None:
            bases = [self.base(tile.einsum, r) for r in tile.inner]
            return not set(einsum.reduced) & set(bases)
        order = self.given.loop_order.get(name)
        return order is not None and self.base(name, order[-1]) not in einsum.reduced

    def consumes(self, einsum: Einsum) -> tuple[str, ...]:
        """Ranks that an instruction covers at once: given, or as many as it can."""
        name = einsum.name
        held = self.given.engines.get(name)
        if held is not None and held.ranks:
            return held.ranks
        groups = [g for f in self.given.fusion for g in f.groups if len(g) > 1]
        barred = {r for g in groups for e, r in g if e == name}
        barred |= {r for (_, e), p in self.given.placements.items() if e == name for r in p.unbound}
        covered = [r for v, most in self.covers(einsum) for r in self.innermost(name, v, most)]
        return tuple(r for r in self.ranks.parts(name, einsum.variables) if r in covered and r not in barred)

    def covers(self, einsum: Einsum) -> list[tuple[str, int]]:
        """Variables that an instruction covers at once, with how many values at most."""
        instruction, out = self.instructions[einsum.name], einsum.output.variables
        lanes = int(self.machine["partitions"])
        source = einsum.accesses[0]
        part = self.part[source.tensor] if instruction == "Store" else self.part[einsum.name]
        if instruction == PRODUCT:
            stationary = {v for a in einsum.accesses if part in a.variables for v in a.variables}
            moving = [v for v in out if v not in stationary]
            columns = max(moving, key=lambda v: self.cascade.sizes.get(v.upper(), 0), default="")
            most = int(self.machine["moving_free_max"])
            return [(part, lanes), (self.summed(einsum), lanes), (columns, most)]
        if instruction == "Transpose":
            return [(part, lanes), (self.part[source.tensor], lanes)]
        if instruction == "TensorReduce":
            return [(part, lanes), (einsum.reduced[-1], UNBOUNDED)]
        free = [v for v in out if v != part and self.cascade.sizes.get(v.upper()) != 1]
        return [(part, lanes), *((v, UNBOUNDED) for v in free[-1:])]

    def execution(self, einsum: Einsum) -> Execution:
        """The instruction of an Einsum, with its engine."""
        name, consumed = einsum.name, self.consumed[einsum.name]
        if name in self.given.engines:
            return replace(self.given.engines[name], ranks=consumed)
        instruction = self.instructions[name]
        component = ENGINE_OF.get(instruction, "VectorEngine")
        return Execution(name, component, instruction, consumed, self.node("binding.engine"))

    # ranks

    def innermost(self, einsum: str, variable: str, most: int) -> list[str]:
        """The innermost parts of a rank that together have at most some elements."""
        parts = self.ranks.names_after(einsum, variable.upper())
        outer = parts[0] if self.ranks.has_edge(einsum, variable.upper()) else ""
        found, total = [], 1  # type: list[str], int
        for rank in reversed(parts):
            count = self.ranks.size(einsum, rank).value
            # a loop runs over what has a shorter last part
            if rank == outer or (count is None and most < UNBOUNDED) or total * (count or 1) > most:
                break
            total *= count or 1
            found.insert(0, rank)
        return found

    def order(self, einsum: Einsum) -> tuple[str, ...]:
        """The loop order: as given, else loops inside which tiles live, the rest of the result, then sums."""
        name, consumed = einsum.name, self.consumed[einsum.name]
        ranks = self.ranks.parts(name, einsum.variables)
        given = self.given.loop_order.get(name)
        if given is not None:
            return (*given, *(r for r in ranks if r not in given and r not in consumed))
        places = [p.unbound for (_, e), p in self.placed.items() if e == name]
        prefix = max(places, key=len, default=())
        rest = [r for r in ranks if r not in prefix and r not in consumed]
        rest.sort(key=lambda r: self.base(name, r) in einsum.reduced)
        return (*prefix, *rest, *(r for r in consumed if r not in prefix))

    # shared loops

    def shared_loops(self) -> Iterator[list[Member]]:
        """Groups of ranks that share a loop, because a tile that one makes and one reads lives inside it."""
        group_of: dict[Member, list[Member]] = {}
        for mine, theirs in self.bound_alike():
            self.join(group_of, mine, theirs)
        order = list(self.einsums)
        unique = {id(g): g for g in group_of.values()}
        yield from (sorted(g, key=lambda m: order.index(m[0])) for g in unique.values())

    def bound_alike(self) -> Iterator[tuple[Member, Member]]:
        """Ranks of a maker and of a reader over which a tile lives for one value at a time."""
        places = self.given.placements
        pairs = [(places[t, t], seen) for (t, e), seen in places.items() if e != t and (t, t) in places]
        for made, seen in pairs:
            members = zip(made.unbound, seen.unbound)
            yield from (
                ((made.einsum, mine), (seen.einsum, theirs)) for mine, theirs in members
                if self.ranks.digit(made.einsum, mine) == self.ranks.digit(seen.einsum, theirs)
            )  # fmt: skip

    @staticmethod
    def join(group_of: dict[Member, list[Member]], first: Member, second: Member) -> None:
        """Make one group of those of two members."""
        one, other = group_of.get(first, [first]), group_of.get(second, [second])
        both = one if one is other else [*one, *(m for m in other if m not in one)]
        group_of.update(dict.fromkeys(both, both))

    def lives_in(self, einsum: Einsum) -> list[str]:
        """Loops that an Einsum shares with all that read its result, as far as none of them sums it up."""
        name, own = einsum.name, self.looped.loops(einsum.name)
        depth = len(own)
        for reader in self.readers(name):
            theirs = self.looped.loops(reader.name)
            apart = (n for n, (a, b) in enumerate(zip(own, theirs)) if a is not b or len(a.members) == 1)
            depth = min(depth, len(theirs), next(apart, depth))
        ranks = [group.rank_of(name) for group in own[:depth]]
        sums = (n for n, r in enumerate(ranks) if self.base(name, r) in einsum.reduced)
        return ranks[: next(sums, depth)]

    # places

    def place(self, tensor: str, einsum: Einsum) -> Placement:
        """Where a tensor lies as an Einsum sees it: as given, as others see it, or by rule."""
        name = einsum.name
        if (tensor, name) in self.placed:
            return self.placed[tensor, name]
        is_made, node = tensor == name, self.node("binding.tensor")
        access = next(a for a in einsum.every_access if a.tensor == tensor)
        zeros = self.instructions[name] == "LoopReduce"
        constructor = ("zeros" if zeros else "empty") if is_made else ""
        ranks = self.ranks.parts(name, access.variables)
        if self.in_hbm(tensor):
            order = self.given.rank_order.get(tensor, {}).get(name)
            *outer, last = order or ranks or [""]
            inner = (last,) if last else ()
            is_plain = order is None and not self.is_cut_alike(tensor)
            return Placement(tensor, name, "HBM", constructor, (), tuple(outer), inner, node, is_plain)
        other = next((p for (t, _), p in self.placed.items() if t == tensor), None)
        if other is not None:
            seen = self.seen_by(other, name, access.variables)
            return replace(seen, constructor=constructor, node=node)
        assert is_made, "makers come before their readers"
        unbound = self.lives_in(einsum)
        # what is a row on its way to all partitions lies on one: a rank of one element
        units = [r for r in ranks if r not in unbound and self.ranks.size(name, r).value == 1]
        lanes = self.innermost(name, self.part[name], int(self.machine["partitions"]))
        part = [r for r in lanes if r not in unbound] or units[:1]
        free = tuple(r for r in ranks if r not in unbound and r not in part)
        memory = "PSUM" if self.instructions[name] == PRODUCT else "SBUF"
        return Placement(tensor, name, memory, constructor, tuple(unbound), tuple(part), free, node)

    def is_cut_alike(self, tensor: str) -> bool:
        """Whether all that move a tensor of HBM see it as declared, its ranks in the same parts."""
        movers = [e for e in self.cascade.einsums if tensor in (e.name, *e.reads)]
        accesses = [a for e in movers for a in e.every_access if a.tensor == tensor]
        ranks = self.cascade.tensors[tensor].ranks
        parts = {tuple(self.ranks.parts(e.name, a.variables)) for e, a in zip(movers, accesses)}
        return len(parts) == 1 and all(tuple(v.upper() for v in a.variables) == ranks for a in accesses)

    def seen_by(self, other: Placement, name: str, variables: tuple[str, ...]) -> Placement:
        """The same layout in the ranks of another Einsum."""

        def renamed(ranks: Iterable[str]) -> tuple[str, ...]:
            wanted = [(r, self.ranks.digit(other.einsum, r)) for r in ranks]
            return tuple(self.in_terms_of(name, variables, wanted))

        unbound: list[str] = []
        for rank in other.unbound:
            group = self.looped.group(other.einsum, rank)
            own = [r for e, r in group.members if e == name] if group is not None else []
            unbound += own or renamed((rank,)) or (rank,)
        return replace(other, einsum=name, unbound=tuple(unbound), outer=renamed(other.outer),
                       inner=renamed(other.inner))  # fmt: skip

    def in_terms_of(
        self, einsum: str, variables: tuple[str, ...], wanted: Iterable[tuple[str, Digit]]
    ) -> list[str]:
        """Ranks of an Einsum that cover digits, in their order; parts of one element go by their names."""
        found: list[str] = []
        own = {r: self.ranks.digit(einsum, r) for r in self.ranks.parts(einsum, variables)}
        for rank, one in wanted:
            inside = [
                r for r, d in own.items()
                if d.base == one.base and d.stride >= one.stride and (d == one or one.spans(d.stride))
            ]  # fmt: skip
            inside = [rank] if own.get(rank) == one else sorted(inside, key=lambda r: -own[r].stride)
            found += [r for r in inside if r not in found]
        return found


def is_entry(path: str) -> bool:
    """Whether a path leads to what is given for one Einsum or tensor."""
    is_part = path.startswith(("mapping.", "binding.", "format.")) and (path.count(".") > 1 or "[" in path)
    return is_part and "(completed)" not in path
