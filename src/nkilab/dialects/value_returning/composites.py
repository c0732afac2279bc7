"""Functions of `neuronxcc.nki.language` that take several instructions each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import RuleError
from ...isa.elementwise import TensorCopy
from ...tiles.dtypes import as_dtype, promoted, weak_dtype
from ...tiles.tile import SBUF
from ...trace.builder import record
from ...trace.session import current
from ...trace.source import place_of, user_frame
from .. import tile_functions as common
from .functions import RESULTS, a_tile, tile_of
from .grids import box_of
from .reductions import reduction
from .subscripts import crop_operand, cropped, inside_bounds
from .tensor import Tensor, settled


def _under(mask: Any, operands: list[Any], dtype: Any, compute: Callable[..., Tensor]) -> Tensor:
    """The result of a function over tiles of which a mask lets a part through; the rest is not written.

    Args:
        mask: over the shape that the operands broadcast to; None for everywhere.
        operands: tiles and numbers.
        dtype: of the result.
        compute: called with the operands, or the parts of them under the mask's rectangle.
    """
    tiles = [o for o in operands if isinstance(o, Tensor)]
    if mask is None:
        return compute(*[inside_bounds(o) if isinstance(o, Tensor) else o for o in operands])
    session = current()
    shape = tuple(np.broadcast_shapes(*(t.shape for t in tiles)))
    out: Tensor = RESULTS.allocate(shape, dtype, SBUF)
    box, rest = box_of(mask, shape)
    if box is not None:
        part = settled(compute(*[crop_operand(o, box) for o in operands]))
        record(session, TensorCopy, [cropped(out, box), part], common.plain(TensorCopy), (), rest)
    return out


def where(condition: Any, x: Any, y: Any, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Elements of x where condition is not 0, of y (a tile or a number) elsewhere, in a new SBUF tile."""
    chosen, other, predicate = a_tile(x), tile_of(y), a_tile(condition)
    if predicate.layout.partitions == 1 < chosen.layout.partitions:
        raise RuleError(
            f"unexpected partition broadcast: condition has one partition, x has {chosen.layout.partitions}",
            hint="spread the condition with nl.broadcast_to first",
        ).located(place_of(user_frame()), "where")
    kind = other.layout.dtype if isinstance(other, Tensor) else weak_dtype(other)
    element_type = promoted(chosen.layout.dtype, kind) if dtype is None else as_dtype(dtype)
    return _under(
        mask,
        [predicate, chosen, other],
        element_type,
        lambda p, c, o: settled(common.where(RESULTS, p, c, o, element_type)),
    )


def _kept(called: str, operator: str, axis: Any) -> Callable[[Any], Tensor]:
    """A reduction over axes that stay as axes of one, in float32."""
    return lambda tile: settled(reduction(called, operator, tile, axis, np.float32, None, True))


def softmax(x: Any, axis: Any, *, dtype: Any = None, compute_dtype: Any = None, mask: Any = None) -> Tensor:
    """exp(x - max) / sum of exp(x - max) over free axes, in float32 up to the last rounding.

    What a mask leaves out takes no part in the sum.
    """
    source = a_tile(x)
    common.notice_precision("softmax", compute_dtype)
    element_type = as_dtype(dtype or compute_dtype or source.layout.dtype)

    def compute(tile: Tensor) -> Tensor:
        largest = _kept("softmax", "maximum", axis)(tile)
        return common.softmax(RESULTS, tile, largest, _kept("softmax", "add", axis), element_type)

    return _under(mask, [source], element_type, compute)


def rms_norm(
    x: Any, w: Any, axis: Any, n: Any, epsilon: float = 1e-6, *, dtype: Any = None, compute_dtype: Any = None,
    mask: Any = None,
) -> Tensor:  # fmt: skip
    """x / sqrt(sum of squares over free axes / n + epsilon) * w, in float32 up to the last rounding.

    What a mask leaves out takes no part in the sum.
    """
    source = a_tile(x)
    common.notice_precision("rms_norm", compute_dtype)
    element_type = as_dtype(dtype or compute_dtype or source.layout.dtype)

    def compute(tile: Tensor, weights: Tensor) -> Tensor:
        return common.rms_norm(
            RESULTS, tile, weights, _kept("rms_norm", "add", axis), n, epsilon, element_type
        )

    return _under(mask, [source, a_tile(w)], element_type, compute)


def dropout(x: Any, rate: Any, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """x with elements set to 0 with probability `rate`; the bits are not those of the hardware."""
    source = a_tile(x)
    element_type = source.layout.dtype if dtype is None else as_dtype(dtype)
    return _under(
        mask, [source, tile_of(rate)], element_type, lambda t, p: common.dropout(RESULTS, t, p, element_type)
    )
