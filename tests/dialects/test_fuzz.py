"""Random kernels against NumPy, and random misuse: what is raised is ours."""

from __future__ import annotations

import contextlib
import string

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dialects.spellings import nisa1, nisa2, nki1, nki2, nl1, nl2
from tests.examples import examples

from nkilab.arguments import argument, call_arguments, extents, literal
from nkilab.arrays import ArraySpec
from nkilab.errors import FileError, NkilabError, UsageError

FLOATS = (np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2)
INTEGERS = (np.int8, np.uint8, np.int16, np.int32)


@st.composite
def arrays(draw, dtypes=FLOATS, most=(128, 24, 4)):
    """Signed values that every type holds exactly, in one to three axes."""
    shape = tuple(draw(st.integers(1, n)) for n in most[: draw(st.integers(1, len(most)))])
    dtype = draw(st.sampled_from(dtypes))
    seed = draw(st.integers(0, 2**16))
    low = 0 if np.dtype(dtype).kind == "u" else -3
    return np.random.default_rng(seed).integers(low, 4, shape).astype(dtype)


@st.composite
def spans(draw, size):
    """A non-empty slice of an axis, as a user may write it."""
    start = draw(st.integers(0, size - 1))
    stop = draw(st.integers(start + 1, size))
    step = draw(st.integers(1, 3))
    return draw(
        st.sampled_from(
            [
                slice(start, stop, step), slice(start - size, stop if stop < size else None, step),
                slice(None),
                slice(None, stop),
            ]
        )
    )  # fmt: skip


def as_column(x):
    return x[:, None] if x.ndim == 1 else x


@settings(max_examples=examples(60))
@given(data=st.data())
def test_a_random_slice_of_hbm_loads_computes_and_stores_as_in_numpy(data):
    x = data.draw(arrays())
    key = tuple(data.draw(spans(n)) for n in x.shape[: data.draw(st.integers(1, x.ndim))])
    number = data.draw(st.sampled_from([2.0, -1.0, 0.5, 3]))

    @nki1.jit
    def kernel(a):
        tile = nl1.load(a[key])
        out = nl1.ndarray(tile.shape, nl1.float32, buffer=nl1.shared_hbm)
        nl1.store(out, tile * number + tile)
        return out

    wide = as_column(x[key]).astype(np.float32)
    # small integers times a short number: exact in float32
    np.testing.assert_array_equal(kernel(x), wide * np.float32(number) + wide)


@settings(max_examples=examples(40))
@given(data=st.data())
def test_a_random_window_of_a_tile_is_copied_as_in_numpy(data):
    x = data.draw(arrays((*FLOATS, *INTEGERS), most=(4, 24, 4)))
    x = as_column(x)
    key = (slice(None), *(data.draw(spans(n)) for n in x.shape[1:]))

    @nki2.jit
    def kernel(a):
        tile = nl2.ndarray(a.shape, a.dtype, buffer=nl2.sbuf)
        nisa2.dma_copy(dst=tile, src=a)
        window = tile[key]
        copy = nl2.ndarray(window.shape, a.dtype, buffer=nl2.sbuf)
        nisa2.tensor_copy(dst=copy, src=window)
        out = nl2.ndarray(window.shape, a.dtype, buffer=nl2.shared_hbm)
        nisa2.dma_copy(dst=out, src=copy)
        return out

    np.testing.assert_array_equal(kernel(x), x[key])


@settings(max_examples=examples(40))
@given(
    rows=st.integers(1, 40), columns=st.integers(1, 40), tile=st.integers(1, 16), a=st.integers(-9, 9),
    b=st.integers(-9, 9), c=st.integers(-40, 80),
)  # fmt: skip
def test_a_random_affine_mask_stores_where_numpy_says(rows, columns, tile, a, b, c):
    x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns) + 1

    @nki1.jit
    def kernel(x):
        out = nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm)
        i_p, i_f = nl1.mgrid[0:tile, 0:columns]
        for i in nl1.affine_range(-(-rows // tile)):
            inside = i * tile + i_p < rows
            nl1.store(out[i * tile + i_p, i_f], nl1.zeros((tile, columns), x.dtype), mask=inside)
            loaded = nl1.load(x[i * tile + i_p, i_f], mask=inside)
            chosen = inside & (a * (i * tile + i_p) + b * i_f >= c)
            nl1.store(out[i * tile + i_p, i_f], loaded, mask=chosen)
        return out

    p, f = np.mgrid[0:rows, 0:columns]
    np.testing.assert_array_equal(kernel(x), np.where(a * p + b * f >= c, x, 0))


@settings(max_examples=examples(24))
@given(data=st.data())
def test_random_axes_are_reduced_as_in_numpy(data):
    shape = tuple(data.draw(st.integers(1, 4)) for _ in range(data.draw(st.integers(2, 5))))
    x = np.random.default_rng(data.draw(st.integers(0, 99))).integers(-9, 9, shape).astype(np.float32)
    axes = data.draw(st.sets(st.integers(1, len(shape) - 1), min_size=1).map(tuple))
    keepdims = data.draw(st.booleans())

    @nki1.jit
    def kernel(x):
        total = nl1.sum(nl1.load(x), axis=axes, keepdims=keepdims)
        out = nl1.ndarray(total.shape, x.dtype, buffer=nl1.shared_hbm)
        nl1.store(out, total)
        return out

    expected = x.sum(axis=axes, keepdims=keepdims)
    np.testing.assert_array_equal(kernel(x), as_column(expected))


GARBAGE = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 300), st.floats(allow_nan=True), st.text(max_size=3),
    st.binary(max_size=2),
    st.just(...), st.just(slice(None)), st.just(slice("a", None)), st.lists(st.integers(-2, 9), max_size=3),
    st.tuples(st.integers(-2, 9), st.integers(-2, 9)), st.just(np.add), st.just(np.float64(2)),
    st.just(np.arange(3)),
    st.just(np.float64), st.just(object()), st.just({}), st.complex_numbers(max_magnitude=2, allow_nan=False),
)  # fmt: skip
TILE = object()
ARGUMENTS = st.one_of(st.just(TILE), GARBAGE)

PUBLIC = [
    "ndarray", "zeros", "ones", "full", "zeros_like", "empty_like", "load", "store", "copy", "add", "power",
    "less",
    "maximum", "exp", "negative", "invert", "logical_not", "reciprocal", "sum", "max", "mean", "var", "all",
    "matmul",
    "transpose", "broadcast_to", "expand_dims", "load_transpose2d", "loop_reduce", "arange", "par_dim", "ds",
    "affine_range", "program_id", "num_programs", "device_print", "bitwise_and", "left_shift",
]  # fmt: skip


def raised_by(call):
    """What a call raises; TypeError of Python's own binding does not count."""
    try:
        call()
    except TypeError as error:
        trace = error.__traceback__.tb_next
        return error if trace is not None and trace.tb_next is not None else None
    except Exception as error:
        return error
    return None


def check_only_ours(call):
    error = raised_by(call)
    assert error is None or isinstance(error, NkilabError), repr(error)


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=examples(280))
@given(name=st.sampled_from(PUBLIC), args=st.lists(ARGUMENTS, max_size=3), data=st.data())
def test_a_random_call_of_nl_raises_nothing_but_our_errors(name, args, data):
    keywords = data.draw(
        st.dictionaries(
            st.sampled_from(["dtype", "mask", "axis", "shape", "buffer", "keepdims"]), ARGUMENTS, max_size=2
        )
    )

    @nki1.jit
    def kernel(x):
        tile = nl1.load(x)
        operands = [tile if a is TILE else a for a in args]
        named = {k: tile if a is TILE else a for k, a in keywords.items()}
        check_only_ours(lambda: getattr(nl1, name)(*operands, **named))
        return x

    with contextlib.redirect_stdout(None), contextlib.suppress(NkilabError):
        kernel(np.ones((4, 3), np.float32))


INSTRUCTIONS = [
    "tensor_tensor", "tensor_scalar", "tensor_copy", "tensor_reduce", "activation", "nc_matmul",
    "nc_transpose",
    "memset", "iota", "reciprocal", "scalar_tensor_tensor", "activation_reduce", "dma_copy",
]  # fmt: skip
KEYWORDS = [
    "op",
    "op0",
    "operand0",
    "data",
    "axis",
    "engine",
    "value",
    "scale",
    "bias",
    "mask",
    "dtype",
    "dst",
    "src",
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("spelling", ["nki", "neuronxcc"])
@settings(max_examples=examples(200))
@given(name=st.sampled_from(INSTRUCTIONS), args=st.lists(ARGUMENTS, max_size=4), data=st.data())
def test_a_random_call_of_an_instruction_raises_nothing_but_our_errors(spelling, name, args, data):
    keywords = data.draw(st.dictionaries(st.sampled_from(KEYWORDS), ARGUMENTS, max_size=2))
    nki, nisa = (nki2, nisa2) if spelling == "nki" else (nki1, nisa1)

    @nki.jit
    def kernel(x):
        if spelling == "nki":
            tile = nl2.ndarray((4, 3), nl2.float32, buffer=nl2.sbuf)
            nisa2.memset(dst=tile, value=1)
        else:
            tile = nl1.load(x)
        operands = [tile if a is TILE else a for a in args]
        named = {k: tile if a is TILE else a for k, a in keywords.items()}
        check_only_ours(lambda: getattr(nisa, name)(*operands, **named))
        return x

    with contextlib.suppress(NkilabError):
        kernel(np.ones((4, 3), np.float32))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("spelling", ["nki", "neuronxcc"])
@settings(max_examples=examples(200))
@given(key=st.one_of(GARBAGE, st.tuples(GARBAGE, GARBAGE)), value=GARBAGE, data=st.data())
def test_a_random_subscript_raises_nothing_but_our_errors(spelling, key, value, data):
    nki = nki2 if spelling == "nki" else nki1
    method = data.draw(
        st.sampled_from(["reshape", "view", "broadcast_to", "expand_dims", "astype", "assert_shape"])
    )

    @nki.jit
    def kernel(x):
        check_only_ours(lambda: x[key])
        if spelling == "neuronxcc":
            tile = nl1.load(x)
            check_only_ours(lambda: tile.__setitem__(key, value))
            check_only_ours(lambda: getattr(tile, method)(value))
            check_only_ours(lambda: nl1.mgrid[key])
            check_only_ours(lambda: nl1.arange(4)[key])
        return x

    with contextlib.suppress(NkilabError):
        kernel(np.ones((4, 3), np.float32))


@settings(max_examples=examples(120))
@given(st.one_of(GARBAGE, st.tuples(GARBAGE)), GARBAGE)
def test_a_random_argument_or_grid_raises_nothing_but_our_errors(value, grid):
    @nki1.jit
    def kernel(x, y=3):
        return None

    check_only_ours(lambda: kernel(value))
    check_only_ours(lambda: kernel(x=[value, {"a": value}], y=value))
    if not isinstance(grid, int) or grid < 50:
        check_only_ours(lambda: kernel[grid](1))


@settings(max_examples=examples(200))
@given(st.one_of(st.text(max_size=30), st.text(string.ascii_letters + "0123456789[],@=. ", max_size=20)))
def test_the_text_of_an_argument_is_understood_or_refused(text):
    try:
        parsed = argument(text)
    except (UsageError, FileError):
        return
    assert isinstance(parsed, ArraySpec)


@settings(max_examples=examples(200))
@given(st.text(max_size=40))
def test_any_text_is_a_literal_or_itself(text):
    literal(text)
    with contextlib.suppress(UsageError, FileError):
        call_arguments([text], [text])
    with contextlib.suppress(UsageError):
        assert all(n >= 1 for n in extents(text))


@pytest.mark.parametrize(
    "text", ["{[]: 1}", "(" * 500 + ")" * 500, "9" * 5000, "'\\d'", "1 if x else 2", "\0", "-" * 3000 + "1"]
)  # fmt: skip
def test_a_text_that_python_chokes_on_is_itself(text):
    parsed = literal(text)
    assert parsed == text or isinstance(parsed, int | tuple | str)
