"""The rules about races, one per kind of pair that the table of dependences leaves open."""

from __future__ import annotations

from msgspec.structs import replace

from .conflicts import BETA_1_DIRECT, CORES, DYNAMIC
from .declare import COPIED, Example, Rule, rule
from .registers import OPEN

RANKS = "two ranks"

_PLACED = """
tiles: a f32[128,512] sbuf, address=(0, 0) < x; b f32[128,512] sbuf, address=(0, {})
"""
LIFETIME = rule(
    "lifetime-conflict", "races", "error", title="no tile is written over while it is still needed",
    what="a tile at an address of the kernel's is read after one at overlapping addresses was written",
    why="both are the same bytes, so that the read gets what the other one left; simulators that give every "
    "tensor memory of its own do not show it", fix="give the two tiles addresses that do not overlap",
    source="direct allocation guide, common errors, lifetime conflicts", kernel=Example(f"""{_PLACED}
tiles: out f32[128,512] hbm < b
nisa.tensor_scalar(b, a, op0=nl.multiply, operand0=2.0)
nisa.tensor_tensor(b, a, b, op=nl.add)
""", COPIED.args), wrong="1024", right="2048",
)  # fmt: skip

_UNORDERED_WHY = (
    "engines and DMA queues run side by side; the second access may come first, so that results depend on "
    "timing"
)
_UNORDERED = _UNORDERED_WHY[0].upper() + _UNORDERED_WHY[1:]

REUSED = f"""{_PLACED}
tiles: out f32[2,128,512] hbm
nl.store(out[0], a)
b[...] = nisa.memset((128, 512), 1.0, x.dtype)
nl.store(out[1], b)
"""
DIRECT_RACE = rule(
    "race-direct-overlap", "races", "warning", title="accesses of tiles at overlapping addresses are ordered",
    what="two tensors that a kernel of Beta 1 places at overlapping addresses are accessed by different "
    "engines or queues, one of the accesses writes, and nothing orders the two",
    why="the guide calls accesses of the tiles of one tensor serialized, says nothing of two tensors, and "
    "warns that not all races are caught. " + _UNORDERED,
    fix="give the second tensor bytes of its own, or make both of them tiles of one tensor",
    source="direct allocation guide, known limitations: race conditions are not all caught",
    kernel=Example(REUSED, COPIED.args, "neuronxcc"), wrong="0", right="2048",
    one_spelling="the compiler of `nki` orders such accesses; migration guide, direct allocation",
)  # fmt: skip

SCATTERED = Example("""
tiles: index i32[1,1] sbuf < i; tile f32[1,512] sbuf < x; back f32[1,512] sbuf; zeros f32[4,512] sbuf
tiles: held f32[4,512] hbm; result f32[1,512] hbm
nisa.memset(zeros, 0.0)
nisa.dma_copy(held, zeros)
nisa.dma_copy(held.ap(pattern=[[512, 1], [1, 512]], scalar_offset=index, indirect_dim=0), tile)
nisa.{}
nisa.dma_copy(result, back)
return held, result
""", {"x": "f32[1,512]", "i": "i32[1,1]"})  # fmt: skip
_SCATTER_BETA1 = """
tiles: index i32[1,1] sbuf < i; tile f32[1,512] sbuf < x; result f32[1,512] hbm
tiles: held f32[4,512] hbm < nl.zeros((4, 512), x.dtype)
nl.store(held[index, nl.arange(512)[None, :]], tile)
nl.store(result, {})
return held, result
"""
DYNAMIC_RACE = rule("race-dynamic-hbm", "races", "warning",
    title="what is stored to HBM at a run-time offset is not loaded again unordered",
    what="a transfer at an offset that only the run knows and another transfer of the same HBM tensor go "
    "through different queues, one of them writes, and nothing orders the two",
    why="which elements meet is not known when waits are inserted. " + _UNORDERED,
    fix="keep the values in sbuf, or order the two with depends_on, with_schedule or no_reorder",
    source="dynamic loops guide; NKI 0.4 release notes, hardware race conditions in dynamic loops",
    kernel=SCATTERED, wrong="dma_copy(back, held[0:1])", right="tensor_copy(back, tile)",
    other=replace(SCATTERED, body=_SCATTER_BETA1, spelling="neuronxcc").pair("nl.load(held[0:1])", "tile"),
)  # fmt: skip

_DROPS = """
tiles: total f32[128,1] sbuf; part f32[128,512] sbuf < x; low f32[128,512] sbuf; high f32[128,512] sbuf
tiles: out f32[128,1] hbm < total
nisa.activation(low, nl.exp, part, reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reset_reduce)
nisa.activation(high, nl.exp, {}, reduce_op=nl.add, reduce_res=total, reduce_cmd=nisa.reduce_cmd.reduce)
"""
OPEN_RACE = rule("race-open-schedule", "races", "note",
    title="instructions that share registers of an engine keep their order",
    what="an instruction goes on with what another one left in an engine's accumulator registers or random "
    "generator, and no tensor, schedule or no_reorder block orders the two",
    why="the scheduler is free to reorder instructions that share no tensor; it is not documented that it "
    "looks at registers, and examples of the documents rely on it",
    fix="put both into one `with nl.no_reorder():` block, or let the second read what the first wrote",
    source="nki.language.no_reorder; NKI scheduling guide; assumed",
    kernel=Example(_DROPS, COPIED.args), wrong="part", right="low",
)  # fmt: skip

_EXCHANGE = """
rank = nl.program_id(0)
tiles: tile f32[128,512] sbuf < x; back f32[128,512] sbuf; shared f32[2,128,512] hbm; out f32[2,128,512] hbm
nisa.dma_copy(shared[rank], tile)
{}
nisa.dma_copy(back, shared[1 - rank])
nisa.dma_copy(out[rank], back)
"""
CORES_RACE = rule("race-two-cores", "races", "error",
    title="what one core writes to shared memory the other one reads after a barrier",
    what="the two cores of a launch access the same elements of shared HBM, one of them writes, and neither "
    "sendrecv nor core_barrier stands between",
    why="the cores run independently; in a simulator that runs one after the other the result looks right",
    fix="call nisa.core_barrier on the tensor between the two",
    source="logical core guide; nki.isa.core_barrier",
    kernel=Example(_EXCHANGE, COPIED.args, grid="2"), wrong="", right="nisa.core_barrier(shared, (0, 1))",
    one_spelling="nothing orders instances of Beta 1, of which `instances-output` tells",
)  # fmt: skip

_COLLECTIVES = "Beta 1 has no nki.collectives"
_RANKS = Example("""
tiles: src f32[128,512] hbm < x; dst f32[128,512] hbm; out f32[128,512] hbm
{}
""", COPIED.args, above="import nki.collectives as collectives")  # fmt: skip
_EXCHANGED = "collectives.collective_permute([src], [{0}], [[0, 1], [1, 0]])\nnisa.dma_copy(out, {0})"
_REDUCED = "collectives.all_reduce([src], [{}], collectives.ReplicaGroup([[0]]), nl.add)\n"
RANKS_RACE = rule("race-two-ranks", "races", "warning",
    title="a collective receives into memory that no other rank reads from",
    what="src and dst of a collective share elements, so that one rank sends to where another still reads",
    why="ranks run independently, and the reference does not say that all have read before one receives; a "
    "simulator in which everybody brings a copy first shows the right result",
    fix="give dst a tensor of its own", source="nki.collectives; assumed",
    kernel=replace(_RANKS, options=("--nki", "0.7", "--ranks", "2")),
    wrong=_EXCHANGED.format("src"), right=_EXCHANGED.format("dst"), one_spelling=_COLLECTIVES,
)  # fmt: skip

RECEIVED = rule("collective-receives-twice", "races", "note",
    title="each collective of a step receives into a tensor of its own",
    what="two collectives of a program receive into one tensor",
    why="what a rank sends arrives as soon as it enters, also where the receiver still reads what the one "
    "before left: on four chips of eight ranks results differed from run to run; two and four ranks agreed",
    fix="give each collective a dst of its own",
    source="sample-spectral-dns-on-aws-neuron, platform rules, 2, NKI 0.6",
    kernel=replace(_RANKS, options=("--nki", "0.7")),
    wrong=_REDUCED.format("dst") * 2 + "nisa.dma_copy(out, dst)",
    right=_REDUCED.format("dst") + _REDUCED.format("out"), one_spelling=_COLLECTIVES,
)  # fmt: skip

UNORDERED = rule("race", "races", "error", title="every pair of accesses that disturb each other is ordered",
    what="two accesses of one memory, one of which writes, are of a kind that the table of dependences does "
    "not order. With nkilab's own table it does not occur; tests and studies give tables of their own",
    why=_UNORDERED_WHY, fix="order the two accesses", source="nkilab.place.DEPENDENCES",
)  # fmt: skip

RULES_OF_KIND: dict[str, Rule] = {
    BETA_1_DIRECT: DIRECT_RACE, DYNAMIC: DYNAMIC_RACE, OPEN: OPEN_RACE, CORES: CORES_RACE, RANKS: RANKS_RACE,
}  # fmt: skip
