"""Loops over registers that only data could fill, with the number of their turns given."""

from __future__ import annotations

from typing import Any

import pytest

import nkilab
from nkilab.errors import NkilabError

LOOPS = {
    "dynamic_range": "for i in nl.dynamic_range(register): double()",
    "dynamic_range from to": "for i in nl.dynamic_range(1, register, 2): double()",
    "fori_loop": "nl.fori_loop(0, register, lambda i: double())",
    "while": "while register: double()",
    "while_loop": "nl.while_loop(register, lambda r: (double(), r)[1])",
}


def kernel_with(loop: str) -> Any:
    names: dict[str, Any] = {"TURNS": 1}
    text = f"""
import nki, nki.isa as nisa, nki.language as nl
@nki.jit
def kernel(x, bound):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    count = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=count, src=bound)
    register = nisa.register_alloc(count)
    double = lambda: nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    for turn in range(TURNS):
        {loop}
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
    with nkilab.activate():
        exec(compile(text, "loops.py", "exec"), names)
    return names["kernel"]


SHAPES = (nkilab.spec((128, 64), "float32"), nkilab.spec((1, 1), "int32"))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("count", [0, 1, 7])
def test_a_loop_goes_round_as_often_as_the_user_says(loop: str, count: int) -> None:
    estimated = nkilab.estimate(kernel_with(LOOPS[loop]), *SHAPES, trips={"loops.py:12": count})
    assert estimated.program.opcodes().get("tensor_scalar", 0) == count
    assert estimated.notes == (f"loops.py:12 goes round {count} times, as --trips says",)


@pytest.mark.parametrize("loop", ["dynamic_range", "while", "while_loop"])
def test_a_loop_that_is_entered_again_goes_round_again(loop: str) -> None:
    kernel = kernel_with(LOOPS[loop])
    kernel.function.__globals__["TURNS"] = 3
    estimated = nkilab.estimate(kernel, *SHAPES, trips={"loops.py:12": 4})
    assert estimated.program.opcodes()["tensor_scalar"] == 12
    assert len(estimated.notes) == 1


def test_a_line_that_does_not_ask_is_refused() -> None:
    with pytest.raises(NkilabError) as raised:
        nkilab.estimate(kernel_with(LOOPS["while"]), *SHAPES, trips={"loops.py:12": 1, "loops.py:10": 2})
    assert str(raised.value) == (
        "--trips names loops.py:10; there is no loop there whose number of iterations only the data decides\n"
        "  hint: leave --trips out: the error then names the line of the loop"
    )


def test_without_trips_the_loop_says_what_it_needs() -> None:
    with pytest.raises(NkilabError) as raised:
        nkilab.estimate(kernel_with(LOOPS["dynamic_range"]), *SHAPES)
    assert str(raised.value) == (
        "loops.py:12: dynamic_range: the value of a register decides what runs, and only shapes are known "
        "here\n  hint: it is computed from bound; give data: --arg bound=@bound.npy; or say how often the "
        "line goes round: --trips FILE.py:LINE=N"
    )
