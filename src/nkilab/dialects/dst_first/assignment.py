"""Assigning to a subscript of an `nki` tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import RuleError
from ...isa.data_movement import DmaCopy
from ...isa.elementwise import Memset, TensorCopy
from ...tiles.tile import View
from ...trace.builder import no_tensor, record
from ...trace.session import Session
from ..tile_functions import plain


def assign(session: Session, dst: View, value: Any) -> None:
    """Write a tensor of the same shape or a number: a copy within the chip, a transfer, or a fill.

    The stubs of 0.5 and later list the form and say nothing of its meaning, which is our choice; a kernel of
    trnrand assigns to HBM, and ran in 0.3 on trn1 and trn2. Builds of 0.6 take a tile [C, 1, 1] for a place
    [C] in HBM: axes of one do not count for a transfer.

    Raises:
        UseError: if the value is neither.
        RuleError: if the shapes differ, or a number goes to HBM.
    """
    if isinstance(value, View):
        is_transfer = not (dst.layout.is_on_chip and value.layout.is_on_chip)
        shapes = (value.layout.shape, dst.layout.shape)
        if shapes[0] != shapes[1] and not (is_transfer and _longer(shapes[0]) == _longer(shapes[1])):
            raise RuleError(
                f"the value is {list(value.layout.shape)} and its place {list(dst.layout.shape)}; they agree"
            )
        cls = DmaCopy if is_transfer else TensorCopy
        record(session, cls, [dst, value], plain(cls), ())
        return
    if not isinstance(value, int | float | np.generic):
        raise no_tensor("the value", value, "it is a tensor or a number")
    if not dst.layout.is_on_chip:
        raise RuleError("a number is assigned to a tensor in hbm", hint="store a tile of it")
    record(session, Memset, [dst], plain(Memset), (value,))


def _longer(shape: tuple[int, ...]) -> list[int]:
    """The extents of the axes that have more than one element."""
    return [extent for extent in shape if extent != 1]
