"""Views of several cores and ranks: every core is there, in one time, and sums are right."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import nkilab
from nkilab.profiles import Profile
from nkilab.views.explorer import tables_of
from nkilab.views.explorer.summary import ranks_of
from nkilab.views.perfetto import trace_json
from nkilab.views.report import report_html
from tests.cores.kernels import output_like
from tests.dialects.spellings import nisa2 as nisa
from tests.dialects.spellings import nki2 as nki
from tests.dialects.spellings import nl2 as nl
from tests.views.report.test_page import read
from tests.views.test_schemas import check

BLOCK = 128 * 512 * 4


@nki.jit
def uneven(x, blocks):
    """Program 1 copies three blocks in the time of one, and computes on them."""
    out, me = output_like(x), nl.program_id(0)
    for i in range(1 if me == 0 else blocks):
        tile = nl.ndarray((128, 512), x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x[me, i])
        if me:
            nisa.activation(tile, op=nl.exp, data=tile)
        nisa.dma_copy(out[me, i], tile)
    return out


@nki.jit
def halves(a, b):
    """a.T @ b; each program has its half of the columns of b."""
    count = b.shape[1] // nl.num_programs(0)
    here = slice(nl.program_id(0) * count, (nl.program_id(0) + 1) * count)
    left, right = (
        nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf),
        nl.ndarray((128, count), b.dtype, buffer=nl.sbuf),
    )
    nisa.dma_copy(left, a)
    nisa.dma_copy(right, b[:, here])
    total = nl.ndarray((128, count), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(total, left, right)
    result = nl.ndarray((128, count), nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(result, total)
    out = nl.ndarray((128, b.shape[1]), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(out[:, here], result)
    return out


@cache
def on_two() -> Profile:
    return nkilab.profile(uneven[2], nkilab.spec((2, 3, 128, 512), "float32"), 3)


def test_the_table_holds_every_core_and_their_sums() -> None:
    together = on_two().together
    assert together is not None
    assert [one.name for one in together.cores] == ["program 0", "program 1"]
    # hand: one block and three
    assert [one.estimate.summary["hbm_read_bytes"] for one in together.cores] == [BLOCK, 3 * BLOCK]
    assert together.total("hbm_write_bytes") == 4 * BLOCK
    assert together.shown == 1
    # program 0 alone has not all the work
    assert together.one_core is None


def test_utilization_in_all_counts_all_cores_until_the_last_one_ends() -> None:
    profiled = nkilab.profile(halves[2], *(nkilab.spec((128, n), "bfloat16") for n in (128, 512)))
    # hand: 2 * 128 * 128 * 512 operations; two cores of 128 * 128 * 2 * 2.4 GHz
    peak = 2 * profiled.program.machine["peak_tflops_bf16"] * 1e12
    assert profiled.mfu_percent == pytest.approx(
        100 * 2 * 128 * 128 * 512 / (peak * profiled.latency_us * 1e-6)
    )
    single = nkilab.profile(halves[1], *(nkilab.spec((128, n), "bfloat16") for n in (128, 512)))
    assert profiled.one_core is not None
    assert (profiled.one_core.latency_us, profiled.one_core.bound) == (
        single.latency_us,
        single.summary.bound,
    )
    assert f"2 cores are {single.latency_us / profiled.latency_us:.2f} times as fast" in profiled.text()


def test_the_text_has_a_row_and_lanes_for_each_core() -> None:
    lines = on_two().text().splitlines()
    assert sum(line.startswith(("│ program 0 ", "│ program 1 ", "│ all 2 ")) for line in lines) == 3
    assert [line for line in lines if line in ("program 0:", "program 1:")] == ["program 0:", "program 1:"]
    assert sum("qSyncLoad0 |" in line for line in lines) == 2
    assert sum("Scalar |" in line for line in lines) == 1
    assert "what follows is of program 1, the slowest" in lines
    assert max(map(len, lines)) <= 100


def test_the_page_holds_the_events_of_each_core_on_one_scale() -> None:
    both_cores = on_two()
    text = report_html(both_cores.run)
    for place, (name, run) in enumerate(both_cores.run.runs):
        tables, columns = read(text, place)
        assert tables["core"] == name
        assert len(columns["start"]) == len(run.timeline)
        order = np.lexsort((run.timeline.start_ns, run.lanes.of_event))
        tick = tables["tick"]
        assert np.allclose(columns["start"] * tick, run.timeline.start_ns[order], atol=tick)
    assert tables["focus"] == 1
    assert [row[:2] for row in tables["together"]["rows"]] == [
        [0, "program 0"],
        [1, "program 1"],
        [-1, "all 2"],
    ]


TITLES = [f"program {n}: uneven on trn2, predicted by nkilab" for n in (0, 1)]


def test_cores_are_processes_of_a_trace() -> None:
    run = on_two().run
    names, lanes = {}, defaultdict(set)
    for event in json.loads(trace_json(run))["traceEvents"]:
        if event["name"] == "process_name":
            names[event["pid"]] = event["args"]["name"]
        elif event["name"] == "thread_name":
            lanes[event["pid"]].add(event["args"]["name"])
    assert list(names.values()) == TITLES
    assert [set(own) for own in lanes.values()] == [
        {"Critical path", *one.lanes.names} for _, one in run.runs
    ]


def test_profiles_of_several_cores_keep_to_their_schema() -> None:
    check(on_two().to_profile())
    check(on_two().to_dict())


def test_a_short_form_shows_the_timeline_of_each_core() -> None:
    estimated = nkilab.estimate(uneven[2], nkilab.spec((2, 3, 128, 512), "float32"), 3)
    text = estimated._repr_html_()
    assert [text.count(f"<p>program {n}</p><svg") for n in (0, 1)] == [1, 1]
    # hand: a load and a store in one picture, three of each in the other
    assert text.count("<title>DMA at ") == 2 + 6


def test_tables_have_the_rows_of_both_cores_and_numbers_that_fit() -> None:
    both_cores = on_two()
    tables = tables_of(both_cores.run)
    counts = [len(run.timeline) for _, run in both_cores.run.runs]
    both = [tables[name] for name in ("Instruction", "DmaPacketAggregated")]
    rows = [row for own in both for row in zip(own["id"], own["pcore_idx"], strict=True)]
    assert sorted(rows) == [(n, 0 if n < counts[0] else 1) for n in range(sum(counts))]
    moved = tables["DmaPacketAggregated"]
    # hand: a load and a store of a block; three of each
    for core, blocks in ((0, 1), (1, 3)):
        own = [b for b, c in zip(moved["transfer_bytes"], moved["pcore_idx"], strict=True) if c == core]
        assert own == [BLOCK] * 2 * blocks
    for earlier, later in zip(tables["Flow"]["in_id"], tables["Flow"]["out_id"], strict=True):
        assert (earlier < counts[0]) == (later < counts[0])
    assert (tables["Metadata"]["num_physical_cores"], tables["Metadata"]["vnc_enabled"]) == ([2], [True])


def test_tables_of_several_ranks_lie_in_a_folder_for_each(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    profiled = nkilab.profile(uneven[2], nkilab.spec((2, 3, 128, 512), "float32"), 3, ranks=2)
    for _ in range(2):
        # once more into folders that are there
        profiled.save_tables(tmp_path / "tables")
    assert sorted(folder.name for folder in (tmp_path / "tables").iterdir()) == ["rank_0", "rank_1"]
    for rank in range(2):
        folder = tmp_path / "tables" / f"rank_{rank}"
        moved, summary, metadata = (
            parquet.read_table(folder / f"{table}.parquet").to_pydict()
            for table in ("DmaPacketAggregated", "Summary", "Metadata")
        )
        # by hand: a load and a store of a block on core 0, three of each on core 1, which ends last
        assert (moved["pcore_idx"].count(0), moved["pcore_idx"].count(1)) == (2, 6)
        assert set(moved["transfer_bytes"]) == {BLOCK}
        assert metadata["num_physical_cores"] == [2]
        assert summary["total_time"] == [pytest.approx(profiled.latency_us / 1e6 + 5e-6)]


def test_ranks_stand_in_order_of_their_numbers_with_their_own_cores() -> None:
    runs = [SimpleNamespace(estimate=SimpleNamespace(run=name)) for name in "ab"]
    runs[0].titles = ("rank 10, program 0", "rank 9, program 1")
    runs[1].titles = ("rank 9, program 0", "rank 10, program 1")
    assert ranks_of(SimpleNamespace(together=SimpleNamespace(cores=runs))) == {
        "rank 9": ("b", "a"), "rank 10": ("a", "b"),
    }  # fmt: skip
