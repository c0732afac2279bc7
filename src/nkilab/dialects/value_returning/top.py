"""`neuronxcc.nki`: jit, simulation, and what measures on a device: here, on the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import NkilabError
from ...trace.session import ask
from ...tracebacks import public
from ..kernel import Kernel, jit_options, notice_unknown, raise_typed
from .host import FrameworkKernel
from .tensor import Tensor

SPELLING = "neuronxcc"


def _as_kernel(function: Any, version: str, options: dict[str, Any]) -> Kernel:
    if isinstance(function, Measured):
        function = function.kernel
    if isinstance(function, Kernel):
        return Kernel(function.function, SPELLING, version, {**function.options, **options}, function.grid)
    return Kernel(function, SPELLING, version, options)


# Keywords of the vendor's decorators (stubs of SDK 2.26, and public kernels). What only advises a compiler
# or a device is ignored without a word; a word that nobody knows may be a slip.
_KNOWN = {
    "additional_compile_opt", "artifacts_dir", "save_neff_name", "save_trace_name", "warmup", "iters",
    "num_execs", "working_directory", "overwrite", "profile_nth", "debug_kernel", "show_compiler_tb",
}  # fmt: skip


class Measured:
    """A kernel whose calls are measured instead of run: what nki.benchmark and nki.profile return.

    Attributes:
        benchmark_result: figures of the last call, after nki.benchmark; `.nc_latency` answers
            `get_latency_percentile(p)` in microseconds.
    """

    # pytest takes no kernel for a test, whatever its name
    __test__ = False

    def __init__(self, kernel: Kernel, measure: str, options: dict[str, Any]) -> None:
        self.kernel = kernel
        self.benchmark_result: Any = None
        self._measure = measure
        self._options = options
        self.__name__ = kernel.name
        self.__wrapped__ = kernel.function

    def __getitem__(self, grid: Any) -> Measured:
        return Measured(self.kernel[grid], self._measure, self._options)

    def __reduce__(self) -> tuple[Any, ...]:
        return Measured, (self.kernel, self._measure, self._options)

    @public
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            outcome = getattr(ask(), self._measure)(self.kernel, args, kwargs, self._options)
        except NkilabError as error:
            raise_typed(error)
        if self._measure == "benchmark":
            self.benchmark_result = outcome
            return None
        return outcome


def names(version: str) -> dict[str, Any]:
    """The names of `neuronxcc.nki` for one asked version."""

    @public
    def jit(func: Any = None, mode: str = "auto", **kwargs: Any) -> Any:
        """Make a function a kernel; usable bare, with arguments, or as a call."""
        options = jit_options(mode, kwargs)
        if func is None:
            return public(lambda f: _as_kernel(f, version, options))
        return _as_kernel(func, version, options)

    def _measuring(measure: str) -> Callable[..., Any]:
        @public
        def decorate(kernel: Any = None, **kwargs: Any) -> Any:
            # the stubs call the kernel of nki.profile func
            kernel = kwargs.pop("func", None) if kernel is None else kernel
            notice_unknown(f"nki.{measure}", kwargs, _KNOWN)
            if kernel is None:
                return public(lambda f: decorate(f, **kwargs))
            return Measured(_as_kernel(kernel, version, {}), measure, kwargs)

        return decorate

    baremetal = _measuring("baremetal")
    baremetal.__doc__ = "Run a kernel on NumPy arrays; options name the files to save."
    benchmark = _measuring("benchmark")
    benchmark.__doc__ = "Time a kernel from the shapes of its arguments, on the timing model."
    profile = _measuring("profile")
    profile.__doc__ = "Time a kernel from the shapes of its arguments and save its program and trace."

    @public
    def simulate_kernel(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a kernel on NumPy arrays and return NumPy arrays."""
        try:
            return ask().run(_as_kernel(kernel, version, {"simulated": True}), args, kwargs)
        except NkilabError as error:
            raise_typed(error)

    @public
    def trace(func: Any = None, **kwargs: Any) -> Any:
        """Mark a function that kernels call; it runs inline."""
        return jit(func, mode="trace", **kwargs)

    return {"jit": jit, "baremetal": baremetal, "benchmark": benchmark, "profile": profile,
            "simulate_kernel": simulate_kernel, "trace": trace, "tensor": Tensor,
            "FrameworkKernel": FrameworkKernel}  # fmt: skip
