"""Tensors of `nki`: views by slices, without operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ...errors import LimitError, NkilabError, RuleError, SpellingError, UnsupportedError, UseError
from ...tiles.dtypes import as_dtype
from ...tiles.tile import HBM, PSUM, SBUF, View, array_of, compact_strides, layout, whole_layout
from ...tiles.views import reinterpreted, reshaped
from ...trace.session import current
from ...trace.source import place_of, user_frame
from ..indexing import allocated_shape, as_shape, basic
from ..outputs import shared_storage
from ..places import described
from . import view_methods

PARTITION_LIMIT = "number of partitions {} exceed architecture limitation of {}"


class Tensor(View):
    """A tensor of an `nki` kernel: an HBM tensor, a tile, or a view of either."""

    __slots__ = ("__weakref__",)

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""
        return self.layout.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.layout.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.layout.size

    @property
    def dtype(self) -> str:
        """Name of the data type of one element."""
        return self.layout.dtype.name

    @property
    def buffer(self) -> str:
        """The memory it lies in: "hbm", "sbuf" or "psum"."""
        return self.layout.memory

    @property
    def name(self) -> str:
        """The name it was given."""
        return self.storage.name

    def describe(self) -> str:
        """One line for messages: its name or that of the user's variable, dtype, shape and memory."""
        return described(self)

    def __len__(self) -> int:
        return self.layout.shape[0]

    def __getitem__(self, key: Any) -> Tensor:
        try:
            return basic(self, key, keeps_on_chip_rank=True)
        except NkilabError as error:
            raise error.located(place_of(user_frame()), "subscript") from None

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise SpellingError(
            "a tile is assigned through a subscript, which nki does not have",
            hint="write it with an instruction: nisa.tensor_copy(dst=..., src=...)",
            source="NKI language guide, indexing",
        ).located(place_of(user_frame()), "assignment")

    def reshape(self, shape: Any, dtype: Any = None) -> Tensor:
        """A view of the same elements under another shape; on chip the partition axis stays."""
        try:
            axis = self.layout.partition_axis
            extents = as_shape(shape)
            if axis is not None and (not extents or extents[0] != self.shape[0]):
                raise RuleError(
                    f"a reshape from {list(self.shape)} to {list(extents)} changes the partition axis",
                    hint="keep the first extent",
                )
            view = self if dtype is None else reinterpreted(self, as_dtype(dtype))
            return reshaped(view, extents, axis)
        except NkilabError as error:
            raise error.located(place_of(user_frame()), "reshape", [self.describe()]) from None

    def view(self, dtype: Any) -> Tensor:
        """The same bytes read as another data type; the last axis scales."""
        try:
            return reinterpreted(self, as_dtype(dtype))
        except NkilabError as error:
            raise error.located(place_of(user_frame()), "view", [self.describe()]) from None

    def __bool__(self) -> NoReturn:
        raise UseError(
            "the truth of a tensor is not defined inside a kernel", hint="use `is not None` for presence",
            key="err_dynamic_control_flow_not_supported",
        ).located(place_of(user_frame()), "bool")  # fmt: skip

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        """The elements, for debuggers and printing."""
        if not self.storage.is_known:
            raise UseError(
                f"{self.describe()} has no data here: only shapes are known, or nothing is written"
            )
        return np.array(array_of(self))

    def __repr__(self) -> str:
        if not self.storage.is_known:
            return f"<{self.describe()}>"
        return f"<{self.describe()}>\n{array_of(self)}"

    __array_ufunc__ = None


def _refused_operator(word: str) -> Callable[..., NoReturn]:
    def method(self: Tensor, *others: Any) -> NoReturn:
        raise SpellingError(
            f"a tensor takes part in the operator {word}, which nki does not have on tensors",
            hint="write it with an instruction: nisa.tensor_tensor or nisa.tensor_scalar",
            source="NKI language guide",
        ).located(place_of(user_frame()), f"operator {word}")

    return method


_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**", "matmul": "@", "and": "&",
              "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "mod": "%",
              "floordiv": "//"}  # fmt: skip

for _dunder, _word in _OPERATORS.items():
    for _kind in ("", "r", "i"):
        setattr(Tensor, f"__{_kind}{_dunder}__", _refused_operator(_word))
for _dunder, _word in {"neg": "-", "invert": "~", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    setattr(Tensor, f"__{_dunder}__", _refused_operator(_word))


def _view_method(called: str, make: Callable[..., Any]) -> Callable[..., Tensor]:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        try:
            view: Tensor = make(self, *args, **kwargs)
        except NkilabError as error:
            raise error.located(place_of(user_frame()), called, [self.describe()]) from None
        return view

    method.__name__ = method.__qualname__ = called
    method.__doc__ = make.__doc__
    return method


def _access_pattern(
    tensor: Tensor,
    pattern: Any,
    offset: Any = None,
    scalar_offset: Any = None,
    vector_offset: Any = None,
    indirect_dim: int = 0,
    dtype: Any = None,
) -> Tensor:
    """Elements by [step, count] pairs, outermost first, over the storage as a flat array."""
    if scalar_offset is not None or vector_offset is not None:
        raise UnsupportedError("offsets that are known at run time only are not modelled yet")
    return view_methods.access_pattern(tensor, pattern, offset, None if dtype is None else as_dtype(dtype))


# View methods of NKI 0.5 and later; `ap` of all versions.
_VIEW_METHODS: dict[str, Callable[..., Any]] = {
    "ap": _access_pattern,
    "slice": view_methods.slice_axis,
    "select": view_methods.select,
    "permute": view_methods.permute,
    "broadcast": view_methods.broadcast_axis,
    "expand_dim": view_methods.expand_dim,
    "squeeze_dim": view_methods.squeeze_dim,
    "reshape_dim": view_methods.reshape_dim,
    "flatten_dims": view_methods.flatten_dims,
    "rearrange": view_methods.rearrange,
}
for _name, _make in _VIEW_METHODS.items():
    setattr(Tensor, _name, _view_method(_name, _make))


class MemoryRegion:
    """A memory that tensors are allocated in.

    Args:
        name: as in nki.language.
        memory: "hbm", "sbuf" or "psum".
        scope: "private", "shared" or "tile".
    """

    def __init__(self, name: str, memory: str, scope: str) -> None:
        self.name = name
        self.memory = memory
        self.scope = scope

    def __repr__(self) -> str:
        return f"nl.{self.name}"


REGIONS = {
    r.name: r
    for r in (
        MemoryRegion("sbuf", SBUF, "tile"),
        MemoryRegion("psum", PSUM, "tile"),
        MemoryRegion("hbm", HBM, "private"),
        MemoryRegion("private_hbm", HBM, "private"),
        MemoryRegion("shared_hbm", HBM, "shared"),
    )
}


def _region(buffer: Any) -> MemoryRegion | None:
    """The region that a token or a name means; SBUF for None."""
    if isinstance(buffer, MemoryRegion):
        return buffer
    return REGIONS.get("sbuf" if buffer is None else str(getattr(buffer, "name", buffer)))


def ndarray(shape: Any, dtype: Any, buffer: Any = None, name: str = "", address: Any = None) -> Tensor:
    """A tensor whose elements are not written yet; on chip its first axis is the partition.

    Args:
        shape: extents.
        dtype: of one element.
        buffer: nl.sbuf (default), nl.psum, nl.hbm, nl.private_hbm or nl.shared_hbm, or its name.
        name: shown in messages and profiles.
        address: not modelled yet.

    Raises:
        LimitError: if there are more than 128 partitions.
    """
    session = current()
    try:
        region = _region(buffer)
        if region is None:
            raise RuleError(f"buffer is {buffer!r}; it is one of {', '.join(f'nl.{n}' for n in REGIONS)}")
        if address is not None:
            raise UseError("direct addresses are not modelled yet", hint="leave address= out")
        extents, held = allocated_shape(shape), as_dtype(dtype)
        if region.memory == HBM:
            storage = shared_storage(session, extents, held, region.scope, name)
            return Tensor(storage, 0, layout(extents, compact_strides(extents), held, HBM, None, 0))
        most = session.machine.limit("partitions")
        if extents[0] > most:
            raise LimitError(
                PARTITION_LIMIT.format(extents[0], most),
                hint="split the partition axis into tiles of 128",
                source="trn1 architecture guide, SBUF",
                key="err_num_partition_exceed_arch_limit",
            )
        storage = session.new_storage(extents, held, region.memory, "tile", name)
        return Tensor(storage, 0, whole_layout(storage))
    except NkilabError as error:
        raise error.located(place_of(user_frame()), "ndarray") from None
