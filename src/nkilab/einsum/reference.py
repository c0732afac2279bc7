"""The meaning of a cascade: an evaluator in NumPy that reads the cascade and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from ..errors import SpecError
from .language.ast import Access, Affine, Cascade, Condition, Einsum, Index, Position, Scalar
from .language.extents import runs_of, sized, sizes_of_arrays
from .language.operators import OPERATORS, RELATIONS

# elements of an iteration space that are computed at once
MOST_AT_ONCE = 1 << 22
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
Once = Callable[[Mapping[str, int], list[str]], tuple[np.ndarray, ...]]


def evaluate(cascade: Cascade, arrays: Mapping[str, Any], dtype: Any = np.float64) -> dict[str, np.ndarray]:
    """Every tensor of a cascade, computed from its inputs.

    Args:
        cascade: its ranks may lack extents that the arrays tell.
        arrays: the inputs by name; integer ones stay integers.
        dtype: in which everything is computed.

    Returns:
        Arrays of `dtype` by name, inputs too. What no Einsum writes is 0.

    Raises:
        SpecError: if an input is missing or has another shape.
    """
    for name in cascade.inputs:
        if name not in arrays:
            raise SpecError(f"the input {name} is missing", hint=f"give {', '.join(cascade.inputs)}")
    shapes = {name: np.shape(arrays[name]) for name in cascade.inputs}
    known = sized(cascade, sizes_of_arrays(cascade, shapes))
    held = {name: np.zeros(known.shape(name), dtype) for name in known.tensors}
    for name in known.inputs:
        given = np.asarray(arrays[name])
        held[name] = given if given.dtype.kind in "iu" else given.astype(dtype)
    machine = Evaluator(known, held, dtype)
    for einsum, bound in runs_of(known):
        machine.run(einsum, bound)
    return held


def need_written(cascade: Cascade) -> None:
    """Refuse the first access that reads what nothing has written by then.

    Args:
        cascade: every rank has an extent. What is chosen by conditions or by tensors is not looked at.
    """
    empty = {name: np.ones(cascade.shape(name), np.bool_) for name in cascade.written}
    machine = Evaluator(cascade, empty, np.bool_)

    def is_unwritten(access: Access, einsum: Einsum, bound: Mapping[str, int]) -> bool:
        own = [v for v in access.variables if v not in bound]
        extents = [machine.extent(v, einsum) for v in own]
        return bool(np.any(machine.operand(access, machine.grids(einsum, own, bound), extents)))

    for einsum, bound in runs_of(cascade):
        own = () if einsum.condition else einsum.accesses
        reads = (a for a in own if a.tensor in empty and not a.gathers)
        if access := next((a for a in reads if is_unwritten(a, einsum, bound)), None):
            first = access.with_indices(lambda index: index.at(bound))  # noqa: B023
            refused = SpecError(f"{first} is read where nothing has written it", hint="write it before")
            raise einsum.located(refused, access)
        kept = [v for v in einsum.output.variables if v not in bound]
        zeros = np.zeros([machine.extent(v, einsum) for v in kept], np.bool_)
        machine.store(einsum, bound, kept, zeros)


class Evaluator:
    """Runs Einsums on arrays; `bound` gives variables that have one value."""

    def __init__(self, cascade: Cascade, held: dict[str, np.ndarray], dtype: Any) -> None:
        self.cascade, self.held, self.dtype = cascade, held, dtype

    def run(self, einsum: Einsum, bound: Mapping[str, int]) -> None:
        kept = [v for v in einsum.output.variables if v not in bound]
        self.store(einsum, bound, kept, self.value(einsum, bound, kept))

    def store(self, einsum: Einsum, bound: Mapping[str, int], kept: list[str], value: np.ndarray) -> None:
        """Write a result over the variables in `kept`, in that order, to the output's places."""
        target = self.held[einsum.name]
        names = {**self.cascade.sizes, **bound}
        if all(
            isinstance(i, Affine) and (i.plain in kept or not i.at(names).terms)
            for i in einsum.output.indices
        ):
            order = [i.plain for i in einsum.output.indices if i.plain in kept]
            value = value.transpose([kept.index(v) for v in order]) if order != kept else value
            target[self.cut(einsum, einsum.output, kept, names)] = value
            return
        grids = self.grids(einsum, kept, bound)
        places = tuple(np.broadcast_to(self.position(i, grids), value.shape) for i in einsum.output.indices)
        target[places] = value

    def cut(
        self, einsum: Einsum, access: Access, free: Container[str], names: Mapping[str, int]
    ) -> tuple[slice | int, ...]:
        """The part of a tensor that an access reaches: all values of free variables, one of others."""
        return tuple(
            slice(0, self.extent(i.plain, einsum)) if i.plain in free else i.at(names).constant
            for i in access.affine
        )

    def extent(self, variable: str, einsum: Einsum) -> int:
        return self.cascade.extent(variable, einsum)

    def value(self, einsum: Einsum, bound: Mapping[str, int], kept: list[str]) -> np.ndarray:
        """The result over the variables in `kept`, in that order."""
        if einsum.is_choice:
            return self.chosen(einsum, kept, self.along(einsum, bound, kept))
        reduced = [v for v in einsum.reduced if v not in bound]
        order = kept + reduced
        extents = [self.extent(v, einsum) for v in order]
        if self.is_product(einsum, bound):
            return self.product(einsum, bound, kept, extents[: len(kept)])
        if prod(extents) > MOST_AT_ONCE and order:
            joined = OPERATORS[einsum.reduce_op].function if reduced else None
            (value,) = self.in_parts(einsum, bound, kept, lambda b, k: (self.value(einsum, b, k),), joined)
            return value
        grids = self.grids(einsum, order, bound)
        operands = [self.operand(o, grids, extents) for o in einsum.operands]
        mapped = self.mapped(einsum, operands)
        if einsum.condition:
            is_true = self.truth(einsum.condition, grids)
            mapped = np.where(is_true, mapped, einsum.otherwise)
        mapped = np.broadcast_to(mapped, extents)
        if not reduced:
            return mapped
        function: Any = OPERATORS[einsum.reduce_op].function
        return np.asarray(function.reduce(mapped, axis=tuple(range(len(kept), len(order)))))

    def along(self, einsum: Einsum, bound: Mapping[str, int], kept: list[str]) -> np.ndarray:
        """What the largest are sought in, the variable along which they are sought last."""
        order = [*(v for v in kept if v not in einsum.along), einsum.along[0]]
        extents = [self.extent(v, einsum) for v in order]
        values = self.operand(einsum.operands[0], self.grids(einsum, order, bound), extents)
        return np.broadcast_to(values, extents)

    def chosen(self, einsum: Einsum, kept: list[str], values: np.ndarray) -> np.ndarray:
        """The largest values along the last axis, or their places."""
        places = np.argsort(-values, axis=-1, kind="stable")
        is_place = einsum.recurrence is not None and einsum.recurrence.kind == "places"
        return self.first(einsum, kept, places if is_place else np.take_along_axis(values, places, -1))

    def first(self, einsum: Einsum, kept: list[str], ordered: np.ndarray) -> np.ndarray:
        """As many as are asked for of what is in order along the last axis, over the variables in `kept`."""
        if not (counted := einsum.along[1:]):
            return ordered[..., 0].astype(self.dtype)
        count = self.extent(counted[0], einsum)
        return np.moveaxis(ordered[..., :count].astype(self.dtype), -1, kept.index(counted[0]))

    def in_parts(
        self, einsum: Einsum, bound: Mapping[str, int], kept: list[str], once: Once, joined: Any
    ) -> tuple[np.ndarray, ...]:
        """What is computed with more variables bound, one value of the longest at a time.

        Args:
            once: computes over variables that are kept, given those that are bound.
            joined: of two parts of a sum.
        """
        reduced = [v for v in einsum.reduced if v not in bound]
        longest = max(reduced or kept, key=lambda v: self.extent(v, einsum))
        rest = [v for v in kept if v != longest]
        parts = (once({**bound, longest: i}, rest) for i in range(self.extent(longest, einsum)))
        if longest in kept:
            return tuple(np.stack(each, kept.index(longest)) for each in zip(*parts, strict=True))
        return reduce(lambda total, more: tuple(map(joined, total, more)), parts)

    def grids(self, einsum: Einsum, order: list[str], bound: Mapping[str, int]) -> dict[str, Any]:
        grids: dict[str, Any] = {**self.cascade.sizes, **bound}
        for n, v in enumerate(order):
            shape = [1] * len(order)
            shape[n] = self.extent(v, einsum)
            grids[v] = np.arange(shape[n]).reshape(shape)
        return grids

    def position(self, index: Index, grids: Mapping[str, Any]) -> Any:
        if isinstance(index, Affine):
            return index.constant + sum(c * grids[n] for n, c in index.terms)
        tensor = self.held[index.access.tensor]
        return tensor[tuple(self.position(i, grids) for i in index.access.indices)].astype(np.int64)

    def operand(self, operand: Any, grids: Mapping[str, Any], extents: list[int]) -> Any:
        """The operand's values, 0 where it lies outside its tensor."""
        if isinstance(operand, Scalar):
            return self.dtype(operand.at(self.cascade.scalars))
        if isinstance(operand, Position):
            return np.asarray(self.position(operand.index, grids), self.dtype)
        tensor = self.held[operand.tensor]
        places = [np.asarray(self.position(i, grids)) for i in operand.indices]
        inside: Any = True
        for place, size in zip(places, tensor.shape, strict=True):
            if place.size and (place.min() < 0 or place.max() >= size):
                inside = inside & (place >= 0) & (place < size)
        clipped = tuple(np.clip(p, 0, s - 1) for p, s in zip(places, tensor.shape, strict=True))
        read = tensor[clipped].astype(self.dtype)
        return read if inside is True else np.where(inside, read, self.dtype(0))

    def mapped(self, einsum: Einsum, operands: list[Any]) -> Any:
        if not einsum.map_op:
            return operands[0]
        op = OPERATORS[einsum.map_op]
        if op.arity:
            return op.function(*operands)
        total = operands[0]
        for operand in operands[1:]:
            total = op.function(total, operand)
        return total

    def truth(self, condition: Condition, grids: Mapping[str, Any]) -> Any:
        left, right = (self.position(side, grids) for side in (condition.left, condition.right))
        return RELATIONS[condition.relation](left, right)

    def is_product(self, einsum: Einsum, bound: Mapping[str, int]) -> bool:
        """Whether np.einsum computes it: a sum of products with indices that are variables or numbers."""
        names = {**self.cascade.sizes, **bound}
        is_sum = einsum.map_op in ("multiply", "") and einsum.reduce_op in ("add", "")
        is_plain = einsum.condition is None and bool(einsum.accesses) and not einsum.positions
        return is_sum and is_plain and all(self.is_simple(a, names, einsum) for a in einsum.accesses)

    def is_simple(self, access: Access, names: Mapping[str, int], einsum: Einsum) -> bool:
        axes = self.cascade.axes(access)
        return all(self.is_within(self.cascade.sizes[r], i, names, einsum) for r, i in axes)

    def is_within(self, size: int, index: Index, names: Mapping[str, int], einsum: Einsum) -> bool:
        """Whether an index is a variable or a number, and inside an axis."""
        if not isinstance(index, Affine):
            return False
        if index.plain and index.plain not in names:
            return self.extent(index.plain, einsum) <= size
        place = index.at(names)
        return not place.terms and 0 <= place.constant < size

    def product(
        self, einsum: Einsum, bound: Mapping[str, int], kept: list[str], extents: list[int]
    ) -> np.ndarray:
        names = {**self.cascade.sizes, **bound}
        letters = dict(zip([v for v in einsum.variables if v not in bound], _LETTERS))
        arrays, subscripts = [], []
        scalars = (o.at(self.cascade.scalars) for o in einsum.operands if isinstance(o, Scalar))
        factor = prod(scalars, start=1.0)
        for operand in einsum.accesses:
            cut = self.cut(einsum, operand, letters, names)
            arrays.append(self.held[operand.tensor][cut].astype(self.dtype, copy=False))
            subscripts.append("".join(letters[i.plain] for i in operand.indices if i.plain in letters))
        held = [v for v in kept if any(letters[v] in s for s in subscripts)]
        left = "".join(letters[v] for v in held)
        value = np.einsum(f"{','.join(subscripts)}->{left}", *arrays, optimize=len(arrays) > 1) * factor
        full = [extents[kept.index(v)] if v in held else 1 for v in kept]
        return np.broadcast_to(value.reshape(full), extents)
