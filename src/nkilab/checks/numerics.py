"""`--numerics`: the recorded program twice in step, in the types that it stores and in float32.

Both begin with the same inputs. What differs is what storing narrow types costs: rounding, overflow, and
sums that stop growing.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from functools import cache, cached_property
from typing import Any

import ml_dtypes
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ..errors import NkilabError
from ..isa.declare import Instruction
from ..isa.operators import Operator
from ..tiles.convert import widen
from ..tiles.dtypes import FLOAT32, TFLOAT32, DType
from ..tiles.tile import HBM, Layout, layout, memory_of
from .declare import Example, rule
from .evidence import Evidence
from .finding import Finding, Site
from .recording import Action, Memory, Operand, Recording
from .world import World

_OPTIONS = ("--numerics", "")
_ADDED = """
tiles: tile bf16[128,64] sbuf; total nl.{0}[128,64] sbuf; out nl.{0}[128,64] hbm < total
nisa.memset(tile, 1.0)
nisa.memset(total, 0.0)
for _ in range(264):
    nisa.tensor_tensor(total, total, tile, op=nl.add)
"""
LOST = rule("numerics-lost-sum", "numerics", "warning", title="a running sum is kept in float32",
    what="additions to a tile of a narrow type change nothing any more; in float32 the sum grows on",
    why="what is added is less than half a unit in the last place of what is there: 8 bits of bfloat16",
    fix="accumulate in a float32 tile or in PSUM, and cast once at the end",
    source="NKI API common fields, data types; arithmetic of rounding",
    kernel=Example(_ADDED, {"x": "f32[1,1]"}, options=_OPTIONS), wrong="bfloat16", right="float32",
)  # fmt: skip

_GROWN = """
tiles: tile nl.{0}[128,64] sbuf; out nl.{0}[128,64] hbm < tile
nisa.memset(tile, 60000.0)
nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=4.0)
"""
OVERFLOW = rule(
    "numerics-overflow", "numerics", "error", title="what is finite in float32 is finite where it is stored",
    what="an element becomes infinite or NaN in its type, while it is finite in float32",
    why="the number is beyond the largest one of the type",
    fix="scale it before, or store it in a type with more exponent: bfloat16 or float32",
    source="NKI API common fields, data types",
    kernel=Example(_GROWN, {"x": "f32[1,1]"}, options=_OPTIONS), wrong="float16", right="bfloat16",
)  # fmt: skip

_CANCELLED = """
tiles: tile nl.{0}[128,64] sbuf; other nl.{0}[128,64] sbuf; out nl.{0}[128,64] hbm < other
nisa.memset(tile, 1000.0)
nisa.tensor_scalar(other, tile, op0=nl.add, operand0=1.0)
nisa.tensor_tensor(other, other, tile, op=nl.subtract)
"""
PARTED = rule("numerics-divergence", "numerics", "warning", title="a result is near that of float32",
    what="a result differs from the same computation in float32 by a twentieth of its largest element",
    why="rounding between the instructions grew: large numbers that cancel, or many roundings in a row",
    fix="keep the tile at the line where the two part in float32", source="arithmetic of rounding",
    kernel=Example(_CANCELLED, {"x": "f32[1,1]"}, options=_OPTIONS), wrong="bfloat16", right="float32",
)  # fmt: skip

# units in the last place of the stored type from which the two count as parted
PARTED_ULP = 8.0
# of the largest element: from there on a result counts as far from that of float32
FAR = 0.05
# share of the elements of a row whose sum stands still, and rows of a line, before that is told
STILL, STILL_ROWS = 0.25, 8
# tensors that are reported, those that differ most
MOST_TENSORS = 40
_REFUSED = (ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError)


class Drift(Struct):
    """How far a tensor has gone from float32."""

    ulp: float = 0.0  # most units in the last place of its type
    relative: float = 0.0  # most, of the largest element of what was written
    parted: tuple[int, int] | None = None  # rank and row that first wrote it further off than `PARTED_ULP`
    last: float = 0.0  # difference of the last write, relative to its largest element


def wide(dtype: DType) -> DType:
    """float32 for every narrower float."""
    return FLOAT32 if dtype.is_float and not dtype.is_packed and dtype is not FLOAT32 else dtype


class Shadow:
    """Both computations."""

    def __init__(self, evidence: Evidence, recording: Recording) -> None:
        self.evidence = evidence
        self.recording = recording
        self.stored = World(evidence, recording)
        self.exact = World(evidence, recording, wide, has_addresses=False)
        self.drifts: dict[object, Drift] = {}
        self.owner: dict[object, Memory] = {}
        self.findings: list[Finding] = []
        self.skipped: Counter[str] = Counter()
        self.sums = NarrowSums(self.stored.home)
        self._still: Counter[Site] = Counter()
        # with float32 in the place of narrower floats
        self._wide_form = cache(_widened)

    def run(self) -> None:
        """Compute everything."""
        with self.stored.open(), self.exact.open():
            for action in self.recording.actions:
                self._compute(action)

    def _compute(self, action: Action) -> None:
        written = [action.operands[slot] for slot in action.form.written_slots]
        before = [self._pair(o) for o in written] if _updates(action) else None
        self.stored.compute(action)
        if self._follow(action):
            for place, operand in enumerate(written):
                self._compare(action, operand, before[place] if before else None)
        else:
            for operand in written:
                self._catch_up(operand)

    def _follow(self, action: Action) -> bool:
        """Compute an action in float32; False where that cannot be."""
        operands = [o for o in action.operands if isinstance(o, Operand)]
        if any(o.layout.dtype is not self.recording.shapes[o.memory][1] for o in operands):
            self.skipped["a tile is viewed as another type"] += 1
            return False
        for operand in operands:
            if not self.exact.storage(operand.memory).is_known:
                self._catch_up(operand)
        try:
            self.exact.compute(action, self._wide_form(action.form))
        except (*_REFUSED, NkilabError):
            self.skipped[f"{action.form.name} does not take float32"] += 1
            return False
        return True

    def _catch_up(self, operand: Operand) -> None:
        """Give the computation in float32 what the other one holds."""
        source, target = self.stored.storage(operand.memory), self.exact.storage(operand.memory)
        if not source.is_known or self.stored.home(operand.memory) != operand.memory:
            return
        source.own()
        assert source.data is not None
        elements = source.data if target.dtype is source.dtype else widen(source.data, source.dtype)
        target.allocate(np.ascontiguousarray(elements.reshape(target.shape)).copy())

    def _pair(self, operand: Operand) -> tuple[np.ndarray, np.ndarray] | None:
        """What an operand holds in both computations, as float32."""
        one, other = self.stored.view(operand), self.exact.view(operand)
        dtype = operand.layout.dtype
        if not dtype.is_float or dtype.is_packed or operand.indices:
            return None
        for view in (one, other):
            view.storage.own()
        return widen(memory_of(one), dtype).copy(), np.array(memory_of(other), np.float32)

    def _compare(
        self, action: Action, operand: Operand, before: tuple[np.ndarray, np.ndarray] | None
    ) -> None:
        operand_drift = self._pair(operand)
        if operand_drift is None or operand.layout.dtype is not self.recording.shapes[operand.memory][1]:
            return
        dtype = operand.layout.dtype
        stored, exact = operand_drift
        site = self.evidence.tracks[max(action.rank, 0)].site(action.row)
        bad = ~np.isfinite(stored) & np.isfinite(exact)
        if bad.any() and self._reads_finite(action, before):
            self._tell(OVERFLOW.finding(
                f"{action.form.name} writes {self._name(operand.memory)}: {int(bad.sum())} of {bad.size} "
                f"elements are "
                f"not finite in {dtype}; in float32 the largest is {np.abs(exact[bad]).max():.4g}", site,
            ))  # fmt: skip
        fine = np.isfinite(stored) & np.isfinite(exact)
        drift = self.drifts.setdefault(self.stored.home(operand.memory), Drift())
        self.owner.setdefault(self.stored.home(operand.memory), operand.memory)
        if fine.any():
            self._measure(drift, stored[fine], exact[fine], dtype, (action.rank, action.row))
            self.sums.note(action, operand, stored[fine], exact[fine], site)
        if before is not None and dtype.itemsize < 4:
            self._count_still(action, operand, before, (stored, exact), site)

    def _reads_finite(self, action: Action, before: tuple[np.ndarray, np.ndarray] | None) -> bool:
        """Whether what an action read was finite where it is stored: this is where it stopped being so."""
        if before is not None and not np.isfinite(before[0]).all():
            return False
        written = [action.operands[slot] for slot in action.form.written_slots]
        read = [action.operands[slot] for slot in action.form.read_slots]
        pairs = (self._pair(o) for o in read if o not in written)
        return all(np.isfinite(pair[0]).all() for pair in pairs if pair is not None)

    @staticmethod
    def _measure(
        drift: Drift, stored: np.ndarray, exact: np.ndarray, dtype: DType, where: tuple[int, int]
    ) -> None:
        apart = np.abs(stored.astype(np.float64) - exact)
        scale = float(np.abs(exact).max(initial=0.0))
        ulp = float((apart / ulp_of(exact, dtype)).max(initial=0.0))
        drift.last = float(apart.max(initial=0.0)) / scale if scale else 0.0
        drift.ulp, drift.relative = max(drift.ulp, ulp), max(drift.relative, drift.last)
        if drift.parted is None and ulp > PARTED_ULP:
            drift.parted = where

    def _count_still(
        self, action: Action, operand: Operand, before: tuple[np.ndarray, np.ndarray],
        after: tuple[np.ndarray, np.ndarray], site: Site,
    ) -> None:  # fmt: skip
        """Count a row in whose sums nothing moves though something is added."""
        moves = np.abs(after[1]) > np.abs(before[1])
        still = moves & (after[0] == before[0])
        if not moves.any() or np.count_nonzero(still) < STILL * moves.size:
            return
        self._still[site] += 1
        if self._still[site] == STILL_ROWS:
            at = np.flatnonzero(still.reshape(-1))[0]
            self._tell(LOST.finding(
                f"{action.form.name} adds to {self._name(operand.memory)} and nothing changes: "
                f"{float(after[0].reshape(-1)[at]):g} in {operand.layout.dtype} where float32 has "
                f"{float(after[1].reshape(-1)[at]):g}", site,
            ))  # fmt: skip

    def _tell(self, finding: Finding) -> None:
        if not any((f.rule, f.site) == (finding.rule, finding.site) for f in self.findings):
            self.findings.append(finding)

    def _name(self, memory: Memory) -> str:
        return self.evidence.tracks[memory[0]].describe(memory[1]) if memory[0] >= 0 else "a tile"

    def results(self) -> Iterator[Finding]:
        """Results that are far from those of float32."""
        track = self.evidence.tracks[0]
        for tensor in track.marks.returned:
            drift = self.drifts.get(self.stored.home((0, tensor.storage)))
            if drift is None or drift.last <= FAR:
                continue
            maker = track.birthplace(tensor.storage)
            parted = [d.parted for d in self.drifts.values() if d.parted is not None]
            parting = min(parted, key=lambda place: place[1], default=None)
            site = maker if parting is None else self.evidence.tracks[parting[0]].site(parting[1])
            yield PARTED.finding(
                f"{track.describe(tensor.storage)} is off by {drift.last:.1%} of its largest element, "
                f"{drift.ulp:.3g} units in the last place",
                site, maker, "the result is made here",
                notes=[f"float32 and the stored types first differ at {site}"],
            )  # fmt: skip

    def tensors(self) -> list[dict[str, Any]]:
        """What was measured per tensor, those that differ most first."""
        far = sorted(self.drifts.items(), key=lambda item: -item[1].ulp)
        return [t for home, drift in far for t in self._tensor(self.owner[home], drift)][:MOST_TENSORS]

    def _tensor(self, memory: Memory, drift: Drift) -> Iterator[dict[str, Any]]:
        """The entry of one tensor; none where nothing differs and it is no result."""
        if memory[0] < 0:
            return
        track = self.evidence.tracks[memory[0]]
        record = track.program.storages[memory[1]]
        if drift.ulp == 0.0 and record.memory != HBM:
            return
        parted = ""
        if drift.parted is not None:
            rank, row = drift.parted
            parted = str(self.evidence.tracks[rank].site(row))
        yield {
            "tensor": track.name(memory[1]), "dtype": str(record.dtype), "memory": record.memory,
            "line": str(track.birthplace(memory[1])), "max_ulp": drift.ulp, "max_relative": drift.relative,
            "parted_at": parted,
        }  # fmt: skip


def _updates(action: Action) -> bool:
    """Whether an action reads the very elements that it writes."""
    form = action.form
    written = [action.operands[slot] for slot in form.written_slots]
    read = [action.operands[slot] for slot in form.read_slots]
    return form.reads_result(action.values) or any(w == r for w in written for r in read)


def _widened(form: Instruction) -> Instruction:
    """A form over float32 operands; what it worked out from its types is worked out again."""
    wide = copy.copy(form)
    cls = type(form)
    for name in [k for k in vars(wide) if isinstance(getattr(cls, k, None), cached_property)]:
        del vars(wide)[name]
    wide.layouts = tuple(_wide_layout(layout) for layout in form.layouts)
    vars(wide).update(zip(form.operands, wide.layouts, strict=True))
    if form.list_name:
        vars(wide)[form.list_name] = wide.layouts[len(cls.operands) - 1 :]
    return wide


def _wide_layout(narrow: Any) -> Any:
    if not isinstance(narrow, Layout) or wide(narrow.dtype) is narrow.dtype:
        return narrow
    return layout(
        narrow.shape, narrow.strides, wide(narrow.dtype), narrow.memory, narrow.partition_axis,
        narrow.start_partition, narrow.indices,
    )  # fmt: skip


def numerics(
    evidence: Evidence, recording: Recording
) -> tuple[list[Finding], list[dict[str, Any]], list[str]]:
    """Compare stored types with float32.

    Returns:
        Findings, one entry per tensor, and notes.
    """
    shadow = Shadow(evidence, recording)
    shadow.run()
    notes = [
        f"numerics: {n} instructions are not followed in float32: {why}" for why, n in shadow.skipped.items()
    ]
    still = {finding.site for finding in shadow.findings if finding.rule == LOST.id}
    sums = [f for f in shadow.sums.findings(shadow._name) if f.site not in still]
    return [*shadow.findings, *sums, *shadow.results()], shadow.tensors(), notes


_SUMMED = """
tiles: tile f32[128,64] sbuf; total nl.{}[128,64] sbuf
tiles: out bf16[128,64] hbm < total
nisa.memset(total, 0.0)
for i in range(16):
    nisa.dma_copy(tile, x[i])
    nisa.tensor_tensor(total, total, tile, op=nl.add)
"""
NARROW_SUM = rule("numerics-narrow-sum", "numerics", "warning", title="a long sum is rounded once",
    what="four additions or more are each rounded to a type narrower than float32, and the sum is further "
    "from that in float32 than one rounding explains",
    why="an addition is off by up to u, half a unit in the last place; the errors of n have either sign and "
    "grow as sqrt(n) u, so that four cost a bit of the type. A float32 sum, rounded once, is off by u",
    fix="accumulate in a float32 tile or in PSUM, and cast once at the end",
    source="Higham and Mary, A new approach to probabilistic rounding error analysis (2019)",
    kernel=Example(_SUMMED, {"x": "f32[16,128,64]"}, options=_OPTIONS), wrong="bfloat16", right="float32",
)  # fmt: skip

# additions from which their roundings cost a bit: sqrt(4) u
LONG = 4
# half a unit in the last place of float32, relative
_U_FLOAT32 = 2.0**-24


class _Sum(Struct, frozen=True):
    """A sum: its additions, and where it is furthest off the error, the largest element and its unit."""

    memory: Memory
    dtype: DType
    length: int
    error: float
    largest: float
    ulp: float


class NarrowSums:
    """The sums that a recording makes in narrow types, addition by addition."""

    def __init__(self, home: Callable[[Memory], object]) -> None:
        self._home = home
        self._lengths: dict[Hashable, int] = {}
        self._worst: dict[Site, _Sum] = {}

    def note(
        self, action: Action, result: Operand, stored: np.ndarray, exact: np.ndarray, site: Site
    ) -> None:
        """Measure what a row wrote, in its type and in float32, if it is a long sum.

        A sum in float32 that is rounded once is off by half a unit of its largest element, and by n u of
        float32: the bound that always holds is small enough there.
        """
        length, dtype = self._length(action, result), result.layout.dtype
        if length < LONG:
            return
        error, largest = float(np.abs(stored - exact).max()), float(np.abs(exact).max())
        ulp = float(ulp_of(np.array(largest), dtype))
        worst = self._worst.get(site)
        if worst is not None and error / ulp <= worst.error / worst.ulp:
            self._worst[site] = replace(worst, length=max(length, worst.length))
        elif error > ulp / 2 + length * _U_FLOAT32 * largest:
            self._worst[site] = _Sum(result.memory, dtype, length, error, largest, ulp)

    def _length(self, action: Action, result: Operand) -> int:
        """How many additions in a narrow type, one upon another, made a result; noted for the next one."""
        length = 0
        if result.layout.dtype.itemsize < 4 and _adds(action):
            summands = [action.operands[slot] for slot in action.form.read_slots]
            if action.form.reads_dst or action.form.reads_result(action.values):
                summands.append(result)
            length = 1 + max(self._lengths.get(self._key(o), 0) for o in summands)
        self._lengths[self._key(result)] = length
        return length

    def _key(self, operand: Operand) -> Hashable:
        return self._home(operand.memory), operand.offset, operand.layout

    def findings(self, name: Callable[[Memory], str]) -> Iterator[Finding]:
        """One per line that adds; `name` describes a memory."""
        for site, worst in self._worst.items():
            relative, units = worst.error / worst.largest, worst.error / worst.ulp
            yield NARROW_SUM.finding(
                f"{worst.length} additions to {name(worst.memory)} are rounded to {worst.dtype} each: "
                f"the sum is off by {relative:.2%} of its largest element, {units:.3g} units in the last "
                "place; rounded once it is off by half a unit", site,
            )  # fmt: skip


def _adds(action: Action) -> bool:
    """Whether a row adds one tile to another, or to what it writes."""
    form = action.form
    operators = [value for value in form.attribute_values if isinstance(value, Operator)]
    reads_result = form.reads_dst or form.reads_result(action.values)
    is_sum = any(op.name in ("add", "subtract") for op in operators)
    return (reads_result and (form.accumulates or is_sum)) or (is_sum and len(form.read_slots) > 1)


@cache
def _mantissa_bits(dtype: DType) -> int:
    if dtype is TFLOAT32:
        return 10
    return int(ml_dtypes.finfo(dtype.storage).nmant)


def ulp_of(values: np.ndarray, dtype: DType) -> np.ndarray:
    """The unit in the last place of numbers in a float type."""
    exponent = np.floor(np.log2(np.maximum(np.abs(values.astype(np.float64)), np.finfo(np.float32).tiny)))
    return np.exp2(exponent - _mantissa_bits(dtype))
