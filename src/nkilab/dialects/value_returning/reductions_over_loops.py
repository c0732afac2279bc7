"""`nl.loop_reduce`: a value that is reduced into whatever it is assigned to, iteration after iteration."""

from __future__ import annotations

from typing import Any

from ...errors import RuleError
from ...isa.elementwise import TensorCopy, TensorTensor
from ...isa.operators import Operator
from ...tiles.dtypes import DType
from ...tiles.tile import SBUF
from ...trace.builder import record
from ...trace.session import current
from ..loops import LoopIndex
from .tensor import Tensor, fresh, settled


class LoopReduction:
    """One iteration's part of a reduction over loops.

    Args:
        tile: this iteration's value.
        op: how values combine.
        loop_indices: indices of the loops that are reduced.
        dtype: of the result; of the tile if None.
        mask: where the result is written.
    """

    def __init__(self, tile: Tensor, op: Operator, loop_indices: Any, dtype: DType | None, mask: Any) -> None:
        indices = loop_indices if isinstance(loop_indices, tuple | list) else [loop_indices]
        if not all(isinstance(i, LoopIndex) for i in indices):
            raise RuleError("loop_indices holds something that is no loop variable of affine_range")
        self.tile = tile
        self.op = op
        self.loops = tuple(i.loop for i in indices)
        self.dtype = dtype
        self.mask = mask

    def assign_to(self, dst: Tensor) -> None:
        """Trace dst = op(dst, tile)."""
        session = current()
        session.flush()
        where = None if self.mask is None else self.mask.where
        record(session, TensorTensor, [dst, dst, self.tile], (self.op, "unknown"), (), where)

    def tensor(self) -> Tensor:
        """The running value in a tile of its own: a copy in the first iteration, a combination later."""
        session = current()
        session.flush()
        key = ("loop_reduce", self._outer_position(), self.loops, session.where)
        known = session.keyed.get(key)
        if known is None:
            made = fresh(
                session, TensorCopy, [None, self.tile], ("unknown",), (), memory=SBUF, dtype=self.dtype
            )
            session.keyed[key] = settled(made)
        else:
            self.assign_to(known)
        return session.keyed[key]

    def _outer_position(self) -> int:
        """The position around the loops that are reduced."""
        positions = current().program.positions
        position = current().position
        outer = position
        while position > 0:
            parent, loop, _ = positions[position]
            if loop in self.loops:
                outer = parent
            position = parent
        return outer
