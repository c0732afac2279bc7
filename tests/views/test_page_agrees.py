"""A page says one thing: cards, sentences, tables and advice are parts of one sum of the latency."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from nkilab.views.report import report_html
from nkilab.views.run import Run
from tests.place.handmade import Kernel
from tests.timing.test_clock import ROUND, fact
from tests.views.report.test_page import read
from tests.views.runs import kernel_run, loaded_copied_stored, pipeline, run_of, side_by_side
from tests.views.test_decomposition import one_product
from tests.views.test_path import KERNELS


def spilling() -> Kernel:
    """Room for two tiles of three that are read again after all are made."""
    k = Kernel(replace(ROUND, sbuf_bytes_per_partition=fact(4096), kernel_start_ns=fact(9000.0)))
    tiles = [k.tile(128, 512) for _ in range(3)]
    for tile in tiles:
        k.fill(tile)
    for tile in tiles:
        k.store(k.hbm(128, 512), tile)
    return k


HANDMADE = {
    "a chain": lambda: run_of(loaded_copied_stored()), "a pipeline": lambda: run_of(pipeline()),
    "a pipeline of pieces": lambda: run_of(pipeline(8)),
    "products side by side": lambda: run_of(side_by_side()),
    "one product": one_product, "a spill": lambda: run_of(spilling()),
}  # fmt: skip


@pytest.fixture(params=[*KERNELS, *HANDMADE])
def page(request: pytest.FixtureRequest) -> tuple[Run, dict[str, Any]]:
    run = HANDMADE[request.param]() if request.param in HANDMADE else kernel_run(request.param)
    return run, read(report_html(run))[0]


def test_shares_of_engines_and_of_the_path_are_whole(page: tuple[Run, dict[str, Any]]) -> None:
    profile = page[1]["profile"]
    latency = profile["latency_us"]
    assert profile["summary"]["metrics"]["total_time"] == pytest.approx(latency)
    assert sum(piece["share"] for piece in profile["critical_path"]) == pytest.approx(1)
    assert sum(piece["time_us"] for piece in profile["critical_path"]) == pytest.approx(latency)
    launch = sum(piece["time_us"] for piece in profile["critical_path"] if piece["kind"] == "launch")
    for engine in profile["engines"]:
        waits = {stall["reason"]: stall["time_us"] for stall in engine["stalls"]}
        assert engine["busy_us"] + sum(waits.values()) == pytest.approx(latency)
        # no engine works, or waits for another one, before the kernel is launched
        assert waits.get("start", 0) == pytest.approx(launch)


def test_sentences_say_what_tables_say(page: tuple[Run, dict[str, Any]]) -> None:
    run, tables = page
    profile = tables["profile"]
    bound, occupancy = profile["summary"]["bound"], profile["summary"]["occupancy"]
    first, *others, last = profile["verdict"]
    assert first == f"It is bound by {bound}: {profile['summary']['bound_text']}."
    most = max(occupancy, key=lambda name: occupancy[name])
    assert (bound == most) if occupancy[most] >= 0.8 else (bound not in occupancy or bound == "DMA issue")
    scales = {"ns": 1e-3, "us": 1, "ms": 1e3}
    for sentence in others:
        ((percent, time, unit),) = re.findall(r"([\d.]+) % of the time \(([\d.]+) (ns|us|ms)\)", sentence)
        share = float(time) * scales[unit] / profile["latency_us"]
        assert float(percent) == pytest.approx(100 * share, abs=0.06)
    of_path = [piece for piece in profile["critical_path"] if piece["what"] in others[0]]
    assert [piece["time_us"] for piece in of_path][:1] == [
        max(piece["time_us"] for piece in profile["critical_path"])
    ]
    if profile["advice"]:
        best = profile["advice"][0]
        name = " + ".join([" or ".join([best["id"], *best["also_called"]]), *best["combined_with"]])
        assert f"({name}, {best['where']}); it saves {best['gain_us']:.2f} us" in last
    else:
        assert last == run.guidance.sentence


def test_the_limits_are_at_most_the_latency(page: tuple[Run, dict[str, Any]]) -> None:
    profile = page[1]["profile"]
    for limit in profile["distances"]:
        assert limit["time_us"] <= profile["latency_us"] * (1 + 1e-9)
        assert limit["times"] == pytest.approx(profile["latency_us"] / limit["time_us"])
        is_faster = limit["time_us"] < profile["latency_us"] * (1 - 1e-9)
        if limit["limit"] == "best order":
            assert (limit["separates"] == "no order that was tried is faster") != is_faster
