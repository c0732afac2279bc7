"""Instructions of the DMA engines."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from msgspec.structs import replace

from ..tiles.convert import cast, store, widen
from . import common_rules
from .costs import engine_step, transfer_step
from .declare import Attr, Example, Flag, In, Instruction, Out, Spelled, Step, rule
from .elementwise import TensorCopy, optional_operator
from .uses import Tile

DGE = "descriptor generation reference, mode selection"

# a use whose rows are gathered at run time, as counterexamples write it
ROWS = Tile((16, 1), "int32")
OFFSET = Tile((1, 1), "int32")


class DmaCopy(Instruction):
    """Copy src to dst element by element in the order of their axes, between HBM and SBUF.

    Types that differ are converted through float32. With `dst_rmw_op` the source is added to what dst holds.
    Either side may begin at an offset that a register or tile of one element holds, or have its rows chosen
    by a tile of indices, one per position of its first axis; with `oob_mode` skip, rows out of bounds are
    left out.
    """

    engines = ("dma", "gpsimd")
    dst = Out("*", ("hbm", "sbuf"), rows=True)
    src = In("*", ("hbm", "sbuf", "psum"), rows=True)
    priority = Attr(None, (None, 0, 1, 2, 3))
    oob_mode = Attr("error", ("error", "skip"))
    dge_mode = Attr("unknown", ("unknown", "none", "swdge", "hwdge"))
    engine = Attr("unknown", ("unknown", "sync", "scalar", "gpsimd"))
    dst_rmw_op = Spelled(optional_operator, "None, add", None)
    unique_indices = Flag(True)
    example = Example({"src": [[1, 2], [3, 4]]}, {"dst": [[1, 2], [3, 4]]})

    @rule(
        "dst and src hold different numbers of elements", source=", tile size",
        broken_by={"src.shape": (16, 5)}, hint="slice both sides to the same size",
    )  # fmt: skip
    def same_number_of_elements(self) -> bool:
        return self.dst.size == self.src.size

    packed_types_agree = replace(
        TensorCopy.packed_types_agree,
        sentence="one type is packed and the other is not the same; packed elements are moved as they are",
    )

    @rule(
        "dge_mode is hwdge and the types of dst and src differ; "
        "the hardware descriptor generator does not cast",
        source=", dge_mode", broken_by={"src.dtype": "bfloat16", "dge_mode": "hwdge"}, chips=("trn2", "trn3"),
    )  # fmt: skip
    def hardware_descriptors_do_not_cast(self) -> bool:
        return self.dge_mode != "hwdge" or self.dst.dtype is self.src.dtype

    hardware_descriptors_exist = common_rules.chip_has_it(
        3, "dge_mode is hwdge; trn1 has no hardware descriptor generator",
        source=", dge_mode",
        broken_by={"dge_mode": "hwdge"}, asks=lambda form: form.dge_mode == "hwdge",
    )  # fmt: skip

    @rule(
        "dge_mode is none and an address is known at run time only; descriptors made beforehand hold fixed "
        "addresses",
        source=DGE,
        broken_by={"src.memory": "hbm", "src.index": OFFSET, "dge_mode": "none"},
        hint="leave dge_mode out",
    )
    def fixed_descriptors_have_fixed_addresses(self) -> bool:
        return self.dge_mode != "none" or not self.is_dynamic

    @rule(
        "dge_mode is hwdge and indices choose the rows; only software descriptors gather and scatter",
        source=DGE, broken_by={"src.memory": "hbm", "src.index": ROWS, "dge_mode": "hwdge"},
        hint="leave dge_mode out, or pass nisa.dge_mode.swdge", chips=("trn2", "trn3"),
    )  # fmt: skip
    def only_software_descriptors_gather(self) -> bool:
        return self.dge_mode != "hwdge" or not (self.dst.is_gathered or self.src.is_gathered)

    priorities_exist = common_rules.chip_has_it(
        4, "priority is given; DMA priorities exist from trn3 on", source=", priority",
        broken_by={"priority": 1}, asks=lambda form: form.priority is not None,
    )  # fmt: skip

    @rule(
        "unique_indices is False; indices that repeat are not supported",
        source="nki.isa.dma_copy of NKI 0.2, unique_indices",
        broken_by={"unique_indices": False},
    )
    def indices_do_not_repeat(self) -> bool:
        return self.unique_indices

    @rule(
        "dst_rmw_op is not add; a transfer can only add",
        source=", dst_rmw_op",
        broken_by={"dst_rmw_op": "multiply"},
    )
    def only_addition(self) -> bool:
        return self.dst_rmw_op is None or self.dst_rmw_op.name == "add"

    @rule(
        "dst_rmw_op is given with oob_mode skip; only error is allowed",
        source=", dst_rmw_op",
        broken_by={"dst_rmw_op": "add", "oob_mode": "skip"},
    )
    def addition_checks_bounds(self) -> bool:
        return self.dst_rmw_op is None or self.oob_mode == "error"

    @cached_property
    def reads_dst(self) -> bool:
        """Whether a call also reads dst."""
        return self.dst_rmw_op is not None

    @cached_property
    def is_dynamic(self) -> bool:
        """Whether an address is known at run time only."""
        return bool(self.dst.indices or self.src.indices)

    @cached_property
    def is_plain_copy(self) -> bool:
        """Whether nothing is added or converted."""
        return self.dst_rmw_op is None and self.dst.dtype is self.src.dtype and not self.is_dynamic

    def compute(self, dst: Any, src: Any) -> None:
        source = src if src.shape == dst.shape else src.reshape(dst.shape)
        if self.dst_rmw_op is None:
            cast(dst, self.dst.dtype, source, self.src.dtype)
        else:
            store(dst, widen(dst, self.dst.dtype) + widen(source, self.src.dtype), self.dst.dtype)

    @cached_property
    def is_made_by_software(self) -> bool:
        """Whether GpSimdE makes the descriptors: where it is asked to, and where indices choose the rows."""
        return self.dge_mode == "swdge" or self.dst.is_gathered or self.src.is_gathered

    def cost(self) -> list[Step]:
        if not self.is_dynamic and not self.is_made_by_software:
            return [transfer_step(self.dst, self.src, label="DMA")]
        # assumed: descriptors made while the kernel runs cost what others do; nothing is published of them
        transfer = transfer_step(self.dst, self.src, label="DMA", widening=2)
        if not self.is_made_by_software:
            return [transfer]
        # descriptor generation reference: software descriptors cost GpSimdE time; assumed: a cycle for each
        descriptors = engine_step(self.machine, "gpsimd", "DGE", transfer.descriptors, widening=2)
        return [descriptors, transfer]
