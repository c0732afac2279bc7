"""Subscripts of every kind on tensors of every kind: NumPy's meaning, or a refusal by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dialects.spellings import nisa2, nki1, nki2, nl1, nl2, ramp, refusal
from tests.examples import examples

from nkilab.errors import NkilabError, UseError

TAKEN_BY_NKI = "subscripts are integers, slices and nl.ds"
TAKEN = "subscripts are integers, slices, nl.ds and index grids"
NAMED = {
    "True": ("a truth value", "write int(...) where a number is meant"),
    "np.False_": ("a truth value", "write int(...) where a number is meant"),
    "None": ("None", "add an axis of one with reshape"),
    "(slice(None), None)": ("None", "add an axis of one with reshape"),
    "nl.affine_range(4)": (
        "a range of a loop", "write for i in nl.affine_range(n), or a slice for all of it at once",
    ),
    "range(4)": ("a range", "write a slice, 0:n"),
    "[0, 3]": ("a list", "write a slice where the places lie side by side, else one access for each"),
    "(0, True)": ("a truth value", "write int(...) where a number is meant"),
}  # fmt: skip


def viewed(nl: Any, tensor: Any, key: str) -> Any:
    return tensor[eval(key, {"nl": nl, "np": np})]


@pytest.mark.parametrize("place", ["hbm", "sbuf", "view"])
@pytest.mark.parametrize("key", NAMED)
def test_what_is_no_subscript_of_nki_is_refused_by_name(key: str, place: str) -> None:
    @nki2.jit
    def kernel(x):
        tile = nl2.ndarray((4, 6), x.dtype, buffer=nl2.sbuf)
        nisa2.dma_copy(tile, x)
        part = tile[:, 0:5]
        viewed(nl2, {"hbm": x, "sbuf": tile, "view": part}[place], key)

    with pytest.raises(UseError) as caught:
        kernel(ramp(4, 6))
    # inputs have names of their own; a tile is called by the variable that holds it where it is subscripted
    name = {"hbm": "x: float32[4, 6] in hbm", "sbuf": "tensor: float32[4, 6] in sbuf"}
    name["view"] = "tensor: float32[4, 5] in sbuf"
    what, hint = NAMED[key]
    assert str(caught.value).partition("subscript: ")[2] == (
        f"a subscript of {name[place]} is {what}; {TAKEN_BY_NKI}\n  hint: {hint}"
    )


@pytest.mark.parametrize("bound", ["slice(True, 4)", "slice(0, True)", "slice(0, 4, True)", "nl.ds(0, True)"])
def test_a_truth_value_is_no_bound_of_a_slice(bound: str) -> None:
    for nki, nl in ((nki1, nl1), (nki2, nl2)):
        kernel = nki.jit(lambda x, nl=nl: viewed(nl, x, bound))
        with pytest.raises(UseError) as caught:
            kernel(ramp(4, 6))
        assert str(caught.value).partition(" is ")[2] == (
            "a truth value; it must be a whole number\n  hint: write int(...) where a number is meant"
        )


@pytest.mark.parametrize("key", [key for key in NAMED if not key.startswith("(")])
def test_what_is_no_subscript_is_named_beside_an_index_grid(key: str) -> None:
    kernel = nki1.jit(lambda x: viewed(nl1, x, f"{key}, nl.arange(6)[None, :]"))
    with pytest.raises(UseError) as caught:
        kernel(ramp(4, 6))
    what, hint = NAMED[key]
    assert str(caught.value).partition("subscript: ")[2] == (
        f"a subscript is {what}; it must be a whole number\n  hint: {hint}"
    )


@nki1.jit
def block_behind_a_comparison(x):
    out = nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm)
    blocks = nl1.ndarray((2, nl1.par_dim(4), 6), x.dtype, buffer=nl1.sbuf)
    for t in nl1.affine_range(2):
        blocks[t] = nl1.load(x[t])
    i_p, i_f = nl1.mgrid[0:4, 0:6]
    for t in nl1.affine_range(2):
        nl1.store(out[t < 2][t], blocks[t < 2][t, i_p, i_f])
    return out


def test_a_comparison_of_loop_variables_masks_an_operand_and_chooses_no_block():
    x = ramp(2, 4, 6)
    np.testing.assert_array_equal(block_behind_a_comparison(x), x)


@nki1.jit
def masked_twice(x):
    out = nl1.ndarray((4, 6), x.dtype, buffer=nl1.shared_hbm)
    tile, i_f = nl1.load(x), nl1.arange(6)[None, :]
    for t in nl1.affine_range(2):
        nl1.store(out[:, 0:3], tile[i_f < 3][t < 2])
        nl1.store(out[:, 3:6], tile[i_f >= 3][np.bool_(True)])
    return out


def test_a_masked_operand_takes_another_mask_from_the_first_partition_on():
    np.testing.assert_array_equal(masked_twice(ramp(4, 6)), ramp(4, 6))


@nki1.jit
def masked_away(x):
    for t in nl1.affine_range(2):
        nl1.load(x)[t > 2]  # refused


@nki1.jit
def masked_to_a_triangle(x):
    i_p, i_f = nl1.mgrid[0:4, 0:6]
    nl1.load(x)[i_p > i_f]  # refused


@nki1.jit
def joined_by_or(x):
    i_f = nl1.arange(6)[None, :]
    nl1.load(x, mask=(i_f < 2) | (i_f > 4))  # refused


@nki1.jit
def negated(x):
    i_f = nl1.arange(6)[None, :]
    nl1.load(x, mask=~(i_f < 2))  # refused


@nki1.jit
def grids_not_given(x):
    x[nl1.mgrid]  # refused


OPERAND = "the mask of the operand (unnamed): float32[4, 6] in sbuf lets"
JOINED = "mask: masks are joined with & alone\n  hint: make one call for each mask, or choose with nl.where"


@pytest.mark.parametrize(
    ("kernel", "problem"),
    [
        (masked_away, f"subscript: {OPERAND} nothing through\n  hint: mask the whole instruction: mask=..."),
        (
            masked_to_a_triangle,
            f"subscript: {OPERAND} no rectangle of it through\n  hint: mask the whole instruction: mask=...",
        ),
        (joined_by_or, f"{JOINED}\n  key: err_unsupported_expression_in_mask"),
        (negated, f"{JOINED}\n  key: err_unsupported_expression_in_mask"),
        (
            grids_not_given,
            f"subscript: a subscript of x: float32[4, 6] in hbm is nl.mgrid itself; {TAKEN}\n"
            "  hint: give its bounds, as nl.mgrid[0:128, 0:512]",
        ),
    ],
)  # fmt: skip
def test_a_mask_that_is_no_rectangle_is_refused(kernel, problem):
    assert refusal(kernel, ramp(4, 6), kind=UseError) == f"HERE: {problem}"


def test_the_grids_of_mgrid_subscript_as_one_object():
    @nki1.jit
    def kernel(x):
        out = nl1.ndarray((4, 6), x.dtype, buffer=nl1.shared_hbm)
        grids = nl1.mgrid[0:4, 0:6]
        nl1.store(out[grids], nl1.load(x[grids]))
        return out

    np.testing.assert_array_equal(kernel(ramp(4, 6)), ramp(4, 6))


# Drawn subscripts -----------------------------------------------------------------------------------------

NUMBERS = (
    st.integers(-7, 7) | st.integers(-7, 7).map(np.int64) | st.sampled_from([0.0, 2.0, True, np.True_, False])
)
BOUNDS = st.none() | st.integers(-2, 8) | st.sampled_from([2.0, True, np.int32(3), "1"])
PLAIN = st.one_of(
    NUMBERS, st.builds(slice, BOUNDS, BOUNDS, st.none() | st.integers(-1, 3)), st.just(...), st.none(),
    st.sampled_from(["text", 1.5, range(2), [0, 1], np.arange(2), np.array(1), np.ones(4, bool)]),
)  # fmt: skip
SPECIAL = st.sampled_from([
    "nl.ds(1, 2)", "nl.ds(5, 3)", "nl.ds(2.0, 1)", "nl.ds(True, 1)", "nl.ds(None, 1)", "nl.affine_range(2)",
    "nl.arange(3)[:, None]", "nl.arange(4)[None, :] + 1", "nl.arange(2)", "nl.mgrid[0:4, 0:3].p", "nl.mgrid",
    "nl.arange(4)[:, None] < 2", "nl.arange(6)[None, :] > 3", "tile[0:1, 0:1]", "tile[:, 0:1]",
])  # fmt: skip
SHAPES = [(4,), (4, 6), (4, 3, 5), (2, 4, 6)]


def _numpy_key(key: Any) -> Any:
    """The key as NumPy means the same with it; None where it has no such key, or means another thing."""
    parts = key if isinstance(key, tuple) else (key,)
    plain = []
    for part in parts:
        if isinstance(part, bool | np.bool_ | str | list | range | np.ndarray) or part is None:
            return None
        if isinstance(part, slice):
            if any(isinstance(b, bool | str) for b in (part.start, part.stop)):
                return None
            part = slice(*(None if b is None else int(b) for b in (part.start, part.stop, part.step)))
        plain.append(int(part) if isinstance(part, float) and part.is_integer() else part)
    return tuple(plain)


def _lies_inside(key: Any, shape: tuple[int, ...]) -> bool:
    """Whether every place that the slices name exists: NumPy cuts off what does not, which is refused."""
    at = key.index(...) if any(p is Ellipsis for p in key) else len(key)
    rest = len(shape) - len(key) + 1
    axes = [axis if axis <= at else axis + rest - 1 for axis in range(len(key))]
    for part, axis in zip(key, axes, strict=True):
        if isinstance(part, slice):
            size, step = shape[axis], 1 if part.step is None else part.step
            start, stop = part.start or 0, size if part.stop is None else part.stop
            ends = [n + size if n < 0 else n for n in (start, stop)]
            places = range(*ends, step) if step > 0 else range(0)
            if not places or places[0] < 0 or places[-1] >= size:
                return False
    return True


def _drawn(key: Any, tile: Any) -> Any:
    parts = key if isinstance(key, tuple) else (key,)
    subscript = tuple(
        eval(p, {"nl": nl1, "tile": tile}) if isinstance(p, str) and ("nl." in p or "tile" in p) else p
        for p in parts
    )
    return subscript if isinstance(key, tuple) else subscript[0]


@settings(max_examples=examples(125), deadline=None)
@given(
    st.sampled_from([1, 2]), st.sampled_from(SHAPES), st.booleans(),
    st.one_of(PLAIN | SPECIAL, *(st.lists(kind, max_size=4).map(tuple) for kind in (PLAIN, PLAIN | SPECIAL))),
)  # fmt: skip
def test_a_subscript_means_what_numpy_means_or_is_refused(spelling, shape, is_tile, key):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    seen: list[Any] = []
    nki, nl = (nki1, nl1) if spelling == 1 else (nki2, nl2)

    @nki.jit
    def kernel(x):
        out = nl.ndarray((1, 1), x.dtype, buffer=nl.shared_hbm)
        indices = nl.zeros((4, 4), nl.int32)
        tensor = nl.load(x) if is_tile else x
        nl.store(out, nl.zeros((1, 1), x.dtype))
        view = tensor[_drawn(key, indices)]
        if not view.layout.indices and getattr(view, "overhang", None) is None:
            seen[:] = np.array(tensor), np.array(view)
        return out

    message = ""
    try:
        kernel(x)
    except NkilabError as error:
        message = str(error)
    if message:
        assert message.startswith("test_subscripts.py:")
        return
    parts = key if isinstance(key, tuple) else (key,)
    special = any(isinstance(p, str) for p in parts)
    plain = None if special else _numpy_key(key)
    if plain is None or not seen:
        # what NumPy has no meaning for was a grid, a mask, a tile or nl.ds; of bools a mask alone
        is_mask = spelling == 1 and len(parts) == 1 and isinstance(parts[0], bool | np.bool_)
        is_number = any(isinstance(p, np.ndarray) and p.shape == () for p in parts)
        assert special or is_mask or is_number or not seen
        return
    whole, view = seen
    assert _lies_inside(plain, whole.shape), f"{key!r} of {whole.shape} is cut short in silence"
    # hand: an integer on chip keeps the partition axis, and a lone axis gets a second one of one
    np.testing.assert_array_equal(view.reshape(-1), whole[plain].reshape(-1))
