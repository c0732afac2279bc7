"""Tensors and ranks that rewrites add to a cascade, under names out of which nothing is read."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

from .ast import Access, Cascade, Derived, Einsum, Kind, Step, Tensor, plain


class Additions:
    """What a rewrite adds to a cascade."""

    def __init__(self, cascade: Cascade) -> None:
        self.cascade, self.tensors = cascade, dict(cascade.tensors)
        self.derived, self.sizes = dict(cascade.derived), dict(cascade.sizes)

    def tensor(self, hint: str, ranks: tuple[str, ...], origin: str, kind: Kind) -> str:
        """Declare a tensor; returns its name, out of which nothing is read."""
        name = self.unused(hint)
        self.tensors[name] = Tensor(name, ranks)
        self.derived[name] = Derived(origin, kind)
        return name

    def rank(self, hint: str, size: int) -> str:
        """Declare a rank that no variable of the cascade has the name of; returns its name."""
        taken = {v.upper() for e in self.cascade.einsums for v in e.variables}
        name = unused(hint, {*self.sizes, *taken})
        self.sizes[name] = size
        return name

    def unused(self, hint: str) -> str:
        """A name that no tensor has."""
        return unused(hint, self.tensors)

    def rank_of(self, variable: str, einsum: Einsum) -> str:
        """The rank that a variable of an Einsum runs over."""
        now = replace(self.cascade, tensors=self.tensors)
        axes = (axis for access in einsum.every_access for axis in now.axes(access))
        own = next((rank for rank, index in axes if index.plain == variable), "")
        return variable.upper() if variable.upper() in self.sizes else own

    def extent(self, variable: str, einsum: Einsum) -> int:
        """How many values a variable of an Einsum takes."""
        return self.cascade.extent(variable, einsum)

    def along(self, hint: str, names: Sequence[str], einsum: Einsum, kind: Kind, origin: str = "") -> Access:
        """An access of a new tensor along variables of an Einsum, made for that or of its origin."""
        ranks = (self.rank_of(v, einsum) or self.rank(v.upper(), self.extent(v, einsum)) for v in names)
        return Access(self.tensor(hint, tuple(ranks), origin or einsum.name, kind), plain(names))

    def by(self, hint: str, ranks: Mapping[str, str], origin: str = "") -> Access:
        """An access of a new tensor by variables, given with their ranks; of the type of what it copies."""
        name = self.unused(hint)
        self.tensors[name] = Tensor(name, tuple(ranks.values()))
        self.derived |= {name: Derived(origin, Kind.PADDED)} if origin else {}
        return Access(name, plain(ranks))

    def instead(self, of: Step, others: Sequence[Step]) -> Cascade:
        """The cascade with other steps instead of one."""
        steps = self.cascade.steps
        return self.applied(tuple(s for step in steps for s in (others if step is of else (step,))))

    def applied(self, steps: tuple[Step, ...]) -> Cascade:
        """The cascade with other steps."""
        return replace(
            self.cascade, tensors=self.tensors, steps=steps, sizes=self.sizes, derived=self.derived
        )


def reading_others(
    cascade: Cascade, is_read: Callable[[Einsum, Access], bool],
    made: Callable[[Einsum, Access, Additions], Sequence[Einsum]],
) -> Cascade:  # fmt: skip
    """The cascade whose Einsums outside of blocks read tensors of their own in place of some operands.

    Args:
        is_read: whether an Einsum reads another tensor in place of an operand.
        made: what makes that tensor, before it is first read; it is read as the last of these writes it.
    """
    added, known, steps = Additions(cascade), dict[tuple[Access, tuple[str, ...]], Access](), list[Step]()
    for step in cascade.steps:
        if not isinstance(step, Einsum):
            known.clear()
            steps.append(step)
            continue
        read = [a for a in step.accesses if is_read(step, a)]
        keys = {a: (a, tuple(added.rank_of(v, step) for v in a.variables)) for a in read}
        for access in (a for a, key in keys.items() if key not in known):
            steps += (new := made(step, access, added))
            known[keys[access]] = new[-1].output
        own = {a: known[key] for a, key in keys.items()}
        operands = tuple(own.get(o, o) if isinstance(o, Access) else o for o in step.operands)
        steps.append(replace(step, operands=operands, before=step.title) if read else step)
        known = {key: copy for key, copy in known.items() if key[0].tensor != step.name}
    return added.applied(tuple(steps)) if added.tensors != cascade.tensors else cascade


def unused(hint: str, taken: Container[str]) -> str:
    """A name that nothing has yet."""
    while hint in taken:
        hint += "_"
    return hint


def free_variable(hint: str, cascade: Cascade) -> str:
    """A variable that takes its extent from what it indexes: no rank is named as it is."""
    return unused(hint, {rank.lower() for rank in cascade.sizes})
