"""Measuring, flame view, comparison and advice of the report in a real browser."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest
from msgspec.structs import replace

from nkilab.views.difference import Difference
from nkilab.views.guidance import Advice, Distance, Guidance
from nkilab.views.record import profile_dict
from nkilab.views.report import report_html
from nkilab.views.report.page import comparison_html
from tests.views.runs import kernel_run, loaded_copied_stored, run_of, side_by_side
from tests.views.test_path import KERNELS

pytestmark = pytest.mark.browser


def two_runs() -> Difference:
    return Difference(kernel_run("tiled"), kernel_run("blocked"), ("one", "other"))


def sums(page: Any, start_ns: float, end_ns: float) -> dict[str, Any]:
    """What the ruler adds up between two moments."""
    own = page.js(f"nkilab.sumsOf({start_ns} / nkilab.tick, {end_ns} / nkilab.tick)")
    return {**own, "engines": dict(own["engines"])}


@pytest.mark.parametrize("name", KERNELS)
def test_a_range_over_the_whole_run_sums_up_to_what_panels_say(opened, name: str) -> None:
    run = kernel_run(name)
    names = {"tensor": "TensorE", "vector": "VectorE", "scalar": "ScalarE", "gpsimd": "GpSimdE", "dma": "DMA"}
    own = sums(opened(run), 0, run.timeline.latency_ns)
    expected = {names[engine]: busy for engine, busy in run.stalls.busy_ns.items()}
    assert own["engines"] == pytest.approx(expected, rel=1e-4)
    assert own["moved"] == pytest.approx(run.summary["dma_transfer_total_bytes"])
    assert own["flops"] == pytest.approx(run.summary["hardware_flops_once"])
    lines = profile_dict(run)["lines"]
    assert sum(time for _, time in own["lines"]) == pytest.approx(
        sum(1000 * line["busy_us"] for line in lines), rel=1e-3
    )


def test_products_side_by_side_are_busy_once(opened) -> None:
    run = run_of(side_by_side())
    own = sums(opened(run), 0, run.timeline.latency_ns)
    assert own["engines"]["TensorE"] == pytest.approx(run.stalls.busy_ns["tensor"], rel=1e-4)
    assert own["flops"] == pytest.approx(run.summary["hardware_flops_once"])


def test_a_range_cuts_what_reaches_over_its_edges(opened) -> None:
    # by hand: the load moves 262,144 bytes from 1000 to 2638.4 ns, the copy runs from 2688.4 to 3300.4
    page = opened(run_of(loaded_copied_stored()))
    own = sums(page, 1819.2, 2788.4)
    assert own["moved"] == pytest.approx(262_144 / 2, rel=1e-6)
    assert own["engines"] == pytest.approx({"VectorE": 100, "DMA": 819.2})
    assert own["length"] == pytest.approx(969.2)


@pytest.mark.parametrize("way", ["shift", "mode", "view"])
def test_a_drag_measures_and_sums_can_be_copied(opened, way: str) -> None:
    page = opened(kernel_run("tiled"))
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    frame = page.page.locator("#timeline").bounding_box()
    page.page.focus("#timeline")
    keys, mouse = page.page.keyboard, page.page.mouse
    view = page.js("nkilab.timeline.view")
    if way == "view":
        keys.press("v")
    else:
        (keys.down("Shift") if way == "shift" else page.page.click("#measure"))
        mouse.move(frame["x"] + 300, frame["y"] + 80)
        mouse.down()
        mouse.move(frame["x"] + 500, frame["y"] + 120, steps=5)
        mouse.up()
        keys.up("Shift")
        start, end = page.js("[300, 500].map((x) => nkilab.timeline.ticksAt(x))")
        assert page.js("nkilab.timeline.range") == pytest.approx({"t0": start, "t1": end})
    # a drag that measures does not pan
    assert page.js("nkilab.timeline.view") == view
    text = page.page.inner_text("#range-sums")
    assert "TensorE" in text
    assert "moved by DMA" in text
    page.page.click("#range-copy")
    copied = page.js("navigator.clipboard.readText()")
    assert copied.startswith("Range\tTime\nfrom\t")
    assert "Engine\tBusy\tShare\n" in copied
    keys.press("Escape")
    page.page.click("#range-clear") if page.page.is_visible("#range") else None
    assert not page.page.is_visible("#range")


def test_details_stand_beside_the_timeline_or_over_its_end(opened) -> None:
    for width, height in ((1440, 900), (1024, 768), (390, 844)):
        page = opened(kernel_run("attention"), width=width, height=height)
        page.js("document.querySelector('.dock').scrollIntoView(); nkilab.timeline.select(12)")
        page.page.wait_for_selector('[data-field="title"]')
        top, bottom = page.js(
            "(({ top, bottom }) => [top, bottom])(document.querySelector('[data-field=\"title\"]')"
            ".getBoundingClientRect())"
        )
        assert 0 <= top < bottom <= height, (width, top, bottom)
        assert page.js("document.documentElement.scrollWidth") <= width
    # at 1440 x 900 without scrolling
    page = opened(kernel_run("tiled"), width=1440, height=900)
    page.js("nkilab.timeline.select(12)")
    boxes = [page.page.locator(name).bounding_box() for name in ("#timeline", '[data-field="title"]')]
    assert all(0 <= box["y"] < 900 - 40 for box in boxes)
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]


def test_the_flame_is_as_wide_as_time_and_lights_what_is_clicked(opened) -> None:
    run = kernel_run("tiled")
    page = opened(run, width=1440)
    whole = page.page.locator("#flame > li").bounding_box()["width"]
    cost = next(cost for cost in run.lines if cost.line == 50)
    node = page.page.locator('#flame [aria-label^="matmul.py:50:"]')
    share = node.bounding_box()["width"] / whole
    assert share == pytest.approx(cost.path_ns / run.timeline.latency_ns, abs=0.01)
    # what stands over it are its loops, the outermost first
    parents = page.js(
        "(() => { const names = []; let at = document.querySelector('#flame [aria-label^=\"matmul.py:50:\"]')"
        ".closest('li'); while ((at = at.parentElement.closest('#flame li'))) "
        "names.unshift(at.querySelector('button').textContent); return names; })()"
    )
    assert parents == [
        "tiled", "43: for _ in range(repeats)", "44: for m in nl.affine_range(M // ROWS)",
        "45: for n in nl.affine_range(N // COLUMNS)", "47: for k in nl.affine_range(K // DEPTH)",
    ]  # fmt: skip
    node.click()
    lit = page.js("nkilab.search.masks[0].reduce((a, b) => a + b)")
    assert lit == sum(1 for row in run.timeline.row if run.program.place_of(int(row)) == "matmul.py:50")
    assert page.page.locator("#code .marked").get_attribute("data-line") == "50"
    page.page.select_option("#flame-time", "busy")
    total = sum(cost.busy_ns for cost in run.lines)
    share = page.page.locator('#flame [aria-label^="matmul.py:50:"]').bounding_box()["width"] / whole
    assert share == pytest.approx(cost.busy_ns / total, abs=0.01)


def test_two_runs_zoom_together_on_one_scale_and_on_their_own(opened) -> None:
    difference = two_runs()
    page = opened(comparison_html(difference), width=1440)
    assert page.page.inner_text("#title") == "one and other"
    first, second = (run.timeline.latency_ns for run in (difference.before, difference.after))
    assert page.js("nkilab.timeline.viewOf(0)") == page.js("nkilab.timeline.viewOf(1)")
    page.page.click("#own-scales")
    ends = page.js("[0, 1].map((core) => nkilab.timeline.viewOf(core).t1 * nkilab.tick)")
    assert ends == pytest.approx([first, second], rel=0.02)
    page.js("nkilab.timeline.zoom(0.5, 0)")
    ends = page.js("[0, 1].map((core) => nkilab.timeline.viewOf(core).t1 * nkilab.tick)")
    assert ends == pytest.approx([first / 2, second / 2], rel=0.02)
    # a click on an event of the run that is shorter selects it there
    page.page.click("#zoom-all")
    at = page.js(
        "(() => { const { lanes, box, viewOf } = nkilab.timeline, lane = lanes[1];"
        " const { t0, t1 } = nkilab.timeline.viewOf(0);"
        " return [box.x + ((lane.start[lane.first] - t0) / (t1 - t0)) * box.width + 3, lane.y + 4]; })()"
    )
    page.page.locator("#timeline").click(position={"x": at[0], "y": at[1]})
    assert (page.js("nkilab.focus"), page.field("core")) == (0, "one")
    assert page.js("nkilab.timeline.selected") == page.js("nkilab.timeline.lanes[1].first")


def test_lines_that_match_are_lit_in_both_runs_with_what_is_better_and_worse(opened) -> None:
    difference = two_runs()
    page = opened(comparison_html(difference), width=1440)
    worse = [one for one in difference.lines() if one.change > 0]
    rows = page.page.locator("#change-tables tr.worse")
    assert rows.first.inner_text().endswith("▼ worse")
    page.page.click("#changes button:nth-of-type(2)")
    lit = page.js("nkilab.search.masks.map((mask) => mask.reduce((a, b) => a + b))")
    places = {place for one in worse for place in one.lines if place}
    assert lit == [
        sum(1 for row in run.timeline.row if run.program.place_of(int(row)) in places)
        for run in (difference.before, difference.after)
    ]
    page.page.locator("#change-tables button").first.click()
    first = set(difference.lines()[0].lines)
    lit = page.js("nkilab.search.masks.map((mask) => mask.reduce((a, b) => a + b))")
    assert sum(lit) == sum(
        1
        for run in (difference.before, difference.after)
        for row in run.timeline.row
        if run.program.place_of(int(row)) in first
    )


def test_advice_and_distances_are_shown_with_the_lines_they_speak_of(opened) -> None:
    run = kernel_run("tiled")
    half = Distance("roofline", run.timeline.latency_us / 2, 2.0, "bytes moved twice")
    hoist = Advice(
        "hoist-loads", "matmul.py:50", "loaded 4 times", 3.2, (1.1, 4.0),
        "loaded once", "load the tile once, before the loop", "a guide",
    )  # fmt: skip
    page = opened(report_html(replace(run, guide=lambda: Guidance((hoist,), (half,)))))
    shown = page.page.inner_text("#advice")
    assert "Load the tile once, before the loop" in shown
    assert "saves 3.2 µs (1.1 µs to 4 µs); matmul.py:50" in shown
    page.page.click("#advice button")
    lit = page.js("nkilab.search.masks[0].reduce((a, b) => a + b)")
    assert lit == sum(1 for row in run.timeline.row if run.program.place_of(int(row)) == "matmul.py:50")
    assert page.page.locator("#code .marked").get_attribute("data-line") == "50"
    kernel, roofline = (one.bounding_box()["width"] for one in page.page.locator("#distances .bar").all())
    assert roofline / kernel == pytest.approx(0.5, abs=0.01)
    assert "bytes moved twice" in page.page.inner_text("#distances")


def test_the_first_cards_show_everything_and_further_advice_unfolds(opened) -> None:
    run = kernel_run("attention")
    limits = tuple(Distance(f"limit {n}", run.timeline.latency_us / n, n, "words " * 20) for n in range(1, 6))
    advice = tuple(
        Advice(
            f"change_{n}", "attention.py:50", "said", 9.0 - n, (1.0, 10.0), "edit", f"do {n}", "guide " * 9
        )
        for n in range(5)
    )
    page = opened(report_html(replace(run, guide=lambda: Guidance(advice, limits))), width=1440)
    # whatever is drawn in a card lies within it, to its last row
    below = page.js(
        "[...document.querySelectorAll('#guidance, #guidance + section')].flatMap((card) =>"
        " [...card.querySelectorAll('li, tr')].filter((one) => one.checkVisibility() &&"
        " one.getBoundingClientRect().bottom > card.getBoundingClientRect().bottom))"
        ".map((one) => one.textContent)"
    )
    assert below == []
    assert page.js("document.querySelector('#guidance + section').scrollHeight") <= page.js(
        "document.querySelector('#guidance + section').clientHeight"
    )
    shown = "[...document.querySelectorAll('[data-advice]')].filter((one) => one.checkVisibility()).length"
    assert page.js(shown) == 3
    assert page.page.inner_text("#advice summary") == "2 more"
    page.page.click("#advice summary")
    assert page.js(shown) == 5
    assert page.js("document.querySelector('#advice details ol').start") == 4


def test_a_kernel_that_no_change_helps_is_told_so(opened) -> None:
    page = opened(report_html(replace(kernel_run("tiled"), guide=Guidance)))
    assert (
        page.page.inner_text("#advice")
        == "No change that nkilab knows would save more time here than its model can tell apart."
    )
    assert page.page.locator("#distances table").count() == 0


def test_numbers_can_be_read_without_seeing_them(opened) -> None:
    page = opened(kernel_run("attention"))
    # tables name their columns and rows, and every control says what it does
    assert page.js("[...document.querySelectorAll('table')].filter((t) => !t.tHead || ![...t.tBodies[0].rows]"
                   ".every((row) => row.cells[0].scope === 'row')).length") == 0  # fmt: skip
    assert page.js("document.querySelectorAll('th:not([scope])').length") == 0
    unnamed = page.js(
        "[...document.querySelectorAll('button, select, input, canvas, svg, section')].filter((one) =>"
        " !(one.tagName === 'BUTTON' && one.textContent.trim() || one.ariaLabel || one.labels?.length"
        " || one.getAttribute('aria-labelledby'))).map((one) => one.id)"
    )
    assert unnamed == []
    assert page.page.get_attribute("#sbuf", "aria-label").startswith("Tiles in SBUF: at most ")
    # what works is told as text where a bar shows it
    assert page.page.inner_text("#stalls tbody tr:first-child th") == "TensorE"


def test_loops_beside_a_line_or_in_other_functions_are_not_around_it(opened) -> None:
    text = """
    def helper(x):
        for unused in x:
            pass
    @nki.jit
    def tiled(x):
        for i in range(4):
            for j in range(2):
                load(
                    x,
                )
            for k in range(
                8,
            ):
                while more:

                    store(x)
    """
    source = dedent(text).strip().splitlines()
    page = opened(kernel_run("tiled"))
    page.js(f"nkilab.tables.files.push(['k', 'k.py', {source!r}])")
    around = page.js("[3, 8, 9, 16].map((line) => nkilab.loopsAround(nkilab.tables.files.length - 1, line))")
    assert around[0] == ["1: def helper(x)", "2: for unused in x"]
    assert around[1] == ["6: for i in range(4)", "7: for j in range(2)"]
    assert around[2] == around[1]
    # a head of several lines is named by the first
    assert around[3] == ["6: for i in range(4)", "11: for k in range(", "14: while more"]
