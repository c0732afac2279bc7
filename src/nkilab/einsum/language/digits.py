"""Indices `n // 4` and `n % G`: a variable of which they are taken counts in parts, n = 4 * n1 + n0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from ...errors import SpecError
from .additions import Additions
from .ast import Affine, Cascade, Digit, Einsum, Iterate, affine


def without_digits(cascade: Cascade) -> Cascade:
    """A cascade, every rank of which has an extent, with variables for the parts of variables.

    Raises:
        SpecError: if the parts of a variable do not go into each other, or into its extent.
    """
    added, known = Additions(cascade), dict[tuple[str, tuple[int, ...]], tuple[str, ...]]()

    def parted(einsum: Einsum, turn: str) -> Einsum:
        einsum = einsum.with_indices(lambda index: index.at(cascade.sizes))
        cuts: dict[str, set[int]] = {}
        for digit in (name for i in einsum.indices for name, _ in i.terms if isinstance(name, Digit)):
            cuts.setdefault(digit.variable, set()).update(digit.steps(cascade.sizes))
        if not cuts:
            return einsum
        parts: dict[str, list[tuple[str, int]]] = {}
        for variable, steps in cuts.items():
            extent = cascade.extent(variable, einsum)
            places = (1, *sorted(s for s in steps if 1 < s < extent), extent)
            _need_whole_parts(einsum, variable, places, turn)
            if (variable, places) not in known:
                sizes = [b // a for a, b in pairwise(places)]
                names = [f"{variable.upper()}{n}" for n in range(len(sizes))]
                known[variable, places] = tuple(map(added.rank, names, sizes))
            names = [rank.lower() for rank in known[variable, places]]
            parts[variable] = [*zip(names, places[:-1], strict=True)]
        parted_einsum = einsum.with_indices(lambda index: _in_parts(index, parts, cascade.sizes))
        if parted_einsum.reduced and not parted_einsum.reduce_op:
            problem = (
                f"parts of {', '.join(parts)} vanish from the right to the left and nothing reduces them"
            )
            hint = "sum on a line of its own, T[m // 4] = X[m], or write ';; V add' or another operator"
            raise einsum.located(SpecError(problem, hint=hint))
        if not (parted_einsum.reduced or einsum.output.gathers):
            parted_einsum = replace(parted_einsum, reduce_op="")
        return replace(parted_einsum, before=einsum.title)

    steps = []
    for step in cascade.steps:
        turn = step.variable if isinstance(step, Iterate) else ""
        steps.append(step.with_body([parted(einsum, turn) for einsum in step.body]))
    return added.applied(tuple(steps)) if added.sizes != cascade.sizes else cascade


def _in_parts(
    index: Affine, parts: Mapping[str, Sequence[tuple[str, int]]], sizes: Mapping[str, int]
) -> Affine:
    """An index with the parts of variables for these, and for what is taken of them."""
    terms: list[tuple[str, int]] = []
    for name, c in index.terms:
        if isinstance(name, Digit):
            low, high = name.steps(sizes)
            own = ((v, s) for v, s in parts[name.variable] if s >= low and (not high or s < high))
            terms += [(v, c * s // low) for v, s in own]
        else:
            terms += [(v, c * s) for v, s in parts.get(name, [(name, 1)])]
    return affine(terms, index.constant)


def _need_whole_parts(einsum: Einsum, variable: str, places: Sequence[int], turn: str) -> None:
    if variable == turn:
        problem = f"{variable} counts the turns of a block, which have no parts"
        hint = "iterate over the parts"
        raise einsum.located(SpecError(problem, hint=hint))
    odd = next(((a, b) for a, b in pairwise(places) if b % a), None)
    if odd is not None:
        is_last = odd[1] == places[-1]
        what = "the extent of" if is_last else "another part of"
        problem = f"{variable} is taken in parts of {odd[0]}, which do not divide {what} {variable}, {odd[1]}"
        hint = f"make the extent a multiple of {odd[0]}" if is_last else "write one of them as a sum"
        raise einsum.located(SpecError(problem, hint=hint))
