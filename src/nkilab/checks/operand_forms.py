"""What the build refuses of an instruction: what a chip and a version of the compiler take as an operand, an
immediate, an operator, an address, though the simulator computes it.

A form is what an instruction's calls share: operands' layouts and attributes. Each is looked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple, TypeVar, Unpack

import numpy as np

from ..dialects.history import BETA1
from ..isa.declare import Instruction
from ..isa.operators import Operator
from ..tiles.tile import HBM, SBUF, Layout
from .declare import COPIED, SCALED, Example, Facts, Refusal, Rule, rule
from .evidence import Evidence, Track
from .finding import NOWHERE, Finding, Site, once

# Its operands and attributes are those that its declaration names.
Form = Any
# The numbers of one call.
Values = tuple[Any, ...]
# What is wrong with a form, or with it and the values of a call, or "".
Look = TypeVar("Look", bound=Callable[..., str])
TRANSFERS = ("dma_copy", "dma_transpose", "dma_compute")


class _Finder(NamedTuple):
    """Who looks for a rule, in the forms of which instructions; () for all but transfers."""

    rule: Rule
    names: tuple[str, ...]
    look: Callable[..., str]
    called: str = ""
    takes_values: bool = False


_FINDERS: dict[str, list[_Finder]] = {"nki": [], "neuronxcc": []}


def form_rule(
    spelling: str, id: str, refusal: Refusal, *names: str, called: str = "", by_values: bool = False,
    **facts: Unpack[Facts],
) -> Callable[[Look], Look]:  # fmt: skip
    """Declare a rule that the decorated function looks for in the forms of some instructions.

    Args:
        spelling: "nki" or "neuronxcc".
        id: of the rule.
        refusal: by the build.
        names: of instructions; none for all but transfers.
        called: function of NKI that the line calls.
        by_values: whether it depends on the numbers of a call, which are looked at beside the form.
        facts: of the rule.
    """

    def keep(look: Look) -> Look:
        of_form = _Finder(rule(id, "compiler", refusal, **facts), names, look, called, by_values)
        _FINDERS[spelling].append(of_form)
        return look

    return keep


form_rule("nki", "activation-bias-number",
    Refusal("log", "NCC_IBIR605", "bias of InstActivation can only be an immediate", generations=(2,)),
            "activation", "activation_reduce", title="on trn1 the bias of an activation is a tile",
    what="an activation other than copy and reciprocal has no bias tile on trn1, as by nl.exp",
    why="the compiler fills in the number 0, which ScalarE of trn1 takes of copy and reciprocal alone",
    fix="pass bias= as a tile [P, 1] that memset fills with 0",
    source="trnrand issue 2; torchneuronx, device log", wrong="nisa.activation(tile, op=nl.exp, data=tile)",
    right=("tiles: zero f32[128,1] sbuf", "nisa.memset(zero, 0.0)",
           "nisa.activation(tile, op=nl.exp, data=tile, bias=zero)"), options=("--target", "trn1"),
)(lambda form:
  "" if isinstance(form.bias, Layout) or form.op.name in ("copy", "reciprocal")
  else f"{form.op.name} has no tile as its bias")  # fmt: skip


_DIVIDES = ("divide", "mod", "fmod")


@form_rule("nki", "no-division", Refusal("documented", "NCC_IXCG864", "unsupported operator 'divide'"),
    title="no instruction divides",
    what="an instruction of `nki` is given divide, mod or fmod; / and nl.divide of tiles are such ones",
    why="the chip has no such operation: it runs in simulation, and the build fails",
    fix="multiply by nisa.reciprocal, or by nl.reciprocal(y)",
    source="NKI 0.3 and 0.4 release notes, known issues; nki-autotune, kernels",
    wrong="nisa.tensor_tensor(tile, tile, tile, op=nl.divide)",
    right=("tiles: inverse f32[128,512] sbuf", "nisa.reciprocal(inverse, tile)",
           "nisa.tensor_tensor(tile, tile, inverse, op=nl.multiply)"),
)  # fmt: skip
def _division(form: Form) -> str:
    word = next((name for name in operators_of(form) if name in _DIVIDES), "")
    return f"the operator is {word}, which no engine has" if word else ""


def operators_of(form: Form) -> Iterator[str]:
    """The names of the operators that a form computes with."""
    operators = (getattr(form, name, None) for name in ("op", "op0", "op1", "reduce_op"))
    return (getattr(op, "name", "") for op in operators)


# of which whole addresses are computed, on GpSimdE
_ADDRESSES = ("int32", "uint32")


@form_rule("nki", "operand-float32",
    Refusal("documented", "NCC_INLA001", "immediate dtype must be fp32"), "tensor_scalar",
            "tensor_scalar_reduce", title="a column that arithmetic takes is float32",
    what="tensor_scalar or tensor_scalar_reduce computes with a tile [P, 1] that is not float32",
    why="the engine reads the column as float32 and casts data alone; the compiler refuses other types",
    fix="copy the column into a float32 tile first", source="nki.isa.tensor_scalar, data types",
    kernel=f"tiles: column {{}}[128,1] sbuf\nnisa.memset(column, 2.0)\n{SCALED.format('column')}",
    wrong="bf16", right="f32",
)  # fmt: skip
def _columns(form: Form) -> str:
    for name, op, column in columns_of(form):
        if op is None or op.is_bitvec or not isinstance(column, Layout) or column.dtype.name == "float32":
            continue
        if column.dtype.name not in _ADDRESSES or column.dtype is not form.data.dtype:
            return f"{name} is {column.dtype.name}; arithmetic takes float32"
    return ""


def columns_of(form: Form) -> Iterator[tuple[str, Operator | None, object]]:
    """The operands of a form that are broadcast along rows, each with its name and its operator."""
    for number in "01" if hasattr(form, "op1") else "0":
        yield f"operand{number}", getattr(form, f"op{number}"), getattr(form, f"operand{number}")


_ROW = """
tiles: out x.dtype[128,512] hbm; tile x.dtype[nl.par_dim(128),512] sbuf
p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
nisa.dma_copy(dst=tile[p, f], src=x[{}, f])
nl.store(out, tile)
"""


@form_rule("neuronxcc", "dma-broadcast",
    Refusal("log", "NCC_IBCG901", "BIRCodegen does not support broadcast patterns", BETA1, BETA1), "dma_copy",
    title="a transfer reads a row per partition",
    what="dma_copy of Beta 1 reads one row of hbm for several partitions",
    why="the compiler of Beta 1 makes no transfer of an address that stays where the partition goes on",
    fix="load the row into one partition, and use it by broadcast_to",
    source="kda-for-trainium, log of a build",
    kernel=Example(_ROW, COPIED.args, "neuronxcc"), wrong="3 + p * 0", right="p", called="isa.dma_copy",
)  # fmt: skip
def _broadcast(form: Form) -> str:
    src = form.src
    if src.memory != HBM or len(src.shape) < 2 or src.shape[0] == 1 or src.strides[0] != 0 or src.indices:
        return ""
    return f"src is one row for {src.shape[0]} partitions"


@form_rule("nki", "input-partitions",
    Refusal("report", build_error="'lhs' and 'rhs' have different partition start offsets", since="0.3"),
            "tensor_tensor", title="two inputs in sbuf start at one partition",
    what="data1 and data2 of tensor_tensor lie in sbuf from different partitions on",
    why="a lane of the engine reads both inputs from its own partition; the front end refuses others",
    fix="copy one input to the partitions of the other with tensor_copy first",
    source="nki-library, RoPE_sbuf; pave_univr_trn2_repro, NKI 0.6; zml, notes of a GatedDeltaNet kernel",
    kernel="nisa.tensor_tensor(tile[0:32], tile[0:32], tile[{}], op=nl.add)", wrong="32:64", right="0:32",
)  # fmt: skip
def _starts(form: Form) -> str:
    first, second = form.data1, form.data2
    is_apart = first.memory == second.memory == SBUF and first.start_partition != second.start_partition
    return f"data1 starts at {first.start_partition}, data2 at {second.start_partition}" if is_apart else ""


form_rule("nki", "square-and-sum",
    Refusal("disputed", "NCC_IXCG864", "ISA check failed"), "activation_reduce",
    title="a square is summed by another instruction",
    what="activation_reduce computes squares and their sums at once",
    why="one report has its build refused, another one runs it on trn2; for which types is not known",
    fix="if the build refuses it, use nisa.activation(op=nl.square), then nisa.tensor_reduce",
    source="nki-moe-megakernel, common pitfalls; against it nki-autotune",
    kernel="tiles: total f32[128,1] sbuf" + "\n{}",
    wrong="nisa.activation_reduce(tile, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=total)",
    right=("nisa.activation(tile, op=nl.square, data=tile)",
           "nisa.tensor_reduce(total, op=nl.add, data=tile, axis=1)"),
)(lambda form: "squares are summed as they are computed" if form.op.name == "square" else "")  # fmt: skip


_BIASES = (
    ("copy-bias", "copy", Refusal("log", until="0.2", generations=(2,), milder="warning"),
     "ScalarE of trn1 copies and leaves the bias out: the result is data alone, without a word", "0.2",
     "aws-neuron-sdk issue 1296"),
    ("copy-bias-tile", "copy",
     Refusal("log", "NCC_IBVF043", "Activation function with type Copy only supports immediate bias", "0.3",
             generations=(2,)), "ScalarE of trn1 adds a number to what it copies, and no column", "0.6",
     "public kernels that attend to long contexts on trn1; a port of Qwen 3.6 to trn1"),
    ("reciprocal-bias", "reciprocal", Refusal("documented", generations=(2,)),
     "ScalarE of trn1 adds nothing to what it inverts", "0.6", "NKI ISA API common fields, engine selection"),
)  # fmt: skip
for _id, _op, _refusal, _why, _nki, _source in _BIASES:
    form_rule("nki", _id, _refusal, "activation", "activation_reduce",
        title=f"an activation that computes a {_op} has no tile as its bias",
        what=f"nl.{_op} is given a tile as its bias on trn1",
        why=_why, fix="add the column with nisa.tensor_scalar", source=_source,
        kernel="tiles: by f32[128,1] sbuf\nnisa.memset(by, 2.0)\n"
               "nisa.activation(tile, op=nl.{}, data=tile, bias=by)",
        wrong=_op, right="relu", options=("--nki", _nki, "--target", "trn1"),
    )(lambda form, op=_op: f"op is {op}, and bias is a tile"
      if form.op.name == op and isinstance(form.bias, Layout) else "")  # fmt: skip


@form_rule("nki", "scalar-reduce-integers",
    Refusal("log", "NCC_IBVF012", "ISA check failed", since="0.3"), "tensor_scalar_reduce",
    title="tensor_scalar_reduce takes floats",
    what="data or reduce_res of tensor_scalar_reduce is of integers",
    why="the instruction adds up in float32, and casts neither; the code for reduce_res is NCC_IBVF013",
    fix="copy the integers into a float32 tile first, or use tensor_tensor and tensor_reduce",
    source="public kernels of a histogram, NKI 0.6",
    kernel="tiles: counts {}[128,512] sbuf; total f32[128,1] sbuf\nnisa.memset(counts, 1)\n"
           "nisa.tensor_scalar_reduce(tile, counts, nl.multiply, 2.0, nl.add, total)",
    wrong="i32", right="f32",
)  # fmt: skip
def _reduced_integers(form: Form) -> str:
    layouts = {"data": form.data, "reduce_res": form.reduce_res}
    types = {name: t.dtype for name, t in layouts.items() if isinstance(t, Layout)}
    wrong = (f"{name} is {own.name}; it must be a float" for name, own in types.items() if own.is_integer)
    return next(wrong, "")


_SPREAD = Refusal("report", since=BETA1, until=BETA1, generations=(2,), milder="note")
form_rule("neuronxcc", "rows-alike", _SPREAD, "tensor_tensor",
    title="builds of Beta 1 for trn1 repeat rows of a product with a spread column",
    what="an operand of three axes is computed with one that is spread over the last axis, on trn1",
    why="a report shows equal rows on the chip; simulation is right, and the build says nothing",
    fix="compute row by row, tile[:, i, :] with the column factor[:, i:i + 1], or compare on the chip",
    source="aws-neuron-sdk issue 1138",
    kernel=Example("tiles: out f32[128,4,64] hbm\nrows, factor = nl.load(x), nl.load(y)\n{}",
                   {"x": "f32[128,4,64]", "y": "f32[128,4]"}, "neuronxcc"),
    wrong="nl.store(out, nl.multiply(rows, factor.reshape((128, 4, 1))))",
    right=("for i in nl.static_range(4):",
           "    nl.store(out[:, i, :], nl.multiply(rows[:, i, :], factor[:, i:i + 1]))"),
    options=("--target", "trn1"),
)(lambda form: next((f"{name} is one column for each row of {list(layout.shape[1:])}"
                     for name, _, layout in form.tile_slots()
                     if len(layout.shape) == 3 and layout.strides[2] == 0 != layout.strides[1]),
                    ""))  # fmt: skip
_SUMMED = """
tiles: out x.dtype[128,512] hbm
nl.store(out, nisa.activation(nl.square, nl.load(x){}))
"""
form_rule("neuronxcc", "activation-sum-unread", Refusal("report", "NCC_INIC902", since=BETA1, until=BETA1),
          "activation", title="an activation that sums hands its sum over",
    what="activation of Beta 1 is given reduce_op, and neither reduce_res nor reduce_cmd",
    why="the function returns the activation itself; the compiler ends at the sum that nothing takes",
    fix="use nisa.activation_reduce with reduce_res, or leave reduce_op out",
    source="an agent's list of repairs on trn2, neuronx-cc 2.27",
    kernel=Example(_SUMMED, {"x": "f32[128,512]"}, "neuronxcc"), wrong=", reduce_op=nl.add", right="",
)(lambda form: "reduce_op is given, and nothing takes the sum" if form.reduce_op is not None
  and form.reduce_res is None and form.reduce_cmd == "idle" else "")  # fmt: skip


form_rule("neuronxcc", "select-reduce-trn1",
    Refusal("report", since=BETA1, until=BETA1, generations=(2,), milder="warning"), "select_reduce",
    title="builds of Beta 1 for trn1 select by nl.where", what="nisa.select_reduce is used on trn1",
    why="kernels of paged attention avoid it there: its results are wrong, without a word",
    fix="use nl.where, and a sum or a maximum by itself", source="kernels of paged attention of vLLM",
    kernel=Example("tiles: out f32[128,512] hbm; part f32[128,512] sbuf\ntile, keep = nl.load(x), nl.load(y)"
                   "\n{}\nnl.store(out, part)", {**COPIED.args, "y": "u8[128,512]"}, "neuronxcc"),
    wrong="nisa.select_reduce(dst=part, predicate=keep, on_true=tile, on_false=0.0)",
    right="part[...] = nl.where(keep, tile, 0.0)", options=("--target", "trn1"),
)(lambda form: "trn1 leaves other results")  # fmt: skip


_TURNING = """
tiles: out {0}.dtype[128,128] hbm
nl.store(out, nisa.dma_transpose({0}))
"""
form_rule("neuronxcc", "transpose-float32", Refusal("log", "NCC_ISFV902", "SFKVectorizer", BETA1, BETA1),
          "dma_transpose", title="transfers of Beta 1 transpose elements of 2 bytes",
    what="dma_transpose of Beta 1 is given elements of 4 bytes",
    why="the pass that makes the transfer fails, without a word on types",
    fix="load the tile, and use nisa.nc_transpose", source="kda-for-trainium, log of a build on trn2",
    kernel=Example(_TURNING, {"x": "f32[128,128]", "y": "bf16[128,128]"}, "neuronxcc"), wrong="x", right="y",
    called="isa.dma_transpose",
)(lambda form: f"src is {form.src.dtype.name}" if form.src.itemsize == 4 else "")  # fmt: skip


def find(evidence: Evidence) -> Iterator[Finding]:
    """What the build refuses of the forms that ran, once per line and rule."""
    finders = [f for f in _FINDERS[evidence.kernel.spelling] if evidence.refuses(f.rule)]
    tracks = ((track, enumerate(track.program.forms)) for track in evidence.tracks)
    places = ((track, *pair) for track, forms in tracks for pair in product(forms, finders))
    yield from once(f for place in places for f in _findings(evidence, *place))


def _findings(
    evidence: Evidence, track: Track, numbered: tuple[int, Instruction], finder: _Finder
) -> Iterator[Finding]:
    number, form = numbered
    if form.name not in finder.names if finder.names else form.name in TRANSFERS:
        return
    problem = "" if finder.takes_values else finder.look(form)
    program = track.program
    rows = np.flatnonzero(program.form_column == number) if problem or finder.takes_values else ()
    for row in rows:
        said = finder.look(form, program.values_of(int(row))) if finder.takes_values else problem
        site = track.site(int(row)) if said else NOWHERE
        if said and (not finder.called or finder.called in called_on(evidence, site)):
            yield finder.rule.finding(f"{form.name}: {said}", site)


def called_on(evidence: Evidence, site: Site) -> set[str]:
    """The names of NKI, below `nki`, that a line calls."""
    file = evidence.sources.file(site.file)
    resolved = (file.source.resolve(call.func) for call in file.calls_on(site.line) if file.source)
    return {called[1] for called in resolved if called is not None}
