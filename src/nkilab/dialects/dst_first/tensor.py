"""Tensors of `nki`: views by slices, without operators."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import numpy as np

from ...errors import NkilabError, RuleError, SpellingError, UnsupportedError, UseError, shown
from ...isa.data_movement import DmaCopy
from ...isa.elementwise import Memset, TensorCopy
from ...tiles.dtypes import NUMBERS, as_dtype
from ...tiles.tile import HBM, View, array_of, whole_layout
from ...tiles.views import reinterpreted, reshaped
from ...trace.affine import REPEATS, Affine
from ...trace.builder import no_tensor, record
from ...trace.session import Session, current, running
from ...trace.source import name_of, place_of, user_frame, user_site
from ..history import order
from ..indexing import OUT_OF_BOUND, as_shape, basic, cut
from ..kernel import TENSORS
from ..places import described, placed, printed
from ..tile_functions import plain
from ..versions import require, version_of
from . import dynamic, view_methods
from .regions import REGIONS, MemoryPointer, MemoryRegion, address_of

# Versions whose subscripts drop the partition axis.
_EARLY = ("0.1", "0.2")


class Tensor(View):
    """A tensor of an `nki` kernel: an HBM tensor, a tile, or a view of either."""

    __slots__ = ("__weakref__",)
    subscripts = "integers, slices and nl.ds"

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.layout.size

    @property
    def dtype(self) -> str:
        """Name of the data type of one element."""
        return self.layout.dtype.name

    @property
    def buffer(self) -> MemoryRegion:
        """The memory it lies in."""
        memory = self.layout.memory
        if memory != HBM:
            return REGIONS[memory]
        if self.storage.scope in ("shared", "output"):
            return MemoryRegion.shared_hbm
        return MemoryRegion.private_hbm

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours along each axis; partitions are as far apart as they hold elements."""
        return self.layout.strides

    @property
    def pattern(self) -> list[list[int]]:
        """[stride, count] of each axis, in elements."""
        return self.get_pattern()

    @property
    def address(self) -> MemoryPointer:
        """The piece of memory that its storage takes."""
        try:
            return address_of(self.storage)
        except NkilabError as error:
            raise error.located(place_of(user_frame()), "address", [self.describe()]) from None

    @property
    def name(self) -> str:
        """The name it was given."""
        return self.storage.name

    def describe(self) -> str:
        """One line for messages: its name or that of the user's variable, dtype, shape and memory."""
        return described(self)

    def __iter__(self) -> NoReturn:
        raise SpellingError(
            "a tensor is gone through like a list, which nki does not do",
            hint="loop over nl.affine_range(n), and slice the tensor by the index",
        ).located(place_of(user_frame()), "iteration", [self.describe()])

    def __getitem__(self, key: Any) -> Tensor:
        view = cut(self, key)
        if view is not None:
            return view
        session = running()
        if session is not None and session.version in _EARLY:
            return self._subscripted_early(key)
        return self._subscripted(key)

    def _subscripted(self, key: Any) -> Tensor:
        try:
            return _plain_or_dynamic(self, key)
        except NkilabError as error:
            raise error.located(place_of(user_frame()), "subscript") from None

    def _subscripted_early(self, key: Any) -> Tensor:
        """A view as 0.1 and 0.2 make it: an integer drops the partition axis, and none is negative."""
        keys = key if isinstance(key, tuple) else (key,)
        for k in keys:
            if isinstance(k, int) and k < 0:
                raise UseError(
                    f"index {k} is negative; subscripts of NKI 0.1 and 0.2 are at least 0", key=OUT_OF_BOUND
                ).located(place_of(user_frame()), "subscript")
        view = self._subscripted(key)
        is_row = (
            bool(keys) and isinstance(keys[0], int) and self.layout.is_on_chip and view.layout.shape[0] == 1
        )
        return PartitionRow(view.storage, view.offset, view.layout) if is_row else view

    def __setitem__(self, key: Any, value: Any) -> None:
        session = current()
        try:
            if session.version and order(session.version) < order("0.3"):
                raise SpellingError(
                    "a tile is assigned through a subscript, which nki does not have",
                    hint="write it with an instruction: nisa.tensor_copy(dst=..., src=...)",
                    source="NKI language guide, indexing",
                )
            assign(session, self[key], value)
        except NkilabError as error:
            raise error.located(place_of(user_frame()), "assignment") from None

    def get_pattern(self) -> list[list[int]]:
        """[stride, count] of each axis, in elements; a list of one's own."""
        return [[s, n] for s, n in zip(self.layout.strides, self.layout.shape, strict=True)]

    def is_contiguous(self) -> bool:
        """Whether its elements lie side by side in row-major order; on chip within each partition."""
        axes = [(n, s) for n, s in zip(self.shape, self.strides, strict=True)]
        if self.layout.is_on_chip:
            axes = axes[1:]
        step = 1
        for count, stride in reversed(axes):
            if count != 1 and stride != step:
                return False
            step *= count
        return True

    def is_identity(self) -> bool:
        """Whether it is the tensor that was made, and no view of it."""
        return self.layout is whole_layout(self.storage) and self.offset == 0

    @property
    def sim_value(self) -> np.ndarray:
        """A copy of its elements by now."""
        return np.array(self)

    @property
    def device_value(self) -> None:
        """What a device dumped: nothing, because none runs."""
        return None

    def is_indirect(self) -> bool:
        """Whether its address depends on a value that is known at run time only."""
        return bool(self.layout.indices)

    @placed("reshape", is_method=True)
    def reshape(self, shape: Any = None, dtype: Any = None, *, new_shape: Any = None) -> Tensor:
        """A view of the same elements under another shape; on chip the partition axis stays."""
        if shape is not None and new_shape is not None:
            raise UseError("shape and new_shape are both given; they mean the same")
        view = self if dtype is None else reinterpreted(self, as_dtype(dtype))
        return self._reshaped(view, as_shape(new_shape if shape is None else shape))

    def _reshaped(self, view: Tensor, extents: tuple[int, ...]) -> Tensor:
        axis = self.layout.partition_axis
        if axis is not None and (not extents or extents[0] != self.shape[0]):
            raise RuleError(
                f"a reshape from {list(self.shape)} to {list(extents)} changes the partition axis",
                hint="keep the first extent",
            )
        session = running()
        if axis is None and self.storage.scope != "input" and extents[:1] != self.shape[:1]:
            require("hbm_reshape", version_of(session), "reshape")
        if session is not None and session.version in _EARLY:
            view = view_methods.leading_part(view, extents)
        return reshaped(view, extents, axis)

    @placed("view", is_method=True)
    def view(self, dtype: Any, shape: Any = None) -> Tensor:
        """The same bytes read as another data type; the last axis scales, unless a shape is given."""
        view = reinterpreted(self, as_dtype(dtype))
        return view if shape is None else self._reshaped(view, as_shape(shape))

    reinterpret_cast = view

    def indirect(self, index: Any, num_elem: Any = None) -> NoReturn:
        """Elements that offsets in a tile choose, for engines of trn3."""
        raise UnsupportedError(
            "tensor indirection of compute instructions is not modelled: the documents leave open whether "
            "each group of 16 or 32 partitions has offsets of its own",
            hint="gather with nisa.nc_n_gather or nisa.local_gather, or rows with vector_select",
        ).located(place_of(user_frame()), "indirect", [self.describe()])

    def __bool__(self) -> bool:
        """That there is a tensor, as the vendor's front end has it; of one element its value may be meant.

        nki-library asks so whether it was given a tile, which may have one element.
        """
        if self.layout.size == 1:
            session = current()
            session.where = user_site()
            session.warn(
                f"the truth of {self.describe()} says that it is there, not what it holds: "
                "write `is not None`, or load the element into a register"
            )
        return True

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        """The elements, for debuggers and printing."""
        if not self.storage.is_known:
            raise UseError(
                f"{self.describe()} has no data here: only shapes are known, or nothing is written"
            )
        return np.array(array_of(self))

    def __repr__(self) -> str:
        return printed(self)


TENSORS["nki"] = Tensor


class PartitionRow(Tensor):
    """One partition of a tile in 0.1 and 0.2: an integer chose it, and its axis counts no more.

    Source: NKI 0.2 language guide, Tensor Indexing.
    """

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each free axis."""
        return self.layout.shape[1:]

    @property
    def ndim(self) -> int:
        """Number of free axes."""
        return len(self.layout.shape) - 1

    def __getitem__(self, key: Any) -> Tensor:
        return self._subscripted((slice(None), *(key if isinstance(key, tuple) else (key,))))

    def _reshaped(self, view: Tensor, extents: tuple[int, ...]) -> Tensor:
        return reshaped(view, (1, *extents), 0)


def _plain_or_dynamic(tensor: Tensor, key: Any) -> Tensor:
    """A view by subscripts that are known, or that registers and tiles hold."""
    try:
        return basic(tensor, key, keeps_two_axes=True)
    except UseError:
        if not any(map(dynamic.is_dynamic, _parts(key))):
            raise
        return dynamic.subscripted(tensor, key)


def _parts(key: Any) -> list[Any]:
    """The subscripts of a key, and the starts of those that are slices."""
    keys = key if isinstance(key, tuple) else (key,)
    return [part for k in keys for part in (k, getattr(k, "start", None))]


# The word of nki.language that means what an operator does.
_WORDS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "**": "power", "%": "mod",
          "&": "bitwise_and", "|": "bitwise_or", "^": "bitwise_xor", "<<": "left_shift", ">>": "right_shift",
          "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}  # fmt: skip
_AS_INSTRUCTION = {
    "@": "nisa.nc_matmul(dst, stationary, moving)",
    "~": "nisa.tensor_scalar(dst, tile, op0=nl.invert, operand0=0)",
    "//": "a division with nisa.tensor_tensor or nisa.tensor_scalar, and nl.floor",
}


def _as_instruction(tensor: Tensor, sign: str, others: tuple[Any, ...], is_reflected: bool) -> str:
    """The instruction that computes what an operator would."""
    frame = user_frame()
    name, word = name_of(tensor, frame) or "tile", _WORDS.get(sign, "")
    if sign in _AS_INSTRUCTION or not others:
        return _AS_INSTRUCTION.get(sign, f"nisa.tensor_scalar(dst, {name}, op0=nl.multiply, operand0=-1)")
    other = others[0]
    if isinstance(other, View):
        return f"nisa.tensor_tensor(dst, {name}, {name_of(other, frame) or 'tile'}, op=nl.{word})"
    if not isinstance(other, NUMBERS):
        return "nisa.tensor_tensor or nisa.tensor_scalar, which take tiles and numbers"
    reverse = ", reverse0=True" if is_reflected else ""
    chooses = ", and choose by it with nl.where" if sign in "<=>=" else ""
    return f"nisa.tensor_scalar(dst, {name}, op0=nl.{word}, operand0={shown(other)}{reverse}){chooses}"


def _refused_operator(word: str, is_reflected: bool = False) -> Callable[..., NoReturn]:
    def method(self: Tensor, *others: Any) -> NoReturn:
        raise SpellingError(
            f"a tensor takes part in the operator {word}, which nki does not have on tensors",
            hint=f"write {_as_instruction(self, word, others, is_reflected)}",
            source="NKI language guide",
        ).located(place_of(user_frame()), f"operator {word}")

    return method


_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**", "matmul": "@", "and": "&",
              "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "mod": "%",
              "floordiv": "//"}  # fmt: skip

for _dunder, _word in _OPERATORS.items():
    for _kind in ("", "r", "i"):
        setattr(Tensor, f"__{_kind}{_dunder}__", _refused_operator(_word, _kind == "r"))
for _dunder, _word in {"neg": "-", "invert": "~", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    setattr(Tensor, f"__{_dunder}__", _refused_operator(_word))


def _view_method(called: str, make: Callable[..., Any]) -> Callable[..., Tensor]:
    method: Callable[..., Tensor] = placed(called, is_method=True)(make)
    method.__name__ = method.__qualname__ = called
    return method


def _access_pattern(
    tensor: Tensor, pattern: Any, offset: Any = None, scalar_offset: Any = None, vector_offset: Any = None,
    indirect_dim: int = 0, dtype: Any = None,
) -> Tensor | view_methods.Unreachable:  # fmt: skip
    """Elements by [step, count] pairs, outermost first, over the storage as a flat array."""
    element_type = None if dtype is None else as_dtype(dtype)
    session = running()
    version = session.version if session is not None else ""
    is_relative = not version or order(version) < order(ABSOLUTE_SINCE)
    if scalar_offset is not None or vector_offset is not None:
        return dynamic.access_pattern(
            tensor,
            pattern,
            offset,
            scalar_offset,
            vector_offset,
            indirect_dim,
            element_type,
            is_relative=is_relative,
        )
    patterned = partial(
        view_methods.access_pattern, tensor, pattern, dtype=element_type, is_relative=is_relative
    )
    try:
        if type(offset) is Affine:
            # what lies inside, and in the same partitions, at both ends does so between them
            first, last = (patterned(end).layout for end in offset.bounds)
            offset = offset.value if first is last else offset.refuse()
        view = patterned(offset)
    except view_methods.OutOfReachError as error:
        return view_methods.Unreachable(error)
    if session is not None:
        entry = (view.storage.number, view.offset, view.layout)
        session.program.marks.patterns.add(entry)
        if REPEATS in session.keyed:
            session.keyed[REPEATS].patterns.append(entry)
    return view


# NKI 0.5 documents that a pattern is written for the storage, whatever view it is called on. The kernels of
# the vendor's library of 0.3 count it from the view; so does nkilab where no version is asked for.
ABSOLUTE_SINCE = "0.5"


def _select(tensor: Tensor, dim: Any, index: Any) -> Tensor:
    """One position of an axis, which is dropped; a register or tile of one element may hold the index."""
    method = dynamic.select if dynamic.is_dynamic(index) else view_methods.select
    return method(tensor, dim, index)


# View methods of NKI 0.5 and later; `ap` of all versions.
_VIEW_METHODS: dict[str, Callable[..., Any]] = {
    "ap": _access_pattern,
    "slice": view_methods.slice_axis,
    "select": _select,
    "vector_select": dynamic.vector_select,
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
                f"the value is {list(value.layout.shape)} and its place {list(dst.layout.shape)}; they "
                f"must agree"
            )
        cls = DmaCopy if is_transfer else TensorCopy
        record(session, cls, [dst, value], plain(cls), ())
        return
    if not isinstance(value, int | float | np.generic):
        raise no_tensor("the value", value, "it must be a tensor or a number")
    if not dst.layout.is_on_chip:
        raise RuleError("a number is assigned to a tensor in hbm", hint="store a tile of it")
    record(session, Memset, [dst], plain(Memset), (value,))


def _longer(shape: tuple[int, ...]) -> list[int]:
    """The extents of the axes that have more than one element."""
    return [extent for extent in shape if extent != 1]
