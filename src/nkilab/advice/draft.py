"""A program that is being edited: rows leave, change their operands, join others or are cut into parts.

Edits are of rows and tiles alone, so that values need not be known: what makes an edit legal is said where
it is asked for. Whatever the declarations of the instructions refuse, sizes above all, ends the edit with
`Unfit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from ..errors import LimitError, RuleError
from ..isa.declare import Instruction
from ..machine import Machine
from ..place.direct_allocation import has_address
from ..place.slots import distinct, slots_of
from ..tiles.dtypes import DType
from ..tiles.tile import HBM, Layout, layout
from ..trace.program import Program, StorageRecord

# an operand of a row: storage, offset in elements of its type, layout
Slot = tuple[int, int, Layout]
FREE, PARTITIONS = "free", "partitions"


class Unfit(Exception):
    """An edit that cannot be made here; the candidate that asked for it is dropped."""


class Draft:
    """Changes of a program that are made together by `program`.

    Args:
        base: the program; it stays as it is.
    """

    def __init__(self, base: Program) -> None:
        self.base = base
        self.storages = list(base.storages)
        self._start = base.operand_start
        slots = slots_of(base)
        self._layouts = [slots.layouts[n] for n in slots.layout.tolist()]
        self._stored, self._offset = slots.storage.tolist(), slots.offset.tolist()
        self._keep = np.ones(len(base), np.bool_)
        self._changed: set[int] = set()
        self._attributes: dict[int, tuple[object, ...]] = {}
        self._inserted: list[tuple[int, Instruction, tuple[object, ...], list[Slot]]] = []
        self._forms = list(base.forms)
        self._known: dict[tuple[object, ...], int] = {}
        self._accepted: dict[tuple[object, ...], Instruction | None] = {}

    def slots(self, row: int) -> list[Slot]:
        """The operands of a row as they are now."""
        span = range(int(self._start[row]), int(self._start[row + 1]))
        return [(self._stored[at], self._offset[at], self._layouts[at]) for at in span]

    def set_slots(self, row: int, slots: Sequence[Slot]) -> None:
        """Give a row other operands, as many as it had."""
        first = int(self._start[row])
        for at, (storage, offset, own) in enumerate(slots, first):
            if own is not self._layouts[at]:
                self._changed.add(row)
            self._stored[at], self._offset[at], self._layouts[at] = storage, offset, own

    def set_attributes(self, row: int, **changes: object) -> None:
        """Give a row other attributes."""
        form = self.base.form_of(row)
        values = dict(zip(form.attributes, form.attribute_values, strict=True)) | changes
        self._attributes[row] = tuple(values.values())
        self._changed.add(row)

    def drop(self, rows: Sequence[int] | np.ndarray) -> None:
        """Leave rows out."""
        self._keep[np.asarray(rows, np.int64)] = False

    def is_kept(self, row: int) -> bool:
        """Whether a row has not been left out."""
        return bool(self._keep[row])

    def insert(self, before: int, form: Instruction, values: tuple[object, ...], slots: list[Slot]) -> None:
        """Add a row before another one, on its line."""
        self._inserted.append((before, form, values, slots))

    def new_tile(self, like: int, shape: tuple[int, ...], dtype: DType | None = None) -> int:
        """A new tile of the same line and memory as another one; gives its number."""
        record = self.storages[like]
        self.storages.append(record._replace(shape=shape, dtype=dtype or record.dtype))
        return len(self.storages) - 1

    def each_slot(self, change: Callable[[Slot], Slot], storages: Mapping[int, object]) -> None:
        """Change every operand that lies in some storages."""
        column = self.base.storage_column
        wanted = np.isin(column, np.fromiter(storages, np.int64, len(storages)))
        rows = np.repeat(np.arange(len(self.base)), np.diff(self._start))[wanted]
        for row in dict.fromkeys(rows.tolist()):
            self.set_slots(row, [change(s) if s[0] in storages else s for s in self.slots(row)])

    def relocate(self, places: Mapping[int, tuple[int, int, int]]) -> None:
        """Make tiles parts of others.

        Args:
            places: per tile the one it becomes part of, from which partition and element there on.
        """
        self.each_slot(lambda slot: self._relocated(slot, places[slot[0]]), places)

    def _relocated(self, slot: Slot, place: tuple[int, int, int]) -> Slot:
        storage, offset, own = slot
        whole, first, column = place
        before, after = (_row_size(self.storages[n], own) for n in (storage, whole))
        axis = own.partition_axis
        if axis is None or own.indices or own.strides[axis] % before:
            raise Unfit
        partition, free = divmod(offset, before)
        strides = list(own.strides)
        strides[axis] = strides[axis] // before * after
        if len(own.shape) > 1 and own.shape[axis] == 1:
            strides[axis] = after
        moved = layout(
            own.shape, tuple(strides), self.storages[whole].dtype if own.dtype is self.storages[storage].dtype
            else own.dtype, own.memory, axis, partition + first,
        )  # fmt: skip
        return whole, (partition + first) * after + free + column, moved

    def retype(self, storages: Mapping[int, DType]) -> None:
        """Give storages other types of elements."""
        for number, dtype in storages.items():
            self.storages[number] = self.storages[number]._replace(dtype=dtype)

        def change(slot: Slot) -> Slot:
            storage, offset, own = slot
            if own.dtype is not self.base.storages[storage].dtype:
                raise Unfit
            return storage, offset, _with(own, dtype=storages[storage])

        self.each_slot(change, storages)

    def merge(self, rows: Sequence[int], axis: str) -> bool:
        """Make one row of several whose operands lie side by side; False if it may not be."""
        first = self.slots(rows[0])
        others = [self.slots(row) for row in rows[1:]]
        form = self.base.form_of(rows[0])
        merged: list[Slot] = []
        for place, (storage, offset, own) in enumerate(first):
            column = [slots[place] for slots in others]
            steps = np.diff([offset, *(o for _, o, _ in column)])
            alike = all(s == storage and _at(g, own.start_partition) is own for s, _, g in column)
            if not alike or len(set(steps.tolist())) != 1:
                return False
            wider = _widened(form, place, own, int(steps[0]), len(rows), axis)
            if wider is None:
                return False
            merged.append((storage, offset, wider))
        if all(a[2] is b[2] for a, b in zip(first, merged, strict=True)):
            return False
        if not self.accepts(form, [slot[2] for slot in merged]):
            return False
        self.set_slots(rows[0], merged)
        self.drop(rows[1:])
        return True

    def accepts(self, form: Instruction, layouts: Sequence[Layout]) -> bool:
        """Whether an instruction takes operands of such layouts."""
        key = (id(form), *layouts)
        if key not in self._accepted:
            try:
                self._accepted[key] = rebuilt(form, layouts)
            except (LimitError, RuleError, ValueError):
                self._accepted[key] = None
        return self._accepted[key] is not None

    def form_with(self, row: int, layouts: Sequence[Layout]) -> Instruction:
        """The form of a row with other operands.

        Raises:
            Unfit: if its instruction does not take them.
        """
        form = self.base.form_of(row)
        if not self.accepts(form, layouts):
            raise Unfit
        fresh = self._accepted[id(form), *layouts]
        assert fresh is not None
        return fresh

    def shared_form(
        self, kind: type[Instruction], machine: Machine, layouts: tuple[Layout, ...],
        attributes: tuple[object, ...],
    ) -> Instruction:  # fmt: skip
        """A new form, the same one each time it is asked for.

        Raises:
            Unfit: if the instruction does not take its operands.
        """
        key = (kind, *layouts, *attributes)
        if key not in self._accepted:
            try:
                self._accepted[key] = kind(machine, layouts, attributes)
            except (LimitError, RuleError, ValueError) as error:
                raise Unfit from error
        fresh = self._accepted[key]
        assert fresh is not None
        return fresh

    def join(self, tiles: Sequence[int], axis: str) -> dict[int, tuple[int, int, int]]:
        """A tile that several of one shape become parts of, side by side: where each of them goes."""
        record = self.storages[tiles[0]]
        if any(self.storages[t][1:4] != record[1:4] for t in tiles) or record.memory == HBM:
            raise Unfit
        count, rows, size = len(tiles), record.partitions, prod(record.shape[1:])
        shape = (rows * count, size) if axis == PARTITIONS else (rows, size * count)
        whole = self.new_tile(tiles[0], shape)
        if axis == PARTITIONS:
            return {tile: (whole, number * rows, 0) for number, tile in enumerate(tiles)}
        return {tile: (whole, 0, number * size) for number, tile in enumerate(tiles)}

    def program(self) -> Program:
        """The program with all changes.

        Raises:
            Unfit: if an instruction does not take its operands.
        """
        column = self.base.form_column.astype(np.int64)
        changed = [row for row in sorted(self._changed) if self._keep[row]]
        try:
            column[changed] = [self._form_number(row) for row in changed]
        except (LimitError, RuleError, ValueError) as error:
            raise Unfit from error
        edited = self.base.with_forms(self._forms, column.astype(np.int32))
        edited = edited.with_operands(self.storages, np.array(self._stored), np.array(self._offset))
        order = np.flatnonzero(self._keep)
        if self._inserted:
            edited, order = self._with_inserted(edited, order)
        return edited.arranged(order)

    def _form_number(self, row: int) -> int:
        old = int(self.base.form_column[row])
        attributes = self._attributes.get(row)
        layouts = [slot[2] for slot in self.slots(row)]
        key = (old, attributes, *layouts)
        if key not in self._known:
            self._known[key] = len(self._forms)
            self._forms.append(rebuilt(self.base.forms[old], layouts, attributes))
        return self._known[key]

    def _with_inserted(self, edited: Program, order: np.ndarray) -> tuple[Program, np.ndarray]:
        """The program with the new rows at its end, and the order in which they belong."""
        rows, slots, keys = [], [], []
        forms: dict[int, int] = {}
        for number, (before, form, values, operands) in enumerate(self._inserted):
            if id(form) not in forms:
                forms[id(form)] = len(edited.forms)
                edited.forms.append(form)
            place = int(edited.position_column[before])
            line = int(edited.line_column[before])
            rows.append((forms[id(form)], line, place, edited.value_number(values) if values else 0))
            slots += [(storage, offset) for storage, offset, _ in operands]
            keys.append(before - 1 + (number + 1) / (len(self._inserted) + 2))
        own = len(edited)
        edited.extend(np.array(rows, np.int32).T, np.array(slots, np.int64).T)
        every = np.concatenate([order, keys])
        numbers = np.concatenate([order, own + np.arange(len(keys))])
        return edited, numbers[np.argsort(every, kind="stable")]


def rebuilt(
    form: Instruction, layouts: Sequence[Layout], attributes: tuple[object, ...] | None = None
) -> Instruction:
    """The form with other operands in its tile slots, and other attributes, checked by its declaration."""
    if form.is_indirect:
        raise Unfit
    own = list(form.layouts)
    for place, fresh in zip(form.view_slots, layouts, strict=True):
        own[place] = fresh
    return type(form)(form.machine, own, form.attribute_values if attributes is None else attributes)


def with_steps(program: Program, rows: np.ndarray, change: Callable[..., object]) -> Program:
    """A program in which some rows have other costs; forms are shared by the rows that change."""
    column = np.array(program.form_column, np.int64)
    forms = list(program.forms)
    for number in distinct(column[rows]).tolist():
        changed = object.__new__(type(forms[number]))
        vars(changed).update(vars(forms[number]))
        changed.steps = tuple(change(step) for step in changed.steps)
        column[rows[column[rows] == number]] = len(forms)
        forms.append(changed)
    return program.with_forms(forms, column)


def transposes(form: Instruction) -> bool:
    """Whether a form only transposes: with its own instruction, or as a product."""
    return form.name in ("nc_transpose", "dma_transpose") or bool(getattr(form, "is_transpose", False))


def whole_tile(program: Program, storage: int, own: Layout, offset: int) -> bool:
    """Whether an operand is all of a tile."""
    record = program.storages[storage]
    return offset == 0 and own.is_compact and own.size == prod(record.shape) and own.dtype is record.dtype


def movable(program: Program) -> np.ndarray:
    """Per storage whether an edit may move it: tiles on chip without addresses of their own."""
    on_chip: np.ndarray = np.array([s.memory != HBM for s in program.storages], np.bool_)
    on_chip &= ~has_address(program)
    return on_chip


def _row_size(record: StorageRecord, own: Layout) -> int:
    """Elements of a layout's type in each partition of a tile."""
    return max(1, prod(record.shape[1:]) * record.dtype.itemsize // own.itemsize)


def _with(own: Layout, **changes: object) -> Layout:
    """A layout with other fields."""
    names = ("shape", "strides", "dtype", "memory", "partition_axis", "start_partition", "indices")
    return layout(*(changes.get(name, getattr(own, name)) for name in names))  # type: ignore[arg-type]


def _at(own: Layout, partition: int) -> Layout:
    """A layout that starts at a partition."""
    return _with(own, start_partition=partition)


def _widened(form: Instruction, place: int, own: Layout, step: int, count: int, axis: str) -> Layout | None:
    """The layout of an operand of `count` rows that advance by `step`; None if there is none."""
    spec = list(form.operands.values())[form.view_slots[place]] if place < len(form.view_slots) else None
    if spec is None or own.indices or own.partition_axis not in (None, 0):
        return None
    rows, *rest = own.shape
    across, *along = own.strides
    if axis == PARTITIONS:
        if step == 0 and form.accumulates and spec.is_written:
            return own
        if rows > 1 and step != rows * across:
            return None
        if step == 0 and (own.memory != HBM or rows > 1 or spec.is_written):
            return None
        return _with(own, shape=(rows * count, *rest), strides=(step if rows == 1 else across, *along))
    if step == 0:
        is_kept = not spec.is_written and (own.free_size == 1 or form.accumulates)
        return own if is_kept else None
    if not rest:
        return None
    if step == rest[0] * along[0]:
        return _with(own, shape=(rows, rest[0] * count, *rest[1:]), strides=own.strides)
    shape, strides = (rows, count, *rest), (across, step, *along)
    if rest == [1]:
        shape, strides = (rows, count), (across, step)
    return _with(own, shape=shape, strides=strides)


def retyped_layout(own: Layout, dtype: DType) -> Layout:
    """A layout of elements of another type."""
    return _with(own, dtype=dtype)


def cut(own: Layout, number: int, count: int) -> tuple[int, Layout] | None:
    """The offset and layout of one of `count` equal parts along the first free axis; None if it has none."""
    if len(own.shape) < 2 or own.indices or own.partition_axis not in (None, 0):
        return None
    if own.free_size == 1:
        return 0, own
    size, odd = divmod(own.shape[1], count)
    if odd:
        return None
    return number * size * own.strides[1], _with(own, shape=(own.shape[0], size, *own.shape[2:]))
