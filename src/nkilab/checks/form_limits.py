"""Limits of instructions that builds and public notes of builds tell, and pages not at all or in passing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ..dialects.grammar import LAST_PARSED
from ..dialects.history import BETA1
from ..place.slots import distinct
from ..tiles.tile import HBM, PSUM, Layout
from ..trace.program import StorageRecord
from .declare import COPIED, Example, Refusal, rule
from .evidence import Evidence, Track
from .finding import Finding, Site, once
from .operand_forms import TRANSFERS, Form, Values, called_on, columns_of, form_rule
from .version_limits import NOTES, WHOLE

_LEARNINGS = "nki-autotune, learnings, trn2"


form_rule("nki", "partition-reduce-integer",
    Refusal("disputed", "NCC_IXCG864", "ISA check failed"), "tensor_partition_reduce",
    title="sums over partitions take floats", what="tensor_partition_reduce is given integers",
    why="one report has its build refused, which the page of the instruction does not",
    fix="if the build refuses it, copy the integers into a float32 tile first",
    source="a back end of Helion, notes of its lowering, trn2; against it nki.isa.tensor_partition_reduce",
    kernel="tiles: part {0}[128,4] sbuf; total {0}[1,4] sbuf\nnisa.memset(part, 1)\n"
    "nisa.tensor_partition_reduce(total, op=nl.add, data=part)", wrong="i32", right="f32",
)(lambda form:
  f"data is {form.data.dtype.name}; it must be a float"
  if form.data.dtype.is_integer else "")  # fmt: skip


_PARTS = ("tiles: part f32[128,2,2,2] sbuf; chosen f32[128,2,2,2] sbuf", "nisa.memset(part, 1.0)")


@form_rule("nki", "affine-select-axes",
    Refusal("report", "NCC_INLA001", "Expected 2D tensor but got 4D AP"), "affine_select",
    title="affine_select writes tiles of at most three axes",
    what="dst of affine_select has four axes or more",
    why="the back end has no access pattern of so many axes for it",
    fix="select per index of an outer axis, or reshape the tile to three axes", source=_LEARNINGS,
    wrong=(*_PARTS, "nisa.affine_select(chosen, [[4, 2], [2, 2], [1, 2]], 1, part, 0.0)"),
    right=(*_PARTS, "nisa.affine_select(chosen.reshape((128, 8)), [[1, 8]], 1, part.reshape((128, 8)), 0.0)"),
)  # fmt: skip
def _select_axes(form: Form) -> str:
    axes = len(form.dst.shape)
    return f"dst has {axes} axes; three are taken" if axes > 3 else ""


form_rule("nki", "psum-memset-type", Refusal("report", "NCC_IBIR441"), "memset",
    title="memset fills float32 tiles of psum", what="memset fills a tile in psum that is not float32",
    why="a bank is filled word by word; tiles of 16 bits in psum are for transposes, which overwrite them",
    fix="leave the memset out, or make the tile float32", source=_LEARNINGS,
    kernel="tiles: total {}[128,512] psum\nnisa.memset(total, 0.0)", wrong="bf16", right="f32",
    called="isa.memset",
)(lambda form:
  "" if form.dst.memory != PSUM or form.dst.dtype.name == "float32"
  else f"dst is {form.dst.dtype.name} in psum; it must be float32")  # fmt: skip


@form_rule("nki", "memset-type", Refusal("documented", since="0.3"), "memset",
    title="memset fills integers with integers", what="memset is given a float for a tile of integers",
    why="from NKI 0.3 on the value is of the tile's type; NKI 0.2 cast it", fix="write a whole number",
    source="NKI 0.3 update guide, nisa.memset, strict type matching",
    kernel="tiles: counts i32[128,4] sbuf" + "\nnisa.memset(counts, {})", wrong="2.0", right="2",
    called="isa.memset", by_values=True,
)  # fmt: skip
def _fill_type(form: Form, values: Values) -> str:
    is_wrong = isinstance(values[0], float) and form.dst.dtype.is_integer
    return f"value is {values[0]!r}, and dst is {form.dst.dtype.name}" if is_wrong else ""


@form_rule("nki", "dma-fold",
    Refusal("log", build_error="cannot align DMA operands: source has A elements but destination has B"),
            "dma_copy", title="transfers on chip keep elements to their partitions",
    what="src and dst of dma_copy are both on chip, and have different numbers of elements per partition",
    why="the front end pairs partitions: a row is not folded over several, nor are several laid into one",
    fix="store to hbm and load from there in the other shape",
    source="device logs of public kernels, NKI 0.6; nki-moe-megakernel, findings",
    kernel="tiles: rows f32[{}] sbuf" + "\nnisa.dma_copy(rows, tile[0:1, :])", wrong="4,128", right="1,512",
)  # fmt: skip
def _fold(form: Form) -> str:
    src, dst = form.src, form.dst
    if HBM in (src.memory, dst.memory) or src.indices or dst.indices or src.free_size == dst.free_size:
        return ""
    return f"src has {src.free_size} elements per partition, dst {dst.free_size}"


STEP = rule("partition-step", "compiler", Refusal("report", "NCC_IBIR158", "illegal access pattern"),
    title="operands on chip are partitions in a row",
    what="an operand in sbuf or psum leaves out partitions, as tile[::2] does",
    why="an access pattern on chip begins at a partition and goes on with the next ones",
    fix="lay what belongs together into partitions in a row, as the transfer that loads it can",
    source="nki-moe-megakernel, common pitfalls",
    wrong="nisa.tensor_scalar(tile[::2], tile[::2], op0=nl.multiply, operand0=2.0)",
    right="nisa.tensor_scalar(tile[0:64], tile[0:64], op0=nl.multiply, operand0=2.0)",
)  # fmt: skip


_SCRATCH = """
tiles: scratch x.dtype[256,8] private_hbm; out x.dtype[8,128] hbm
for i in range(2):
    nl.store(scratch[i * 128 : i * 128 + 128], nl.load(x[i * 128 : i * 128 + 128]))
nl.store(out, nl.load_transpose2d({}[0:128]))
"""
LOCAL = rule("load-transpose-local", "compiler", Refusal("report", until=LAST_PARSED, generations=(2,)),
    title="on trn1 nl.load_transpose2d reads arguments of the kernel",
    what="nl.load_transpose2d reads a tensor in hbm that the kernel itself makes, on trn1, and that has more "
    "rows than there are partitions; a kernel of trntensor with one of fewer rows ran there",
    why="the build fails, with no message that names the reason; the simulator transposes it",
    fix="keep the values in sbuf and transpose them with nisa.nc_transpose",
    source="trnfft, notes of its kernels, NKI 0.3 on trn1; trntensor, ao_to_mo_transform",
    kernel=Example(_SCRATCH, {"x": "f32[256,8]"}, options=("--nki", "0.3", "--target", "trn1")),
    wrong="scratch", right="x",
)  # fmt: skip

_STEPS = "for i in range(2):\n    nisa.tensor_scalar(tile, tile, nl.add, 1.0, name={})"
NAMED = rule("instruction-name-twice", "compiler", Refusal("report", "", "duplicate op name", "0.6", "0.6"),
    title="each instruction has a name of its own",
    what="two instructions of a program are given the same name=",
    why="the compiler knows instructions by their names, and loops are unrolled",
    fix='put what differs into the name, as name=f"step_{i}", or leave it out',
    source="public notes of a decoding megakernel, NKI 0.6",
    kernel=_STEPS, wrong='"step"', right='f"step_{i}"',
)  # fmt: skip

REPEATED = rule("operator-partitions", "compiler", Refusal("documented", since=BETA1, until=BETA1),
    title="operators of Python repeat no partitions",
    what="an operator as + or * is between a tile of one partition and one of several",
    why="operators have no broadcast over partitions; the functions of nl have",
    fix="use nl.add, nl.multiply, ..., or repeat the row by broadcast_to first",
    source="NKI known issues of Beta 1, unsupported syntax",
    kernel=Example("tiles: out x.dtype[128,512] hbm\nnl.store(out, {})", COPIED.args, "neuronxcc"),
    wrong="nl.load(x) * nl.load(x[0:1])", right="nl.multiply(nl.load(x), nl.load(x[0:1]))",
)  # fmt: skip
_NOTICED = {"name": NAMED, "partitions": REPEATED}


def find(evidence: Evidence) -> Iterator[Finding]:
    """What dialects noticed, and operands that leave out partitions or no transposing load reads."""
    for track in evidence.tracks:
        noticed = [(_NOTICED[kind], words, row) for kind, words, row in track.marks.odd]
        yield from once(r.finding(words, track.site(n)) for r, words, n in noticed if evidence.refuses(r))
    if evidence.kernel.spelling != "nki":
        return
    if evidence.refuses(STEP):
        for site, called in _sites(evidence, _rows_with_steps).items():
            yield STEP.finding(f"{called} reads or writes a tile that leaves out partitions", site)
    for site, called in _sites(evidence, _local_transposes).items() if evidence.refuses(LOCAL) else ():
        if "language.load_transpose2d" in called_on(evidence, site):
            yield LOCAL.finding(f"{called} reads a tensor that the kernel makes", site)


def _sites(evidence: Evidence, look: Callable[[Track], list[int]]) -> dict[Site, str]:
    """The lines of rows, each with what it calls."""
    places = ((track, row) for track in evidence.tracks for row in look(track))
    return {track.site(row): track.called(row) for track, row in places}


def _local_transposes(track: Track) -> list[int]:
    """The rows that read large tensors in hbm which the program makes."""
    slots, rows = track.slots, track.program.machine.limit("partitions")
    large = [s.memory == HBM and s.scope != "input" and s.partitions > rows for s in track.program.storages]
    here = ~slots.is_written & np.array(large, np.bool_)[slots.storage]
    return [int(row) for row in distinct(slots.row[here])]


def _rows_with_steps(track: Track) -> list[int]:
    slots, program = track.slots, track.program
    kinds = slots.kinds.of_storage[slots.storage]
    # scales of microscaling lie in the first partitions of each group, as their instructions read them
    are_plain = np.array([not form.name.endswith("_mx") for form in program.forms], np.bool_)
    pairs = np.unique(np.stack([slots.layout, kinds]), axis=1).T.tolist() if len(kinds) else []
    wrong = [(n, k) for n, k in pairs if _skips(slots.layouts[n], slots.kinds.samples[k])]
    slots_with_steps = [np.flatnonzero((slots.layout == n) & (kinds == k)) for n, k in wrong]
    rows = slots.row[np.concatenate(slots_with_steps)] if wrong else np.zeros(0, np.int64)
    return [int(row) for row in distinct(rows[are_plain[program.form_column[rows]]])]


def _skips(layout: Layout, record: StorageRecord) -> bool:
    """Whether the partitions of a view are not those that lie side by side."""
    axis = layout.partition_axis
    if layout.memory == HBM or layout.indices or axis is None or layout.shape[axis] == 1:
        return False
    return layout.byte_strides[axis] > record.bytes_per_partition


@form_rule("nki", "unary-operand", Refusal("documented", since="0.3"), "tensor_scalar",
            "tensor_scalar_reduce", title="an operator of one input has no operand",
    what="tensor_scalar or tensor_scalar_reduce is given an operand other than 0 for a unary operator",
    why="the instruction has nowhere to put it", fix="pass None or 0",
    source="nki.isa.tensor_scalar, operand0",
    kernel="nisa.tensor_scalar(tile, tile, op0=nl.abs, operand0={})", wrong="2.0", right="0.0",
    by_values=True,
)  # fmt: skip
def _unary(form: Form, values: Values) -> str:
    numbers = iter(values)
    for _, op, operand in columns_of(form):
        is_tile = isinstance(operand, Layout)
        number = None if is_tile or operand is None else next(numbers)
        if op is not None and op.is_unary and (is_tile or number):
            return f"{op.name} takes one input, and its operand is {'a tile' if is_tile else number}"
    return ""


form_rule("nki", "scalar-engine-copy", Refusal("documented", since="0.3", generations=(2,)), "tensor_copy",
    title="on trn1 ScalarE copies by nisa.activation", what="tensor_copy is given engine=scalar on trn1",
    why="ScalarE of the second generation has no such instruction",
    fix="use nisa.activation(op=nl.copy), or VectorE", source="nki.isa.tensor_copy",
    kernel="nisa.tensor_copy(tile, tile, engine=nisa.engine.{})", wrong="scalar", right="vector",
    options=("--target", "trn1"),
)(lambda form: "ScalarE of trn1 has no tensor_copy" if form.engine == "scalar" else "")  # fmt: skip


# What documents say of the number of axes: instruction, operand, most of them.
_MOST_AXES = {
    "max8": {"src": 3, "dst": 2}, "nc_find_index8": {"data": 3, "vals": 3, "dst": 2},
    "exponential": {"src": 4, "dst": 4},
}  # fmt: skip
_VIEW = 5


@form_rule("nki", "operand-axes", Refusal("documented", since="0.3"),
    title="operands have as many axes as an access pattern",
    what=f"an operand on chip has more than {_VIEW} axes, or more than its instruction takes: 3 of max8 and "
    "nc_find_index8, and 2 of their results; 4 of exponential",
    why="an access pattern has at most five dimensions, some instructions less",
    fix="reshape the tile, so that axes that lie side by side are one",
    source="NKI language guide, tensor values; pages of the instructions",
    kernel="tiles: part f32[{}] sbuf; most f32[128,8] sbuf\nnisa.memset(part, 1.0)\nnisa.max8(most, part)",
    wrong="128,2,2,8", right="128,4,8",
)  # fmt: skip
def _axes(form: Form) -> str:
    limits = _MOST_AXES.get(form.name, {})
    for name, _, layout in form.tile_slots():
        most = limits.get(name, _VIEW)
        if layout.memory != HBM and len(layout.shape) > most:
            return f"{name} has {len(layout.shape)} axes; {most} are taken"
    return ""


_REDUCED = "nisa.tensor_scalar_reduce(tile, tile, nl.multiply, 2.0, nl.add, {})"


form_rule("nki", "reduce-result", Refusal("documented", since="0.3", until="0.5"), "tensor_scalar_reduce",
    title="before NKI 0.6 tensor_scalar_reduce gives its sum",
    what="reduce_res of tensor_scalar_reduce is None", why="NKI 0.6 is the first that leaves it out",
    fix="pass a tile [P, 1]", source="NKI 0.6 release notes, new features",
    wrong=_REDUCED.format("None"), right=("tiles: total f32[128,1] sbuf", _REDUCED.format("total")),
    options=("--nki", "0.5"),
)(lambda form: "" if isinstance(form.reduce_res, Layout) else "reduce_res is None")  # fmt: skip
form_rule("nki", "dma-within-sbuf",
    Refusal("disputed", "", "dma_copy source and destination cannot both be in SBUF", "0.4", "0.4"),
            *TRANSFERS[:1],
    title="in NKI 0.4 transfers have an end in hbm", what="src and dst of dma_copy are both in sbuf",
    why="one log of a build of NKI 0.4 refuses it; the pages of every version allow it",
    fix="if the build refuses it, use nisa.tensor_copy",
    source="a log on trn2, SDK 2.30; against it nki.isa.dma_copy",
    kernel="tiles: other f32[128,512] sbuf" + "\nnisa.{}(other, tile)", wrong="dma_copy", right="tensor_copy",
    options=("--nki", "0.4"),
)(lambda form: "" if HBM in (form.src.memory, form.dst.memory) else "both ends are in sbuf")  # fmt: skip


@form_rule("nki", "dma-skip-static", Refusal("documented", since="0.3"), "dma_transpose", "dma_compute",
    title="only accesses by an index skip",
    what="dma_transpose or dma_compute is given oob_mode.skip, and no operand of it has a run-time index",
    why="the mode is valid with indirect access alone; the instruction's checks refuse it",
    fix="leave oob_mode out",
    source="nki.isa.dma_transpose, oob_mode; NKI 0.4 release notes, nki.isa.dma_compute",
    kernel="nisa.dma_compute(tile, [x, x], nl.add{})", wrong=", oob_mode=nisa.oob_mode.skip", right="",
)  # fmt: skip
def _skips_nothing(form: Form) -> str:
    is_static = not any(layout.indices for _, _, layout in form.tile_slots())
    return "oob_mode is skip, and no operand has an index" if form.oob_mode == "skip" and is_static else ""


@form_rule("nki", "dma-engine-software", Refusal("documented", since="0.3"), "dma_copy",
    title="an engine is named where hardware makes the descriptors",
    what="dma_copy is given engine= without dge_mode=nisa.dge_mode.hwdge",
    why="the engine is that of the hardware's generator of descriptors, and valid with it alone",
    fix="pass dge_mode=nisa.dge_mode.hwdge too, or leave engine out", source="nki.isa.dma_copy, engine",
    kernel="nisa.dma_copy(tile, x, engine=nisa.engine.sync{})",
    wrong="", right=", dge_mode=nisa.dge_mode.hwdge",
)  # fmt: skip
def _engine_of_software(form: Form) -> str:
    is_named = form.engine != "unknown" and form.dge_mode != "hwdge"
    return f"engine is {form.engine}, and dge_mode {form.dge_mode}" if is_named else ""


form_rule("nki", "nl-copy-psum", Refusal("documented", since="0.3", until="0.5"), "tensor_copy",
    title="before NKI 0.6 nl.copy stays within sbuf", what="nl.copy is given a tile in psum",
    why="it does not copy from one memory to another until 0.6", fix="use nisa.tensor_copy",
    source="NKI 0.3 and 0.4 release notes, known issues; NKI 0.6 release notes, nki.language.copy",
    called="language.copy", kernel=Example("""
tiles: total f32[128,128] psum; moved f32[128,128] sbuf; out f32[128,128] hbm < moved
tile = nl.load(x)
nisa.nc_matmul(total, tile, tile)
nisa.tensor_copy(moved, {})
""", {"x": "bf16[128,128]"}, options=("--nki", "0.4")), wrong="nl.copy(total)", right="total",
)(lambda form: "src is in psum" if form.src.memory == PSUM else "")  # fmt: skip
form_rule("nki", "nl-copy-integers",
    Refusal("documented", since="0.3", until="0.4", milder="note"), "activation", "tensor_copy",
    title="before NKI 0.5 nl.copy is for floats",
    what="nl.copy is given a tile of 32-bit integers in NKI 0.3 or 0.4",
    why="ScalarE copies by way of float32: numbers above 2^23 lose their last bits, without a word",
    fix="use nisa.tensor_copy", source=f"NKI 0.3 and 0.4 {NOTES}, known issues", called="language.copy",
    kernel=WHOLE + "nisa.dma_copy(nl.ndarray((128, 512), nl.int32, buffer=nl.shared_hbm), {})",
    wrong="nl.copy(whole)", right="whole", options=("--nki", "0.4"),
)(lambda form: _integers(form))  # fmt: skip


def _integers(form: Form) -> str:
    src = form.src if form.name == "tensor_copy" else form.data
    return f"src is {src.dtype.name}" if src.dtype.is_integer and src.itemsize == 4 else ""
