"""Traces read back."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import defaultdict

import pytest
from msgspec.structs import replace

from nkilab.views.perfetto import trace_json
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


def test_the_trace_has_flows_and_counters() -> None:
    events = json.loads(trace_json(run_of(loaded_copied_stored())))["traceEvents"]
    assert sum(e["ph"] == "s" for e in events) == 2
    counts = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            counts[event["name"]].append((round(event["ts"] * 1000), event["args"]["value"]))
    # 160 bytes a nanosecond from 1000 to 2638.4, then again from 4350.4
    assert counts["DMA throughput (GB/s)"] == [(1000, 160), (2638, 0), (4350, 160), (5989, 0)]
    assert [value for _, value in counts["SBUF in use (bytes a partition)"]] == [2048, 4096, 2048, 0]


@pytest.mark.skipif(not shutil.which("trace_processor"), reason="needs trace_processor on PATH")
def test_perfettos_own_processor_reads_it(tmp_path) -> None:
    trace, query = tmp_path / "a.json", tmp_path / "query.sql"
    trace.write_bytes(trace_json(kernel_run("tiled")))
    query.write_text("select count(*) from slice;")
    words = ["trace_processor", "-q", str(query), str(trace)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert str(len(kernel_run("tiled").timeline) + len(kernel_run("tiled").path)) in done.stdout
