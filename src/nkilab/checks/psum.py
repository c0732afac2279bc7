"""PSUM as a state machine: what starts a sum, what adds to it, what ends it.

A *group* is the matmuls that make one sum in one place: the first overwrites, the others add.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct, field

from ..dialects.history import BETA1
from ..place.boxes import Overlaps
from ..tiles.tile import PSUM, Layout
from .declare import Example, Refusal, rule
from .evidence import Evidence, Track
from .finding import Finding, Site, once
from .lineage import Lineage
from .restarts import Stretch, restarts
from .watch import Accumulated

MODE = "nki.isa.nc_matmul, accumulation mode"
_ARGS = {"a": "bf16[128,128]", "b": "bf16[128,512]"}
_HEAD = """
tiles: left bf16[128,128] sbuf < a; right bf16[128,512] sbuf < b; result f32[128,{wide}] sbuf
tiles: out f32[128,{wide}] hbm < result; total f32[128,{wide}] psum
"""


def _kernel(body: str, wide: int = 512) -> Example:
    return Example(f"{_HEAD.format(wide=wide)}{body}nisa.tensor_copy(result, total)", _ARGS)


_ADDS = "`+=` starts and adds up sums in Beta 1, whose nc_matmul has no accumulate="
_LOOP = "for k in range(4):\n    nisa.nc_matmul(total, left, right, accumulate={})\n"
FIRST_WRITE = rule("psum-accumulate-unwritten", "psum", "error", title="the first matmul of a sum overwrites",
    what="nc_matmul is given accumulate=True where no matmul and no other instruction has written to dst",
    why="it adds to what an earlier sum left in the bank: undefined on every chip, zero in simulators",
    fix="pass accumulate=(k > 0), or leave accumulate out", source=MODE,
    kernel=_kernel(_LOOP), wrong="True", right="k > 0", one_spelling=_ADDS,
)  # fmt: skip
FOREIGN_WRITE = rule("psum-accumulate-foreign", "psum", "error", title="matmuls add to what matmuls wrote",
    what="nc_matmul is given accumulate=True, or adds by itself, to what no matmul wrote",
    why="on NeuronCore-v2 and v3 a bank that memset or tensor_copy filled starts no sum: it is undefined",
    fix="start the sum with accumulate=False, and add the initial value on VectorE while copying to sbuf",
    source=f"{MODE}, note",
    wrong=_kernel("nisa.memset(total, 1.0)\nnisa.nc_matmul(total, left, right, accumulate=True)\n"),
    right=_kernel("nisa.nc_matmul(total, left, right, accumulate=False)\n"),
    one_spelling=f"{_ADDS}; what it makes of other values than zeros is not documented",
)  # fmt: skip

ZEROED = rule("psum-accumulate-zeroed", "psum", "note", title="matmuls start their sum by overwriting",
    what="nc_matmul is given accumulate=True where memset or another instruction left zeros",
    why="the manual calls the result undefined on NeuronCore-v2 and v3; kernels were right on trn2",
    fix="start the sum with accumulate=False, and leave the memset out",
    source=f"{MODE}, note; against it device logs of public kernels on trn2",
    wrong=_kernel("nisa.memset(total, 0.0)\nnisa.nc_matmul(total, left, right, accumulate=True)\n"),
    right=_kernel("nisa.nc_matmul(total, left, right, accumulate=False)\n"),
    one_spelling=f"{_ADDS}; its compiler leaves the zeros out",
)  # fmt: skip

_INTERLEAVED = """
tiles: left bf16[128,128] sbuf < a; right bf16[128,512] sbuf < b; out f32[128,512] hbm < nl.copy(total)
total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
{}
        columns = nl.ds(half * 256, 256)
        total[:, columns] += nisa.nc_matmul(left, right[:, columns])
"""
_TURNS = "for k in nl.static_range(2):\n    for half in nl.static_range(2):"
_NESTED = "for half in nl.static_range(2):\n    for k in nl.static_range(2):"
INTERLEAVED = rule("psum-interleaved", "psum",
    Refusal("documented", "SCH713", "accumulation group interleaving", BETA1, BETA1, milder="warning"),
    title="one sum at a time is made in a bank",
    what="a matmul of Beta 1 adds to a sum after another sum was started in its bank and partitions",
    why="a bank holds one open accumulation group; the compiler of Beta 1 refuses such programs as a "
    "violation of accumulation group interleaving, where it notices",
    fix="finish one sum before the next one is started, or give each a bank of its own",
    source="direct allocation guide, lifetime conflicts; trn1 architecture guide, accumulation groups",
    kernel=Example(_INTERLEAVED, _ARGS, "neuronxcc"), wrong=_TURNS, right=_NESTED,
)  # fmt: skip

_SHARED = """for {first}:
    for {second}:
        columns = nl.ds(half * 256, 256)
        nisa.nc_matmul(total[:, columns], left, right[:, columns], accumulate=k > 0)
"""
SHARED = rule(
    "psum-shared-sums", "psum", Refusal("report", "NCC_ISCH714"), title="a tensor in psum holds one open sum",
    what="a matmul of `nki` that is given accumulate= adds to a sum after a matmul started another sum in "
    "the same tensor, bank and partitions, which no other instruction has filled",
    why="what starts a sum starts an accumulation group of its nl.ndarray: several in one are tied "
    "together, and the compiler refuses them or leaves all but the last wrong",
    fix="leave accumulate out, or give each sum an nl.ndarray of its own, or finish one before the next",
    source="nki-library, tensor pools, which leaves accumulate out; a report on trn2, NKI 0.6",
    wrong=_kernel(_SHARED.format(first="k in range(2)", second="half in range(2)")),
    right=_kernel(_SHARED.format(first="half in range(2)", second="k in range(2)")),
)  # fmt: skip

LOST = rule(
    "psum-lost-sum", "psum", "warning", title="a sum is read before the next one is started in its place",
    what="a matmul overwrites a result of matmuls that nothing has read",
    why="the first result is lost: it is copied to sbuf too late or never, or should have been added to",
    fix="copy the sum to sbuf with tensor_copy before the next one, or let the matmul accumulate",
    source=MODE, kernel=_kernel(_LOOP), wrong="False", right="k > 0",
)  # fmt: skip

_GRID = """
tiles: left bf16[128,256] sbuf < a; right bf16[128,512] sbuf < b
tiles: result f32[128,256] sbuf; total f32[128,256] psum; out f32[256,512] hbm
for m in range(2):
    for n in range(2):
        nisa.nc_matmul(total, left[:, nl.ds(m * 128, 128)], right[:, nl.ds(n * 256, 256)]{})
        nisa.tensor_copy(result, total)
        nisa.dma_copy(out[nl.ds(m * 128, 128), nl.ds(n * 256, 256)], result)
"""
_GRID_ARGS = {"a": "bf16[128,256]", "b": "bf16[128,512]"}
GOES_ON = rule("psum-sum-goes-on", "psum", "warning",
    title="a sum that was stored as one result does not begin the next one",
    what="matmuls add to a sum that was stored to HBM, with operands that are in it already and now meet "
    "other partners, and what comes out is stored elsewhere",
    why="reading a sum does not end it: the second result has the first one in it. A running sum, each "
    "value of which is stored, takes new operands instead",
    fix="make the tile in PSUM within the loop over the results, or pass accumulate=(k > 0)", source=MODE,
    kernel=Example(_GRID, _GRID_ARGS), wrong="", right=", accumulate=False",
)  # fmt: skip

CROSSING = rule("psum-bank-crossing", "psum", "error", title="a matmul writes within one bank",
    what="the destination of a matmul reaches over the end of a bank of PSUM",
    why="until trn2 TensorE writes to one bank at a time; a tile that is larger than a bank is several banks",
    fix="begin the destination at a multiple of the bank, 2048 bytes per partition, or write it in two parts",
    source="direct allocation guide, known limitations: a PSUM tile cannot cross bank boundaries",
    kernel=_kernel("nisa.memset(total, 0.0)\nnisa.nc_matmul(total[:, {}], left, right)\n", 1024),
    wrong="256:768", right="512:1024",
)  # fmt: skip


_MOVED = """
begin = {}
tiles: tile bf16[128,128] sbuf < x; transposed bf16[128,256] psum; out bf16[128,128] hbm < tile
nisa.nc_transpose(transposed[:, nl.ds(begin, 128)], tile)
nisa.tensor_copy(tile, transposed[:, nl.ds(begin, 128)])
"""
WORD = rule("psum-word-start", "psum", Refusal("report", since="0.6", until="0.6"),
    title="a matmul writes from the start of a word",
    what="the destination of a matmul or of nc_transpose begins within the 4 bytes of a word of PSUM",
    why="PSUM is written word by word; the compiler's verifier refuses the address",
    fix="begin it at an even element",
    source="tests of vLLM's kernels for trn2, rules of the backend's verifier",
    kernel=Example(_MOVED, {"x": "bf16[128,128]"}, options=("--nki", "0.6")), wrong="1", right="2",
)  # fmt: skip

# the last generation in which the two rules about matmuls and banks hold
_LAST = 3


def find(evidence: Evidence, accumulated: Sequence[Accumulated]) -> Iterator[Finding]:
    """Faults of accumulation, once per line and rule."""
    walked = (f for t in evidence.tracks for f in _Walk(t, evidence).findings())
    for finding in once((*_first_writes(evidence, accumulated), *walked)):
        if finding.rule != SHARED.id or _says_accumulate(evidence, finding.site):
            yield finding


def _says_accumulate(evidence: Evidence, site: Site) -> bool:
    """Whether a line says which matmul starts a sum; left out, the compiler decides it element by element."""
    calls = evidence.sources.file(site.file).calls_on(site.line)
    return any(keyword.arg == "accumulate" for call in calls for keyword in call.keywords)


def crossings(evidence: Evidence) -> Iterator[Finding]:
    """The first matmul of each program that writes over the end of a bank and may not."""
    for track in evidence.tracks:
        slots, program = track.slots, track.program
        sums = np.array([form.accumulates for form in program.forms], np.bool_)
        here = np.flatnonzero(slots.is_written & sums[program.form_column][slots.row])
        layout, kind = slots.layout[here], slots.kinds.of_storage[slots.storage[here]]
        size = np.array([one.itemsize for one in slots.layouts], np.int64)
        reach = np.array([_reach(one) for one in slots.layouts], np.int64)
        width = np.array([record.bytes_per_partition for record in slots.kinds.samples], np.int64)
        low = slots.offset[here] * size[layout] % width[kind]
        bank = program.machine.limit("psum_bank_bytes")
        walk = _Walk(track, evidence)
        for slot in here[low // bank != (low + reach[layout] - 1) // bank][:1].tolist():
            yield from walk.crossing(int(slots.row[slot]), slot, walk.span(slot))


def _reach(layout: Layout) -> int:
    """Bytes of a partition from the first to the end of the last element of a view."""
    axes = zip(layout.shape, layout.byte_strides, strict=True)
    steps = [(n - 1) * s for axis, (n, s) in enumerate(axes) if axis != layout.partition_axis and s > 0]
    return layout.itemsize + sum(steps)


def _first_writes(evidence: Evidence, accumulated: Sequence[Accumulated]) -> Iterator[Finding]:
    # in Beta 1 `+=` on a tile of zeros is how a sum is started; its compiler leaves the zeros out
    if evidence.kernel.spelling != "nki":
        return
    for rank, row, is_initialised, is_zero in accumulated:
        track = evidence.tracks[rank]
        if is_initialised and track.program.machine.generation > _LAST:
            continue
        rule = (ZEROED if is_zero else FOREIGN_WRITE) if is_initialised else FIRST_WRITE
        storage = next(a.storage for a in track.program.accesses(row) if a.is_written)
        word = "another instruction than a matmul" if is_initialised else "nothing"
        message = f"{track.called(row)} adds to {track.describe(storage)}, which {word} has written"
        yield track.finding(rule, message, row, storage)


class _Sum(Struct):
    """The sum that a place holds: its matmuls so far, and the reads between them."""

    started: int
    stretches: list[Stretch]

    @property
    def first_row(self) -> int:
        return self.stretches[0].rows[0]

    @property
    def last_row(self) -> int:
        return self.stretches[-1].rows[-1]

    @property
    def is_read(self) -> bool:
        return bool(self.stretches[-1].reads)


class _Bank(Struct):
    """A bank of a tile: the sums in it, how many were started, whether another instruction wrote to it."""

    started: int = 0
    is_filled: bool = False
    sums: dict[int, _Sum] = field(default_factory=dict)


class _Walk:
    """The accesses of PSUM of one program, in order."""

    def __init__(self, track: Track, evidence: Evidence) -> None:
        self.track = track
        self.needs_words = evidence.refuses(WORD)
        self.one_sum = INTERLEAVED if evidence.kernel.spelling == "neuronxcc" else SHARED
        self.bank_bytes = track.program.machine.limit("psum_bank_bytes")
        self.banks: dict[tuple[int, int], _Bank] = {}
        self.adds: dict[tuple[int, int], bool] = {}
        self.sums: list[_Sum] = []

    def findings(self) -> Iterator[Finding]:
        """What is wrong, in the order of rows."""
        track = self.track
        slots, program = track.slots, track.program
        here = np.flatnonzero(slots.kinds.lie_in(PSUM)[slots.storage])
        if not len(here):
            return
        overlaps = track.overlaps
        for slot in here.tolist():
            row, box = int(slots.row[slot]), int(track.boxes.of_slot[slot])
            span = self.span(slot)
            if not slots.is_written[slot]:
                self._read(slot, box, span, overlaps)
                continue
            yield from self._half_words(row, slot)
            if program.form_of(row).accumulates:
                yield from self.crossing(row, slot, span)
                yield from self._matmul(row, slot, box, span, overlaps, is_added=self._adds(row))
            else:
                self._overwrite(slot, box, span, overlaps)
        lineage = Lineage(track)
        yield from (
            self._goes_on(*rows) for total in self.sums for rows in restarts(lineage, total.stretches)
        )

    def _goes_on(self, row: int, read: int) -> Finding:
        track = self.track
        written = next(access for access in track.program.accesses(row) if access.is_written)
        return GOES_ON.finding(
            f"{track.called(row)} begins another result on the sum in {track.describe(written.storage)} that "
            "was stored before",
            track.site(row), track.site(read), f"{track.called(read)} reads the sum that is stored",
        )  # fmt: skip

    def _half_words(self, row: int, slot: int) -> Iterator[Finding]:
        """That a matmul writes from the middle of a word on, if it does and the version refuses that."""
        track, slots = self.track, self.track.slots
        start = int(slots.offset[slot]) * slots.layouts[slots.layout[slot]].itemsize
        is_product = track.program.form_of(row).name in ("nc_matmul", "nc_transpose")
        if start % 4 and is_product and self.needs_words:
            place = track.describe(int(slots.storage[slot]))
            yield WORD.finding(f"{track.called(row)} writes to {place} from byte {start} on", track.site(row))

    def _start(self, row: int, started: int) -> _Sum:
        new_sum = _Sum(started, [Stretch([row])])
        self.sums.append(new_sum)
        return new_sum

    def _adds(self, row: int) -> bool:
        """Whether a row adds to what its place holds; rows of one form and values share the answer."""
        program = self.track.program
        key = (int(program.form_column[row]), int(program.value_column[row]))
        if key not in self.adds:
            self.adds[key] = program.form_of(row).reads_result(program.values_of(row))
        return self.adds[key]

    def span(self, slot: int) -> tuple[int, int]:
        """First and last bank of a tile that an access touches."""
        track, slots = self.track, self.track.slots
        layout, own = slots.layouts[slots.layout[slot]], int(slots.storage[slot])
        width = track.program.storages[own].bytes_per_partition
        low = int(slots.offset[slot]) * layout.itemsize % width
        last = low + _reach(layout) - 1
        return low // self.bank_bytes, max(low // self.bank_bytes, last // self.bank_bytes)

    def _near(self, box: int, overlaps: Overlaps) -> list[tuple[int, bool]]:
        span = slice(int(overlaps.start[box]), int(overlaps.start[box + 1]))
        pairs = zip(overlaps.other[span].tolist(), overlaps.covers[span].tolist(), strict=True)
        return [(box, True), *pairs]

    def _banks_of(self, slot: int, span: tuple[int, int]) -> list[_Bank]:
        storage = int(self.track.slots.storage[slot])
        return [self.banks.setdefault((storage, bank), _Bank()) for bank in range(span[0], span[1] + 1)]

    def _matmul(
        self, row: int, slot: int, box: int, span: tuple[int, int], overlaps: Overlaps, *, is_added: bool
    ) -> Iterator[Finding]:
        near = self._near(box, overlaps)
        for bank in self._banks_of(slot, span):
            own = [bank.sums[b] for b, _ in near if b in bank.sums]
            if is_added and own:
                latest = max(group.started for group in own)
                yield from self._joined(row, slot, own, self._started_since(bank, box, latest, overlaps))
                continue
            if not is_added:
                lost = [bank.sums.pop(b) for b, is_covered in near if is_covered and b in bank.sums]
                yield from (self._lost(row, slot, group) for group in lost if not group.is_read)
            bank.started += 1
            bank.sums[box] = self._start(row, bank.started)

    def _joined(self, row: int, slot: int, own: list[_Sum], other: _Sum | None) -> Iterator[Finding]:
        """A matmul that adds to sums and is their last now; `other` is open beside them in the bank."""
        if other is not None:
            yield self._interleaved(row, slot, other)
        for group in own:
            if group.is_read:
                group.stretches.append(Stretch())
            group.stretches[-1].rows.append(row)

    def _interleaved(self, row: int, slot: int, other: _Sum) -> Finding:
        track = self.track
        return self.one_sum.finding(
            f"{track.called(row)} adds to a sum in {track.describe(int(track.slots.storage[slot]))} while "
            "another one in the same bank is open",
            track.site(row), track.site(other.first_row), "the other sum is started here",
        )  # fmt: skip

    def _started_since(self, bank: _Bank, box: int, latest: int, overlaps: Overlaps) -> _Sum | None:
        """A sum of other elements in the same bank and partitions that was started later and not read yet."""
        if bank.is_filled and self.one_sum is SHARED:
            # every matmul adds to what memset left, so that none starts a sum; nki-library does so
            return None
        near = {b for b, _ in self._near(box, overlaps)}
        boxes = self.track.boxes
        for other, since in bank.sums.items():
            if other in near or since.started <= latest or since.is_read:
                continue
            apart = boxes.low[other, 0] >= boxes.high[box, 0] or boxes.low[box, 0] >= boxes.high[other, 0]
            if not apart:
                return since
        return None

    def _lost(self, row: int, slot: int, lost: _Sum) -> Finding:
        track = self.track
        storage = int(track.slots.storage[slot])
        return LOST.finding(
            f"{track.called(row)} overwrites a sum in {track.describe(storage)} that nothing has read",
            track.site(row), track.site(lost.last_row), "the sum is made here",
        )  # fmt: skip

    def _read(self, slot: int, box: int, span: tuple[int, int], overlaps: Overlaps) -> None:
        near = {b for b, _ in self._near(box, overlaps)}
        for bank in self._banks_of(slot, span):
            for b in near & bank.sums.keys():
                bank.sums[b].stretches[-1].reads.append(slot)

    def _overwrite(self, slot: int, box: int, span: tuple[int, int], overlaps: Overlaps) -> None:
        """A write of another instruction, which ends what it covers."""
        covered = {b for b, is_covered in self._near(box, overlaps) if is_covered}
        for bank in self._banks_of(slot, span):
            bank.is_filled = True
            for b in covered & bank.sums.keys():
                del bank.sums[b]

    def crossing(self, row: int, slot: int, span: tuple[int, int]) -> Iterator[Finding]:
        """That a matmul writes to several banks, if it does and may not."""
        track = self.track
        if span[0] != span[1] and track.program.machine.generation <= _LAST:
            storage = int(track.slots.storage[slot])
            place, size = track.describe(storage), f"a bank is {self.bank_bytes} bytes per partition"
            message = f"{track.called(row)} writes to banks {span[0]} and {span[1]} of {place}; {size}"
            yield track.finding(CROSSING, message, row, storage)
