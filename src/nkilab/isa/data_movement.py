"""Instructions of the DMA engines."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ..tiles.convert import cast, store, widen
from .costs import transfer_step
from .declare import Attr, Example, In, Instruction, Out, Spelled, Step, rule
from .operators import Operator, operator_named

SOURCE = "nki.isa.dma_copy"


def _read_modify_write(spelled: Any) -> Operator | None:
    return None if spelled is None else operator_named(spelled)


class DmaCopy(Instruction):
    """Copy src to dst element by element in the order of their axes, between HBM and SBUF.

    Types that differ are converted through float32. With `dst_rmw_op` the source is added to what dst holds.
    """

    source = SOURCE
    engines = ("dma",)
    dst = Out("*", ("hbm", "sbuf"))
    src = In("*", ("hbm", "sbuf", "psum"))
    dst_rmw_op = Spelled(_read_modify_write, "None, add", None)
    oob_mode = Attr("error", ("error", "skip"))
    dge_mode = Attr("unknown", ("unknown", "none", "swdge", "hwdge"))
    engine = Attr("unknown", ("unknown", "sync", "scalar", "gpsimd"))
    example = Example({"src": [[1, 2], [3, 4]]}, {"dst": [[1, 2], [3, 4]]})

    @rule(
        "dst and src hold different numbers of elements",
        source="nki.isa.dma_copy, tile size",
        broken_by={"src.shape": (16, 5)},
        hint="slice both sides to the same size",
    )
    def same_number_of_elements(self) -> bool:
        return self.dst.size == self.src.size

    @rule(
        "dge_mode is hwdge and the types of dst and src differ; "
        "the hardware descriptor generator does not cast",
        source="nki.isa.dma_copy, dge_mode",
        broken_by={"src.dtype": "bfloat16", "dge_mode": "hwdge"},
        chips=("trn2", "trn3"),
    )
    def hardware_descriptors_do_not_cast(self) -> bool:
        return self.dge_mode != "hwdge" or self.dst.dtype is self.src.dtype

    @rule(
        "dge_mode is hwdge; trn1 has no hardware descriptor generator",
        source="nki.isa.dma_copy, dge_mode",
        broken_by={"dge_mode": "hwdge"},
        chips=("trn1",),
    )
    def hardware_descriptors_exist(self) -> bool:
        return self.dge_mode != "hwdge" or self.machine.generation >= 3

    @rule(
        "dst_rmw_op is not add; a transfer can only add",
        source="nki.isa.dma_copy, dst_rmw_op",
        broken_by={"dst_rmw_op": "multiply"},
    )
    def only_addition(self) -> bool:
        return self.dst_rmw_op is None or self.dst_rmw_op.name == "add"

    @rule(
        "dst_rmw_op is given with oob_mode skip; only error is allowed",
        source="nki.isa.dma_copy, dst_rmw_op",
        broken_by={"dst_rmw_op": "add", "oob_mode": "skip"},
    )
    def addition_checks_bounds(self) -> bool:
        return self.dst_rmw_op is None or self.oob_mode == "error"

    @cached_property
    def reads_dst(self) -> bool:
        """Whether a call also reads dst."""
        return self.dst_rmw_op is not None

    @cached_property
    def is_plain_copy(self) -> bool:
        """Whether nothing is added or converted."""
        return self.dst_rmw_op is None and self.dst.dtype is self.src.dtype

    def compute(self, dst: Any, src: Any) -> None:
        given = src if src.shape == dst.shape else src.reshape(dst.shape)
        if self.dst_rmw_op is None:
            cast(dst, self.dst.dtype, given, self.src.dtype)
        else:
            store(dst, widen(dst, self.dst.dtype) + widen(given, self.src.dtype), self.dst.dtype)

    def cost(self) -> list[Step]:
        return [transfer_step(self, self.dst, self.src, label="DMA")]
