"""Names of Beta 1 that host scripts use beside kernels: casts, sizes, and what frameworks integrate with."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import UnsupportedError
from ...tiles.convert import round_tfloat32
from ...tiles.dtypes import TFLOAT32, as_dtype
from ..places import placed
from ..tile_size import tile_size
from .tensor import Tensor


@placed("static_cast")
def static_cast(input_data: Any, dtype: Any) -> Any:
    """A number or array in another data type, rounded to nearest even; a tensor of a kernel is copied to it.

    Args:
        input_data: a number, NumPy array or whatever `numpy.asarray` takes; or a tensor.
        dtype: name or NumPy type.
    """
    if isinstance(input_data, Tensor):
        return input_data.astype(dtype)
    array = np.asarray(input_data)
    element_type = np.dtype(dtype) if dtype in (float, np.float64, np.int64) else as_dtype(dtype).storage
    if dtype is TFLOAT32:
        array = round_tfloat32(array.astype(np.float32))
    out = array.astype(element_type)
    return out if array.shape else out[()]


@placed("sizeinbytes")
def sizeinbytes(dtype: Any) -> int:
    """Bytes of one element of a data type."""
    return as_dtype(dtype).itemsize


class FrameworkKernel:
    """The base of framework integrations that lower kernels to custom calls; nkilab runs kernels itself."""

    def _refused(self, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError(
            "FrameworkKernel lowers kernels to custom calls of XLA, which nkilab does not make",
            hint="call the kernel that nki.jit gives, with arrays of the framework",
        )

    dump_config = is_framework_tensor = map_framework_tensor = translate_to_neuron_dtype = _refused


class bfp16:
    """bfloat16 constants."""

    # bit pattern 0xff80
    min = float("-inf")


CONSTANTS: dict[str, Any] = {
    "sizeinbytes": sizeinbytes,
    "sbuf_min_align": tile_size.sbuf_min_align,
    "psum_min_align": tile_size.psum_min_align,
}
