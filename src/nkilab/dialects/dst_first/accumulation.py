"""Matmuls whose destination overlaps in part what earlier ones wrote: some elements add, others overwrite.

Source: NKI 0.6 release notes, accumulation into overlapping PSUM regions.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, groupby
from typing import Any

from ...isa.declare import Instruction
from ...tiles.tile import View
from ...trace.builder import record, record_product
from ...trace.session import Known, Session
from ...trace.source import Site
from .view_methods import slice_axis

# of a matmul that does not say whether it accumulates
_UNSAID = (None,)


def matmul_finish(
    session: Session, cls: type[Instruction], operands: list[Any], attributes: tuple[Any, ...],
    values: tuple[Any, ...], extras: tuple[Any, ...], where: Site | None = None, known: Known | None = None,
) -> None:  # fmt: skip
    """Append a matmul; where it would add to a part of its destination, one row for each piece.

    The hardware tells the pieces apart within one instruction; that several rows take longer than one is the
    price of rows that either add or overwrite.
    """
    dst, stationary, moving = operands
    if known is not None and session.execute is None and values == _UNSAID:
        form, number = known
        written = dst.storage.accumulated
        if not form.is_indirect and (written.is_full or written.is_empty):
            record_product(session, number, operands, written, where)
            return
    if values == _UNSAID and _may_be_in_part(dst, moving):
        for part, columns in _pieces(dst, moving, 1):
            record(session, cls, [part, stationary, columns], attributes, values, None, where)
        return
    record(session, cls, operands, attributes, values, None, where, known)


def _may_be_in_part(dst: Any, moving: Any) -> bool:
    """Whether matmuls wrote some elements of dst and not the others, and moving splits as dst does."""
    if not isinstance(dst, View) or not isinstance(moving, View) or dst.indices or moving.indices:
        return False
    written = dst.storage.accumulated
    if written.is_empty or written.is_full or dst.layout.shape[1:] != moving.layout.shape[1:]:
        return False
    return written.of(dst) == "part"


def _pieces(dst: View, moving: View, axis: int) -> Iterator[tuple[View, View]]:
    """Parts of dst, each written in whole or not at all, with the columns of moving that belong to them."""
    written, extent = dst.storage.accumulated, dst.layout.shape[axis]
    states = [written.of(slice_axis(dst, axis, i, i + 1)) for i in range(extent)]
    start = 0
    for state, run in groupby(states):
        stop = start + len(list(run))
        if state == "part" and axis + 1 < len(dst.layout.shape):
            yield from chain.from_iterable(
                _pieces(slice_axis(dst, axis, i, i + 1), slice_axis(moving, axis, i, i + 1), axis + 1)
                for i in range(start, stop)
            )
        else:
            yield slice_axis(dst, axis, start, stop), slice_axis(moving, axis, start, stop)
        start = stop
