"""Subscripts of integers, slices, `ds` and Ellipsis, as all spellings share them."""

from __future__ import annotations

from math import prod
from operator import index as as_index
from typing import Any, NamedTuple, NoReturn, TypeVar

from ..errors import LimitError, UseError, shown
from ..machine import Machine
from ..tiles.dtypes import DType
from ..tiles.tile import PSUM, Layout, View, layout
from ..tiles.views import derived
from ..trace.affine import Affine

V = TypeVar("V", bound=View)
PARTITION_LIMIT = "number of partitions {} exceed architecture limitation of {}"
ARCHITECTURE = "trn1 architecture guide, SBUF"
OUT_OF_BOUND = "err_tensor_access_out_of_bound"
FULL = slice(None)
# the first number that an address of 64 bits, of which one is the sign, does not count
_WORD = 2**63
# integers to Python that are no place along an axis: what stands for several, and the outcome of a comparison
_NO_PLACE = frozenset((Affine, bool))
_AS_NUMBER = "write int(...) where a number is meant"
# what is no subscript either, by the name of its type: how messages call it, and what to write instead
_NO_SUBSCRIPT = {
    "bool": ("a truth value", _AS_NUMBER),
    "bool_": ("a truth value", _AS_NUMBER),
    "NoneType": ("None", "add an axis of one with reshape"),
    "LoopRange": ("a range of a loop", "write for i in nl.affine_range(n), or a slice for all of it at once"),
    "range": ("a range", "write a slice, 0:n"),
    "list": ("a list", "write a slice where the places lie side by side, else one access for each"),
    "MultiGrid": ("nl.mgrid itself", "give its bounds, as nl.mgrid[0:128, 0:512]"),
}


class DynamicSlice(NamedTuple):
    """A run of `size` elements from `start`, as `nl.ds` makes it."""

    start: Any
    size: int


def ds(start: Any, size: int) -> DynamicSlice:
    """A slice of `size` elements that begins at `start`."""
    return DynamicSlice(start, size)


def basic(view: V, key: Any, *, keeps_two_axes: bool = False) -> V:
    """`view[key]` for a key of integers, slices, `ds` and at most one Ellipsis.

    Args:
        view: the tensor indexed.
        key: one subscript or a tuple of them; axes left out are taken whole.
        keeps_two_axes: whether a view on chip that would have one axis gets a second one of one.

    Raises:
        UseError: if an index or slice lies outside or is empty, or the key has too many subscripts.
    """
    quick = cut(view, key)
    if quick is not None:
        return quick
    known = view.layout
    shape, strides, partition_axis = known.shape, known.strides, known.partition_axis
    offset = view.offset
    new_shape: list[int] = []
    new_strides: list[int] = []
    new_axis: int | None = None
    for axis, subscript in enumerate(for_every_axis(view, in_this_iteration(view, key))):
        size, stride = shape[axis], strides[axis]
        if type(subscript) is slice:
            start, count, step = _slice(view, axis, subscript, size)
        elif type(subscript) is DynamicSlice:
            start, count, step = _run(view, axis, subscript)
        else:
            start, count, step = _integer(view, axis, subscript), 1, 1
        offset += start * stride
        if axis == partition_axis:
            # an integer leaves one partition, which stays an axis
            new_axis = len(new_shape)
        elif type(subscript) is not slice and type(subscript) is not DynamicSlice:
            continue
        new_shape.append(count)
        new_strides.append(stride * step)
    if not new_shape or (keeps_two_axes and partition_axis is not None and len(new_shape) == 1):
        new_shape.append(1)
        new_strides.append(1)
    return derived(view, offset, tuple(new_shape), tuple(new_strides), new_axis)


def cut(view: V, key: Any) -> V | None:
    """`view[key]` for the most frequent keys by far: slices without steps, one per axis, integers, and `...`.

    What such a view shares with the next one of its shape is looked up. None for other keys, integers along
    the partition axis, and what has a single axis left: spellings and versions differ in those.
    """
    known = view.layout
    if key is Ellipsis and len(known.shape) > 1 and not known.indices:
        return type(view)(view.storage, view.offset, known)
    if type(key) is not tuple or len(key) != len(known.shape) or known.indices or len(key) < 2:
        return None
    offset, counts = view.offset, list(known.shape)
    for axis, subscript in enumerate(key):
        if type(subscript) is slice:
            start, stop = subscript.start, subscript.stop
            if subscript.step is not None:
                return None
            if type(start) is int and type(stop) is int and 0 <= start < stop <= counts[axis]:
                counts[axis] = stop - start
                offset += start * known.strides[axis]
            elif start is not None or stop is not None:
                return None
        elif type(subscript) in _NO_PLACE:
            return None
        elif isinstance(subscript, int) and 0 <= subscript < counts[axis] and axis != known.partition_axis:
            # no slice is empty: 0 stands for an axis that an integer takes away
            counts[axis] = 0
            offset += subscript * known.strides[axis]
        else:
            return None
    storage = view.storage
    if known.partition_axis is None:
        first = 0
    elif known.dtype is storage.dtype:
        first = offset // storage.strides[0]
    else:
        first = offset * known.itemsize // (storage.partition_stride * storage.dtype.itemsize)
    counts.append(first)
    cut = tuple(counts)
    cut_layout = known.cuts.get(cut) or _cut_layout(known, cut)
    return None if cut_layout is None else type(view)(storage, offset, cut_layout)


def in_this_iteration(view: View, key: Any) -> Any:
    """A key with the numbers that indices which stand for several iterations have in this one.

    They are numbers alone from there on: what is subscripted lies inside in all iterations, and is of one
    size, or the launch starts again.
    """
    parts = key if type(key) is tuple else (key,)
    if not any(map(_is_affine, parts)):
        return key
    shape = view.layout.shape
    is_plain = len(parts) <= len(shape) and not any(part is Ellipsis for part in parts)
    plain = []
    for axis, part in enumerate(parts):
        # no subscript is inside an axis of size 0
        plain.append(_inside(part, shape[axis] if is_plain else 0) if _is_affine(part) else part)
    return tuple(plain) if type(key) is tuple else plain[0]


def _is_affine(part: Any) -> bool:
    if type(part) is slice:
        return type(part.start) is Affine or type(part.stop) is Affine or type(part.step) is Affine
    return type(part) is Affine or (type(part) is DynamicSlice and Affine in map(type, part))


def _inside(part: Any, size: int) -> Any:
    """One subscript with the numbers of this iteration, if it is inside an axis of `size` in all of them."""
    if type(part) is Affine:
        return part.inside(0, size - 1)
    is_slice = type(part) is slice
    start, stop = part.start, part.stop if is_slice else part.start + part.size
    count = None if start is None or stop is None or (is_slice and part.step is not None) else stop - start
    if type(count) is int and count >= 1 and start >= 0 and stop <= size:
        return slice(start.value, start.value + count) if is_slice else DynamicSlice(start.value, count)
    numbers = (part.start, part.stop, part.step) if is_slice else part
    kind = slice if is_slice else DynamicSlice
    return kind(*(n.settled() if type(n) is Affine else n for n in numbers))


def _cut_layout(known: Layout, cut: tuple[int, ...]) -> Layout | None:
    """The layout of a cut, extents and first partition, kept for the next one; None for a single axis."""
    *counts, first = cut
    kept = [axis for axis, count in enumerate(counts) if count]
    if len(kept) < 2:
        return None
    place = None if known.partition_axis is None else kept.index(known.partition_axis)
    shape, strides = tuple(counts[axis] for axis in kept), tuple(known.strides[axis] for axis in kept)
    new_layout = known.cuts[cut] = layout(shape, strides, known.dtype, known.memory, place, first)
    return new_layout


def for_every_axis(view: View, key: Any) -> tuple[Any, ...]:
    """One subscript per axis: an Ellipsis and axes left out are taken whole."""
    if type(key) is not tuple:
        key = (key,)
    ndim = len(view.layout.shape)
    if len(key) == ndim and not any(s is Ellipsis for s in key):
        return key
    at = next((i for i, s in enumerate(key) if s is Ellipsis), None)
    if at is not None:
        key = (*key[:at], *(FULL,) * (ndim - len(key) + 1), *key[at + 1 :])
    if len(key) > ndim:
        raise UseError(f"{len(key)} subscripts on {view.describe()}, which has {ndim} axes", key=OUT_OF_BOUND)
    return (*key, *(FULL,) * (ndim - len(key)))


def _integer(view: View, axis: int, subscript: Any) -> int:
    if type(subscript) is bool:
        _refuse_subscript(view, subscript)
    try:
        place = as_index(subscript)
    except TypeError:
        if not isinstance(subscript, float) or not subscript.is_integer():
            _refuse_subscript(view, subscript)
        place = int(subscript)
    size = view.layout.shape[axis]
    if place < 0:
        place += size
    if not 0 <= place < size:
        raise UseError(
            f"index {shown(subscript)} is outside axis {axis} of {view.describe()}, "
            f"which has {size} elements",
            hint="shrink the loop or mask the access",
            key=OUT_OF_BOUND,
        )
    return place


def _refuse_subscript(view: View, subscript: Any) -> NoReturn:
    word = type(subscript).__name__
    what, hint = _NO_SUBSCRIPT.get(word, (f"of type {word}", ""))
    raise UseError(f"a subscript of {view.describe()} is {what}; subscripts are {view.subscripts}", hint=hint)


def place_number(value: Any, what: str) -> int:
    """A place along an axis, or a distance there: as `whole_number`, but for truth values.

    Raises:
        UseError: if it is none; `what` says whose it is.
    """
    if type(value) is not int and type(value).__name__ in _NO_SUBSCRIPT:
        kind, hint = _NO_SUBSCRIPT[type(value).__name__]
        raise UseError(f"{what} is {kind}; it must be a whole number", hint=hint)
    return whole_number(value, what)


def whole_number(value: Any, what: str) -> int:
    """`value` as a plain integer; floats that are whole numbers count.

    Raises:
        UseError: if it is none; `what` says whose it is.
    """
    try:
        whole = as_index(value)
    except TypeError:
        if not isinstance(value, float) or not value.is_integer():
            raise UseError(f"{what} is {shown(value)}; it must be a whole number") from None
        whole = int(value)
    if not -_WORD <= whole < _WORD:
        raise UseError(f"{what} is {shown(whole)}; it must be a whole number of 64 bits")
    return whole


def _slice(view: View, axis: int, part: slice, size: int) -> tuple[int, int, int]:
    """Start, count and step of a slice."""
    start, stop, step = part.start, part.stop, part.step
    if step is None:
        if start is None and stop is None:
            return 0, size, 1
        # the common case, plain numbers within the axis, needs no further look
        if type(start) is int and type(stop) is int and 0 <= start < stop <= size:
            return start, stop - start, 1
    step = 1 if step is None else place_number(step, "the step of a slice")
    start = 0 if start is None else place_number(start, "the start of a slice")
    stop = size if stop is None else place_number(stop, "the end of a slice")
    start = start + size if start < 0 else start
    stop = stop + size if stop < 0 else stop
    if not 0 <= start < stop <= size or step < 1:
        _refuse_slice(view, axis, start, stop, step)
    return start, -(-(stop - start) // step), step


def _run(view: View, axis: int, part: DynamicSlice) -> tuple[int, int, int]:
    count = place_number(part.size, "the size of a slice")
    start = place_number(part.start, "the start of a slice")
    size = view.layout.shape[axis]
    start = start + size if start < 0 else start
    if not 0 <= start < start + count <= size:
        _refuse_slice(view, axis, start, start + count, 1)
    return start, count, 1


def run_of(part: slice | DynamicSlice, size: int) -> range:
    """The places along an axis of `size` that a slice names; they may lie beyond its end.

    Raises:
        UseError: if a bound is no whole number, or the step none of at least 1.
    """
    if isinstance(part, DynamicSlice):
        start = place_number(part.start, "the start of a slice")
        return range(start, start + place_number(part.size, "the size of a slice"))
    start = 0 if part.start is None else place_number(part.start, "the start of a slice")
    stop = size if part.stop is None else place_number(part.stop, "the end of a slice")
    step = 1 if part.step is None else place_number(part.step, "the step of a slice")
    if step < 1:
        raise UseError(f"a slice has the step {step}; steps are at least 1")
    return range(start + size if start < 0 else start, stop + size if stop < 0 else stop, step)


def _refuse_slice(view: View, axis: int, start: int, stop: int, step: int) -> NoReturn:
    size = view.layout.shape[axis]
    spelled = f"slice {start}:{stop}{f':{step}' if step != 1 else ''}"
    if step < 1:
        raise UseError(f"{spelled} has the step {step}; steps are at least 1")
    if start < 0 or stop > size:
        raise UseError(
            f"{spelled} is outside axis {axis} of {view.describe()}, which has {size} elements",
            hint="shrink the slice or mask the access",
            key=OUT_OF_BOUND,
        )
    raise UseError(
        f"{spelled} of axis {axis} of {view.describe()} is empty; an access has at least one element"
    )


def as_shape(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of plain integers; floats that are whole numbers count.

    Raises:
        UseError: if an extent is not a whole number or is negative.
    """
    if type(shape) is tuple and all(type(extent) is int and 0 <= extent < _WORD for extent in shape):
        return shape
    try:
        extents = tuple(shape)
    except TypeError:
        extents = (shape,)
    plain = []
    for axis, extent in enumerate(extents):
        try:
            whole = whole_number(extent, "an extent")
        except UseError:
            problem = f"extent {axis} of shape is {shown(extent)}; extents are whole numbers of 64 bits"
            raise UseError(problem) from None
        if whole < 0 and whole != -1:
            raise UseError(f"shape is {list(extents)}; extents are whole numbers of at least 0")
        plain.append(whole)
    return tuple(plain)


def allocated_shape(shape: Any) -> tuple[int, ...]:
    """The shape of a tensor to be made, as a tuple of plain integers.

    Raises:
        UseError: if there is no extent, or one is no whole number of at least 1.
    """
    plain = as_shape(shape)
    if prod(plain) >= _WORD:
        raise UseError(f"shape is {list(plain)}; addresses of its elements have 64 bits at most")
    if not plain or min(plain) < 1:
        raise UseError(f"shape is {list(plain)}; a tensor has at least one axis and one element along each")
    return plain


class TileLimitError(LimitError):
    """A tile has more bytes per partition than the memory that it is to lie in."""


def check_tile(machine: Machine, memory: str, extents: tuple[int, ...], dtype: DType) -> None:
    """Refuse a tile that no memory on chip could hold, before anything is written to it.

    Raises:
        LimitError: if it has more partitions than there are.
        TileLimitError: if it has more bytes in each than there are.
    """
    most, size = machine.limit("partitions"), prod(extents[1:]) * dtype.itemsize
    if extents[0] > most:
        raise LimitError(
            PARTITION_LIMIT.format(extents[0], most), hint=f"split the partition axis into tiles of {most}",
            source=ARCHITECTURE, key="err_num_partition_exceed_arch_limit",
        )  # fmt: skip
    is_psum = memory == PSUM
    room = machine.psum_bytes_per_partition if is_psum else machine.limit("sbuf_bytes_per_partition")
    note = "" if is_psum else machine.sbuf_note(room)
    if size > room:
        raise TileLimitError(
            f"the tile has {size:,} bytes per partition; {memory} of {machine.name} has {room:,}{note}",
            hint="split the free axes into tiles", source=ARCHITECTURE,
            key="" if memory == PSUM else "NCC_IBIR229",
        )  # fmt: skip
