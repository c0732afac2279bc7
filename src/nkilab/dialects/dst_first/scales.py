"""Calls with tiles of microscaling scales: what the program records of these tiles are the rows in use.

So a row that writes scales leaves the partitions between them as they were, one that reads them reads nothing
else, and two that share a tile do not wait for each other.
"""

from __future__ import annotations

from typing import Any

from ...isa.declare import Instruction
from ...isa.microscaling import QUADRANT, ROWS, QuantizeMx, quadrants
from ...tiles.tile import Layout, View
from ...tiles.views import derived
from ...trace.builder import check_form, record
from ...trace.session import Known, Session
from ...trace.source import Site
from ..history import order
from ..versions import version_of

# per instruction, the position of each tile of scales and of its data
SCALED: dict[str, tuple[tuple[int, int], ...]] = {"quantize_mx": ((2, 0),), "nc_matmul_mx": ((3, 1), (4, 2))}
# attributes that no caller gives, for the version of NKI decides
HIDDEN = ("headroom",)


def scaled_finish(
    session: Session, cls: type[Instruction], operands: list[Any], attributes: tuple[Any, ...],
    values: tuple[Any, ...], extras: tuple[Any, ...], where: Site | None = None, known: Known | None = None,
) -> None:  # fmt: skip
    """The finish of instructions that take tiles of scales: check the call, record what it uses."""
    if cls is QuantizeMx:
        attributes = (headroom(version_of(session)),)
    if known is None:
        check_form(session, cls, operands, attributes)
    used = list(operands)
    for scale, data in SCALED[cls.name]:
        used[scale] = rows_in_use(operands[scale], operands[data].layout)
    record(session, cls, used, attributes, values, None, where)


def headroom(version: str) -> int:
    """How many exponents quantize_mx keeps free above the largest number of a group.

    Source: NKI 0.5 release notes, improvements: the scale became two times larger.
    """
    return 0 if version and order(version) < order("0.5") else 1


def rows_in_use(scale: View, data: Layout) -> View:
    """The rows of a tile of scales [P, F] that belong to `data`: [4, F], or [quadrants, 4, F]."""
    known, count = scale.layout, quadrants(data)
    if known.partitions <= ROWS:
        return scale
    step, *rest = known.strides
    shape, strides = (ROWS, *known.shape[1:]), (step, *rest)
    if count > 1:
        shape, strides = (count, *shape), (QUADRANT * step, *strides)
    return derived(scale, scale.offset, shape, strides, 0)
