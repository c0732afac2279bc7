"""What a mapping fixes of a cascade that names every instruction: its loops, its tiles, what each copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from ..language.ast import Access, Cascade, Einsum, Iterate
from ..language.spec import Fusion, Placement, Spec
from ..plan.given import Given, Turn
from ..written.ranks import Ranks

TRANSFERS = ("Load", "Store", "BroadcastTo")
# of an instruction, or any, that goes element by element
ELEMENTWISE = {"SimpleTensorScalar", "SimpleTensorTensor", "Activation", ""}
Held = TypeVar("Held")
Member = tuple[str, str]
Nests = Mapping[str, tuple[Turn, ...]]


@dataclass(frozen=True)
class Schedule:
    """A cascade in the loops of its mapping."""

    cascade: Cascade  # without what its loops do again and again
    given: Given  # what is fixed of it
    changes: tuple[str, ...]  # what is done in another way than the words say
    spec: Spec  # entries that are followed to the letter


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
    is_simple = not (einsum.map_op and einsum.reduce_op) or einsum.is_contraction
    is_moved = in_hbm == 0 or (in_hbm == 1 and is_copy)
    return bool(einsum.accesses) and is_indexed and is_simple and is_moved and len(einsum.operands) <= 2


def scheduled(spec: Spec, cascade: Cascade, given: Given) -> Schedule:
    """A cascade that names every instruction, in the loops of its mapping.

    Args:
        given: what the mapping fixes beside its loops.
    """
    return _Scheduling(spec, cascade, given).schedule()


class _Scheduling:
    def __init__(self, spec: Spec, cascade: Cascade, given: Given) -> None:
        self.spec, self.cascade, self.given = spec, cascade, given
        self.changes = list(self.completed())
        self.apart = set[str]()  # Einsums that left loops which others share
        self.ranks = self.with_loops()
        self.sides = self.given_sides()
        self.instructions = {e.name: self.instruction(e) for e in cascade.einsums}

    def schedule(self) -> Schedule:
        """The whole of it."""
        nests = {e.name: self.nest(e.name) for e in self.cascade.einsums}
        before = set(self.cascade.written)
        self.spread_from_hbm()
        nests = self.without_repeats({name: nests[name] for name in self.cascade.written})
        for name in (n for n in nests if self.instructions[n] in TRANSFERS):
            nests[name] = self.with_long_rows(name, nests[name])
        fused = self.fused(nests)
        free = {*fused, *fused.values()}
        memories = {
            t: p.component.lower() for (t, e), p in self.spec.placements.items()
            if t == e and p.component != "HBM" and t in nests and t not in fused
        }  # fmt: skip
        fixed = replace(
            self.given, nests=nests, memories=memories,
            depths={t: self.depth(self.spec.placements[t, t], nests[t]) for t in memories},
            covered=frozenset(e for e, bound in self.spec.engines.items() if bound.ranks),
            instructions={e: self.instructions[e] for e in nests if self.instructions[e] and e not in free},
            kept=frozenset(n for n in nests if self.instructions[n] != "Store" and n not in fused),
            sides=self.sides,
        )  # fmt: skip
        gone = {*(before - nests.keys()), *free}
        return Schedule(self.cascade, fixed, tuple(self.changes), self.without(gone, nests))

    # loops

    def with_loops(self) -> Ranks:
        """Ranks with the loops that Einsums share, and a loop order for each."""
        spec, fusion = self.spec, self.spec.fusion
        if not fusion:
            fusion = (Fusion(None, tuple(map(tuple, self.shared())), spec.node("binding")),)
        orders = {e.name: self.order(e) for e in self.cascade.einsums}
        return Ranks(replace(spec, loop_order=orders, fusion=fusion))

    def order(self, einsum: Einsum) -> tuple[str, ...]:
        """The loop order: as given, or loops inside which tiles live, the rest of the result, then sums."""
        name, ranks = einsum.name, Ranks(self.spec)
        every, bound = ranks.parts(name, einsum.variables), self.spec.engines.get(name)
        consumed = bound.ranks if bound is not None else ()
        if (order := self.spec.loop_order.get(name)) is not None:
            return (*order, *(r for r in every if r not in order))
        places = [p.unbound for (_, e), p in self.spec.placements.items() if e == name]
        prefix = max(places, key=len, default=())
        rest = [r for r in every if r not in prefix]
        reduced = ranks.parts(name, einsum.reduced)
        rest.sort(key=lambda r: (r in consumed, r in reduced))
        return (*prefix, *rest)

    def nest(self, name: str) -> tuple[Turn, ...]:
        """The loops around an Einsum: all that its instruction leaves, or those that others are in, too."""
        ranks, bound = self.ranks, self.spec.engines.get(name)
        around = {r for (_, e), p in self.spec.placements.items() if e == name for r in p.unbound}
        turns, numbers = [], {g: n for n, g in enumerate(ranks.groups)}
        for rank in ranks.spec.loop_order[name]:
            group, digit = ranks.group(name, rank), ranks.digit(name, rank)
            assert group is not None
            is_others = len(group.members) > 1 or rank in around
            turn = Turn(digit.base.lower(), digit.stride, numbers[group], group.variable)
            # where no instruction says what it covers, the planner chooses the loops that no other needs
            is_own = bound is not None and bool(bound.ranks)
            turns += [turn] if group.is_loop and (is_own or is_others) else []
        return tuple(turns)

    def shared(self) -> Iterator[list[Member]]:
        """Groups of ranks that share a loop, because a tile that one makes and one reads lives inside it."""
        group_of: dict[Member, list[Member]] = {}
        for mine, theirs in self.bound_alike():
            one, other = group_of.get(mine, [mine]), group_of.get(theirs, [theirs])
            both = one if one is other else [*one, *(m for m in other if m not in one)]
            group_of.update(dict.fromkeys(both, both))
        order = [e.name for e in self.cascade.einsums]
        unique = {id(g): g for g in group_of.values()}
        yield from (sorted(g, key=lambda m: order.index(m[0])) for g in unique.values())

    def bound_alike(self) -> Iterator[tuple[Member, Member]]:
        """Ranks of a maker and of a reader over which a tile lives for one value at a time."""
        places, ranks = self.spec.placements, Ranks(self.spec)
        pairs = [(places[t, t], seen) for (t, e), seen in places.items() if e != t and (t, t) in places]
        for maker, seen in pairs:
            members = zip(maker.unbound, seen.unbound)
            yield from (
                ((maker.einsum, mine), (seen.einsum, theirs)) for mine, theirs in members
                if ranks.digit(maker.einsum, mine) == ranks.digit(seen.einsum, theirs)
            )  # fmt: skip

    def depth(self, placed: Placement, nest: Iterable[Turn]) -> int:
        """How many loops of a nest stand around a tile."""
        digits = (self.ranks.digit(placed.einsum, r) for r in placed.unbound)
        around = {(d.base.lower(), d.stride) for d in digits}
        return sum((turn.variable, turn.block) in around for turn in nest)

    def completed(self) -> Iterator[str]:
        """What was added, for the report."""
        spec, names = self.spec, [e.name for e in self.cascade.einsums]
        for what, known in (("loop order", spec.loop_order), ("instruction", spec.engines)):
            if missing := [n for n in names if n not in known]:
                yield f"completed: the {what} of {', '.join(missing)}"
        every = [(t, e.name) for e in self.cascade.einsums for t in (e.name, *e.reads)]
        if places := [f"{t} in {e}" for t, e in every if (t, e) not in spec.placements]:
            yield f"completed: the place of {', '.join(places)}"
        for group in self.shared() if not spec.fusion else ():
            yield f"completed: {' and '.join('.'.join(member) for member in group)} share a loop"

    # what is done in another way

    def instruction(self, einsum: Einsum) -> str:
        """The instruction that is given, or the transfer that a copy is; "" for any."""
        bound, cascade = self.spec.engines.get(einsum.name), self.cascade
        if bound is not None:
            return bound.instruction
        if einsum.map_op or einsum.reduce_op:
            return ""
        if einsum.name in cascade.outputs or {*einsum.reads} & {*cascade.inputs}:
            return "Store" if einsum.name in cascade.outputs else "Load"
        side = self.sides.get(einsum.name)
        return "BroadcastTo" if side and side not in einsum.accesses[0].variables else ""

    def given_sides(self) -> dict[str, str]:
        """The variables on the partitions: given, as a reader sees it, or of an instruction's first rank."""
        sides, ranks = dict(self.given.sides), self.ranks
        for (tensor, name), placed in self.spec.placements.items():
            if tensor in sides or tensor not in self.cascade.written or placed.component == "HBM":
                continue
            access = next(a for a in self.cascade.einsum(name).every_access if a.tensor == tensor)
            axes = dict(zip((i.plain for i in access.affine), self.cascade.einsum(tensor).output.affine))
            sides[tensor] = next((axes[d.base.lower()].plain for d in ranks.digits(name, placed.outer)), "")
        for name, bound in self.spec.engines.items():
            # the first rank of a broadcast is the one of its transfer
            own = bound.ranks[1:] if bound.instruction == "BroadcastTo" else bound.ranks
            variables = [d.base.lower() for d in ranks.digits(name, own)]
            output = self.cascade.einsum(name).output.variables
            variables = [v for v in variables if v in output]
            sides |= {name: variables[0]} if variables and name not in sides else {}
        return sides

    def spread_from_hbm(self) -> None:
        """What is loaded to be spread over partitions alone is spread as it is loaded."""
        cascade = self.cascade
        makers = {e.name: e for e in cascade.einsums if self.instructions[e.name] == "Load"}
        for one in (e for e in cascade.einsums if self.instructions[e.name] == "BroadcastTo"):
            (access,) = one.accesses
            source = makers.get(access.tensor)
            if source is None or cascade.readers(access.tensor) != [one]:
                continue
            names = {i.plain: j.plain for i, j in zip(source.output.affine, access.affine, strict=True)}
            read = source.accesses[0].renamed(names)
            steps = [replace(s, operands=(read,)) if s is one else s for s in self.cascade.steps]
            steps.remove(source)
            tensors = {t: tensor for t, tensor in self.cascade.tensors.items() if t != source.name}
            self.cascade = replace(self.cascade, steps=tuple(steps), tensors=tensors)
            change = f"{one.name} is loaded to every partition from {read.tensor}, without {source.name}"
            self.changes.append(f"changed: {change}")

    def without_repeats(self, nests: Nests) -> dict[str, tuple[Turn, ...]]:
        """Loops of Einsums without those in which nothing that they read changes."""
        kept = dict(nests)
        for name in self.cascade.written:
            one, looped = self.cascade.einsum(name), {t.variable for t in nests[name] if t.block == 1}
            read = {v for a in one.accesses for v in a.variables}
            whole = {v for v in looped - read if len(self.ranks.names_after(name, v.upper())) == 1}
            gained = [v for v in one.output.variables if v in whole]
            if not gained or name in self.cascade.outputs:
                continue
            self.leave_out(one.output, gained)
            self.apart.add(name)
            kept[name] = tuple(t for t in nests[name] if t.variable not in gained)
            change = f"{name} does not depend on {', '.join(v.upper() for v in gained)} and is done once"
            self.changes.append(f"changed: {change}")
        return kept

    def leave_out(self, output: Access, variables: Iterable[str]) -> None:
        """Take axes of a tensor out of all that write and read it."""
        cascade, gone = self.cascade, [n for n, i in enumerate(output.affine) if i.plain in {*variables}]

        def without(access: Access) -> Access:
            kept = tuple(i for n, i in enumerate(access.indices) if n not in gone)
            return replace(access, indices=kept) if access.tensor == output.tensor else access

        tensor = cascade.tensors[output.tensor]
        ranks = tuple(r for n, r in enumerate(tensor.ranks) if n not in gone)
        einsums = [e.changing(without) for e in cascade.einsums]
        tensors = {**cascade.tensors, tensor.name: replace(tensor, ranks=ranks)}
        self.cascade = replace(cascade, steps=tuple(einsums), tensors=tensors)

    def with_long_rows(self, name: str, nest: tuple[Turn, ...]) -> tuple[Turn, ...]:
        """The loops of a transfer without the inner ones over what lies beside its rows on both sides."""
        bound, joined = self.spec.engines.get(name), list[str]()
        einsum = self.spec.cascade.einsum(name)
        sides = [name, *(einsum.reads if self.instructions[name] != "BroadcastTo" else ())]
        consumed = list(bound.ranks if bound is not None else ())
        while nest and len(self.ranks.groups[nest[-1].number].members) == 1:
            ((_, rank),) = self.ranks.groups[nest[-1].number].members
            if self.ranks.edge_of(name, rank) or not all(
                self.goes_on(t, name, rank, consumed) for t in sides
            ):
                break
            nest, consumed, joined = nest[:-1], [*consumed, rank], [*joined, rank]
        if joined:
            change = f"the transfer of {name} takes {', '.join(joined)} too, so that its rows are longer"
            self.changes.append(f"changed: {change}")
        return nest

    def goes_on(self, tensor: str, einsum: str, rank: str, consumed: Iterable[str]) -> bool:
        """Whether a rank stands right before consumed ranks along the columns of a tensor."""
        placed = self.spec.placements.get((tensor, einsum))
        sides = {self.ranks.digit(einsum, r).base for r in placed.outer} if placed is not None else set()
        if placed is None or (placed.component != "HBM" and self.ranks.digit(einsum, rank).base in sides):
            return False
        every = placed.ranks if placed.component == "HBM" else placed.inner
        names = [r for r in every if self.ranks.size(einsum, r).value != 1]
        behind = names[names.index(rank) + 1 :] if rank in names else []
        return bool(behind) and all(r in consumed for r in behind)

    def fused(self, nests: Nests) -> dict[str, str]:
        """Element-wise Einsums, with the one in the same loops that alone reads each: it computes both."""
        fused = {}
        for one in self.cascade.einsums:
            readers = self.cascade.readers(one.name)
            both = [e for e in (one, *readers) if e.map_op and not e.reduce_op]
            if (
                len(readers) != 1
                or len(both) != 2
                or not {self.instructions[e.name] for e in both} <= ELEMENTWISE
            ):
                continue
            (reader,) = readers
            if nests[one.name] == nests[reader.name] and {*one.variables} == {*reader.variables}:
                fused[one.name] = reader.name
                change = f"{one.name} is computed on the way to {reader.name}; it has no place of its own"
                self.changes.append(f"changed: {change}")
        return fused

    def without(self, names: set[str], nests: Nests) -> Spec:
        """The specification without entries of Einsums that others compute along, and of what is changed."""
        spec, apart = self.spec, names | self.apart

        def kept(entries: Mapping[str, Held]) -> dict[str, Held]:
            return {e: value for e, value in entries.items() if e not in names}

        engines = kept(spec.engines)
        for name, bound in engines.items():
            looped = {r for t in nests[name] for e, r in self.ranks.groups[t.number].members if e == name}
            engines[name] = replace(bound, ranks=tuple(r for r in bound.ranks if r not in looped))
        placements = {
            (t, e): replace(p, unbound=() if t in self.apart else p.unbound)
            for (t, e), p in spec.placements.items()
            if not (names & {t, e} or (p.component == "HBM" and is_whole(spec)))
        }  # fmt: skip
        orders = {t: kept(order) for t, order in spec.rank_order.items() if not is_whole(spec)}
        fusion = tuple(
            replace(f, groups=tuple(tuple(m for m in g if m[0] not in apart) for g in f.groups))
            for f in spec.fusion
        )
        parts, loops, space = kept(spec.partitioning), kept(spec.loop_order), kept(spec.spacetime)
        return replace(
            spec, partitioning=parts, loop_order=loops, spacetime=space, engines=engines, rank_order=orders,
            placements=placements, fusion=fusion, dtypes=self.types(),
        )  # fmt: skip

    def types(self) -> dict[str, str]:
        """Types of all tensors: given, else that of what is copied, else float32."""
        types = dict(self.spec.dtypes)
        for einsum in self.spec.cascade.einsums:
            is_copy = not (einsum.map_op or einsum.reduce_op)
            types.setdefault(einsum.name, types.get(einsum.reads[0], "float32") if is_copy else "float32")
        return types
