"""The Python interface: simulate, estimate, spec."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nkilab
from nkilab.arrays import ArraySpec
from nkilab.errors import LimitError, UsageError, UseError
from tests.dialects.spellings import nki1 as nki
from tests.dialects.spellings import nl1 as nl
from tests.dialects.spellings import ramp


@nki.jit
def doubled(x, *, times=1):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for _ in nl.affine_range(times):
        tile *= 2.0
    nl.store(out, tile)
    return out


@nki.jit
def copied(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out


@nki.jit(platform_target="trn3")
def on_trn3(x):
    return doubled(x)


def test_simulate_returns_arrays_of_the_kind_given():
    x = ramp(4, 3)
    np.testing.assert_array_equal(nkilab.simulate(doubled)(x, times=2), 4 * x)
    np.testing.assert_array_equal(nkilab.simulate(doubled[2])(x), 2 * x)


@pytest.mark.parametrize("wrong", [len, lambda x: x, 3, None, "kernel"], ids=type)
def test_what_is_no_kernel_is_refused_by_name(wrong):
    name = getattr(wrong, "__name__", wrong)
    for call in (nkilab.simulate, nkilab.estimate):
        with pytest.raises(UsageError) as caught:
            call(wrong)
        assert str(caught.value) == f"{name} is no NKI kernel; decorate it with nki.jit of either spelling"


def test_estimate_takes_arrays_and_specs_alike():
    x = ramp(64, 256)
    first = nkilab.estimate(doubled, x, times=3)
    second = nkilab.estimate(doubled, nkilab.spec((64, 256), np.float32), times=3)
    assert first.latency_us == second.latency_us > 0
    assert first.program.opcodes() == {"dma_copy": 2, "tensor_scalar": 3}


def test_estimate_knows_how_sure_it_is_and_where_it_stands():
    estimated = nkilab.estimate(doubled, nkilab.spec((64, 256), "bf16"))
    low, high = estimated.interval_us
    assert low < estimated.latency_us < high
    assert 0 < estimated.window_us <= estimated.latency_us < estimated.profile_us
    assert (estimated.kernel_name, estimated.target) == ("doubled", "trn2")
    assert repr(estimated) == "Estimate(kernel_name='doubled', target='trn2')"


def test_a_longer_kernel_takes_longer():
    spec = nkilab.spec((128, 512), "float32")
    times = [nkilab.estimate(doubled, spec, times=n).latency_us for n in (1, 10, 100)]
    assert times == sorted(times)
    assert times[2] > times[1] > times[0]


def test_the_target_is_the_argument_then_the_kernel_then_the_environment(monkeypatch):
    spec = nkilab.spec((4, 4), "float32")
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "inf2")
    assert nkilab.estimate(doubled, spec).target == "trn1"
    assert nkilab.estimate(on_trn3, spec).target == "trn3"
    assert nkilab.estimate(on_trn3, spec, target="gen3").target == "trn2"
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE")
    assert nkilab.estimate(doubled, spec).target == "trn2"


def test_estimate_raises_what_the_kernel_asks_for_as_a_call_would():
    with pytest.raises(LimitError) as caught:
        nkilab.estimate(doubled, nkilab.spec((129, 4), "float32"))
    assert isinstance(caught.value, ValueError)
    assert "number of partition in src[129, 4] of 'load' exceed architecture limitation of 128." in str(
        caught.value
    )


@pytest.mark.parametrize(
    ("shape", "problem"),
    [
        ((), "a spec has shape []; extents are at least 1"), ((0, 3), "a spec has shape [0, 3]; extents "
         "are at least 1"),
        ((-2,), "a spec has shape [-2]; extents are at least 1"),
        ((2.5,), "a spec has shape (2.5,); it must be whole numbers"),
        ("ab", "a spec has shape ('a', 'b'); it must be whole numbers"),
        (3.5, "a spec has shape 3.5; it must be whole numbers"),
    ],
    ids=repr,
)  # fmt: skip
def test_a_spec_of_no_shape_is_refused(shape, problem):
    with pytest.raises(UsageError) as caught:
        nkilab.spec(shape, "float32")
    assert str(caught.value) == problem


def test_a_spec_of_no_type_is_refused():
    with pytest.raises(UsageError) as caught:
        nkilab.spec((2,), np.complex64)
    assert str(caught.value).startswith("a spec has dtype is complex64; it must be one of ") is False
    assert str(caught.value).startswith("a spec has no type: dtype is complex64; it must be one of float32, ")


def test_a_spec_takes_a_number_for_one_axis_and_any_spelling_of_a_type():
    assert nkilab.spec(5, "f32") == ArraySpec((5,), "f32")
    assert nkilab.spec([2, np.int64(3)], ml_dtypes.bfloat16).shape == (2, 3)
    assert nkilab.spec((2, 3), "bfloat16").ndim == 2


def test_the_package_has_the_names_it_lists_and_no_others():
    assert all(hasattr(nkilab, name) for name in nkilab.__all__)
    with pytest.raises(AttributeError, match=r"^module nkilab has no attribute simulat$"):
        _ = nkilab.simulat


def test_two_kernels_run_one_after_the_other_do_not_see_each_other():
    assert nkilab.estimate(doubled, ramp(4, 4)).program.opcodes() == {"dma_copy": 2, "tensor_scalar": 1}
    doubled(ramp(4, 4))
    assert nkilab.estimate(doubled, ramp(4, 4)).program.opcodes() == {"dma_copy": 2, "tensor_scalar": 1}


def kernel_of_a_generator(x):
    yield x


async def kernel_of_a_coroutine(x):
    return x


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (3, "it decorates functions; got int"),
        (int, "it decorates functions; got type"),
        (kernel_of_a_generator, "kernel_of_a_generator is a generator or coroutine, whose body no call runs"),
        (kernel_of_a_coroutine, "kernel_of_a_coroutine is a generator or coroutine, whose body no call runs"),
    ],
)
def test_what_no_call_runs_is_no_kernel(wrong, problem):
    with pytest.raises(UseError) as caught:
        nki.jit(wrong)
    assert str(caught.value).splitlines()[0].partition(": ")[2] == f"nki.jit: {problem}"
    assert caught.value.where.startswith("test_api.py:")


def test_a_masked_array_is_refused_unless_nothing_is_masked():
    x = ramp(4, 4)
    with pytest.raises(UseError) as caught:
        nkilab.simulate(copied)(np.ma.masked_array(x, x > 9))
    assert caught.value.problem == "argument x is a masked array, of which 6 elements are masked"
    assert caught.value.hint == "pass x.filled(value)"
    np.testing.assert_array_equal(nkilab.simulate(copied)(np.ma.masked_array(x)), x)


class Named(np.ndarray):
    """A subclass of arrays."""


@pytest.mark.parametrize(
    "array",
    [
        ramp(8, 8)[::2, ::2],
        ramp(4, 4)[::-1, ::-1],
        np.asfortranarray(ramp(4, 4)),
        ramp(4, 4).astype(">f4"),
        np.broadcast_to(ramp(4), (4, 4)),
        np.frombuffer(b"\0" + ramp(4, 4).tobytes(), np.uint8)[1:].view(np.float32).reshape(4, 4),
        ramp(4, 4).view(Named),
    ],
    ids=["steps", "backwards", "fortran", "big-endian", "repeated", "unaligned", "subclass"],
)
def test_an_array_is_read_however_it_lies(array):
    np.testing.assert_array_equal(nkilab.simulate(copied)(array), np.array(array.tolist(), np.float32))


@pytest.mark.parametrize("target", [3, ["trn1"], 2.5])
def test_a_target_of_another_kind_is_refused(target):
    with pytest.raises(UsageError) as caught:
        nkilab.estimate(copied, nkilab.spec((4, 4), "float32"), target=target)
    kinds = "the name of a chip or the path of a machine file"
    assert caught.value.problem == f"target is {target!r}; it must be {kinds}"


@pytest.mark.parametrize("replay", [-1, "a", float("nan")])
def test_a_number_of_replays_is_whole(replay):
    with pytest.raises(UsageError) as caught:
        nkilab.check(copied, ramp(4, 4), replay=replay)
    assert caught.value.problem == f"replay is {replay!r}; it must be a whole number from 0 to 10000"


def test_a_spec_without_a_type_says_so():
    with pytest.raises(UsageError, match="a spec has no type: dtype is of type NoneType; it must be one of"):
        nkilab.spec((4, 4), None)


def test_a_version_of_another_kind_is_refused():
    with pytest.raises(UsageError, match="NKI version is 5; it must be one of beta1"), nkilab.activate(nki=5):
        pass
