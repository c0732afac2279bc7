"""Kernels inside functions that JAX traces: jit, vmap, grad, shard_map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
from msgspec.structs import asdict

from .. import api
from .._lazy import jax
from ..arrays import framework_of, to_numpy, without_packing
from ..dialects.kernel import Kernel
from ..errors import UsageError, UseError
from ..tiles.dtypes import as_dtype
from ..trace.source import place_of, user_frame
from ..tracebacks import PACKAGE, is_whole, public
from .kernel_calls import (
    Backward,
    Call,
    Outline,
    WrappedKernel,
    checked,
    filled,
    outline_of,
    run,
    specs_of,
    taken_apart,
)
from .traces import observe_jax

VMAP_METHODS = ("sequential", "expand_dims", "broadcast_all")
_EXAMPLE = "nkilab.jax.wrap(kernel, backward=kernel_or_function)"
# the devices of a shard_map call back at once; programs run one at a time, in whatever order they come
_BUSY = Lock()


class JaxKernel(WrappedKernel):
    """A kernel that takes and returns JAX arrays, inside functions that JAX traces too.

    Args:
        kernel: with or without a grid.
        backward: kernel or function that makes gradients; None for none.
        saves: what `backward` is given before the gradients: "inputs", "results" or both.
        vmap_method: how jax.vmap calls the kernel, as jax.pure_callback names it.
        results: a function from the arguments to specs of the results; None to trace the kernel for them.
    """

    def __init__(
        self, kernel: Kernel, backward: Any, saves: Sequence[str], vmap_method: str,
        results: Callable[..., Any] | None,
    ) -> None:  # fmt: skip
        if isinstance(backward, Kernel):
            backward = JaxKernel(backward, None, (), vmap_method, None)
        super().__init__(kernel, Backward(kernel.name, backward, tuple(saves), _EXAMPLE), results)
        self._vmap_method = vmap_method
        # JAX compiles a function again that it has not seen; by outline and what was chosen
        self._functions: dict[Any, Callable[..., Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        rule = self._backward
        made_of = self.kernel, rule.function, rule.saves, self._vmap_method, self._outlines.reuse
        return JaxKernel, made_of

    def __repr__(self) -> str:
        return f"<jax function of nki kernel {self.kernel.name}>"

    def _launched(self, grid: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call, arrays = taken_apart(self.kernel, grid, args, kwargs)
        arrays = _as_jax(self.kernel, call, arrays)
        outline = self._outlines.of(call, specs_of(self.kernel, call, arrays))
        key = (id(outline), api.settings())
        if key not in self._functions:
            self._functions[key] = self._differentiable(call, outline)
        results = self._functions[key](*_alike(arrays))
        return filled(outline.results, lambda slot: results[slot.number])

    def _differentiable(self, call: Call, outline: Outline) -> Callable[..., Any]:
        """The call as a function from arrays to a tuple of arrays, with the rule for its gradients."""
        numpy = jax("numpy")
        forward = _called_back(self.kernel, call, outline, self._vmap_method)

        def keeping(*arrays: Any) -> tuple[Any, Any]:
            # the function, not the callback, so that gradients of gradients find the rule again;
            # it needs shape and type of every argument
            results: Any = function(*arrays)
            return results, (self._backward.kept(arrays, results), arrays)

        @public
        def backward(kept: Any, gradients: Sequence[Any]) -> tuple[Any, ...]:
            saved, arrays = kept
            is_float = [numpy.issubdtype(array.dtype, numpy.floating) for array in arrays]
            float_gradients = [g for g in gradients if numpy.issubdtype(g.dtype, numpy.floating)]
            computed = self._backward(saved, float_gradients, call.constants, is_float)
            none = jax("dtypes").float0
            return tuple(
                np.zeros(array.shape, none) if gradient is None else gradient
                for array, gradient in zip(arrays, computed, strict=True)
            )

        function: Any = jax().custom_vjp(forward)
        function.defvjp(keeping, backward)
        operated: Callable[..., Any] = function
        return operated


@cache
def _leave_out_of_stacks() -> None:
    """Have JAX leave nkilab's frames out of the stacks that it shows of traced calls, as it does its own."""
    stacks = jax("_src.traceback_util")
    if not is_whole() and hasattr(stacks, "register_exclusion"):
        stacks.register_exclusion(PACKAGE)


def _as_jax(kernel: Kernel, call: Call, arrays: Sequence[Any]) -> list[Any]:
    """The arrays of a call as arrays of JAX, those of NumPy as copies."""
    converted = []
    for slot, array in zip(call.slots, arrays, strict=True):
        if framework_of(array) not in ("jax", "numpy"):
            raise UseError(
                f"argument {slot.name} is {type(array).__name__}; it takes arrays of JAX or NumPy",
                hint="pass jax.numpy.asarray(...) of it",
            ).located(place_of(user_frame()), kernel.name)
        converted.append(jax("numpy").asarray(array))
    return converted


def _called_back(
    kernel: Kernel, call: Call, outline: Outline, vmap_method: str
) -> Callable[..., tuple[Any, ...]]:
    """A function from arrays to what a kernel returns, computed when the traced function runs."""
    for name in outline.changed:
        if name not in outline.origins:
            raise UseError(
                f"the kernel writes its argument {name}; JAX arrays never change",
                hint=f"return {name} beside the other results",
            ).located(place_of(user_frame()), kernel.name)
    chosen = api.settings()

    @public
    def on_host(*arrays_on_host: Any) -> tuple[np.ndarray, ...]:
        # JAX calls from threads of its own, which know nothing of what was chosen where it traced
        with _BUSY, api.chosen(**asdict(chosen)):
            _, results = run(kernel, call, [to_numpy(np.asarray(array)) for array in arrays_on_host])
        return tuple(map(without_packing, results))

    shapes = tuple(
        jax().ShapeDtypeStruct(spec.shape, _dtype(as_dtype(spec.dtype).storage)) for spec in outline.specs
    )

    def called(*arrays: Any) -> tuple[Any, ...]:
        results_here = jax().pure_callback(on_host, shapes, *arrays, vmap_method=vmap_method)
        return tuple(_varying(result, arrays) for result in results_here)

    return called


def _alike(arrays: Sequence[Any]) -> list[Any]:
    """Arrays that differ along the same axes of a shard_map: the gradient of a replicated one is a sum."""
    return [_varying(array, arrays) for array in arrays]


def _varying(result: Any, arrays: Sequence[Any]) -> Any:
    """An array marked as different on each device of a shard_map on whose devices one of others differs."""
    axes = frozenset().union(*map(_differing_axes, arrays)) - _differing_axes(result)
    return jax("lax").pcast(result, tuple(axes), to="varying") if axes else result


def _differing_axes(array: Any) -> frozenset[str]:
    """Axes of the mesh of a shard_map along which an array differs.

    JAX calls them the type's `vma` from 0.6 on, `manual_axis_type.varying` in 0.10, and has none before.
    """
    typeof = getattr(jax(), "typeof", None)
    array_type = typeof(array) if typeof is not None else None
    marked = getattr(array_type, "manual_axis_type", None)
    axes: frozenset[str] = getattr(array_type, "vma", None) or getattr(marked, "varying", None) or frozenset()
    return axes


def _dtype(storage: np.dtype) -> np.dtype:
    return without_packing(np.empty(0, storage)).dtype


def staged(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A kernel that is called as it is in a function that JAX traces: a callback, without gradients."""
    call, arrays = taken_apart(kernel, (), args, kwargs)
    arrays = _as_jax(kernel, call, arrays)
    outline = outline_of(kernel, call, specs_of(kernel, call, arrays))
    place = place_of(user_frame())

    def refused(*_: Any) -> Any:
        raise UsageError(
            "no gradient flows through a kernel that is called as it is",
            hint=f"make it {_EXAMPLE}, or write a jax.custom_vjp around it",
        ).located(place, kernel.name)

    function = jax().custom_vjp(_called_back(kernel, call, outline, VMAP_METHODS[0]))
    function.defvjp(refused, refused)
    results = function(*arrays)
    return filled(outline.results, lambda slot: results[slot.number])


@public
def wrap(
    kernel: Any, backward: Any = None, *, saves: Sequence[str] = ("inputs",),
    vmap_method: str = VMAP_METHODS[0], results: Callable[..., Any] | None = None, grid: Any = (),
) -> JaxKernel:  # fmt: skip
    """Make a kernel a function of JAX: on arrays, under jit, vmap, grad and shard_map.

    Args:
        kernel: decorated by nki.jit of either spelling, with or without a grid.
        backward: kernel or function that makes gradients. It is called with what is saved, then with the
            gradients of the results that are floats, and with the constants of the call that it has
            parameters for; it returns a gradient per array of floats, in the order of the parameters.
        saves: what `backward` is given before the gradients: "inputs", "results", or both, in this order.
        vmap_method: how jax.vmap calls the kernel: "sequential" once per element of the batch, the others
            once with the batch as leading axis of every argument, which the kernel has to know of.
        results: a function from the arguments, as specs, to specs of the results, for kernels whose
            results only data could tell; the kernel is traced without data if it is not given.
        grid: program instances along each axis; that of the kernel if not given.

    Raises:
        UsageError: if `kernel` is none, or the arguments contradict each other.
    """
    observe_jax()
    _leave_out_of_stacks()
    checked_kernel = checked(kernel, backward, saves, grid)
    if vmap_method not in VMAP_METHODS:
        raise UsageError(f"vmap_method is {vmap_method!r}; it must be one of {', '.join(VMAP_METHODS)}")
    return JaxKernel(checked_kernel, backward, saves, vmap_method, results)
