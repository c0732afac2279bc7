"""Which tensors in HBM builds take where: arguments, results, scratch, and those of collectives."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..dialects.annotations import is_mutable
from ..dialects.grammar import LAST_PARSED
from ..tiles.tile import HBM
from .declare import COPIED, Example, Refusal, rule
from .evidence import Evidence, Track
from .finding import Finding, once

_COLLECTIVES = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute",
    "collective_permute_implicit_reduce",
)  # fmt: skip
_COLLECTIVE = """
tiles: given f32[128,512] {0}{1} < x; summed f32[128,512] hbm, name="summed"
tiles: out f32[128,512] hbm < summed
ncc.all_reduce([given], [summed], ncc.ReplicaGroup([[0]]), nl.add)
"""


def _collective(buffer: str, name: str) -> Example:
    return Example(
        _COLLECTIVE.format(buffer, name), COPIED.args, above="import nki.collectives as ncc",
        options=("--nki", "0.6"),
    )  # fmt: skip


NAMES = rule(
    "collective-tensors", "compiler",
    Refusal("log", "NCC_IBIR440", "DRAM allocation failure", "0.3", LAST_PARSED),
    title="collectives take tensors of the kernel that have names",
    what="a collective is given an argument or a result of the kernel, or a tensor in hbm without name=",
    why="a collective cannot read or write what the kernel is given or returns (NCC_INLA001), and its "
    "tensors are allocated by their names",
    fix="copy to and from an nl.ndarray(..., buffer=nl.shared_hbm, name=...)",
    source="nki-library, collectives and their tests; public kernels on many ranks, NKI 0.6",
    wrong=_collective("shared_hbm", ""), right=_collective("shared_hbm", ', name="given"'),
)  # fmt: skip
KINDS = rule(
    "collective-memories", "compiler", Refusal("report", since="0.6", until=LAST_PARSED),
    title="the tensors of a collective are of one kind of memory",
    what="a collective is given tensors of nl.private_hbm and of nl.shared_hbm",
    why="the build ends with an internal error that names something else",
    fix="make both by buffer=nl.shared_hbm",
    source="public kernels on many ranks, NKI 0.6",
    wrong=_collective("private_hbm", ', name="given"'), right=_collective("shared_hbm", ', name="given"'),
)  # fmt: skip

STORED = rule(
    "mutable-unstored", "compiler",
    Refusal("report", "NCC_IGCA090", "mutable_tensor must have at least one store", "0.3", LAST_PARSED),
    title="a kernel stores to what it may write",
    what="nothing is stored to a parameter that is annotated as nt.mutable_tensor",
    why="the compiler takes the tensor for a result, which has no value then",
    fix="store to it, or annotate it as nt.tensor",
    source="nki-library, router_topk: skip_store_router_logits",
    wrong=Example(COPIED.body.format(""), {"x": "f32[128,512]", "y: nt.mutable_tensor": "f32[128,512]"},
                  above="import nki.typing as nt"),
    right=Example(COPIED.body.format("nisa.dma_copy(y, tile)"),
                  {"x": "f32[128,512]", "y: nt.mutable_tensor": "f32[128,512]"},
                  above="import nki.typing as nt"),
)  # fmt: skip

_SCRATCH = "kept = nl.ndarray((128, 512), nl.float32, buffer=nl.{})\nnisa.dma_copy(kept, tile)\n" \
           "nisa.dma_copy(tile, kept)"  # fmt: skip
SHARED = rule(
    "shared-scratch", "compiler",
    Refusal("disputed", "", "Shared memory is only supported on trn2", "0.3", LAST_PARSED, (2,)),
    title="on trn1 scratch lies in private memory",
    what="a kernel for trn1 makes a tensor in nl.shared_hbm that it does not return",
    why="one port and one issue have the build refused, as cores of trn1 share none; others run there",
    fix="if the build refuses it, use buffer=nl.private_hbm",
    source="a port of Qwen 3.6 to trn1; aws-neuron-sdk issue 1311; against them public probes on trn1",
    kernel=COPIED.around(_SCRATCH), wrong="shared_hbm", right="private_hbm", options=("--target", "trn1"),
)  # fmt: skip


def find(evidence: Evidence) -> Iterator[Finding]:
    """Tensors in HBM that a build does not take where they are, once per line and rule."""
    if evidence.kernel.spelling != "nki":
        return
    applying = {r.id for r in (NAMES, KINDS, STORED, SHARED) if evidence.refuses(r)}
    for track in evidence.tracks:
        findings = (*_of_collectives(track), *_unstored(evidence, track), *_scratch(track))
        yield from once(f for f in findings if f.rule in applying)


def _of_collectives(track: Track) -> Iterator[Finding]:
    program = track.program
    numbers = [n for n, form in enumerate(program.forms) if form.name in _COLLECTIVES]
    for row in np.flatnonzero(np.isin(program.form_column, numbers)).tolist() if numbers else ():
        operands = {a.storage for a in program.accesses(row) if program.storages[a.storage].memory == HBM}
        site, called = track.site(row), track.called(row)
        for number, said in ((n, said) for n in sorted(operands) if (said := _unfit(track, n))):
            yield NAMES.finding(f"{track.name(number)}, which {called} takes, {said}", site)
        if len({program.storages[n].scope == "private" for n in operands}) > 1:
            yield KINDS.finding(f"{called} takes private and shared tensors", site)


def _unfit(track: Track, number: int) -> str:
    """Why a collective does not take a tensor, or ""."""
    record = track.program.storages[number]
    if record.scope == "input":
        return "is an argument of the kernel"
    is_returned = number in {r.storage for r in track.marks.returned}
    return "is what the kernel returns" if is_returned else "" if record.name else "has no name="


def _unstored(evidence: Evidence, track: Track) -> Iterator[Finding]:
    written = set(track.slots.storage[track.slots.is_written].tolist())
    for number, record in enumerate(track.program.storages):
        is_result = record.scope == "input" and is_mutable(evidence.kernel.function, record.name)
        if is_result and number not in written:
            yield STORED.finding(f"nothing is stored to {record.name}, a mutable tensor", evidence.definition)


def _scratch(track: Track) -> Iterator[Finding]:
    returned = {r.storage for r in track.marks.returned}
    for number, record in enumerate(track.program.storages):
        is_shared = record.memory == HBM and record.scope not in ("input", "private")
        if is_shared and number not in returned:
            words = f"{track.describe(number)} is shared, and not returned"
            yield SHARED.finding(words, track.birthplace(number))
