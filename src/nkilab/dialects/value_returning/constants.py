"""Constants in HBM, random tiles and gathers of `neuronxcc.nki.language`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import RuleError, UseError
from ...isa.elementwise import Memset
from ...isa.gather import NcNGather
from ...isa.random_numbers import SetRngSeed
from ...tiles.dtypes import INT32, as_dtype
from ...tiles.tile import SBUF, whole_layout
from ...trace.builder import record
from ...trace.session import current
from .. import tile_functions as common
from ..indexing import allocated_shape, whole_number
from .functions import RESULTS, whole_tile
from .grids import box_of
from .tensor import Tensor, fresh, settled


def shared_constant(constant: Any, dtype: Any = None) -> Tensor:
    """An HBM tensor with the elements of a NumPy array, which may not be written.

    Raises:
        UseError: if the argument is no array, or has no element.
    """
    if not isinstance(constant, np.ndarray):
        raise UseError(
            f"constant is of type {type(constant).__name__}; it is a NumPy array of an element or more"
        )
    if not constant.size:
        raise UseError(f"constant is an array {list(constant.shape)}; it has an element or more")
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
        raise RuleError(f"seed is of type {type(seed).__name__}; it is an integer or a tile [1, 1]")
    record(session, SetRngSeed, [None, tile], (), ())


def gather_flattened(data: Any, indices: Any, *, mask: Any = None, dtype: Any = None) -> Tensor:
    """Per partition, the elements of the flattened free axes of data that uint32 indices name."""
    source, places = whole_tile(data), whole_tile(indices)
    if mask is not None:
        raise UseError("mask= of gather_flattened is not modelled", hint="slice data and indices instead")
    kind = None if dtype is None else as_dtype(dtype)
    return fresh(current(), NcNGather, [None, source, places], (), (), dtype=kind)
