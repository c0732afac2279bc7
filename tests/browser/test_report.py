"""The report in a real browser: it loads silently, and zoom, search, selection and source links work."""

from __future__ import annotations

import numpy as np
import pytest

import nkilab
from nkilab.api import Shown
from nkilab.place.slots import ENGINES
from nkilab.reports import Reports
from nkilab.timing import REASON_TEXTS, REASONS
from nkilab.views.notebook import framed_html
from nkilab.views.run import Run
from tests.dialects.spellings import nisa2 as nisa
from tests.dialects.spellings import nki2 as nki
from tests.dialects.spellings import nl2 as nl
from tests.place.handmade import Kernel
from tests.timing.test_clock import ROUND
from tests.views.report.test_page import hostile
from tests.views.runs import kernel_run, loaded_copied_stored, run_of
from tests.views.test_cores import on_two

pytestmark = pytest.mark.browser


def click_on(opened, event: int, side: str = "start") -> None:
    """Click on an event of the timeline, by its place among the events of the page."""
    at = opened.js(
        f"(() => {{ const p = nkilab.timeline.place({event});"
        " return [(p.left + Math.min(p.right, p.left + 6)) / 2, p.middle]; })()"
    )
    opened.page.locator("#timeline").click(position={"x": at[0], "y": at[1]})


def order_of(run: Run) -> np.ndarray:
    """The events of a run in the order of the page."""
    return np.lexsort((run.timeline.start_ns, run.lanes.of_event))


def test_a_report_loads_and_shows_the_summary(opened) -> None:
    run = kernel_run("blocked")
    page = opened(run)
    assert page.js("document.documentElement.dataset.state") == "drawn"
    assert page.page.inner_text("#title") == "blocked"
    value, unit = page.page.inner_text(".card:first-child .value").split()
    assert float(value) * {"µs": 1000}[unit] == pytest.approx(run.timeline.latency_ns, rel=1e-3)
    assert page.page.locator("#sentences li").count() >= 3
    assert page.page.locator("#roofline svg").count() == 1
    assert page.js("nkilab.timeline.drawn") >= 1


def test_clicking_an_instruction_tells_its_line_duration_and_predecessor(opened) -> None:
    run = run_of(loaded_copied_stored())
    page = opened(run)
    click_on(page, 0)
    assert page.field("title") == "TENSOR_COPY · tensor_copy"
    assert page.field("line") == "kernel.py:2"
    # 512 elements at 1 ns and 100 ns of overhead
    assert page.field("duration") == "612 ns"
    assert page.field("start") == "2.688 µs"
    assert page.field("why") == "data that a transfer brought, or space that it emptied"
    assert page.field("predecessor") == "DMA at kernel.py:1, ends 2.638 µs"
    assert page.field("path") == "662 ns"
    page.page.click('[data-field="predecessor"] button')
    assert page.field("line") == "kernel.py:1"
    assert page.field("bytes") == "262.1 kB at 160 GB/s"
    assert page.field("predecessor") == "none"
    # 512 float32; the first tile lies at 0 from its load, which ends at 2638 ns, to the copy
    assert "2 KiB of SBUF at 0, from 1.000 µs to 3.300 µs" in page.field("operands")


def test_an_instruction_tells_where_its_own_tiles_lie(opened) -> None:
    # tiles of one line have one name: each row's own stay is told
    run = kernel_run("tiled")
    page, order = opened(run), order_of(run)
    sbuf = run.occupancy.sbuf
    for event in run.timeline.of_engine("vector").tolist():
        page.js(f"nkilab.timeline.select({int(np.flatnonzero(order == event)[0])})")
        written = next(run.program.accesses(int(run.timeline.row[event]))).storage
        (own,) = np.flatnonzero(sbuf.storage == written).tolist()
        start = f"{sbuf.start_ns[own] / 1000:,.3f}"
        assert f"of SBUF at {sbuf.address[own]}, from {start} µs" in page.field("operands")


def test_an_instruction_tells_its_iteration_of_the_loops(opened) -> None:
    run = kernel_run("tiled")
    page, order = opened(run), order_of(run)
    program = run.program
    for event in (0, 5, len(order) - 1):
        page.js(f"nkilab.timeline.select({event})")
        at, expected = int(program.position_column[run.timeline.row[order[event]]]), []
        while program.positions[at][0] >= 0:
            expected.insert(0, str(int(program.positions[at][2])))
            at = program.positions[at][0]
        assert page.field("loops") == " › ".join(expected)


@pytest.mark.parametrize("name", ["tiled", "attention"])
def test_the_panel_agrees_with_the_timeline_for_every_kind_of_event(opened, name: str) -> None:
    run = kernel_run(name)
    page, order, timeline = opened(run), order_of(run), run.timeline
    for event in np.unique(timeline.label[order], return_index=True)[1].tolist():
        page.js(f"nkilab.timeline.select({event})")
        own = order[event]
        assert page.field("line") == run.program.place_of(int(timeline.row[own]))
        assert page.field("why") == REASON_TEXTS[REASONS[timeline.reason[own]]]
        lasts = float(timeline.end_ns[own] - timeline.start_ns[own])
        value, unit = page.field("duration").split()
        assert float(value) * {"ns": 1, "µs": 1000}[unit] == pytest.approx(lasts, rel=1e-3)
        waited = int(timeline.waited_row[own])
        expected = run.program.place_of(waited) if waited >= 0 else "none"
        assert expected in page.field("predecessor")


def test_the_wheel_zooms_around_the_pointer_and_drag_pans(opened) -> None:
    page = opened(kernel_run("blocked"))
    frame = page.page.locator("#timeline").bounding_box()
    x, y = frame["x"] + 700, frame["y"] + 60
    under = page.js("nkilab.timeline.ticksAt(700)")
    page.page.mouse.move(x, y)
    page.page.mouse.wheel(0, -600)
    page.until("nkilab.timeline.view.t1 - nkilab.timeline.view.t0 < 0.5 * nkilab.timeline.end")
    assert page.js("nkilab.timeline.ticksAt(700)") == pytest.approx(under, rel=1e-6)
    before = page.js("nkilab.timeline.view.t0")
    page.page.mouse.down()
    page.page.mouse.move(x - 100, y, steps=4)
    page.page.mouse.up()
    assert page.js("nkilab.timeline.view.t0") > before
    page.page.click("#zoom-all")
    assert page.js("nkilab.timeline.view.t1") == pytest.approx(page.js("nkilab.timeline.end"))


def test_keys_do_everything_that_the_pointer_does(opened) -> None:
    page = opened(kernel_run("tiled"))
    keys = page.page.keyboard
    page.page.focus("#timeline")
    keys.press("+")
    assert page.js("nkilab.timeline.view.t1 - nkilab.timeline.view.t0") < page.js("nkilab.timeline.end")
    before = page.js("nkilab.timeline.view.t0")
    keys.press("d")
    assert page.js("nkilab.timeline.view.t0") > before
    keys.press("ArrowRight")
    first = page.js("nkilab.timeline.selected")
    assert first >= 0
    keys.press(".")
    assert page.js("nkilab.timeline.selected") == first + 1
    # what is selected is said to readers of the screen
    assert page.page.inner_text("#said").startswith(page.field("title"))
    keys.press("ArrowLeft")
    assert page.js("nkilab.timeline.selected") == first
    keys.press("ArrowRight")
    keys.press("p")
    assert page.js("nkilab.timeline.selected") != first + 1
    keys.press("ArrowDown")
    assert page.js("nkilab.timeline.selected") >= 0
    keys.press("f")
    keys.press("0")
    keys.press("c")
    keys.press("Escape")
    assert page.js("nkilab.timeline.selected") == -1
    keys.press("?")
    assert page.page.locator("#keys[open]").count() == 1
    keys.press("Escape")
    keys.press("/")
    keys.type("matmul low")
    assert page.page.inner_text("#found") == "8 found"
    keys.press("Enter")
    assert page.field("title") == "MATMUL LOW · nc_matmul"


def test_keys_mean_the_timeline_where_nothing_has_the_focus(opened) -> None:
    page = opened(kernel_run("tiled"))
    page.page.keyboard.press("+")
    assert page.js("nkilab.timeline.view.t1 - nkilab.timeline.view.t0") < page.js("nkilab.timeline.end")
    page.page.keyboard.press(".")
    assert page.js("nkilab.timeline.selected") >= 0
    page.page.keyboard.press("0")
    assert page.js("nkilab.timeline.view.t1") == pytest.approx(page.js("nkilab.timeline.end"))


def test_everything_can_be_reached_by_tab(opened) -> None:
    page = opened(kernel_run("tiled"))
    reached = set()
    for _ in range(60):
        page.page.keyboard.press("Tab")
        reached.add(page.js("document.activeElement.id || document.activeElement.className"))
    assert {"theme", "help", "search", "colour", "zoom-in", "timeline", "code", "line used"} <= reached


def test_search_finds_opcodes_lines_and_tiles(opened) -> None:
    run = kernel_run("tiled")
    page, timeline = opened(run), run.timeline
    labels = np.array(timeline.labels)[timeline.label]
    here = np.array([run.program.place_of(int(row)) for row in timeline.row])
    for words, expected in {
        "ldweights": np.count_nonzero(labels == "LDWEIGHTS"),
        "matmul.py:50": np.count_nonzero(here == "matmul.py:50"),
        "matmul.py:5": 0,
        "dma_copy lhst": sum(1 for e in timeline.of_engine("dma") if "lhsT" in tiles_of(run, e)),
        "no such thing": 0,
    }.items():
        page.page.fill("#search", words)
        assert page.page.inner_text("#found") == f"{expected} found", words
    page.page.fill("#search", "")
    assert page.page.inner_text("#found") == ""


def tiles_of(run: Run, event: int) -> set[str]:
    return {run.tile_names[a.storage] for a in run.program.accesses(int(run.timeline.row[event]))}


def test_source_and_timeline_are_linked_both_ways(opened) -> None:
    run = kernel_run("tiled")
    page = opened(run)
    assert "nisa.nc_matmul(dst=product" in page.page.inner_text('#code [data-line="50"]')
    page.page.click('#code [data-line="50"]')
    assert page.page.input_value("#search") == "matmul.py:50"
    lit = page.js("nkilab.search.masks[0].reduce((a, b) => a + b)")
    assert lit == sum(1 for row in run.timeline.row if run.program.place_of(int(row)) == "matmul.py:50")
    page.js("nkilab.timeline.select(nkilab.columns.start.length - 1)")
    assert page.page.locator("#code .marked").get_attribute("data-line") == page.field("line").split(":")[1]
    page.page.click('[data-field="line"] button')
    assert page.page.input_value("#search") == page.field("line")


def test_lines_show_their_time_on_the_critical_path(opened) -> None:
    run = kernel_run("tiled")
    page = opened(run)
    cost = next(cost for cost in run.lines if cost.line == 50)
    value, unit = page.page.inner_text('#code [data-line="50"] .spent').split()
    assert float(value) * {"ns": 1, "µs": 1000}[unit] == pytest.approx(cost.path_ns, rel=1e-3)


def test_colours_tell_who_works_or_what_it_waited_for(opened) -> None:
    run = kernel_run("tiled")
    page, order, timeline = opened(run), order_of(run), run.timeline
    names = page.js("[...document.querySelectorAll('#legend li')].map((one) => one.textContent)")
    engines = {"tensor": "TensorE", "vector": "VectorE", "dma": "transfers"}
    shown = [names[colour] for colour in page.js("[...nkilab.timeline.colours[0]]")]
    assert shown == [engines[ENGINES[timeline.engine[event]]] for event in order]
    page.page.select_option("#colour", "reason")
    shown = [names[colour] for colour in page.js("[...nkilab.timeline.colours[0]]")]
    engine_of_node = dict(zip(timeline.node.tolist(), timeline.engine.tolist(), strict=True))
    for event, name in zip(order.tolist(), shown, strict=True):
        reason = REASONS[timeline.reason[event]]
        waited = int(timeline.waited_node[event])
        expected = {
            "dma": "transfers", "none": "launch, end, program order", "order": "launch, end, program order",
            "issue": "a transfer that begins", "queue": "a transfer that begins",
            "reuse": "a buffer that is not free",
        }.get(reason) or engines[ENGINES[engine_of_node[waited]]]  # fmt: skip
        assert name == expected, reason


def test_hovering_tells_what_lies_under_the_pointer(opened) -> None:
    page = opened(run_of(loaded_copied_stored()))
    at = page.js("(() => { const p = nkilab.timeline.place(1); return [p.left + 3, p.middle]; })()")
    page.page.locator("#timeline").hover(position={"x": at[0], "y": at[1]})
    tip = page.page.inner_text("#tip")
    assert "DMA · dma_copy" in tip
    assert "262.1 kB, 160 GB/s" in tip
    assert "dst = a" in tip
    box = page.js("nkilab.timeline.box")
    page.page.locator("#sbuf").hover(position={"x": box["x"] + box["width"] * 0.3, "y": 3})
    assert "2 KiB a partition at 0" in page.page.inner_text("#tip")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_nothing_is_wider_than_the_window(opened, scheme: str, width: int) -> None:
    page = opened(kernel_run("attention"), width=width, scheme=scheme)
    page.js("nkilab.timeline.select(3)")
    assert page.js("document.documentElement.scrollWidth") <= width
    assert page.js("document.documentElement.dataset.theme") == scheme


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(opened, scheme: str) -> None:
    page = opened(kernel_run("tiled"), scheme=scheme)
    colours = [
        hexadecimal(colour)
        for colour in page.js(
            "['ink', 'faint', 'link', 'mark', 'card', 'raised'].map((n) => nkilab.theme[n])"
        )
    ]
    for ink in colours[:4]:
        for ground in colours[4:]:
            # WCAG 2.2, 1.4.3: 4.5 for text
            assert contrast(ink, ground) >= 4.5, (ink, ground)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_labels_stand_out_from_the_events_that_they_are_written_on(opened, scheme: str) -> None:
    page = opened(kernel_run("tiled"), scheme=scheme)
    pairs = page.js("nkilab.theme.colours.map((colour, i) => [nkilab.theme.inks[i], colour])")
    assert len(pairs) == 10
    for ink, ground in pairs:
        assert contrast(ink, ground) >= 4.5, (ink, ground)


def test_events_without_gaps_are_drawn_without_gaps_at_every_zoom(opened) -> None:
    # one copy after the other: their lane is full from the first to the last
    k = Kernel(ROUND)
    a, b = k.tile(128, 512), k.tile(128, 512)
    k.fill(a)
    for _ in range(1100):
        k.copy(b, a)
    page = opened(run_of(k), width=1440)
    # a copy is 1.4, 1.7 and 2.4 pixels wide
    for first, last in ((0.1, 0.97), (0.2, 0.9), (0.3, 0.8)):
        page.js(f"nkilab.timeline.setView({first} * nkilab.timeline.end, {last} * nkilab.timeline.end)")
        page.js("nkilab.timeline.draw()")
        # the topmost but one row of pixels of the lane, a little within the view
        empty = page.js(
            """(() => { const { timeline: t } = nkilab, lane = t.lanes.find((one) => one.name === "Vector");
            const copy = document.createElement("canvas");
            [copy.width, copy.height] = [t.canvas.width, t.canvas.height];
            const ink = copy.getContext("2d", { willReadFrequently: true }), { x, width } = t.box;
            ink.drawImage(t.canvas, 0, 0);
            const row = ink.getImageData(x + 2, lane.y + 3, width - 4, 1).data;
            const same = (i) => [0, 1, 2].every((c) => Math.abs(row[4 * i + c] - 243) < 14);
            return [...Array(width - 4).keys()].filter(same).length; })()"""
        )
        assert empty == 0, (first, last)


def test_a_label_with_little_room_keeps_the_word_that_tells_it_apart(opened) -> None:
    page = opened(kernel_run("tiled"))
    script = page.js(
        """[1000, 45, 30, 3].map((room) => {
        const ink = nkilab.timeline.canvas.getContext("2d"); ink.font = "11px system-ui, sans-serif";
        return nkilab.shortened(ink, "MATMUL HIGH", room); })"""
    )
    assert script == ["MATMUL HIGH", "…HIGH", "", ""] or script[:2] == ["MATMUL HIGH", "…HIGH"]


def hexadecimal(colour: str) -> str:
    """The colour "rgb(1, 2, 3)" as "#010203"."""
    return "#" + "".join(f"{int(part):02x}" for part in colour[4:-1].split(","))


def contrast(one: str, other: str) -> float:
    """The ratio of contrast that WCAG defines."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_theme_changes_on_demand(opened) -> None:
    page = opened(kernel_run("tiled"))
    page.page.click("#theme")
    assert page.js("document.documentElement.dataset.theme") == "dark"


def test_hostile_names_do_no_harm(opened) -> None:
    page = opened(hostile())
    assert page.page.inner_text("#title") == "</script><script>alert(1)</script>"
    assert page.page.locator("img").count() == 0
    for event in range(page.js("nkilab.columns.start.length")):
        page.js(f"nkilab.timeline.select({event})")
    assert page.js("document.documentElement.scrollWidth") <= 1280
    page.page.fill("#search", "onerror=alert")
    # the load of the tile and the copy of it
    assert page.page.inner_text("#found") == "2 found"


def test_an_empty_program_opens(opened) -> None:
    page = opened(run_of(Kernel("trn2")))
    assert page.js("document.documentElement.dataset.state") == "drawn"
    page.page.focus("#timeline")
    for key in ("+", ".", "ArrowDown", "c", "p", "f"):
        page.page.keyboard.press(key)


def test_spills_are_named_by_their_tile(opened) -> None:
    from msgspec.structs import replace

    from tests.timing.test_clock import ROUND, fact

    k = Kernel(replace(ROUND, sbuf_bytes_per_partition=fact(800)))
    tiles, sums = [k.tile(128, 100, name=f"tile{i}") for i in range(3)], k.psum(128, 100)
    for tile in tiles:
        k.copy(tile, sums)
    for tile in tiles:
        k.store(k.hbm(128, 100), tile)
    page = opened(run_of(k))
    page.page.fill("#search", "spill_save")
    assert page.page.inner_text("#found") == "1 found"
    page.page.keyboard.press("Enter")
    assert page.field("operands").startswith("tile = tile")


def test_a_pinch_zooms(opened, browser) -> None:
    page = opened(kernel_run("tiled"))
    page.js(
        """(() => { const c = document.getElementById("timeline"), f = c.getBoundingClientRect();
        c.setPointerCapture = () => 0;
        const send = (type, id, x) => c.dispatchEvent(new PointerEvent(type, { pointerId: id,
          clientX: f.left + x, clientY: f.top + 50, pointerType: "touch", bubbles: true }));
        send("pointerdown", 1, 400); send("pointerdown", 2, 500);
        send("pointermove", 1, 300); send("pointermove", 2, 600); send("pointerup", 1, 300);
        send("pointerup", 2, 600); })()"""
    )
    span = page.js("(nkilab.timeline.view.t1 - nkilab.timeline.view.t0) / nkilab.timeline.end")
    assert span == pytest.approx(1 / 3, rel=0.05)
    assert page.js("nkilab.timeline.selected") == -1


def test_the_page_of_launches_loads_without_complaint(opened, tmp_path) -> None:
    run = kernel_run("tiled")
    reports = Reports(tmp_path / "reports")
    reports(Shown((run.program,), None, (), {}))
    page = opened((tmp_path / "reports" / "index.html").read_text())
    assert page.page.get_attribute("td a", "href") == "001-tiled.html"


def test_a_notebook_shows_the_report_in_a_frame(opened) -> None:
    page = opened("<!doctype html><title>n</title>" + framed_html(run_of(loaded_copied_stored())))
    frame = page.page.frame_locator("iframe")
    assert frame.locator("#title").inner_text() == "made_by_hand"
    frame.locator("#timeline").press(".")
    assert frame.locator('[data-field="title"]').inner_text() == "TENSOR_COPY · tensor_copy"


def test_every_core_has_lanes_and_shows_itself_in_the_panels(opened) -> None:
    run = on_two().run
    page = opened(run)
    # the slowest first
    assert page.js("nkilab.focus") == 1
    assert "program 1" in page.page.inner_text("#subtitle")
    lanes = page.js("nkilab.timeline.lanes.filter((one) => !one.isPath).map((one) => [one.core, one.name])")
    assert lanes == [[core, name] for core, (_, one) in enumerate(run.runs) for name in one.lanes.names]
    # an instruction of the other core
    title, first = page.js("[nkilab.timeline.titles[0], nkilab.timeline.lanes[1]]")
    at = page.js(
        "(() => { const lane = nkilab.timeline.lanes[1], { box, view } = nkilab.timeline;"
        " return box.x + (lane.start[lane.first] - view.t0) / (view.t1 - view.t0) * box.width + 3; })()"
    )
    page.page.locator("#timeline").click(position={"x": at, "y": first["y"] + first["shown"] / 2})
    assert page.js("nkilab.focus") == 0
    assert page.field("core") == "program 0"
    own = run.runs[0][1]
    where = own.program.place_of(int(own.timeline.row[order_of(own)[0]]))
    assert page.field("line") == where
    assert "program 0" in page.page.inner_text("#subtitle")
    value, unit = page.page.inner_text(".card:first-child .value").split()
    assert float(value) * {"µs": 1000}[unit] == pytest.approx(own.timeline.latency_ns, rel=1e-3)
    # back by the table, by the keyboard alone
    page.page.focus("#core-table tr:nth-child(2) button")
    page.page.keyboard.press("Enter")
    assert page.js("nkilab.focus") == 1
    # a search finds instructions of all cores
    page.page.fill("#search", "DMA")
    count = sum(int(np.count_nonzero(one.timeline.label == list(one.timeline.labels).index("DMA")))
                for _, one in run.runs)  # fmt: skip
    assert page.page.inner_text("#found") == f"{count} found"
    seen = set()
    for _ in range(count):
        page.js("nkilab.search.step(1)")
        seen.add((page.js("nkilab.focus"), page.js("nkilab.timeline.selected")))
    assert len(seen) == count
    # a click on its name shows a core
    page.js("nkilab.timeline.lookAt(1)")
    page.page.locator("#timeline").click(position={"x": 20, "y": title["y"] + 8})
    assert page.js("nkilab.focus") == 0


def test_many_cores_are_drawn_and_the_fastest_left_out_is_told(opened) -> None:
    @nki.jit
    def staggered(x, repeats):
        tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        for _ in range(repeats):
            nisa.activation(tile, op=nl.exp, data=tile)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, tile)
        return out

    repeats = nkilab.per_rank(list(range(1, 19)))
    profiled = nkilab.profile(staggered, nkilab.spec((128, 128), "float32"), repeats, ranks=18)
    page = opened(profiled.run, width=390, height=844)
    assert page.js("nkilab.parts.length") == 16
    assert page.page.inner_text("#core-note") == "2 faster cores are not drawn."
    assert page.page.locator("#core-table tbody tr").count() == 19
    assert page.js("document.documentElement.scrollWidth") == 390
    assert page.js(
        "nkilab.timeline.lanes.filter((one) => one.shown > 10).every((one) => one.core === nkilab.focus)"
    )
