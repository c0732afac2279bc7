"""Registers of the engines' sequencers: integers that addresses, loop bounds and conditions are made of.

A virtual register is a storage of one int32 of its own; which physical register of which engine holds it is
the compiler's choice. SyncE stands for the sequencer that runs these instructions.
"""

from __future__ import annotations

from typing import Any

from ..tiles.convert import cast
from ..tiles.dtypes import INT32
from ..tiles.tile import SEQUENCER
from .declare import Example, In, Instruction, Out, Step, rule

GUIDE = "nki.isa.register_alloc"
SCALAR_BITS = ("int32", "uint32", "int16", "uint16", "int8", "uint8", "bool", "float32")
# assumed: the least interval between instructions of an engine, about 64 cycles at 1.4 GHz; registers have no
# published cost
MOVE_NS = 46.0
# assumed: reading or writing memory from a sequencer takes a DMA's way, without its start
MEMORY_NS = 500.0


def _one_element(layout: Any) -> bool:
    return layout.size == 1


class RegisterMove(Instruction):
    """Put a constant integer or another register's value into a register: dst = src."""

    engines = ("sync",)
    dst = Out("*", (SEQUENCER,), ("int32",))
    src = In("*", (SEQUENCER,), ("int32",), number=True)
    smallest = {"dst.shape": (1,), "src.shape": (1,)}
    example = Example({"src": [7]}, {"dst": [7]}, dtypes={"dst": "int32", "src": "int32"})

    def compute(self, dst: Any, src: Any) -> None:
        dst[...] = src

    def cost(self) -> list[Step]:
        return [Step("sync", "REGISTER_MOVE", busy_ns=MOVE_NS, widening=4)]


class RegisterLoad(Instruction):
    """Load one element of at most 32 bits from HBM or SBUF into a register.

    Floats are rounded to the nearest integer; other integers keep their lowest 32 bits.
    """

    engines = ("sync",)
    dst = Out("*", (SEQUENCER,), ("int32",))
    src = In("*", ("sbuf", "hbm"), SCALAR_BITS)
    smallest = {"dst.shape": (1,), "src.shape": (1, 1)}
    example = Example({"src": [[3]]}, {"dst": [3]}, dtypes={"dst": "int32", "src": "int32"})

    @rule(
        "src does not have exactly one element", source=", src", broken_by={"src.shape": (1, 2)},
        hint="index one element of it",
    )  # fmt: skip
    def src_is_one_element(self) -> bool:
        return _one_element(self.src)

    def compute(self, dst: Any, src: Any) -> None:
        if self.src.dtype.is_float:
            cast(dst, INT32, src.reshape(dst.shape), self.src.dtype)
        else:
            dst[...] = src.reshape(dst.shape).astype(INT32.storage)

    def cost(self) -> list[Step]:
        return [Step("sync", "REGISTER_LOAD", busy_ns=MEMORY_NS, widening=4)]


class RegisterStore(Instruction):
    """Store the value of a register to one element in HBM or SBUF.

    A narrower integer gets the lowest bits.
    """

    engines = ("sync",)
    dst = Out("*", ("sbuf", "hbm"), SCALAR_BITS)
    src = In("*", (SEQUENCER,), ("int32",))
    smallest = {"dst.shape": (1, 1), "src.shape": (1,)}
    example = Example({"src": [-5]}, {"dst": [[-5]]}, dtypes={"dst": "int32", "src": "int32"})

    @rule(
        "dst does not have exactly one element", source=", dst", broken_by={"dst.shape": (1, 2)},
        hint="index one element of it",
    )  # fmt: skip
    def dst_is_one_element(self) -> bool:
        return _one_element(self.dst)

    def compute(self, dst: Any, src: Any) -> None:
        if self.dst.dtype.is_float:
            cast(dst, self.dst.dtype, src.reshape(dst.shape), INT32)
        else:
            dst[...] = src.reshape(dst.shape).astype(self.dst.dtype.storage)

    def cost(self) -> list[Step]:
        return [Step("sync", "REGISTER_STORE", busy_ns=MEMORY_NS, widening=4)]
