"""What crosses the border of a kernel: arrays of the host become HBM tensors, results become arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import numpy as np
from msgspec import Struct

from .arguments import Call
from .arrays import (
    ArraySpec,
    array_namespace,
    chosen_framework,
    dtype_of,
    framework_of,
    from_numpy,
    is_shared,
    loses_gradient,
    origin_of,
    outlined,
    shape_of,
    to_numpy,
    with_elements,
)
from .dialects.annotations import is_mutable
from .dialects.dst_first.tensor import Tensor as DstFirstTensor
from .dialects.foreign import about_host_value
from .dialects.kernel import Kernel, raise_typed
from .dialects.value_returning.tensor import Tensor as ValueReturningTensor
from .dialects.versions import require
from .errors import NkilabError, RuleError, UseError, did_you_mean
from .tiles.coverage import covers_all
from .tiles.dtypes import unwritten_value
from .tiles.tile import HBM, View, array_of, whole_layout
from .trace.run_notes import Returned
from .trace.session import MemoryKey, Session, ask
from .trace.source import is_named, place_of, user_frame

TENSORS: dict[str, type[View]] = {"neuronxcc": ValueReturningTensor, "nki": DstFirstTensor}
# From 0.3 on a kernel may write to any input, and the caller's array has the new values.
NO_INPUT_IS_WRITTEN = ("0.1", "0.2")


def map_arrays(value: Any, name: str, convert: Callable[[Any, str], Any]) -> Any:
    """`value` with arrays converted, also inside lists, tuples and dictionaries."""
    if framework_of(value):
        return convert(value, name)
    if isinstance(value, dict):
        return {k: map_arrays(v, f"{name}[{k!r}]", convert) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return _like(value, [map_arrays(v, f"{name}[{i}]", convert) for i, v in enumerate(value)])
    return value


def _like(value: Any, items: list[Any]) -> Any:
    """A list or tuple of the kind of `value`; `value` itself if nothing changed."""
    if all(a is b for a, b in zip(items, value, strict=True)):
        return value
    return value._make(items) if hasattr(value, "_make") else type(value)(items)


def map_tensors(value: Any, convert: Callable[[View], Any]) -> Any:
    """`value` with tensors converted, also inside lists, tuples and dictionaries."""
    if isinstance(value, View):
        return convert(value)
    if isinstance(value, dict):
        return {k: map_tensors(v, convert) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return _like(value, [map_tensors(v, convert) for v in value])
    return value


def tensors_in(result: Any) -> list[View]:
    """The tensors among the results of a kernel."""
    views: list[View] = []
    map_tensors(result, views.append)
    return views


class BoundCall(Struct, frozen=True):
    """The arguments of a call by the parameters of the kernel."""

    call: Call  # the arguments as they were given
    values: tuple[object, ...]  # the arguments
    outlines: dict[str, object]  # the same with names in place of arrays, by parameter
    arrays: dict[str, object]  # among them, by name

    @classmethod
    def of(cls, kernel: Kernel, call: Call) -> BoundCall:
        """Bind a call.

        Raises:
            UseError: if the arguments do not fit.
        """
        bound, arrays = bind(kernel, *call).arguments, dict[str, object]()

        def name_of(array: object, name: str) -> str:
            arrays[name] = array
            return name

        outlines = {name: map_arrays(value, name, name_of) for name, value in bound.items()}
        return cls(call, (*bound.values(),), outlines, arrays)

    def elements(self, kernel: Kernel) -> list[np.ndarray]:
        """Those of the arrays; see `with_data`."""
        return [to_numpy(with_data(kernel, array, name)) for name, array in self.arrays.items()]

    @property
    def framework(self) -> object:
        """That of the results."""
        return chosen_framework(list(map(_framework, self.arrays.values())))


def _framework(value: object) -> object:
    return array_namespace(value) or origin_of(value)


def with_data(kernel: Kernel, value: object, name: str) -> object:
    """An argument whose elements can be read from here; that its gradient is lost is told.

    Raises:
        UseError: if it has none; names the argument.
    """
    if loses_gradient(value):
        ask().notice(
            f"{kernel.name}: {name} requires a gradient, and none flows through a kernel that is called "
            "as it is; use nkilab.torch.wrap(kernel, backward=...), or torch.no_grad()"
        )
    if isinstance(value, ArraySpec):
        raise UseError(
            f"argument {name} is a spec, which has no data", hint="pass an array to run the kernel"
        )
    return with_elements(value, name)


def input_tensor(session: Session, kernel: Kernel, value: Any, name: str, frameworks: list[Any]) -> View:
    """The HBM tensor of an array of the host, whose framework is added to a list."""
    frameworks.append(_framework(value))
    value = with_data(kernel, value, name) if session.has_data else outlined(value, name)
    dtype = dtype_of(value, name)
    shape = shape_of(value, name)
    storage = session.new_storage(shape, dtype, HBM, "input", name)
    # kernels of 2.20, which nki.trace marks, write their results to parameters
    is_written = kernel.options.get("mode") == "trace" or is_mutable(kernel.function, name)
    storage.is_mutable = is_written
    session.share(("input", name, 0), storage)
    may_change = kernel.spelling == "nki" and session.version not in NO_INPUT_IS_WRITTEN
    if may_change or (is_written and not is_shared(value)):
        storage.host_array = value
    if session.has_data:
        elements = to_numpy(value)
        # the user's array is written in place, unless his framework's arrays never change
        storage.allocate(elements.copy() if is_written and not elements.flags.writeable else elements)
    else:
        storage.written.fill()
    return TENSORS[kernel.spelling](storage, 0, whole_layout(storage))


def seen_by(session: Session, tensor: View) -> View:
    """An input of the kernel as a tensor of another program."""
    storage = tensor.storage
    key = next(key for key, shared in session.together.storages.items() if shared is storage)
    own = session.shared_storage(key, storage.shape, storage.dtype)
    return type(tensor)(own, 0, whole_layout(own))


def output_array(session: Session, kernel: Kernel, tensor: View, framework: Any) -> Any:
    """The array of a framework that a tensor among the results becomes; without data its spec."""
    storage = tensor.storage
    if storage.memory != HBM and kernel.is_simulated and session.has_data:
        session.where = (kernel.function.__code__.co_filename, kernel.function.__code__.co_firstlineno)
        session.warn(f"{kernel.name} returns {tensor.describe()}; on a device results lie in hbm")
        return from_numpy(array_of(tensor).copy(), framework)
    if storage.memory != HBM:
        raise RuleError(
            f"{kernel.name} returns a tile in {storage.memory}; results lie in hbm",
            hint="store it to a tensor made with buffer=nl.shared_hbm and return that",
        ).located(definition(kernel), kernel.name, [f"result = {tensor.describe()}"])
    if storage.scope == "private" and kernel.spelling == "nki":
        filename, line = session.program.lines[storage.line]
        require("hbm_result", session.version, kernel.name, f"{Path(filename).name}:{line}")
    if not session.has_data:
        return ArraySpec(tensor.layout.shape, tensor.layout.dtype)
    if storage.data is None:
        storage.allocate()
    assert storage.data is not None
    state = storage.written.of(tensor)
    count = storage.written.count(tensor)
    session.program.marks.returned.append(Returned(storage.number, count, tensor.layout.size))
    if state != "all":
        storage.data.reshape(-1)[~storage.written.bits] = unwritten_value(storage.dtype)
        session.where = (kernel.function.__code__.co_filename, kernel.function.__code__.co_firstlineno)
        share = "was never written" if state == "none" else "was written in part only"
        swapped = [s.name for s in session.changed_inputs if state == "none" and s.shape == storage.shape]
        share += f"; the kernel wrote to {swapped[0]}, an input of that shape" if swapped else ""
        session.warn(f"{kernel.name} returns {tensor.describe()}, which {share}", key="unwritten result")
    array = array_of(tensor)
    if covers_all(tensor):
        array = storage.data.reshape(tensor.layout.shape) if storage.dtype is tensor.layout.dtype else array
        return from_numpy(array, framework)
    return from_numpy(array.copy(), framework)


def check_results(kernel: Kernel, sessions: list[Session], results: list[Any]) -> None:
    """Refuse programs that return different memories of those that all see, or memory of their own."""
    keys_of_ranks: list[list[MemoryKey | None]] = []
    for session, result in zip(sessions, results, strict=True):
        keys = {id(storage): key for key, storage in session.shared.items()}
        keys_of_ranks.append([keys.get(id(tensor.storage)) for tensor in tensors_in(result)])
    if len(sessions) > 1 and None in keys_of_ranks[0]:
        raise RuleError(
            f"it returns {_names(keys_of_ranks[0])}, of which each of the {len(sessions)} programs has "
            "another one",
            hint="allocate results with buffer=nl.shared_hbm",
            source="Using Logical Neuron Cores (LNC), Final Notes",
        ).located(definition(kernel), kernel.name)
    for rank, own in enumerate(keys_of_ranks[1:], 1):
        if own != keys_of_ranks[0]:
            raise RuleError(
                f"program {rank} returns {_names(own)}; program 0 returns {_names(keys_of_ranks[0])}",
                hint="return the same shared_hbm tensors in every program",
            ).located(definition(kernel), kernel.name)


def _names(keys: list[MemoryKey | None]) -> str:
    """The results of a program in a message."""
    words = ["a tensor of its own" if key is None else key[1] or f"shared tensor {key[2]}" for key in keys]
    return ", ".join(words) or "no tensor"


def definition(kernel: Kernel) -> str:
    """ "file.py:41" where a kernel is defined."""
    code = kernel.function.__code__
    return f"{code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno}"


def bind(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
    """The arguments of a call by the parameters of the kernel.

    Raises:
        UseError: if they do not fit.
    """
    try:
        return kernel.signature.bind(*args, **kwargs)
    except TypeError as error:
        names = list(kernel.signature.parameters)
        unknown = next((name for name in kwargs if name not in names), "")
        listed = f"{kernel.name} takes {', '.join(names) or 'none'}"
        hint = did_you_mean(unknown, names, listed) if unknown else listed
        raise UseError(f"the arguments do not fit the kernel: {error}", hint=hint) from None


def raise_placed(error: NkilabError | AttributeError, kernel: Kernel) -> NoReturn:
    """Raise an error of a kernel with the user's line, as the types that are documented for it."""
    meant = error if isinstance(error, NkilabError) else about_host_value(error)
    if meant is None:
        raise error
    if not meant.where:
        meant.located(_place_in(error.__traceback__, kernel), kernel.name)
    meant.__suppress_context__ = meant is not error
    raise_typed(meant, kernel.spelling)


def _place_in(trace: TracebackType | None, kernel: Kernel) -> str:
    """ "file.py:41" of the innermost frame of the user's in a traceback; of his call if there is none.

    Where our command line is the caller, of the kernel.
    """
    place_found = None
    while trace is not None:
        if is_named(trace.tb_frame.f_code):
            place_found = trace
        trace = trace.tb_next
    if place_found is None:
        caller = user_frame()
        is_ours = caller.f_globals.get("__name__", "").startswith("click.")
        return definition(kernel) if is_ours else place_of(caller)
    return f"{Path(place_found.tb_frame.f_code.co_filename).name}:{place_found.tb_lineno}"
