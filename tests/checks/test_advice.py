"""A gain is the difference of two simulations, which the command shown makes again."""

from __future__ import annotations

import json
import shlex
from collections import OrderedDict
from pathlib import Path

import pytest

import nkilab
from nkilab.advice import findings
from nkilab.checks.report import Advised
from tests.command_line import call, script
from tests.test_tapes import module, x_of


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The programs that advice was looked for on; none was before."""
    subjects: list[object] = []
    monkeypatch.setattr(findings, "_known", OrderedDict())
    monkeypatch.setattr(findings, "advice_of", lambda subject: subjects.append(subject) or ())
    return subjects


def test_a_check_from_another_line_looks_for_advice_once(looked: list[object]) -> None:
    kernel = module("return scaled(x, 2.0)").kernel
    assert list(nkilab.check(kernel, x_of(0))) == list(nkilab.check(kernel, x_of(1))) == []
    assert len(looked) == 1
    # the same rows, of which one is written on another line
    for text in ("\nout = scaled(x, 2.0)", "out = scaled(x, 2.0)"):
        _ = nkilab.check(module(f"{text}\nnisa.dma_copy(out, x)\nreturn out").kernel, x_of(0))[:]
    assert len(looked) == 3


def test_who_asks_for_the_verdict_alone_waits_for_no_advice(looked: list[object]) -> None:
    report = nkilab.check(module("return scaled(nl.ndarray(x.shape, x.dtype), 2.0)").kernel, x_of(0))
    verdict = report.verdict
    assert [(one.rule, one.fails) for one in verdict] == [("unwritten-read", True)]
    assert not looked
    assert report == list(verdict)
    assert len(looked) == 1


def test_advice_stands_behind_the_verdict_and_is_looked_for_once() -> None:
    calls: list[int] = []
    report = Advised("ab", lambda: calls.append(1) or "c")
    assert (report.verdict, calls) == (("a", "b"), [])
    assert (list(report), report[-1], len(report), calls) == (["a", "b", "c"], "c", 3, [1])
    assert report == ["a", "b", "c"] != ["a", "b"]


SCALED_IN_PLACE = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x, y):
    left = nl.ndarray((128, 128), nl.float32, buffer=nl.sbuf)
    right = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
    nisa.dma_copy(left, x)
    nisa.dma_copy(right, y)
    nisa.tensor_scalar(left, left, op0=nl.multiply, operand0=0.5)
    for i in range(16):
        nisa.nc_matmul(total, left, right)
    nisa.tensor_copy(right, total)
    nisa.dma_copy(out, right)
    return out
"""


def test_a_name_that_is_no_advice_is_told_with_those_that_are(tmp_path: Path) -> None:
    path = script(tmp_path, SCALED_IN_PLACE, "scaled.py")
    words = ("check", f"{path}:kernel", "--arg", "f32[128,128]", "--arg", "f32[128,512]")
    done = call(*words, "--what-if", "split_precision@3")
    assert done.returncode == 2
    assert "kernel has no advice split_precision at line 3\n  hint: its advice is" in done.stderr
    assert "split_precision@16" in done.stderr


def test_an_operand_that_is_changed_in_place_is_split_too_and_its_command_gives_its_gain(
    tmp_path: Path,
) -> None:
    path = script(tmp_path, SCALED_IN_PLACE, "scaled.py")
    words = ("check", f"{path}:kernel", "--arg", "f32[128,128]", "--arg", "f32[128,512]", "--json")
    findings = json.loads(call(*words).stdout)["findings"]
    finding = next(f for f in findings if f["rule"] == "split_precision")
    assert finding["gain_us"] > 0
    program, *words = shlex.split(finding["command"])
    assert program == "nkilab"
    tried = json.loads(call(*words, "--json").stdout)
    assert tried["schema"] == "nkilab.what-if/1"
    assert tried["gain_us"] == pytest.approx(finding["gain_us"], rel=1e-9)
    assert tried["latency_us"] - tried["without_us"] == pytest.approx(tried["gain_us"])


def test_what_python_raises_in_a_line_of_the_kernel_is_a_finding_of_that_line(tmp_path: Path) -> None:
    text = SCALED_IN_PLACE.replace("range(16)", "range(16 / 2)")
    path = script(tmp_path, text, "divided.py")
    done = call("check", f"{path}:kernel", "--arg", "f32[128,128]", "--arg", "f32[128,512]", "--json")
    (finding,) = json.loads(done.stdout)["findings"]
    assert done.returncode == 1
    assert finding["message"] == "TypeError: 'float' object cannot be interpreted as an integer"
    assert finding["where"] == "divided.py:15"
