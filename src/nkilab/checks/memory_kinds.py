"""What builds take of tensors where they lie: arguments, results, scratch, tiles of PSUM, collectives."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ..dialects.annotations import is_mutable
from ..dialects.grammar import LAST_PARSED
from ..tiles.tile import HBM, PSUM
from .declare import COPIED, RULES, Example, Refusal, rule
from .evidence import Evidence, Track
from .finding import Finding, once
from .operand_forms import called_on

_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute",
                "collective_permute_implicit_reduce")  # fmt: skip
_COLLECTIVE = """
core = {0}
tiles: given f32[{1},128,512] {3}{4}; summed f32[{1},128,512] hbm, name="summed"; out f32[{1},128,512] hbm
nisa.dma_copy(given[core], x)
{2}
{5}ncc.all_reduce([given], [summed], ncc.ReplicaGroup([[0]]), nl.add)
nisa.dma_copy(out[core], summed[core])
"""
_CORES = ("nl.program_id(0)", 2, "nisa.core_barrier(given, (0, 1))")


def _collective(buffer: str, name: str = ', name="given"', loop: str = "", is_alone: bool = False) -> Example:
    body = _COLLECTIVE.format(*(("0", 1, "") if is_alone else _CORES), buffer, name, loop)
    grid, above = "" if is_alone else "2", "import nki.collectives as ncc"
    return Example(body, COPIED.args, grid=grid, above=above, options=("--nki", "0.6"))


NAMES = rule("collective-tensors", "compiler",
    Refusal("log", "NCC_IBIR440", "DRAM allocation failure", "0.3", LAST_PARSED),
    title="collectives take tensors of the kernel that have names",
    what="a collective is given an argument or a result of the kernel, or a tensor in hbm without name=",
    why="a collective cannot read or write what the kernel is given or returns (NCC_INLA001), and its "
    "tensors are allocated by their names",
    fix="copy to and from an nl.ndarray(..., buffer=nl.shared_hbm, name=...)",
    source="nki-library, collectives and their tests; public kernels on many ranks, NKI 0.6",
    wrong=_collective("shared_hbm", ""), right=_collective("shared_hbm"),
)  # fmt: skip
KINDS = rule("collective-memories", "compiler", Refusal("report", since="0.6", until=LAST_PARSED),
    title="the tensors of a collective are of one kind of memory",
    what="a collective is given tensors of nl.private_hbm and of nl.shared_hbm",
    why="the build ends with an internal error that names something else",
    fix="make both by buffer=nl.shared_hbm", source="public kernels on many ranks, NKI 0.6",
    wrong=_collective("private_hbm", is_alone=True), right=_collective("shared_hbm"),
)  # fmt: skip
LOOPED = rule("collective-in-device-loop", "compiler", Refusal("report", since="0.6", until=LAST_PARSED),
    title="collectives stand outside of loops on the device",
    what="a collective runs in dynamic_range, fori_loop or while_loop",
    why="the compiler takes no collective in a loop whose iterations it does not see",
    fix="use nl.static_range, up to the most iterations there may be, and mask what is too much",
    source="public kernels of context-parallel attention on trn2, neuronx-cc 2.27",
    wrong=_collective("shared_hbm", loop="for i in nl.dynamic_range(1):\n    "),
    right=_collective("shared_hbm", loop="for i in nl.static_range(1):\n    "),
)  # fmt: skip
ONE_CORE = rule("collective-one-core", "compiler",
    Refusal("disputed", "NCC_ILLC059", "Could not find MemoryLocation", "0.4", LAST_PARSED, (3, 4)),
    title="collectives run on both cores",
    what="a kernel with a collective is one program on a chip of logical cores of two",
    why="the tensors of a collective lie on both cores where logical cores are two, and on one here; where "
    "NEURON_LOGICAL_NC_CONFIG is 1 there is no other core",
    fix="launch both cores, as kernel[2], or set NEURON_LOGICAL_NC_CONFIG=1",
    source="public kernels on many ranks, NKI 0.4 and 0.6; builds for one core per rank take it",
    wrong=_collective("shared_hbm", is_alone=True), right=_collective("shared_hbm"),
)  # fmt: skip
_TILES = """
tiles: given f32[128,512] sbuf < x; summed f32[128,512] sbuf; out f32[2,128,512] hbm
ncc.all_reduce([given], [summed], ncc.ReplicaGroup([[0]]), nl.add)
nisa.dma_copy(out[nl.program_id(0)], summed)
"""
ON_CHIP = rule("collective-on-chip", "compiler", Refusal("disputed", "NCC_ILLC059", since="0.3"),
    title="collectives of two cores run in hbm",
    what="a collective of a kernel on both cores takes tiles in sbuf",
    why="one report has the build fail; the pages of the collectives take tiles in sbuf",
    fix="if the build refuses it, copy them to tensors in shared_hbm",
    source="microbenchmarks of collectives on trn2; against it nki.collectives",
    wrong=replace(_collective("sbuf"), body=_TILES), right=_collective("shared_hbm"),
)  # fmt: skip

_ARGS = {**COPIED.args, "y: nt.mutable_tensor": "f32[128,512]"}
_MUTABLE, _STORES = Example(COPIED.body, _ARGS, above="import nki.typing as nt"), "nisa.dma_copy(y, tile)"
STORED = rule("mutable-unstored", "compiler",
    Refusal("report", "NCC_IGCA090", "mutable_tensor must have at least one store", "0.3", LAST_PARSED),
    title="a kernel stores to what it may write",
    what="nothing is stored to a parameter that is annotated as nt.mutable_tensor",
    why="the compiler takes the tensor for a result, which has no value then",
    fix="store to it, or annotate it as nt.tensor",
    source="nki-library, router_topk: skip_store_router_logits", kernel=_MUTABLE, wrong="", right=_STORES,
)  # fmt: skip

_SCRATCH = "kept = nl.ndarray((128, 512), nl.float32, buffer=nl.{})\nnisa.dma_copy(kept, tile)\n" \
           "nisa.dma_copy(tile, kept)"  # fmt: skip
SHARED = rule("shared-scratch", "compiler",
    Refusal("disputed", "", "Shared memory is only supported on trn2", "0.3", LAST_PARSED, (2,)),
    title="on trn1 scratch lies in private memory",
    what="a kernel for trn1 makes a tensor in nl.shared_hbm that it does not return",
    why="one port and one issue have the build refused, as cores of trn1 share none; others run there",
    fix="if the build refuses it, use buffer=nl.private_hbm",
    source="a port of Qwen 3.6 to trn1; aws-neuron-sdk issue 1311; against them public probes on trn1",
    kernel=COPIED.around(_SCRATCH), wrong="shared_hbm", right="private_hbm", options=("--target", "trn1"),
)  # fmt: skip
WORDS = rule("psum-type", "compiler",
    Refusal("log", "", "Cannot create non-FP32 PSUM tensor in CoreV2", "0.2", generations=(2,)),
    title="on trn1 tiles of psum are float32",
    what="a kernel for trn1 makes a tile in nl.psum of another type than float32",
    why="TensorE of trn1 writes float32 alone, transposes too",
    fix="make the tile float32, and cast where it is copied to sbuf",
    source="a port of attention_cte to trn1; nki-library, types of its transposes by generation",
    kernel="tiles: half {}[128,512] psum\nnisa.tensor_copy(half, tile)\nnisa.tensor_copy(tile, half)",
    wrong="bf16", right="f32", options=("--target", "trn1"),
)  # fmt: skip
AXES = rule("one-axis-tile", "compiler",
    Refusal("log", "", "SBUF and PSUM tensors must have at least 2 dimensions", "0.6", LAST_PARSED),
    title="tiles have an axis of partitions and one of elements",
    what="a kernel makes a tile in sbuf or psum of one axis",
    why="the front end of 0.6 asks for two, though a page of NKI shows a tile of one",
    fix="write (N, 1), or (1, N)",
    source="logs of kernels that a model wrote, NKI 0.6; against it nki.isa.sequence_bounds",
    kernel="row = nl.ndarray({}, nl.float32, buffer=nl.sbuf)\nnisa.memset(row, 0.0)",
    wrong="(128,)", right="(128, 1)",
)  # fmt: skip
_KEPT = "\nkept = nl.ndarray((128, 512), nl.float32, buffer=nl.private_hbm)\n" \
        "nisa.dma_copy(kept, tile{0})\nnisa.dma_copy(tile, kept{0})"  # fmt: skip
UNORDERED = rule("descriptors-unordered", "compiler", Refusal("disputed", since="0.3"),
    title="what is stored to scratch and loaded again has descriptors made as it runs",
    what="a transfer with dge_mode.none stores to a tensor in hbm that the kernel loads again",
    why="its descriptors lie ready beside the program, and one report has the load come first, now and then, "
    "without a word; the framework orders the two otherwise",
    fix="leave dge_mode out", source="kernels of top-k on trn2, comment at their stores",
    kernel=_KEPT, wrong=", dge_mode=nisa.dge_mode.none", right="",
)  # fmt: skip
WRITTEN = rule(
    "argument-unreturned", "compiler", Refusal("report", since="0.2", until=LAST_PARSED, milder="note"),
    title="a kernel returns what it writes",
    what="a kernel stores to an argument that it neither returns nor annotates as nt.mutable_tensor",
    why="a graph of a framework sees results alone: after the call the argument holds what it held before",
    fix="return the argument beside the results",
    source="notes on debugging kernels of attention_block_tkg, trn2",
    wrong=Example(COPIED.body, {**COPIED.args, "y": "f32[128,512]"}).around(_STORES),
    right=_MUTABLE.around(_STORES),
)  # fmt: skip


def find(evidence: Evidence) -> Iterator[Finding]:
    """Tensors that a build does not take where they are, once per line and rule."""
    if evidence.kernel.spelling != "nki":
        return
    for track in evidence.tracks:
        findings = (
            *_of_collectives(evidence, track), *_arguments(evidence, track), *_scratch(track),
            *_types(evidence, track), *_unordered(track),
        )  # fmt: skip
        yield from once(f for f in findings if evidence.refuses(RULES[f.rule]))


def _of_collectives(evidence: Evidence, track: Track) -> Iterator[Finding]:
    program, loops = track.program, track.marks.loops
    numbers = [n for n, form in enumerate(program.forms) if form.name in _COLLECTIVES]
    is_alone = len(evidence.tracks) == 1 and os.environ.get("NEURON_LOGICAL_NC_CONFIG") != "1"
    for row in np.flatnonzero(np.isin(program.form_column, numbers)).tolist() if numbers else ():
        lie_in_hbm = {a.storage: program.storages[a.storage].memory == HBM for a in program.accesses(row)}
        operands = {storage for storage, lies_there in lie_in_hbm.items() if lies_there}
        site, called = track.site(row), track.called(row)
        for number, said in ((n, said) for n in sorted(operands) if (said := _unfit(track, n))):
            yield NAMES.finding(f"{track.name(number)}, which {called} takes, {said}", site)
        if len({program.storages[n].scope == "private" for n in operands}) > 1:
            yield KINDS.finding(f"{called} takes private and shared tensors", site)
        around = track.loops_of_position[program.position_of(row)]
        if any(loops[loop] == "dynamic" for loop, _ in around):
            yield LOOPED.finding(f"{called} runs in a loop on the device", site)
        if len(evidence.tracks) > 1 and len(operands) < len(lie_in_hbm):
            yield ON_CHIP.finding(f"{called} takes tiles in sbuf", site)
        if is_alone:
            yield ONE_CORE.finding(f"{called} runs on one of two cores", site)


def _unfit(track: Track, number: int) -> str:
    """Why a collective does not take a tensor, or ""."""
    record = track.program.storages[number]
    if record.scope == "input":
        return "is an argument of the kernel"
    is_returned = number in {r.storage for r in track.marks.returned}
    return "is what the kernel returns" if is_returned else "" if record.name else "has no name="


def _arguments(evidence: Evidence, track: Track) -> Iterator[Finding]:
    """Arguments that are to be written and are not, or are written and not handed on."""
    written = set(track.slots.storage[track.slots.is_written].tolist())
    returned = {r.storage for r in track.marks.returned}
    for number, record in enumerate(track.program.storages):
        is_result = is_mutable(evidence.kernel.function, record.name)
        if record.scope == "input" and is_result and number not in written:
            yield STORED.finding(f"nothing is stored to {record.name}, a mutable tensor", evidence.definition)
        if record.scope == "input" and not is_result and number in written - returned:
            yield WRITTEN.finding(f"{record.name} is written, and not returned", evidence.definition)


def _scratch(track: Track) -> Iterator[Finding]:
    returned = {r.storage for r in track.marks.returned}
    for number, record in enumerate(track.program.storages):
        is_shared = record.memory == HBM and record.scope not in ("input", "private")
        if is_shared and number not in returned:
            words = f"{track.describe(number)} is shared, and not returned"
            yield SHARED.finding(words, track.birthplace(number))


def _types(evidence: Evidence, track: Track) -> Iterator[Finding]:
    """Tiles that the kernel makes itself: of PSUM of another type than float32, and of one axis."""
    for number, record in enumerate(track.program.storages):
        is_half = record.memory == PSUM and record.dtype.name != "float32"
        is_row = record.memory != HBM and len(record.shape) == 1
        pairs = ((WORDS, "is not float32", is_half), (AXES, "has one axis", is_row))
        broken = [(limit, said) for limit, said, is_so in pairs if is_so]
        place = track.birthplace
        if broken and called_on(evidence, place(number)) & {"language.ndarray", "language.zeros"}:
            yield from (r.finding(f"{track.describe(number)} {said}", place(number)) for r, said in broken)


def _unordered(track: Track) -> Iterator[Finding]:
    """Stores to scratch whose descriptors are ready beforehand."""
    slots, forms = track.slots, track.program.forms
    loaded = set(slots.storage[~slots.is_written].tolist())
    for slot in np.flatnonzero(slots.is_written & slots.kinds.lie_in(HBM)[slots.storage]).tolist():
        row, storage = int(slots.row[slot]), int(slots.storage[slot])
        form = forms[int(track.program.form_column[row])]
        if storage in loaded and getattr(form, "dge_mode", "") == "none":
            yield track.finding(UNORDERED, f"{track.name(storage)} is loaded again", row, storage)
