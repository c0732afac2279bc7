"""Uses of an instruction made from its declaration alone, and running them without a dialect.

A *use* names everything that a call needs: a `Tile`, a number or None per operand, attributes as a user
spells them, values. `smallest_use` is the one that rules are broken from.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nkilab.dialects.indexing import basic as sliced
from nkilab.errors import KernelError
from nkilab.execute import execute
from nkilab.isa.declare import NUMBER, REQUIRED, Instruction, Operand
from nkilab.machine import MACHINES, Machine
from nkilab.tiles.dtypes import DTYPES, as_dtype
from nkilab.tiles.tile import Storage, View, array_of, compact_strides, layout, whole_layout
from nkilab.trace.builder import record
from nkilab.trace.program import Program
from nkilab.trace.session import Session, tracing

AXIS_SIZE = 16
Use = dict[str, Any]


@dataclass(frozen=True)
class Tile:
    """What a tile of a use is, before there is a storage for it."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    memory: str = "sbuf"
    start: int = 0

    def layout(self) -> Any:
        """Its layout as the whole of a storage."""
        axis = None if self.memory == "hbm" else 0
        return layout(
            self.shape, compact_strides(self.shape), DTYPES[self.dtype], self.memory, axis, self.start
        )


def tile_of(spec: Operand, sizes: Mapping[str, int]) -> Tile:
    """The tile an operand describes: 16 along each axis but those in `sizes`; a star is one more axis."""
    axes = ("*", "*") if spec.axes == ("*",) else spec.axes
    shape = tuple(int(a) if a.isdigit() else sizes.get(a.rstrip("*"), AXIS_SIZE) for a in axes)
    dtype = "float32" if "float32" in spec.dtypes else spec.dtypes[0]
    return Tile(shape, dtype, spec.memories[0])


def operands_of(cls: type[Instruction]) -> dict[str, Operand]:
    """The operands that a use names; a list of tiles holds two."""
    return cls.slots(len(cls.operands) + 1) if cls.list_name else cls.operands


def smallest_use(cls: type[Instruction], changes: Mapping[str, Any] | None = None) -> Use:
    """The smallest legal use of `cls`, with `changes` as a rule's counterexample writes them."""
    changes = {**cls.smallest, **(changes or {})}
    axes = {a.rstrip("*") for spec in cls.operands.values() for a in spec.axes}
    sizes = {k: v for k, v in changes.items() if k in axes}
    use: Use = {}
    operands = operands_of(cls)
    for name, spec in operands.items():
        use[name] = tile_of(spec, sizes) if spec.default is REQUIRED else spec.default
    for name, spec in {**cls.attributes, **cls.values}.items():
        use[name] = cls.example.attributes[name] if spec.default is REQUIRED else spec.default
    for path, given in changes.items():
        if path in axes:
            continue
        operand, _, part = path.partition(".")
        assert operand in use, f"{cls.__name__} has no {operand}"
        if part:
            tile = use[operand] if isinstance(use[operand], Tile) else tile_of(operands[operand], sizes)
            use[operand] = replace(tile, **{part: given})
        elif isinstance(given, tuple | list) and operand in operands:
            use[operand] = replace(tile_of(operands[operand], sizes), shape=tuple(given))
        else:
            use[operand] = given
    return use


def chips_of(cls: type[Instruction]) -> list[Machine]:
    """The chips that have `cls` at all: those that no rule without a counterexample names."""
    without = {chip for r in cls.rules if not r.broken_by for chip in r.chips}
    return [machine for name, machine in MACHINES.items() if name not in without]


def attributes_of(cls: type[Instruction], use: Use) -> tuple[Any, ...]:
    """The canonical attributes of a use, in declared order."""
    return tuple(spec.canonical(name, use[name]) for name, spec in cls.attributes.items())


def values_of(cls: type[Instruction], use: Use) -> tuple[Any, ...]:
    """The values of a use, in declared order."""
    return tuple(use[name] for name in cls.values)


def form_of(cls: type[Instruction], machine: Machine, use: Use) -> Instruction:
    """The form of a use; raises what the declaration raises."""
    layouts = [
        given.layout() if isinstance(given, Tile) else None if given is None else NUMBER
        for given in (use[name] for name in operands_of(cls))
    ]
    return cls(machine, layouts, attributes_of(cls, use))


def refused(cls: type[Instruction], changes: Mapping[str, Any], machine: str = "trn2") -> str:
    """What is said about the smallest use with `changes`, before its place is known; "" if it is legal."""
    try:
        form_of(cls, MACHINES[machine], smallest_use(cls, changes))
    except KernelError as error:
        return str(error)
    return ""


def open_session(machine: Machine, *, has_data: bool = True) -> Session:
    """A launch with nothing in it."""
    return Session(machine, Program(machine), execute if has_data else None)


def new_tile(
    session: Session,
    tile: Tile | Any,
    dtype: str = "float32",
    memory: str = "sbuf",
    *,
    name: str = "",
) -> View:
    """A view of a fresh storage: unwritten for a `Tile`, or holding an array's elements as `dtype`."""
    if isinstance(tile, Tile):
        shape, dtype, memory, data = tile.shape, tile.dtype, tile.memory, None
    else:
        data = np.ascontiguousarray(np.asarray(tile).astype(as_dtype(dtype).storage))
        shape = data.shape
    storage = Storage(-1, name, tuple(shape), as_dtype(dtype), memory, "tile", 0)
    session.register(storage)
    if data is not None:
        storage.allocate(data.copy())
    return View(storage, 0, whole_layout(storage))


def call(session: Session, cls: type[Instruction], mask: Any = None, **use: Any) -> None:
    """One call with views or numbers as operands, from the caller's line; the rest takes its default."""
    declared = {**cls.operands, **cls.attributes, **cls.values}
    given = {**{name: spec.default for name, spec in declared.items()}, **use}
    if cls.list_name and given[cls.list_name] is REQUIRED:
        given[cls.list_name] = [given[name] for name in operands_of(cls) if name not in cls.operands]
    missing = [name for name, value in given.items() if value is REQUIRED]
    assert not missing, f"{cls.__name__} needs {missing}"
    operands = [given[name] for name in cls.operands]
    frame = sys._getframe(1)
    where = (frame.f_code.co_filename, frame.f_lineno)
    with tracing(session):
        record(session, cls, operands, attributes_of(cls, given), values_of(cls, given), mask, where)


def run_use(
    session: Session, cls: type[Instruction], use: Use, data: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Run one use on arrays of its operands; returns the arrays of those it writes."""
    views = {
        name: new_tile(session, data[name], use[name].dtype, use[name].memory)
        if name in data
        else new_tile(session, use[name])
        for name in operands_of(cls)
        if isinstance(use[name], Tile)
    }
    call(session, cls, **{**use, **views})
    return {name: array_of(view) for name, view in views.items() if operands_of(cls)[name].is_written}


def result(
    cls: type[Instruction],
    dst: Tile | Sequence[int],
    *,
    machine: str = "trn2",
    **use: Any,
) -> np.ndarray:
    """What one call on a fresh launch writes to dst.

    An array among the operands becomes a float32 tile in SBUF; a tuple (array, dtype, memory) says more.
    """
    session = open_session(MACHINES[machine])
    out = new_tile(session, dst if isinstance(dst, Tile) else Tile(tuple(dst)))
    given = {
        name: new_tile(session, *value) if isinstance(value, tuple) and name in cls.operands
        else new_tile(session, value) if isinstance(value, np.ndarray)
        else value
        for name, value in use.items()
    }  # fmt: skip
    call(session, cls, dst=out, **given)
    return array_of(out)


def part_of(view: View, start: tuple[int, int], shape: tuple[int, int]) -> View:
    """A rectangle of a two-dimensional view."""
    return sliced(
        view, tuple(slice(first, first + size, 1) for first, size in zip(start, shape, strict=True))
    )
