"""Kernels: decorated functions that run on arrays, on specs of arrays, or inside another kernel."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from inspect import Signature, iscoroutinefunction, isgeneratorfunction, signature
from operator import index as as_index
from typing import Any, NoReturn

from ..errors import (
    KernelError,
    LimitError,
    NkilabError,
    RuleError,
    SpellingError,
    UseError,
    did_you_mean,
    joined,
)
from ..tiles.indirect import OutOfBoundsError
from ..tiles.tile import View
from ..trace.session import Session, ask, running
from ..trace.source import place_of, user_frame
from ..tracebacks import public
from .environment import check_precision, configured_grid
from .generated_functions import binding_error
from .references import Reference
from .schedules import Schedule, as_schedule

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

# Keywords of nki.jit in the stubs and in published kernels. What only advises a compiler is ignored without a
# word; a word that nobody knows may be a slip.
JIT_KEYWORDS = frozenset({
    "platform_target", "experimental_flags", "additional_compile_opt", "kernel_return", "show_compiler_tb",
    "enable_out_of_bound_check", "debug_kernel", "artifacts_dir", "schedule",
})  # fmt: skip
_MODES = ("auto", "jax", "torchxla", "simulation", "baremetal", "trace")

# the class of tensors of each spelling, which registers it
TENSORS: dict[str, type[View]] = {}

# where a decorator of nki.compiler below nki.jit leaves what it asks for
OPTIONS = "__nki_options__"


def notice_unknown(decorator: str, names: Iterable[str], known: Collection[str]) -> None:
    """Notice keywords that a decorator of host code ignores, for nobody knows them."""
    for word in sorted(set(names) - set(known)):
        hint = did_you_mean(word, sorted(known))
        ask().notice(f"{decorator} ignores the keyword {word}" + (f"; {hint}" if hint else ""))


def jit_options(mode: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """The options of a kernel from what nki.jit is given; what it ignores is noticed."""
    notice_unknown("nki.jit", arguments, JIT_KEYWORDS)
    if not isinstance(mode, str) or mode not in _MODES:
        instead = "nki.benchmark times a kernel" if mode == "benchmark" else did_you_mean(str(mode), _MODES)
        ask().notice(f"nki.jit ignores mode={mode!r}" + (f"; {instead}" if instead else ""))
    return {"mode": mode, **arguments}


class NkiValidationError(Exception):
    """`nki.isa.NkiValidationError`: what a hardware rule forbids; our rule and limit errors also are one."""


def _check_function(function: Any) -> None:
    """Refuse what is no function, or one whose body no call runs."""
    error = None
    if not callable(function) or isinstance(function, type):
        error = UseError(f"it decorates functions; got {type(function).__name__}")
    elif isgeneratorfunction(function) or iscoroutinefunction(function):
        error = UseError(
            f"{function.__name__} is a generator or coroutine, whose body no call runs",
            hint="return the result, without yield or async",
        )
    if error is not None:
        raise error.located(place_of(user_frame()), "nki.jit")


def raise_typed(error: NkilabError, spelling: str = "") -> NoReturn:
    """Raise `error` as something that is also of the built-in type documented for it.

    Args:
        error: completed.
        spelling: of the kernel. Of Beta 1 a published suite asks for NumPy's IndexError where an index that
            is known at run time lies outside; it bears our message as a note, and `error` as its cause.
    """
    if isinstance(error, OutOfBoundsError) and spelling == "neuronxcc":
        bare = IndexError(f"index {error.element} is out of bounds for axis 0 with size {error.size}")
        bare.add_note(str(error))
        raise bare from error
    also = DOCUMENTED_TYPES.get(error.key)
    if also is None:
        also = next((builtin for ours, builtin in CLASS_TYPES if isinstance(error, ours)), None)
    kinds = (NkiValidationError,) if isinstance(error, RuleError | LimitError) else ()
    wanted = tuple(k for k in (*kinds, also) if k is not None and not isinstance(error, k))
    if wanted:
        error.__class__ = joined(type(error), *wanted)
    raise error


def _types(values: Iterable[Any]) -> Iterator[type]:
    for value in values:
        yield from _types(value) if type(value) in (tuple, list) else (type(value),)


def _as(cls: type[View], value: Any) -> Any:
    """A tensor of any spelling, or some of them, as tensors of one."""
    if type(value) in (tuple, list):
        return type(value)(_as(cls, one) for one in value)
    is_other = type(value) in TENSORS.values() and type(value) is not cls
    return cls(value.storage, value.offset, value.layout, value.indices) if is_other else value


class Kernel:
    """A function that runs as an NKI kernel.

    Args:
        function: the user's.
        spelling: "neuronxcc" or "nki".
        version: the NKI version asked for, "" for none.
        options: keywords of the decorator.
        grid: program instances along each axis; () for one.
    """

    # pytest takes no kernel for a test, whatever its name
    __test__ = False

    def __init__(
        self, function: Callable[..., Any], spelling: str, version: str,
        options: dict[str, Any] | None = None, grid: tuple[Any, ...] = (),
    ) -> None:  # fmt: skip
        _check_function(function)
        self.function: Callable[..., Any] = function
        self.spelling = spelling
        self.version = version
        self.options = {**getattr(function, OPTIONS, {}), **(options or {})}
        self.grid = grid
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            if hasattr(function, name):
                setattr(self, name, getattr(function, name))
        self.__wrapped__ = function

    @property
    def name(self) -> str:
        """The name of the function."""
        return getattr(self.function, "__name__", "kernel")

    @cached_property
    def signature(self) -> Signature:
        """The parameters of the function."""
        return signature(self.function)

    @property
    def func(self) -> Callable[..., Any]:
        """The function, by the name that host code of NKI 0.x reads signature and source from."""
        return self.function

    @property
    def platform_target(self) -> str:
        """The chip the decorator names, or ""."""
        return str(self.options.get("platform_target") or "")

    @property
    def schedule(self) -> Schedule:
        """The dependences that `with_schedule` added."""
        return self.options.get("schedule", ())

    @public
    def with_schedule(self, schedule: Any) -> Kernel:
        """The kernel with further dependences between instructions that have names.

        Args:
            schedule: pairs (consumer, producer or list of producers), by the `name=` of the instructions.

        Raises:
            UseError: if it is no list of such pairs, or they make a circle.
        """
        try:
            edges = as_schedule(schedule)
        except NkilabError as error:
            raise_typed(error.located(place_of(user_frame()), "with_schedule"))
        return Kernel(
            self.function, self.spelling, self.version, {**self.options, "schedule": edges}, self.grid
        )

    @property
    def is_simulated(self) -> bool:
        """Whether the host script asks for a simulation of Beta 1, which returns tiles on chip too."""
        return self.options.get("mode") == "simulation" or bool(self.options.get("simulated"))

    def __getitem__(self, grid: Any) -> Kernel:
        """The kernel with a launch grid."""
        grid = grid if isinstance(grid, tuple | list) else (grid,)
        return Kernel(self.function, self.spelling, self.version, self.options, tuple(grid))

    @public
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays; inside another kernel, run inline on its tensors."""
        session = running()
        if session is not None:
            if self.grid:
                raise UseError(
                    f"{self.name} is called with a grid inside another kernel",
                    hint="call it without a grid",
                    key="err_nested_kernel_with_spmd_grid",
                ).located(place_of(user_frame()), self.name)
            return self._inline(session, args, kwargs)
        try:
            if self.spelling != "nki":
                return ask().run(self, args, kwargs)
            check_precision()
            grid = configured_grid(self.name, self.grid, self.version)
            return ask().run(self if grid == self.grid else self[grid], args, kwargs)
        except NkilabError as error:
            raise_typed(error)
        except TypeError as error:
            ours = binding_error(error)
            if ours is None:
                raise
            raise_typed(ours)

    def _inline(self, session: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run on tensors of the kernel that calls; those of the other spelling become tensors of this one."""
        own = TENSORS.get(self.spelling)
        others = {*_types((args, [*kwargs.values()]))} & {*TENSORS.values()} - {own}
        if own is None or not others:
            return self.function(*args, **kwargs)
        session.flush()
        result = self.function(*_as(own, args), **{name: _as(own, value) for name, value in kwargs.items()})
        session.flush()
        return _as(others.pop(), result)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Methods bind as functions do."""
        if instance is None:
            return self
        method = self.function.__get__(instance, owner)
        return Kernel(method, self.spelling, self.version, self.options, self.grid)

    def __repr__(self) -> str:
        return f"<nki kernel {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by name, as functions are; by its function where no name stands for it."""
        parts = (self.spelling, self.version, self.options, self.grid)
        reference = Reference.of(self.function, Kernel)
        return (_restored, (reference, *parts)) if reference else (Kernel, (self.function, *parts))

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


def _restored(
    reference: Reference, spelling: str, version: str, options: dict[str, Any], grid: tuple[Any, ...]
) -> Kernel:
    """A kernel that was pickled by its name."""
    kernel: Kernel = reference.kernel(Kernel)
    if (kernel.spelling, kernel.version, kernel.options, kernel.grid) == (spelling, version, options, grid):
        return kernel
    return Kernel(kernel.function, spelling, version, options, grid)
