"""Values along a rank that a comparison tells apart, each piece of them by itself.

`R[t, e] = -X[t, e + 64] if e < 64 else X[t, e - 64]`, the rotation of rotary embeddings, is two tensors of 64
columns side by side: in each the comparison is decided, and what it rules out is not computed. So is all that
is computed of them element by element. `W[n] = P[n // 2] / 16 if n % 2 == 1 else P[n // 2] % 16` has two that
lie between each other, and so has what pairs are turned to.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Einsum, Index, Kind, Operand, Scalar, Step
from ..language.operators import OPERATORS, RELATIONS
from ..language.subexpressions import combined

# elements of a piece at least; pieces at most that lie between each other
FEWEST, MOST_BETWEEN = 16, 4


def with_pieces(cascade: Cascade) -> Cascade:
    """The cascade with what comparisons of one variable with a number tell apart as pieces."""
    for einsum in (step for step in cascade.steps if isinstance(step, Einsum)):
        axis = _axis(einsum, cascade)
        if axis is None:
            continue
        step = _period(einsum, axis, cascade)
        if at := _border(einsum, axis, cascade) if step == 1 else step <= MOST_BETWEEN:
            pieces = _Pieces(cascade, int(at), step, _group(einsum, axis, step, cascade))
            return with_pieces(pieces.applied())
    return cascade


def _axis(einsum: Einsum, cascade: Cascade) -> int | None:
    """The axis of what an Einsum writes that its comparison is about alone; None if there is none."""
    asked = einsum.condition
    if asked is None or len(asked.variables) != 1 or not _is_map(einsum, cascade):
        return None
    axes = [n for n in range(len(einsum.output.indices)) if _period(einsum, n, cascade)]
    return next((n for n in axes if _variable(einsum, n, cascade) == asked.variables[0]), None)


def _terms(einsum: Einsum, axis: int, cascade: Cascade) -> list[tuple[int, str]]:
    """What the index of an axis that an Einsum writes is the sum of, the least step first."""
    index = einsum.output.indices[axis]
    known = index.at(cascade.sizes) if isinstance(index, Affine) else Affine()
    return sorted((c, name) for name, c in known.terms) if not known.constant else []


def _variable(einsum: Einsum, axis: int, cascade: Cascade) -> str:
    """The variable along an axis that an Einsum writes; that of the least step, where it has parts."""
    return _terms(einsum, axis, cascade)[0][1]


def _period(einsum: Einsum, axis: int, cascade: Cascade) -> int:
    """How many elements one part of an axis has that an Einsum writes in two, 1 if whole, 0 if otherwise."""
    match _terms(einsum, axis, cascade):
        case [(1, _)]:
            return 1
        case [(1, low), (step, _)] if cascade.extent(low, einsum) == step:
            return step if cascade.shape(einsum.name)[axis] >= step * FEWEST else 0
    return 0


def _is_map(einsum: Einsum, cascade: Cascade) -> bool:
    """Whether an Einsum computes each element of a tensor by itself, and nothing else writes that."""
    names = [v for i in einsum.output.indices for v in i.variables]
    is_bound = einsum.reduce_op or einsum.recurrence or any(a.gathers for a in einsum.every_access)
    is_once = len(cascade.writers(einsum.name)) == 1
    is_whole = all(_period(einsum, n, cascade) for n in range(len(einsum.output.indices)))
    return is_once and not is_bound and is_whole and len({*names}) == len(names)


def _border(einsum: Einsum, axis: int, cascade: Cascade) -> int:
    """The first value of an axis at which a comparison is decided otherwise than before; 0 for none."""
    variable = einsum.output.indices[axis].plain
    extent = cascade.extent(variable, einsum)
    if not _changes_once(einsum, variable, cascade):
        return 0
    first = _holds(einsum, {**cascade.sizes, variable: 0})
    differs = lambda at: _holds(einsum, {**cascade.sizes, variable: at}) != first  # noqa: E731
    border = bisect_left(range(extent), True, key=differs)
    return border if FEWEST <= border <= extent - FEWEST else 0


def _changes_once(einsum: Einsum, variable: str, cascade: Cascade) -> bool:
    """Whether a comparison is of a variable itself with a number, and changes at one value at most."""
    if einsum.condition is None or einsum.condition.relation in ("==", "!="):
        return False
    return not einsum.condition.difference.at({**cascade.sizes, variable: 0}).terms


def _holds(einsum: Einsum, values: Mapping[str, int]) -> bool:
    """Whether a comparison is true at values of variables and extents."""
    assert einsum.condition is not None
    return bool(RELATIONS[einsum.condition.relation](einsum.condition.difference.at(values).constant, 0))


def _group(first: Einsum, axis: int, step: int, cascade: Cascade) -> dict[str, int]:
    """What is computed element by element along with something, and the axis of each that has its pieces."""
    found, extent = {first.name: axis}, cascade.shape(first.name)[axis]
    einsums = [s for s in cascade.steps if isinstance(s, Einsum) and _is_map(s, cascade)]
    while True:
        others = ((e, _axis_beside(e, found, cascade)) for e in einsums if e.name not in found)
        own = ((e, n) for e, n in others if n is not None and _period(e, n, cascade) in (1, step))
        new = {e.name: n for e, n in own if cascade.shape(e.name)[n] == extent}
        if not new:
            return found
        found |= new


def _axis_beside(einsum: Einsum, found: Mapping[str, int], cascade: Cascade) -> int | None:
    """The axis along which an Einsum reads what has pieces, or all that read it have theirs; None if none."""
    read = {a.indices[found[a.tensor]] for a in einsum.accesses if a.tensor in found}
    axes = {_axis_of(einsum.output, index) for index in read}
    if not read and einsum.name not in cascade.outputs:
        readers = cascade.readers(einsum.name)
        own = ((e, a) for e in readers for a in e.accesses if a.tensor == einsum.name)
        axes = {_axis_of(a, e.output.indices[found[e.name]]) if e.name in found else None for e, a in own}
    return axes.pop() if len(axes) == 1 else None


def _axis_of(access: Access, index: Index) -> int | None:
    """The axis of an operand that has an index; None if it has none, or several have it."""
    return access.indices.index(index) if access.indices.count(index) == 1 else None


@dataclass
class _Pieces:
    """A cascade that is changed: some of its tensors have two pieces along an axis each."""

    cascade: Cascade
    border: int  # where the second piece begins
    step: int  # between elements of a piece: 1, or as many pieces as lie between each other
    axes: Mapping[str, int]  # of the tensors that have pieces
    # per tensor and piece that is a copy alone: the indices of what would be written, and what is read
    known: dict[tuple[str, int], tuple[list[str], Operand]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.added, self.names = Additions(self.cascade), dict[tuple[str, int], str]()
        first = next(e for e in self.cascade.einsums if e.name in self.axes)
        self.extent = self.cascade.shape(first.name)[self.axes[first.name]]
        sizes = [self.extent // self.step] * self.step
        sizes = [self.border, self.extent - self.border] if self.step == 1 else sizes
        rank = self.cascade.tensors[first.name].ranks[self.axes[first.name]]
        # pieces of one extent go through one rank, so that they can share loops
        ranks = {size: self.added.rank(rank, size) for size in dict.fromkeys(sizes)}
        self.ranks = [ranks[size] for size in sizes]

    def applied(self) -> Cascade:
        steps: list[Step] = []
        for step in self.cascade.steps:
            if not isinstance(step, Einsum) or step.name not in self.axes:
                steps.append(step)
                continue
            steps += [one for piece in range(len(self.ranks)) for one in self.written(step, piece)]
        every = self.added.tensors.items()
        self.added.tensors = {n: t for n, t in every if n not in self.axes or self.is_whole(n)}
        return self.added.applied(tuple(steps))

    def is_whole(self, name: str) -> bool:
        """Whether others than pieces read a tensor, or it is returned."""
        readers = (e for e in self.cascade.einsums if name in e.reads and e.name not in self.axes)
        return name in self.cascade.outputs or any(readers)

    def written(self, einsum: Einsum, piece: int) -> Iterator[Einsum]:
        """What stands for an Einsum: one piece of it, and the copy of that where the whole is wanted."""
        axis, own, first = self.axes[einsum.name], self.ranks[piece].lower(), piece * self.border
        variable = _variable(einsum, axis, self.cascade)
        at = self.values(einsum, own, first)
        asked, operands = einsum.condition, tuple(self.read(o, piece, at) for o in einsum.operands)
        if asked is not None and asked.variables == (variable,) and self.is_decided(einsum, variable):
            holds = _holds(einsum, {**self.cascade.sizes, variable: first})
            operands = operands if holds else (Scalar(value=einsum.otherwise),)
            einsum = replace(einsum, condition=None, map_op=einsum.map_op if holds else "")
        map_op, operands = _folded(einsum.map_op, operands)
        moved = einsum.replaced(at)
        indices = [*moved.output.indices]
        indices[axis] = Affine(((own, 1),))
        names = [i.plain for i in indices]
        if all(names) and not (map_op or einsum.condition or self.is_whole(einsum.name)):
            self.known[einsum.name, piece] = names, operands[0]
            return
        place = Access(self.named(einsum.name, piece), tuple(indices))
        yield replace(moved, output=place, operands=operands, map_op=map_op, text="")
        if self.is_whole(einsum.name):
            yield Einsum(moved.output, (place,), place=einsum.place)

    def values(self, einsum: Einsum, own: str, first: int) -> dict[str, Affine]:
        """What the variables of an axis are in a piece that begins at an element of it."""
        (_, low), *rest = _terms(einsum, self.axes[einsum.name], self.cascade)
        if rest:
            return {low: Affine(constant=first), rest[0][1]: Affine(((own, 1),))}
        return {low: Affine(((own, self.step),), first)}

    def is_decided(self, einsum: Einsum, variable: str) -> bool:
        """Whether a comparison is decided alike all over each of the pieces."""
        if self.step > 1:
            return _period(einsum, self.axes[einsum.name], self.cascade) == self.step
        ends = (0, self.border - 1, self.border, self.extent - 1)
        holds = [_holds(einsum, {**self.cascade.sizes, variable: at}) for at in ends]
        return _changes_once(einsum, variable, self.cascade) and holds[::2] == holds[1::2]

    def named(self, tensor: str, piece: int) -> str:
        """The tensor that has a piece of another."""
        ranks = [*self.cascade.tensors[tensor].ranks]
        ranks[self.axes[tensor]] = self.ranks[piece]
        name = self.added.tensor(f"{tensor}_piece", tuple(ranks), tensor, Kind.PIECE)
        return self.names.setdefault((tensor, piece), name)

    def read(self, operand: Operand, piece: int, at: Mapping[str, Affine]) -> Operand:
        """An operand of a piece: a piece itself, or part of another tensor."""
        if not isinstance(operand, Access) or operand.tensor not in self.axes:
            return operand.replaced(at)
        axis, key = self.axes[operand.tensor], (operand.tensor, piece)
        indices = [i.replaced(at) for i in operand.affine]
        indices[axis] = Affine(((self.ranks[piece].lower(), 1),))
        if key not in self.known:
            return Access(self.names[key], tuple(indices))
        names, value = self.known[key]
        values = dict(zip(names, indices, strict=True))
        return value.replaced(values)


def _folded(op: str, operands: tuple[Operand, ...]) -> tuple[str, tuple[Operand, ...]]:
    """An operator and its operands without those that change nothing."""
    if not op:
        return op, operands
    if all(isinstance(o, Scalar) for o in operands):
        value = combined(op, operands)
        return ("", (value,)) if isinstance(value, Scalar) else (op, operands)
    neutral = 0.0 if op == "subtract" else OPERATORS[op].identity
    first = operands[:1] if op == "subtract" else ()
    left = (*first, *(o for o in operands[len(first) :] if neutral is None or o != Scalar(value=neutral)))
    if op == "subtract" and left[0] == Scalar(value=0.0) and len(left) == 2:
        return "negative", left[1:]
    is_alone = len(left) == 1 and (op == "subtract" or neutral is not None)
    return ("", left) if is_alone else (op, left)
