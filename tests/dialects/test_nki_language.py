"""Functions of nki.language over tiles, against NumPy."""

from __future__ import annotations

import inspect
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.dialects.spellings import nisa2 as nisa
from tests.dialects.spellings import nki2 as nki
from tests.dialects.spellings import nl2 as nl
from tests.dialects.spellings import program_of, ramp, refusal, traced

from nkilab.api import chosen
from nkilab.dialects.serve import tables
from nkilab.errors import LimitError, NkilabWarning, RuleError, SpellingError, UseError

RNG = np.random.default_rng(11)
X = RNG.uniform(0.25, 2, (8, 6)).astype(np.float32)
Y = RNG.uniform(0.25, 2, (8, 6)).astype(np.float32)
INTEGERS = RNG.integers(0, 2**20, (8, 6)).astype(np.int32)
# float32 arithmetic rounds once per instruction; functions are exact to a few units in the last place
CLOSE = {"rtol": 3e-6, "atol": 1e-6}


def applied(function, *arrays, target=""):
    """What a function of tiles gives for arrays that are loaded, as an array."""

    @nki.jit
    def kernel(*tensors):
        tile = function(*(nl.load(t) for t in tensors))
        out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.copy(tile))
        return out

    with chosen(target=target):
        return kernel(*arrays)


EXACT: dict[str, tuple[Any, Any]] = {
    "add": (lambda x, y: nl.add(x, y), X + Y),
    "subtract": (lambda x, y: nl.subtract(x, y), X - Y),
    "multiply": (lambda x, y: nl.multiply(x, y), X * Y),
    "maximum": (lambda x, y: nl.maximum(x, y), np.maximum(X, Y)),
    "minimum": (lambda x, y: nl.minimum(x, y), np.minimum(X, Y)),
    "add a number": (lambda x, y: nl.add(x, 2.5), X + np.float32(2.5)),
    "subtract from a number": (lambda x, y: nl.subtract(1, x), 1 - X),
    "equal": (lambda x, y: nl.equal(x, x), np.ones((8, 6), np.float32)),
    "not_equal": (lambda x, y: nl.not_equal(x, y), (X != Y).astype(np.float32)),
    "less": (lambda x, y: nl.less(x, y), (X < Y).astype(np.float32)),
    "less_equal": (lambda x, y: nl.less_equal(x, 1.0), (X <= 1).astype(np.float32)),
    "greater": (lambda x, y: nl.greater(x, y, dtype=nl.uint8), (X > Y).astype(np.uint8)),
    "greater_equal": (lambda x, y: nl.greater_equal(x, y), (X >= Y).astype(np.float32)),
    "abs": (lambda x, y: nl.abs(nl.negative(x)), X),
    "negative": (lambda x, y: nl.negative(x), -X),
    "square": (lambda x, y: nl.square(x), X * X),
    "relu": (lambda x, y: nl.relu(nl.subtract(x, y)), np.maximum(X - Y, 0)),
    "floor": (lambda x, y: nl.floor(x), np.floor(X)),
    "copy": (lambda x, y: nl.copy(x), X),
    "max": (lambda x, y: nl.max(x, axis=1), X.max(1, keepdims=True)),
    "min": (lambda x, y: nl.min(x, axis=[1], keepdims=True), X.min(1, keepdims=True)),
    "all": (lambda x, y: nl.all(nl.less(x, 1.9), axis=1), (X < 1.9).all(1, keepdims=True)),
    "where": (lambda x, y: nl.where(nl.less(x, y), x, y), np.minimum(X, Y)),
    "expand_dims": (lambda x, y: nl.expand_dims(x, 1), X[:, None]),
    "expand_dims at the end": (lambda x, y: nl.expand_dims(x, -1), X[..., None]),
    "broadcast_to": (lambda x, y: nl.broadcast_to(x[:, 0:1], (8, 4)), np.repeat(X[:, :1], 4, 1)),
    "broadcast_to partitions": (lambda x, y: nl.broadcast_to(x[0:1], (8, 6)), np.repeat(X[:1], 8, 0)),
    "transpose": (lambda x, y: nl.transpose(x), X.T),
    "zeros_like": (lambda x, y: nl.zeros_like(x), np.zeros_like(X)),
    "ones": (lambda x, y: nl.ones((3, 4), nl.float32), np.ones((3, 4), np.float32)),
    "full": (lambda x, y: nl.full((3, 4), 2.5, nl.float32), np.full((3, 4), 2.5, np.float32)),
    "identity": (lambda x, y: nl.shared_identity_matrix(5, dtype=nl.float32), np.eye(5, dtype=np.float32)),
    "copy to another type": (lambda x, y: nl.copy(x, dtype=nl.bfloat16), X.astype(ml_dtypes.bfloat16)),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_a_function_gives_exactly_what_numpy_does(name):
    function, expected = EXACT[name]
    result = applied(function, X, Y)
    np.testing.assert_array_equal(result, expected)


NEAR: dict[str, tuple[Any, Any]] = {
    "exp": (lambda x, y: nl.exp(x), np.exp(X)),
    "log": (lambda x, y: nl.log(x), np.log(X)),
    "sqrt": (lambda x, y: nl.sqrt(x), np.sqrt(X)),
    "rsqrt": (lambda x, y: nl.rsqrt(x), 1 / np.sqrt(X)),
    "reciprocal": (lambda x, y: nl.reciprocal(x), 1 / X),
    "tanh": (lambda x, y: nl.tanh(x), np.tanh(X)),
    "sigmoid": (lambda x, y: nl.sigmoid(x), 1 / (1 + np.exp(-X))),
    "cos": (lambda x, y: nl.cos(x), np.cos(X)),
    "power": (lambda x, y: nl.power(x, y), X**Y),
    "sum": (lambda x, y: nl.sum(x, axis=-1), X.sum(1, keepdims=True)),
    "prod": (lambda x, y: nl.prod(x, axis=1), X.prod(1, keepdims=True)),
    "mean": (lambda x, y: nl.mean(x, axis=1), X.mean(1, keepdims=True)),
    "var": (lambda x, y: nl.var(x, axis=1), X.var(1, keepdims=True)),
    "softmax": (lambda x, y: nl.softmax(x), np.exp(X) / np.exp(X).sum(1, keepdims=True)),
    "rms_norm": (
        lambda x, y: nl.rms_norm(x, y, axis=1, n=6),
        X / np.sqrt((X * X).mean(1, keepdims=True) + 1e-6) * Y,
    ),
    "matmul": (lambda x, y: nl.matmul(x, nl.copy(nl.transpose(y))), X @ Y.T),
    "matmul of a transpose": (lambda x, y: nl.matmul(x, y, transpose_x=True), X.T @ Y),
}


@pytest.mark.parametrize("name", NEAR)
def test_a_function_gives_what_numpy_does_up_to_rounding(name):
    function, expected = NEAR[name]
    np.testing.assert_allclose(applied(function, X, Y), expected, **CLOSE)


BITS: dict[str, tuple[Any, Any]] = {
    "bitwise_and": (lambda x: nl.bitwise_and(x, 255), INTEGERS & 255),
    "bitwise_or": (lambda x: nl.bitwise_or(x, 5), INTEGERS | 5),
    "bitwise_xor": (lambda x: nl.bitwise_xor(x, x), INTEGERS * 0),
    "invert": (lambda x: nl.invert(x), ~INTEGERS),
    "left_shift": (lambda x: nl.left_shift(x, 3), INTEGERS << 3),
    "right_shift": (lambda x: nl.right_shift(x, 3), INTEGERS >> 3),
}


@pytest.mark.parametrize("name", BITS)
def test_bits_of_integers_are_exact(name):
    function, expected = BITS[name]
    np.testing.assert_array_equal(applied(function, INTEGERS), expected)


def test_the_sine_takes_any_number_of_turns():
    x = np.linspace(-60, 60, 48).reshape(8, 6).astype(np.float32)
    # the argument is known to 60 * 2**-23
    np.testing.assert_allclose(applied(lambda t: nl.sin(t), x), np.sin(x.astype(np.float64)), atol=2e-5)


def test_numbers_by_magnitude_are_for_trn3():
    x, y = np.array([[-5, 2]], np.float32), np.array([[3, -2]], np.float32)
    np.testing.assert_array_equal(applied(lambda a, b: nl.abs_max(a, b), x, y, target="trn3"), [[-5, -2]])
    np.testing.assert_array_equal(applied(lambda a, b: nl.abs_min(a, b), x, y, target="trn3"), [[3, -2]])


@pytest.mark.parametrize(
    ("name", "function"), [("divide", np.divide), ("mod", np.mod), ("fmod", np.fmod)], ids=lambda v: str(v)
)
def test_a_division_runs_in_simulation_with_a_warning(name, function):
    with pytest.warns(NkilabWarning, match=f"nl.{name} runs in simulation only: no engine divides"):
        result = applied(lambda x, y: getattr(nl, name)(x, y), X, Y)
    np.testing.assert_allclose(result, function(X, Y), **CLOSE)


def test_gathered_elements_are_those_that_the_indices_name():
    places = RNG.integers(0, 6, (8, 5)).astype(np.uint32)
    result = applied(lambda x, i: nl.gather_flattened(x, i), X, places)
    np.testing.assert_array_equal(result, np.take_along_axis(X, places.astype(int), 1))


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_random_numbers_are_uniform_and_follow_the_seed(target):
    def drawn(seed):
        nl.random_seed(nl.copy(seed))
        first = nl.rand((8, 512), dtype=nl.float32)
        nl.random_seed(nl.copy(seed))
        nisa.tensor_tensor(dst=first, data1=first, data2=nl.rand((8, 512), nl.float32), op=nl.subtract)
        return first

    seed = np.full((1, 1), 42, np.int32)
    np.testing.assert_array_equal(applied(drawn, seed, target=target), 0)
    numbers = applied(lambda s: nl.rand((128, 512), dtype=nl.float32), seed, target=target)
    assert numbers.min() >= 0
    assert numbers.max() <= 1
    # the mean of 2**16 of them is within five standard deviations of a half
    assert abs(numbers.mean() - 0.5) < 5 / np.sqrt(12 * 2**16)


def test_dropout_keeps_all_or_nothing_at_its_ends():
    np.testing.assert_array_equal(applied(lambda x: nl.dropout(x, 0.0), X), X)
    np.testing.assert_array_equal(applied(lambda x: nl.dropout(x, 1.0), X), 0 * X)


def test_a_tensor_is_loaded_transposed():
    @nki.jit
    def kernel(x):
        tile = nl.load_transpose2d(x, dtype=nl.float32)
        out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    np.testing.assert_array_equal(kernel(X), X.T)


def test_a_constant_comes_from_an_array_or_a_file(tmp_path):
    np.save(tmp_path / "held.npy", X)

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.add(nl.load(nl.shared_constant(X)), nl.load(nl.shared_constant(str(tmp_path / "held.npy"))))
        nl.store(out, tile)
        return out

    np.testing.assert_array_equal(kernel(X), 2 * X)


def test_an_identity_is_written_to_the_tile_that_is_given():
    @nki.jit
    def kernel(x):
        tile = nl.ndarray((4, 4), nl.bfloat16)
        assert nl.shared_identity_matrix(4, nl.bfloat16, dst=tile) is tile
        out = nl.ndarray((4, 4), nl.bfloat16, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    np.testing.assert_array_equal(kernel(X).astype(np.float32), np.eye(4))


@nki.jit
def of_result_memories(x):
    tile = nl.load(x)
    transposed, product = nl.transpose(tile), nl.matmul(tile, tile, transpose_x=True)
    assert (transposed.buffer, product.buffer, nl.copy(transposed).buffer) == (nl.psum, nl.psum, nl.sbuf)
    assert (product.dtype, nl.less(tile, 1).dtype, nl.add(1, tile).dtype) == ("float32", x.dtype, x.dtype)
    assert nl.empty_like(transposed).buffer == nl.psum
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def test_results_lie_in_sbuf_but_products_and_transposes_and_have_the_type_of_the_input():
    of_result_memories(X.astype(ml_dtypes.bfloat16))


def test_softmax_is_lowered_to_six_instructions():
    @nki.jit
    def kernel(x):
        tile = nl.softmax(nl.load(x), axis=1)
        out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    assert traced(kernel, X) == [
        "dma_copy", "tensor_reduce", "tensor_scalar", "activation", "tensor_reduce", "reciprocal",
        "tensor_scalar", "dma_copy",
    ]  # fmt: skip


# Names that make no tile, or are tested elsewhere.
NOT_CALLED = {
    "DType", "MemoryRegion", "NKIObject", "NkiTensor", "affine_range", "average", "bool", "bool_", "bypass",
    "device_print", "ds", "dynamic_range", "fori_loop", "hbm", "is_hbm", "is_on_chip", "is_psum", "is_sbuf",
    "no_reorder", "num_programs", "par_dim", "prelu", "private_hbm", "program_id", "program_ndim", "psum",
    "range", "sbuf", "sequential_range", "shared_hbm", "static_range", "tile_size", "while_loop",
    "ndarray", "empty_like", "expand_dims", "shared_constant", "store", "random_seed",
}  # fmt: skip
OPERANDS: dict[str, Any] = {
    "load": lambda f, t, h: f(h), "load_transpose2d": lambda f, t, h: f(h),
    "zeros": lambda f, t, h: f((4, 4), nl.float32), "ones": lambda f, t, h: f((4, 4), nl.float32),
    "full": lambda f, t, h: f((4, 4), 1, nl.float32), "rand": lambda f, t, h: f((4, 4), nl.float32),
    "where": lambda f, t, h: f(t, t, t), "rms_norm": lambda f, t, h: f(t, t, 1, 4),
    "dropout": lambda f, t, h: f(t, 0.5), "broadcast_to": lambda f, t, h: f(t[:, 0:1], (4, 4)),
    "gather_flattened": lambda f, t, h: f(t, nl.zeros((4, 4), nl.uint32)),
    "shared_identity_matrix": lambda f, t, h: f(4),
    **{n: lambda f, t, h: f(t, axis=1)
       for n in ("sum", "prod", "max", "min", "mean", "var", "all", "softmax")},
}  # fmt: skip
FUNCTIONS = sorted(
    n for n, f in tables("nki", "")["nki.language"].items() if callable(f) and n not in NOT_CALLED
)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore::nkilab.errors.NkilabWarning")
def test_every_function_is_lowered_to_rows_that_write_its_result(name):
    def call(function, tile, hbm):
        if name in OPERANDS:
            return OPERANDS[name](function, tile, hbm)
        takes_two = "y" in inspect.signature(function).parameters
        return function(tile, tile) if takes_two else function(tile)

    @nki.jit
    def kernel(x):
        bits = name.startswith("bitwise") or name.endswith("_shift") or name == "invert"
        tile = nl.zeros((4, 4), nl.int32 if bits else nl.float32)
        result = call(getattr(nl, name), tile, x)
        out = nl.ndarray(result.shape, result.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.copy(result))
        return out

    with chosen(target="trn3"):
        program = program_of(kernel, np.ones((4, 4), np.float32), target="trn3")
    rows = [program.form_of(row).name for row in range(len(program))]
    own = rows[1:-2]
    assert own or name == "copy", rows


def shapes_that_differ(x):
    tile = nl.load(x)
    nl.add(tile, tile[:, 0:1])  # refused


def two_numbers(x):
    nl.add(1, 2)  # refused


def of_a_string(x):
    nl.exp("x")  # refused


def of_hbm(x):
    nl.exp(x)  # refused


def power_of_nothing(x):
    nl.power(nl.load(x), None)  # refused


def random_numbers_in_a_piece(x):
    nl.rand((4, 6), nl.float32, nl.sbuf.ptr(size=(4, 64), offset=(0, 1024)))  # refused


def power_of_a_number(x):
    nl.power(nl.load(x), 2.0)  # refused


def seed_of_a_number(x):
    nl.random_seed(3)  # refused


def stored_from_psum(x):
    nl.store(x, nl.transpose(nl.load(x)))  # refused


def loaded_on_chip(x):
    nl.load(nl.load(x))  # refused


def reduced_in_the_middle(x):
    nl.sum(nl.load(x).reshape((4, 2, 3)), axis=1)  # refused


@pytest.mark.parametrize("columns", [(0,), (1,)])
def test_a_column_is_an_operand_of_tensor_scalar_in_0_5_alone(columns):
    """Two public kernels of NKI 0.5 repeat a [P, 1] tile, one on trn2; notes of 0.3 and 0.4 forbid it."""

    def difference(x, y):
        tiles = [nl.load(x), nl.load(y)]
        out = nl.ndarray((8, 6), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.subtract(*tiles))
        return out

    x, y = (array[:, :1].copy() if place in columns else array for place, array in enumerate((X, Y)))
    np.testing.assert_array_equal(tables("nki", "0.5")["nki"]["jit"](difference)(x, y), x - y)
    for version in ("0.4", "0.6", ""):
        with pytest.raises(RuleError, match=r"nl.subtract takes tiles of one shape"):
            tables("nki", version)["nki"]["jit"](difference)(x, y)


def keyword_misspelt(x):
    nl.exp(nl.load(x), dtyp=nl.float32)  # refused


def tall_load(x):
    nl.load(nl.ndarray((200, 2), nl.float32, buffer=nl.hbm))  # refused


REFUSED = [
    (shapes_that_differ, RuleError, "add: x is [4, 6] and y is [4, 1]; nl.add takes tiles of one shape\n"
     "  hint: repeat the smaller one with nl.broadcast_to, or use nisa.tensor_scalar for a column [P, 1]\n"
     "  source: NKI 0.4 release notes, NKI Language (experimental)"),
    (two_numbers, UseError, "add: both arguments are numbers; one must be a tile"),
    (of_a_string, UseError, "exp: x is of type str; it must be a tile"),
    (of_hbm, RuleError, "exp: x is in hbm; it must be in sbuf or psum\n"
     "  hint: load it to sbuf first, with nl.load\n  key: err_unsupported_memory"),
    (power_of_nothing, UseError, "power: y is of type NoneType; it must be a tile"),
    (random_numbers_in_a_piece, RuleError, "rand: buffer is a piece of memory; nl.rand makes a tile in "
     "nl.sbuf or nl.psum\n  hint: copy the tile to one of nl.ndarray(buffer=...)"),
    (power_of_a_number, RuleError, "power: an argument is a number; nl.power takes two tiles\n"
     "  hint: use nisa.tensor_scalar(op0=nl.power) for a number\n"
     "  source: NKI 0.4 release notes, NKI Language (experimental)"),
    (seed_of_a_number, RuleError, "random_seed: seed is of type int; it must be a tile [1, 1]\n"
     "  hint: write nl.random_seed(nl.full((1, 1), 42, dtype=nl.int32))\n"
     "  source: NKI 0.4 release notes, NKI Language (experimental)"),
    (stored_from_psum, RuleError, "store: value is in psum, which no transfer reads; nl.store takes it in "
     "sbuf\n  hint: copy it to sbuf first, with nl.copy\n  key: err_unsupported_memory"),
    (loaded_on_chip, RuleError, "load: src is in sbuf; nl.load takes it in hbm\n"
     "  hint: use nl.copy or nisa.tensor_copy within the chip\n  key: err_unsupported_memory"),
    (reduced_in_the_middle, RuleError, "tensor_reduce: axis does not name the last axes, side by side\n"
     "  dst = float32[4, 3] in sbuf\n  data = float32[4, 2, 3] in sbuf\n"
     "  hint: reorder the axes of the view so that those to reduce stand last\n"
     "  source: nki.isa.tensor_reduce"),
    (tall_load, LimitError, "load: the first axis of src has 200 elements, which become partitions; trn2 has "
     "128\n  hint: load tiles of 128 rows\n  key: err_num_partition_exceed_arch_limit"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "kind", "text"), REFUSED, ids=[r[0].__name__ for r in REFUSED])
def test_a_call_that_does_not_fit_is_refused(body, kind, text):
    assert refusal(nki.jit(body), ramp(4, 6), kind=kind) == f"HERE: {text}"


def test_a_keyword_that_is_none_tells_the_nearest():
    text = refusal(nki.jit(keyword_misspelt), ramp(4, 6), kind=SpellingError, also=TypeError)
    assert text == "HERE: exp: there is no keyword dtyp; it takes x, dtype\n  hint: did you mean dtype?"
