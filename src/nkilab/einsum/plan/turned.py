"""Large matrices that every turn of a block multiplies with a vector: turned once, before the block.

TensorE wants the axis that is summed over on the partitions. Where that is the last axis of a matrix in HBM,
loading it so means transposing all of it in every turn, unless it stays on chip; a transposed copy in HBM is
made once instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ...machine import Machine
from ...tiles.dtypes import as_dtype
from ..language.additions import Additions
from ..language.ast import Access, Cascade, Einsum, Kind, block_extent
from ..rewrite.batch_order import copied, reordered
from .knobs import Knobs
from .stage import READ_AGAIN

# turns from which a copy is worth making
FEWEST_TURNS = 8


def turned_once(cascade: Cascade, dtypes: Mapping[str, str], machine: Machine) -> Cascade:
    """The cascade with a transposed copy of each matrix for which that pays."""
    blocks = [b for b in cascade.blocks if block_extent(b, cascade) >= FEWEST_TURNS]
    tensors = {a.tensor for b in blocks for e in b.body for a in e.accesses if _is_turned(a, e, b.variable)}
    every = [(e, b.variable if b else "", a) for e, b in cascade.walk() for a in e.accesses]
    tensors -= {a.tensor for e, turn, a in every if not _is_turned(a, e, turn)}
    orders = {t: (1, 0) for t in cascade.inputs if t in tensors and _is_large(cascade, t, dtypes, machine)}
    added = Additions(cascade)
    names = {t: added.tensor(f"{t}_turned", (), t, Kind.TRANSPOSED) for t in orders}
    body, ordered = reordered(added, orders, names)
    return added.applied((*(copied(ordered, t, cascade, True) for t in orders), *body)) if orders else cascade


def _is_turned(matrix: Access, einsum: Einsum, turn: str) -> bool:
    """Whether an operand is a matrix that is multiplied with a vector, summed over its last axis."""
    own, names = {*einsum.output.variables} - {turn}, [i.plain for i in matrix.indices]
    others = {v for a in einsum.accesses if a is not matrix for v in a.variables}
    is_matrix = len(names) == 2 and names[0] in own and names[1] in einsum.reduced and turn not in names
    is_pair = einsum.is_product and len(einsum.operands) == len(einsum.accesses) == 2
    return is_matrix and is_pair and not others & own


def _is_large(cascade: Cascade, tensor: str, dtypes: Mapping[str, str], machine: Machine) -> bool:
    """Whether to copy an input: of two bytes an element, in whole blocks, too many to stay on chip."""
    dtype, shape = as_dtype(dtypes.get(tensor, "float32")), cascade.shape(tensor)
    lanes = machine.limit("partitions")
    is_whole = dtype.is_float and dtype.storage.itemsize == 2 and not any(size % lanes for size in shape)
    room = machine["sbuf_bytes_per_partition"] * Knobs().share * READ_AGAIN
    return is_whole and prod(shape) * 2 > room * lanes
