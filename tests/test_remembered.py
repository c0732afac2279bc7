"""The same launch again is looked up where NKILAB_REMEMBER says so, and never where anything differs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import nkilab
from nkilab import remembered, tapes
from nkilab.errors import NkilabError

from .test_tapes import module, replays, x_of


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # where a debugger looks on nothing is looked up; what measures coverage looks on, too
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    monkeypatch.setenv("NKILAB_REMEMBER", "1")
    tapes.forget_tapes()
    remembered.forget_launches()
    yield
    tapes.forget_tapes()
    remembered.forget_launches()


played = pytest.fixture(replays, name="played")


def _answers() -> tuple[int, int]:
    """Launches that were remembered, and that were not."""
    return remembered._answers[True], remembered._answers[False]


def test_the_same_launch_again_is_looked_up(played: list[int]) -> None:
    kernel = module("return scaled(x, 2.0), scaled(x, 3.0)").kernel
    for _ in range(18):
        # equal bytes elsewhere in memory
        double, triple = kernel(x_of(0))
        np.testing.assert_array_equal(double, x_of(0) * 2)
        np.testing.assert_array_equal(triple, x_of(0) * 3)
    assert _answers() == (17, 1)
    assert played == []


def test_nothing_is_kept_without_being_asked(monkeypatch: pytest.MonkeyPatch, played: list[int]) -> None:
    monkeypatch.delenv("NKILAB_REMEMBER")
    kernel = module("return scaled(x, 2.0)").kernel
    for _ in range(3):
        kernel(x_of(0))
    assert not remembered._launches
    assert len(played) == 2


def test_an_array_changed_in_place_is_another_launch() -> None:
    kernel = module("return scaled(x, 2.0)").kernel
    # large enough that no sample shows the change
    x = x_of(0, (128, 512))
    for row in range(3):
        x[row, 77] += 1
        np.testing.assert_array_equal(kernel(x), x * 2)
    assert _answers() == (0, 3)


def test_zeros_of_both_signs_are_two_launches_and_equal_nans_are_one() -> None:
    kernel = module("return scaled(x, 2.0)").kernel
    for value in (0.0, -0.0, np.nan, np.nan):
        result = kernel(np.full((4, 4), value, np.float32))
        np.testing.assert_array_equal(np.signbit(result), np.signbit(np.full((4, 4), value)))
    assert _answers() == (1, 3)


def test_a_result_that_is_changed_stays_changed_for_its_owner_alone() -> None:
    kernel = module("return scaled(x, 2.0)").kernel
    for _ in range(3):
        result = kernel(x_of(0))
        np.testing.assert_array_equal(result, x_of(0) * 2)
        result[...] = 0


def test_an_input_that_is_returned_is_the_array_itself_each_time(played: list[int]) -> None:
    kernel = module("return scaled(x, 2.0), x").kernel
    x = x_of(0)
    is_shared = []
    for _ in range(3):
        _, same = kernel(x)
        is_shared.append(np.shares_memory(same, x))
    assert len(set(is_shared)) == 1
    assert len(played) == 2


def test_the_same_array_twice_is_no_other_launch_than_equal_ones() -> None:
    kernel = module("return scaled(x, 2.0), scaled(y, 3.0)", ", y").kernel
    x = x_of(0)
    for pair in ((x, x), (x, x.copy()), (x, x_of(1))):
        double, triple = kernel(*pair)
        np.testing.assert_array_equal(double, pair[0] * 2)
        np.testing.assert_array_equal(triple, pair[1] * 3)
    assert _answers() == (1, 2)


def test_a_global_changed_between_launches_is_noticed() -> None:
    text_module = module("return scaled(x, SCALE)")
    for scale in (2.0, 2.0, 5.0, 2.0):
        text_module.SCALE = scale
        np.testing.assert_array_equal(text_module.kernel(x_of(0)), x_of(0) * np.float32(scale))
    assert _answers() == (2, 2)


def test_a_closure_changed_between_launches_is_noticed() -> None:
    text_module = module("pass")
    text = """
def enclosed(factor):
    @nki.jit
    def kernel(x):
        return scaled(x, factor)
    def change(value):
        nonlocal factor
        factor = value
    return kernel, change
"""
    with nkilab.activate():
        exec(text, vars(text_module))
    kernel, change = text_module.enclosed(2.0)
    for factor in (2.0, 2.0, 3.0):
        change(factor)
        np.testing.assert_array_equal(kernel(x_of(0)), x_of(0) * np.float32(factor))


def test_an_input_that_the_kernel_writes_is_written_each_time() -> None:
    kernel = module("""
        tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(x, tile)
        return x
    """).kernel
    for _ in range(3):
        x = x_of(0)
        kernel(x)
        np.testing.assert_array_equal(x, x_of(0) * 2)


def test_warnings_come_each_time() -> None:
    kernel = module("""
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        nisa.activation(tile, op=nl.sin, data=tile)
        nisa.dma_copy(out, tile)
        return out
    """).kernel
    kernel(np.zeros((4, 4), np.float32))
    for _ in range(3):
        with pytest.warns(match="an input of sin lies outside its documented range"):
            kernel(np.full((4, 4), 100, np.float32))


def test_arrays_that_are_kept_stay_within_the_limit(played: list[int]) -> None:
    kernel = module("return scaled(x, 2.0)").kernel
    # 256 KB go in and out: of three launches two fit into a megabyte
    for n in (0, 1, 2, 0, 2):
        kernel(x_of(n, (128, 512)))
    assert len(remembered._launches) == 2
    assert sum(map(remembered._size, remembered._launches.values())) == 1 << 20
    assert _answers() == (1, 4)


def test_results_of_pytorch_are_tensors_of_their_own() -> None:
    torch: Any = pytest.importorskip("torch")
    kernel = module("return scaled(x, 2.0)").kernel
    for _ in range(2):
        result = kernel(torch.from_numpy(x_of(0)).to(torch.bfloat16))
        assert result.dtype is torch.bfloat16
        assert torch.equal(result, torch.from_numpy(x_of(0)).to(torch.bfloat16) * 2)
    assert _answers() == (1, 1)


def test_a_limit_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKILAB_REMEMBER", "2 GB")
    kernel = module("return scaled(x, 2.0)").kernel
    with pytest.raises(NkilabError) as raised:
        kernel(x_of(0))
    place, said = str(raised.value).split(": ", 1)
    assert place.startswith("test_remembered.py:")
    assert said == (
        "kernel: NKILAB_REMEMBER is '2 GB'; it must be a whole number, the megabytes of arrays that "
        "are kept\n"
        "  hint: set it to 256, or take it away"
    )


def test_hits_and_misses_are_told_at_the_end() -> None:
    code = """
import numpy as np, nkilab
with nkilab.activate():
    from nkilab.examples.row_softmax import row_softmax
for _ in range(3):
    nkilab.simulate(row_softmax)(np.ones((128, 64), np.float32))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "nkilab: 2 of 3 launches were remembered\n"
