"""Loops on the device: what may stand in their bodies, and who runs them."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ..dialects.grammar import LAST_PARSED
from ..migrate.source import Function, names_in
from ..tiles.tile import PSUM
from .declare import COPIED, SCALED, Example, Refusal, rule
from .evidence import Evidence, Track
from .finding import Finding, once
from .front_end import bound_to, root_of
from .scope import Scope, scope_of
from .text_rules import Place, text_rule

_TRN1 = ("--target", "trn1")
_DEVICE_LOOPS = ("language.fori_loop", "language.while_loop")

_NESTED = """
for i in nl.{}(2):
    for j in nl.dynamic_range(3):
        nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=2.0)
"""
_DYNAMIC = "language.dynamic_range"


@text_rule("nki", "nested-dynamic-range",
    Refusal("documented", build_error="Could not find register", since="0.4", until="0.5"),
    title="loops on the device stand beside each other",
    what="a dynamic_range loop stands in another one, and carries a value from iteration to iteration",
    why="the compiler loses the register of the outer loop",
    fix="use nl.affine_range or nl.static_range for the outer loop",
    source="NKI 0.4 and 0.5 release notes, known issues; aws-neuron-sdk issue 1346: repaired in 0.6",
    kernel=COPIED.around(_NESTED), wrong="dynamic_range", right="static_range", options=("--nki", "0.4"),
)  # fmt: skip
def _nested_loops(scope: Scope) -> Iterator[Place]:
    loops = scope.loops_over(_DYNAMIC)
    for loop in loops:
        outer = next((a for a in scope.source.around(loop) if a in loops), None)
        carried = _carried(loop, outer) if isinstance(outer, ast.For) else ""
        if carried:
            yield loop, f"a dynamic_range loop stands in another one and carries {carried}", ""


@text_rule("nki", "nested-device-loop",
    Refusal("log", "", "operand #3 does not dominate this use", "0.6", "0.6", (2,)),
    title="on trn1 loops whose bounds are registers stand beside each other",
    what="a dynamic_range loop stands in another one, and a bound of it is no number, on trn1",
    why="the register of the inner bound is not known where the outer loop begins",
    fix="use nl.static_range for one of the two, or give the inner one numbers",
    source="public kernels, NKI 0.6 on trn1; loops of numbers nest, aws-neuron-sdk issue 1346",
    kernel=COPIED.around("trips = nisa.register_alloc(2)\n" + _NESTED.replace("(3)", "(trips)")),
    wrong="dynamic_range", right="static_range", options=_TRN1,
)  # fmt: skip
def _nested_registers(scope: Scope) -> Iterator[Place]:
    loops = scope.loops_over(_DYNAMIC)
    for loop in loops:
        bounds = loop.iter.args if isinstance(loop.iter, ast.Call) else []
        if any(a in loops for a in scope.source.around(loop)) and not all(
            isinstance(b, ast.Constant) for b in bounds
        ):
            yield loop, "a loop on the device whose bound is a register stands in another one", ""


def _carried(loop: ast.For, outer: ast.For) -> str:
    """A name from before the outer loop that a call in the inner one both writes and reads, or ""."""
    own = names_in(outer, stored=True)
    for call in (n for n in ast.walk(loop) if isinstance(n, ast.Call)):
        written = next(
            (k.value for k in call.keywords if k.arg == "dst"), call.args[0] if call.args else None
        )
        rest = [a for a in (*call.args, *(k.value for k in call.keywords)) if a is not written]
        root = root_of(written)
        if root and root not in own and root in map(root_of, rest):
            return root
    return ""


_DOUBLED = SCALED.format("2.0")


@text_rule("nki", "loop-register-branch", Refusal("documented", since="0.3", until=LAST_PARSED),
    title="Python asks nothing of registers",
    what="an if, a comparison, an assert or a conditional expression asks for the value of a register: of "
    "nisa.register_alloc, or the variable of a loop on the device",
    why="its number is the chip's: Python compares the register itself, and takes one branch",
    fix="use nl.static_range, or split the iteration off the loop; while takes a register by itself",
    source="dynamic loops guide, hardware lowering: no host-side Python expressions; language guide, what a "
    "VirtualRegister is for; nki.isa.VirtualRegister",
    kernel=f"for i in nl.{{}}(3):\n    if i == 0:\n        {_DOUBLED}", options=_TRN1,
    wrong="dynamic_range", right="static_range",
)  # fmt: skip
def _branches(scope: Scope) -> Iterator[Place]:
    registers = _registers(scope)
    tests = (
        (name, node) for node in scope.nodes() if not isinstance(node, ast.While) for name in _asked(node)
    )
    known = [pair for pair in tests if (scope.source.function_of(pair[1]), pair[0]) in registers]
    for name, node in (*(pair for pair in _in_loops(scope) if pair[0] in _asked(pair[1])), *known):
        yield node, f"the value of {name} is asked for, which is a register of the chip", ""


def _registers(scope: Scope) -> set[tuple[Function | None, str]]:
    """Names of functions that stand for registers: of register_alloc, and of bodies of loops."""
    allocated = bound_to(scope, ("isa.register_alloc",)).items()
    bodies = [b for b in _bodies(scope, *_DEVICE_LOOPS) if b.args.args]
    return {
        *((scope.source.function_of(call), name) for name, call in allocated),
        *((body, body.args.args[0].arg) for body in bodies),
    }


def _in_loops(scope: Scope) -> Iterator[tuple[str, ast.AST]]:
    """What stands in dynamic_range loops, each with the name of the loop's variable."""
    for loop in scope.loops_over(_DYNAMIC):
        name = loop.target.id if isinstance(loop.target, ast.Name) else ""
        yield from ((name, node) for node in ast.walk(loop))


def _asked(node: ast.AST) -> list[str]:
    """The names whose value a comparison or a test asks for."""
    if isinstance(node, ast.Compare):
        if isinstance(node.ops[0], ast.Is | ast.IsNot):
            return []
        sides: list[ast.expr] = [node.left, *node.comparators]
    else:
        test = getattr(node, "test", None)
        sides = [test] if isinstance(test, ast.expr) else []
    return [side.id for side in sides if isinstance(side, ast.Name)]


@text_rule("nki", "loop-register-scope", Refusal("documented", since="0.3", until="0.3", milder="note"),
    title="in NKI 0.3 the body of a loop on the device keeps to itself",
    what="a kernel has a dynamic_range loop",
    why="accesses of the body that overlap those before the loop are not ordered on the chip",
    fix="use nl.static_range, or NKI 0.4", source="NKI 0.4 release notes, bug fixes",
    kernel=f"for i in nl.{{}}(3):\n    {_DOUBLED}", options=("--nki", "0.3", "--target", "trn1"),
    wrong="dynamic_range", right="static_range",
)  # fmt: skip
def _scopes(scope: Scope) -> Iterator[Place]:
    yield from ((loop, "accesses before the loop may come late", "") for loop in scope.loops_over(_DYNAMIC))


_COUNTED = """
tiles: tile f32[32,512] sbuf; out f32[32,512] hbm < tile
for i in nl.dynamic_range(0, 128, 32):
    nisa.dma_copy(tile, x.ap([[512, 32], [1, 512]], scalar_offset=i, indirect_dim=0))
"""


@text_rule("nki", "loop-register-offset", Refusal("documented", since="0.3", until="0.3"),
    title="in NKI 0.3 offsets are registers that the kernel allocates",
    what="scalar_offset= is the variable of a dynamic_range loop",
    why="the variable is a bare scalar there, which no index takes",
    fix="count in a register of nisa.register_alloc, or use NKI 0.4",
    source="NKI 0.3 release notes, known issues; NKI 0.4 release notes, bug fixes",
    wrong=Example(_COUNTED, COPIED.args, options=("--nki", "0.3")),
    right=Example(_COUNTED, COPIED.args, options=("--nki", "0.4")),
)  # fmt: skip
def _inductions(scope: Scope) -> Iterator[Place]:
    for name, node in _in_loops(scope):
        if isinstance(node, ast.keyword) and node.arg == "scalar_offset" and root_of(node.value) == name:
            yield node.value, f"scalar_offset is {name}, the variable of the loop", ""


_SLICED = """
part = nl.ndarray((1, 512), nl.float32, buffer=nl.sbuf)

def body(i):
    nisa.dma_copy(part, {})

nl.fori_loop(0, 3, body)
"""


@text_rule("nki", "register-subscript", Refusal("report", since="0.6", until="0.6"),
    title="registers are no subscripts",
    what="a subscript is the register that fori_loop or while_loop gives its body, or one of register_alloc; "
    "or that of a list of Python's is the variable of dynamic_range",
    why="the compiler leaves the axis as it is: shapes do not agree, or all of the axis is moved",
    fix="use x.select(dim, i), or x.ap(..., scalar_offset=i, indirect_dim=...)",
    source="public notes of an attention kernel with paged latents, NKI 0.6; nki.language.fori_loop",
    kernel=COPIED.around(_SLICED), wrong="x[i]", right="x.select(0, i).reshape((1, 512))", options=_TRN1,
)  # fmt: skip
def _subscripts(scope: Scope) -> Iterator[Place]:
    names = _registers(scope)
    places = (n.slice for n in scope.of(ast.Subscript))
    keys = (key for place in places for key in (place.elts if isinstance(place, ast.Tuple) else [place]))
    for key in keys:
        if isinstance(key, ast.Name) and (scope.source.function_of(key), key.id) in names:
            yield key, f"{key.id}, a register, is a subscript", ""
    lists = {n.id for a in scope.of(ast.Assign) if isinstance(a.value, ast.List | ast.Tuple | ast.Dict)
             for n in a.targets if isinstance(n, ast.Name)}  # fmt: skip
    for name, node in ((name, node) for name, node in _in_loops(scope) if isinstance(node, ast.Subscript)):
        if names_in(node.slice) == {name} and names_in(node.value) <= lists:
            yield node, f"{name}, a register, is a subscript of a list of Python's", ""


@text_rule("nki", "loop-body-result", Refusal("documented", since="0.6", until="0.6"),
    title="the body of a counted loop returns nothing",
    what="the function that fori_loop is given returns a value",
    why="the body is one block of the device, which has no result",
    fix="write into a tile that is made before the loop",
    source="NKI 0.6 migration guide, rules for migrated loops",
    kernel=f"def body(i):\n    {_DOUBLED}\n{{}}\nnl.fori_loop(0, 3, body)", options=_TRN1,
    wrong="    return i\n", right="",
)  # fmt: skip
def _results(scope: Scope) -> Iterator[Place]:
    for body, node in ((b, n) for b in _bodies(scope, "language.fori_loop") for n in ast.walk(b)):
        if isinstance(node, ast.Return) and node.value is not None:
            yield node, f"{body.name} returns a value, and is the body of a loop", ""


_GROWS = ("append", "extend", "insert", "update", "setdefault")


@text_rule("nki", "loop-body-tile", Refusal("documented", since="0.6", until="0.6"),
    title="tiles of a loop's body stay within it",
    what="the body of fori_loop or while_loop puts what it makes into a list or dictionary of the kernel",
    why="what a body makes is the device's of one iteration: after the loop there is no such tensor",
    fix="make the tile before the loop, and write into it",
    source="NKI 0.6 migration guide, rules for migrated loops",
    wrong="tiles = {}\n\ndef body(i):\n    own = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)\n"
          "    nisa.tensor_copy(own, tile)\n    tiles['last'] = own\n\nnl.fori_loop(0, 3, body)",
    right=f"def body(i):\n    {_DOUBLED}\n\nnl.fori_loop(0, 3, body)", options=_TRN1,
)  # fmt: skip
def _tiles(scope: Scope) -> Iterator[Place]:
    displays = [n for n in scope.of(ast.Assign) if isinstance(n.value, ast.List | ast.Dict)]
    containers = {t.id for n in displays for t in n.targets if isinstance(t, ast.Name)}
    for body, statement in ((b, n) for b in _bodies(scope, *_DEVICE_LOOPS) for n in ast.walk(b)):
        container, values = _kept(statement)
        stored = names_in(body, stored=True)
        names = {name for one in values for name in names_in(one)} & stored
        if names and container in containers - stored:
            yield statement, f"{container} keeps {min(names)}, which the body of a loop makes", ""


def _kept(node: ast.AST) -> tuple[str, list[ast.expr]]:
    """The name of what an assignment or a call may put values into, and the values."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        return root_of(node.targets[0]), [node.value]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROWS:
        return root_of(node.func.value), node.args
    return "", []


_GATHERED = """
tiles: rows i32[32,1] sbuf < chosen; tile f32[32,64] sbuf; out f32[32,64] hbm < tile
nisa.memset(tile, 0.0)

def body(i):
    nisa.dma_copy(tile, x.ap([[64, 32], [1, 64]], vector_offset=rows, indirect_dim=0){})

nl.fori_loop(0, 2, body)
"""


@text_rule("nki", "skip-in-device-loop",
    Refusal("report", "NCC_IGCA103", "Cannot spill memorylocation defined by DMA skipping inside of loop",
            "0.6", "0.6"), title="transfers in a loop on the device skip nothing",
    what="a transfer in the body of a loop on the device is given oob_mode.skip",
    why="the allocator cannot spill what such a transfer may leave as it was",
    fix="clamp the indices to the tensor, or unroll the loop",
    source="public kernels of a mixture of experts, NKI 0.6 on trn1 and trn2",
    kernel=Example(_GATHERED, {"x": "f32[128,64]", "chosen": "i32[32,1]"}, options=_TRN1),
    wrong=", oob_mode=nisa.oob_mode.skip", right="",
)  # fmt: skip
def _skips(scope: Scope) -> Iterator[Place]:
    blocks = (*scope.loops_over(_DYNAMIC), *_bodies(scope, *_DEVICE_LOOPS))
    for node in (n for block in blocks for n in ast.walk(block)):
        if isinstance(node, ast.keyword) and scope.words(node.value).endswith("oob_mode.skip"):
            yield node.value, "a transfer that may skip stands in a loop on the device", ""


def _bodies(scope: Scope, *loops: str) -> list[ast.FunctionDef]:
    """The functions that some kinds of loops on the device are given."""
    passed = (a for n in scope.calls(*loops) for a in (*n.args, *(k.value for k in n.keywords)))
    names = {a.id for a in passed if isinstance(a, ast.Name)}
    return [f for f in scope.source.functions if isinstance(f, ast.FunctionDef) and f.name in names]


_EACH = Example("""
tiles: tile f32[128,512] sbuf < x; out f32[2,128,512] hbm
{}
nisa.dma_copy(out[nl.program_id(0)], tile)
""", COPIED.args, grid="2")  # fmt: skip
_TWICE = "    " + SCALED.format("2.0")
_BY_FUNCTION = ("def body(i):", _TWICE, "nl.fori_loop(0, 3, body)")
_NEW = ("--nki", "0.6")


@text_rule("nki", "device-loop-uneven",
    Refusal("documented", since="0.3", until="0.6", generations=(3, 4), milder="warning"),
    title="both cores run a loop on the device equally often",
    what="a bound of dynamic_range or fori_loop is computed from nl.program_id",
    why="the cores of a logical core run one control flow: otherwise they may wait for each other for ever",
    fix="let both cores run as often, and do nothing in the iterations that one of them has too many",
    source="NKI 0.3 release notes, known issues, multi-core",
    kernel=_EACH, wrong=("for i in nl.dynamic_range(1 + nl.program_id(0)):", _TWICE),
    right=("for i in nl.dynamic_range(2):", _TWICE), options=("--nki", "0.5"),
)  # fmt: skip
def _uneven(scope: Scope) -> Iterator[Place]:
    of_core: set[str] = set()
    for node in scope.of(ast.Assign):
        if isinstance(node.targets[0], ast.Name) and _is_of_core(scope, node.value, of_core):
            of_core.add(node.targets[0].id)
    for call in scope.calls(_DYNAMIC, "language.fori_loop"):
        if any(_is_of_core(scope, argument, of_core) for argument in call.args):
            yield call, "how often the loop runs depends on the core", ""


def _is_of_core(scope: Scope, node: ast.expr, names: set[str]) -> bool:
    """Whether an expression is computed from the number of the core, or from one of these names."""
    parts = [n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Call)]
    calls = (scope.name_of(n.func) for n in parts if isinstance(n, ast.Call))
    return "language.program_id" in calls or any(isinstance(n, ast.Name) and n.id in names for n in parts)


LOOP = rule("device-loop-one-core", "compiler",
    Refusal("log", "NCC_IXGM002", "basic blocks, but on core 1 it has 1 basic blocks", "0.6", "0.6", (3, 4)),
    title="loops on the device run on both cores",
    what="a kernel that calls fori_loop or while_loop is one program on a chip of logical cores of two",
    why="the other core gets no program, and the compiler wants the same blocks on both; where "
    "NEURON_LOGICAL_NC_CONFIG is 1 there is no other core",
    fix="launch both cores, as kernel[2], and let both run the loop, or set NEURON_LOGICAL_NC_CONFIG=1",
    source="aws-neuron-sdk issue 1388; notes of public kernels on trn2",
    wrong=replace(_EACH, body=_EACH.body.replace("[2,", "[1,"), grid="1").around(_BY_FUNCTION, options=_NEW),
    right=_EACH.around(_BY_FUNCTION, options=_NEW),
)  # fmt: skip


_SUMMED = """
left, right = nl.load(a), nl.load(b)
tiles: result f32[128,512] sbuf; out f32[128,512] hbm < result; total f32[128,512] psum

def body(i):
    {}nisa.nc_matmul(total, left, right)
    nisa.tensor_copy(result, total)

nl.fori_loop(0, 3, body)
"""
BANK = rule("psum-into-device-loop", "compiler",
    Refusal("log", "NCC_IBIR092", "Live-in/Live-out MemoryLocation not allocated to MemoryType: DRAM", "0.6"),
    title="sums of a loop on the device are made in it",
    what="TensorE writes a tile of psum in a loop on the device that does not make it, or in two such loops",
    why="what lives on both sides of such a loop is in memory; tiles of sbuf may, sums in psum may not",
    fix="make the tile in psum in the body of the loop",
    source="public kernels with loops on the device, and their probe, NKI 0.6",
    kernel=Example(_SUMMED, {"a": "bf16[128,128]", "b": "bf16[128,512]"}, options=_TRN1),
    wrong="", right="total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)\n    ",
)  # fmt: skip


def find(evidence: Evidence) -> Iterator[Finding]:
    """What loops on the device may not do, as a run shows it."""
    if evidence.kernel.spelling != "nki":
        return
    for track in evidence.tracks if evidence.refuses(BANK) else ():
        yield from once(_of_program(track))
    yield from _on_one_core(evidence)


def _of_program(track: Track) -> Iterator[Finding]:
    """Sums that lie on both sides of a loop on the device."""
    program, marks = track.program, track.marks
    dynamic = {loop for loop, kind in marks.loops.items() if kind == "dynamic"}
    if not dynamic:
        return
    around = [tuple(loop for loop, _ in loops if loop in dynamic) for loops in track.loops_of_position]
    slots, loops_of = track.slots, dict[int, set[int]]()
    for slot in np.flatnonzero(slots.kinds.lie_in(PSUM)[slots.storage]).tolist():
        row, storage = int(slots.row[slot]), int(slots.storage[slot])
        outer = set(around[program.position_of(row)]) - set(around[marks.births[storage]])
        loops_of.setdefault(storage, set()).update(outer)
        is_sum = bool(slots.is_written[slot]) and program.form_of(row).accumulates
        if outer and (is_sum or len(loops_of[storage]) > 1):
            word = "writes" if is_sum else "uses"
            message = f"{track.called(row)} {word} {track.describe(storage)} in a loop on the device"
            yield track.finding(BANK, message, row, storage)


def _on_one_core(evidence: Evidence) -> Iterator[Finding]:
    """Device loops of a kernel that runs on one of two cores."""
    scope = scope_of(evidence.kernel, evidence.sources)
    if scope is None or not evidence.refuses(LOOP):
        return
    is_alone = len(evidence.tracks) == 1 and os.environ.get("NEURON_LOGICAL_NC_CONFIG") != "1"
    for node in scope.calls(*_DEVICE_LOOPS) if is_alone else ():
        yield LOOP.finding("a loop on the device is launched on one of two cores", scope.site(node))
