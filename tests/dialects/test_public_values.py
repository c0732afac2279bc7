"""Values of public names in both spellings, against NumPy, SciPy's formulas written out, and the manuals."""

from __future__ import annotations

from math import erf, pi

import ml_dtypes
import numpy as np
import pytest
from tests.dialects.spellings import nisa1, nisa2, nki1, nki2, nl1, nl2

import nkilab
from nkilab.machine import MACHINES

X = np.array([[-2.5, -0.75, 0.0, 0.25], [0.5, 1.0, 1.5, 3.0]], np.float32)
Y = np.array([[1.0, -0.75, 2.0, 0.5], [0.5, 4.0, -1.5, 2.0]], np.float32)
INTEGERS = np.array([[1, 7, 12, 255], [2, 3, 64, 1023]], np.int32)
SHIFTS = np.array([[0, 1, 2, 3], [4, 5, 1, 2]], np.int32)
TOLERANCE = 2e-6  # float32: the function in float64, rounded once, against the same in another order


def in_beta1(body, *arrays, dtype=None):
    """What a kernel of Beta 1 gives that stores body(one tile per array)."""

    @nki1.jit
    def kernel(*inputs):
        out = nl1.ndarray(inputs[0].shape, dtype or inputs[0].dtype, buffer=nl1.shared_hbm)
        nl1.store(out, body(*(nl1.load(x) for x in inputs)))
        return out

    return kernel(*arrays)


def in_nki(body, *arrays, dtype=None):
    """What a kernel of `nki` gives that calls body(dst, one tile per array)."""

    @nki2.jit
    def kernel(*inputs):
        tiles = []
        for x in inputs:
            tiles.append(nl2.ndarray(x.shape, x.dtype, buffer=nl2.sbuf))
            nisa2.dma_copy(dst=tiles[-1], src=x)
        dst = nl2.ndarray(inputs[0].shape, dtype or inputs[0].dtype, buffer=nl2.sbuf)
        body(dst, *tiles)
        out = nl2.ndarray(dst.shape, dst.dtype, buffer=nl2.shared_hbm)
        nisa2.dma_copy(dst=out, src=dst)
        return out

    return kernel(*arrays)


BINARY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
    "maximum": np.maximum, "minimum": np.minimum,
}  # fmt: skip
COMPARING = {
    "equal": np.equal, "not_equal": np.not_equal, "greater": np.greater, "greater_equal": np.greater_equal,
    "less": np.less, "less_equal": np.less_equal, "logical_and": np.logical_and, "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}  # fmt: skip
BITWISE = {"bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor}
SHIFTING = {"left_shift": np.left_shift, "right_shift": np.right_shift}


@pytest.mark.parametrize("name", BINARY)
def test_a_function_of_two_tiles_is_that_of_numpy(name):
    expected = BINARY[name](X, Y)
    np.testing.assert_array_equal(in_beta1(lambda x, y: getattr(nl1, name)(x, y), X, Y), expected)
    result = in_nki(lambda d, x, y: nisa2.tensor_tensor(d, x, y, getattr(nl2, name)), X, Y)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", COMPARING)
def test_a_comparison_is_one_or_zero(name):
    expected = COMPARING[name](X, Y)
    result = in_beta1(lambda x, y: getattr(nl1, name)(x, y), X, Y, dtype=np.float32)
    np.testing.assert_array_equal(result, expected.astype(np.float32))
    result = in_nki(lambda d, x, y: nisa2.tensor_tensor(d, x, y, getattr(nl2, name)), X, Y)
    np.testing.assert_array_equal(result, expected.astype(np.float32))


@pytest.mark.parametrize("name", [*BITWISE, *SHIFTING])
def test_a_function_of_bits_is_that_of_numpy(name):
    other = SHIFTS if name in SHIFTING else SHIFTS * 37
    expected = {**BITWISE, **SHIFTING}[name](INTEGERS, other)
    np.testing.assert_array_equal(in_beta1(lambda x, y: getattr(nl1, name)(x, y), INTEGERS, other), expected)
    result = in_nki(lambda d, x, y: nisa2.tensor_tensor(d, x, y, getattr(nl2, name)), INTEGERS, other)
    np.testing.assert_array_equal(result, expected)


def test_not_inverts_bits_and_truth():
    np.testing.assert_array_equal(in_beta1(nl1.invert, INTEGERS), ~INTEGERS)
    result = in_beta1(nl1.logical_not, X, dtype=np.float32)
    np.testing.assert_array_equal(result, np.logical_not(X).astype(np.float32))
    result = in_nki(lambda d, x: nisa2.tensor_scalar(d, x, nl2.logical_not, None), X)
    np.testing.assert_array_equal(result, np.logical_not(X).astype(np.float32))


def gaussian(x):
    return np.exp(-x * x / 2) / np.sqrt(2 * pi)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


ERF = np.vectorize(erf)
SHARE = np.vectorize(lambda x: (1 + erf(x / 2**0.5)) / 2)
# hand: the formulas that the manuals name, in float64
ACTIVATION = {
    "exp": np.exp, "square": np.square, "relu": lambda x: np.maximum(x, 0), "tanh": np.tanh,
    "sigmoid": sigmoid, "erf": ERF, "erf_dx": lambda x: 2 / np.sqrt(pi) * np.exp(-x * x),
    "gelu": lambda x: x * SHARE(x), "gelu_dx": lambda x: SHARE(x) + x * gaussian(x),
    "gelu_apprx_tanh": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / pi) * (x + 0.044715 * x**3))),
    "gelu_apprx_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "silu": lambda x: x * sigmoid(x), "silu_dx": lambda x: sigmoid(x) * (1 + x * (1 - sigmoid(x))),
    "softplus": lambda x: np.log1p(np.exp(x)), "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "sign": np.sign, "abs": np.abs, "sin": np.sin,
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATION)
def test_an_activation_is_its_formula(name):
    expected = ACTIVATION[name](X.astype(np.float64))
    np.testing.assert_allclose(in_beta1(getattr(nl1, name), X), expected, rtol=TOLERANCE, atol=TOLERANCE)
    result = in_nki(lambda d, x: nisa2.activation(d, getattr(nl2, name), x), X)
    np.testing.assert_allclose(result, expected, rtol=TOLERANCE, atol=TOLERANCE)


ON_POSITIVE = {
    "log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x,
    "arctan": np.arctan,
}  # fmt: skip


@pytest.mark.parametrize("name", ON_POSITIVE)
def test_an_activation_of_positive_numbers_is_its_formula(name):
    x = np.array([[0.25, 0.5, 1.0, 1.5]], np.float32)
    expected = ON_POSITIVE[name](x.astype(np.float64))
    np.testing.assert_allclose(in_beta1(getattr(nl1, name), x), expected, rtol=TOLERANCE)
    result = in_nki(lambda d, t: nisa2.activation(d, getattr(nl2, name), t), x)
    np.testing.assert_allclose(result, expected, rtol=TOLERANCE)


# hand: NKI API common fields, supported data types: bytes of one element, largest finite number
TYPES = {
    "uint8": (1, 255), "int8": (1, 127), "uint16": (2, 65535), "int16": (2, 32767), "uint32": (4, 4294967295),
    "int32": (4, 2147483647), "float16": (2, 65504.0), "bfloat16": (2, 3.3895314e38),
    "float32": (4, 3.4028235e38), "float8_e4m3": (1, 240.0), "float8_e5m2": (1, 57344.0),
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_a_data_type_holds_its_largest_number(name):
    size, most = TYPES[name]
    assert np.dtype(getattr(nl1, name)).itemsize == size
    written = np.array([[most]], np.float32)
    result = in_nki(lambda d, x: nisa2.tensor_copy(d, x), written, dtype=getattr(nl2, name))
    limits = ml_dtypes.finfo if "float" in name else ml_dtypes.iinfo
    np.testing.assert_array_equal(result.astype(np.float64), float(limits(result.dtype).max))


def test_boolean_tiles_hold_one_byte():
    assert np.dtype(nl1.bool_).itemsize == 1
    result = in_nki(lambda d, x: nisa2.tensor_copy(d, x), X, dtype=nl2.bool_)
    np.testing.assert_array_equal(result, X != 0)


def test_tfloat32_keeps_ten_bits_of_the_mantissa():
    # hand: 1 + 2**-11 lies halfway between 1 and 1 + 2**-10, and rounds to the even one
    x = np.array([[1 + 2**-11, 1 + 2**-10]], np.float32)
    result = in_nki(lambda d, t: nisa2.tensor_copy(d, t), x, dtype=nl2.tfloat32)
    np.testing.assert_array_equal(np.asarray(result, np.float32), [[1.0, 1 + 2**-10]])
    result = in_beta1(lambda t: nl1.copy(t, dtype=nl1.tfloat32), x)
    np.testing.assert_array_equal(result, [[1.0, 1 + 2**-10]])


# hand: nki.language.tile_size, per chip trn1, trn2, trn3
SIZES = {
    "pmax": (128, 128, 128), "psum_fmax": (512, 512, 512), "gemm_stationary_fmax": (128, 128, 128),
    "gemm_moving_fmax": (512, 512, 512), "bn_stats_fmax": (512, 512, 512), "psum_min_align": (4, 4, 4),
    "sbuf_min_align": (1, 1, 1), "total_available_sbuf_size": (180224, 212984, 245752),
}  # fmt: skip
LATER_SIZES = {
    "psum_bank_fmax": (512, 512, 512), "psum_bank_fmax_bytes": (2048, 2048, 2048),
    "psum_num_banks": (8, 8, 8), "sbuf_fmax_bytes": (180224, 212984, 245752),
    "sbuf_fmax": (45056, 53246, 61438),
}  # fmt: skip


@pytest.mark.parametrize("place", range(len(MACHINES)), ids=list(MACHINES))
def test_tile_sizes_are_those_of_the_manual(place):
    target = list(MACHINES)[place]

    @nki1.jit
    def old(x):
        tile_sizes.append({name: getattr(nl1.tile_size, name) for name in SIZES})
        out = nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm)
        nl1.store(out, nl1.load(x))
        return out

    @nki2.jit
    def new(x):
        tile_sizes.append({name: getattr(nl2.tile_size, name) for name in {**SIZES, **LATER_SIZES}})
        out = nl2.ndarray(x.shape, x.dtype, buffer=nl2.shared_hbm)
        nisa2.dma_copy(dst=out, src=x)
        return out

    tile_sizes: list[dict[str, int]] = []
    nkilab.estimate(old, nkilab.spec((2, 4), "float32"), target=target)
    nkilab.estimate(new, nkilab.spec((2, 4), "float32"), target=target)
    assert tile_sizes[0] == {name: sizes[place] for name, sizes in SIZES.items()}
    assert tile_sizes[1] == {name: sizes[place] for name, sizes in {**SIZES, **LATER_SIZES}.items()}


# hand: enumerations of nki.isa, stubs of NKI 0.6
MEMBERS = {
    "engine": {"unknown": 0, "tensor": 1, "scalar": 2, "gpsimd": 3, "dma": 4, "vector": 5, "sync": 6},
    "reduce_cmd": {"idle": 0, "reset": 1, "reduce": 2, "reset_reduce": 3, "load_reduce": 4},
    "dge_mode": {"unknown": 0, "swdge": 1, "hwdge": 2, "none": 3},
    "oob_mode": {"error": 0, "skip": 1},
    "nc_version": {"gen2": 2, "gen3": 3, "gen4": 4},
}


def numbers(enumeration):
    return {member.name: int(member) for member in enumeration}


def test_enumerations_are_numbered_as_in_the_stubs():
    assert numbers(nisa2.engine) == MEMBERS["engine"]
    assert numbers(nisa2.reduce_cmd) == MEMBERS["reduce_cmd"]
    assert numbers(nisa2.dge_mode) == MEMBERS["dge_mode"]
    assert numbers(nisa2.oob_mode) == MEMBERS["oob_mode"]
    assert numbers(nisa2.nc_version) == MEMBERS["nc_version"]
    assert numbers(nisa1.engine) == MEMBERS["engine"]
    assert (nisa1.nc_version.gen2, nisa1.nc_version.gen3) == (2, 3)
    assert numbers(nisa1.reduce_cmd) == MEMBERS["reduce_cmd"]
    assert numbers(nisa1.oob_mode) == MEMBERS["oob_mode"]


def test_engines_have_names_in_the_module_too():
    assert (nisa1.tensor_engine, nisa1.scalar_engine) == (1, 2)
    assert (nisa1.gpsimd_engine, nisa1.vector_engine, nisa1.unknown_engine) == (3, 5, 0)
    assert (nisa2.tensor_engine, nisa2.scalar_engine) == (1, 2)
    assert (nisa2.gpsimd_engine, nisa2.vector_engine, nisa2.unknown_engine) == (3, 5, 0)


# hand: the functions of NumPy in float64
ROUNDING = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "tan": np.tan, "cos": np.cos}


@pytest.mark.parametrize("name", ROUNDING)
def test_a_function_of_one_tile_is_that_of_numpy(name):
    x = X / 2
    expected = ROUNDING[name](x.astype(np.float64))
    np.testing.assert_allclose(in_beta1(getattr(nl1, name), x), expected, rtol=TOLERANCE, atol=TOLERANCE)

    @nki2.jit
    def kernel(a):
        out = nl2.ndarray(a.shape, a.dtype, buffer=nl2.shared_hbm)
        nl2.store(out, getattr(nl2, name)(nl2.load(a)))
        return out

    np.testing.assert_allclose(kernel(x), expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_buffers_are_told_by_the_tensors_in_them():
    names = []

    @nki1.jit
    def kernel(x):
        for buffer in (nl1.hbm, nl1.private_hbm, nl1.shared_hbm, nl1.sbuf, nl1.psum):
            names.append(str(nl1.ndarray((2, 4), nl1.float32, buffer=buffer).buffer))
        out = nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm)
        nl1.store(out, nl1.load(x))
        return out

    np.testing.assert_array_equal(kernel(X), X)
    assert [word.rpartition(".")[2] for word in names] == ["hbm", "hbm", "hbm", "sbuf", "psum"]
