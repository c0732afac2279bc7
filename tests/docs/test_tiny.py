"""docs/tiny.py is true: it runs, its facts hold, and its kernel is one of nkilab's."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import nkilab
from tests.docs.pages import DOCS, script

tiny = script(DOCS / "tiny.py")


def test_the_story_runs_and_prints_what_it_promises(capsys: pytest.CaptureFixture[str]) -> None:
    tiny.main()
    captured = capsys.readouterr().out
    assert "41 rows, the same in both spellings" in captured
    assert "nc_matmul: N is 1024; trn2 allows 512 (psum_columns)" in captured
    assert "computed in that order, 50% of the result is wrong" in captured
    # one lane per engine and queue, in either profile
    assert [captured.count(f"{lane} |") for lane in ("load", "tensor", "vector", "store")] == [2, 2, 2, 2]


def test_it_needs_numpy_alone() -> None:
    text = (DOCS / "tiny.py").read_text("utf-8")
    imported = {
        line.split()[1].split(".")[0] for line in text.splitlines() if line.startswith(("import", "from"))
    }
    assert imported - set(sys.stdlib_module_names) == {"numpy"}


def test_its_kernel_runs_on_nkilab(monkeypatch: pytest.MonkeyPatch) -> None:
    with nkilab.activate():
        import nki
        import nki.isa
        import nki.language
    monkeypatch.setattr(tiny, "nl", nki.language)
    monkeypatch.setattr(tiny, "nisa", nki.isa)
    draw = np.random.default_rng(0)
    lhsT, rhs, bias = (draw.standard_normal((128, n), np.float32) for n in (128, 1024, 1024))
    result = nkilab.simulate(nki.jit(tiny.biased_product))(lhsT, rhs, bias)
    np.testing.assert_allclose(result, lhsT.T @ rhs + bias, atol=1e-3)


def test_its_numbers_are_those_of_the_chip() -> None:
    from nkilab.machine import chip_named

    chip = {name: fact.value for name, fact in chip_named("trn2").facts().items()}
    assert chip["tensor_clock_ghz"] == tiny.TRN2.tensor_ghz
    assert chip["vector_clock_ghz"] == tiny.TRN2.vector_ghz
    assert chip["vector_overhead_ns"] == tiny.TRN2.vector_overhead_ns
    assert chip["semaphore_ns"] == tiny.TRN2.semaphore_ns
    assert chip["hbm_bytes_per_ns"] == tiny.TRN2.dma_bytes_per_ns
    assert chip["dma_start_ns"] + chip["dma_done_ns"] == tiny.TRN2.dma_latency_ns


def test_a_declaration_without_a_part_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^Nothing declares no limits, example, compute, cost$"):
        type("Nothing", (tiny.Instruction,), {"__doc__": "Do nothing."})
    assert "nothing" not in tiny.REGISTRY


def test_a_rule_is_refused_with_its_sentence() -> None:
    tiles = [tiny.Tile(name, np.zeros((4, 4), np.float32), memory) for name, memory in
             (("d", "sbuf"), ("a", "psum"), ("b", "psum"))]  # fmt: skip
    with pytest.raises(tiny.KernelError, match=r"both in psum; at least one must be in sbuf"):
        tiny.TensorTensor(tiny.TRN2, "k.py:1", dict(zip(("dst", "data1", "data2", "op"), (*tiles, np.add))))
