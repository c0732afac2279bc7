"""Extents: every rank and rank variable gets a size, or the key that lacks one is named."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby

from ...errors import SpecError
from .ast import (
    Access,
    Affine,
    Around,
    Cascade,
    Digit,
    Einsum,
    Gather,
    Iterate,
    Operand,
    Position,
    Scalar,
    Step,
    Tensor,
    block_extent,
    is_variable,
)  # fmt: skip
from .carried import with_blocks
from .digits import without_digits
from .operators import OPERATORS
from .shorthand import PLACES, written_out


def sized(cascade: Cascade, sizes: Mapping[str, int] | None = None) -> Cascade:
    """A cascade in which every rank has an extent.

    Raises:
        SpecError: if a rank has none or two, or what an iteration writes lies outside its tensor.
    """
    known = merged_sizes(cascade, sizes or {})
    known = replace(known, sizes={**_reached(known), **known.sizes})
    known = replace(known, sizes={**_kept(known), **known.sizes})
    if missing := next(
        ((t, r) for t in cascade.tensors.values() for r in t.ranks if r not in known.sizes), None
    ):
        raise _no_extent(*missing, known)
    for einsum, block in known.walk():
        _check_periods(einsum, _extents(einsum, block, known), known)
    known = _with_own_variables(known)
    for einsum, block in known.walk():
        _extents(einsum, block, known)
    known = with_blocks(_with_numbers(known))
    parted = without_digits(known)
    for einsum, block in parted.walk():
        _check_bounds(einsum, _extents(einsum, block, parted), parted)
    steps = (s.with_body(e.with_indices(lambda i: i.at(parted.sizes)) for e in s.body) for s in parted.steps)
    return written_out(replace(parted, steps=tuple(steps)))


def _with_own_variables(cascade: Cascade) -> Cascade:
    """A cascade whose variables run over longer ranks than their own where they index nothing else.

    `D[0, j] = j` writes all of a row, although J is shorter.
    """

    def changed(einsum: Einsum, turn: str) -> Einsum:
        axes = [axis for a in einsum.every_access for axis in cascade.axes(a)]
        ranks = {
            v: {rank for rank, i in axes if v in i.variables} for v in einsum.output.variables if v != turn
        }
        bent = {v for _, i in axes if not i.plain for v in i.variables}
        own_parts = {name for name, formula in opened.items() if formula and formula == einsum.formula}
        bent |= {v for a in einsum.accesses if a.tensor not in own_parts for v in a.variables}
        names = {v: own.pop() for v, own in ranks.items() if v not in bent and len(own) == 1}
        names = {
            v: rank.lower() for v, rank in names.items()
            if v.upper() in cascade.sizes and cascade.sizes[v.upper()] < cascade.sizes[rank]
            and rank.lower() not in einsum.variables
        }  # fmt: skip
        opened.update({einsum.name: einsum.formula} if names else {})
        return einsum.renamed(names) if names else einsum

    opened = dict[str, str]()
    turns = ((s, s.variable if isinstance(s, Iterate) else "") for s in cascade.steps)
    return replace(cascade, steps=tuple(s.with_body(changed(e, turn) for e in s.body) for s, turn in turns))


def _with_numbers(cascade: Cascade) -> Cascade:
    """A cascade with numbers for what extents alone decide, such as the count of a mean."""
    known: dict[str, Scalar] = {}
    steps: list[Step] = []
    for step in cascade.steps:
        step = step.with_body([_counted(einsum, known, cascade) for einsum in step.body])
        if isinstance(step, Einsum) and step.name not in cascade.outputs and _is_number(step):
            known[step.name] = Scalar(value=OPERATORS[step.map_op].on(*(o.value for o in step.operands)))  # type: ignore[union-attr]
        else:
            steps.append(step)
    tensors = {name: tensor for name, tensor in cascade.tensors.items() if name not in known}
    return replace(cascade, tensors=tensors, steps=tuple(steps))


def _counted(einsum: Einsum, known: Mapping[str, Scalar], cascade: Cascade) -> Einsum:
    """An Einsum with numbers for extents and for what is known; by a number it multiplies."""

    def number(operand: Operand) -> Operand:
        if isinstance(operand, Position) and not (at := operand.index.at(cascade.sizes)).terms:
            return Scalar(value=at.constant)
        if isinstance(operand, Scalar) and operand.name in cascade.sizes.keys() - cascade.scalars.keys():
            return Scalar(value=cascade.sizes[operand.name])
        return known.get(operand.tensor, operand) if isinstance(operand, Access) else operand

    *others, last = map(number, einsum.operands)
    if einsum.map_op == "divide" and isinstance(last, Scalar) and not last.name and last.value:
        return replace(einsum, map_op="multiply", operands=(*others, Scalar(value=1.0 / last.value)))
    return replace(einsum, operands=(*others, last))


def _is_number(einsum: Einsum) -> bool:
    """Whether an Einsum writes one number, which its operator makes of numbers."""
    is_one = not einsum.output.indices and einsum.map_op and not (einsum.condition or einsum.reduce_op)
    return bool(is_one) and all(isinstance(o, Scalar) and not o.name for o in einsum.operands)


def merged_sizes(cascade: Cascade, sizes: Mapping[str, int]) -> Cascade:
    """A cascade with further extents.

    Raises:
        SpecError: if one contradicts those it has.
    """
    held = dict(cascade.sizes)
    for rank, size in sizes.items():
        if held.setdefault(rank, int(size)) != size:
            raise SpecError(
                f"rank {rank} is {held[rank]} in the specification and {size} is asked for",
                hint="leave one of them out",
            )
    return replace(cascade, sizes=held)


def sizes_of_arrays(cascade: Cascade, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Extents of ranks that shapes of tensors tell.

    Raises:
        SpecError: if a shape does not fit its declaration, or two tell different extents.
    """
    found, places = dict(cascade.sizes), dict.fromkeys(cascade.sizes, "as given")
    for name, rank, size in _axes(cascade, shapes):
        if found.setdefault(rank, size) != size:
            problem = f"rank {rank} has {found[rank]} elements {places[rank]} and {size} in {name}"
            part = f", or sizes={{{rank!r}: {min(found[rank], size)}}} to read a part of one"
            raise SpecError(problem, hint="give equally many" + part * (places[rank] != "as given"))
        places.setdefault(rank, f"in {name}")
    return found


def with_longer_inputs(cascade: Cascade, shapes: Mapping[str, tuple[int, ...]]) -> Cascade:
    """A cascade that reads a part of undeclared inputs that are longer than other shapes and sizes say."""
    tensors, axes = dict(cascade.tensors), [*_axes(cascade, shapes)]
    known = {rank: size for _, rank, size in axes if cascade.sizes.get(rank) == size}
    for name, rank, size in axes:
        own = tensors[name]
        if size > known.get(rank, size) and name in cascade.inputs and not own.place.line:
            ranks = (f"{name}_{n}" if r == rank else r for n, r in enumerate(own.ranks))
            tensors[name] = replace(own, ranks=tuple(ranks))
    return replace(cascade, tensors=tensors)


def _axes(cascade: Cascade, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, str, int]]:
    """Every axis of the shapes: its tensor, its rank and its extent."""
    for name, shape in shapes.items():
        tensor = cascade.tensors.get(name)
        if tensor is None:
            raise SpecError(f"{name} is not declared", hint=f"the inputs are {', '.join(cascade.inputs)}")
        if len(shape) != len(tensor.ranks):
            problem = f"{name} has the shape {list(shape)}; it is declared [{', '.join(tensor.ranks)}]"
            raise SpecError(problem, hint="give one extent for each of its ranks")
        for rank, size in zip(tensor.ranks, shape, strict=True):
            yield name, rank, int(size)


def _reached(cascade: Cascade) -> dict[str, int]:
    """Extents of ranks that have none: as far as indices that are no variable alone reach from 0.

    Numbers count where something is written; places, as far as what was searched for them. Where indices
    begin before 0, windows have padding: the axis is as long as the variable that they leave at both ends
    equally far, `X[p + r - 1]` of three r, or before 0 alone, `X[p - r]`.
    """
    ends: dict[str, tuple[int, int, frozenset[int]]] = {}
    places = {e.name: e for e in cascade.einsums if e.reduce_op in PLACES and e.reduced}
    axes = ((e, a, rank, i) for e in cascade.einsums for a in e.every_access for rank, i in cascade.axes(a))
    for einsum, access, rank, index in axes:
        maker = places.get(index.access.tensor) if isinstance(index, Gather) else None
        if maker:
            einsum, index = maker, Affine(((maker.reduced[0], 1),))
        may_tell = not index.plain and bool(index.variables or access is einsum.output)
        may_tell |= maker is not None or isinstance(index, Around)
        if rank in cascade.sizes or not isinstance(index, Affine) or not may_tell:
            continue
        index = (index.last if isinstance(index, Around) else index).at(cascade.sizes)
        with suppress(KeyError):
            extents = {name: _values(name, cascade, einsum) for name, _ in index.terms}
            low, high = index.ends(extents)
            first, last, others = ends.get(rank, (low, high, frozenset[int]()))
            ends[rank] = min(first, low), max(last, high), others | {*extents.values()}
    return {rank: size for rank, own in ends.items() if (size := _size_within(*own))}


def _size_within(low: int, high: int, extents: Collection[int]) -> int:
    """How long an axis is whose indices run from `low` to `high`; 0 if that is not clear."""
    fitting = [n for n in extents if high + 1 - n in (0, -low)]
    return high + 1 if low >= 0 else fitting[0] if len(fitting) == 1 else 0


def _kept(cascade: Cascade) -> dict[str, int]:
    """Extents of ranks that have none: those of the variables that index them where they are written."""
    kept: dict[str, int] = {}
    for einsum in cascade.einsums:
        known = replace(cascade, sizes={**cascade.sizes, **kept})
        axes = [(r, i.plain) for r, i in known.axes(einsum.output) if r not in known.sizes and i.plain]
        # parts of a formula have one extent for each of its variables: what none has beyond an edge
        parts = [e for e in cascade.einsums if e is einsum or (e.formula and e.formula == einsum.formula)]
        for rank, variable in axes:
            extents = [*_extents_in(parts, variable, known)]
            kept |= {rank: min(extents)} if extents else {}
    return kept


def _extents_in(einsums: Sequence[Einsum], variable: str, cascade: Cascade) -> Iterator[int]:
    for einsum in einsums:
        with suppress(KeyError):
            yield cascade.extent(variable, einsum)


def _values(name: str, cascade: Cascade, einsum: Einsum) -> int:
    """How many values a variable takes, or what is taken of one."""
    divisor, ends = name.steps(cascade.sizes) if isinstance(name, Digit) else (1, 0)
    extent = -(-cascade.extent(name.variable if isinstance(name, Digit) else name, einsum) // divisor)
    return min(extent, ends // divisor) if ends else extent


def _no_extent(tensor: Tensor, rank: str, cascade: Cascade) -> SpecError:
    """An error about a rank of a tensor, with what indexes it where no variable does alone."""
    accesses = (a for e in cascade.einsums for a in e.every_access if a.tensor == tensor.name)
    indices = [index for access in accesses for own, index in cascade.axes(access) if own == rank]
    hint, which = _ways_to_give(rank), ""
    if indices and not any(index.plain for index in indices):
        which = f", which {' and '.join(dict.fromkeys(map(str, indices)))} indexes,"
    # an extent stands for one element beyond the last
    single = (i.extents for i in indices if isinstance(i, Affine) and i.extents and not i.variables)
    if extents := next(single, ()):
        hint = (
            f"{extents[0]} is the extent of a rank; write the variable that runs over it in small letters: "
        )
        hint += extents[0].lower()
    error = SpecError(f"rank {rank} of {tensor.name}{which} has no extent", hint=hint)
    error.located(str(tensor.place), "einsum.shape")
    return error


def _ways_to_give(rank: str) -> str:
    """The hint of an error about an extent that is missing."""
    return (
        f"add {rank}: NUMBER under einsum.shape, give --size {rank}=NUMBER, or in Python "
        f"sizes={{{rank!r}: NUMBER}}"
    )


def _extents(einsum: Einsum, block: Iterate | None, cascade: Cascade) -> dict[str, int]:
    """The extent of every variable of an Einsum."""
    bound = {block.variable} if block else set()
    variables = tuple(dict.fromkeys((*einsum.variables, *einsum.along, *bound)))
    extents = {}
    for v in variables:
        try:
            extents[v] = (
                block_extent(block, cascade) if block and v == block.variable else cascade.extent(v, einsum)
            )
        except KeyError:
            error = SpecError(f"the variable {v} has no extent", hint=_ways_to_give(v.upper()))
            raise einsum.located(error) from None
    for name in (n for i in einsum.indices for n in i.extents):
        if name not in cascade.sizes:
            hint = f"add {name}: NUMBER under einsum.shape, or write a variable in small letters"
            raise einsum.located(SpecError(f"{name} stands in an index and has no extent", hint=hint))
    return extents


def _check_periods(einsum: Einsum, extents: Mapping[str, int], cascade: Cascade) -> None:
    """Refuse indices that go on at the other edge where no formula reads, or leave an axis by two periods."""
    accesses = (*einsum.every_access, *(g.access for a in einsum.every_access for g in a.gathers))
    axes = ((a, r, i) for a in accesses for r, i in cascade.axes(a) if isinstance(i, Around) and not i.moved)
    for access, rank, index in axes:
        size, (low, high) = cascade.sizes[rank], index.at(cascade.sizes).ends(extents)
        before, beyond = index.leaves
        is_whole = index.last.at(cascade.sizes).constant == size - 1
        if index.moved is None or not is_whole or low < -before * size or high >= size + beyond * size:
            problem = (
                f"({index}) goes on at the other edge, from {low} to {high}; rank {rank} of {access.tensor}"
            )
            hint = "read T[n] = X[(n + 1) % N] by a formula, of all N of an axis, and less than N outside"
            raise einsum.located(SpecError(f"{problem} has {size} elements", hint=hint), access)


def _check_bounds(einsum: Einsum, extents: Mapping[str, int], cascade: Cascade) -> None:
    """Refuse indices that leave their tensor: where something is written, and where an index is read, at all.

    What an Einsum reads beyond an edge is 0, if it reads anything inside, or where extents of one leave its
    variables nothing but the padding.
    """
    gathers = [g.access for a in einsum.every_access for g in a.gathers]
    inside = [(access, False) for access in (einsum.output, *gathers)]
    accesses = [*inside, *((a, True) for a in einsum.accesses)]
    axes = [(a, may_leave, rank, i) for a, may_leave in accesses for rank, i in cascade.axes(a)]
    for access, may_leave, rank, index in axes:
        if not isinstance(index, Affine):
            continue
        size = cascade.sizes[rank]
        low, high = index.at(cascade.sizes).ends(extents)
        is_padding = may_leave and low == high and any(is_variable(name) for name, _ in index.terms)
        is_outside = high < 0 or low >= size
        if (is_outside and not is_padding) or (not may_leave and (low < 0 or high >= size)):
            where = f"runs from {low} to {high}" if low < high else "lies outside"
            problem = f"the index {index} of {access.tensor} {where}; rank {rank} has {size} elements"
            is_last = not index.terms and index.constant < 0
            hint = f"count from 0: {size + index.constant}" if is_last else "change the extents, or the index"
            raise einsum.located(SpecError(problem, hint=hint), access)


def runs_of(cascade: Cascade) -> Iterator[tuple[Einsum, dict[str, int]]]:
    """Every Einsum each time it runs, in order, with the values of the variables of its blocks."""
    for step in cascade.steps:
        if isinstance(step, Iterate):
            values = range(block_extent(step, cascade))
            turns = (_runs_of_turn(step, {step.variable: value}, cascade) for value in values)
            yield from (run for turn in turns for run in turn)
        else:
            yield step, {}


def _runs_of_turn(
    block: Iterate, bound: dict[str, int], cascade: Cascade
) -> Iterator[tuple[Einsum, dict[str, int]]]:
    """The Einsums of one turn of a block, those of blocks in it once per value of their variable."""
    for inner, own in groupby(block.body, key=lambda e: e.turning):
        body = tuple(own)
        values = range(block_extent(Iterate(inner, body), cascade)) if inner else range(1)
        for value in values:
            yield from ((e, {**bound, inner: value} if inner else bound) for e in body)
