"""Programs made by hand for tests of place, timing, views and files: a few tiles, a few calls."""

from __future__ import annotations

from typing import Any

from nkilab.isa import REGISTRY
from nkilab.isa.declare import REQUIRED
from nkilab.machine import MACHINES, Machine
from nkilab.tiles.dtypes import DTYPES
from nkilab.tiles.tile import HBM, Storage, View, layout, whole_layout
from nkilab.trace.builder import record
from nkilab.trace.program import Program
from nkilab.trace.session import Session


class Kernel:
    """A program under construction; every call stands on a line of its own, from line 1 of kernel.py on."""

    def __init__(self, machine: str | Machine = "trn2") -> None:
        self.machine = MACHINES[machine] if isinstance(machine, str) else machine
        self.program = Program(self.machine, "made_by_hand")
        self.session = Session(self.machine, self.program, None)
        # the line that calls stand on, if they do not each have their own
        self.line = 0

    def tile(self, *shape: int, dtype: str = "float32", memory: str = "sbuf", name: str = "") -> View:
        """A new tile or tensor."""
        scope = "output" if memory == HBM else "tile"
        line = self.program.site_number(("kernel.py", len(self.program) + 1))
        storage = Storage(-1, name, shape, DTYPES[dtype], memory, scope, line)
        self.session.register(storage)
        return View(storage, 0, whole_layout(storage))

    def hbm(self, *shape: int, dtype: str = "float32", name: str = "") -> View:
        """A new tensor in HBM."""
        return self.tile(*shape, dtype=dtype, memory=HBM, name=name)

    def psum(self, *shape: int, name: str = "") -> View:
        """A new float32 tile in PSUM."""
        return self.tile(*shape, memory="psum", name=name)

    def call(
        self, instruction: str, *operands: Any, values: tuple[Any, ...] | None = None, **attributes: Any
    ) -> int:
        """Append a call; returns its row."""
        cls = REGISTRY[instruction]
        canonical = tuple(
            spec.canonical(name, attributes.get(name, spec.default)) for name, spec in cls.attributes.items()
        )
        call_values = values if values is not None else tuple(spec.default for spec in cls.values.values())
        assert REQUIRED not in call_values
        row = len(self.program)
        record(self.session, cls, operands, canonical, call_values, where=("kernel.py", self.line or row + 1))
        return row

    def load(self, dst: View, src: View) -> int:
        """A transfer."""
        return self.call("dma_copy", dst, src)

    store = load

    def copy(self, dst: View, src: View, engine: str = "vector") -> int:
        """A copy by a compute engine."""
        return self.call("tensor_copy", dst, src, engine=engine)

    def fill(self, dst: View) -> int:
        """A memset by VectorE."""
        return self.call("memset", dst, values=(0.0,), engine="vector")

    def matmul(self, dst: View, stationary: View, moving: View, accumulate: bool = False) -> int:
        """A multiplication."""
        return self.call("nc_matmul", dst, stationary, moving, values=(accumulate,))


def part(view: View, *ranges: tuple[int, ...]) -> View:
    """A strided rectangle of a view: (start, stop) or (start, stop, step) per axis."""
    known = view.layout
    offset = view.offset + sum(r[0] * s for r, s in zip(ranges, known.strides, strict=True))
    steps = [r[2] if len(r) > 2 else 1 for r in ranges]
    shape = tuple(-(-(r[1] - r[0]) // step) for r, step in zip(ranges, steps, strict=True))
    strides = tuple(s * step for s, step in zip(known.strides, steps, strict=True))
    start = ranges[0][0] if known.partition_axis == 0 else 0
    part_layout = layout(shape, strides, known.dtype, known.memory, known.partition_axis, start)
    return View(view.storage, offset, part_layout)


def columns(view: View, start: int, stop: int, step: int = 1) -> View:
    """Some columns of a two-dimensional view."""
    return part(view, (0, view.layout.shape[0]), (start, stop, step))


def rows(view: View, start: int, stop: int) -> View:
    """Some rows of a two-dimensional view."""
    return part(view, (start, stop), (0, view.layout.shape[1]))


def reshaped(view: View, *shape: int) -> View:
    """The elements of a compact HBM view under another shape."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    new_layout = layout(shape, tuple(reversed(strides)), view.layout.dtype, view.layout.memory, None, 0)
    return View(view.storage, view.offset, new_layout)


def names(program: Program) -> list[str]:
    """The instruction of each row."""
    return [program.form_of(row).name for row in range(len(program))]


def repeated(k: Kernel, reader: str, width: int = 512, copy_to: str = "float32") -> None:
    """A row repeated over 128 partitions by TensorE, copied to SBUF, and read there."""
    row, ones = k.tile(1, width), k.tile(1, 128)
    product, copy = k.psum(128, width), k.tile(128, width, dtype=copy_to)
    k.matmul(product, ones, row)
    k.copy(copy, product, engine="unknown")
    other, result = k.tile(128, width), k.tile(128, width)
    if reader == "tensor_tensor":
        k.call("tensor_tensor", result, other, copy, op="add")
    else:
        k.load(k.hbm(128, width), copy)
