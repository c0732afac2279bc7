"""Traces read back: JSON by its schema, protobuf by Perfetto's own classes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import defaultdict

import pytest
from msgspec.structs import replace

from nkilab.errors import UsageError
from nkilab.views import perfetto
from nkilab.views.perfetto import trace_json, trace_protobuf
from tests.place.handmade import Kernel, rows
from tests.timing.test_clock import ROUND, fact
from tests.views.runs import kernel_run, loaded_copied_stored, run_of, side_by_side
from tests.views.test_path import KERNELS

LANES = ["Critical path", "Vector", "qSyncLoad0", "qSyncStore1"]


def slices_of(events: list[dict]) -> list[dict]:
    return [event for event in events if event["ph"] == "X"]


def test_the_json_trace_has_the_lanes_of_the_report() -> None:
    events = json.loads(trace_json(run_of(loaded_copied_stored())))["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    # two units issue: the store is the second transfer
    assert list(names.values()) == LANES
    copies = [e for e in slices_of(events) if e["name"] == "TENSOR_COPY"]
    # 2688.4 and 3300.4 ns
    assert [(e["ts"], e["dur"], names[e["tid"]]) for e in copies] == [(2.688, 0.612, "Vector")]
    assert copies[0]["args"] == {
        "line": "kernel.py:2", "instruction": "tensor_copy", "operands": "b, a",
        "started_then": "data that a transfer brought, or space that it emptied", "visible_ns": 3300,
    }  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_the_json_trace_keeps_the_rules_of_its_format(name: str) -> None:
    content = json.loads(trace_json(kernel_run(name)))
    assert content["displayTimeUnit"] == "ns"
    needed = {"X": {"ts", "dur", "tid", "args"}, "M": {"args"}, "C": {"ts", "args"},
              "s": {"ts", "tid", "id"}, "f": {"ts", "tid", "id", "bp"}}  # fmt: skip
    starts, ends = set(), set()
    for event in content["traceEvents"]:
        assert {"ph", "name", "pid"} | needed[event["ph"]] <= set(event)
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
        if event["ph"] in "sf":
            (starts if event["ph"] == "s" else ends).add(event["id"])
    assert starts == ends != set()


@pytest.mark.parametrize("name", [*KERNELS, "side by side"])
def test_slices_of_one_lane_do_not_overlap_in_part(name: str) -> None:
    run = run_of(side_by_side()) if name == "side by side" else kernel_run(name)
    by_lane = defaultdict(list)
    for event in slices_of(json.loads(trace_json(run))["traceEvents"]):
        start = round(event["ts"] * 1000)
        by_lane[event["tid"]].append((start, start + round(event["dur"] * 1000)))
    for spans in by_lane.values():
        open_until: list[int] = []
        for start, stop in spans:
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or stop <= open_until[-1]
            open_until.append(stop)


def test_products_side_by_side_keep_their_time() -> None:
    events = json.loads(trace_json(run_of(side_by_side())))["traceEvents"]
    products = [e for e in slices_of(events) if e["name"] == "MATMUL"]
    assert len({e["tid"] for e in products}) == 4
    # 512 rows and 8 cycles at 2.4 GHz, in whole nanoseconds
    assert {round(e["dur"] * 1000) for e in products} <= {216, 217}


def test_a_transfer_whose_slice_is_cut_tells_its_last_byte() -> None:
    # the last of 16 DMA engines starts, and ends, 15 * 10 ns after the first
    k = Kernel(replace(ROUND, dma_issuing_units=fact(1), dma_spread_ns=fact(10.0)))
    source = k.hbm(256, 5120)
    for i in range(2):
        k.load(k.tile(128, 5120), rows(source, i * 128, i * 128 + 128))
    events = slices_of(json.loads(trace_json(run_of(k)))["traceEvents"])
    first, second = (e for e in events if e["name"] == "DMA")
    assert (first["ts"], first["dur"], first["args"]["last_byte_ns"]) == (1.0, 16.384, 17534)
    assert (second["ts"], second["dur"]) == (17.384, 16.534)
    assert "last_byte_ns" not in second["args"]


def read(content: bytes):
    classes = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = classes.Trace()
    trace.ParseFromString(content)
    return classes, trace


def trace_of(name: str = ""):
    """Tracks, slices by track with their names and annotations, flows and counters of a protobuf trace."""
    run = kernel_run(name) if name else run_of(loaded_copied_stored())
    pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    classes, trace = read(trace_protobuf(run))
    texts, tracks, slices, counts = {}, {}, defaultdict(list), defaultdict(list)
    flows: tuple[set, set] = (set(), set())
    kinds = classes.TrackEvent
    for packet in trace.packet:
        for table in ("event_names", "debug_annotation_names", "debug_annotation_string_values"):
            for entry in getattr(packet.interned_data, table):
                texts[table, entry.iid] = entry.str.decode() if table.endswith("values") else entry.name
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        event = packet.track_event
        if event.type == kinds.TYPE_SLICE_BEGIN:
            notes = {
                texts["debug_annotation_names", n.name_iid]: n.int_value
                or texts.get(("debug_annotation_string_values", n.string_value_iid))
                for n in event.debug_annotations
            }
            name = texts["event_names", event.name_iid]
            slices[tracks[event.track_uuid].name].append([name, packet.timestamp, None, notes])
            flows[0].update(event.flow_ids)
            flows[1].update(event.terminating_flow_ids)
        elif event.type == kinds.TYPE_SLICE_END:
            slices[tracks[event.track_uuid].name][-1][2] = packet.timestamp
        elif event.type == kinds.TYPE_COUNTER:
            counts[tracks[event.track_uuid].name].append((packet.timestamp, event.double_counter_value))
    return run, tracks, slices, flows, counts


def test_the_protobuf_trace_has_lanes_slices_flows_and_counters() -> None:
    _, tracks, slices, flows, counts = trace_of()
    assert [t.name for t in tracks.values() if t.parent_uuid and not t.HasField("counter")] == LANES
    assert [(n, start, end) for n, start, end, _ in slices["Vector"]] == [("TENSOR_COPY", 2688, 3300)]
    assert slices["Vector"][0][3]["operands"] == "b, a"
    assert slices["qSyncLoad0"][0][3]["bytes"] == 262144
    assert len(flows[0]) == len(flows[1]) == 2
    assert flows[0] == flows[1]
    # 160 bytes a nanosecond from 1000 to 2638.4, then again from 4350.4
    assert counts["DMA throughput"] == [(1000, 160), (2638, 0), (4350, 160), (5989, 0)]
    assert [name for _, name in counts["SBUF in use"]] == [2048, 4096, 2048, 0]


@pytest.mark.parametrize("name", KERNELS)
def test_both_forms_say_the_same(name: str) -> None:
    run, _, slices, _, _ = trace_of(name)
    events = json.loads(trace_json(run))["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    by_lane = defaultdict(list)
    for e in slices_of(events):
        start = round(e["ts"] * 1000)
        by_lane[names[e["tid"]]].append((e["name"], start, start + round(e["dur"] * 1000)))
    assert {lane: [tuple(s[:3]) for s in own] for lane, own in slices.items()} == by_lane


def test_without_the_package_a_protobuf_trace_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing():
        raise ModuleNotFoundError("perfetto")

    monkeypatch.setattr(perfetto, "perfetto", missing)
    with pytest.raises(UsageError) as raised:
        trace_protobuf(run_of(loaded_copied_stored()))
    assert str(raised.value) == (
        "a trace in protobuf is written by the package perfetto, which is not installed\n"
        "  hint: install nkilab[trace], or name the file *.json"
    )


@pytest.mark.skipif(not shutil.which("trace_processor"), reason="needs trace_processor on PATH")
def test_perfettos_own_processor_reads_both_forms(tmp_path) -> None:
    for name, content in {"a.json": trace_json, "a.pftrace": trace_protobuf}.items():
        (tmp_path / name).write_bytes(content(kernel_run("tiled")))
        query = tmp_path / "query.sql"
        query.write_text("select count(*) from slice;")
        done = subprocess.run(
            ["trace_processor", "-q", str(query), str(tmp_path / name)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert str(len(kernel_run("tiled").timeline) + len(kernel_run("tiled").path)) in done.stdout


def test_protobuf_is_imported_only_when_it_is_written() -> None:
    program = "import nkilab.views.perfetto, sys; print('google.protobuf' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
