"""Uses of an instruction made from its declaration alone: the smallest legal one, and changes to it.

A *use* names everything that a call needs: a `Tile`, a number or None per operand, attributes as a user
spells them, values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..machine import MACHINES, Machine
from ..tiles.dtypes import DTYPES
from ..tiles.tile import IndexLayout, Layout, compact_strides, layout
from .declare import NUMBER, REQUIRED, Instruction, Operand

AXIS_SIZE = 16
Use = dict[str, Any]


class Tile(Struct, frozen=True):
    """What a tile of a use is, before there is a storage for it."""

    shape: tuple[int, ...]  # in elements; the first axis is the partition
    dtype: str = "float32"  # name of the type
    memory: str = "sbuf"  # where it lies
    start: int = 0  # its first partition
    # the tile whose elements choose its rows at run time, or the one element an offset; None if its address
    # is known
    index: Tile | None = None

    def layout(self) -> Layout:
        """Its layout as the whole of a storage, at an address known at run time if it has an index."""
        axis = None if self.memory == "hbm" else 0
        strides = compact_strides(self.shape)
        indices: tuple[IndexLayout, ...] = ()
        if self.index is not None:
            index_layout = self.index.layout()
            indices = (IndexLayout(index_layout, is_vector=index_layout.size > 1),)
            strides = (0, *strides[1:]) if index_layout.size > 1 else strides
        return layout(self.shape, strides, DTYPES[self.dtype], self.memory, axis, self.start, indices)


def tile_of(spec: Operand, sizes: Mapping[str, int]) -> Tile:
    """The tile an operand describes: 16 along each axis but those in `sizes`; a star is one more axis."""
    axes = ("*", "*") if spec.axes == ("*",) else spec.axes
    shape = tuple(int(a) if a.isdigit() else sizes.get(a.rstrip("*"), AXIS_SIZE) for a in axes)
    dtype = "float32" if "float32" in spec.dtypes else spec.dtypes[0]
    return Tile(shape, dtype, spec.memories[0])


def operands_of(cls: type[Instruction], named: Iterable[str] = ()) -> dict[str, Operand]:
    """The operands that a use names; a list of tiles holds two, or as many as `named` names."""
    if not cls.list_name:
        return cls.operands
    tiles = {name.partition(".")[0] for name in named if name.startswith(f"{cls.list_name}[")}
    return cls.slots(len(cls.operands) - 1 + max(2, *(int(t.partition("[")[2][:-1]) + 1 for t in tiles), 0))


def axes_of(cls: type[Instruction]) -> set[str]:
    """Names of the axes of all operands, without stars."""
    return {a.rstrip("*") for spec in cls.operands.values() for a in spec.axes}


def smallest_use(cls: type[Instruction], changes: Mapping[str, Any] | None = None) -> Use:
    """The smallest legal use of `cls`, with `changes` as a rule's counterexample writes them."""
    changes = {**cls.smallest, **(changes or {})}
    axes = axes_of(cls)
    sizes = {k: v for k, v in changes.items() if k in axes}
    use: Use = {}
    operands = operands_of(cls, changes)
    for name, spec in operands.items():
        use[name] = tile_of(spec, sizes) if spec.default is REQUIRED else spec.default
    members: dict[str, Any] = {**cls.attributes, **cls.values}
    for name, member in members.items():
        use[name] = cls.example.attributes[name] if member.default is REQUIRED else member.default
    for path, value in changes.items():
        if path in axes:
            continue
        operand, _, part = path.partition(".")
        assert operand in use, f"{cls.__name__} has no {operand}"
        if part:
            tile = use[operand] if isinstance(use[operand], Tile) else tile_of(operands[operand], sizes)
            use[operand] = replace(tile, **{part: value})
        elif isinstance(value, tuple | list) and operand in operands:
            use[operand] = replace(tile_of(operands[operand], sizes), shape=tuple(value))
        else:
            use[operand] = value
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
        tile.layout() if isinstance(tile, Tile) else None if tile is None else NUMBER
        for tile in (use[name] for name in operands_of(cls, use))
    ]
    return cls(machine, layouts, attributes_of(cls, use))
