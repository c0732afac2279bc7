"""Parameters that a kernel may write: annotated ones, and those of kernels that nki.trace marks."""

from __future__ import annotations

import numpy as np
import pytest
from tests.dialects.spellings import marked_line, nisa1, nisa2, nki1, nki2, nl1, nl2

import nkilab
from nkilab.dialects.serve import tables
from nkilab.errors import NkilabWarning, UseError

NKI = tables("neuronxcc", "")["neuronxcc.nki"]
NL = tables("neuronxcc", "")["neuronxcc.nki.language"]
NT = tables("neuronxcc", "")["neuronxcc.nki.typing"]


def doubled_in_place(x):
    """Write 2 x over x and return x."""
    NL["store"](x, NL["multiply"](NL["load"](x), 2.0))
    return x


def written_to(a, out):
    """Write a + 1 to a parameter and return nothing, as kernels of 2.20 do."""
    NL["store"](out, NL["add"](NL["load"](a), 1.0))


@pytest.mark.parametrize(
    "annotation",
    [NT["mutable_tensor"], NT["mutable_tensor"][4, 8], NT["tensor"][NT["mutable"]], "nt.mutable_tensor",
     "nt.tensor[nt.mutable]"],
)  # fmt: skip
def test_an_annotated_parameter_is_written_in_place(annotation):
    doubled_in_place.__annotations__ = {"x": annotation}
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    result = nkilab.simulate(NKI["jit"](doubled_in_place))(x)
    np.testing.assert_array_equal(result, 2 * np.arange(32, dtype=np.float32).reshape(4, 8))
    np.testing.assert_array_equal(x, result)


@pytest.mark.parametrize(
    "annotation", [NT["tensor"], NT["tensor"][4, 8], NT["immutable"], "nt.tensor", "nt.immutable", None]
)
def test_any_other_parameter_is_not_written(annotation):
    doubled_in_place.__annotations__ = {} if annotation is None else {"x": annotation}
    x = np.ones((4, 8), np.float32)
    with pytest.raises(ValueError, match="dst is an input of the kernel, which may not be written"):
        nkilab.simulate(NKI["jit"](doubled_in_place))(x)
    np.testing.assert_array_equal(x, 1)


def test_an_array_that_may_not_change_is_copied_and_told():
    doubled_in_place.__annotations__ = {"x": NT["mutable"]}
    x = np.ones((4, 8), np.float32)
    x.flags.writeable = False
    with pytest.warns(NkilabWarning, match="writes to x, a read-only array, which stays as it is"):
        np.testing.assert_array_equal(nkilab.simulate(NKI["jit"](doubled_in_place))(x), 2)
    np.testing.assert_array_equal(x, 1)


def test_a_traced_kernel_writes_its_result_to_a_parameter():
    a, out = np.ones((4, 8), np.float32), np.zeros((4, 8), np.float32)
    NKI["simulate_kernel"](NKI["trace"](written_to), a, out)
    np.testing.assert_array_equal(out, 2)


@pytest.mark.parametrize("out", [np.zeros((8, 4), np.float32).T, np.zeros((4, 16), np.float32)[:, ::2]])
def test_a_parameter_whose_elements_do_not_lie_in_order_has_the_result_too(out):
    NKI["simulate_kernel"](NKI["trace"](written_to), np.ones((4, 8), np.float32), out)
    np.testing.assert_array_equal(out, np.full((4, 8), 2.0))


@nki2.jit
def swapped(a):
    t = nl2.ndarray((4, 8), nl2.float32, buffer=nl2.sbuf)
    out = nl2.ndarray((4, 8), nl2.float32, buffer=nl2.shared_hbm)
    nisa2.dma_copy(a, t)  # swapped
    nisa2.dma_copy(out, t)
    return out


@nki2.jit
def swapped_in_hbm(a):
    out = nl2.ndarray((4, 8), nl2.float32, buffer=nl2.shared_hbm)
    nisa2.dma_copy(a, out)  # swapped
    return out


@nki1.jit
def swapped_in_beta_1(a):
    t = nl1.ndarray((4, 8), nl1.float32, buffer=nl1.sbuf)
    nisa1.dma_copy(dst=a, src=t)  # swapped
    return a


@pytest.mark.parametrize(
    ("kernel", "problem", "rest"),
    [
        (swapped, "dst is an input of the kernel, and nothing has written src, which would take its place",
         "source: NKI simulator guide, uninitialized memory detection"),
        (swapped_in_beta_1, "dst is an input of the kernel, which may not be written",
         "key: err_cannot_update_immutable_parameter"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("has_data", [True, False])
def test_a_swapped_copy_is_refused_and_leaves_the_array_of_the_caller_alone(kernel, problem, rest, has_data):
    array = np.ones((4, 8), np.float32)
    with pytest.raises(UseError) as caught:
        kernel(array) if has_data else nkilab.estimate(kernel, nkilab.spec((4, 8), "float32"))
    assert str(caught.value) == (
        f"{marked_line(kernel.function, '# swapped')}: dma_copy: {problem}\n"
        "  dst = a: float32[4, 8] in hbm\n"
        "  src = t: float32[4, 8] in sbuf\n"
        "  hint: exchange dst and src: dma_copy writes to dst\n"
        f"  {rest}"
    )
    assert (array == 1).all()


@nki2.jit
def stored_in_place(a):
    t = nl2.ndarray((4, 8), nl2.float32, buffer=nl2.sbuf)
    nl2.store(a, t)  # swapped
    return a


@nki1.jit
def stored_in_place_in_beta_1(a):
    t = nl1.ndarray((4, 8), nl1.float32, buffer=nl1.sbuf)
    nl1.store(a, t)  # swapped
    return a


@pytest.mark.parametrize(
    ("kernel", "problem", "rest"),
    [
        (stored_in_place, ", and nothing has written value, which would take its place",
         "source: NKI simulator guide, uninitialized memory detection"),
        (stored_in_place_in_beta_1, ", which may not be written",
         "key: err_cannot_update_immutable_parameter"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("has_data", [True, False])
def test_a_store_of_nothing_over_an_input_is_refused_in_words_of_the_store(kernel, problem, rest, has_data):
    array = np.ones((4, 8), np.float32)
    with pytest.raises(UseError) as caught:
        kernel(array) if has_data else nkilab.estimate(kernel, nkilab.spec((4, 8), "float32"))
    assert str(caught.value) == (
        f"{marked_line(kernel.function, '# swapped')}: store: dst is an input of the kernel{problem}\n"
        "  dst = a: float32[4, 8] in hbm\n"
        "  value = t: float32[4, 8] in sbuf\n"
        "  hint: read the input with nl.load; nl.store writes to dst\n"
        f"  {rest}"
    )
    assert (array == 1).all()


def test_a_tensor_that_nothing_wrote_is_not_copied_into_an_array_of_the_caller():
    array = np.ones((4, 8), np.float32)
    with pytest.raises(UseError) as caught:
        swapped_in_hbm(array)
    assert str(caught.value) == (
        f"{marked_line(swapped_in_hbm.function, '# swapped')}: dma_copy: dst is an input of the kernel, and "
        "nothing has written src, which would take its place\n"
        "  dst = a: float32[4, 8] in hbm\n"
        "  src = out: float32[4, 8] in hbm\n"
        "  hint: exchange dst and src: dma_copy writes to dst\n"
        "  source: NKI simulator guide, uninitialized memory detection"
    )
    assert (array == 1).all()


@nki2.jit
def stored_to_its_input(a):
    t = nl2.ndarray((4, 8), nl2.float32, buffer=nl2.sbuf)
    out = nl2.ndarray((4, 8), nl2.float32, buffer=nl2.shared_hbm)
    nisa2.dma_copy(t, a)
    nisa2.dma_copy(a, t)
    return out


def test_a_result_that_nothing_wrote_names_the_input_that_was_written_instead():
    with pytest.warns(NkilabWarning) as notices:
        stored_to_its_input(np.ones((4, 8), np.float32))
    assert [str(warning.message) for warning in notices] == [
        "stored_to_its_input returns out: float32[4, 8] in hbm, which was never written; the kernel wrote to "
        "a, an input of that shape"
    ]
