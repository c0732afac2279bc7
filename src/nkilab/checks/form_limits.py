"""Limits of instructions that builds and public notes of builds tell, and pages not at all or in passing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..tiles.tile import HBM, PSUM, Layout
from ..trace.program import StorageRecord
from .declare import Example, Refusal, rule
from .evidence import Evidence
from .finding import Finding, Site
from .operand_forms import TRANSFERS, Form, looks, looks_at_values
from .scope import version_compiled

_HEAD = """
tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
nisa.dma_copy(tile, x)
{}
nisa.dma_copy(out, tile)
return out
"""
_X = {"x": "f32[128,512]"}
_LEARNINGS = "nki-autotune, learnings, trn2"


def _nki(*lines: str, options: tuple[str, ...] = ()) -> Example:
    return Example(_HEAD.format("\n".join(lines)), _X, options=options)


def _tile(name: str, shape: str, dtype: str = "float32", buffer: str = "sbuf") -> str:
    return f"{name} = nl.ndarray({shape}, nl.{dtype}, buffer=nl.{buffer})"


_SUMMED = "nisa.tensor_partition_reduce(total, op=nl.add, data=part)"
PARTITION_SUM = rule(
    "partition-reduce-integer", "compiler", Refusal("report", "NCC_IXCG864", "ISA check failed"),
    title="sums over partitions are of floats",
    what="tensor_partition_reduce is given integers",
    why="GpSimdE has no such sum: it runs in simulation, and the build fails",
    fix="copy the integers into a float32 tile first",
    source="a back end of Helion, notes of its lowering, trn2",
    wrong=_nki(_tile("part", "(128, 4)", "int32"), _tile("total", "(1, 4)", "int32"), "nisa.memset(part, 1)",
               _SUMMED),
    right=_nki(_tile("part", "(128, 4)"), _tile("total", "(1, 4)"), "nisa.memset(part, 1.0)", _SUMMED),
)  # fmt: skip


@looks("nki", PARTITION_SUM, "tensor_partition_reduce")
def _partition_sum(form: Form) -> str:
    return f"data is {form.data.dtype.name}; it is a float" if form.data.dtype.is_integer else ""


_SELECT = "nisa.affine_select(chosen, [{}], 1, part, 0.0)"
SELECT_AXES = rule(
    "affine-select-axes", "compiler", Refusal("report", "NCC_INLA001", "Expected 2D tensor but got 4D AP"),
    title="affine_select writes tiles of at most three axes",
    what="dst of affine_select has four axes or more",
    why="the back end has no access pattern of so many axes for it",
    fix="select per index of an outer axis, or reshape the tile to three axes",
    source=_LEARNINGS,
    wrong=_nki(_tile("part", "(128, 2, 2, 2)"), _tile("chosen", "(128, 2, 2, 2)"), "nisa.memset(part, 1.0)",
               _SELECT.format("[4, 2], [2, 2], [1, 2]")),
    right=_nki(_tile("part", "(128, 8)"), _tile("chosen", "(128, 8)"), "nisa.memset(part, 1.0)",
               _SELECT.format("[1, 8]")),
)  # fmt: skip


@looks("nki", SELECT_AXES, "affine_select")
def _select_axes(form: Form) -> str:
    axes = len(form.dst.shape)
    return f"dst has {axes} axes; three are taken" if axes > 3 else ""


PSUM_FILL = rule(
    "psum-memset-type", "compiler", Refusal("report", "NCC_IBIR441"),
    title="memset fills float32 tiles of psum",
    what="memset fills a tile in psum that is not float32",
    why="a bank is filled word by word; tiles of 16 bits in psum are for transposes, which overwrite them",
    fix="leave the memset out, or make the tile float32",
    source=_LEARNINGS,
    wrong=_nki(_tile("total", "(128, 512)", "bfloat16", "psum"), "nisa.memset(total, 0.0)"),
    right=_nki(_tile("total", "(128, 512)", "float32", "psum"), "nisa.memset(total, 0.0)"),
)  # fmt: skip


@looks("nki", PSUM_FILL, "memset", called="isa.memset")
def _psum_fill(form: Form) -> str:
    if form.dst.memory != PSUM or form.dst.dtype.name == "float32":
        return ""
    return f"dst is {form.dst.dtype.name} in psum; it is float32"


FILL_TYPE = rule(
    "memset-type", "compiler", Refusal("documented", since="0.3"),
    title="memset fills integers with integers",
    what="memset is given a float for a tile of integers",
    why="from NKI 0.3 on the value is of the tile's type; NKI 0.2 cast it",
    fix="write a whole number",
    source="NKI 0.3 update guide, nisa.memset, strict type matching",
    wrong=_nki(_tile("counts", "(128, 4)", "int32"), "nisa.memset(counts, 2.0)"),
    right=_nki(_tile("counts", "(128, 4)", "int32"), "nisa.memset(counts, 2)"),
)  # fmt: skip


@looks_at_values("nki", FILL_TYPE, "memset", called="isa.memset")
def _fill_type(form: Form, values: tuple[Any, ...]) -> str:
    is_wrong = isinstance(values[0], float) and form.dst.dtype.is_integer
    return f"value is {values[0]!r}, and dst is {form.dst.dtype.name}" if is_wrong else ""


FOLD = rule(
    "dma-fold", "compiler",
    Refusal("log", build_error="cannot align DMA operands: source has A elements but destination has B"),
    title="transfers on chip keep elements to their partitions",
    what="src and dst of dma_copy are both on chip, and have different numbers of elements per partition",
    why="the front end pairs partitions: a row is not folded over several, nor are several laid into one",
    fix="store to hbm and load from there in the other shape",
    source="device logs of public kernels, NKI 0.6; nki-moe-megakernel, findings",
    wrong=_nki(_tile("rows", "(4, 128)"), "nisa.dma_copy(rows, tile[0:1, :])"),
    right=_nki(_tile("rows", "(1, 512)"), "nisa.dma_copy(rows, tile[0:1, :])"),
)  # fmt: skip


@looks("nki", FOLD, "dma_copy")
def _fold(form: Form) -> str:
    src, dst = form.src, form.dst
    if HBM in (src.memory, dst.memory) or src.indices or dst.indices or src.free_size == dst.free_size:
        return ""
    return f"src has {src.free_size} elements per partition, dst {dst.free_size}"


STEP = rule(
    "partition-step", "compiler", Refusal("report", "NCC_IBIR158", "illegal access pattern"),
    title="operands on chip are partitions in a row",
    what="an operand in sbuf or psum leaves out partitions, as tile[::2] does",
    why="an access pattern on chip begins at a partition and goes on with the next ones",
    fix="lay what belongs together into partitions in a row, as the transfer that loads it can",
    source="nki-moe-megakernel, common pitfalls",
    wrong=_nki("nisa.tensor_scalar(tile[::2], tile[::2], op0=nl.multiply, operand0=2.0)"),
    right=_nki("nisa.tensor_scalar(tile[0:64], tile[0:64], op0=nl.multiply, operand0=2.0)"),
)  # fmt: skip


def find(evidence: Evidence) -> Iterator[Finding]:
    """Operands on chip that leave out partitions, once per line."""
    version, generation = version_compiled(evidence.kernel), evidence.generation
    if (
        evidence.kernel.spelling != "nki"
        or STEP.refusal is None
        or not STEP.refusal.applies(version, generation)
    ):
        return
    seen: set[Site] = set()
    for track in evidence.tracks:
        slots = track.slots
        pairs = np.unique(np.stack([slots.layout, slots.kinds.of_storage[slots.storage]]), axis=1)
        wrong = [
            pair for pair in pairs.T.tolist() if _skips(slots.layouts[pair[0]], slots.kinds.samples[pair[1]])
        ]
        for number, kind in wrong:
            here = (slots.layout == number) & (slots.kinds.of_storage[slots.storage] == kind)
            for row in np.unique(slots.row[here]).tolist():
                site = track.site(row)
                if site not in seen:
                    seen.add(site)
                    yield STEP.finding(
                        f"{track.called(row)} reads or writes a tile that leaves out partitions", site
                    )


def _skips(layout: Layout, record: StorageRecord) -> bool:
    """Whether the partitions of a view are not those that lie side by side."""
    axis = layout.partition_axis
    if layout.memory == HBM or layout.indices or axis is None or layout.shape[axis] == 1:
        return False
    return layout.byte_strides[axis] > record.bytes_per_partition


UNARY = rule(
    "unary-operand", "compiler", Refusal("documented", since="0.3"),
    title="an operator of one input has no operand",
    what="tensor_scalar is given an operand other than 0 for an operator that takes one input",
    why="the instruction has nowhere to put it",
    fix="pass None or 0",
    source="nki.isa.tensor_scalar, operand0",
    wrong=_nki("nisa.tensor_scalar(tile, tile, op0=nl.abs, operand0=2.0)"),
    right=_nki("nisa.tensor_scalar(tile, tile, op0=nl.abs, operand0=0.0)"),
)  # fmt: skip


@looks_at_values("nki", UNARY, "tensor_scalar")
def _unary(form: Form, values: tuple[Any, ...]) -> str:
    numbers = iter(values)
    for op, operand in ((form.op0, form.operand0), (form.op1, form.operand1)):
        is_tile = isinstance(operand, Layout)
        number = None if is_tile or operand is None else next(numbers)
        if op is not None and op.is_unary and (is_tile or number):
            return f"{op.name} takes one input, and its operand is {'a tile' if is_tile else number}"
    return ""


SCALAR_COPY = rule(
    "scalar-engine-copy", "compiler", Refusal("documented", since="0.3", generations=(2,)),
    title="on trn1 ScalarE copies by nisa.activation",
    what="tensor_copy is given engine=scalar on trn1",
    why="ScalarE of the second generation has no such instruction",
    fix="use nisa.activation(op=nl.copy), or VectorE",
    source="nki.isa.tensor_copy",
    wrong=_nki("nisa.tensor_copy(tile, tile, engine=nisa.engine.scalar)", options=("--target", "trn1")),
    right=_nki("nisa.tensor_copy(tile, tile, engine=nisa.engine.vector)", options=("--target", "trn1")),
)  # fmt: skip


@looks("nki", SCALAR_COPY, "tensor_copy")
def _scalar_copy(form: Form) -> str:
    return "ScalarE of trn1 has no tensor_copy" if form.engine == "scalar" else ""


# What documents say of the number of axes: instruction, operand, most of them.
_MOST_AXES = {
    "max8": {"src": 3}, "nc_find_index8": {"data": 3, "vals": 3}, "exponential": {"src": 4, "dst": 4},
}  # fmt: skip
_VIEW = 5
AXES = rule(
    "operand-axes", "compiler", Refusal("documented", since="0.3"),
    title="operands have as many axes as an access pattern",
    what=f"an operand on chip has more than {_VIEW} axes, or more than its instruction takes: 3 of max8 and "
    "nc_find_index8, 4 of exponential",
    why="an access pattern has at most five dimensions, some instructions less",
    fix="reshape the tile, so that axes that lie side by side are one",
    source="NKI language guide, tensor values; pages of the instructions",
    wrong=_nki(_tile("part", "(128, 2, 2, 8)"), _tile("most", "(128, 8)"), "nisa.memset(part, 1.0)",
               "nisa.max8(most, part)"),
    right=_nki(_tile("part", "(128, 4, 8)"), _tile("most", "(128, 8)"), "nisa.memset(part, 1.0)",
               "nisa.max8(most, part)"),
)  # fmt: skip


@looks("nki", AXES)
def _axes(form: Form) -> str:
    limits = _MOST_AXES.get(form.name, {})
    for name, _, layout in form.tile_slots():
        most = limits.get(name, _VIEW)
        if layout.memory != HBM and len(layout.shape) > most:
            return f"{name} has {len(layout.shape)} axes; {most} are taken"
    return ""


NO_RESULT = rule(
    "reduce-result", "compiler", Refusal("documented", since="0.3", until="0.5"),
    title="before NKI 0.6 tensor_scalar_reduce gives its sum",
    what="reduce_res of tensor_scalar_reduce is None",
    why="NKI 0.6 is the first that leaves it out",
    fix="pass a tile [P, 1]",
    source="NKI 0.6 release notes, new features",
    wrong=None,
    right=None,
)  # fmt: skip


@looks("nki", NO_RESULT, "tensor_scalar_reduce")
def _no_result(form: Form) -> str:
    return "" if isinstance(form.reduce_res, Layout) else "reduce_res is None"


WITHIN = rule(
    "dma-within-sbuf", "compiler",
    Refusal("disputed", "", "dma_copy source and destination cannot both be in SBUF", "0.4", "0.4"),
    title="in NKI 0.4 transfers have an end in hbm",
    what="src and dst of dma_copy are both in sbuf",
    why="one log of a build of NKI 0.4 refuses it; the pages of every version allow it",
    fix="if the build refuses it, use nisa.tensor_copy",
    source="a log on trn2, SDK 2.30; against it nki.isa.dma_copy",
    wrong=None,
    right=None,
)  # fmt: skip


@looks("nki", WITHIN, *TRANSFERS[:1])
def _within(form: Form) -> str:
    return "" if HBM in (form.src.memory, form.dst.memory) else "both ends are in sbuf"
