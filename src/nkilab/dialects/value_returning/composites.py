"""Functions of `neuronxcc.nki.language` that take several instructions each."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import UnsupportedError
from ...isa.elementwise import Memset, TensorCopy, TensorScalar
from ...isa.operators import OPERATORS
from ...isa.predicated import TensorCopyPredicated
from ...isa.random_numbers import Dropout
from ...tiles.dtypes import DType, as_dtype, promoted, weak_dtype
from ...tiles.tile import SBUF
from ...tiles.views import broadcast
from ...trace.builder import record
from ...trace.session import Session, current
from ..places import placed
from .functions import a_tile, across_partitions, binary, reciprocal, tile_of, unary
from .reductions import reduction
from .tensor import Tensor, fresh, settled

_PREDICATES = ("uint8", "uint16", "uint32", "bool")


def _unmasked(called: str, mask: Any) -> None:
    if mask is not None:
        raise UnsupportedError(
            f"mask= of {called} is not modelled", hint="slice the tiles instead: x[0:n, :]"
        )


def _typed(session: Session, tile: Tensor, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    """`tile` in another type and broadcast to a shape; itself where it is so already."""
    tile = tile if tile.shape == shape else broadcast(tile, shape)
    if tile.layout.dtype is dtype:
        return tile
    return settled(fresh(session, TensorCopy, [None, tile], ("unknown",), (), dtype=dtype, memory=SBUF))


@placed("where")
def where(condition: Any, x: Any, y: Any, *, dtype: Any = None, mask: Any = None, **ignored: Any) -> Tensor:
    """Elements of x where condition is not 0, of y (a tile or a number) elsewhere, in a new SBUF tile."""
    _unmasked("where", mask)
    session = current()
    chosen, other, predicate = a_tile(x), tile_of(y), a_tile(condition)
    if predicate.layout.dtype.name not in _PREDICATES:
        predicate = settled(binary("not_equal", predicate, 0, np.uint8))
    is_tile = isinstance(other, Tensor)
    kind = other.layout.dtype if is_tile else weak_dtype(other)
    held = promoted(chosen.layout.dtype, kind) if dtype is None else as_dtype(dtype)
    shape = tuple(np.broadcast_shapes(predicate.shape, chosen.shape, other.shape if is_tile else (1,)))
    if is_tile:
        operands = [None, broadcast(other, shape)]
        out = settled(fresh(session, TensorCopy, operands, ("unknown",), (), dtype=held, memory=SBUF))
    else:
        out = settled(
            fresh(session, Memset, [None], ("unknown",), (other,), dtype=held, shape=shape, memory=SBUF)
        )
    source = _typed(session, chosen, held, shape)
    record(session, TensorCopyPredicated, [out, source, broadcast(predicate, shape)], (False,), ())
    return out


@placed("softmax")
def softmax(
    x: Any, axis: Any, *, dtype: Any = None, compute_dtype: Any = None, mask: Any = None, **ignored: Any
) -> Tensor:
    """exp(x - max) / sum of exp(x - max) over free axes, in float32 up to the last rounding."""
    _unmasked("softmax", mask)
    tile = a_tile(x)
    largest = settled(reduction("softmax", "maximum", tile, axis, np.float32, None, True))
    apart = settled(binary("subtract", tile, largest, np.float32))
    powers = settled(unary("exp", apart))
    total = settled(reduction("softmax", "add", powers, axis, np.float32, None, True))
    return binary("multiply", powers, settled(reciprocal(total)), dtype or compute_dtype or tile.layout.dtype)


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
    tile, weights = a_tile(x), a_tile(w)
    squares = settled(unary("square", tile, np.float32))
    total = settled(reduction("rms_norm", "add", squares, axis, np.float32, None, True))
    scale = (OPERATORS["multiply"], False, OPERATORS["add"], False, "unknown")
    mean = settled(fresh(current(), TensorScalar, [None, total, 1.0 / n, float(epsilon)], scale, ()))
    normal = settled(binary("multiply", tile, settled(unary("rsqrt", mean)), np.float32))
    return binary("multiply", normal, weights, dtype or compute_dtype or tile.layout.dtype)


@placed("dropout")
def dropout(x: Any, rate: Any, *, dtype: Any = None, mask: Any = None, **ignored: Any) -> Tensor:
    """x with elements set to 0 with probability `rate`; the bits are not those of the hardware."""
    _unmasked("dropout", mask)
    session = current()
    tile, probability = a_tile(x), tile_of(rate)
    if isinstance(probability, Tensor) and probability.layout.partitions == 1 < tile.layout.partitions:
        probability = settled(across_partitions(probability, tile.layout.partitions))
    kept = fresh(session, Dropout, [None, tile, probability], (), ())
    held = tile.layout.dtype if dtype is None else as_dtype(dtype)
    if held is tile.layout.dtype:
        return kept
    return fresh(session, TensorCopy, [None, settled(kept)], ("unknown",), (), dtype=held, memory=SBUF)
