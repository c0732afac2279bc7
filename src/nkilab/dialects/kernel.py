"""Kernels: decorated functions that run on arrays, on specs of arrays, or inside another kernel."""

from __future__ import annotations

from collections.abc import Callable
from operator import index as as_index
from typing import Any, NoReturn

from ..errors import KernelError, NkilabError, RuleError, SpellingError, UseError
from ..trace.session import ask, running
from ..trace.source import place_of, user_frame

# Which built-in type an error also is, as AWS documents it: by key, then by class.
DOCUMENTED_TYPES: dict[str, type[Exception]] = {
    "err_num_partition_exceed_arch_limit": ValueError,
    "err_ambiguous_tensor_truth_value": ValueError,
    "err_dynamic_control_flow_not_supported": TypeError,
    "err_cannot_assign_to_index": TypeError,
}
CLASS_TYPES: tuple[tuple[type[NkilabError], type[Exception]], ...] = (
    (SpellingError, TypeError),
    (KernelError, ValueError),
)
_TYPED: dict[tuple[type, type], type] = {}


def raise_typed(error: NkilabError) -> NoReturn:
    """Raise `error` as something that is also of the built-in type documented for it."""
    also = DOCUMENTED_TYPES.get(error.key)
    if also is None:
        also = next((builtin for ours, builtin in CLASS_TYPES if isinstance(error, ours)), None)
    if also is not None and not isinstance(error, also):
        pair = (type(error), also)
        if pair not in _TYPED:
            _TYPED[pair] = type(pair[0].__name__, pair, {"__module__": pair[0].__module__})
        error.__class__ = _TYPED[pair]
    raise error


class Kernel:
    """A function that runs as an NKI kernel.

    Args:
        function: the user's.
        spelling: "neuronxcc" or "nki".
        version: the NKI version asked for, "" for none.
        options: keywords of the decorator.
        grid: program instances along each axis; () for one.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        spelling: str,
        version: str,
        options: dict[str, Any] | None = None,
        grid: tuple[Any, ...] = (),
    ) -> None:
        if not callable(function):
            raise UseError(f"nki.jit decorates functions; got {type(function).__name__}")
        inner = function
        self.function: Callable[..., Any] = inner
        self.spelling = spelling
        self.version = version
        self.options = options or {}
        self.grid = grid
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            if hasattr(inner, name):
                setattr(self, name, getattr(inner, name))
        self.__wrapped__ = inner

    @property
    def name(self) -> str:
        """The name of the function."""
        return getattr(self.function, "__name__", "kernel")

    @property
    def platform_target(self) -> str:
        """The chip the decorator names, or ""."""
        return str(self.options.get("platform_target") or "")

    def __getitem__(self, grid: Any) -> Kernel:
        """The kernel with a launch grid."""
        grid = grid if isinstance(grid, tuple | list) else (grid,)
        return Kernel(self.function, self.spelling, self.version, self.options, tuple(grid))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays; inside another kernel, run inline on its tensors."""
        if running() is not None:
            if self.grid:
                raise UseError(
                    f"{self.name} is called with a grid inside another kernel",
                    hint="call it without a grid",
                    key="err_nested_kernel_with_spmd_grid",
                ).located(place_of(user_frame()), self.name)
            return self.function(*args, **kwargs)
        try:
            return ask().run(self, args, kwargs)
        except NkilabError as error:
            raise_typed(error)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Methods bind as functions do."""
        if instance is None:
            return self
        bound = Kernel(
            self.function.__get__(instance, owner), self.spelling, self.version, self.options, self.grid
        )
        return bound

    def __repr__(self) -> str:
        return f"<nki kernel {self.name}>"

    @property
    def grid_sizes(self) -> tuple[int, ...]:
        """Instances along each axis of the grid, as integers.

        Raises:
            RuleError: if an extent is not a positive integer.
        """
        sizes = []
        for extent in self.grid:
            try:
                size = as_index(extent)
            except TypeError:
                size = 0
            if size < 1:
                raise RuleError(f"the grid is {list(self.grid)}; extents are positive integers")
            sizes.append(size)
        return tuple(sizes)
