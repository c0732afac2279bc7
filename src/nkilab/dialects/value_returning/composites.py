"""Functions of `neuronxcc.nki.language` that take several instructions each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import RuleError, UseError
from ...isa.elementwise import Memset, TensorCopy
from ...isa.gather import NcNGather
from ...isa.random_numbers import SetRngSeed
from ...tiles.dtypes import INT32, as_dtype, promoted, weak_dtype
from ...tiles.tile import SBUF, whole_layout
from ...trace.builder import record
from ...trace.session import current
from .. import tile_functions as common
from ..indexing import allocated_shape, whole_number
from .direct_allocation import is_direct, refuse_mixing
from .functions import RESULTS, a_tile, tile_of, whole_tile
from .grids import box_of
from .reductions import reduction
from .subscripts import crop_operand, cropped, inside_bounds
from .tensor import Tensor, fresh, settled


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
        )
    kind = other.layout.dtype if isinstance(other, Tensor) else weak_dtype(other)
    element_type = promoted(chosen.layout.dtype, kind) if dtype is None else as_dtype(dtype)
    return _under(
        mask,
        [predicate, chosen, other],
        element_type,
        lambda p, c, o: settled(common.where(RESULTS, p, c, o, element_type)),
    )


def _kept(operator: str, axis: Any) -> Callable[[Any], Tensor]:
    """A reduction over axes that stay as axes of one, in float32; its tile is one of the compiler's."""
    if is_direct(current()):
        refuse_mixing(SBUF)
    return lambda tile: settled(reduction(operator, tile, axis, np.float32, None, True))


def softmax(x: Any, axis: Any, *, dtype: Any = None, compute_dtype: Any = None, mask: Any = None) -> Tensor:
    """exp(x - max) / sum of exp(x - max) over free axes, in float32 up to the last rounding.

    What a mask leaves out takes no part in the sum.
    """
    source = a_tile(x)
    common.notice_precision("softmax", compute_dtype)
    element_type = as_dtype(dtype or compute_dtype or source.layout.dtype)

    def compute(tile: Tensor) -> Tensor:
        largest = _kept("maximum", axis)(tile)
        return common.softmax(RESULTS, tile, largest, _kept("add", axis), element_type)

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
        return common.rms_norm(RESULTS, tile, weights, _kept("add", axis), n, epsilon, element_type)

    return _under(mask, [source, a_tile(w)], element_type, compute)


def dropout(x: Any, rate: Any, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """x with elements set to 0 with probability `rate`; the bits are not those of the hardware."""
    source = a_tile(x)
    element_type = source.layout.dtype if dtype is None else as_dtype(dtype)
    return _under(
        mask, [source, tile_of(rate)], element_type, lambda t, p: common.dropout(RESULTS, t, p, element_type)
    )


def shared_constant(constant: Any, dtype: Any = None) -> Tensor:
    """An HBM tensor with the elements of a NumPy array, which may not be written.

    Raises:
        UseError: if the argument is no array, or has no element.
    """
    if not isinstance(constant, np.ndarray):
        raise UseError(
            f"constant is of type {type(constant).__name__}; it must be a NumPy array with elements"
        )
    if not constant.size:
        raise UseError(f"constant is an array {list(constant.shape)}; it must have an element or more")
    element_type = as_dtype(constant.dtype if dtype is None else dtype)
    storage = common.constant_storage(constant, element_type)
    return Tensor(storage, 0, whole_layout(storage))


def shared_identity_matrix(n: Any, dtype: Any = np.uint8) -> Tensor:
    """An HBM tensor [n, n] with ones on the diagonal."""
    return shared_constant(np.eye(whole_number(n, "n")), dtype)


def rand(shape: Any, dtype: Any = np.float32) -> Tensor:
    """A tile of uniform numbers in [0, 1), multiples of 2**-24; the bits are not those of the hardware."""
    return common.uniform(RESULTS, allocated_shape(shape), as_dtype(dtype), SBUF)


def random_seed(seed: Any, *, mask: Any = None) -> None:
    """Start the random generators from one 32-bit number, unless a mask over [1, 1] leaves it out."""
    session = current()
    session.flush()
    if mask is not None and box_of(mask, (1, 1))[0] is None:
        return
    if isinstance(seed, Tensor):
        tile = whole_tile(seed)
    elif isinstance(seed, int | np.integer):
        tile = settled(fresh(session, Memset, [None], ("unknown",), (int(seed),), dtype=INT32, shape=(1, 1)))
    else:
        raise RuleError(f"seed is of type {type(seed).__name__}; it must be an integer or a tile [1, 1]")
    record(session, SetRngSeed, [None, tile], (), ())


def gather_flattened(data: Any, indices: Any, *, mask: Any = None, dtype: Any = None) -> Tensor:
    """Per partition, the elements of the flattened free axes of data that uint32 indices name."""
    source, places = whole_tile(data), whole_tile(indices)
    if mask is not None:
        raise UseError("mask= of gather_flattened is not modelled", hint="slice data and indices instead")
    kind = None if dtype is None else as_dtype(dtype)
    return fresh(current(), NcNGather, [None, source, places], (), (), dtype=kind)
