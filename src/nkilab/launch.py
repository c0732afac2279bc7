"""Launching a kernel: arrays become HBM tensors, the function runs as Python, results become arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import TracebackType
from typing import Any

from .arrays import dtype_of, framework_of, from_numpy, to_numpy
from .dialects.annotations import is_mutable
from .dialects.dst_first.tensor import Tensor as DstFirstTensor
from .dialects.kernel import Kernel, raise_typed
from .dialects.value_returning.tensor import Tensor as ValueReturningTensor
from .dialects.versions import require
from .errors import NkilabError, RuleError, UseError
from .execute import execute
from .machine import Machine
from .tiles.coverage import covers_all
from .tiles.dtypes import unwritten_value
from .tiles.tile import HBM, View, array_of, whole_layout
from .trace.program import Program
from .trace.session import Session, tracing
from .trace.source import is_users, place_of, user_frame

TENSORS: dict[str, type[View]] = {"neuronxcc": ValueReturningTensor, "nki": DstFirstTensor}


@dataclass(frozen=True)
class Launched:
    """What a launch leaves: the program, and the kernel's results as arrays (None without data)."""

    program: Program
    results: Any


def launch(
    kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], machine: Machine, *, has_data: bool
) -> Launched:
    """Run a kernel once per program instance, one after another.

    Args:
        kernel: with its grid.
        args: positional arguments; arrays become HBM tensors, anything else is passed on.
        kwargs: keyword arguments, likewise.
        machine: the chip.
        has_data: whether to compute; False traces shapes alone.

    Raises:
        KernelError: what the kernel asks for and the machine or the language does not allow.
        UseError: if the arguments do not fit the kernel's parameters.
    """
    try:
        return _launch(kernel, args, kwargs, machine, has_data)
    except NkilabError as error:
        if not error.where:
            error.located(_place_in(error.__traceback__, kernel), kernel.name)
        raise_typed(error)


def _launch(
    kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], machine: Machine, has_data: bool
) -> Launched:
    grid = kernel.grid_sizes
    program = Program(machine, kernel.name)
    session = Session(machine, program, execute if has_data else None, kernel.version, grid)
    bound = _bind(kernel, args, kwargs)
    frameworks: list[str] = []
    results: Any = None
    with tracing(session):
        given = {
            name: _map_arrays(value, name, lambda v, n: _input(session, kernel, v, n, frameworks))
            for name, value in bound.arguments.items()
        }
        bound.arguments.update(given)
        for instance in product(*(range(n) for n in grid)):
            session.program_id = instance
            session.shared_at = 0
            results = kernel.function(*bound.args, **bound.kwargs)
            session.flush()
        framework = next((f for f in frameworks if f in ("torch", "jax")), "numpy")
        converted = _map_tensors(results, lambda t: _output(session, kernel, t, framework))
    return Launched(program, converted if has_data else None)


def _place_in(trace: TracebackType | None, kernel: Kernel) -> str:
    """ "file.py:41" of the innermost frame of the user's in a traceback; of his call if there is none.

    Where our command line is the caller, of the kernel.
    """
    found = None
    while trace is not None:
        if is_users(trace.tb_frame.f_code):
            found = trace
        trace = trace.tb_next
    if found is None:
        caller = user_frame()
        is_ours = caller.f_globals.get("__name__", "").startswith("click.")
        return _definition(kernel) if is_ours else place_of(caller)
    return f"{Path(found.tb_frame.f_code.co_filename).name}:{found.tb_lineno}"


def _bind(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
    try:
        return inspect.signature(kernel.function).bind(*args, **kwargs)
    except TypeError as error:
        raise UseError(f"the arguments do not fit the kernel: {error}") from None


def _map_arrays(value: Any, name: str, convert: Callable[[Any, str], Any]) -> Any:
    """`value` with arrays converted, also inside lists, tuples and dictionaries."""
    if framework_of(value):
        return convert(value, name)
    if isinstance(value, dict):
        return {k: _map_arrays(v, f"{name}[{k!r}]", convert) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return _like(value, [_map_arrays(v, f"{name}[{i}]", convert) for i, v in enumerate(value)])
    return value


def _like(value: Any, items: list[Any]) -> Any:
    """A list or tuple of the kind of `value`; `value` itself if nothing changed."""
    if all(a is b for a, b in zip(items, value, strict=True)):
        return value
    return value._make(items) if hasattr(value, "_make") else type(value)(items)


def _map_tensors(value: Any, convert: Callable[[View], Any]) -> Any:
    if isinstance(value, View):
        return convert(value)
    if isinstance(value, dict):
        return {k: _map_tensors(v, convert) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return _like(value, [_map_tensors(v, convert) for v in value])
    return value


def _input(session: Session, kernel: Kernel, value: Any, name: str, frameworks: list[str]) -> View:
    frameworks.append(framework_of(value))
    dtype = dtype_of(value, name)
    shape = tuple(int(n) for n in value.shape)
    if not shape or 0 in shape:
        raise UseError(f"argument {name} has shape {list(shape)}; a tensor has at least one element and axis")
    storage = session.new_storage(shape, dtype, HBM, "input", name)
    # kernels of 2.20, which nki.trace marks, write their results to parameters
    is_written = kernel.options.get("mode") == "trace" or is_mutable(kernel.function, name)
    storage.is_mutable = is_written
    if session.has_data:
        if frameworks[-1] == "spec":
            raise UseError(
                f"argument {name} is a spec, which has no data", hint="pass an array to run the kernel"
            )
        elements = to_numpy(value)
        # the user's array is written in place, unless his framework's arrays never change
        storage.allocate(elements.copy() if is_written and not elements.flags.writeable else elements)
    else:
        storage.written.fill()
    return TENSORS[kernel.spelling](storage, 0, whole_layout(storage))


def _output(session: Session, kernel: Kernel, tensor: View, framework: str) -> Any:
    storage = tensor.storage
    if storage.memory != HBM:
        raise RuleError(
            f"{kernel.name} returns a tile in {storage.memory}; results lie in hbm",
            hint="store it to a tensor made with buffer=nl.shared_hbm and return that",
        ).located(_definition(kernel), kernel.name, [f"result = {tensor.describe()}"])
    if storage.scope == "private" and kernel.spelling == "nki":
        filename, line = session.program.lines[storage.line]
        require("hbm_result", session.version, kernel.name, f"{Path(filename).name}:{line}")
    if not session.has_data:
        return None
    if storage.data is None:
        storage.allocate()
    assert storage.data is not None
    state = storage.written.of(tensor)
    if state != "all":
        storage.data.reshape(-1)[~storage.written.bits] = unwritten_value(storage.dtype)
        session.where = (kernel.function.__code__.co_filename, kernel.function.__code__.co_firstlineno)
        share = "was never written" if state == "none" else "was written in part only"
        session.warn(f"{kernel.name} returns {tensor.describe()}, which {share}", key="unwritten result")
    array = array_of(tensor)
    if covers_all(tensor):
        array = storage.data.reshape(tensor.layout.shape) if storage.dtype is tensor.layout.dtype else array
        return from_numpy(array, framework)
    return from_numpy(array.copy(), framework)


def _definition(kernel: Kernel) -> str:
    code = kernel.function.__code__
    return f"{code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno}"
