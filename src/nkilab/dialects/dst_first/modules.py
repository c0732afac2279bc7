"""The names of `nki`, `nki.language` and `nki.isa`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Any

from ...errors import NkilabError
from ...isa import REGISTRY
from ...isa.data_movement import DmaCopy
from ...isa.declare import Attribute, Instruction
from ...isa.reduction import TensorReduce
from ...isa.tensor_engine import NcMatmul
from ...tiles.dtypes import DTYPES
from ...tiles.tile import PSUM
from ...trace.builder import record
from ...trace.session import Known, Session, ask, current
from ...trace.source import Site
from ...tracebacks import public
from ..enums import dge_mode, dma_engine, engine, matmul_perf_mode, nc_version, oob_mode, reduce_cmd
from ..environment import check_precision
from ..gate import AtFirstUse
from ..generated_functions import surface
from ..history import order
from ..kernel import Kernel, NkiValidationError, jit_options, raise_typed
from ..places import placed
from ..rendezvous import RENDEZVOUS_CLASSES, rendezvous_finish
from ..versions import require, version_of
from . import registers
from .accumulation import matmul_finish
from .collectives import COLLECTIVES
from .constants import TRACE_TIME
from .creation import MEMORY_NAMES
from .language import LANGUAGE as LANGUAGE
from .objects import NkiInstruction
from .scales import HIDDEN, SCALED, scaled_finish
from .tensor import Tensor

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
    session: Session, cls: type[Instruction], operands: list[Any], attributes: tuple[Any, ...],
    values: tuple[Any, ...], extras: tuple[Any, ...], where: Site | None = None, known: Known | None = None,
) -> None:  # fmt: skip
    # up to NKI 0.2 axis=1 is the last one (release notes of 0.3, bug fixes)
    place, version = list(cls.attributes).index("axis"), version_of(session)
    if version and order(version) < order("0.3") and attributes[place] in (1, (1,)):
        attributes = (*attributes[:place], (-1,), *attributes[place + 1 :])
        known = None
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
    "engine": engine, "reduce_cmd": reduce_cmd, "dge_mode": dge_mode, "oob_mode": oob_mode,
    "nc_version": nc_version, "matmul_perf_mode": matmul_perf_mode, "dma_engine": dma_engine,
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
                return ask().simulate(simulated, args, kwargs)
            except NkilabError as error:
                raise_typed(error)

        return run

    return {"jit": jit, "simulate": simulate}
