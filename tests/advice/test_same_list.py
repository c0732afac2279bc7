"""Every verb and view has the same list of advice: the same transformations, lines, gains and intervals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import inside, script
from tests.edits.kernels import CASES as EDITED
from tests.test_json import KERNELS
from tests.views.report.test_page import read

KERNEL = {"slow": ("copied.py:slow", KERNELS), "fuse": ("fused.py:kernel", EDITED["fuse_alu, nki"].text)}
ARG = {"slow": "f32[128,4096]", "fuse": "f32[128,2048]"}


def listed(document: dict[str, Any]) -> list[tuple[str, str, float, list[float]]]:
    return [(one["id"], one["where"], one["gain_us"], one["interval_us"]) for one in document["advice"]]


@pytest.mark.parametrize("name", KERNEL)
def test_terminal_page_and_documents_have_the_same_advice(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kernel, text = KERNEL[name]
    script(tmp_path, text, kernel.partition(":")[0])
    script(tmp_path, "schema: nkilab.space/1\nparameters: {dtype: [float32]}\n", "space.yaml")
    arg = ("--arg", ARG[name])

    def printed(*words: str) -> str:
        assert inside(*words, folder=tmp_path) == 0
        out: str = capfd.readouterr().out
        return out

    expected = listed(json.loads(printed("profile", kernel, *arg, "--json")))
    assert expected
    for words in (
        ("estimate", kernel, *arg), ("check", kernel, *arg), ("advise", kernel, *arg),
        ("diff", kernel, kernel, *arg), ("tune", kernel, "--space", "space.yaml", *arg),
    ):  # fmt: skip
        assert listed(json.loads(printed(*words, "--json"))) == expected, words[0]
    printed("profile", kernel, *arg, "--html", "page.html")
    assert listed(read((tmp_path / "page.html").read_text())[0]["profile"]) == expected
    # as text, lines unwrapped: an identifier stands in brackets, a gain beside it
    lines = printed("profile", kernel, *arg).replace("\n ", " ")
    shown = re.findall(r"(\S+:\d+): [^\[]*\[(\w+)[^\]]*\]\s+gain: ([\d.]+) us", lines)
    assert shown == [(where, own, f"{gain:.2f}") for own, where, gain, _ in expected]
    checked = re.findall(r"(\S+:\d+): advice: [^\[]*\[(\w+)[^\]]*\]", printed("check", kernel, *arg))
    assert checked == [(where, own) for own, where, _, _ in expected]
