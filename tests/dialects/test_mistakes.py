"""What a beginner does wrong is told at his line: what is wrong, the operands, and what to write instead."""

from __future__ import annotations

import importlib
import runpy
from importlib.util import find_spec

import numpy as np
import pytest
from tests.dialects import mistakes

import nkilab
from nkilab.errors import NkilabError

TABLE = [
    (spelling, line, text)
    for spelling, own in (("neuronxcc.nki", mistakes.BETA1), ("nki", mistakes.NKI))
    for line, text in {**mistakes.BOTH, **own}.items()
]
INPUT = np.ones((128, 64), np.float32)


def mistake_message(folder, spelling, line):
    """The message of a kernel with this line, without its place; the place is asserted."""
    path = folder / "k.py"
    head = mistakes.HEADS[spelling]
    path.write_text(f"{head}    {line}\n    return out\n", "utf-8")
    with nkilab.activate():
        kernel = runpy.run_path(str(path))["kernel"]
        with pytest.raises(NkilabError) as caught:
            kernel(INPUT)
    place = f"k.py:{head.count(chr(10)) + 1}: "
    text = str(caught.value)
    assert text.startswith(place), text
    return text.removeprefix(place)


@pytest.mark.parametrize(("spelling", "line", "text"), TABLE, ids=[f"{s}: {line}" for s, line, _ in TABLE])
def test_a_mistake_of_a_first_hour_is_told_with_its_line_and_a_way_out(tmp_path, spelling, line, text):
    assert mistake_message(tmp_path, spelling, line) == text


@pytest.mark.parametrize("spelling", ["neuronxcc.nki", "nki"])
def test_a_function_of_torch_on_a_tile_is_told_with_the_word_of_nki(tmp_path, spelling):
    pytest.importorskip("torch")
    expected = mistakes.HOST.replace("\n  hint: ", "")
    for line, called, hint in (
        ("import torch; torch.relu(t)", "torch.relu", "nl.relu(t)"),
        ("import torch; torch.nn.functional.softmax(t, dim=-1)", "torch.nn.functional.softmax",
         "nl.softmax(t, axis=-1)"),
        ("import torch; torch.mul(t, 2)", "torch.mul", "nl.multiply(t, 2)"),
    ):  # fmt: skip
        folder = tmp_path / called
        folder.mkdir()
        assert mistake_message(folder, spelling, line) == f"{called}: {expected}\n  hint: write {hint}"


@pytest.mark.parametrize("spelling", ["neuronxcc.nki", "nki"])
def test_a_function_of_jax_on_a_tile_is_told_with_the_word_of_nki(tmp_path, spelling):
    pytest.importorskip("jax")
    message = mistake_message(tmp_path, spelling, "import jax.numpy as jnp; jnp.exp(t)")
    assert message.splitlines()[0] == f"jnp.exp: it computes on the host; {mistakes.WHEN}"
    assert message.splitlines()[2] == "  hint: write nl.exp(t)"


@pytest.mark.parametrize("spelling", ["neuronxcc.nki", "nki"])
def test_a_number_of_numpy_may_stand_on_the_left_of_an_operator(tmp_path, spelling):
    path = tmp_path / "k.py"
    path.write_text(mistakes.HEADS[spelling] + "    return np.float32(3) * t\n", "utf-8")
    with nkilab.activate():
        kernel = runpy.run_path(str(path))["kernel"]
        with pytest.raises(NkilabError) as caught:
            kernel(INPUT)
    # Beta 1 multiplies, and only then refuses the result on chip; nki has no operators
    assert ("returns a tile in sbuf" in str(caught.value)) is (spelling == "neuronxcc.nki")
    assert ("nisa.tensor_scalar(dst, t, op0=nl.multiply" in str(caught.value)) is (spelling == "nki")


@pytest.mark.parametrize("spelling", ["neuronxcc.nki", "nki"])
def test_a_tile_as_the_result_of_a_kernel_is_told_where_results_lie(tmp_path, spelling):
    path = tmp_path / "k.py"
    path.write_text(mistakes.HEADS[spelling] + "    return t\n", "utf-8")
    with nkilab.activate():
        kernel = runpy.run_path(str(path))["kernel"]
        with pytest.raises(NkilabError) as caught:
            kernel(INPUT)
    assert str(caught.value) == (
        "k.py:7: kernel: kernel returns a tile in sbuf; results lie in hbm\n"
        "  result = t: float32[128, 64] in sbuf\n"
        "  hint: store it to a tensor made with buffer=nl.shared_hbm and return that"
    )


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("nki.languge", "nki.language"),
        ("nki.isaa", "nki.isa"),
        ("neuronxcc.nki.lang", "neuronxcc.nki.language"),
        ("neuronxcc.language", "neuronxcc.nki.language"),
    ],
)
def test_a_misspelt_module_is_told_with_the_near_one(tmp_path, name, near):
    path = tmp_path / "k.py"
    path.write_text(f"import {name}\n", "utf-8")
    with nkilab.activate():
        with pytest.raises(ModuleNotFoundError) as caught:
            runpy.run_path(str(path))
        assert str(caught.value) == f"k.py:1: import: nkilab serves no module {name}\n  hint: import {near}"
        assert caught.value.name == name
        # who only asks is told that there is none
        importlib.import_module(name.rpartition(".")[0])
        assert find_spec(name) is None


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("[].push(3)", "'list' object has no attribute 'push'"),
        ("nl.shared_hbm.__len__.shape", "'method-wrapper' object has no attribute 'shape'"),
        # the line that asks is a library's
        ("import functools as f; f.update_wrapper(3, t, (), ['T'])", "'int' object has no attribute 'T'"),
    ],
)  # fmt: skip
def test_what_no_array_has_and_what_no_line_of_the_users_asks_for_stays_pythons_error(tmp_path, line, text):
    path = tmp_path / "k.py"
    path.write_text(f"{mistakes.HEADS['nki']}    {line}\n    return out\n", "utf-8")
    with nkilab.activate():
        kernel = runpy.run_path(str(path))["kernel"]
        with pytest.raises(AttributeError) as caught:
            kernel(INPUT)
    assert type(caught.value) is AttributeError
    assert str(caught.value) == text


def test_a_kernel_may_ask_whether_a_list_has_a_shape(tmp_path):
    path = tmp_path / "k.py"
    path.write_text(
        f"{mistakes.HEADS['nki']}    nisa.dma_copy(out, t)\n    assert not hasattr([1], 'shape')\n"
        "    assert getattr(nl.sbuf, 'tensor', 3) == 3\n    return out\n", "utf-8",
    )  # fmt: skip
    with nkilab.activate():
        np.testing.assert_array_equal(runpy.run_path(str(path))["kernel"](INPUT), INPUT)
