"""Programs that are drawn: whatever a kernel does, a launch that is replayed leaves what the first would."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nkilab
from nkilab import launches, tapes
from nkilab.runner import kernel_from
from tests.examples import examples
from tests.test_tapes import HEAD, module, outcome, x_of

with nkilab.activate():
    import neuronxcc.nki as beta1
    import neuronxcc.nki.language as bl

# steps: a line, the tile or right half that it writes, the tile that it reads
LINES = (
    "nisa.dma_copy({dst}, x[:, {columns}])", "nisa.tensor_copy({dst}, {src})", "nisa.memset({dst}, 0.5)",
    "nisa.tensor_tensor({dst}, {dst}, {src}, op=nl.add)", "nisa.activation({dst}, op=nl.exp, data={src})",
    "nisa.dma_copy({dst}, x.ap([[4, 4], [1, {width}]], vector_offset=rows, indirect_dim=0))",
    "nisa.dma_copy(out.ap([[4, 4], [1, {width}]], vector_offset=rows, indirect_dim=0), {src})",
    "nisa.tensor_copy_predicated({dst}, {src}, flags[:, {columns}])",
    "nisa.dma_copy(out[:, {columns}], {src})",
)  # fmt: skip
STEPS = st.tuples(st.sampled_from(LINES), st.integers(0, 5), st.integers(0, 2))


@pytest.fixture(autouse=True)
def nobody_looks_on(monkeypatch: pytest.MonkeyPatch) -> None:
    # what measures coverage looks on, too
    monkeypatch.setattr(sys, "gettrace", lambda: None)


def head(unwritten: int) -> list[str]:
    """The beginning of a kernel on three tiles, of which it leaves the last ones unwritten."""
    lines = [
        "out = nl.ndarray((4, 4), x.dtype, buffer=nl.shared_hbm)",
        "rows = nl.ndarray((4, 1), nl.int32, buffer=nl.sbuf)",
        "flags = nl.ndarray((4, 4), nl.uint8, buffer=nl.sbuf)",
        "nisa.dma_copy(rows, chosen)",
        "nisa.dma_copy(flags, marks)",
    ]
    lines += [f"tile_{k} = nl.ndarray((4, 4), x.dtype, buffer=nl.sbuf)" for k in range(3)]
    return lines + [f"nisa.dma_copy(tile_{k}, x[0:4])" for k in range(3 - unwritten)]


def steps_of(steps: list[tuple[str, int, int]]) -> list[str]:
    lines = []
    for line, written, read in steps:
        columns, width = ("2:4", 2) if written > 2 else ("0:4", 4)
        dst, src = f"tile_{written % 3}[:, {columns}]", f"tile_{read}[:, {columns}]"
        lines.append(line.format(dst=dst, src=src, columns=columns, width=width))
    return lines


def drawn(steps: list[tuple[str, int, int]], unwritten: int) -> Any:
    """A kernel of these steps."""
    lines = [*head(unwritten), *steps_of(steps), "return out"]
    return module("\n".join(lines), ", chosen, marks").kernel


def arrays_of(seed: int) -> tuple[np.ndarray, ...]:
    draw = np.random.default_rng(seed)
    rows, marks = draw.integers(0, 4, (4, 1), np.int32), draw.integers(0, 2, (4, 4), np.uint8)
    return x_of(seed, (4, 4)), rows, marks


@settings(
    max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(STEPS, min_size=1, max_size=9), unwritten=st.sampled_from([0, 0, 1]))
def test_every_launch_of_a_drawn_program_leaves_what_the_first_would(steps: Any, unwritten: int) -> None:
    kernel, first = drawn([*steps, (LINES[-1], 0, 0), (LINES[-1], 3, 1)], unwritten), []
    for n in range(6):
        tapes.forget_tapes()
        first.append(outcome(kernel, *arrays_of(n)))
    tapes.forget_tapes()
    assert [outcome(kernel, *arrays_of(n)) for n in range(6)] == first


LOOPS = ("range(24)", "nl.affine_range(9)", "nl.sequential_range(12)", "range(1, 20, 3)")


@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(STEPS, min_size=1, max_size=5), loop=st.sampled_from(LOOPS), unwritten=st.integers(0, 1)
)
def test_a_first_launch_traced_from_shapes_leaves_what_the_kernel_leaves_on_data(
    tmp_path_factory: pytest.TempPathFactory, steps: Any, loop: str, unwritten: int
) -> None:
    # iterations that follow from others are found by the text of a file
    iteration = [
        line.replace(f"{tensor}[:, ", f"{tensor}[i : i + 4, ")
        for line in steps_of([*steps, (LINES[-1], 0, 0)])
        for tensor in ["x" if " x[" in line else "out"]
    ]
    lines = [*head(unwritten), f"for i in {loop}:", *(f"    {line}" for line in iteration), "return out"]
    text = HEAD.format(parameters=", chosen, marks") + "".join(f"    {line}\n" for line in lines)
    path = tmp_path_factory.mktemp("drawn") / "kernels.py"
    path.write_text(text.replace("out = nl.ndarray((4, 4)", "out = nl.ndarray(x.shape"))
    with nkilab.activate():
        kernel = kernel_from(f"{path}:kernel")
    arrays = x_of(1, (32, 4)), *arrays_of(1)[1:]
    traced = outcome(kernel, *arrays)
    tapes.forget_tapes()
    with pytest.MonkeyPatch.context() as changes:
        changes.setattr(launches, "has_uniform_loops", lambda function: False)
        assert outcome(kernel, *arrays) == traced


@beta1.jit
def masked(x, steps):  # type: ignore[no-untyped-def]
    """Results of a tensor, of which each step writes those elements again that lie below a line."""
    out = bl.ndarray(x.shape, x.dtype, buffer=bl.shared_hbm)
    p, f = bl.mgrid[0:4, 0:6]
    bl.store(out, bl.load(x))
    for slope, most, factor in steps:
        part = bl.load(x[p, f], mask=slope * p + f < most)
        bl.store(out[p, f], bl.exp(part, mask=slope * p + f < most) * factor, mask=slope * p + f < most)
    return out


@settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 15), st.integers(1, 3)), max_size=3))
def test_drawn_masks_are_those_of_the_first_launch(steps: list[tuple[int, int, int]]) -> None:
    first = []
    for n in range(6):
        tapes.forget_tapes()
        first.append(outcome(masked, x_of(n), tuple(steps)))
    tapes.forget_tapes()
    assert [outcome(masked, x_of(n), tuple(steps)) for n in range(6)] == first


@pytest.mark.parametrize("line", ['nl.device_print("first", tile[0:1, 0:1])', "str(tile)"])
def test_a_loop_before_a_look_at_elements_is_no_reason_to_trace_from_shapes(
    tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        "out = scaled(x, 1.0)",
        "tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)",
        "nisa.dma_copy(tile, x)",
        "for i in range(40):",
        "    nisa.tensor_scalar(tile, tile, op0=nl.add, operand0=1.0)",
        line,
        "nisa.dma_copy(out, tile)",
        "return out",
    ]
    path = tmp_path / "looking.py"
    path.write_text(HEAD.format(parameters="") + "".join(f"    {line}\n" for line in lines))
    with nkilab.activate():
        kernel = kernel_from(f"{path}:kernel")
    tapes.forget_tapes()
    for n in range(3):
        np.testing.assert_allclose(kernel(x_of(n)), x_of(n) + 40, rtol=1e-5)
    assert capsys.readouterr().out.count("first") == (3 if "print" in line else 0)
    assert all(tape.launched is None for tape in tapes._tapes.values())
