"""`nl.loop_reduce`: a value that is reduced into whatever it is assigned to, iteration after iteration.

What the kernel wrote there before takes part, as the document of the function has it. Where it wrote nothing,
the first iteration begins the reduction, each time that the loops are entered.
"""

from __future__ import annotations

from bisect import bisect_right
from math import inf
from typing import Any

import numpy as np

from ...errors import RuleError
from ...isa.declare import Instruction
from ...isa.elementwise import TensorCopy, TensorTensor
from ...isa.operators import Operator
from ...tiles.coverage import Coverage
from ...tiles.dtypes import FLOAT32, DType
from ...tiles.tile import SBUF, Layout, Storage, View
from ...trace.builder import check_form, record
from ...trace.program import Program
from ...trace.session import Known, Session, current
from ...trace.source import Site, user_site
from ..loops import LoopIndex
from .grids import box_of
from .subscripts import cropped, inside_bounds
from .tensor import Tensor, fresh, settled


class Group:
    """What reductions over the same loops share, however often these are entered.

    Args:
        loops: what names the loops: their first entry.

    Attributes:
        forms: of their instructions, by class, operator and layouts.
        marks: per operator what the rows of the reductions are marked with; see `Marks.reduced`.
        others: per number of a storage who else wrote it.
    """

    __slots__ = ("forms", "loops", "marks", "others")

    def __init__(self, loops: tuple[int, ...]) -> None:
        self.loops = loops
        self.forms: dict[Any, Known] = {}
        self.marks: dict[str, tuple[tuple[int, ...], str]] = {}
        self.others: dict[int, Others] = {}


class Entry:
    """What reductions over the same loops share from when these are entered until they end.

    Attributes:
        begun: per destination, storage, offset and layout, which elements of the storage iterations wrote by
            now; None where all of the destination takes part.
        tiles: per line the tile of a running value that is assigned nowhere.
    """

    __slots__ = ("begun", "group", "tiles")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.begun: dict[tuple[int, int, Layout], Coverage | None] = {}
        self.tiles: dict[Site, Tensor] = {}


class Reductions:
    """What the reductions over loops of one program share.

    Attributes:
        entries: by what names an entry of loops; see `_place_around`.
        groups: by line that of its loops; lines that met in one entry go on with each other's values.
        looks: how far storages, rows and operands went when writers were looked for.
    """

    __slots__ = ("entries", "groups", "looks")

    def __init__(self) -> None:
        self.entries: dict[tuple[int, ...], Entry] = {}
        self.groups: dict[Site, Group] = {}
        self.looks: list[tuple[int, int, int]] = [(0, 0, 0)]

    def entry(self, around: tuple[int, ...], where: Site) -> Entry:
        """The entry of the loops in which a line stands."""
        entry = self.entries.get(around)
        if entry is None:
            entry = self.entries[around] = Entry(self.groups.get(where) or Group(around))
        if where not in self.groups:
            self.groups[where] = entry.group
        return entry

    def others(self, program: Program, storage: Storage) -> Others:
        """Who else wrote a storage of which that was not asked yet: nobody before it was made."""
        _, row, operand = self.looks[bisect_right(self.looks, (storage.number, inf)) - 1]
        self.looks.append((len(program.storages), len(program), program.operand_count))
        return Others(storage, row, operand)


def _reductions(session: Session) -> Reductions:
    """What the reductions over loops of a program share."""
    reductions: Reductions | None = session.keyed.get("reductions")
    if reductions is None:
        reductions = session.keyed["reductions"] = Reductions()
    return reductions


class Others:
    """What rows that are none of a group's wrote of a storage, as far as they were looked at.

    Args:
        storage: the storage.
        row: the next row to look at.
        operand: its first tile operand.
    """

    __slots__ = ("_coverage", "_new", "_operand", "_places", "_row", "_storage")

    def __init__(self, storage: Storage, row: int, operand: int) -> None:
        self._storage, self._row, self._operand = storage, row, operand
        self._coverage: Coverage | None = None
        # places written, and those of them that are not in the coverage yet: most questions need none
        self._places: set[tuple[int, Layout]] = set()
        self._new: list[tuple[int, Layout]] = []

    def touch(self, dst: Tensor, program: Program, loops: tuple[int, ...]) -> bool:
        """Whether they wrote an element of `dst`."""
        place = (dst.offset, dst.layout)
        # what they wrote stays written: mostly no row has to be looked at
        if place in self._places or (self._coverage is not None and self._coverage.is_full):
            return True
        self._look(program, loops)
        if not self._places or place in self._places:
            return bool(self._places)
        covered = self._coverage = self._coverage or Coverage(self._storage)
        for offset, known in self._new:
            if known.indices:
                covered.fill()
            else:
                covered.add(View(self._storage, offset, known))
        self._new.clear()
        return covered.of(dst) != "none"

    def _look(self, program: Program, loops: tuple[int, ...]) -> None:
        """Look at the rows up to here."""
        reduced = program.marks.reduced
        for row, offset, known in program.writes_since(self._row, self._operand, self._storage.number):
            if (row not in reduced or reduced[row][0] != loops) and (offset, known) not in self._places:
                self._places.add((offset, known))
                self._new.append((offset, known))
        self._row, self._operand = len(program), program.operand_count


class LoopReduction:
    """One iteration's part of a reduction over loops.

    Args:
        tile: this iteration's value.
        op: how values combine.
        loop_indices: indices of the loops that are reduced.
        dtype: of the result; of the tile if None.
        mask: where the result is written.
    """

    def __init__(self, tile: Tensor, op: Operator, loop_indices: Any, dtype: DType | None, mask: Any) -> None:
        indices = loop_indices if isinstance(loop_indices, tuple | list) else [loop_indices]
        for index in indices:
            if not isinstance(index, LoopIndex):
                raise RuleError("loop_indices holds something that is no loop variable of affine_range")
        self.tile = tile
        self.op = op
        self.dtype = dtype
        self.mask = mask
        session = current()
        session.flush()
        self.where = user_site()
        self.around = _place_around(session, {index.loop for index in indices})
        self.entry = _reductions(session).entry(self.around, self.where)
        marks = self.entry.group.marks
        self.mark = marks.get(op.name) or marks.setdefault(op.name, (self.entry.group.loops, op.name))
        # like any result it waits for its destination
        session.pending = self

    def commit(self) -> None:
        """Trace the running value in a tile of its own: a copy at first, a combination later."""
        session = current()
        known = self.entry.tiles.get(self.where)
        if known is None:
            combined = fresh(
                session, TensorCopy, [None, self.tile], ("unknown",), (),
                mask=self.mask, memory=SBUF, dtype=self.dtype,
            )  # fmt: skip
            tile = self.entry.tiles[self.where] = settled(combined)
            session.program.marks.carried.add(tile.storage.number)
        else:
            self._combine(session, known, None)

    def assign_to(self, dst: Tensor) -> None:
        """Trace dst = op(dst, tile); where the running value has a tile already, copy that."""
        session = current()
        if session.pending is self:
            session.pending = None
            self._reduce_into(session, dst)
        else:
            record(session, TensorCopy, [dst, self.tensor()], ("unknown",), ())

    def tensor(self) -> Tensor:
        """The tile of the running value."""
        current().flush()
        return self.entry.tiles[self.where]

    def _reduce_into(self, session: Session, dst: Tensor) -> None:
        """Combine into dst; between the iterations a value for a narrow float is carried in float32.

        It is rounded into dst as often as iterations end, but never from a rounded value.
        """
        element_type = dst.layout.dtype
        states, place = self.entry.begun, (dst.storage.number, dst.offset, dst.layout)
        if place in states:
            begun = states[place]
        else:
            begun = self._begin(session, dst)
            # without a mask the first iteration writes all of dst
            states[place] = None if self.mask is None else begun
        if element_type is FLOAT32 or not element_type.is_float or self.mask is not None:
            self._combine(session, dst, begun)
            return
        mark = ("carried", dst.storage.number)
        since, epoch = session.keyed.get(mark, (0, 0))
        # a row of anybody else's on the storage ends what was carried for it: start from what it holds
        epoch += session.program.is_named_since(since, dst.storage.number)
        key = (*mark, epoch, self.around, dst.offset, dst.layout)
        carried = session.keyed.get(key)
        if carried is None:
            carried = session.keyed[key] = settled(self._first_carried(session, inside_bounds(dst), begun))
            session.program.marks.carried.add(carried.storage.number)
        else:
            self._combine(session, carried, None)
        self._write(session, TensorCopy, [dst, carried], ("unknown",))
        session.keyed[mark] = (session.program.operand_count, epoch)

    def _first_carried(self, session: Session, dst: Tensor, begun: Coverage | None) -> Tensor:
        """The running value in float32: what dst holds and this iteration's value, or that alone."""
        if begun is not None:
            return fresh(session, TensorCopy, [None, self.tile], ("unknown",), (), dtype=FLOAT32, memory=SBUF)
        operands = [None, dst, self.tile]
        return fresh(session, TensorTensor, operands, (self.op, "unknown"), (), dtype=FLOAT32, memory=SBUF)

    def _combine(self, session: Session, dst: Tensor, begun: Coverage | None) -> None:
        """Combine into dst where it holds something that takes part, and begin elsewhere.

        Args:
            session: the launch.
            dst: the destination.
            begun: which elements of its storage hold that; None if those of dst all do.
        """
        tile, rest = self.tile, None
        if begun is None and self.mask is None:
            self._write(session, TensorTensor, [inside_bounds(dst), dst, tile], (self.op, "unknown"))
            return
        if self.mask is not None:
            box, rest = box_of(self.mask, tile.shape)
            if box is None:
                return
            dst, tile = cropped(dst, box), cropped(tile, box)
        dst = inside_bounds(dst)
        state = "all" if begun is None else begun.of(dst, rest)
        first = rest
        if begun is not None and state == "part":
            old = begun.where(dst)
            first, rest = (~old, old) if rest is None else (rest & ~old, rest & old)
        if state != "none":
            self._write(session, TensorTensor, [dst, dst, tile], (self.op, "unknown"), rest)
        if begun is not None and state != "all":
            self._write(session, TensorCopy, [dst, tile], ("unknown",), first)
            begun.add(dst) if first is None else begun.add_where(dst, first)

    def _write(
        self, session: Session, cls: type[Instruction], operands: list[Any], attributes: tuple[Any, ...],
        mask: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        forms = self.entry.group.forms
        key = (cls, self.op.name, operands[0].layout, operands[-1].layout)
        known = forms.get(key)
        row = record(session, cls, operands, attributes, (), mask, self.where, known)
        if known is None:
            forms[key] = check_form(session, cls, operands, attributes)
        session.program.marks.reduced[row] = self.mark

    def _begin(self, session: Session, dst: Tensor) -> Coverage | None:
        """What iterations wrote of a storage since the loops were entered; None if all of dst takes part."""
        group, storage = self.entry.group, dst.storage
        if storage.number in session.program.marks.filled:
            return None
        others = group.others.get(storage.number)
        if others is None:
            others = group.others[storage.number] = _reductions(session).others(session.program, storage)
        return None if others.touch(dst, session.program, group.loops) else Coverage(storage)


def _place_around(session: Session, loops: set[int]) -> tuple[int, ...]:
    """The entry of the outermost loop that is reduced, and the iterations of other loops inside it."""
    positions = session.program.positions
    position = outer = session.position
    inside: list[int] = []
    passed: list[int] = []
    while position > 0:
        parent, loop, iteration = positions[position]
        if loop in loops:
            outer = loop
            inside += passed
            passed = []
        else:
            passed.append(iteration)
        position = parent
    return (outer, *inside)
