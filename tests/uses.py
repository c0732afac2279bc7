"""Running uses of an instruction (`nkilab.isa.uses`) without a dialect."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nkilab.dialects.indexing import basic as sliced
from nkilab.errors import KernelError
from nkilab.execute import execute
from nkilab.isa.declare import REQUIRED, Instruction
from nkilab.isa.uses import AXIS_SIZE as AXIS_SIZE
from nkilab.isa.uses import Tile, Use, attributes_of, form_of, operands_of, smallest_use, values_of
from nkilab.isa.uses import chips_of as chips_of
from nkilab.isa.uses import tile_of as tile_of
from nkilab.machine import MACHINES, Machine
from nkilab.tiles.dtypes import as_dtype
from nkilab.tiles.tile import Storage, View, array_of, whole_layout
from nkilab.trace.builder import record
from nkilab.trace.program import Program
from nkilab.trace.session import Session, tracing


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
    arguments = {**{name: spec.default for name, spec in declared.items()}, **use}
    if cls.list_name and arguments[cls.list_name] is REQUIRED:
        arguments[cls.list_name] = [arguments[name] for name in operands_of(cls) if name not in cls.operands]
    missing = [name for name, value in arguments.items() if value is REQUIRED]
    assert not missing, f"{cls.__name__} needs {missing}"
    operands = [arguments[name] for name in cls.operands]
    frame = sys._getframe(1)
    where = (frame.f_code.co_filename, frame.f_lineno)
    with tracing(session):
        record(session, cls, operands, attributes_of(cls, arguments), values_of(cls, arguments), mask, where)


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
    changed = {
        name: new_tile(session, *value) if isinstance(value, tuple) and name in cls.operands
        else new_tile(session, value) if isinstance(value, np.ndarray)
        else value
        for name, value in use.items()
    }  # fmt: skip
    call(session, cls, dst=out, **changed)
    return array_of(out)


def part_of(view: View, start: tuple[int, int], shape: tuple[int, int]) -> View:
    """A rectangle of a two-dimensional view."""
    return sliced(
        view, tuple(slice(first, first + size, 1) for first, size in zip(start, shape, strict=True))
    )
