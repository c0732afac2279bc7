"""What the build refuses of an instruction: what a chip and a version of the compiler take as an operand, an
immediate, an operator, an address, though the simulator computes it.

A form is what an instruction's calls share: operands' layouts and attributes. Each is looked at once.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Collection, Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ..dialects.history import BETA1
from ..isa.declare import Instruction
from ..tiles.tile import HBM, PSUM, Layout
from .declare import Example, Refusal, Rule, rule
from .evidence import Evidence, Track
from .finding import Finding, Site
from .restricted_language import version_compiled
from .scope import scope_of

# Its operands and attributes are those that its declaration names.
Form = Any
# What is wrong with a form, or "".
Look = Callable[[Form], str]
_DMA = ("dma_copy", "dma_transpose", "dma_compute")


class _Finder(NamedTuple):
    """Who looks for a rule, in the forms of which instructions; () for all but transfers."""

    rule: Rule
    names: tuple[str, ...]
    look: Look
    called: str = ""


_FINDERS: dict[str, list[_Finder]] = {"nki": [], "neuronxcc": []}


def _looks(spelling: str, own_rule: Rule, *names: str, called: str = "") -> Callable[[Look], Look]:
    """Have a rule looked for by the decorated function, on lines that call the function of NKI named."""

    def keep(look: Look) -> Look:
        _FINDERS[spelling].append(_Finder(own_rule, names, look, called))
        return look

    return keep


_HEAD = """
tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
nisa.dma_copy(tile, x)
{}
nisa.dma_copy(out, tile)
return out
"""
_X = {"x": "f32[128,512]"}


def _nki(*lines: str, options: tuple[str, ...] = (), args: dict[str, str] = _X) -> Example:
    return Example(_HEAD.format("\n".join(lines)), args, options=options)


_ZERO = ("zero = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)", "nisa.memset(zero, 0.0)")
BIAS = rule(
    "activation-bias-number", "compiler",
    Refusal("log", "NCC_IBIR605", "bias of InstActivation can only be an immediate", generations=(2,)),
    title="on trn1 the bias of an activation is a tile",
    what="an activation other than copy and reciprocal has no bias tile on trn1; nl.exp and its like give "
    "none",
    why="the compiler fills in the number 0, which ScalarE of trn1 takes as the bias of copy and reciprocal "
    "alone",
    fix="pass bias= as a tile [P, 1] that memset fills with 0",
    source="trnrand issue 2; torchneuronx, device log",
    wrong=_nki("nisa.activation(tile, op=nl.exp, data=tile)", options=("--target", "trn1")),
    right=_nki(*_ZERO, "nisa.activation(tile, op=nl.exp, data=tile, bias=zero)",
               options=("--target", "trn1")),
)  # fmt: skip


@_looks("nki", BIAS, "activation", "activation_reduce")
def _bias(form: Form) -> str:
    if isinstance(form.bias, Layout) or form.op.name in ("copy", "reciprocal"):
        return ""
    return f"{form.op.name} has no tile as its bias"


DIVISION = rule(
    "no-division", "compiler",
    Refusal("documented", "NCC_IXCG864", "unsupported operator 'divide'"),
    title="no instruction divides",
    what="an instruction of `nki` is given divide, mod or fmod; / and nl.divide of tiles are such ones",
    why="the chip has no such operation: it runs in simulation, and the build fails",
    fix="multiply by nisa.reciprocal, or by nl.reciprocal(y)",
    source="NKI 0.3 and 0.4 release notes, known issues; nki-autotune, kernels",
    wrong=_nki("nisa.tensor_tensor(tile, tile, tile, op=nl.divide)"),
    right=_nki("inverse = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)",
               "nisa.reciprocal(inverse, tile)",
               "nisa.tensor_tensor(tile, tile, inverse, op=nl.multiply)"),
)  # fmt: skip
_DIVIDES = ("divide", "mod", "fmod")


@_looks("nki", DIVISION)
def _division(form: Form) -> str:
    operators = (getattr(form, name, None) for name in ("op", "op0", "op1", "reduce_op"))
    word = next((name for op in operators if (name := getattr(op, "name", "")) in _DIVIDES), "")
    return f"the operator is {word}, which no engine has" if word else ""


_COLUMN = "column = nl.ndarray((128, 1), nl.{}, buffer=nl.sbuf)"
COLUMN = rule(
    "operand-float32", "compiler", Refusal("documented", "NCC_INLA001", "immediate dtype must be fp32"),
    title="a column that arithmetic takes is float32",
    what="tensor_scalar computes with a tile [P, 1] that is not float32 in an arithmetic operator",
    why="the engine reads the column as float32 and casts data alone; the compiler refuses other types",
    fix="copy the column into a float32 tile first",
    source="nki.isa.tensor_scalar, data types",
    wrong=_nki(_COLUMN.format("bfloat16"), "nisa.memset(column, 2.0)",
               "nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=column)"),
    right=_nki(_COLUMN.format("float32"), "nisa.memset(column, 2.0)",
               "nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=column)"),
)  # fmt: skip
# of which whole addresses are computed, on GpSimdE
_ADDRESSES = ("int32", "uint32")


@_looks("nki", COLUMN, "tensor_scalar")
def _columns(form: Form) -> str:
    for name, op in (("operand0", form.op0), ("operand1", form.op1)):
        column = getattr(form, name)
        if op is None or op.is_bitvec or not isinstance(column, Layout) or column.dtype.name == "float32":
            continue
        if column.dtype.name not in _ADDRESSES or column.dtype is not form.data.dtype:
            return f"{name} is {column.dtype.name}; arithmetic takes float32"
    return ""


_ROW = """
out = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
tile = nl.ndarray((nl.par_dim(128), 512), x.dtype, buffer=nl.sbuf)
{}
nl.store(out, tile)
return out
"""
_GRID = "p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]\nnisa.dma_copy(dst=tile[p, f], src=x[{}, f])"
BROADCAST = rule(
    "dma-broadcast", "compiler",
    Refusal("log", "NCC_IBCG901", "BIRCodegen does not support broadcast patterns", BETA1, BETA1),
    title="a transfer reads a row per partition",
    what="dma_copy of Beta 1 reads one row of hbm for several partitions",
    why="the compiler of Beta 1 makes no transfer of an address that stays where the partition goes on",
    fix="load the row into one partition, and use it by broadcast_to",
    source="kda-for-trainium, log of a build",
    wrong=Example(_ROW.format(_GRID.format("3 + p * 0")), _X, "neuronxcc"),
    right=Example(_ROW.format(_GRID.format("p")), _X, "neuronxcc"),
)  # fmt: skip


@_looks("neuronxcc", BROADCAST, "dma_copy", called="isa.dma_copy")
def _broadcast(form: Form) -> str:
    src = form.src
    if src.memory != HBM or len(src.shape) < 2 or src.shape[0] == 1 or src.strides[0] != 0 or src.indices:
        return ""
    return f"src is one row for {src.shape[0]} partitions"


DYNAMIC = rule(
    "dynamic-on-chip", "compiler",
    Refusal("report", "NCC_INLA001", "Dynamic Access is not allowed in the instruction", until="0.2"),
    title="a run-time offset is into hbm",
    what="an instruction other than a transfer reads or writes sbuf or psum at a run-time offset",
    why="the compilers of NKI 0.1 and 0.2 know all addresses on the chip beforehand; 0.3 has tensor_copy "
    "with .ap and scalar_offset",
    fix="load what is wanted from hbm by dma_copy with the offset, or use tensor_copy_dynamic_src",
    source="nki-moe-megakernel, common pitfalls; NKI 0.3 release notes",
    wrong=None,
    right=None,
)  # fmt: skip


@_looks("nki", DYNAMIC)
def _dynamic(form: Form) -> str:
    if form.name.startswith("tensor_copy_dynamic"):
        return ""
    for name, _, layout in form.tile_slots():
        if layout.indices and layout.memory != HBM:
            return f"{name} is in {layout.memory} at a run-time offset"
    return ""


REDUCED_SQUARE = rule(
    "square-and-sum", "compiler",
    Refusal("disputed", "NCC_IXCG864", "ISA check failed"),
    title="a square is summed by another instruction",
    what="activation_reduce computes squares and their sums at once",
    why="one report has its build refused, another one runs it on trn2; which versions and types refuse it "
    "is not known",
    fix="if the build refuses it, use nisa.activation(op=nl.square), then nisa.tensor_reduce",
    source="nki-moe-megakernel, common pitfalls; against it nki-autotune",
    wrong=_nki("total = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)",
               "nisa.activation_reduce(tile, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=total)"),
    right=_nki("total = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)",
               "nisa.activation(tile, op=nl.square, data=tile)",
               "nisa.tensor_reduce(total, op=nl.add, data=tile, axis=1)"),
)  # fmt: skip


@_looks("nki", REDUCED_SQUARE, "activation_reduce")
def _reduced_square(form: Form) -> str:
    return "squares are summed as they are computed" if form.op.name == "square" else ""


TRANSPOSE = rule(
    "dma-transpose-rank", "compiler",
    Refusal("log", build_error="source tensor must have 4 dimmensions", since="0.2", until="0.2"),
    title="in NKI 0.2 dma_transpose takes four axes",
    what="the source of dma_transpose has fewer axes than four",
    why="the documents allow two to four; the compiler of 0.2 takes four alone",
    fix="reshape the source to four axes, (rows, 1, 1, columns), or use nisa.nc_transpose",
    source="aws-neuron-sdk issue 1301",
    wrong=None,
    right=None,
)  # fmt: skip


@_looks("nki", TRANSPOSE, "dma_transpose")
def _transpose(form: Form) -> str:
    axes = len(form.src.shape)
    return f"src has {axes} axes; four are taken" if axes != 4 else ""


COPY = rule(
    "nl-copy-psum", "compiler", Refusal("documented", since="0.3", until="0.5"),
    title="before NKI 0.6 nl.copy stays within sbuf",
    what="nl.copy is given a tile in psum",
    why="it does not copy from one memory to another until 0.6",
    fix="use nisa.tensor_copy",
    source="NKI 0.3 and 0.4 release notes, known issues; NKI 0.6 release notes, nki.language.copy",
    wrong=None,
    right=None,
)  # fmt: skip


@_looks("nki", COPY, "tensor_copy", called="language.copy")
def _copy(form: Form) -> str:
    return "src is in psum" if form.src.memory == PSUM else ""


LOOP = rule(
    "device-loop-one-core", "compiler",
    Refusal("log", "NCC_IXGM002", "basic blocks, but on core 1 it has 1 basic blocks", "0.6", "0.6", (3, 4)),
    title="loops on the device run on both cores",
    what="a kernel that calls fori_loop or while_loop is launched as one program on a chip whose logical "
    "cores are two",
    why="the other core gets no program, and the compiler wants the same blocks on both; where "
    "NEURON_LOGICAL_NC_CONFIG is 1 there is no other core",
    fix="launch both cores, kernel[2](...), and let both run the loop, or set NEURON_LOGICAL_NC_CONFIG=1",
    source="aws-neuron-sdk issue 1388; notes of public kernels on trn2",
    wrong=None,
    right=None,
)  # fmt: skip
_DEVICE_LOOPS = ("language.fori_loop", "language.while_loop")


def _loops(evidence: Evidence) -> Iterator[Finding]:
    """Device loops of a kernel that runs on one of two cores."""
    scope = scope_of(evidence.kernel, evidence.sources)
    is_alone = len(evidence.tracks) == 1 and os.environ.get("NEURON_LOGICAL_NC_CONFIG") != "1"
    for node in scope.nodes() if scope is not None and is_alone else ():
        if isinstance(node, ast.Call) and scope is not None and scope.name_of(node.func) in _DEVICE_LOOPS:
            yield LOOP.finding("a loop on the device is launched on one of two cores", scope.site(node))


def find(evidence: Evidence) -> Iterator[Finding]:
    """What the build refuses of the forms that ran, once per line and rule."""
    version, generation = version_compiled(evidence.kernel), evidence.generation
    finders = [f for f in _FINDERS[evidence.kernel.spelling] if _applies(f.rule, version, generation)]
    if evidence.kernel.spelling == "nki" and _applies(LOOP, version, generation):
        yield from _loops(evidence)
    seen: set[tuple[str, Site]] = set()
    for track in evidence.tracks:
        forms = enumerate(track.program.forms)
        for numbered, finder in product(forms, finders):
            yield from _findings(evidence, track, numbered, finder, seen)


def _applies(own_rule: Rule, version: str, generation: int) -> bool:
    return own_rule.refusal is not None and own_rule.refusal.applies(version, generation)


def _findings(
    evidence: Evidence,
    track: Track,
    numbered: tuple[int, Instruction],
    finder: _Finder,
    seen: set[tuple[str, Site]],
) -> Iterator[Finding]:
    number, form = numbered
    is_looked_at = form.name in finder.names if finder.names else form.name not in _DMA
    problem = finder.look(form) if is_looked_at else ""
    rows = np.flatnonzero(track.program.form_column == number) if problem else ()
    for row in rows:
        site = track.site(int(row))
        is_new = (finder.rule.id, site) not in seen
        seen.add((finder.rule.id, site))
        if is_new and (not finder.called or finder.called in _called_on(evidence, site)):
            yield finder.rule.finding(f"{form.name}: {problem}", site)


def _called_on(evidence: Evidence, site: Site) -> Collection[str]:
    """The names of NKI, below `nki`, that a line calls."""
    source = evidence.sources.file(site.file).source
    if source is None:
        return ()
    calls = (node for node in source.nodes(ast.Call) if node.lineno <= site.line <= (node.end_lineno or 0))
    resolved = (source.resolve(call.func) for call in calls)
    return {called[1] for called in resolved if called is not None}
