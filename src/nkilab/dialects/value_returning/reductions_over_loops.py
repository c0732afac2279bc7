"""`nl.loop_reduce`: a value that is reduced into whatever it is assigned to, iteration after iteration."""

from __future__ import annotations

from typing import Any

from ...errors import RuleError
from ...isa.elementwise import TensorCopy, TensorTensor
from ...isa.operators import Operator
from ...tiles.dtypes import FLOAT32, DType
from ...tiles.tile import SBUF
from ...trace.builder import record
from ...trace.session import Session, current
from ...trace.source import user_frame
from ..loops import LoopIndex
from .grids import box_of
from .subscripts import cropped, inside_bounds
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
        self.dtype = dtype
        self.mask = mask
        session = current()
        session.flush()
        frame = user_frame()
        self.where = (frame.f_code.co_filename, frame.f_lineno)
        self.around = _place_around(session, {i.loop for i in indices})
        self.key = ("loop_reduce", self.around, self.where)
        # like any result it waits for its destination
        session.pending = self

    def commit(self) -> None:
        """Trace the running value in a tile of its own: a copy at first, a combination later."""
        session = current()
        known = session.keyed.get(self.key)
        if known is None:
            made = fresh(
                session, TensorCopy, [None, self.tile], ("unknown",), (),
                mask=self.mask, memory=SBUF, dtype=self.dtype,
            )  # fmt: skip
            tile = session.keyed[self.key] = settled(made)
            session.program.marks.carried.add(tile.storage.number)
        else:
            self._combine(session, known)

    def assign_to(self, dst: Tensor) -> None:
        """Trace dst = op(dst, tile); where the running value has a tile already, copy that."""
        session = current()
        if session.pending is self:
            session.pending = None
            self._reduce_into(session, dst)
        else:
            record(session, TensorCopy, [dst, self.tensor()], ("unknown",), ())

    def tensor(self) -> Tensor:
        """The tile of the running value."""
        session = current()
        session.flush()
        tile: Tensor = session.keyed[self.key]
        return tile

    def _reduce_into(self, session: Session, dst: Tensor) -> None:
        """Combine into dst; between the iterations a value for a narrow float is carried in float32.

        It is rounded into dst as often as iterations end, but never from a rounded value.
        """
        held = dst.layout.dtype
        if held is FLOAT32 or not held.is_float or self.mask is not None:
            self._combine(session, dst)
            return
        mark = ("carried", dst.storage.number)
        since, epoch = session.keyed.get(mark, (0, 0))
        # a row of anybody else's on the storage ends what was carried for it: start from what it holds
        epoch += session.program.is_named_since(since, dst.storage.number)
        key = (*mark, epoch, self.around, dst.offset, dst.layout)
        carried = session.keyed.get(key)
        if carried is None:
            operands = [None, inside_bounds(dst), self.tile]
            carried = session.keyed[key] = settled(
                fresh(session, TensorTensor, operands, (self.op, "unknown"), (), dtype=FLOAT32, memory=SBUF)
            )
            session.program.marks.carried.add(carried.storage.number)
        else:
            self._combine(session, carried)
        record(session, TensorCopy, [dst, carried], ("unknown",), (), None, self.where)
        session.keyed[mark] = (session.program.operand_count, epoch)

    def _combine(self, session: Session, dst: Tensor) -> None:
        tile, rest = self.tile, None
        if self.mask is not None:
            box, rest = box_of(self.mask, tile.shape)
            if box is None:
                return
            dst, tile = cropped(dst, box), cropped(tile, box)
        record(
            session, TensorTensor, [inside_bounds(dst), dst, tile], (self.op, "unknown"), (), rest, self.where
        )


def _place_around(session: Session, loops: set[int]) -> tuple[int, ...]:
    """The entry of the outermost loop that is reduced, and the iterations of other loops inside it."""
    positions = session.program.positions
    position = outer = session.position
    inside: list[int] = []
    passed: list[int] = []
    while position > 0:
        parent, loop, iteration = positions[position]
        if loop in loops:
            outer = loop
            inside += passed
            passed = []
        else:
            passed.append(iteration)
        position = parent
    return (outer, *inside)
