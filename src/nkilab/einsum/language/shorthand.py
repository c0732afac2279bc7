"""Forms that stand for several Einsums: places of the largest, the largest few, sums by index.

`argmax` is the first place where the largest stands; `topk` are the largest values in order, `argtopk` their
places, along the variable that the output alone has; `Z[I[t], d] = ...` adds up what falls to the same place.
"""

from __future__ import annotations

from dataclasses import replace

from ...errors import SpecError, UnsupportedError
from .additions import Additions, free_variable
from .ast import Cascade, Einsum, Iterate, Recurrence, Step, Tensor
from .indices import Access, Digit, Gather, Position, plain

LARGEST, PLACE_OF_LARGEST = "topk", "argtopk"
PLACES = ("argmax", "argmin", PLACE_OF_LARGEST)
REDUCTIONS = (*PLACES, LARGEST)


def written_out(cascade: Cascade) -> Cascade:
    """A cascade, every rank of which has an extent, with the Einsums that its shorthand stands for.

    Raises:
        SpecError: where shorthand has no meaning.
    """
    computed = any(a.tensor in cascade.written for e in cascade.einsums for a in e.accesses if a.gathers)
    if not computed and not any(e.reduce_op in REDUCTIONS or e.output.gathers for e in cascade.einsums):
        return cascade
    expansion = _Expansion(cascade)
    steps = tuple(own for step in cascade.steps for own in expansion.steps(step))
    return replace(expansion.added.applied(steps), indexing=cascade.index_ranks)


def need_instructions(cascade: Cascade) -> None:
    """Refuse Einsums that no single instruction computes, where a mapping names that of each.

    Raises:
        UnsupportedError: at the first.
    """
    for einsum in cascade.einsums:
        is_counted = einsum.positions or any(isinstance(n, Digit) for i in einsum.indices for n, _ in i.terms)
        if is_counted or einsum.output.gathers or einsum.reduce_op in REDUCTIONS:
            problem = "a mapping that names every instruction has none for this expression"
            raise einsum.located(UnsupportedError(problem, hint="leave binding.engine out, or a part of it"))


def _refused(einsum: Einsum, problem: str, hint: str) -> SpecError:
    return einsum.located(SpecError(f"{einsum.reduce_op or einsum.output} {problem}", hint=hint))


class _Expansion:
    """Writes the shorthand of a cascade out."""

    def __init__(self, cascade: Cascade) -> None:
        self.cascade, self.added = cascade, Additions(cascade)

    def steps(self, step: Step) -> list[Step]:
        """What a step stands for."""
        body = [own for einsum in step.body for chosen in self.chosen(einsum) for own in self.einsums(chosen)]
        return [step.with_body(body)] if isinstance(step, Iterate) else [*body]

    def einsums(self, einsum: Einsum) -> list[Einsum]:
        """What an Einsum stands for."""
        if einsum.output.gathers:
            return self.sums_by_index(einsum)
        return self.choice(einsum) if einsum.reduce_op in REDUCTIONS else [einsum]

    def tensor(self, einsum: Einsum, hint: str, *variables: str, ranks: tuple[str, ...] = ()) -> Access:
        """A new tensor over variables of an Einsum, and then over other ranks."""
        name = self.added.unused(f"{einsum.name}_{hint}")
        own = tuple(self.added.rank_of(v, einsum) for v in variables)
        self.added.tensors[name] = Tensor(name, (*own, *ranks))
        return Access(name, plain(variables))

    def choice(self, einsum: Einsum) -> list[Einsum]:
        """The largest along a variable, or their places; those of the smallest are of the negated values."""
        if len(einsum.reduced) != 1:
            over = ", ".join(einsum.reduced) or "none"
            raise _refused(einsum, f"runs over one variable; here it is {over}", "reduce one after the other")
        counted, (over,) = [v for v in einsum.output.variables if v not in _right(einsum)], einsum.reduced
        if einsum.reduce_op in (LARGEST, PLACE_OF_LARGEST) and len(counted) != 1:
            hint = f"write {einsum.name}[m, k] = X[m, n] ;; V {einsum.reduce_op}"
            raise _refused(einsum, "needs a variable of the output alone, which counts what is taken", hint)
        sizes = [self.added.extent(v, einsum) for v in (*counted, over)]
        if len(sizes) > 1 and sizes[0] > sizes[1]:
            raise _refused(
                einsum, f"asks for {sizes[0]} of {sizes[1]} values", "ask for no more than there are"
            )
        values = self.tensor(einsum, "values", *(v for v in einsum.variables if v in _right(einsum)))
        steps = [replace(einsum, output=values, reduce_op="", text="")]
        if einsum.reduce_op == "argmin":
            negated = self.tensor(einsum, "negated", *values.variables)
            steps.append(Einsum(negated, (values,), "negative", place=einsum.place))
        kind = "largest" if einsum.reduce_op == LARGEST else "places"
        known = Recurrence(over, kind, counted="".join(counted))
        last = replace(
            steps[0], output=einsum.output, operands=(steps[-1].output,), map_op="", condition=None
        )
        return [*steps, replace(last, before=einsum.text, recurrence=known)]

    def sums_by_index(self, einsum: Einsum) -> list[Einsum]:
        """Sums of what falls to the same place: products with ones where the index is that place."""
        if einsum.reduce_op != "add":
            problem = "is written where a tensor says, perhaps twice"
            hint = f"write {einsum.output} += ..., or ';; V add': what falls together is added up"
            raise _refused(replace(einsum, reduce_op=""), problem, hint)
        before, operands = list[Einsum](), tuple(einsum.operands)
        if einsum.map_op not in ("", "multiply") or einsum.condition is not None:
            values = self.tensor(einsum, "values", *_right(einsum))
            before.append(replace(einsum, output=values, reduce_op="", text=""))
            operands = (values,)
        equal, output, ones = self.places_of(einsum, einsum.output)
        operands = (*operands, *ones)
        total = Einsum(output, operands, "multiply", "add", place=einsum.place, before=einsum.text)
        return [*before, *equal, total]

    def places_of(self, einsum: Einsum, access: Access) -> tuple[list[Einsum], Access, list[Access]]:
        """Ones where indices that tensors hold are a place, an access by these places, and the ones."""
        indices, steps, every = list(access.indices), list[Einsum](), list[Access]()
        for axis, (rank, index) in enumerate(self.cascade.axes(access)):
            if isinstance(index, Gather):
                place = rank.lower()
                place = free_variable(place, self.added.cascade) if place in einsum.variables else place
                ones = self.tensor(einsum, "ones", *index.variables, ranks=(rank,))
                (indices[axis],) = plain([place])
                every.append(replace(ones, indices=(*ones.indices, indices[axis])))
                equal = (index.access, Position(*plain([place])))
                steps.append(Einsum(every[-1], equal, "equal", place=einsum.place))
        return steps, replace(access, indices=tuple(indices)), every

    def chosen(self, einsum: Einsum) -> list[Einsum]:
        """An Einsum behind what it gathers of computed tensors: no transfer by indices awaits a store."""
        steps: list[Einsum] = []
        for access in (a for a in einsum.accesses if a.gathers and a.tensor in self.cascade.written):
            equal, source, ones = self.places_of(einsum, access)
            rows = self.tensor(einsum, "rows", *access.variables)
            product = Einsum(rows, (source, *ones), "multiply", "add", place=einsum.place)
            steps += [*equal, product]
            einsum = einsum.reading(lambda a, old=access, new=rows: new if a == old else a)  # type: ignore[misc]
        return [*steps, einsum]


def _right(einsum: Einsum) -> tuple[str, ...]:
    """Variables of the operands of an Einsum."""
    return tuple(dict.fromkeys(v for o in einsum.operands for v in o.variables))
