"""Values along a rank that a comparison tells apart, each piece of them by itself.

`R[t, e] = -X[t, e + 64] if e < 64 else X[t, e - 64]`, the rotation of rotary embeddings, is two tensors of 64
columns side by side: in each the comparison is decided, and what it rules out is not computed. So is all that
is computed of them element by element.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..language.additions import Additions
from ..language.ast import Access, Affine, Cascade, Einsum, Kind, Operand, Scalar, Step, plain
from ..language.operators import OPERATORS, RELATIONS
from ..language.subexpressions import combined

# elements of a piece at least
FEWEST = 16


def with_pieces(cascade: Cascade) -> Cascade:
    """The cascade with what comparisons of one variable with a number tell apart as pieces."""
    for einsum in (step for step in cascade.steps if isinstance(step, Einsum)):
        axis = _axis(einsum, cascade)
        if axis is not None and (at := _border(einsum, axis, cascade)):
            return with_pieces(_Pieces(cascade, at, _group(einsum, axis, cascade)).applied())
    return cascade


def _axis(einsum: Einsum, cascade: Cascade) -> int | None:
    """The axis of what an Einsum writes that its comparison is about alone; None if there is none."""
    asked = einsum.condition
    if asked is None or len(asked.variables) != 1 or not _is_map(einsum, cascade):
        return None
    return next((n for n, i in enumerate(einsum.output.indices) if i.plain == asked.variables[0]), None)


def _is_map(einsum: Einsum, cascade: Cascade) -> bool:
    """Whether an Einsum computes each element of a tensor by itself, and nothing else writes that."""
    names = [i.plain for i in einsum.output.indices]
    is_bound = einsum.reduce_op or einsum.recurrence or any(a.gathers for a in einsum.every_access)
    is_once = sum(e.name == einsum.name for e in cascade.einsums) == 1
    return is_once and not is_bound and all(names) and len({*names}) == len(names)


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


def _group(first: Einsum, axis: int, cascade: Cascade) -> dict[str, int]:
    """What is computed element by element along with something, and the axis of each that has its pieces."""
    found, extent = {first.name: axis}, cascade.shape(first.name)[axis]
    einsums = [s for s in cascade.steps if isinstance(s, Einsum) and _is_map(s, cascade)]
    while True:
        others = ((e, _axis_beside(e, found, cascade)) for e in einsums if e.name not in found)
        new = {e.name: n for e, n in others if n is not None and cascade.shape(e.name)[n] == extent}
        if not new:
            return found
        found |= new


def _axis_beside(einsum: Einsum, found: Mapping[str, int], cascade: Cascade) -> int | None:
    """The axis along which an Einsum reads what has pieces, or all that read it have theirs; None if none."""
    read = {a.indices[found[a.tensor]].plain for a in einsum.accesses if a.tensor in found}
    axes = {einsum.output.axis_of(variable) if variable else None for variable in read}
    if not read and einsum.name not in cascade.outputs:
        readers = [e for e in cascade.einsums if einsum.name in e.reads]
        own = ((e, a) for e in readers for a in e.accesses if a.tensor == einsum.name)
        axes = {a.axis_of(e.output.indices[found[e.name]].plain) if e.name in found else None for e, a in own}
    return axes.pop() if len(axes) == 1 else None


@dataclass
class _Pieces:
    """A cascade that is changed: some of its tensors have two pieces along an axis each."""

    cascade: Cascade
    border: int
    axes: Mapping[str, int]  # of the tensors that have pieces
    # per tensor and piece that is a copy alone: the indices of what would be written, and what is read
    known: dict[tuple[str, int], tuple[list[str], Operand]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.added, self.names = Additions(self.cascade), dict[tuple[str, int], str]()
        first = next(e for e in self.cascade.einsums if e.name in self.axes)
        self.extent = self.cascade.shape(first.name)[self.axes[first.name]]
        sizes = dict.fromkeys((self.border, self.extent - self.border))
        rank = self.cascade.tensors[first.name].ranks[self.axes[first.name]]
        # halves go through one rank, so that they can share loops
        self.ranks = tuple(self.added.rank(rank, size) for size in sizes) * (3 - len(sizes))

    def applied(self) -> Cascade:
        steps: list[Step] = []
        for step in self.cascade.steps:
            if not isinstance(step, Einsum) or step.name not in self.axes:
                steps.append(step)
                continue
            steps += [one for piece in (0, 1) for one in self.written(step, piece)]
        every = self.added.tensors.items()
        self.added.tensors = {n: t for n, t in every if n not in self.axes or self.is_whole(n)}
        return self.added.applied(tuple(steps))

    def is_whole(self, name: str) -> bool:
        """Whether others than pieces read a tensor, or it is returned."""
        readers = (e for e in self.cascade.einsums if name in e.reads and e.name not in self.axes)
        return name in self.cascade.outputs or any(readers)

    def written(self, einsum: Einsum, piece: int) -> Iterator[Einsum]:
        """What stands for an Einsum: one piece of it, and the copy of that where the whole is wanted."""
        variable, own = einsum.output.indices[self.axes[einsum.name]].plain, self.ranks[piece].lower()
        at = {variable: Affine(((own, 1),), piece * self.border)}
        asked, operands = einsum.condition, tuple(self.read(o, piece, at) for o in einsum.operands)
        if asked is not None and asked.variables == (variable,) and self.is_decided(einsum, variable):
            holds = _holds(einsum, {**self.cascade.sizes, variable: piece * self.border})
            operands = operands if holds else (Scalar(value=einsum.otherwise),)
            einsum = replace(einsum, condition=None, map_op=einsum.map_op if holds else "")
        map_op, operands = _folded(einsum.map_op, operands)
        moved = einsum.with_indices(lambda index: index.replaced(at))
        names = [i.plain or own for i in moved.output.indices]
        if not (map_op or einsum.condition or self.is_whole(einsum.name)):
            self.known[einsum.name, piece] = names, operands[0]
            return
        place = Access(self.named(einsum.name, piece), plain(names))
        yield replace(moved, output=place, operands=operands, map_op=map_op, text="")
        if self.is_whole(einsum.name):
            yield Einsum(moved.output, (place,), place=einsum.place)

    def is_decided(self, einsum: Einsum, variable: str) -> bool:
        """Whether a comparison is decided alike all over each of the pieces."""
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
            return operand.with_indices(lambda index: index.replaced(at))
        axis, key = self.axes[operand.tensor], (operand.tensor, piece)
        indices = [i.replaced(at) for i in operand.affine]
        indices[axis] = Affine(((self.ranks[piece].lower(), 1),))
        if key not in self.known:
            return Access(self.names[key], tuple(indices))
        names, value = self.known[key]
        values = dict(zip(names, indices, strict=True))
        return value.with_indices(lambda index: index.replaced(values))


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
