"""The names of `neuron_dtypes`: casts, packed types, limits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from nkilab.frameworks import neuron_dtypes as dt

X = np.array([[0.1, -2.5, 6.0, 0.0], [1.0, 0.5, -0.5, 3.0]], np.float32)


def test_a_cast_rounds_to_the_named_type():
    cast = dt.static_cast(X, "bfloat16")
    assert cast.dtype == ml_dtypes.bfloat16
    # 0.1 in bfloat16, by hand: 0x3dcd is 0.10009765625
    assert float(cast[0, 0]) == 0.10009765625


@pytest.mark.parametrize("dtype", [np.float16, "float16", np.dtype(np.float16)])
def test_a_type_may_be_a_name_or_numpys(dtype):
    assert dt.static_cast(X, dtype).dtype == np.float16


def test_a_number_becomes_a_scalar_of_numpy():
    cast = dt.static_cast(0.5, np.float32)
    assert isinstance(cast, np.float32)
    assert cast == 0.5


def test_four_numbers_make_one_word_the_first_lowest():
    words = dt.static_cast(X, "float4_e2m1fn_x4")
    assert words.shape == (2, 1)
    # e2m1: sign, two bits of exponent (bias 1), one of mantissa: 1.0, 0.5, -0.5, 3.0 from the lowest bits up
    assert words.view(np.uint16)[1, 0] == 0b0101_1001_0001_0010
    np.testing.assert_array_equal(dt.static_cast(words, np.float32)[1], [1.0, 0.5, -0.5, 3.0])


def test_words_of_float8_hold_the_bytes_of_the_elements():
    words = dt.static_cast(X, dt.NAMES["float8_e4m3fn_x4"])
    np.testing.assert_array_equal(words.view(np.uint8), X.astype(ml_dtypes.float8_e4m3fn).view(np.uint8))
    np.testing.assert_array_equal(
        dt.static_cast(words, np.float32), X.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    )


def test_sizes_limits_and_kinds():
    assert [dt.sizeinbytes(d) for d in ("float8_e5m2", "bfloat16", np.float32, "float8_e5m2_x4")] == [
        1,
        2,
        4,
        4,
    ]
    assert float(dt.finfo("float8_e4m3").max) == 240
    assert [dt.is_float_type(d) for d in ("bfloat16", np.float64, np.int32, "uint8")] == [
        True,
        True,
        False,
        False,
    ]
