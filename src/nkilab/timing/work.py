"""What has to be timed: nodes with an engine and a cost, who waits for whom, and how long a signal takes.

A node is a row, or one engine's share of a row whose steps run on several engines, or a transfer that
planning inserted. Everything is a column of numbers, so that the clock touches nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ..isa.declaration_parts import Stage
from ..isa.declare import Instruction, Step
from ..isa.links import packets
from ..machine import Machine
from ..place.edges import Waits
from ..place.plan import Plan, Transfer
from ..place.slots import DMA, ENGINES, pieces
from ..place.walk import ANTI, FLOW, KINDS
from ..tiles.tile import HBM, PSUM, SBUF, Layout
from ..trace.program import STANDALONE, Program

TENSOR = ENGINES.index("tensor")
# Functions that every table set of ScalarE holds: they never cause a load. AWS lists no table sets, so each
# other function is taken as a set of its own.
TABLELESS = frozenset({"", "copy", "square", "abs", "sign", "relu", "identity"})
# Queues of each issuing unit.
LOAD, STORE, ON_CHIP, SPILL_SAVE, SPILL_RELOAD, COLLECTIVE = range(6)
_QUEUE_OF = {"spill_save": SPILL_SAVE, "spill_reload": SPILL_RELOAD, "load_again": LOAD}
# Ports that engines share.
SBUF_PORT, PSUM_PORT = 1, 2
QUEUES = ("load", "store", "on_chip", "spill_save", "spill_reload", "collective")


class Share(Struct, frozen=True):
    """What one engine does for a row: consecutive steps of a form, in numbers."""

    steps: tuple[Step, ...]  # of the form
    engine: int  # position in `ENGINES`
    busy_ns: float = 0.0  # how long the engine accepts nothing else
    # from the start of the first step until every result is visible; DMA: how much later than the first of
    # its DMA engines the last one starts, and ends
    visible_ns: float = 0.0
    # how long its first step takes where that hides behind the one before it (LDWEIGHTS)
    background_ns: float = 0.0
    # TensorE only: from its start until the weights of the next one may load; at once where it is on a tile
    # of the array, which is assumed
    weights_free_ns: float = 0.0
    table: str = ""  # function table needed, "" for none
    lanes: float = 0.0  # DMA engines that a transfer keeps busy, on average over its duration
    work_ns: float = 0.0  # DMA only: engine time of all DMA engines together
    hbm_bytes: int = 0  # DMA only: bytes that cross the HBM interface
    queue: int = 0  # DMA only: kind of queue
    total_bytes: int = 0  # DMA only: bytes moved
    issue_ns: float = 0.0  # DMA only: how long the unit that issues it is occupied
    start_ns: float = 0.0  # DMA only: from its issue to the first byte
    ports: int = 0  # ports of memories that it keeps other engines from, `SBUF_PORT` and `PSUM_PORT` added up
    array_tile: int = 0  # TensorE only: see `Step`
    interval_ns: float = 0.0  # until TensorE takes the next one, for another tile of the array


class Work(Struct, frozen=True):
    """All nodes of a program.

    Args:
        shares: distinct shares.
        share: per node, its share.
        engine: per node.
        row: per node, the row it belongs to; of an inserted transfer the row it stands before.
        order: per node, its place in program order.
        wait_start, wait_node, wait_kind: per node, the nodes it waits for.
        wait_delay: per wait, the number of its delay.
        delays: nanoseconds between a visible result and the start that it allows.
        of_form: per form of the program, its shares.
        ring: per node, the DMA engine on whose ring a transfer of one descriptor lies; 0 for all others.
    """

    shares: tuple[Share, ...]
    share: np.ndarray
    engine: np.ndarray
    row: np.ndarray
    order: np.ndarray
    wait_start: np.ndarray
    wait_node: np.ndarray
    wait_kind: np.ndarray
    wait_delay: np.ndarray
    delays: np.ndarray
    of_form: tuple[tuple[Share, ...], ...]
    ring: np.ndarray


def work_of(program: Program, plan: Plan, known: Work | None = None) -> Work:
    """The nodes of `program` under `plan`; node r is the last share of row r, which waits for the others.

    Args:
        program, plan: what is to be timed.
        known: the work of a program with the same forms, or all but the last of them.
    """
    shares: list[Share] = []
    of_form: list[list[int]] = []
    shares_of_forms = list(known.of_form) if known is not None else []
    is_static = program.has_static_descriptors
    for declared in program.forms[len(shares_of_forms) :]:
        steps = groupby(declared.steps, lambda s: s.engine)
        shares_of_forms.append(
            tuple(
                _share(program.machine, declared, list(s), is_static=is_static, compiler=program.compiler)
                for _, s in steps
            )
        )
    for own in shares_of_forms:
        of_form.append(list(range(len(shares), len(shares) + len(own))))
        shares.extend(own)
    form = program.form_column
    share = np.array([own[-1] for own in of_form], np.int32)[form]
    row = np.arange(len(program), dtype=np.int32)
    inserted = [_spill_share(program.machine, t) for t in plan.transfers]
    distinct = {s: len(shares) + i for i, s in enumerate(dict.fromkeys(inserted))}
    shares.extend(distinct)
    share = np.append(share, np.array([distinct[s] for s in inserted], np.int32))
    row = np.append(row, np.array([t.before_row for t in plan.transfers], np.int32))
    share, row, chain, first = _with_earlier_shares(of_form, form, share, row)
    engine = np.array([s.engine for s in shares], np.int8)[share]
    # inserted transfers stand before their row, earlier shares of a row before its last one
    node = np.arange(len(row), dtype=np.int32)
    ordered = np.argsort(2 * row.astype(np.int64) + (node < len(program)), kind="stable").astype(np.int32)
    order = np.empty(len(row), np.int32)
    order[ordered] = node
    waits = _waits(shares, share, plan.waits, chain, first, program.machine)
    ring = _rings(program, shares, share)
    return Work(tuple(shares), share, engine, row, order, *waits, tuple(shares_of_forms), ring)


def _rings(program: Program, shares: list[Share], share: np.ndarray) -> np.ndarray:
    """Per node the ring of a transfer that keeps one DMA engine busy: that of the engine of its partition.

    Each engine serves as many neighbouring partitions as another; wider transfers lie on the rings of all.

    Source: DMA bandwidth guide (an engine serves eight partitions, a queue has a ring on each).
    """
    ring = np.zeros(len(share), np.int32)
    rings = program.machine.limit("dma_rings")
    is_narrow = np.array([s.engine == DMA and s.lanes <= 1 for s in shares], np.bool_)[share[: len(program)]]
    operand = np.array([_operand_in_sbuf(form) for form in program.forms], np.int64)[program.form_column]
    rows = np.flatnonzero(is_narrow & (operand >= 0))
    place = program.operand_start[rows] + operand[rows]
    tiles = [program.storages[number] for number in program.storage_column[place].tolist()]
    columns = np.array([max(1, t.bytes_per_partition // t.dtype.itemsize) for t in tiles], np.int64)
    partition = program.offset_column[place] // columns
    ring[rows] = partition * rings // program.machine.limit("partitions") % rings
    return ring


def _operand_in_sbuf(form: Instruction) -> int:
    """Which operand of a form lies in SBUF, the first of several; -1 if none does."""
    memories = [own.memory for own in form.layouts if isinstance(own, Layout)]
    return memories.index(SBUF) if SBUF in memories else -1


def _with_earlier_shares(
    of_form: list[list[int]], form: np.ndarray, share: np.ndarray, row: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int]], np.ndarray]:
    """Nodes for all but the last share of rows that run on several engines, appended; links between them."""
    several = np.array([len(own) > 1 for own in of_form], np.bool_)
    first = np.arange(len(share), dtype=np.int32)
    chain: list[tuple[int, int]] = []
    more_share: list[int] = []
    more_row: list[int] = []
    for at in np.flatnonzero(several[form]).tolist():
        nodes = [len(share) + len(more_share) + i for i in range(len(of_form[form[at]]) - 1)]
        more_share.extend(of_form[form[at]][:-1])
        more_row.extend([at] * len(nodes))
        chain.extend(zip([*nodes[1:], at], nodes, strict=True))
        first[at] = nodes[0]
    share, row = (
        np.append(share, np.array(more_share, np.int32)),
        np.append(row, np.array(more_row, np.int32)),
    )
    return share, row, chain, first


def _waits(
    shares: list[Share], share: np.ndarray, waits: Waits, chain: list[tuple[int, int]], first: np.ndarray,
    machine: Machine,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Waits between nodes as columns, and their delays."""
    later = first[np.repeat(np.arange(len(waits.start) - 1, dtype=np.int32), np.diff(waits.start))]
    start, earlier, kind = waits.start, waits.node, waits.kind
    if chain:
        later = np.append(later, np.array([n for n, _ in chain], np.int32))
        order = np.argsort(later, kind="stable")
        later = later[order]
        earlier = np.append(earlier, np.array([n for _, n in chain], np.int32))[order]
        kind = np.append(kind, np.full(len(chain), FLOW, np.int8))[order]
        start = np.searchsorted(later, np.arange(len(share) + 1))
    count = len(shares)
    if count * count * len(KINDS) > len(later):
        own = _delays(shares, share[later], share[earlier], kind, machine)
        return start, earlier, kind, np.arange(len(own), dtype=np.int32), own
    # few kinds of pairs: each is worked out once
    pairs = np.arange(count * count * len(KINDS))
    alike, of_kind = np.divmod(pairs, len(KINDS))
    known = _delays(shares, *np.divmod(alike, count), of_kind, machine)
    number = np.empty(len(later), np.int32)
    for piece in pieces(len(later)):
        pair = share[later[piece]] * count + share[earlier[piece]]
        number[piece] = pair * len(KINDS) + kind[piece]
    return start, earlier, kind, number, known


def _delays(
    shares: list[Share], later: np.ndarray, earlier: np.ndarray, kind: np.ndarray, machine: Machine
) -> np.ndarray:
    """Per pair of shares and kind, nanoseconds between the visible result and the start that it allows.

    Within one engine a wait that is none for a result keeps the order alone.
    """
    engine = np.array([s.engine for s in shares], np.int64)
    same = (engine[later] == engine[earlier]) & (engine[later] != DMA)
    # hw: TensorE reads SBUF and writes PSUM, where it adds in order; it never waits for its own results
    is_order = same & ((kind != FLOW) | (engine[later] == TENSOR))
    visible = np.array([s.visible_ns for s in shares])
    drained = np.array([s.busy_ns for s in shares]) - visible
    signal = np.where(engine[earlier] == DMA, machine["dma_done_ns"], machine["semaphore_ns"])
    delay = np.where(same, 0.0, signal)
    # who waits for a read waits until the reader has taken everything in, not for its result
    delay += np.where((kind == ANTI) & ~same & (engine[earlier] != DMA), drained[earlier], 0.0)
    # an order within an engine is kept once the earlier one has started: it takes one at a time
    delay -= np.where(is_order, visible[earlier], 0.0)
    # assumed: PSUM takes one product at a time at one place, also of two tiles of the array;
    # weights load meanwhile
    streaming = np.array([s.busy_ns if s.array_tile else 0.0 for s in shares])
    loading = np.array([s.background_ns for s in shares])
    return delay + np.where(is_order, np.maximum(streaming[earlier] - loading[later], 0.0), 0.0)


def _share(
    machine: Machine, form: Instruction, steps: list[Step], *, is_static: bool, compiler: str
) -> Share:
    if steps[0].engine == "dma":
        # beforehand, or by GpSimdE before the transfer: the unit that issues it makes no descriptors
        is_static = (is_static and not form.is_indirect) or getattr(form, "dge_mode", "") == "none"
        return _transfer_share(machine, form, steps, is_static=is_static, compiler=compiler)
    steps = [_sustained(machine, step) for step in steps]
    begins = starts_of(steps)
    ends = [begin + step.busy_ns for begin, step in zip(begins, steps, strict=True) if step.busy_ns]
    latencies = [step.latency_ns for step in steps if step.busy_ns]
    busy = max(ends, default=0.0)
    visible = max((end + latency for end, latency in zip(ends, latencies, strict=True)), default=0.0)
    tables = [s.table for s in steps if s.table not in TABLELESS]
    tile = steps[-1].array_tile
    return Share(
        tuple(steps), ENGINES.index(steps[0].engine), busy, visible,
        steps[0].hidden_ns if not steps[0].busy_ns else 0.0,
        0.0 if tile else busy - steps[-1].busy_ns,
        tables[0] if tables else "",
        ports=_ports(machine, form, steps), array_tile=tile,
        interval_ns=_interval_ns(machine, steps) if tile else busy,
    )  # fmt: skip


def starts_of(steps: Sequence[Step]) -> list[float]:
    """When each step of a share starts, from the start of its first that occupies the engine, in nanoseconds.

    A later hidden one, the weights of the second half of a float32 product, starts with the step before it,
    and the step after it waits until it is done; the first hides behind another share.
    """
    result: list[float] = []
    free = last = 0.0
    for number, step in enumerate(steps):
        if step.busy_ns:
            result.append(free)
            free += step.busy_ns
            last = step.busy_ns
        elif number:
            result.append(free - last)
            free = max(free, free - last + step.hidden_ns)
        else:
            result.append(0.0)
    return result


def _interval_ns(machine: Machine, steps: Sequence[Step]) -> float:
    """How long a product on a tile of the array keeps TensorE from taking one for another tile.

    Assumed: they are taken in order and as far apart as short ones. The second half of a float32 product
    waits in front of the next one until the first half has left the tile.
    """
    *before, last = [s.busy_ns for s in steps if s.busy_ns]
    cycles = machine["matmul_interval_cycles"] + machine["matmul_overhead_cycles"]
    shortest = cycles / machine["tensor_clock_ghz"] / machine["tensor_sustained_rate"]
    return sum(before) + min(last, shortest)


def _sustained(machine: Machine, step: Step) -> Step:
    """A step of TensorE at the rate that it keeps up; its declaration has the documented one."""
    rate = machine["tensor_sustained_rate"]
    if step.engine != "tensor" or rate == 1.0:
        return step
    return replace(step, busy_ns=step.busy_ns / rate, hidden_ns=step.hidden_ns / rate)


def _ports(machine: Machine, form: Instruction, steps: Sequence[Step]) -> int:
    """The ports that an instruction of a compute engine shares with another engine and needs for itself.

    trn1: VectorE and GpSimdE take turns at SBUF, VectorE and ScalarE at PSUM (trn1 guide). From trn2 on only
    VectorE's performance modes use what GpSimdE reads SBUF with (trn2 guide).
    """
    engine = steps[0].engine
    memories = {layout.memory for layout in form.layouts if isinstance(layout, Layout)}
    if machine["shared_ports"]:
        sbuf, psum = engine in ("vector", "gpsimd"), engine in ("vector", "scalar")
    else:
        sbuf, psum = engine == "gpsimd" or (engine == "vector" and any(s.is_wide for s in steps)), False
    return SBUF_PORT * (sbuf and SBUF in memories) + PSUM_PORT * (psum and PSUM in memories)


def _transfer_share(
    machine: Machine, form: Instruction, steps: list[Step], *, is_static: bool, compiler: str
) -> Share:
    operands = list(zip(form.operands.values(), form.layouts, strict=True))
    in_hbm = [spec for spec, layout in operands if isinstance(layout, Layout) and layout.memory == HBM]
    from_hbm, to_hbm = any(not spec.is_written for spec in in_hbm), any(spec.is_written for spec in in_hbm)
    queue = STORE if to_hbm else LOAD if from_hbm else ON_CHIP
    queue = COLLECTIVE if form.module == "collectives" else queue
    lanes = work = spread = 0.0
    total = crossing = 0
    for step in steps:
        wide, busy = transfer_lanes(machine, step.descriptors, step.descriptor_bytes)
        if step.stages:
            wide = min(wide, busy / sum(_stage_ns(machine, stage) for stage in step.stages))
        lanes, work, total = max(lanes, wide), work + busy, total + step.moved_bytes
        crossing += sum(stage.hbm_bytes for stage in step.stages) if step.stages else 2 * step.moved_bytes
        spread = max(spread, _spread_ns(machine, step) + step.latency_ns)
    is_ready = is_static or len(steps) < len(form.steps)
    return Share(
        tuple(steps), DMA, visible_ns=spread, lanes=lanes, work_ns=work, queue=queue, total_bytes=total,
        hbm_bytes=crossing * (from_hbm + to_hbm) // 2,
        issue_ns=machine["dma_static_issue_ns"] if is_ready else _issue_ns(machine, steps, compiler),
        start_ns=_start_ns(machine, is_static=is_static),
    )  # fmt: skip


def _stage_ns(machine: Machine, stage: Stage) -> float:
    """How long a stage of a collective moves bytes, by the DMA engines and by its links."""
    lanes, busy = transfer_lanes(machine, *packets(machine, stage.engine_bytes))
    on_links = stage.moved_bytes / stage.bytes_per_ns if stage.bytes_per_ns else 0.0
    return max(busy / min(lanes, stage.engines), on_links)


def _issue_ns(machine: Machine, steps: Sequence[Step], compiler: str) -> float:
    """How long the unit that issues a transfer is occupied: once, and for each descriptor that it makes.

    It makes none if they lie ready, written beforehand or by software. Under the stand-alone compiler what it
    takes once grows with the partitions, up to all of them.
    """
    count, ready_ns = sum(s.descriptors for s in steps), machine["dma_static_issue_ns"]
    is_graded = compiler == STANDALONE and machine["dma_issue_by_partition"]
    share = min(1.0, count / machine["partitions"]) if is_graded else 1.0
    return (
        ready_ns + (machine["dma_issue_ns"] - ready_ns) * share + count * machine["dma_descriptor_issue_ns"]
    )


def _start_ns(machine: Machine, *, is_static: bool) -> float:
    """From the issue of a transfer to its first byte; static descriptors are read from HBM first."""
    return machine["dma_static_start_ns" if is_static else "dma_start_ns"]


def _spill_share(machine: Machine, transfer: Transfer) -> Share:
    label = transfer.kind.upper()
    step = Step("dma", label, descriptors=transfer.descriptors, descriptor_bytes=transfer.descriptor_bytes)
    lanes, work = transfer_lanes(machine, transfer.descriptors, transfer.descriptor_bytes)
    total = transfer.total_bytes
    return Share(
        (step,), DMA, visible_ns=_spread_ns(machine, step), lanes=lanes, work_ns=work, hbm_bytes=total,
        queue=_QUEUE_OF[transfer.kind], total_bytes=total,
        # assumed: the compiler knows both addresses of what it inserts, and writes the descriptors itself
        issue_ns=machine["dma_static_issue_ns"], start_ns=_start_ns(machine, is_static=True),
    )  # fmt: skip


def descriptor_ns(machine: Machine, size: float) -> float:
    """How long one DMA engine takes for a run of `size` contiguous bytes, one of many.

    Short runs travel together in one descriptor, whose cost they share.
    """
    group = machine["dma_group_ns"] * min(1.0, size / machine["dma_group_bytes"])
    moving = machine["dma_run_ns"] + size / machine["dma_bytes_per_ns"] + group
    return max(machine["dma_run_min_ns"], moving)


def transfer_lanes(machine: Machine, descriptors: int, descriptor_bytes: int) -> tuple[float, float]:
    """How many DMA engines a transfer keeps busy, and the time of all of them together in nanoseconds.

    Descriptors longer than a packet are split. They are dealt out evenly; the transfer lasts as long as the
    engine with the most of them, which leaves the others idle for a part of that time. Each engine ends with
    a semaphore write.

    Source: DMA overview (up to 16 engines, semaphore writes); DMA guide, "Descriptor size".
    """
    count, size, engines = _dealt_out(machine, descriptors, descriptor_bytes)
    each = descriptor_ns(machine, size)
    longest = -(-count // engines) * each + machine["dma_semaphore_write_ns"]
    work = count * each + engines * machine["dma_semaphore_write_ns"]
    return work / longest, work


def _dealt_out(machine: Machine, descriptors: int, descriptor_bytes: int) -> tuple[int, float, int]:
    """How many packets a transfer has, the bytes of each, and how many DMA engines share them."""
    pieces = max(1, -(-descriptor_bytes // machine.limit("dma_packet_bytes")))
    count = descriptors * pieces
    return count, descriptor_bytes / pieces, min(machine.limit("dma_engines"), count)


def _spread_ns(machine: Machine, step: Step) -> float:
    """How much later the last of a transfer's DMA engines starts than the first."""
    _, _, engines = _dealt_out(machine, step.descriptors, step.descriptor_bytes)
    return (engines - 1) * machine["dma_spread_ns"]
