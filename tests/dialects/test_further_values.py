"""Values of names that few kernels use, against NumPy, ml_dtypes and the manuals."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.dialects.spellings import nisa1, nisa2, nl1, nl2
from tests.dialects.test_public_values import X, in_beta1, in_nki


def test_descriptor_generation_of_beta_1_has_the_numbers_of_its_stubs():
    # hand: NKI API of Beta 1; later versions number from the other end
    members = (nisa1.dge_mode.none, nisa1.dge_mode.swdge, nisa1.dge_mode.hwdge, nisa1.dge_mode.unknown)
    np.testing.assert_array_equal([int(member) for member in members], [0, 1, 2, 3])
    x = np.array([[1.0, 2.0]], np.float32)

    def body(tile):
        copied = nl1.ndarray(tile.shape, tile.dtype, buffer=nl1.sbuf)
        nisa1.dma_copy(dst=copied, src=tile, dge_mode=nisa1.dge_mode.none)
        return copied

    np.testing.assert_array_equal(in_beta1(body, x), x)
    later = (nisa2.dge_mode.unknown, nisa2.dge_mode.swdge, nisa2.dge_mode.hwdge, nisa2.dge_mode.none)
    np.testing.assert_array_equal([member.value for member in later], [0, 1, 2, 3])


def test_beta_1_knows_its_generation():
    seen = []

    def body(x):
        seen.append(nisa1.get_nc_version())
        return nl1.copy(x)

    np.testing.assert_array_equal(in_beta1(body, X), X)
    # hand: trn2 is the third generation
    assert seen == [nisa1.nc_version.gen3]


def test_limits_of_float32_are_those_of_numpy():
    limits = np.finfo(np.float32)
    np.testing.assert_array_equal([nisa1.fp32.min, nl1.fp32.max], [limits.min, limits.max])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int32"])
def test_a_static_cast_rounds_on_the_host(dtype):
    x = np.array([1.0, 2.75, -3.5, 1 + 2**-9], np.float32)
    result = nl1.static_cast(x, getattr(nl1, dtype))
    expected = x.astype(getattr(ml_dtypes, dtype, dtype))
    np.testing.assert_array_equal(np.asarray(result, np.float32), expected.astype(np.float32))


def test_the_derivative_of_the_sigmoid_gelu_is_its_formula():
    # d/dx x s(1.702 x) = s + 1.702 x s (1 - s)
    share = 1 / (1 + np.exp(-1.702 * X.astype(np.float64)))
    result = in_nki(lambda d, x: nisa2.activation(d, nl2.gelu_apprx_sigmoid_dx, x), X)
    np.testing.assert_allclose(result, share + 1.702 * X * share * (1 - share), rtol=2e-6, atol=2e-6)


def test_ocp_float8_keeps_its_largest_number(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    # hand: OCP 8-bit floating point: e4m3fn ends at 448
    x = np.array([[448.0, -448.0, 1.0625, 0.0]], np.float32)
    result = in_nki(lambda d, t: nisa2.tensor_copy(d, t), x, dtype=nl2.float8_e4m3fn)
    np.testing.assert_array_equal(np.asarray(result, np.float32), [[448.0, -448.0, 1.0, 0.0]])


@pytest.mark.parametrize("side", ["src", "dst"])
def test_the_copies_of_0_1_with_a_dynamic_side_copy(side):
    copy = {"src": nisa2.tensor_copy_dynamic_src, "dst": nisa2.tensor_copy_dynamic_dst}[side]
    np.testing.assert_array_equal(in_nki(lambda d, x: copy(d, x), X), X)


def test_a_shared_constant_of_beta_1_is_the_array():
    constant = np.arange(8, dtype=np.float32).reshape(2, 4)
    result = in_beta1(lambda x: nl1.add(nl1.load(nl1.shared_constant(constant)), x), X)
    np.testing.assert_array_equal(result, X + constant)
