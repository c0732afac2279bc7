"""Arrays of other frameworks: what has `__array__`, `__dlpack__` or a namespace of the array API standard."""

from __future__ import annotations

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import nkilab
from nkilab.errors import UseError
from tests.frameworks.kernels import appended, copied, scaled


class TensorShape:
    """As TensorFlow's: it is iterated and indexed, and is no tuple."""

    def __init__(self, shape):
        self._shape = shape

    def __iter__(self):
        return iter(self._shape)

    def __len__(self):
        return len(self._shape)


class EagerTensor:
    """As TensorFlow's: its type prints as <dtype: 'float32'>, its elements come by `__array__`."""

    def __init__(self, array):
        self._array = array
        self.shape = TensorShape(array.shape)
        self.dtype = SimpleNamespace(name=array.dtype.name)

    def __array__(self, dtype=None, copy=None):
        return self._array.astype(dtype) if dtype is not None else self._array


class Frame:
    """As a table that only converts itself: no shape and no type before that."""

    def __init__(self, array):
        self._array = array

    def __array__(self, dtype=None, copy=None):
        return self._array


def test_what_only_converts_itself_is_an_array():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = scaled(Frame(x))
    assert type(out) is np.ndarray
    np.testing.assert_array_equal(out, 2 * x)
    assert nkilab.estimate(scaled, Frame(x)).latency_us > 0


class Exchanged:
    """Nothing but DLPack, on a device of a kind and with elements of NumPy's."""

    def __init__(self, array, device=(1, 0)):
        self._array, self._device = array, device

    def __dlpack_device__(self):
        return self._device

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)


class Standard(Exchanged):
    """An array of the array API standard, whose namespace makes arrays of its own kind."""

    def __array_namespace__(self, api_version=None):
        return SimpleNamespace(from_dlpack=lambda other: Standard(np.from_dlpack(other)))


X = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_a_tensor_of_tensorflow_goes_in_and_an_array_of_numpy_comes_out(dtype):
    converted = X.astype(dtype)
    out = copied(EagerTensor(converted))
    assert (type(out), out.dtype) == (np.ndarray, converted.dtype)
    np.testing.assert_array_equal(out.view(np.uint8), converted.view(np.uint8))


def test_an_array_with_dlpack_alone_goes_in_and_an_array_of_numpy_comes_out():
    out = scaled(Exchanged(X))
    assert type(out) is np.ndarray
    np.testing.assert_array_equal(out, X * 2)


def test_an_array_of_the_standard_comes_out_as_its_namespace_makes_it():
    out = scaled(Standard(X))
    assert type(out) is Standard
    np.testing.assert_array_equal(np.from_dlpack(out), X * 2)


def test_a_type_that_is_none_of_the_standards_comes_out_as_numpy():
    class Narrow(Standard):
        def __array__(self, dtype=None, copy=None):
            return self._array

        shape = (4, 6)

    out = copied(Narrow(X.astype(ml_dtypes.bfloat16)))
    assert (type(out), out.dtype) == (np.ndarray, ml_dtypes.bfloat16)


def test_shapes_and_types_of_other_arrays_are_those_of_a_spec():
    wanted = nkilab.estimate(scaled, nkilab.spec((4, 6), "float32")).latency_us
    for array in (EagerTensor(X), Exchanged(X), Standard(X)):
        assert nkilab.estimate(scaled, array).latency_us == wanted


def test_an_array_on_another_device_is_refused_by_name():
    class OnDevice(Exchanged):
        def __dlpack__(self, **options):
            raise BufferError("the array lies on device kDLCUDA")

    with pytest.raises(UseError) as caught:
        scaled(OnDevice(X, device=(2, 0)))
    assert "argument x is OnDevice, which NumPy cannot read: " in str(caught.value)
    assert str(caught.value).endswith("\n  hint: move it to the CPU, or convert it to NumPy, before the call")


def test_an_array_that_shares_its_memory_is_written_where_the_kernel_writes_it():
    cache = np.zeros((4, 6), np.float32)
    appended(EagerTensor(cache), np.ones((1, 6), np.float32), at=2)
    np.testing.assert_array_equal(cache[:, 0], [0, 0, 1, 0])


@pytest.mark.torch
def test_torch_wins_a_mixture():
    torch = pytest.importorskip("torch")
    from tests.frameworks.kernels import product

    out = product(Standard(X), torch.from_numpy(X))
    assert torch.equal(out, torch.from_numpy(X * X))
