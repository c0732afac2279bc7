"""The names of `nki`, `nki.language` and `nki.isa`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from itertools import chain, groupby
from typing import Any

import numpy as np

from ...errors import NkilabError, UseError
from ...isa import REGISTRY
from ...isa.data_movement import DmaCopy
from ...isa.declare import Attribute, Instruction
from ...isa.microscaling import QUADRANT, ROWS, QuantizeMx, quadrants
from ...isa.reduction import TensorReduce
from ...isa.tensor_engine import NcMatmul
from ...tiles.dtypes import DTYPES, as_dtype
from ...tiles.tile import PSUM, Layout, View
from ...tiles.views import derived
from ...trace.builder import check_form, record, record_product
from ...trace.session import Known, Session, ask, current
from ...trace.source import Site
from ...tracebacks import public
from ..enums import ENUMS, dge_mode, dma_engine, engine, matmul_perf_mode, nc_version, oob_mode, reduce_cmd
from ..environment import check_precision
from ..gate import AtFirstUse
from ..generated_functions import surface
from ..history import order
from ..indexing import allocated_shape, whole_number
from ..kernel import Kernel, NkiValidationError, jit_options, raise_typed
from ..places import placed
from ..rendezvous import RENDEZVOUS_CLASSES, rendezvous_finish
from ..versions import require, version_of
from . import registers
from .collectives import COLLECTIVES
from .creation import MEMORY_NAMES
from .language import LANGUAGE as LANGUAGE
from .objects import NkiInstruction
from .tensor import Tensor
from .view_methods import slice_axis

# of a matmul that does not say whether it accumulates
_UNSAID = (None,)


def matmul_finish(
    session: Session, cls: type[Instruction], operands: list[Any], attributes: tuple[Any, ...],
    values: tuple[Any, ...], extras: tuple[Any, ...], where: Site | None = None, known: Known | None = None,
) -> None:  # fmt: skip
    """Append a matmul; where it would add to a part of its destination, one row for each piece.

    The hardware tells the pieces apart within one instruction; that several rows take longer than one is the
    price of rows that either add or overwrite.
    """
    dst, stationary, moving = operands
    if known is not None and session.execute is None and values == _UNSAID:
        form, number = known
        written = dst.storage.accumulated
        if not form.is_indirect and (written.is_full or written.is_empty):
            record_product(session, number, operands, written, where)
            return
    if values == _UNSAID and _may_be_in_part(dst, moving):
        for part, columns in _pieces(dst, moving, 1):
            record(session, cls, [part, stationary, columns], attributes, values, None, where)
        return
    record(session, cls, operands, attributes, values, None, where, known)


def _may_be_in_part(dst: Any, moving: Any) -> bool:
    """Whether matmuls wrote some elements of dst and not the others, and moving splits as dst does."""
    if not isinstance(dst, View) or not isinstance(moving, View) or dst.indices or moving.indices:
        return False
    written = dst.storage.accumulated
    if written.is_empty or written.is_full or dst.layout.shape[1:] != moving.layout.shape[1:]:
        return False
    return written.of(dst) == "part"


def _pieces(dst: View, moving: View, axis: int) -> Iterator[tuple[View, View]]:
    """Parts of dst, each written in whole or not at all, with the columns of moving that belong to them."""
    written, extent = dst.storage.accumulated, dst.layout.shape[axis]
    states = [written.of(slice_axis(dst, axis, i, i + 1)) for i in range(extent)]
    start = 0
    for state, run in groupby(states):
        stop = start + len(list(run))
        if state == "part" and axis + 1 < len(dst.layout.shape):
            yield from chain.from_iterable(
                _pieces(slice_axis(dst, axis, i, i + 1), slice_axis(moving, axis, i, i + 1), axis + 1)
                for i in range(start, stop)
            )
        else:
            yield slice_axis(dst, axis, start, stop), slice_axis(moving, axis, start, stop)
        start = stop


# per instruction, the position of each tile of scales and of its data
SCALED: dict[str, tuple[tuple[int, int], ...]] = {"quantize_mx": ((2, 0),), "nc_matmul_mx": ((3, 1), (4, 2))}
# attributes that no caller gives, for the version of NKI decides
HIDDEN = ("headroom",)


def scaled_finish(
    session: Session, cls: type[Instruction], operands: list[Any], attributes: tuple[Any, ...],
    values: tuple[Any, ...], extras: tuple[Any, ...], where: Site | None = None, known: Known | None = None,
) -> None:  # fmt: skip
    """The finish of instructions that take tiles of scales: check the call, record what it uses."""
    if cls is QuantizeMx:
        attributes = (headroom(version_of(session)),)
    if known is None:
        check_form(session, cls, operands, attributes)
    used = list(operands)
    for scale, data in SCALED[cls.name]:
        used[scale] = rows_in_use(operands[scale], operands[data].layout)
    record(session, cls, used, attributes, values, None, where)


def headroom(version: str) -> int:
    """How many exponents quantize_mx keeps free above the largest number of a group.

    Source: NKI 0.5 release notes, improvements: the scale became two times larger.
    """
    return 0 if version and order(version) < order("0.5") else 1


def rows_in_use(scale: View, data: Layout) -> View:
    """The rows of a tile of scales [P, F] that belong to `data`: [4, F], or [quadrants, 4, F]."""
    known, count = scale.layout, quadrants(data)
    if known.partitions <= ROWS:
        return scale
    step, *rest = known.strides
    shape, strides = (ROWS, *known.shape[1:]), (step, *rest)
    if count > 1:
        shape, strides = (count, *shape), (QUADRANT * step, *strides)
    return derived(scale, scale.offset, shape, strides, 0)


@placed("zeros")
def zeros(shape: Any, dtype: Any = "float32") -> np.ndarray:
    """An array of zeros."""
    return np.zeros(allocated_shape(shape), as_dtype(dtype).storage)


@placed("identity")
def identity(n: Any, dtype: Any = "float32") -> np.ndarray:
    """An array [n, n] with ones on the diagonal."""
    (extent,) = allocated_shape((whole_number(n, "n"),))
    return np.eye(extent).astype(as_dtype(dtype).storage)


@placed("arange")
def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = "int32") -> np.ndarray:
    """An array of start, start + step, ... below stop; from 0 where only one bound is given.

    Raises:
        UseError: if a bound is no number, or there is no element.
    """
    first, last = (0, start) if stop is None else (start, stop)
    for name, number in (("start", first), ("stop", last), ("step", step)):
        if not isinstance(number, int | float | np.number):
            raise UseError(f"{name} is {number!r}; it must be a number")
    if not step or (last - first) / step <= 0:
        raise UseError(f"an array from {first} to {last} by {step} is empty; it must have an element or more")
    return np.arange(first, last, step).astype(as_dtype(dtype).storage)


TRACE_TIME: dict[str, Any] = {"zeros": zeros, "identity": identity, "arange": arange}


SPELLING = "nki"


def _dma_finish(
    session: Session, cls: type[Instruction], operands: list[Any], attributes: tuple[Any, ...],
    values: tuple[Any, ...], extras: tuple[Any, ...], where: Site | None = None, known: Known | None = None,
) -> None:  # fmt: skip
    src = operands[1]
    if isinstance(src, Tensor) and src.layout.memory == PSUM:
        require("psum_dma", version_of(session), "dma_copy")
    record(session, cls, operands, attributes, values, None, where, known)


def _reduce_finish(
    session: Session, cls: type[Instruction], operands: list[Any], attributes: tuple[Any, ...], *others: Any
) -> None:
    values, _, where, known = others
    # up to NKI 0.2 axis=1 is the last one (release notes of 0.3, bug fixes)
    place, version = list(cls.attributes).index("axis"), version_of(session)
    if version and order(version) < order("0.3") and attributes[place] in (1, (1,)):
        attributes, known = (*attributes[:place], (-1,), *attributes[place + 1 :]), None
    record(session, cls, operands, attributes, values, None, where, known)


def _surface(cls: type[Instruction]) -> Callable[..., Any]:
    finish = {DmaCopy: _dma_finish, TensorReduce: _reduce_finish}.get(cls)
    finish = rendezvous_finish if cls in RENDEZVOUS_CLASSES else finish
    finish = scaled_finish if cls.name in SCALED else matmul_finish if cls is NcMatmul else finish
    names = [name for name in cls.parameters if name not in HIDDEN]
    words = {n: _numbers(cls.attributes[n], kinds) for n, kinds in _ENUMERATED.items() if n in cls.attributes}
    return surface(cls, names, finish, extra={"name": None}, words=words, handle=NkiInstruction)


# Attributes that kernels also give by the number of a member, as the vendor's own library does.
_ENUMERATED: dict[str, type[Enum]] = {
    "dge_mode": dge_mode, "oob_mode": oob_mode, "reduce_cmd": reduce_cmd, "perf_mode": matmul_perf_mode,
    "engine": engine,
}  # fmt: skip


def _numbers(attribute: Attribute, members: type[Enum]) -> dict[Any, Any]:
    """Canonical values by number, of the members that an attribute allows."""
    values_of = {}
    for member in members:
        with suppress(NkilabError):
            values_of[member.value] = attribute.canonical(member.name, member)
    return values_of


@placed("get_nc_version")
def get_nc_version() -> nc_version:
    """The generation of the chip that the kernel runs on."""
    return nc_version(current().machine.generation)


@placed("get_nc_sub_version")
def get_nc_sub_version() -> int:
    """The revision of the chip: 0, the first one."""
    current()
    return 0


# a kernel uses few of them, and each takes a while to write
_SURFACES = {name: AtFirstUse(_surface, cls) for name, cls in REGISTRY.items() if cls.module == "isa"}

ISA: dict[str, Any] = {
    **_SURFACES,
    # 0.1: copies whose offset is known at run time only, which tensor_copy takes from its views
    **{f"tensor_copy_dynamic_{side}": _SURFACES["tensor_copy"] for side in ("src", "dst")},
    **ENUMS, "dma_engine": dma_engine,
    **{f"{e.name}_engine": e
       for e in (engine.tensor, engine.vector, engine.scalar, engine.gpsimd, engine.unknown)},
    "get_nc_version": get_nc_version, "get_nc_sub_version": get_nc_sub_version, **registers.ISA_NAMES,
    "NkiInstruction": NkiInstruction, "NkiValidationError": NkiValidationError,
}  # fmt: skip


# Modules beside these: names by module.
OTHER_MODULES: dict[str, dict[str, Any]] = {
    "nki.collectives": COLLECTIVES,
    "nki.dtype": {name: LANGUAGE[name] for name in (*DTYPES, "bool_")},
    "nki.tensor": TRACE_TIME,
    "nki.meta": {},
    "nki.meta.tensor": TRACE_TIME,
    "nki.compiler": {},
}


def names(version: str) -> dict[str, Any]:
    """The names of `nki` for one asked version."""

    @public
    def jit(fn: Any = None, mode: str = "auto", **kwargs: Any) -> Any:
        """Make a function a kernel; usable bare, with arguments, or as a call."""
        if kwargs.get("platform_target") is not None:
            try:
                require("platform_target", version, "nki.jit")
            except NkilabError as error:
                raise_typed(error)
        options = jit_options(mode, kwargs)
        if fn is None:
            return public(lambda f: _kernel(f, options))
        return _kernel(fn, options)

    def _kernel(function: Any, options: dict[str, Any]) -> Kernel:
        if isinstance(function, Kernel):
            return Kernel(
                function.function, SPELLING, version, {**function.options, **options}, function.grid
            )
        # what the first versions have in every kernel without an import; names of the user's come first
        for word, memory in MEMORY_NAMES.items():
            getattr(function, "__globals__", {}).setdefault(word, memory)
        return Kernel(function, SPELLING, version, options)

    @public
    def simulate(kernel: Any) -> Callable[..., Any]:
        """A function that runs a kernel on NumPy arrays or torch tensors."""
        simulated = kernel if isinstance(kernel, Kernel) else _kernel(kernel, {})

        @public
        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                check_precision()
                return ask().run(simulated, args, kwargs)
            except NkilabError as error:
                raise_typed(error)

        return run

    return {"jit": jit, "simulate": simulate}
