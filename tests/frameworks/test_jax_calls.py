"""Kernels inside functions that JAX traces; JAX's own operators and float64 say what is right."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import nkilab
from nkilab.errors import UsageError, UseError
from tests.frameworks.kernels import (
    appended,
    copied,
    product,
    product_backward,
    row_block,
    scaled,
    sines,
    sum_and_difference,
)

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.jax
jnp = jax.numpy
TYPES = ["float32", "float16", "bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e4m3", "int32", "uint8"]


def random(*shape, dtype="float32"):
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)).astype(
        dtype
    )


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("how", ["as it is", "jit"])
def test_every_bit_of_an_array_goes_through(name, how):
    x = np.arange(256, dtype=np.uint8).reshape(4, 64).view(jnp.dtype(name))
    wrapped = nkilab.jax.wrap(copied)
    out = (jax.jit(wrapped) if how == "jit" else wrapped)(jnp.asarray(x))
    assert isinstance(out, jax.Array)
    assert (out.dtype, out.shape) == (x.dtype, x.shape)
    np.testing.assert_array_equal(np.asarray(out).view(np.uint8), x.view(np.uint8))


def test_a_constant_a_grid_and_a_structure_of_results_are_those_of_the_kernel():
    x, y = random(4, 6), random(4, 6)[::-1]
    np.testing.assert_array_equal(nkilab.jax.wrap(scaled)(x, times=3.0), x * 3)
    for wrapped in (
        nkilab.jax.wrap(row_block)[2], nkilab.jax.wrap(row_block[2]), nkilab.jax.wrap(row_block, grid=(2,))
    ):  # fmt: skip
        np.testing.assert_array_equal(jax.jit(wrapped)(x), x * 2)
    out = jax.jit(nkilab.jax.wrap(sum_and_difference))([x, y])
    np.testing.assert_array_equal(out["sum"], x + y)
    np.testing.assert_array_equal(out["difference"], x - y)
    assert out["count"] == 2


def test_vmap_calls_the_kernel_once_per_element_of_the_batch():
    shapes = []

    def seen(x, y):
        # a function of Python under vmap sees what the kernel is given
        shapes.append((x.shape, y.shape))
        return nkilab.jax.wrap(product)(x, y)

    x, y = random(3, 4, 6), random(4, 6)
    out = jax.vmap(seen, in_axes=(0, None))(x, y)
    np.testing.assert_array_equal(out, x * y)
    assert shapes == [((4, 6), (4, 6))]
    np.testing.assert_array_equal(jax.jit(jax.vmap(jax.vmap(seen)))(x[None], x[None]), x[None] * x[None])


def test_a_kernel_that_takes_the_batch_as_leading_axis_is_called_once():
    # copied is told of three axes by nobody: a transfer moves whatever shape it is given
    wrapped = nkilab.jax.wrap(copied, vmap_method="broadcast_all")
    x = random(3, 4, 6)
    np.testing.assert_array_equal(jax.vmap(wrapped)(x), x)


@pytest.mark.parametrize("how", ["as it is", "jit"])
def test_a_backward_kernel_gives_the_gradients_of_float64(how):
    wrapped = nkilab.jax.wrap(product, backward=product_backward)

    def loss(x, y):
        return (wrapped(jnp.sin(x), y) ** 2).sum()

    x, y = random(4, 6), random(4, 6)[::-1]
    gradient = jax.grad(loss, argnums=(0, 1))
    dx, dy = (jax.jit(gradient) if how == "jit" else gradient)(x, y)
    x64, y64 = np.asarray(x, np.float64), np.asarray(y, np.float64)
    # d/dx (sin(x) y)^2 = 2 sin(x) cos(x) y^2; three float32 products round by 2^-24 each
    np.testing.assert_allclose(dx, 2 * np.sin(x64) * np.cos(x64) * y64**2, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(dy, 2 * np.sin(x64) ** 2 * y64, rtol=1e-6, atol=1e-6)


def test_a_backward_function_is_given_constants_results_and_zeros():
    times = nkilab.jax.wrap(
        scaled, backward=lambda x, y, dy, times: dy * times + 0 * y, saves=("inputs", "results")
    )
    wave = nkilab.jax.wrap(sines, backward=lambda x, ds, dc: ds * jnp.cos(x) - dc * jnp.sin(x))
    x = random(4, 6)
    gradients = jax.grad(lambda x: times(wave(x)[1], times=3.0).sum())(x)
    np.testing.assert_allclose(gradients, -3 * np.sin(np.asarray(x, np.float64)), rtol=1e-5, atol=1e-6)


def test_gradients_under_vmap_are_those_of_each_element():
    wrapped = nkilab.jax.wrap(product, backward=product_backward)
    x, y = random(3, 4, 6), random(3, 4, 6)
    dx = jax.vmap(jax.grad(lambda x, y: (wrapped(x, y) * y).sum()))(x, y)
    np.testing.assert_allclose(dx, np.asarray(y, np.float64) ** 2, rtol=1e-6)


def test_integers_have_no_gradient():
    wrapped = nkilab.jax.wrap(product, backward=lambda x, mask, dz: dz * mask)
    mask = jnp.asarray([[1, 0, 2], [0, 1, 3]], jnp.int32)
    np.testing.assert_array_equal(jax.grad(lambda x: wrapped(x, mask).sum())(random(2, 3)), mask)


def test_a_kernel_that_is_not_wrapped_is_called_under_jit_with_a_rule_of_its_callers():
    # as the vendor's guide has it: a plain call inside jax.jit, gradients by the caller's custom_vjp
    with nkilab.activate():
        import neuronxcc.nki as nki
        import neuronxcc.nki.language as nl

        @nki.jit
        def add(a, b):
            out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
            nl.store(out, nl.load(a) + nl.load(b))
            return out

    @jax.custom_vjp
    def nki_add(a, b):
        return add(a, b)

    nki_add.defvjp(lambda a, b: (nki_add(a, b), None), lambda kept, g: (g, g))

    @jax.jit
    def both(a, b):
        gradients = jax.grad(lambda x, y: (nki_add(x, y) * x * y).sum(), argnums=(0, 1))(a, b)
        return nki_add(a, b) * a * b, *gradients

    a, b = random(8, 6), random(8, 6)[::-1]
    out, da, db = both(a, b)
    np.testing.assert_allclose(out, (a + b) * a * b, rtol=1e-6)
    # d/da (a + b) a b = 2 a b + b^2
    np.testing.assert_allclose(da, 2 * a * b + b * b, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(db, 2 * a * b + a * a, rtol=1e-5, atol=1e-6)


SHARDED = """
    import jax, numpy as np
    from functools import partial
    from jax.sharding import Mesh, PartitionSpec as P
    import nkilab
    from tests.frameworks.kernels import product, product_backward, scaled

    assert len(jax.devices()) == 4
    wrapped = nkilab.jax.wrap(product, backward=product_backward)
    mesh = Mesh(np.array(jax.devices()), ("i",))

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=(P("i"), P("i")), out_specs=(P("i"), P()))
    def rows(x, y):
        assert x.shape == (4, 6), x.shape
        z = wrapped(x, y)
        return z, jax.lax.psum(z.sum(), "i")

    x, y = (np.random.default_rng(s).standard_normal((16, 6)).astype(np.float32) for s in (0, 1))
    z, total = rows(x, y)
    assert len(z.sharding.device_set) == 4
    np.testing.assert_array_equal(z, x * y)
    np.testing.assert_allclose(total, (x * y).sum(dtype=np.float64), rtol=1e-5)
    dx = jax.jit(jax.grad(lambda x, y: rows(x, y)[0].sum()))(x, y)
    np.testing.assert_array_equal(dx, y)

    # a weight that all devices share: its gradient is the sum of theirs
    shared = jax.shard_map(wrapped, mesh=mesh, in_specs=(P("i"), P()), out_specs=P("i"))
    dx, dw = jax.jit(jax.grad(lambda x, w: shared(x, w).sum(), argnums=(0, 1)))(x, y[:4])
    np.testing.assert_array_equal(dx, np.tile(y[:4], (4, 1)))
    np.testing.assert_allclose(dw, x.reshape(4, 4, 6).sum(0, dtype=np.float64), rtol=1e-5)
    print("same")
"""


def test_each_device_of_a_shard_map_runs_the_kernel_on_its_own_rows():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SHARDED)], capture_output=True, text=True, check=False,
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "same\n"), done.stderr


def test_the_chip_that_was_chosen_holds_in_threads_of_jax():
    # 160 partitions are too many on every chip; which chip is named shows what was in force
    wrapped = nkilab.jax.wrap(copied)
    with nkilab.activate(target="trn1"), pytest.raises(Exception, match="trn1"):
        jax.jit(wrapped)(random(160, 6))


def test_a_gradient_without_backward_is_refused():
    wrapped = nkilab.jax.wrap(scaled)
    with pytest.raises(UsageError) as caught:
        jax.grad(lambda x: wrapped(x).sum())(random(2, 3))
    assert str(caught.value) == (
        "scaled has no backward\n  hint: pass one: nkilab.jax.wrap(kernel, backward=kernel_or_function)"
    )


def message_of(caught):
    """A message without its place, which is a line of this file."""
    place, _, rest = str(caught.value).partition(": ")
    assert place.partition(":")[0] == "test_jax_calls.py"
    return rest


def test_a_gradient_through_a_kernel_that_is_not_wrapped_is_refused():
    with pytest.raises(UsageError) as caught:
        jax.grad(lambda x: scaled(x).sum())(random(2, 3))
    assert message_of(caught) == (
        "scaled: no gradient flows through a kernel that is called as it is\n"
        "  hint: make it nkilab.jax.wrap(kernel, backward=kernel_or_function), "
        "or write a jax.custom_vjp around it"
    )


def test_gradients_of_gradients_go_through_the_rule_again():
    wrapped = nkilab.jax.wrap(product, backward=lambda x, y, dz: (wrapped(dz, y), wrapped(dz, x)))
    x, y = random(2, 3), random(2, 3) + 1
    twice = jax.grad(lambda x: jax.grad(lambda x: (wrapped(wrapped(x, x), y)).sum())(x).sum())(x)
    np.testing.assert_allclose(twice, 2 * y, rtol=1e-6)


def test_a_number_that_jax_traces_and_a_type_without_tiles_are_refused_at_the_line_of_the_call():
    wrapped = nkilab.jax.wrap(scaled)
    with pytest.raises(UseError) as caught:
        jax.jit(lambda x, times: wrapped(x, times=times))(random(2, 3), 2.0)
    assert message_of(caught) == (
        "scaled: argument times has shape []; a tensor has at least one element and axis\n"
        "  hint: kernels take numbers as constants: let jax.jit have it in static_argnums"
    )
    with pytest.raises(UseError, match=r"^test_jax_calls\.py:\d+: scaled: argument x: dtype is int4; "):
        wrapped(random(2, 3).astype("int4"))


def test_a_copied_model_shares_its_functions():
    wrapped = nkilab.jax.wrap(scaled)
    assert copy.deepcopy({"layers": [wrapped]}) == {"layers": [wrapped]}
    assert copy.copy(wrapped) is wrapped


def test_a_written_argument_is_refused_where_the_kernel_does_not_return_it():
    with pytest.raises(UseError) as caught:
        nkilab.jax.wrap(appended)(random(4, 6), random(1, 6))
    assert str(caught.value).partition(": ")[2] == (
        "appended: the kernel writes its argument cache; JAX arrays never change\n"
        "  hint: return cache beside the other results"
    )


def test_arguments_of_wrap_that_make_no_sense_are_refused():
    with pytest.raises(UsageError) as caught:
        nkilab.jax.wrap(product, vmap_method="parallel")
    assert str(caught.value) == (
        "vmap_method is 'parallel'; it must be one of sequential, expand_dims, broadcast_all"
    )
    with pytest.raises(UseError) as refused:
        nkilab.jax.wrap(scaled)(nkilab.spec((2, 3), "f32"))
    assert str(refused.value).startswith("test_jax_calls.py:")
    assert str(refused.value).partition(": ")[2] == (
        "scaled: argument x is ArraySpec; it takes arrays of JAX or NumPy\n"
        "  hint: pass jax.numpy.asarray(...) of it"
    )
