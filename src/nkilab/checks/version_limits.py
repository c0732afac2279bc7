"""Limits of instructions that one version or chip has, a row each, with what breaks and what keeps them."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ..tiles.tile import HBM, SBUF, IndexLayout, Layout
from .declare import COPIED, Example, Refusal
from .operand_forms import TRANSFERS, Form, form_rule, operators_of


def _dynamic_on_chip(form: Form) -> str:
    slots = () if form.name.startswith("tensor_copy_dynamic") else form.tile_slots()
    return next((f"{name} is in {layout.memory} at a run-time offset" for name, _, layout in slots
                 if layout.indices and layout.memory != HBM), "")  # fmt: skip


def _quarter(form: Form) -> str:
    part, dst = form.stationary, form.dst
    starts = (part.start_partition, dst.start_partition)
    is_small = part.partitions <= 32 and part.free_size <= 32
    return f"its parts begin at {starts[0]} and {starts[1]}" if is_small and {*starts} & {32, 96} else ""


def _indexed_by(form: Form, look: Callable[[IndexLayout], bool]) -> tuple[str, IndexLayout] | None:
    """The first operand with a run-time index of which something holds, and the index."""
    pairs = ((name, index) for name, _, layout in form.tile_slots() for index in layout.indices)
    return next((pair for pair in pairs if look(pair[1])), None)


def _offsets(form: Form) -> str:
    odd = _indexed_by(form, lambda i: i.is_vector and i.layout.free_size + i.layout.start_partition > 1)
    if odd is None:
        return ""
    source = odd[1].layout
    return f"{odd[0]} has {source.free_size} offsets per partition, from {source.start_partition} on"


def _axes_of_hbm(form: Form) -> str:
    sides = sorted((form.src, form.dst), key=lambda side: len(side.shape))
    is_row = len(sides[0].shape) == 1 < len(sides[1].shape) and sides[0].memory == HBM
    return f"one side has one axis, the other {len(sides[1].shape)}" if is_row else ""


NOTES = "release notes"
# Rules: identifier, refusal, instructions, title, what, why, fix, source, look.
_ROWS: tuple[tuple[str, Refusal, tuple[str, ...], str, str, str, str, str, Callable[..., str]], ...] = (
    ("matmul-columns", Refusal("documented", until="0.4", generations=(4,)), ("nc_matmul",),
     "before NKI 0.5 a product has at most 4096 columns",
     "moving of nc_matmul has more than 4096 elements per partition",
     "NKI 0.5 is the first that takes 8192 for a dst of 16 bits",
     "split the free axis of moving, or use NKI 0.5", f"NKI 0.5 {NOTES}, new features",
     lambda f: f"moving has {f.moving.free_size} columns" if f.moving.free_size > 4096 else ""),
    ("sendrecv-rows", Refusal("documented", until="0.3"), ("sendrecv",),
     "before NKI 0.4 sendrecv moves partitions by sixteens",
     "src and dst of sendrecv have a number of partitions that is no multiple of 16",
     "NKI 0.4 is the first that lifts the restriction", "send 16, 32, ... partitions",
     f"NKI 0.4 {NOTES}, improvements",
     lambda f: f"src has {f.src.partitions} partitions" if f.src.partitions % 16 else ""),
    ("hwdge-transpose", Refusal("documented", since="0.3", until="0.5"), ("dma_transpose",),
     "before NKI 0.6 hardware transposes 16 rows of 128",
     "dma_transpose with dge_mode.hwdge has a source whose first axis is not 16 or whose last is not 128",
     "NKI 0.6 is the first that takes 1, 2, 4 or 8 rows, and fewer than 128 elements",
     "pad the source, or leave dge_mode out", f"NKI 0.6 {NOTES}, DmaTranspose relaxations",
     lambda f: f"the axes of src are {f.src.shape[0]} to {f.src.shape[-1]} elements"
     if f.dge_mode == "hwdge" and (f.src.shape[0], f.src.shape[-1]) != (16, 128) else ""),
    ("dma-transpose-rank",
     Refusal("log", build_error="source tensor must have 4 dimmensions", since="0.2", until="0.2"),
     ("dma_transpose",), "in NKI 0.2 dma_transpose takes four axes",
     "the source of dma_transpose has fewer axes than four",
     "the documents allow two to four; the compiler of 0.2 takes four alone",
     "reshape the source to four axes, (rows, 1, 1, columns), or use nisa.nc_transpose",
     "aws-neuron-sdk issue 1301",
     lambda f: f"src has {len(f.src.shape)} axes; four are taken" if len(f.src.shape) != 4 else ""),
    ("dynamic-on-chip",
     Refusal("report", "NCC_INLA001", "Dynamic Access is not allowed in the instruction", until="0.2"), (),
     "a run-time offset is into hbm",
     "an instruction other than a transfer reads or writes sbuf or psum at a run-time offset",
     "the compilers of NKI 0.1 and 0.2 know all addresses on the chip; 0.3 has tensor_copy of such an .ap",
     "load what is wanted from hbm by dma_copy with the offset, or use tensor_copy_dynamic_src",
     "nki-moe-megakernel, common pitfalls; NKI 0.3 release notes", _dynamic_on_chip),
    ("dynamic-compute",
     Refusal("log", "NCC_IBIR829", "Requested Argument index 1 out of bounds", "0.6", "0.6", (2,)), (),
     "on trn1 transfers alone have run-time offsets",
     "an instruction other than a transfer reads or writes sbuf or psum at a run-time offset, on trn1",
     "its engines know their addresses beforehand; nc_matmul ends with NCC_IBIR040",
     "load what is wanted from hbm by dma_copy with the offset",
     "public kernels of a mixture of experts, and their probe, NKI 0.6 on trn1", _dynamic_on_chip),
    ("indirect-transpose-columns", Refusal("documented", since="0.2", until="0.3"), ("dma_transpose",),
     "before NKI 0.4 indirect transposes read rows of 128",
     "src of dma_transpose has a run-time index, and its last axis is not 128",
     "NKI 0.4 is the first that takes fewer elements", "pad the rows to 128 elements, or use NKI 0.4",
     f"NKI 0.4 {NOTES}, improvements", lambda f: f"rows of src have {f.src.shape[-1]} elements"
     if f.src.indices and f.src.shape[-1] != 128 else ""),
    ("transpose-offset", Refusal("report", until="0.3"), ("dma_transpose",),
     "before NKI 0.4 no transposing transfer has a run-time offset",
     "an operand of dma_transpose is at a scalar_offset that the run knows",
     "the descriptors of these transfers hold addresses that are known beforehand",
     "load the part by dma_copy with the offset, and use nisa.nc_transpose",
     "nki-library, comments where it loads biases and routes of experts",
     lambda f: f"{pair[0]} is at a run-time offset"
     if (pair := _indexed_by(f, lambda index: not index.is_vector)) else ""),
    ("offset-columns", Refusal("report", "NCC_EBIR026", since="0.2"), ("dma_copy", "dma_compute"),
     "rows are chosen by one offset per partition, from partition 0 on",
     "vector_offset of dma_copy or dma_compute has more columns than one, or begins at another partition",
     "the generator of descriptors reads one offset of each partition, from 0 on",
     "pass one column at a time, offsets[:, i:i + 1], or copy the part to a tile of its own by dma_copy",
     "nki.language, vector_select; nki-library, scatter of router_topk; a port of a video model to trn2",
     _offsets),
    ("transfer-axes", Refusal("log", "", "DMA Copy actual in/out dimensions must match", until="0.2"),
     TRANSFERS[:1], "up to NKI 0.2 both sides of a transfer have an axis of partitions",
     "dma_copy goes between a tensor of one axis in hbm and one of several",
     "the compiler of 0.2 compares the numbers of axes", "reshape the tensor to (1, N) or (N, 1)",
     "notes of a kernel compiler's backend for NKI, trn1", _axes_of_hbm),
    ("product-tfloat32",
     Refusal("log", "", "'stationary' must be a float type, got '!nisa.float32r'", "0.6", "0.6"),
     ("nc_matmul",), "products are of other types than tfloat32",
     "stationary or moving of nc_matmul is tfloat32, in NKI 0.6",
     "the page of nc_matmul lists the type, and its verifier does not know it", "use float32 or bfloat16",
     "kernels of attention with their builds, NKI 0.6 and neuronx-cc 2.27",
     lambda f: next((f"{n} is tfloat32" for n in ("stationary", "moving")
                     if getattr(f, n).dtype.name == "tfloat32"), "")),
    ("range-select-command", Refusal("documented", until="0.2", milder="warning"), ("range_select",),
     "before NKI 0.3 range_select begins its maximum again",
     "range_select is given a reduce_cmd other than reset_reduce",
     "the compiler ignores it: the result is the maximum of this call alone, without a word",
     "take the maximum of the two results by tensor_tensor", f"NKI 0.2 {NOTES}, known issues",
     lambda f: f"reduce_cmd is {f.reduce_cmd}" if f.reduce_cmd != "reset_reduce" else ""),
    ("transpose-line", Refusal("report", since="0.6", until="0.6"), ("dma_transpose",),
     "a transfer that transposes writes whole lines of sbuf",
     "a partition of the tile that dma_transpose writes is no multiple of 32 bytes",
     "the compiler's verifier refuses the step from row to row",
     "make the tile wider, and write a slice of it",
     "tests of vLLM's kernels for trn2, rules of the backend's verifier",
     lambda f: f"a row of dst is {f.dst.byte_strides[0]} bytes"
     if f.dst.memory == SBUF and f.dst.byte_strides[0] % 32 else ""),
    ("transpose-within-sbuf",
     Refusal("log", "NCC_INLA001", "transpose only supported for HBM->SB", "0.2", generations=(2,)),
     ("dma_transpose",), "on trn1 transfers transpose what lies in hbm", "dma_transpose on trn1 reads sbuf",
     "the compiler has no such transfer for trn1", "use nisa.nc_transpose, then nisa.tensor_copy",
     "a port of attention_cte to trn1, NKI 0.2; a port of Qwen3-VL to trn1, neuronx-cc 2.24",
     lambda f: "src is in sbuf" if f.src.memory == SBUF else ""),
    ("indirect-transpose-skip", Refusal("report", since="0.6", until="0.6", milder="note"),
     ("dma_transpose",), "transposes of chosen rows skip nothing",
     "dma_transpose of rows that a tile chooses is given oob_mode.skip",
     "where some rows of a group are skipped and others not, the transfer is broken off on the chip",
     "clamp the indices to the tensor, and mask the rows behind", "aws-neuron-sdk issue 1390, trn2 and trn3",
     lambda f: "oob_mode is skip" if f.oob_mode == "skip" and f.src.indices else ""),
    ("transpose-bytes", Refusal("documented", generations=(3,), milder="note"), ("nc_transpose",),
     "TensorE of trn2 transposes elements of 8 bits into 16",
     "nc_transpose of a tile of 8 bits runs on TensorE of trn2",
     "an element comes out with 8 bits of zeros above it, which the page of nc_transpose does not say",
     "cast the tile to bfloat16 first", "Trainium2 architecture guide, transpose mode; nki-library",
     lambda f: f"data is {f.data.dtype.name}" if f.runs_on == "tensor" and f.data.itemsize == 1 else ""),
    ("tensor-quarter", Refusal("disputed", "NCC_IBIR058", "does not support PE tile size 32x32", "0.6",
                               generations=(2,)),
     ("nc_matmul",), "on trn1 products of 32 rows and columns lie on halves",
     "stationary of nc_matmul is at most 32 partitions and columns, and it or dst begins at 32 or 96",
     "TensorE of trn1 has halves and no quarters, and the compiler made a quarter of it in one report",
     "multiply 64 columns at once, or begin at 0 or 64", "kernels of a mixture of experts on trn1", _quarter),
    *((name, Refusal("documented", "", "unsupported operator", until=last),
       ("tensor_scalar", "tensor_tensor", "tensor_scalar_reduce"),
       f"up to NKI {last} no operator is {' or '.join(words)}",
       f"tensor_scalar, tensor_scalar_reduce or tensor_tensor is given {' or '.join(words)}",
       "the table of operators of these versions lacks them", "use nisa.activation, or a later NKI", source,
       lambda f, words=words: next((f"the operator is {n}" for n in operators_of(f) if n in words), ""))
      for name, last, words, source in (
          ("early-operators", "0.1", ("abs", "rsqrt", "power"), f"NKI 0.2 {NOTES}, bug fixes"),
          ("unary-operators", "0.3", ("square", "relu"), f"NKI 0.4 {NOTES}, new opcodes of tensor_scalar"))),
    ("dma-dynamic-on-chip", Refusal("report", "", "Segmentation fault", "0.3", "0.5"), TRANSFERS[:1],
     "transfers read sbuf at places that are known", "dma_copy reads sbuf at a run-time offset",
     "the compiler ends without a message: it has no descriptor of an address on the chip that moves",
     "use nisa.tensor_copy with .ap and scalar_offset, or copy by a static slice",
     "aws-neuron-sdk issue 1373, trn2",
     lambda f: "src is in sbuf at a run-time offset" if f.src.memory == SBUF and f.src.indices else ""),
    ("integers-on-vector", Refusal("documented", since="0.3", until="0.6", milder="note"),
     ("tensor_tensor",), "integers of 32 bits are added by GpSimdE",
     "tensor_tensor adds, subtracts or multiplies 32-bit integers with engine=vector",
     "VectorE casts to float32, and integers above 2^24 are rounded, without a word",
     "leave engine out, so that GpSimdE computes with 32 bits",
     "nki.isa.tensor_tensor, int32 and uint32 types",
     lambda f: f"data1 is {f.data1.dtype.name}" if f.engine == "vector" and not f.op.is_bitvec
     and f.data1.dtype.is_integer and f.data1.itemsize == 4 else ""),
    ("integer-casts", Refusal("documented", since="0.3", until="0.5", milder="note"), ("tensor_copy",),
     "the chip rounds where it casts to integers", "tensor_copy casts floats to integers before NKI 0.6",
     "the chip rounds to the nearest, ties to even, and saturates; nki.simulate before 0.6 cuts off",
     "compare with results of the chip, or of NKI 0.6", f"NKI 0.6 {NOTES}, bug fixes",
     lambda f: f"{f.src.dtype.name} becomes {f.dst.dtype.name}"
     if f.dst.dtype.is_integer and not f.src.dtype.is_integer else ""),
    ("found-places", Refusal("documented", since="0.3", until="0.5", milder="note"),
     ("nc_find_index8", "nc_match_replace8"), "places of equal values are found as the chip finds them",
     "nc_find_index8 or nc_match_replace8 runs in NKI 0.3 to 0.5",
     "of equal values the chip takes the last first, and gives all ones for one that is not there; "
     "nki.simulate before 0.6 takes the first, and gives 0",
     "compare with results of the chip, or of NKI 0.6", f"NKI 0.6 {NOTES}, bug fixes",
     lambda f: "the simulator of this version finds other places"),
    ("range-select-rounds", Refusal("documented", since="0.3", until="0.6", milder="note"),
     ("range_select",), "the largest of a row that is left out stays finite",
     "reduce_res of range_select has 16 bits",
     "the least float32, which stands for what is left out, is rounded to -inf: for a row of which nothing "
     "is chosen, -inf minus -inf is nan",
     "make reduce_res float32", "nki.isa.range_select, note on numerical stability",
     lambda f: f"reduce_res is {f.reduce_res.dtype.name}"
     if isinstance(f.reduce_res, Layout) and f.reduce_res.itemsize == 2 else ""),
    ("priority-descriptors", Refusal("documented", since="0.4", until="0.4"), TRANSFERS[:1],
     "in NKI 0.4 transfers with a priority have descriptors made as they run",
     "dma_copy is given priority= and dge_mode.none", "descriptors in memory carry no priority there",
     "leave dge_mode out", "nki.isa.dma_copy of NKI 0.4, priority",
     lambda f: "dge_mode is none" if f.priority is not None and f.dge_mode == "none" else ""),
    ("gpsimd-sum", Refusal("disputed", "NCC_IXCG965", generations=(2,)), ("tensor_tensor",),
     "on trn1 VectorE computes with two tiles", "tensor_tensor is given engine=gpsimd on trn1",
     "one report has the build of a sum of two tiles refused there; the page of the instruction allows it",
     "if the build refuses it, use nisa.engine.vector",
     "a kernel of the gated delta rule, NKI 0.6; against it nki.isa.tensor_tensor",
     lambda f: "the engine is gpsimd" if f.engine == "gpsimd" and not f.data1.dtype.is_integer else ""),
)  # fmt: skip
WHOLE = "tiles: whole i32[128,512] sbuf\nnisa.memset(whole, 1)\n"
_ADDED = "nisa.tensor_tensor({0}, {0}, {0}, op=nl.add, engine=nisa.engine.{{}})"
_RESET = "nisa.reduce_cmd.reset_reduce"
_CHOSEN = Example(
    "tiles: index i32[1,1] sbuf < at; tile f32[128,512] sbuf < x; part f32[128,1] sbuf\n"
    "tiles: out f32[128,1] hbm < part\n"
    "nisa.{}.ap([[512, 128], [1, 1]], scalar_offset=index, indirect_dim=1))",
    {**COPIED.args, "at": "i32[1,1]"},
)
_READ, _LOADED = "tensor_copy(part, tile", "dma_copy(part, x"
_RANGE = "nisa.range_select(chosen, tile, nl.greater_equal, nl.less, low, high, {1}, top)\n"
_SELECTED = (
    "tiles: low f32[128,1] sbuf; high f32[128,1] sbuf; tile f32[128,512] sbuf < x; chosen f32[128,512] sbuf\n"
    "tiles: top {0}[128,1] sbuf; out {0}[128,1] hbm < top\nnisa.memset(low, 0.0)\nnisa.memset(high, 100.0)\n"
    + _RANGE
)
_PLACES = Example(
    "tiles: tile f32[128,512] sbuf < x; most f32[128,8] sbuf; places u32[128,8] sbuf\n"
    "tiles: out u32[128,8] hbm < places\nnisa.max8(most, tile)\nnisa.nc_find_index8(places, tile, most)",
    COPIED.args,
)
_TRANSPOSED = {"x": "bf16[128,128]", "y": "bf16[16,4,128]", "chosen": "u32[16,1]"}


def _rows_of(columns: str, more: str = "") -> Example:
    """A transpose of rows that a tile chooses."""
    return Example(
        f"tiles: rows u32[16,1] sbuf < chosen; tile bf16[{columns},1,1,16] sbuf\nnisa.memset(tile, 0.0)\n"
        f"tiles: out bf16[{columns},1,1,16] hbm < tile\n"
        f"part = x.ap([[128, 16], [1, 1], [1, 1], [1, {columns}]], vector_offset=rows, indirect_dim=0)\n"
        f"nisa.dma_transpose(tile, part{more})", _TRANSPOSED)  # fmt: skip


# Of these rows: a kernel, or lines of one; what breaks it there, what keeps it, and on which chip.
_SHOWN: dict[str, tuple[Example | str, Example | str, Example | str, str]] = {
    "matmul-columns": (Example(
        "tiles: left bf16[128,128] sbuf < a; right bf16[128,{0}] sbuf < b[:, 0:{0}]\n"
        "tiles: total bf16[128,{0}] psum; out bf16[128,{0}] hbm < right\n"
        "nisa.nc_matmul(total, left, right)\nnisa.tensor_copy(right, total)",
        {"a": "bf16[128,128]", "b": "bf16[128,8192]"}), "8192", "4096", "trn3"),
    "sendrecv-rows": (Example(
        "tiles: sent f32[{0},512] sbuf < x[0:{0}]; received f32[{0},512] sbuf; out f32[2,{0},512] hbm\n"
        "other = 1 - nl.program_id(0)\nnisa.sendrecv(sent, received, other, other, 0)\n"
        "nisa.dma_copy(out[1 - other], received)", COPIED.args, grid="2"), "40", "48", "trn2"),
    "hwdge-transpose": (Example(
        "tiles: tile bf16[128,4,{0}] sbuf; out bf16[128,4,{0}] hbm < tile\n"
        "nisa.dma_transpose(tile, y[0:{0}], axes=(2, 1, 0), dge_mode=nisa.dge_mode.hwdge)", _TRANSPOSED),
        "8", "16", "trn2"),
    "dma-transpose-rank": (Example(
        "tiles: tile bf16[128,128] sbuf; out bf16[128,128] hbm < tile\nnisa.dma_transpose(tile{0}, x{0})",
        _TRANSPOSED), "", ".reshape((128, 1, 1, 128))", "trn2"),
    "transpose-line": (Example(
        "tiles: tile bf16[128,{0}] sbuf; out bf16[128,{0}] hbm < tile\nnisa.dma_transpose(tile, x[0:{0}])",
        _TRANSPOSED), "8", "16", "trn2"),
    "transpose-within-sbuf": (Example(
        "tiles: loaded bf16[128,128] sbuf < x; tile bf16[128,128] sbuf; out bf16[128,128] hbm < tile\n"
        "nisa.dma_transpose(tile, {0})", _TRANSPOSED), "loaded", "x", "trn1"),
    "indirect-transpose-skip": (_rows_of("128", "{0}"), ", oob_mode=nisa.oob_mode.skip", "", "trn2"),
    "transpose-bytes": (Example(
        "tiles: tile {0}[128,128] sbuf; turned {0}[128,128] psum; out {0}[128,128] hbm\n"
        "nisa.memset(tile, 0.0)\nnisa.nc_transpose(turned, tile)\nnisa.tensor_copy(tile, turned)\n"
        "nisa.dma_copy(out, tile)", _TRANSPOSED), "nl.float8_e4m3", "bf16", "trn2"),
    "tensor-quarter": (Example(
        "tiles: left bf16[128,32] sbuf < x[:, 0:32]; total f32[64,32] psum; part f32[64,32] sbuf\n"
        "tiles: out f32[64,32] hbm < part\nfor i in range(2):\n"
        "    nisa.nc_matmul(total[i * 32:i * 32 + 32], left[:{0}], left[:{0}])\n"
        "nisa.tensor_copy(part, total)", _TRANSPOSED), "32", "64", "trn1"),
    "indirect-transpose-columns": (_rows_of("{0}"), "64", "128", "trn2"),
    "dynamic-on-chip": (_CHOSEN, _READ, _LOADED, "trn2"),
    "dynamic-compute": (_CHOSEN, _READ, _LOADED, "trn1"),
    "dma-dynamic-on-chip": (_CHOSEN, "dma_copy(part, tile", _LOADED, "trn2"),
    "transpose-offset": (Example(
        "tiles: which i32[1,1] sbuf < at; tile bf16[128,128] sbuf; out bf16[128,128] hbm < tile\n"
        "nisa.dma_transpose(tile, x.ap([[128, 128], [1, 128]]{0}))",
        {"x": "bf16[256,128]", "at": "i32[1,1]"}),
        ", scalar_offset=which.ap([[1, 1], [1, 1]]), indirect_dim=0", "", "trn2"),
    "offset-columns": (Example(
        "tiles: rows i32[128,2] sbuf < at; tile f32[128,512] sbuf; out f32[128,512] hbm < tile\n"
        "nisa.dma_copy(tile, x.ap([[512, 128], [1, 512]], vector_offset=rows{0}, indirect_dim=0))",
        {**COPIED.args, "at": "i32[128,2]"}), "", "[:, 0:1]", "trn2"),
    "transfer-axes": (Example("tiles: row f32[1,64] sbuf; out f32[1,64] hbm < row\nnisa.dma_copy(row, y{})",
                              {"y": "f32[64]"}), "", ".reshape((1, 64))", "trn1"),
    "product-tfloat32": (Example(
        "tiles: left {0}[128,128] sbuf < y; total f32[128,128] psum; tile f32[128,128] sbuf\n"
        "tiles: out f32[128,128] hbm < tile\nnisa.nc_matmul(total, left, left)\n"
        "nisa.tensor_copy(tile, total)", {"y": "f32[128,128]"}), "nl.tfloat32", "f32", "trn2"),
    "range-select-command": (Example(
        _SELECTED.format("f32", _RESET) + _RANGE.replace("{1}", "nisa.reduce_cmd.{}"), COPIED.args),
        "reduce", "reset_reduce", "trn2"),
    "range-select-rounds": (Example(_SELECTED.replace("{1}", _RESET), COPIED.args), "bf16", "f32", "trn2"),
    "found-places": ("", replace(_PLACES, options=("--nki", "0.5")),
                     replace(_PLACES, options=("--nki", "0.6")), "trn2"),
    "early-operators": ("nisa.{}", "tensor_scalar(tile, tile, op0=nl.abs, operand0=0.0)",
                        "activation(tile, op=nl.abs, data=tile)", "trn2"),
    "unary-operators": ("nisa.{}", "tensor_scalar(tile, tile, op0=nl.square, operand0=0.0)",
                        "activation(tile, op=nl.square, data=tile)", "trn3"),
    "integers-on-vector": (WHOLE + _ADDED.format("whole"), "vector", "gpsimd", "trn2"),
    "integer-casts": (WHOLE + "nisa.tensor_copy({})", "whole, tile", "tile, whole", "trn2"),
    "gpsimd-sum": (_ADDED.format("tile"), "gpsimd", "vector", "trn1"),
    "priority-descriptors": ("nisa.dma_copy(tile, x, priority=1{})", ", dge_mode=nisa.dge_mode.none", "",
                             "trn3"),
}  # fmt: skip
for _id, _refusal, _names, _title, _what, _why, _fix, _source, _look in _ROWS:
    _kernel, _wrong, _right, _chip = _SHOWN[_id]
    _options = (*(("--nki", _refusal.until) if _refusal.until else ()), "--target", _chip)
    form_rule("nki", _id, _refusal, *_names, title=_title, what=_what, why=_why, fix=_fix, source=_source,
              kernel=_kernel, wrong=_wrong, right=_right, options=_options)(_look)  # fmt: skip
