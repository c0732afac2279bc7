"""Instructions of the DMA engines that do more than copy: transposing and adding."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from msgspec.structs import replace

from ..errors import RuleError
from ..tiles.convert import store, widen
from ..tiles.tile import SBUF, Layout
from . import common_rules
from .costs import contiguous_run, transfer_step
from .data_movement import DmaCopy
from .declare import Attr, Example, Flag, Fresh, In, Instruction, Out, Several, Spelled, Step, rule
from .operators import operator_named
from .uses import Tile

DIRECT = "nki.isa.dma_transpose, direct transpose constraints"
# what makes the smallest use a gathering one
GATHERED = {"src.memory": "hbm", "src.index": Tile((16, 1), "uint32"), "src.dtype": "bfloat16",
            "dst.dtype": "bfloat16"}  # fmt: skip
# the permutation for each number of axes
PERMUTATIONS = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


def _axes(spelled: Any) -> tuple[int, ...] | None:
    if spelled is None:
        return None
    try:
        return tuple(int(a) for a in spelled)
    except (TypeError, ValueError):
        raise RuleError(f"axes is {spelled!r}; it must be None or a tuple of integers") from None


def _scales(spelled: Any) -> tuple[float, ...] | None:
    if spelled is None:
        return None
    try:
        return tuple(float(s) for s in spelled)
    except (TypeError, ValueError):
        raise RuleError(f"scales is {spelled!r}; it must be None or a list of numbers") from None


class DmaTranspose(Instruction):
    """Copy with the axes permuted, bit for bit; the last axis of src runs over the partitions of dst.

    The permutation is (1, 0) for two axes, (2, 1, 0) for three, (3, 1, 2, 0) for four.
    """

    engines = ("dma",)
    mixes = "P"
    dst = Out("*", ("sbuf",))
    src = In("*", ("hbm", "sbuf"), rows=True)
    axes = Spelled(_axes, "None, (1, 0), (2, 1, 0), (3, 1, 2, 0)", None)
    priority = Attr(None, (None, 0, 1, 2, 3))
    dge_mode = Attr("unknown", ("unknown", "none", "swdge", "hwdge"))
    oob_mode = Attr("error", ("error", "skip"))
    example = Example({"src": [[1, 2, 3], [4, 5, 6]]}, {"dst": [[1, 4], [2, 5], [3, 6]]})

    @rule("src has not two, three or four axes", broken_by={"src.shape": (16, 2, 2, 2, 2)})
    def permutation_is_known(self) -> bool:
        return len(self.src.shape) in PERMUTATIONS

    @rule(
        "axes is not (1, 0) for two axes of src, (2, 1, 0) for three, (3, 1, 2, 0) for four",
        source=", axes",
        broken_by={"axes": (0, 1)},
    )
    def axes_are_the_supported(self) -> bool:
        return self.axes is None or self.axes == PERMUTATIONS[len(self.src.shape)]

    @rule(
        "the shape of dst is not that of src with its axes permuted",
        source="release notes of NKI 0.4, dma_transpose",
        broken_by={"dst.shape": (16, 5)},
        hint="give dst as many axes as src has",
    )
    def shapes_agree(self) -> bool:
        return self.dst.shape == tuple(self.src.shape[a] for a in PERMUTATIONS[len(self.src.shape)])

    types_agree = common_rules.types_agree(
        "dst", "src", "dst and src differ in type; a transpose does not cast",
        source=", src", broken_by={"dst.dtype": "int32"},
    )  # fmt: skip

    @rule(
        "an element has one byte; a transpose moves elements of two or four",
        source="trn2 guide, DMA transpose",
        broken_by={"src.dtype": "int8", "dst.dtype": "int8"},
        hint="reinterpret pairs of elements with view, or transpose on TensorE",
    )
    def element_is_wide_enough(self) -> bool:
        return self.src.itemsize in (2, 4)

    @rule(
        "the last axis of src is longer than dst has partitions",
        source=", direct transpose constraints",
        broken_by={"src.shape": (16, 1025), "dst.shape": (1025, 16)},
        hint="split the last axis of `src` into tiles of as many elements as there are partitions",
    )
    def partitions_suffice(self) -> bool:
        return self.dst.partitions <= self.machine.limit("partitions")

    priorities_exist = DmaCopy.priorities_exist

    @rule(
        "dge_mode is swdge or none and no vector_offset gathers rows of src; it must be unknown or hwdge",
        source=", direct transpose constraints", broken_by={"dge_mode": "swdge"}, hint="leave dge_mode out",
    )  # fmt: skip
    def software_descriptors_gather(self) -> bool:
        return self.dge_mode in ("unknown", "hwdge") or self.src.is_gathered

    @rule(
        "indices choose the rows of src and dge_mode is neither unknown nor swdge",
        source=", indirect transpose constraints",
        broken_by={**GATHERED, "dge_mode": "none"},
        hint="leave dge_mode out",
    )
    def only_software_descriptors_gather(self) -> bool:
        return not self.src.is_gathered or self.dge_mode in ("unknown", "swdge")

    gathering_exists = common_rules.chip_has_it(
        3, "indices choose the rows of src on trn1; a gathering transpose exists from trn2 on",
        source=", indirect transpose constraints", broken_by=GATHERED, asks=lambda form: form.src.is_gathered,
    )  # fmt: skip

    @rule(
        "indices choose the rows of src and an element has not two bytes",
        source=", indirect transpose constraints",
        broken_by={**GATHERED, "src.dtype": "float32", "dst.dtype": "float32"},
        chips=("trn2", "trn3"),
    )
    def gathered_elements_have_two_bytes(self) -> bool:
        return not self.src.is_gathered or self.src.itemsize == 2

    @rule(
        "indices choose the rows of src, and these are not a multiple of 16",
        source=", indirect transpose constraints",
        broken_by={**GATHERED, "src.shape": (24, 16), "dst.shape": (16, 24),
                   "src.index": Tile((32, 1), "uint32")},
        chips=("trn2", "trn3"),
    )  # fmt: skip
    def gathered_rows_come_in_sixteens(self) -> bool:
        return not self.src.is_gathered or self.src.shape[0] % 16 == 0

    @rule(
        "indices choose the rows of a four-dimensional src, and neither its second nor its third axis is one",
        source=", indirect transpose constraints",
        broken_by={**GATHERED, "src.shape": (16, 2, 2, 16), "dst.shape": (16, 2, 2, 16)},
        chips=("trn2", "trn3"),
    )
    def gathered_blocks_have_three_axes(self) -> bool:
        return not self.src.is_gathered or len(self.src.shape) != 4 or 1 in self.src.shape[1:3]

    @rule(
        "the indices are no two-dimensional uint32 tile of 16 to 128 partitions, a multiple of 16; with more "
        "than one column, of 128 partitions",
        source=", indirect transpose constraints",
        broken_by={**GATHERED, "src.index": Tile((16, 1), "int32")},
        chips=("trn2", "trn3"),
    )
    def indices_have_the_right_form(self) -> bool:
        if not self.src.is_gathered:
            return True
        (index, *others) = self.src.indices
        index_layout = index.layout
        rows, *columns = index_layout.shape
        fits = 16 <= rows <= 128 and rows % 16 == 0 and (prod(columns) == 1 or rows == 128)
        return not others and fits and len(columns) == 1 and index_layout.dtype.name == "uint32"

    hardware_descriptors_exist = DmaCopy.hardware_descriptors_exist

    @rule(
        "dge_mode is hwdge and an element has not two bytes", source=", direct transpose constraints",
        broken_by={"dge_mode": "hwdge"}, chips=("trn2", "trn3"),
    )  # fmt: skip
    def hardware_moves_two_bytes(self) -> bool:
        return self.dge_mode != "hwdge" or self.src.itemsize == 2

    @rule(
        "dge_mode is hwdge and the first axis of a two-dimensional src is not 16",
        source=", direct transpose constraints",
        broken_by={"dge_mode": "hwdge", "src.dtype": "bfloat16", "dst.dtype": "bfloat16",
                   "src.shape": (32, 16), "dst.shape": (16, 32)},
        chips=("trn2", "trn3"),
    )  # fmt: skip
    def hardware_takes_sixteen_rows(self) -> bool:
        return self.dge_mode != "hwdge" or len(self.src.shape) != 2 or self.src.shape[0] == 16

    @rule(
        "dge_mode is hwdge and the first axis of src is not 1, 2, 4, 8 or 16, or its product with the last "
        "axis but one is no multiple of 16",
        source=", direct transpose constraints",
        broken_by={"dge_mode": "hwdge", "src.dtype": "bfloat16", "dst.dtype": "bfloat16",
                   "src.shape": (2, 4, 16), "dst.shape": (16, 4, 2)},
        chips=("trn2", "trn3"),
    )  # fmt: skip
    def hardware_takes_blocks_of_sixteen(self) -> bool:
        shape = self.src.shape
        if self.dge_mode != "hwdge" or len(shape) == 2:
            return True
        return shape[0] in (1, 2, 4, 8, 16) and shape[0] * shape[-2] % 16 == 0

    @classmethod
    def fresh(cls, layouts: Mapping[str, Any], attributes: Mapping[str, Any]) -> Fresh:
        """src with its axes permuted, in SBUF."""
        src: Layout = layouts["src"]
        order = PERMUTATIONS.get(len(src.shape), tuple(range(len(src.shape))))
        return Fresh(tuple(src.shape[a] for a in order), src.dtype, SBUF)

    def where_read(self, is_written: Any) -> Any:
        """The same positions with their axes permuted."""
        return is_written.transpose(PERMUTATIONS[is_written.ndim])

    def compute(self, dst: Any, src: Any) -> None:
        # a copy first: dst may be a view of the tile that src reads
        dst[...] = src.transpose(PERMUTATIONS[src.ndim]).copy()

    def cost(self) -> list[Step]:
        # assumed: a descriptor per row of src. The trn2 guide gives rates only: up to 90 % of a copy's from
        # HBM, up to 50 % within SBUF, less where dst is not [128, 16] at a time
        run = min(contiguous_run(self.src), max(1, self.src.shape[-1]))
        count = max(1, self.src.size // run)
        width = run * self.src.itemsize
        return [Step("dma", "DMA_TRANSPOSE", descriptors=count, descriptor_bytes=width, widening=2)]


class DmaCompute(Instruction):
    """Add tiles while moving them, in float32, rounded once: dst = srcs[0] + srcs[1] + ...

    Scales, where they are given, are all 1. Indices may choose the rows of dst (a scatter with addition,
    where dst is also a source) or of a source (a gather).
    """

    engines = ("dma",)
    dst = Out("*", ("hbm", "sbuf"), rows=True)
    srcs = Several("*", ("hbm", "sbuf"), most=16, rows=True)
    reduce_op = Spelled(operator_named, "add")
    scales = Spelled(_scales, "None or a list of 1.0", None)
    unique_indices = Flag(True)
    oob_mode = Attr("error", ("error", "skip"))
    example = Example(
        {"srcs[0]": [[1, 2]], "srcs[1]": [[10, -20]]}, {"dst": [[11, -18]]}, {"reduce_op": "add"}
    )

    @rule(
        "reduce_op is not add; a transfer can only add",
        source=", reduce_op",
        broken_by={"reduce_op": "maximum"},
    )
    def only_addition(self) -> bool:
        return self.reduce_op.name == "add"

    @rule("scales does not hold one number for each of srcs", source=", scales", broken_by={"scales": (1.0,)})
    def scales_are_as_many(self) -> bool:
        return self.scales is None or len(self.scales) == len(self.srcs)

    @rule(
        "scales holds a number that is not 1.0", source=", scales", broken_by={"scales": (1.0, 0.5)},
        hint="scale the tile with tensor_scalar first",
    )  # fmt: skip
    def scales_are_one(self) -> bool:
        return self.scales is None or all(s == 1 for s in self.scales)

    @rule(
        "dst and one of srcs hold different numbers of elements",
        source=", tile size",
        broken_by={"srcs[1].shape": (16, 5)},
    )
    def same_number_of_elements(self) -> bool:
        return all(source.size == self.dst.size for source in self.srcs)

    @rule(
        "indices choose rows, and srcs does not hold two tiles",
        source=", indirect addressing",
        broken_by={"srcs[0].memory": "hbm", "srcs[0].index": Tile((16, 1), "int32"), "srcs[2]": (16, 16)},
    )
    def gathering_adds_two(self) -> bool:
        is_gathered = any(source.is_gathered for source in (self.dst, *self.srcs))
        return not is_gathered or len(self.srcs) == 2

    indices_do_not_repeat = replace(DmaCopy.indices_do_not_repeat, source=", unique_indices")

    def compute(self, dst: Any, *srcs: Any) -> None:
        total = widen(srcs[0].reshape(dst.shape), self.srcs[0].dtype)
        for tile, known in zip(srcs[1:], self.srcs[1:], strict=True):
            total = total + widen(tile.reshape(dst.shape), known.dtype)
        store(dst, total, self.dst.dtype)

    def cost(self) -> list[Step]:
        # assumed: each source is a transfer of its own; trn3 guide: half the rate of a copy before trn3
        widening = 2 if self.machine.generation < 4 else 1.5
        return [transfer_step(self.dst, s, label="DMA_COMPUTE", widening=widening) for s in self.srcs]
