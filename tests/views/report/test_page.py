"""What the page of a run holds, read back from its text; no browser."""

from __future__ import annotations

import base64
import gzip
import json
import re
from hashlib import sha256
from html.parser import HTMLParser

import numpy as np
import pytest

from nkilab.views.report import report_html
from nkilab.views.report.data import Columns, narrowest, short_paths, tick_of
from nkilab.views.report.page import SCRIPTS, asset, data_block
from nkilab.views.run import Run
from tests.place.handmade import Kernel
from tests.timing.test_clock import ROUND
from tests.views.runs import kernel_run, loaded_copied_stored, run_of
from tests.views.test_path import KERNELS


class Page(HTMLParser):
    """Scripts by id, and every address that the page names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.addresses: list[str] = []
        self.policy = ""
        self._open: dict[str, str | None] | None = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag == "script":
            self._open = attributes
            self.scripts.append((attributes, ""))
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]
        self.addresses += [v for k, v in attrs if k in ("src", "href") and v and not v.startswith("#")]

    def handle_endtag(self, tag):
        self._open = None if tag == "script" else self._open

    def handle_data(self, data):
        if self._open is not None:
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)


def read(text: str, core: int = 0) -> tuple[dict, dict[str, np.ndarray]]:
    """Tables and columns of a core in a page, decoded by other means than it was made."""
    blocks = {attributes.get("id"): content for attributes, content in Page(text).scripts}
    page = json.loads(blocks["tables"])
    tables = {**page, **page["parts"][core]}
    ends = [part["offset"] for part in page["parts"][core + 1 :]]
    content, at, columns = gzip.decompress(base64.b64decode(blocks["columns"])), tables["offset"], {}
    for name, kind, length, is_delta in tables["columns"]:
        values = np.frombuffer(content, f"<{kind}", length, at)
        at += -(-length * int(kind[1]) // 4) * 4
        if is_delta:
            values = (
                np.cumsum(values.astype(np.int64)).astype(np.uint32).view(np.int32 if kind == "i4" else "u4")
            )
        columns[name] = values
    assert at == [*ends, len(content)][0]
    return tables, columns


@pytest.mark.parametrize("name", KERNELS)
def test_the_page_holds_every_event_with_its_times(name: str) -> None:
    run = kernel_run(name)
    tables, columns = read(report_html(run))
    timeline, tick = run.timeline, tables["tick"]
    order = np.lexsort((timeline.start_ns, run.lanes.of_event))
    assert len(columns["start"]) == len(timeline)
    assert np.allclose(columns["start"] * tick, timeline.start_ns[order], atol=tick)
    lasts = timeline.end_ns[order] - timeline.start_ns[order]
    assert np.allclose(columns["length"] * tick, lasts, atol=tick)
    assert [tables["labels"][i] for i in columns["label"]] == [
        timeline.labels[i] for i in timeline.label[order]
    ]
    assert np.array_equal(columns["waited"], timeline.waited_node[order])
    lines = [tables["lines"][i] for i in columns["rowLine"][columns["nodeRow"][columns["node"]]]]
    assert [line for _, line in lines] == [
        run.program.lines[run.program.line_column[row]][1] for row in timeline.row[order]
    ]


def test_the_page_names_operands_by_their_tiles() -> None:
    tables, columns = read(report_html(run_of(loaded_copied_stored())))
    start = columns["operandStart"]
    named = [tables["names"][columns["storageName"][i]] for i in columns["operandStorage"]]
    # written operands come first
    assert [named[start[row] : start[row + 1]] for row in range(3)] == [["a", "x"], ["b", "a"], ["out", "b"]]


def test_the_page_needs_no_network() -> None:
    page = Page(report_html(kernel_run("tiled")))
    assert page.addresses == []
    text = report_html(kernel_run("tiled"))
    assert set(re.findall(r"https?://[^\s\"'<)]+", text)) <= {"http://www.w3.org/2000/svg"}


def test_the_policy_allows_the_pages_own_script_and_style_alone() -> None:
    text = report_html(kernel_run("tiled"))
    page = Page(text)
    script = next(content for attributes, content in page.scripts if not attributes)
    digest = base64.b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page.policy
    assert page.policy.startswith("default-src 'none'")
    style = re.search(r"<style>(.*?)</style>", text, re.S)[1]
    digest = base64.b64encode(sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in page.policy


def hostile() -> Run:
    k = Kernel(ROUND)
    k.program.kernel_name = "</script><script>alert(1)</script>"
    names = [
        '"><img src=x onerror=alert(1)>',
        "'; alert(1); '",
        "@tables@",
        "x" * 5000,
        "<!--<script>",
        "\u2028",
        "\udc80",
    ]
    for name in names:
        tile = k.tile(128, 8, name=name)
        k.load(tile, k.hbm(128, 8, name=name))
        k.copy(tile, tile)
    return run_of(k)


def test_hostile_names_stay_text() -> None:
    text = report_html(hostile())
    page = Page(text)
    assert [attributes.get("id") for attributes, _ in page.scripts] == ["tables", "columns", None]
    tables, _ = read(text)
    assert tables["profile"]["kernel"] == "</script><script>alert(1)</script>"
    assert "<!--<script>" in tables["names"]
    assert max(map(len, tables["names"])) == 200
    assert text.encode()


def test_a_name_that_no_encoding_has_is_no_fault() -> None:
    k = loaded_copied_stored()
    k.program.kernel_name = "k\udc80"
    assert "<title>k? on trn2</title>" in report_html(run_of(k)).encode().decode()


def test_data_hold_no_sign_that_ends_an_element() -> None:
    assert not set("<>&") & set(data_block({"a": "</script>&<!--"}))
    assert json.loads(data_block({"a": "</script>&<!--"})) == {"a": "</script>&<!--"}


def test_equal_runs_give_equal_pages() -> None:
    assert report_html(run_of(loaded_copied_stored())) == report_html(run_of(loaded_copied_stored()))


def test_an_empty_program_has_a_page() -> None:
    tables, columns = read(report_html(run_of(Kernel("trn2"))))
    assert len(columns["start"]) == 0
    assert tables["profile"]["summary"]["bound"] == "nothing"


@pytest.mark.parametrize(("latency", "tick"), [(1e3, 0.001), (4e7, 0.1), (2e9, 1.0), (1e12, 1000.0)])
def test_times_of_the_page_fit_into_32_bits(latency: float, tick: float) -> None:
    assert tick_of(latency) == pytest.approx(tick)
    assert latency / tick_of(latency) < 2**31


def test_columns_that_ascend_are_small() -> None:
    plain, delta = Columns(), Columns()
    values = np.arange(100_000) * 1000
    plain.add("a", values)
    delta.add("a", values, is_delta=True)
    assert len(delta.text()) < len(plain.text()) / 20


def test_a_column_out_of_range_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="a is out of range"):
        Columns().add("a", np.array([256]), "u1")
    assert [narrowest(n) for n in (256, 257, 65536, 65537)] == ["u1", "u2", "u2", "u4"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_stay_readable_and_end_no_element(name: str) -> None:
    text = asset(name)
    assert len(text.splitlines()) <= 400
    assert max(map(len, text.splitlines())) <= 150
    assert "</script" not in text
    assert "innerHTML" not in text
    assert "eval" not in text


def test_files_are_shown_without_the_folders_of_their_owner() -> None:
    text = report_html(kernel_run("tiled"))
    assert "ledger/kernels" not in text
    tables, _ = read(text)
    assert {path for path, _, _ in tables["files"]} >= {"matmul.py"}
    assert {line["path"] for line in tables["profile"]["lines"]} == {"matmul.py"}
    assert short_paths(["/home/me/a/k.py", "/home/me/b/k.py", "/x/y.py"]) == {
        "/home/me/a/k.py": "a/k.py", "/home/me/b/k.py": "b/k.py", "/x/y.py": "y.py",
    }  # fmt: skip
    assert short_paths(["k.py", "/a/k.py"]) == {"k.py": "k.py", "/a/k.py": "a/k.py"}
