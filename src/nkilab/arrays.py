"""Arrays of the host: NumPy, PyTorch, JAX, what has `__array__` or `__dlpack__`, and specs without data."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from operator import index as as_index
from typing import Any

import ml_dtypes
import numpy as np
from msgspec import Struct
from msgspec.structs import force_setattr

from ._lazy import jax, jax_numpy, torch
from .errors import NkilabError, UsageError, UseError
from .tiles.dtypes import DType, as_dtype


class ArraySpec(Struct, frozen=True):
    """Stands in for an array where only shapes matter."""

    shape: tuple[int, ...]  # extents
    dtype: Any  # a name or anything `nkilab` takes for a data type

    def __post_init__(self) -> None:
        try:
            shape = tuple(as_index(n) for n in self.shape)
        except TypeError:
            raise UsageError(f"a spec has shape {self.shape!r}; it must be whole numbers") from None
        force_setattr(self, "shape", shape)
        if not self.shape or min(self.shape) < 1:
            raise UsageError(f"a spec has shape {list(self.shape)}; extents are at least 1")
        try:
            as_dtype(self.dtype)
        except NkilabError as error:
            raise UsageError(f"a spec has no type: {error.problem}", hint=error.hint) from None

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)


def framework_of(value: Any) -> str:
    """ "numpy", "torch", "jax", "spec", "array" or "dlpack" for arrays; "" for anything else."""
    if isinstance(value, type):
        # a type such as np.float32 has the attributes of an array, but is none
        return ""
    if isinstance(value, ArraySpec):
        return "spec"
    if isinstance(value, np.ndarray):
        return "numpy"
    roots = _roots(type(value))
    if "torch" in roots and hasattr(value, "detach"):
        return "torch"
    if roots & {"jax", "jaxlib"} and hasattr(value, "dtype"):
        return "jax"
    if isinstance(value, np.generic):
        return ""
    if hasattr(value, "__array__"):
        return "array"
    return "dlpack" if hasattr(value, "__dlpack__") else ""


# `functools.lru_cache` would make torch.compile warn
_KNOWN_ROOTS: dict[type, frozenset[str]] = {}


def _roots(kind: type) -> frozenset[str]:
    """The packages that a type and its bases are of."""
    if kind not in _KNOWN_ROOTS:
        _KNOWN_ROOTS[kind] = frozenset(cls.__module__.partition(".")[0] for cls in kind.__mro__)
    return _KNOWN_ROOTS[kind]


def array_namespace(value: Any) -> Any:
    """The array API namespace of an array of neither NumPy, PyTorch nor JAX; None if it has none."""
    if framework_of(value) not in ("array", "dlpack") or not hasattr(value, "__array_namespace__"):
        return None
    return value.__array_namespace__()


def is_tracer(value: Any) -> bool:
    """Whether a value stands in for an array while JAX traces a function, or holds one that does."""
    if isinstance(value, dict):
        return any(map(is_tracer, value.values()))
    if isinstance(value, list | tuple):
        return any(map(is_tracer, value))
    return framework_of(value) == "jax" and isinstance(value, jax("core").Tracer)


def chosen_framework(values: Sequence[Any]) -> Any:
    """What results are made as: of the first PyTorch or JAX argument, else of the first other namespace."""
    named = next((o for o in values if isinstance(o, str) and o.startswith(("torch", "jax"))), None)
    return named or next((one for one in values if not isinstance(one, str)), "numpy")


def outlined(value: Any, name: str) -> Any:
    """An array that tells its shape and type: itself, its elements untouched, or what NumPy reads of it.

    Raises:
        UseError: if neither it nor NumPy can tell; names the argument.
    """
    try:
        as_dtype(value.dtype)
        tuple(int(n) for n in value.shape)
    except (AttributeError, TypeError, NkilabError):
        return on_host(value, name)
    return value


def with_elements(value: object, name: str) -> object:
    """`on_host`, of an array that has elements.

    Raises:
        UseError: if it has none, or they cannot be read from here; names the argument.
    """
    if framework_of(value) == "torch" and getattr(value, "is_meta", False):
        raise UseError(
            f"argument {name} lies on PyTorch's device meta, which has no elements",
            hint="pass a tensor of the CPU; nkilab estimate takes shapes alone",
        )
    return on_host(value, name)


def on_host(value: Any, name: str) -> Any:
    """An array that is neither of NumPy, PyTorch nor JAX as one of NumPy; any other as it is.

    Raises:
        UseError: if its elements cannot be read from here; names the argument.
    """
    # NumPy loads masked arrays where they are first asked for
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(value, masked.MaskedArray) and masked.is_masked(value):
        raise UseError(
            f"argument {name} is a masked array, of which {value.mask.sum()} elements are masked",
            hint="pass x.filled(value)",
        )
    kind = framework_of(value)
    if kind == "torch" and str(value.layout) != "torch.strided":
        raise UseError(
            f"argument {name} has layout {value.layout}; kernels take dense tensors",
            hint=f"pass {name}.to_dense()",
        )
    if kind not in ("array", "dlpack"):
        return value
    try:
        return np.asarray(value) if kind == "array" else np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError, AttributeError) as error:
        raise UseError(
            f"argument {name} is {type(value).__name__}, which NumPy cannot read: {error}",
            hint="move it to the CPU, or convert it to NumPy, before the call",
        ) from None


def origin_of(value: Any) -> str:
    """The framework of an array; of a tensor of PyTorch that lies elsewhere than on the CPU also where.

    As in "torch@xla:1".
    """
    framework = framework_of(value)
    if framework != "torch" or value.device.type == "cpu":
        return framework
    return f"{framework}@{value.device}"


def dtype_of(value: Any, name: str) -> DType:
    """The data type of an array.

    Raises:
        UseError: if no tile can hold it; names the argument.
    """
    dtype = value.dtype
    if isinstance(dtype, np.dtype):
        dtype = dtype.newbyteorder("=")
    try:
        return as_dtype(dtype)
    except NkilabError as error:
        raise UseError(
            f"argument {name}: {error.problem}", hint="cast it on the host before the call"
        ) from None


def shape_of(value: Any, name: str) -> tuple[int, ...]:
    """The extents of an array.

    Raises:
        UseError: if no tensor has them; names the argument.
    """
    shape = tuple(int(n) for n in value.shape)
    if shape and 0 not in shape:
        return shape
    hint = ""
    if not shape:
        hint = (
            "kernels take numbers as constants: let jax.jit have it in static_argnums"
            if is_tracer(value)
            else f"pass a number, as {name}.item() is one"
        )
    raise UseError(
        f"argument {name} has shape {list(shape)}; a tensor has at least one element and axis", hint=hint
    )


def loses_gradient(value: Any) -> bool:
    """Whether PyTorch records what is done with a tensor, which it cannot for a kernel."""
    return framework_of(value) == "torch" and value.requires_grad and torch().is_grad_enabled()


def to_numpy(value: Any) -> np.ndarray:
    """The elements of an array as a C-contiguous NumPy array, shared where possible."""
    if framework_of(value) == "torch":
        detach = value.detach()
        # a tensor that only says that it lies at a device can be written where it lies
        plain = (detach.in_place() if hasattr(detach, "in_place") else detach.cpu()).contiguous()
        view = _TORCH_BITS.get(str(plain.dtype).removeprefix("torch."))
        if view is not None:
            plain = plain.view(getattr(torch(), view[0]))
        array: np.ndarray = plain.numpy()
        return array if view is None else array.view(view[1])
    plain = np.asarray(value)
    return np.ascontiguousarray(plain, plain.dtype.newbyteorder("="))


def is_shared(value: Any) -> bool:
    """Whether `to_numpy` gives the elements of an array where they lie, so that writing changes the array."""
    if framework_of(value) == "torch":
        return bool(value.is_contiguous()) and (value.device.type == "cpu" or hasattr(value, "in_place"))
    if not isinstance(value, np.ndarray):
        return False
    return value.flags.c_contiguous and value.flags.writeable and value.dtype.isnative


def write_back(value: Any, elements: np.ndarray) -> bool:
    """Write elements to the array of a framework that they were taken from; JAX arrays never change.

    Returns:
        False if the array is one of NumPy that may not be written.
    """
    kind = framework_of(value)
    if kind == "torch":
        value.detach().copy_(from_numpy(elements, kind))
    elif kind == "numpy":
        if not value.flags.writeable:
            return False
        np.copyto(value, elements)
    return True


# Types that PyTorch does not hand to NumPy: moved as bits.
_TORCH_BITS = {
    "bfloat16": ("int16", ml_dtypes.bfloat16),
    "float8_e4m3fn": ("uint8", ml_dtypes.float8_e4m3fn),
    "float8_e5m2": ("uint8", ml_dtypes.float8_e5m2),
    "float8_e8m0fnu": ("uint8", ml_dtypes.float8_e8m0fnu),
    "uint16": ("int16", np.uint16),
    "uint32": ("int32", np.uint32),
}


def torch_dtype(dtype: DType) -> Any:
    """The type of PyTorch tensors that hold elements of a type; of packed types unsigned integers.

    Raises:
        UseError: if PyTorch has none.
    """
    name = f"uint{dtype.itemsize * 8}" if dtype.is_packed else dtype.name
    if not hasattr(torch(), name):
        raise UseError(
            f"a result is {name}, which torch does not have", hint="pass NumPy arrays to the kernel"
        )
    return getattr(torch(), name)


def without_packing(array: np.ndarray) -> np.ndarray:
    """`array` with elements of packed types as unsigned integers of the same bits."""
    if as_dtype(array.dtype).is_packed:
        return array.view(np.dtype(f"uint{array.itemsize * 8}"))
    return array


def from_numpy(array: np.ndarray, origin: Any) -> Any:
    """`array` as an array of where others came from: `origin_of` them, or a namespace of the array API.

    PyTorch and JAX have no packed types: their elements become unsigned integers of the same bits. A type
    that is none of the standard's (bfloat16, float8) stays an array of NumPy.
    """
    if not isinstance(origin, str):
        return origin.from_dlpack(array) if array.dtype.kind in "biuf" else array
    framework, _, device = origin.partition("@")
    if device:
        return from_numpy(array, framework).to(device)
    if framework in ("torch", "jax"):
        array = without_packing(array)
    if framework == "torch":
        module = torch()
        name = as_dtype(array.dtype).name
        if name in _TORCH_BITS:
            bits, _ = _TORCH_BITS[name]
            plain = np.ascontiguousarray(array).view(np.dtype(bits))
            return module.from_numpy(plain).view(getattr(module, name))
        torch_dtype(as_dtype(array.dtype))
        return module.from_numpy(np.ascontiguousarray(array))
    if framework == "jax":
        return jax_numpy().asarray(array)
    return array
