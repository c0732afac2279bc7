"""Large matrices that every turn of a block multiplies with a vector: turned once, before the block.

TensorE wants the axis that is summed over on the partitions. Where that is the last axis of a matrix in HBM,
loading it so means transposing all of it in every turn, unless it stays on chip; a transposed copy in HBM is
made once instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod

from ...machine import Machine
from ...tiles.dtypes import DType, as_dtype
from ..language.additions import Additions, free_variable
from ..language.ast import Access, Affine, Cascade, Einsum, Iterate, Kind, Step
from ..language.extents import block_extent
from .knobs import Knobs
from .stage import READ_AGAIN

# turns from which a copy is worth making
FEWEST_TURNS = 8


def turned_once(cascade: Cascade, dtypes: Mapping[str, str], machine: Machine) -> Cascade:
    """The cascade with a transposed copy of each matrix for which that pays."""
    added = Additions(cascade)
    types = {t: as_dtype(dtypes.get(t, "float32")) for t in cascade.inputs}
    large = [t for t, dtype in types.items() if _is_large(cascade.shape(t), dtype, machine)]
    steps: list[Step] = []
    for step in cascade.steps:
        if not isinstance(step, Iterate) or block_extent(step, cascade) < FEWEST_TURNS:
            steps.append(step)
            continue
        copies: dict[str, str] = {}
        body = tuple(_changed(e, step.variable, large, added, copies) for e in step.body)
        steps += [_copy(name, made, cascade) for name, made in copies.items()]
        steps.append(replace(step, body=body))
    return added.applied(tuple(steps))


def _changed(
    einsum: Einsum, turn: str, large: Collection[str], added: Additions, copies: dict[str, str]
) -> Einsum:
    """An Einsum that reads the transposed copy, if it is the product of such a matrix and a vector."""
    if einsum.map_op != "multiply" or einsum.reduce_op != "add" or einsum.condition:
        return einsum
    if len(einsum.operands) != 2 or len(einsum.accesses) != 2:
        return einsum
    for matrix, vector in (einsum.accesses, einsum.accesses[::-1]):
        if not _is_turned(matrix, einsum, turn, large) or set(vector.variables) & set(
            einsum.output.variables
        ) - {turn}:
            continue
        if matrix.tensor not in copies:
            ranks = tuple(reversed(added.tensors[matrix.tensor].ranks))
            hint = f"{matrix.tensor}_turned"
            copies[matrix.tensor] = added.tensor(hint, ranks, matrix.tensor, Kind.TRANSPOSED)
        access = Access(copies[matrix.tensor], tuple(reversed(matrix.indices)))
        operands = tuple(access if o is matrix else o for o in einsum.operands)
        return replace(einsum, operands=operands, text="")
    return einsum


def _is_turned(matrix: Access, einsum: Einsum, turn: str, large: Collection[str]) -> bool:
    """Whether an operand is one of some matrices, the last axis of which is summed over."""
    names = [i.plain if isinstance(i, Affine) else "" for i in matrix.indices]
    if matrix.tensor not in large or not all(names) or turn in names:
        return False
    return names[1] in einsum.reduced and names[0] in einsum.output.variables


def _is_large(shape: Sequence[int], dtype: DType, machine: Machine) -> bool:
    """Whether to copy an input: of two bytes an element, in whole blocks, too many to stay on chip."""
    lanes, itemsize = machine.limit("partitions"), dtype.storage.itemsize
    is_whole = len(shape) == 2 and not any(size % lanes for size in shape)
    room = machine["sbuf_bytes_per_partition"] * Knobs().share * READ_AGAIN
    return dtype.is_float and itemsize == 2 and is_whole and prod(shape) * itemsize > room * lanes


def _copy(matrix: str, made: str, cascade: Cascade) -> Einsum:
    """The transposed copy."""
    names = (free_variable(f"{made.lower()}_{n}", cascade) for n in ("row", "column"))
    rows, columns = (Affine(((name, 1),)) for name in names)
    return Einsum(Access(made, (columns, rows)), (Access(matrix, (rows, columns)),))
