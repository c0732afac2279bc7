"""Functions of `neuronxcc.nki.language` that take several instructions each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import UnsupportedError
from ...tiles.dtypes import as_dtype, promoted, weak_dtype
from .. import tile_functions as common
from ..places import placed
from .functions import RESULTS, tile_of, whole_tile
from .reductions import reduction
from .tensor import Tensor, settled

_PREDICATES = ("uint8", "uint16", "uint32", "bool")


def _unmasked(called: str, mask: Any) -> None:
    if mask is not None:
        raise UnsupportedError(
            f"mask= of {called} is not modelled", hint="slice the tiles instead: x[0:n, :]"
        )


@placed("where")
def where(condition: Any, x: Any, y: Any, *, dtype: Any = None, mask: Any = None, **ignored: Any) -> Tensor:
    """Elements of x where condition is not 0, of y (a tile or a number) elsewhere, in a new SBUF tile."""
    _unmasked("where", mask)
    chosen, other, predicate = whole_tile(x), tile_of(y), whole_tile(condition)
    kind = other.layout.dtype if isinstance(other, Tensor) else weak_dtype(other)
    held = promoted(chosen.layout.dtype, kind) if dtype is None else as_dtype(dtype)
    return settled(common.where(RESULTS, predicate, chosen, other, held))


def _kept(called: str, operator: str, axis: Any) -> Callable[[Any], Tensor]:
    """A reduction over axes that stay as axes of one, in float32."""
    return lambda tile: settled(reduction(called, operator, tile, axis, np.float32, None, True))


@placed("softmax")
def softmax(
    x: Any, axis: Any, *, dtype: Any = None, compute_dtype: Any = None, mask: Any = None, **ignored: Any
) -> Tensor:
    """exp(x - max) / sum of exp(x - max) over free axes, in float32 up to the last rounding."""
    _unmasked("softmax", mask)
    tile = whole_tile(x)
    held = as_dtype(dtype or compute_dtype or tile.layout.dtype)
    largest = _kept("softmax", "maximum", axis)(tile)
    return common.softmax(RESULTS, tile, largest, _kept("softmax", "add", axis), held)


@placed("rms_norm")
def rms_norm(
    x: Any,
    w: Any,
    axis: Any,
    n: Any,
    epsilon: float = 1e-6,
    *,
    dtype: Any = None,
    compute_dtype: Any = None,
    mask: Any = None,
    **ignored: Any,
) -> Tensor:
    """x / sqrt(sum of squares over free axes / n + epsilon) * w, in float32 up to the last rounding."""
    _unmasked("rms_norm", mask)
    tile, weights = whole_tile(x), whole_tile(w)
    held = as_dtype(dtype or compute_dtype or tile.layout.dtype)
    return common.rms_norm(RESULTS, tile, weights, _kept("rms_norm", "add", axis), n, epsilon, held)


@placed("dropout")
def dropout(x: Any, rate: Any, *, dtype: Any = None, mask: Any = None, **ignored: Any) -> Tensor:
    """x with elements set to 0 with probability `rate`; the bits are not those of the hardware."""
    _unmasked("dropout", mask)
    tile, probability = whole_tile(x), tile_of(rate)
    held = tile.layout.dtype if dtype is None else as_dtype(dtype)
    return common.dropout(RESULTS, tile, probability, held)
