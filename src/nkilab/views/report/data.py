"""What the page of a run holds: columns of events, rows, waits and stays, and small tables."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from math import ceil, log10
from typing import Any

import numpy as np

from ...place.walk import KINDS as WAIT_KINDS
from ...tiles.tile import Layout
from ...timing.timeline import REASON_TEXTS, REASONS
from ...timing.work import QUEUES
from ..colours import COLOUR_OF, MEANINGS, SPILLS
from ..cores import HEADINGS
from ..flops import flops_of
from ..metrics import METRICS
from ..occupancy import Residencies
from ..path import KINDS
from ..record import profile_dict
from ..run import Run
from ..stalls import STALLS
from ..traffic import running_rate
from ..units import quantity
from ..words import ENGINE_NAMES

# Operands that a form's text names at most; a longer list ends in "...".
_OPERANDS = 8
_LONGEST_NAME = 200
# Cores that a page shows; a page of more would be slow to open.
_MOST_CORES = 16


def page_data(runs: Sequence[tuple[str, Run]]) -> tuple[dict[str, Any], Columns]:
    """The tables of a page, ready for JSON, and its columns: a part for each core that is shown.

    Args:
        runs: that are looked at together, with what they are called; the page first tells of the last one.
    """
    shown = [(name, run, core, own) for name, run in runs for core, own in _shown(run)]
    tick = tick_of(max(own.timeline.latency_ns for *_, own in shown))
    columns = Columns()
    tables = {
        "schema": "nkilab.report/4",
        "tick": tick,
        "focus": max(n for n, (*_, own) in enumerate(shown) if own.timeline is runs[-1][1].timeline),
        "meanings": list(MEANINGS.values()),
        "colourOf": COLOUR_OF,
        "together": _together(runs[0][1], shown) if len(runs) == 1 else None,
        "parts": [
            # on a scale of its own a run is as wide as the page
            {"core": f"{name} {core}".strip(), "span": run.timeline.latency_ns, **_part(own, columns, tick)}
            for name, run, core, own in shown
        ],
    }
    return tables, columns


def _shown(run: Run) -> list[tuple[str, Run]]:
    """The cores that a page shows, in the order of programs; of too many, the slowest."""
    runs = run.runs
    slowest = sorted(range(len(runs)), key=lambda n: -runs[n][1].timeline.latency_ns)[:_MOST_CORES]
    return [runs[n] for n in sorted(slowest)]


def _together(run: Run, shown: Sequence[tuple[str, Run, str, Run]]) -> dict[str, Any] | None:
    """The table of all cores, each row with its part of the page, and how much faster they are than one."""
    if run.together is None:
        return None
    places = {core: place for place, (_, _, core, _) in enumerate(shown)}
    rows = run.together.rows()
    return {
        "headings": HEADINGS,
        "rows": [[places.get(row[0], -1), *row] for row in rows],
        "told": run.together.speed_up(),
        "hidden": len(run.runs) - len(shown),
    }


def _part(run: Run, columns: Columns, tick: float) -> dict[str, Any]:
    """What the page holds of one core."""
    offset = columns.begin()
    order = np.lexsort((run.timeline.start_ns, run.lanes.of_event))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    names = _Names()
    _events(run, columns, order, tick)
    _nodes(run, columns, place)
    _rows(run, columns, names)
    _path(run, columns, place, tick)
    _transfers(run, columns, order, place, tick)
    _residencies(run.occupancy.sbuf, "sbuf", run, columns, tick)
    _residencies(run.occupancy.psum, "psum", run, columns, tick)
    tables = _tables(run)
    return {
        **tables,
        "isSpill": [label in SPILLS for label in run.timeline.labels],
        "names": names.texts,
        "columns": columns.directory,
        "offset": offset,
    }


class _Names:
    """Texts without repetitions."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        text = text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + "…"
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def texts(self) -> list[str]:
        return list(self._numbers)


def _events(run: Run, columns: Columns, order: np.ndarray, tick: float) -> None:
    """Per event, by lane and then by start: when, what, and how long its engine stood still before."""
    timeline = run.timeline
    start, end = timeline.start_ns[order], timeline.end_ns[order]
    counts = np.bincount(run.lanes.of_event, minlength=len(run.lanes.names))
    columns.add("laneStart", np.append(0, np.cumsum(counts)))
    columns.add("start", start / tick, is_delta=True)
    columns.add("length", (end - start) / tick)
    columns.add("busy", (run.lanes.until_ns[order] - start) / tick)
    columns.add("stall", run.stalls.before_ns[order] / tick)
    columns.add("loading", timeline.weights_ns()[order] / tick)
    columns.add("label", timeline.label[order], narrowest(len(timeline.labels)))
    columns.add("reason", timeline.reason[order], "u1")
    columns.add("node", timeline.node[order], "i4", is_delta=True)
    columns.add("waited", timeline.waited_node[order], "i4", is_delta=True)


def _nodes(run: Run, columns: Columns, place: np.ndarray) -> None:
    """Per node: its event, its row, and the nodes it waits for."""
    work = run.work
    columns.add("nodeEvent", place[run.nodes.event], "i4", is_delta=True)
    columns.add("nodeRow", run.nodes.row, "i4", is_delta=True)
    columns.add("waitStart", work.wait_start if len(work.share) else np.zeros(1), is_delta=True)
    columns.add("waitNode", work.wait_node, "i4", is_delta=True)
    columns.add("waitKind", work.wait_kind, "u1")


def _rows(run: Run, columns: Columns, names: _Names) -> None:
    """Per row its line, form, place in loops and the names of its tiles; what inserted transfers move."""
    program = run.program
    name_numbers = np.array([names(name) for name in run.tile_names], np.int64)
    columns.add("rowLine", program.line_column, "i4", is_delta=True)
    columns.add("rowForm", program.form_column, "i4", is_delta=True)
    columns.add("operandStart", program.operand_start, is_delta=True)
    storages = np.asarray(program.storage_column, np.int64)
    columns.add("operandStorage", storages, is_delta=True)
    columns.add("storageName", name_numbers, is_delta=True)
    columns.add("rowPosition", program.position_column, "i4", is_delta=True)
    columns.add("loopOuter", program.positions.table[:, 0], "i4", is_delta=True)
    columns.add("loopValue", program.positions.table[:, 2], "i4", is_delta=True)
    moved = np.array([t.storage for t in run.plan.transfers], np.int64)
    columns.add("insertedStorage", moved)


def _path(run: Run, columns: Columns, place: np.ndarray, tick: float) -> None:
    path = run.path
    columns.add("pathStart", path.start_ns / tick, is_delta=True)
    columns.add("pathLength", path.duration_ns / tick)
    columns.add("pathKind", path.kind, "u1")
    event = np.where(path.event >= 0, place[path.event], -1) if len(place) else path.event
    columns.add("pathEvent", event, "i4", is_delta=True)


def _transfers(run: Run, columns: Columns, order: np.ndarray, place: np.ndarray, tick: float) -> None:
    """Bytes and descriptors of transfers, which stand last among events; rates of bytes over time."""
    traffic = run.traffic
    mine = np.argsort(place[traffic.event], kind="stable")
    assert not len(mine) or place[traffic.event[mine[0]]] == len(order) - len(mine)
    columns.add("dmaBytes", traffic.total_bytes[mine])
    columns.add("dmaDescriptors", traffic.descriptors[mine])
    columns.add("dmaSize", traffic.descriptor_bytes[mine])
    columns.add("dmaIssued", run.timeline.issued_ns[traffic.event[mine]] / tick, is_delta=True)
    columns.add("dmaReady", run.timeline.ready_ns[traffic.event[mine]] / tick, is_delta=True)
    ends = np.maximum(traffic.end_ns, traffic.start_ns + tick)
    moments, rate = running_rate(traffic.start_ns, ends, traffic.total_bytes)
    columns.add("rateTime", moments / tick, is_delta=True)
    columns.add("rate", np.maximum(rate, 0.0), "f4")


def _residencies(residencies: Residencies, memory: str, run: Run, columns: Columns, tick: float) -> None:
    lines = np.array([run.program.storages[s].line for s in residencies.storage.tolist()], np.int64)
    columns.add(f"{memory}Storage", residencies.storage, is_delta=True)
    columns.add(f"{memory}Line", lines, is_delta=True)
    columns.add(f"{memory}Start", residencies.start_ns / tick, is_delta=True)
    columns.add(f"{memory}Length", (residencies.end_ns - residencies.start_ns) / tick)
    columns.add(f"{memory}Address", residencies.address)
    columns.add(f"{memory}Size", residencies.size)
    moments, used = residencies.changes()
    columns.add(f"{memory}Time", moments / tick, is_delta=True)
    columns.add(f"{memory}Used", np.maximum(used, 0))


def _tables(run: Run) -> dict[str, Any]:
    program, machine = run.program, run.program.machine
    short = short_paths(list(run.sources))
    profile = profile_dict(run)
    for line in profile["lines"]:
        line["path"] = short[line["path"]]
    return {
        "latency": run.timeline.latency_ns,
        "profile": profile,
        "metrics": [
            [name, quantity(value, METRICS[name].unit), METRICS[name].definition]
            for name, value in run.summary.values.items()
        ],
        "lanes": [[n, e] for n, e in zip(run.lanes.names, run.lanes.engine, strict=True)],
        "engineNames": ENGINE_NAMES,
        "labels": list(run.timeline.labels),
        "reasons": [REASON_TEXTS[r] for r in REASONS],
        "reasonNames": list(REASONS),
        "waitKinds": list(WAIT_KINDS),
        "pathKinds": [[name, text] for name, text in KINDS.items()],
        "stallTexts": STALLS,
        "queueKinds": list(QUEUES),
        "rows": len(program),
        "forms": [_form(form) for form in program.forms],
        "files": [[short[f.path], f.name, f.lines] for f in run.sources.values()],
        "lines": [[list(run.sources).index(path), line] for path, line in program.lines],
        "sbufBytes": machine.limit("sbuf_bytes_per_partition"),
        "sbufNote": machine.sbuf_note(machine.limit("sbuf_bytes_per_partition")),
        "psumBanks": machine.limit("psum_banks"),
        "psumBankBytes": machine.limit("psum_bank_bytes"),
    }


def short_paths(paths: list[str]) -> dict[str, str]:
    """Per path its last parts, as few as tell it from the others: whose folders they are is not shown."""
    parts = {path: path.replace("\\", "/").strip("/").split("/") for path in paths}
    short: dict[str, str] = {}
    for path, own in parts.items():
        others = [other for name, other in parts.items() if name != path]
        count = 1
        while count < len(own) and any(other[-count:] == own[-count:] for other in others):
            count += 1
        short[path] = "/".join(own[-count:])
    return short


def _form(form: Any) -> list[Any]:
    """Name of an instruction, its tile operands with layouts, its attributes, FLOP of a multiplication."""
    operands = [
        [name, _layout(layout), spec.is_written]
        for name, spec, layout in form.tile_slots()
        if layout is not None
    ]
    attributes = [
        f"{name}={_short(value)}"
        for name, value in zip(type(form).attributes, form.attribute_values, strict=True)
        if value not in (None, "", False, (), "none", "unknown")
    ]
    passes = sum(step.label.startswith("MATMUL") for step in form.steps)
    return [form.name, operands[:_OPERANDS], ", ".join(attributes), flops_of(form).once / max(1, passes)]


def _layout(layout: Layout) -> str:
    return f"{layout.dtype.name}[{', '.join(map(str, layout.shape))}] in {layout.memory}"


def _short(value: Any) -> str:
    text = str(getattr(value, "name", value))
    return text if len(text) <= 60 else text[:59] + "…"


# The largest number of ticks that a latency has; twice that fits into 32 bits.
_MOST_TICKS = 2e9
_FINEST = 1e-3


def tick_of(latency_ns: float) -> float:
    """Nanoseconds per tick, a power of ten: times of the page are whole ticks in 32 bits."""
    return max(_FINEST, 10.0 ** ceil(log10(max(latency_ns, 1.0) / _MOST_TICKS)))


class Columns:
    """Columns under construction: little-endian typed arrays, each padded to four bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._listed: list[list[object]] = []
        self._size = 0

    def add(self, name: str, values: np.ndarray, kind: str = "u4", *, is_delta: bool = False) -> None:
        """Append a column.

        Args:
            name: in the page.
            values: whole numbers, or fractions for "f4".
            kind: "u1", "u2", "u4", "i4" or "f4".
            is_delta: whether each number is held as the difference to the one before it, modulo 2 ** 32;
                columns that ascend get smaller that way.
        """
        numbers = np.asarray(values)
        if kind != "f4":
            numbers = np.rint(numbers).astype(np.int64)
            if is_delta:
                assert kind in ("u4", "i4")
            least, most = (0, 2 ** (8 * int(kind[1])) - 1) if kind[0] == "u" else (-(2**31), 2**31 - 1)
            assert not len(numbers) or (least <= numbers.min() and numbers.max() <= most), (
                f"{name} is out of range"
            )
            numbers = np.diff(numbers, prepend=0) & 0xFFFFFFFF if is_delta else numbers
        content = numbers.astype("<u4" if is_delta else f"<{kind}").tobytes()
        self._listed.append([name, kind, len(numbers), is_delta])
        self._parts.append(content + bytes(-len(content) % 4))
        self._size += len(self._parts[-1])

    def begin(self) -> int:
        """Begin another directory; returns the bytes that stand before its first column."""
        self._listed = []
        return self._size

    @property
    def directory(self) -> list[list[object]]:
        """Per column since `begin` its name, type, length and whether it holds differences."""
        return self._listed

    def text(self) -> str:
        """All columns, gzip in base64; equal columns give equal text."""
        return base64.b64encode(gzip.compress(b"".join(self._parts), 6, mtime=0)).decode()


def narrowest(count: int) -> str:
    """The narrowest type of numbers below `count`."""
    return "u1" if count <= 1 << 8 else "u2" if count <= 1 << 16 else "u4"
