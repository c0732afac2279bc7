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

    The stubs of 0.5 and later list the form and say nothing of its meaning, which is our choice.

    Raises:
        UseError: if the value is neither.
        RuleError: if the shapes differ, or a number goes to HBM.
    """
    if isinstance(value, View):
        if value.layout.shape != dst.layout.shape:
            raise RuleError(
                f"the value is {list(value.layout.shape)} and its place {list(dst.layout.shape)}; they agree"
            )
        cls = TensorCopy if dst.layout.is_on_chip and value.layout.is_on_chip else DmaCopy
        record(session, cls, [dst, value], plain(cls), ())
        return
    if not isinstance(value, int | float | np.generic):
        raise no_tensor("the value", value, "it is a tensor or a number")
    if not dst.layout.is_on_chip:
        raise RuleError("a number is assigned to a tensor in hbm", hint="store a tile of it")
    record(session, Memset, [dst], plain(Memset), (value,))
