"""Forms that stand for several Einsums: places of the largest, the largest few, sums by index.

`argmax` is the first place where the largest stands; `topk` are the largest values in order, `argtopk` their
places, along the variable that the output alone has; `Z[I[t], d] = ...` adds up what falls to the same place.
"""

from __future__ import annotations

from dataclasses import replace

from ...errors import SpecError, UnsupportedError
from .additions import Additions, free_variable
from .ast import Cascade, Einsum, Iterate, Step, Tensor
from .indices import Access, Affine, Digit, Gather, Position, Scalar, plain

# what a value that was taken is before less by
TAKEN = 3e38
LARGEST, PLACE_OF_LARGEST = "topk", "argtopk"
# reductions to places, and of which operator
PLACES = {"argmax": "maximum", "argmin": "minimum"}
REDUCTIONS = (*PLACES, LARGEST, PLACE_OF_LARGEST)


def written_out(cascade: Cascade) -> Cascade:
    """A cascade, every rank of which has an extent, with the Einsums that its shorthand stands for.

    Raises:
        SpecError: where shorthand has no meaning.
    """
    computed = any(a.tensor in cascade.written for e in cascade.einsums for a in e.accesses if a.gathers)
    if not computed and not any(e.reduce_op in REDUCTIONS or e.output.gathers for e in cascade.einsums):
        return cascade
    expansion = _Expansion(cascade)
    for einsum, block in cascade.walk():
        if block is not None and einsum.reduce_op in (LARGEST, PLACE_OF_LARGEST):
            raise _refused(einsum, "stands in an iterate block", "use max and argmax there")
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
        self.cascade, self.added, self.taken = cascade, Additions(cascade), list[Step]()

    def steps(self, step: Step) -> list[Step]:
        """What a step stands for."""
        if step in self.taken:
            return []
        if isinstance(step, Einsum) and step.reduce_op in (LARGEST, PLACE_OF_LARGEST):
            *before, last = self.chosen(step)
            return [*before, *self.largest(last, self.other_of(step))]
        body = [own for einsum in step.body for chosen in self.chosen(einsum) for own in self.einsums(chosen)]
        return [step.with_body(body)] if isinstance(step, Iterate) else [*body]

    def einsums(self, einsum: Einsum) -> list[Einsum]:
        """What an Einsum stands for."""
        if einsum.output.gathers:
            return self.sums_by_index(einsum)
        return self.places(einsum) if einsum.reduce_op in PLACES else [einsum]

    def tensor(self, einsum: Einsum, hint: str, *variables: str, ranks: tuple[str, ...] = ()) -> Access:
        """A new tensor over variables of an Einsum, and then over other ranks."""
        name = self.added.unused(f"{einsum.name}_{hint}")
        own = tuple(self.added.rank_of(v, einsum) for v in variables)
        self.added.tensors[name] = Tensor(name, (*own, *ranks))
        return Access(name, plain(variables))

    def mapped(self, einsum: Einsum) -> tuple[Einsum, Access, str]:
        """The map of an Einsum as a tensor of its own, and the variable that is reduced."""
        if len(einsum.reduced) != 1:
            over = ", ".join(einsum.reduced) or "none"
            raise _refused(einsum, f"runs over one variable; here it is {over}", "reduce one after the other")
        values = self.tensor(einsum, "values", *(v for v in einsum.variables if v in _right(einsum)))
        return replace(einsum, output=values, reduce_op="", text=""), values, einsum.reduced[0]

    def places(self, einsum: Einsum) -> list[Einsum]:
        """The first place of the largest, or of the smallest."""
        first, values, over = self.mapped(einsum)
        best = self.tensor(einsum, "best", *einsum.output.variables)
        reduced = Einsum(best, (values,), reduce_op=PLACES[einsum.reduce_op], place=einsum.place)
        return [first, reduced, *self.first(einsum, values, best, over, einsum.output)]

    def first(self, einsum: Einsum, values: Access, best: Access, over: str, place: Access) -> list[Einsum]:
        """The first place along a variable where a value is the best."""
        every = (*(v for v in values.variables if v in best.variables and v != over), over)
        here, back = (self.tensor(einsum, hint, *every) for hint in ("here", "back"))
        behind = self.tensor(einsum, "behind", *every[:-1])
        extent = self.added.extent(over, einsum)
        return [
            Einsum(here, (values, best), "equal", place=einsum.place),
            Einsum(back, (here, Position(Affine(((over, -1),), extent))), "multiply", place=einsum.place),
            Einsum(behind, (back,), reduce_op="maximum", place=einsum.place),
            Einsum(place, (Scalar(value=extent), behind), "subtract", place=einsum.place, before=einsum.text),
        ]

    def other_of(self, einsum: Einsum) -> Access | None:
        """Where the places of the same largest values go, or these; None if nobody asks for both."""
        kinds = {LARGEST: PLACE_OF_LARGEST, PLACE_OF_LARGEST: LARGEST}
        for other in (s for s in self.cascade.steps if isinstance(s, Einsum)):
            output = replace(other.output, tensor=einsum.name)
            is_same = replace(other, output=output, reduce_op=einsum.reduce_op) == einsum
            shapes = {self.cascade.shape(e.name) for e in (einsum, other)}
            if kinds[einsum.reduce_op] == other.reduce_op and is_same and len(shapes) == 1:
                self.taken.append(other)
                return other.output
        return None

    def largest(self, einsum: Einsum, asked: Access | None) -> list[Step]:
        """The largest values along a variable of the output alone, or their places: one after the other."""
        turns = [v for v in einsum.output.variables if v not in _right(einsum)]
        if len(turns) != 1:
            hint = f"write {einsum.name}[m, k] = X[m, n] ;; V {einsum.reduce_op}"
            raise _refused(einsum, "needs a variable of the output alone, which counts what is taken", hint)
        first, values, over = self.mapped(einsum)
        turn, every = turns[0], values.variables
        kept = [v for v in every if v != over]
        rank = self.added.rank(f"{turn.upper()}_LEFT", self.added.extent(turn, einsum) + 1)
        shape = (rank, *self.added.tensors[values.tensor].ranks)
        left = replace(self.tensor(einsum, "left", ranks=shape), indices=(*plain([turn]), *values.indices))
        is_place = einsum.reduce_op == PLACE_OF_LARGEST
        other = asked or self.tensor(einsum, "best" if is_place else "place", *kept)
        best, place = (other, einsum.output) if is_place else (einsum.output, other)
        out, less = (self.tensor(einsum, hint, *every) for hint in ("out", "less"))
        following = replace(left, indices=(Affine(((turn, 1),), 1), *values.indices))
        body = (
            Einsum(best, (left,), reduce_op="maximum", place=einsum.place),
            *self.first(einsum, left, best, over, place),
            Einsum(out, (Position(*plain([over])), place), "equal", place=einsum.place),
            Einsum(less, (out, Scalar(value=-TAKEN)), "multiply", place=einsum.place),
            Einsum(following, (left, less), "add", place=einsum.place),
        )
        begun = Einsum(replace(left, indices=(Affine(), *values.indices)), (values,), place=einsum.place)
        return [first, begun, Iterate(turn, body, einsum.place)]

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
