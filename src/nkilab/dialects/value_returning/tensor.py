"""Tensors of Beta 1: views with index grids, operators and results that move to where they are assigned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Literal, TypeVar
from weakref import WeakSet

import numpy as np
from msgspec import Struct

from ...errors import NkilabError, RuleError, UseError
from ...isa.declare import NUMBER, Instruction
from ...isa.elementwise import TensorCopy
from ...tiles.dtypes import FLOAT32, TFLOAT32, DType, as_dtype
from ...tiles.tile import HBM, PSUM, SBUF, Index, Layout, Storage, View, array_of
from ...tiles.views import derived, reinterpreted, reshaped
from ...trace.builder import check_form, record
from ...trace.session import Known, Session, current, running
from ...trace.source import Site, place_of, user_frame, user_site
from ..indexing import as_shape, basic, whole_number
from ..kernel import TENSORS
from ..places import described, placed, printed
from ..tile_functions import result_layout
from .grids import Box, box_of
from .subscripts import crop_operands, cropped, indexed, inside_bounds

T = TypeVar("T")


# of results whose place is not known yet: most of them move to one of the kernel's, and need none
_NOWHERE = Storage(-1, "", (), FLOAT32, SBUF, "tile", 0)


class Pending(Struct):
    """A result that waits for its destination: the next assignment, or a tile of its own.

    Where its mask lets nothing through there is nothing to write: `is_void`. `form` is that of the call with
    a tile of its own in the place of the result, if it was looked up.
    """

    session: Session
    cls: type[Instruction]
    operands: list[Any]
    slot: int
    attributes: tuple[Any, ...]
    values: tuple[Any, ...]
    # stands for the result
    tensor: Tensor
    where: Site
    position: int
    form: Known | None = None
    box: Box | None = None
    mask: np.ndarray | None = None
    is_void: bool = False

    def result(self) -> Tensor:
        """The tensor that stands for the result, with a storage; it is registered when it is needed."""
        tensor = self.tensor
        if tensor.storage is _NOWHERE:
            known, line = tensor.layout, self.session.program.site_number(self.where)
            tensor.storage = Storage(-1, "", known.shape, known.dtype, known.memory, "tile", line)
        return tensor

    def commit(self) -> None:
        """Write the result to a tile of its own, at the place in loops where it was called."""
        tensor, session = self.result(), self.session
        tensor.pending, tensor.plain = None, tensor.layout
        here, session.position = session.position, self.position
        try:
            session.register(tensor.storage)
            if tensor.layout.memory == PSUM:
                session.keyed.setdefault("products", WeakSet()).add(tensor.storage)
            self.write(tensor, self.values)
        finally:
            session.position = here

    def target(self, dst: Tensor) -> Tensor | None:
        """The part of a destination that the call writes; None if it writes nothing."""
        if self.is_void:
            return None
        return inside_bounds(dst) if self.box is None else cropped(dst, self.box)

    def write(self, dst: Tensor, values: tuple[Any, ...]) -> None:
        """Append the row with `dst` in the place of the result."""
        form, target, operands = self.form, dst, self.operands
        if self.box is not None or self.is_void or not dst.plain:
            part = self.target(dst)
            if part is None:
                return
            target = part
        if form is not None and form[0].layouts[self.slot] is not target.layout:
            form = None
        operands[self.slot] = target
        record(self.session, self.cls, operands, self.attributes, values, self.mask, self.where, form)


class Tensor(View):
    """A tensor of a Beta 1 kernel: an HBM tensor, a tile, or a view of either.

    Attributes:
        pending: the call whose result this is, while nobody has looked at it.
        overhang: (view, grids) where grids reach outside; a mask must crop them before use.
        plain: its layout; False where a call has to look at more.
    """

    __slots__ = ("__weakref__", "overhang", "pending", "plain")
    subscripts = "integers, slices, nl.ds and index grids"

    def __init__(
        self, storage: Storage, offset: int, layout: Layout, indices: tuple[Index, ...] = (),
        has_place: bool = True,
    ) -> None:  # fmt: skip
        # as the base does it, which takes a call more for each view
        self.storage, self.offset, self.layout = storage, offset, layout
        self.indices, self._bytes = indices, None
        self.pending: Pending | None = None
        self.overhang: tuple[Tensor, tuple[Any, ...]] | None = None
        self.plain: Layout | Literal[False] = layout if has_place and not indices else False

    @property
    def dtype(self) -> Any:
        """Data type of one element, as NumPy's dtype."""
        return public_dtype(self.layout.dtype)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.layout.itemsize

    @property
    def buffer(self) -> str:
        """The memory it lies in: "hbm", "sbuf" or "psum"."""
        return self.layout.memory

    def describe(self) -> str:
        """One line for messages: its name or that of the user's variable, dtype, shape and memory."""
        return described(self if self.pending is None else self.pending.result())

    def __getitem__(self, key: Any) -> Tensor:
        if self.pending is not None:
            self.pending.session.flush()
        try:
            return indexed(self if self.overhang is None else inside_bounds(self), key)
        except NkilabError as error:
            raise error.located(place_of(user_frame()), "subscript") from None

    @placed("reshape", is_method=True)
    def reshape(self, *extents: Any, shape: Any = None) -> Tensor:
        """A view of the same elements in the same order under another shape, extents or one tuple of them."""
        new_shape = shape_given(extents, shape)
        return reshape(inside_bounds(settled(self)), as_shape(new_shape))

    @placed("expand_dims", is_method=True)
    def expand_dims(self, axis: Any) -> Tensor:
        """A view with an axis of one at `axis`; an axis of a tile may not precede its partition axis."""
        return expand(inside_bounds(settled(self)), axis)

    def as_tile(self) -> Tensor:
        """Itself, with an axis of one behind a lone partition axis: published kernels index so."""
        return self.expand_dims(1) if self.ndim == 1 else self

    @placed("astype", is_method=True)
    def astype(self, dtype: Any) -> Tensor:
        """A copy in another data type."""
        return fresh(current(), TensorCopy, [None, self], ("unknown",), (), dtype=as_dtype(dtype))

    @placed("view", is_method=True)
    def view(self, dtype: Any) -> Tensor:
        """The same bytes read as another data type; the last axis scales."""
        return reinterpreted(inside_bounds(settled(self)), as_dtype(dtype))

    @placed("assert_shape", is_method=True)
    def assert_shape(self, shape: Any) -> Tensor:
        """Itself, if it has this shape.

        Raises:
            UseError: if it has another.
        """
        asserted = as_shape(shape)
        if self.shape != asserted:
            raise UseError(f"the shape is {list(self.shape)}; {list(asserted)} is asserted")
        return self

    def __bool__(self) -> bool:
        if self.layout.memory == HBM:
            # a parameter that was given; its elements are not asked for
            return True
        raise UseError(
            "the truth of a tensor is not defined inside a kernel",
            hint="choose elements with nl.where(condition, x, y), combine conditions with ~, & and |, and "
            "ask for presence with `is not None`",
            key="err_dynamic_control_flow_not_supported"
            if self.layout.size == 1
            else "err_ambiguous_tensor_truth_value",
        ).located(place_of(user_frame()), "bool")

    def __iter__(self) -> Any:
        return (self[i] for i in range(self.shape[0]))

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        """The elements, for debuggers and printing."""
        if not has_data(self):
            raise UseError(f"{self.describe()} has no data here: only shapes are known")
        return np.array(array_of(self))

    def __repr__(self) -> str:
        # where there are elements to be shown, a result is given a tile of its own
        if self.pending is not None and not self.pending.session.has_data:
            return printed(self.pending.result())
        return printed(settled(self))

    __hash__ = object.__hash__


TENSORS["neuronxcc"] = Tensor


def shape_given(extents: tuple[Any, ...], shape: Any) -> Any:
    """The shape that a method takes as extents, as one tuple of them, or as shape=.

    Raises:
        UseError: if it is given twice.
    """
    if shape is not None and extents:
        raise UseError("the shape is given by position and as shape=; it must be given once")
    if shape is not None:
        return shape
    return extents[0] if len(extents) == 1 and not isinstance(extents[0], int) else extents


def has_data(tensor: Tensor) -> bool:
    """Whether the elements are known by now; commits a result that waits."""
    session = running()
    if session is not None:
        session.flush()
    return tensor.storage.is_known


def settled(tensor: Tensor) -> Tensor:
    """`tensor`, written to its own tile if it was waiting for a destination."""
    if tensor.pending is not None:
        tensor.pending.session.flush()
    return tensor


def same_place(a: Tensor, b: Tensor) -> bool:
    """Whether two views are one: the second half of `t[i] += x`."""
    return a.storage is b.storage and a.offset == b.offset and a.layout is b.layout


def keep(session: Session, call: tuple[Any, ...], operands: list[Any], result: Any) -> None:
    """Remember what a call made where it took its operands as they are, for calls like it."""
    pending = session.pending
    if pending is None or pending.tensor is not result or pending.form is None:
        return
    cls, slot = pending.cls, pending.slot
    # the layouts of the key: what still waited when it was made has none there, though it has one by now
    seen = call[1 : 1 + len(operands)]
    for place, (operand, taken, known) in enumerate(zip(operands, pending.operands, seen, strict=True)):
        # products that nothing was assigned to are told apart by their storages
        is_odd = type(operand) is Tensor and (known is not operand.plain or operand.layout.memory == PSUM)
        if place != slot and (operand is not taken or is_odd):
            return
    own = pending.values if cls.accumulates else None
    session.calls[call] = (cls, pending.attributes, result.layout, pending.form, own)


def again(
    session: Session, kept: tuple[Any, ...], operands: list[Any], values: tuple[Any, ...], where: Any
) -> Tensor:
    """The result of a call like one that was kept: what `keep` noted of it."""
    if session.pending is not None:
        session.flush()
    cls, attributes, known, form, own = kept
    tensor = Tensor(_NOWHERE, 0, known, (), False)
    session.pending = tensor.pending = Pending(
        session, cls, operands, cls.result_slot, attributes, values if own is None else own, tensor,
        where or user_site(1), session.position, form,
    )  # fmt: skip
    return tensor


def public_dtype(dtype: DType) -> Any:
    """The object Beta 1 gives for a data type: NumPy's dtype where one exists."""
    return dtype if dtype is TFLOAT32 else dtype.storage


def checked(called: str, make: Callable[[], T], view: Any) -> T:
    """What `make` gives; its error names the user's line and the tensor, if `view` is one."""
    try:
        return make()
    except NkilabError as error:
        facts = [view.describe()] if isinstance(view, View) else []
        raise error.located(place_of(user_frame()), called, facts) from None


def fresh(
    session: Session, cls: type[Instruction], operands: list[Any], attributes: tuple[Any, ...],
    values: tuple[Any, ...], *, dtype: DType | None = None, mask: Any = None, memory: str = "",
    shape: tuple[int, ...] | None = None, takes_indices: bool = False, where: Site | None = None,
) -> Tensor:  # fmt: skip
    """The result of a value-returning call, which waits for its destination.

    Args:
        session: the launch.
        cls: the instruction.
        operands: as declared, with None for the result.
        attributes: canonical values, as declared.
        values: as declared.
        dtype: of the result; as the declaration says if None.
        mask: where the result is written.
        memory: of the result; as the declaration says if "".
        shape: of the result; as the declaration says if None.
        takes_indices: whether addresses may be known at run time only, of operands without declared rows too.
        where: file and line of the call; the nearest frame of the user's if None.
    """
    if session.pending is not None:
        session.flush()
    layouts: list[Any] = []
    reaches_outside = False
    for operand in operands:
        if type(operand) is Tensor:
            layouts.append(operand.layout)
            if operand.overhang is not None or operand.indices:
                reaches_outside = True
        else:
            layouts.append(None if operand is None else NUMBER)
    if reaches_outside and not takes_indices:
        declared = zip(cls.operands.items(), operands, strict=True)
        refuse_indices(cls.name, {name: o for (name, spec), o in declared if not spec.takes_rows})
    if mask is not None or reaches_outside:
        return _fresh_masked(session, cls, operands, attributes, values, dtype, mask, memory, shape, layouts)
    key = (cls, dtype, memory, shape, *layouts, *attributes)
    slot = cls.result_slot
    known_result = session.keyed.get(key)
    known, form = known_result or (result_layout(cls, layouts, attributes, dtype, memory, shape), None)
    if form is None:
        stand_in = Tensor(_NOWHERE, 0, known, (), False)
        form = check_form(session, cls, [*operands[:slot], stand_in, *operands[slot + 1 :]], attributes)
        session.keyed[key] = (known, form)
    return again(session, (cls, attributes, known, form, None), operands, values, where)


def refuse_indices(called: str, operands: Mapping[str, Any]) -> None:
    """Refuse operands at addresses that are known at run time only.

    Raises:
        UseError: if there is one.
    """
    for name, operand in operands.items():
        if isinstance(operand, Tensor) and operand.indices:
            raise UseError(
                f"{name} is indexed with a tile; {called} takes fixed addresses",
                hint="gather it first, with nl.load, nisa.dma_copy or nisa.tensor_copy_dynamic_src",
                key="err_indirect_indices_are_not_supported_with_nki_api",
            ).located(place_of(user_frame()), called, [f"{name} = {operand.describe()}"])


def _fresh_masked(
    session: Session, cls: type[Instruction], operands: list[Any], attributes: tuple[Any, ...],
    values: tuple[Any, ...], dtype: DType | None, mask: Any, memory: str, shape: tuple[int, ...] | None,
    layouts: list[Any],
) -> Tensor:  # fmt: skip
    """A result of which a mask lets a part through, or whose operands reach outside or have indices."""
    known = result_layout(cls, layouts, attributes, dtype, memory, shape)
    box: Box | None = tuple(slice(0, n) for n in known.shape)
    where = None
    try:
        if mask is None:
            operands = [inside_bounds(o) if isinstance(o, Tensor) else o for o in operands]
        else:
            box, where = box_of(mask, known.shape)
        if mask is not None and box is not None:
            operands = crop_operands(cls, operands, box)
    except NkilabError as error:
        raise error.located(place_of(user_frame()), cls.name) from None
    return fresh_in_box(session, cls, operands, attributes, values, known, box, where)


def fresh_in_box(
    session: Session, cls: type[Instruction], operands: list[Any], attributes: tuple[Any, ...],
    values: tuple[Any, ...], known: Layout, box: Box | None, where: np.ndarray | None = None,
) -> Tensor:  # fmt: skip
    """A result that is written in a rectangle alone.

    Args:
        session: the launch.
        cls: the instruction.
        operands: as declared, with None for the result; already of the rectangle's size.
        attributes: canonical values, as declared.
        values: as declared.
        known: layout of the whole result.
        box: the rectangle; None if nothing is written.
        where: booleans over the rectangle, where to write; None for all of it.
    """
    if session.pending is not None:
        session.flush()
    slot, tensor = cls.result_slot, Tensor(_NOWHERE, 0, known, (), False)
    is_whole = box is not None and all(b.stop - b.start == n for b, n in zip(box, known.shape))
    tensor.pending = pending = Pending(
        session, cls, operands, slot, attributes, values, tensor, user_site(1), session.position,
        box=None if is_whole else box, mask=where, is_void=box is None,
    )  # fmt: skip
    if box is not None:
        target = tensor if is_whole else basic(pending.result(), box)
        check_form(session, cls, [*operands[:slot], target, *operands[slot + 1 :]], attributes)
    session.pending = pending
    return tensor


V = TypeVar("V", bound=View)


def reshape(view: V, shape: tuple[int, ...]) -> V:
    """`view` under another shape; the partition axis of a tile stays whole."""
    known = view.layout
    if known.partition_axis is None:
        return reshaped(view, shape, None)
    if shape.count(-1) == 1:
        rest = -prod(shape)
        shape = tuple(known.size // rest if n == -1 and rest else n for n in shape)
    axis = _partition_axis_after(known, shape)
    return reshaped(view, shape, axis)


def _partition_axis_after(known: Layout, shape: tuple[int, ...]) -> int:
    """The axis of `shape` that runs over partitions: as many elements before it, and of the same size."""
    axis = known.partition_axis
    assert axis is not None
    before = prod(known.shape[:axis])
    for place, extent in enumerate(shape):
        if prod(shape[:place]) == before and extent == known.shape[axis]:
            return place
    raise RuleError(
        f"a reshape from {list(known.shape)} to {list(shape)} would split or join the partition axis",
        hint="keep the partition axis as it is",
    )


def expand(view: V, axis: Any) -> V:
    """`view` with axes of one at the places that `axis` names in the result.

    Raises:
        UseError: if a place is no axis of the result, or is named twice.
    """
    known = view.layout
    axes = [whole_number(a, "axis") for a in (axis if isinstance(axis, tuple | list) else (axis,))]
    ndim = len(known.shape) + len(axes)
    if any(not -ndim <= a < ndim for a in axes) or len({a % ndim for a in axes}) < len(axes):
        raise UseError(f"axis is {axis}; the result has {ndim} axes, and each is named once")
    places = sorted(a % ndim for a in axes)
    shape, strides = list(known.shape), list(known.strides)
    partition = known.partition_axis
    for place in places:
        shape.insert(place, 1)
        strides.insert(place, 1)
        if partition is not None and place <= partition:
            partition += 1
    return derived(view, view.offset, tuple(shape), tuple(strides), partition)
