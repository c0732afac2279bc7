"""Kernels on JAX arrays."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dialects.spellings import nki1, nl1

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.jax


@nki1.jit
def doubled(x):
    out = nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm)
    nl1.store(out, nl1.load(x) * 2)
    return out


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "int32", "float8_e5m2"])
def test_a_jax_array_goes_in_and_comes_out_in_its_own_type(name):
    x = jax.numpy.arange(24).reshape(4, 6).astype(name)
    out = doubled[1](x)
    assert isinstance(out, jax.Array)
    assert out.dtype == x.dtype
    expected = (np.asarray(x).astype(np.float32) * 2).astype(x.dtype)
    np.testing.assert_array_equal(np.asarray(out).astype(np.float32), expected.astype(np.float32))


def test_a_transposed_jax_array_is_read_by_value():
    x = jax.numpy.arange(24.0, dtype="float32").reshape(4, 6).T
    np.testing.assert_array_equal(np.asarray(doubled(x)), np.asarray(x) * 2)
