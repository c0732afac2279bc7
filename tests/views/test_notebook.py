"""Runs in notebooks, and still pictures of timelines."""

from __future__ import annotations

import re
from html import unescape
from xml.etree import ElementTree

import pytest

from nkilab import activate, estimate, profile, spec
from nkilab.views import notebook
from nkilab.views.colours import MEANINGS
from nkilab.views.notebook import framed_html, short_html
from nkilab.views.report import report_html
from nkilab.views.svg import timeline_svg
from tests.place.handmade import Kernel
from tests.views.report.test_page import hostile
from tests.views.runs import kernel_run, loaded_copied_stored, run_of
from tests.views.test_path import KERNELS

SVG = "{http://www.w3.org/2000/svg}"


def drawn(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def test_the_picture_has_a_lane_per_engine_and_queue() -> None:
    picture = drawn(timeline_svg(run_of(loaded_copied_stored()), width=1000))
    texts = [t.text for t in picture.iter(f"{SVG}text")]
    assert {"Vector", "qSyncLoad0", "qSyncStore1", "TENSOR_COPY", "DMA"} <= set(texts)
    titles = [t.text for t in picture.iter(f"{SVG}title")]
    assert "TENSOR_COPY at kernel.py:2: 612 ns" in titles


def test_events_stand_where_their_time_is() -> None:
    # 874 pixels for 5988.8 ns: the copy begins at 2688.4 and takes 612
    picture = drawn(timeline_svg(run_of(loaded_copied_stored()), width=1000))
    copy = next(r for r in picture.iter(f"{SVG}rect") if r.find(f"{SVG}title") is not None)
    assert float(copy.get("x")) == pytest.approx(118 + 874 * 2688.4 / 5988.8, abs=0.06)
    assert float(copy.get("width")) == pytest.approx(874 * 612 / 5988.8 - 1, abs=0.06)


def test_a_legend_that_is_too_long_goes_on_in_another_row() -> None:
    run = kernel_run("attention")
    rows = []
    for width in (2000, 400):
        picture = drawn(timeline_svg(run, width=width))
        names = [t for t in picture.iter(f"{SVG}text") if t.text in {name for name, *_ in MEANINGS.values()}]
        rows.append({t.get("y") for t in names if t.get("class") is None})
    assert len(rows[0]) == 1 < len(rows[1])
    _, _, _, height = map(float, picture.get("viewBox").split())
    assert max(map(float, rows[1])) < height


def test_a_part_of_the_time_can_be_drawn() -> None:
    whole = timeline_svg(run_of(loaded_copied_stored()))
    part = timeline_svg(run_of(loaded_copied_stored()), start_ns=0, end_ns=2000)
    assert "TENSOR_COPY at" in whole
    assert "TENSOR_COPY at" not in part


def test_many_events_are_drawn_as_how_busy_their_lane_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nkilab.views.svg._MOST", 2)
    picture = drawn(timeline_svg(kernel_run("tiled")))
    assert len(list(picture.iter(f"{SVG}path"))) >= 3


@pytest.mark.parametrize("name", KERNELS)
def test_the_short_form_is_without_scripts(name: str) -> None:
    html = short_html(kernel_run(name))
    assert "<script" not in html
    assert html.count("<svg") == 1


def test_hostile_names_are_escaped() -> None:
    html = short_html(hostile())
    assert "<script>alert" not in html
    assert "<img" not in html
    drawn(timeline_svg(hostile()))


def test_the_frame_holds_the_report() -> None:
    run = run_of(loaded_copied_stored())
    html = framed_html(run)
    assert unescape(re.search(r'srcdoc="(.*?)"', html, re.S)[1]) == report_html(run)


def test_a_report_too_long_for_a_notebook_is_shown_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "_LONGEST", 10)
    assert framed_html(run_of(Kernel("trn2"))).startswith("<div>")


def test_estimates_and_profiles_show_themselves() -> None:
    with activate():
        from nkilab.ledger.kernels import matmul

        args = [spec((128, 128), "bfloat16"), spec((128, 512), "bfloat16")]
        assert estimate(matmul.tiled, *args)._repr_html_().startswith("<div><p><b>tiled</b> on trn2")
        profiled = profile(matmul.tiled, *args)
    assert profiled._repr_html_().startswith("<iframe")
    assert profiled.text().startswith("tiled on trn2: ")
    assert profiled.to_profile()["schema"] == "nkilab.profile/1"
    assert len(profiled.traced) == 1


def test_the_ruler_tells_neighbours_apart() -> None:
    run = kernel_run("tiled")
    picture = drawn(timeline_svg(run, start_ns=5000, end_ns=5040))
    texts = [t.text for t in picture.iter(f"{SVG}text") if t.get("y") == "12"]
    assert texts == [
        "5.000 µs",
        "5.005 µs",
        "5.010 µs",
        "5.015 µs",
        "5.020 µs",
        "5.025 µs",
        "5.030 µs",
        "5.035 µs",
    ]


def test_an_event_has_the_colour_of_who_works() -> None:
    picture = drawn(timeline_svg(run_of(loaded_copied_stored())))
    fills = {
        (title.text or "").split(" at ")[0]: rect.get("fill")
        for rect in picture.iter(f"{SVG}rect")
        for title in rect.iter(f"{SVG}title")
    }
    assert fills == {"TENSOR_COPY": MEANINGS["vector"][1], "DMA": MEANINGS["dma"][1]}
