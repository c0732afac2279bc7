"""Einsums of a partial mapping in the words that instructions have: two operands at most, plain indices.

Longer products become products of two, other maps a chain; a tensor of one element gets a rank of one; where
a condition stands beside a sum, the terms get an Einsum of their own; an operand that is indexed otherwise
than by its variables is copied first. What is given for an Einsum holds for all that it is taken apart into,
as far as each of them has the ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Einsum, Iterate, Operand, Scalar, Step, Tensor
from ..language.spec import Spec
from ..plan.normal import paired
from ..roofline import is_contraction


def given_names(spec: Spec) -> set[str]:
    """Einsums that a mapping says something about."""
    found = {*spec.partitioning, *spec.loop_order, *spec.spacetime, *spec.engines}
    found |= {e for f in spec.fusion for g in f.groups for e, _ in g}
    return found | {e for _, e in spec.placements} | {e for held in spec.rank_order.values() for e in held}


def clipped(spec: Spec) -> Spec:
    """A specification whose parts are no larger than what is split: a rank of 3 has no part of 128."""
    sizes = spec.cascade.sizes
    splits = {
        einsum: {r: _clipped(shapes, sizes[r]) if r in sizes else shapes for r, shapes in held.items()}
        for einsum, held in spec.partitioning.items()
    }
    return replace(spec, partitioning=splits)


def _clipped(shapes: tuple[int, ...], size: int) -> tuple[int, ...]:
    found: list[int] = []
    for part in reversed(shapes):
        inner = found[0] if found else 1
        found.insert(0, min(part, -(-size // inner) * inner))
    return tuple(found)


def is_plain(einsum: Einsum) -> bool:
    """Whether an Einsum reads tensors, and every index of it is a variable of its own."""
    accesses = (einsum.output, *einsum.accesses)
    return bool(einsum.accesses) and all(has_plain_indices(a) for a in accesses)


def has_plain_indices(access: Access) -> bool:
    """Whether every index is a variable, each another one."""
    found = [i.plain for i in access.indices]
    return all(found) and len(set(found)) == len(found)


class Words:
    """Rewrites a specification.

    Args:
        spec: with extents.
        names: Einsums to rewrite, others stay as they are.
    """

    def __init__(self, spec: Spec, names: set[str]) -> None:
        self.spec, self.names = spec, names
        self.tensors = dict(spec.cascade.tensors)
        self.sizes = dict(spec.cascade.sizes)
        self.homes: dict[str, str] = {}
        self.notes: list[str] = []
        self.unit = self.free_rank()

    def free_rank(self) -> str:
        """A name for the rank of what has one element."""
        name = "ONE"
        while name in self.sizes or any(name in t.ranks for t in self.tensors.values()):
            name += "E"
        return name

    def rewritten(self) -> Spec:
        """The specification in plain words."""
        steps: list[Step] = []
        for step in self.spec.cascade.steps:
            if isinstance(step, Iterate) or step.name not in self.names:
                steps.append(step)
            else:
                steps += self.einsum(step)
        cascade = replace(self.spec.cascade, steps=tuple(steps), tensors=self.tensors, sizes=self.sizes)
        cascade = self.with_units(cascade)
        return self.shared(replace(self.spec, cascade=cascade))

    # Einsums

    def fresh(self, hint: str, variables: Sequence[str], like: Einsum) -> Access:
        """A new tensor, a part of an Einsum."""
        name, number = hint, 2
        while name in self.tensors or name in self.spec.cascade.scalars:
            name, number = f"{hint}{number}", number + 1
        for variable in variables:
            self.sizes.setdefault(variable.upper(), self.spec.cascade.extent(variable, like))
        self.tensors[name] = Tensor(name, tuple(v.upper() for v in variables))
        self.homes[name] = like.name
        return Access(name, tuple(Affine(((v, 1),)) for v in variables))

    def einsum(self, einsum: Einsum) -> list[Einsum]:
        """An Einsum as Einsums of one instruction each, as far as that is a matter of words."""
        before: list[Einsum] = []
        einsum = self.with_plain_operands(einsum, before)
        if len(einsum.accesses) > 2:
            added = Additions(replace(self.spec.cascade, tensors=self.tensors, sizes=self.sizes))
            *pairs, einsum = paired(einsum, added)
            self.tensors |= added.tensors
            self.homes |= {p.name: einsum.name for p in pairs}
            for pair in pairs:
                before += self.pieces(replace(pair, place=einsum.place))
        after = self.pieces(einsum)
        made = [e.name for e in (*before, *after) if e.name != einsum.name]
        if made:
            self.notes.append(f"completed: {einsum.name} is taken apart into {', '.join(made)} and itself")
        return [*before, *after]

    def with_plain_operands(self, einsum: Einsum, before: list[Einsum]) -> Einsum:
        """Operands with other indices than their variables are copied first."""
        copies: dict[str, Access] = {}
        for access in einsum.accesses:
            if has_plain_indices(access) or str(access) in copies:
                continue
            copy = self.fresh(f"{access.tensor}_for_{einsum.name}", access.variables, einsum)
            copies[str(access)] = copy
            before.append(Einsum(copy, (access,), text=f"{copy} = {access}", place=einsum.place))
            del self.homes[copy.tensor]
        operands = tuple(copies.get(str(o), o) for o in einsum.operands)
        return replace(einsum, operands=operands)

    def pieces(self, einsum: Einsum) -> list[Einsum]:
        """A map of two operands at most, with a condition or with a sum."""
        if not einsum.reduced:
            # a sum of one term is the term
            einsum = replace(einsum, reduce_op="")
        if is_contraction(einsum) and len(einsum.accesses) == 2:
            return self.product(einsum)
        found: list[Einsum] = []
        count = len(einsum.operands)
        if einsum.reduce_op and einsum.condition is not None:
            terms = self.fresh(f"{einsum.name}_terms", einsum.variables, einsum)
            found += self.pieces(replace(einsum, output=terms, reduce_op="", text=""))
            return [*found, replace(einsum, operands=(terms,), map_op="", condition=None, text="")]
        while count > 2:
            first, second, *rest = einsum.operands
            variables = union((first, second))
            part = self.fresh(f"{einsum.name}_part", variables, einsum)
            found.append(Einsum(part, (first, second), einsum.map_op, place=einsum.place))
            einsum = replace(einsum, operands=(part, *rest), text="")
            count -= 1
        return [*found, einsum]

    def product(self, einsum: Einsum) -> list[Einsum]:
        """A sum of products of two tensors; what stands beside it, a factor or a condition, apart."""
        found: list[Einsum] = []
        condition = einsum.condition
        if condition is not None:
            operand = next((a for a in einsum.accesses if set(condition.variables) <= set(a.variables)), None)
            if operand is None or einsum.otherwise != 0:
                terms = self.fresh(f"{einsum.name}_terms", einsum.variables, einsum)
                found += self.pieces(replace(einsum, output=terms, reduce_op="", text=""))
                return [*found, replace(einsum, operands=(terms,), map_op="", condition=None, text="")]
            masked = self.fresh(f"{operand.tensor}_masked", operand.variables, einsum)
            one = replace(einsum, output=masked, operands=(operand,), map_op="", reduce_op="", text="")
            found.append(one)
            operands = tuple(masked if o is operand else o for o in einsum.operands)
            einsum = replace(einsum, operands=operands, condition=None, text="")
        scalars = [o for o in einsum.operands if isinstance(o, Scalar)]
        if not scalars:
            return [*found, einsum]
        total = self.fresh(f"{einsum.name}_plain", einsum.output.variables, einsum)
        found.append(replace(einsum, output=total, operands=einsum.accesses, text=""))
        for n, scalar in enumerate(scalars):
            last = n == len(scalars) - 1
            out = einsum.output if last else self.fresh(f"{einsum.name}_part", total.variables, einsum)
            found.append(Einsum(out, (total, scalar), "multiply", place=einsum.place))
            total = out
        return found

    # tensors of one element

    def with_units(self, cascade: Cascade) -> Cascade:
        """A rank of one for tensors that have none, where Einsums with a mapping use them."""
        used = {t for e in self.mapped(cascade) for t in (e.name, *e.reads)}
        bare = {name for name in used if not self.tensors[name].ranks}
        if not bare:
            return cascade
        index = Affine(((self.unit.lower(), 1),))

        def held(access: Access) -> Access:
            return replace(access, indices=(index,)) if access.tensor in bare else access

        def changed(einsum: Einsum) -> Einsum:
            operands = tuple(held(o) if isinstance(o, Access) else o for o in einsum.operands)
            return replace(einsum, output=held(einsum.output), operands=operands)

        steps = tuple(
            replace(s, body=tuple(map(changed, s.body))) if isinstance(s, Iterate) else changed(s)
            for s in cascade.steps
        )
        tensors = {n: replace(t, ranks=(self.unit,)) if n in bare else t for n, t in self.tensors.items()}
        return replace(cascade, steps=steps, tensors=tensors, sizes={**self.sizes, self.unit: 1})

    def mapped(self, cascade: Cascade) -> Iterable[Einsum]:
        names = self.names | set(self.homes)
        return (e for e, block in cascade.walk() if block is None and e.name in names)

    # what is given

    def shared(self, spec: Spec) -> Spec:
        """What is given for an Einsum, for the Einsums that it is taken apart into too."""
        splits, orders = dict(spec.partitioning), dict(spec.loop_order)
        spaces = dict(spec.spacetime)
        held = {e.name: e for e in spec.cascade.einsums}
        parts = {**self.homes, **{h: h for h in self.homes.values()}}
        for name, home in parts.items():
            ranks = {v.upper() for v in held[name].variables}
            given = self.spec.partitioning.get(home, {})
            own = {r: s for r, s in given.items() if r in ranks}
            names = ranks | {f"{r}{n}" for r, s in own.items() for n in range(len(s) + 1)}
            if own or home in self.spec.partitioning:
                splits[name] = own
            if home in self.spec.loop_order:
                orders[name] = tuple(r for r in self.spec.loop_order[home] if r in names)
            if home in self.spec.spacetime:
                space, time = self.spec.spacetime[home]
                both = (tuple(r for r in s if r in names) for s in (space, time))
                spaces[name] = tuple(both)  # type: ignore[assignment]
        return replace(
            spec, partitioning={e: s for e, s in splits.items() if s},
            loop_order={e: o for e, o in orders.items() if o}, spacetime=spaces,
        )  # fmt: skip


def union(operands: Sequence[Operand]) -> tuple[str, ...]:
    """Variables of operands, in order of first appearance."""
    return tuple(dict.fromkeys(v for o in operands for v in o.variables))
