"""The names of `nki`, `nki.language` and `nki.isa`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ...errors import NkilabError, RuleError, SpellingError, UseError
from ...isa import REGISTRY
from ...isa.activations import ACTIVATIONS
from ...isa.data_movement import DmaCopy
from ...isa.declare import Instruction
from ...isa.elementwise import Memset
from ...isa.operators import OPERATORS
from ...tiles.dtypes import DTYPES
from ...tiles.tile import PSUM
from ...trace.builder import record
from ...trace.session import Session, ask, current
from ...trace.source import place_of, user_frame
from .. import indexing, loops, programs
from ..calls import record_finish, surface
from ..enums import dge_mode, engine, matmul_perf_mode, nc_version, oob_mode, reduce_cmd
from ..kernel import Kernel, raise_typed
from ..places import placed
from ..tile_size import tile_size
from ..versions import require, version_of
from .tensor import REGIONS, Tensor, ndarray

SPELLING = "nki"


class Token:
    """An operator token: a word for `op=`; nki.language does not call it.

    Args:
        name: as in nki.language.
    """

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise SpellingError(
            f"nl.{self.name} is an operator token here, not a function",
            hint=f"use it as op=nl.{self.name} in nisa.tensor_tensor, tensor_scalar or activation",
            source="stubs of NKI 0.2",
        ).located(place_of(user_frame()), self.name)

    def __repr__(self) -> str:
        return f"nl.{self.name}"


def _dma_finish(
    session: Session,
    cls: type[Instruction],
    operands: list[Any],
    attributes: tuple[Any, ...],
    values: tuple[Any, ...],
    extras: tuple[Any, ...],
    unknown: dict[str, Any],
) -> None:
    src = operands[1]
    if isinstance(src, Tensor) and src.layout.memory == PSUM:
        require("psum_dma", version_of(session), "dma_copy")
    record(session, cls, operands, attributes, values)


def _surface(cls: type[Instruction]) -> Callable[..., Any]:
    finish = _dma_finish if cls is DmaCopy else record_finish
    return surface(cls, cls.parameters, finish, extra={"name": None})


ISA: dict[str, Any] = {
    **{name: _surface(cls) for name, cls in REGISTRY.items()},
    "engine": engine, "reduce_cmd": reduce_cmd, "dge_mode": dge_mode, "oob_mode": oob_mode,
    "nc_version": nc_version, "matmul_perf_mode": matmul_perf_mode,
    **{f"{e.name}_engine": e
       for e in (engine.tensor, engine.vector, engine.scalar, engine.gpsimd, engine.unknown)},
    "get_nc_version": lambda: nc_version(current().machine.generation),
}  # fmt: skip


def zeros(shape: Any, dtype: Any, buffer: Any = None, name: str = "") -> Tensor:
    """A tile of zeros; see `ndarray` for the arguments."""
    tensor = ndarray(shape, dtype, buffer, name)
    if not tensor.layout.is_on_chip:
        raise RuleError(
            "an HBM tensor cannot be created with a value",
            hint="create it with nl.ndarray and copy a tile to it",
            key="err_hbm_tensor_with_init_value_not_supported",
        ).located(place_of(user_frame()), "zeros")  # fmt: skip
    record(current(), Memset, [tensor], ("unknown",), (0,))
    return tensor


@placed("device_print")
def device_print(print_prefix: str, tensor: Any) -> None:
    """Print a tensor to standard output, after a prefix."""
    if not isinstance(tensor, Tensor):
        raise UseError(f"tensor is of type {type(tensor).__name__}; it is a tensor of the kernel")
    if current().has_data:
        print(f"{print_prefix}{np.array(tensor)}")


@placed("par_dim")
def par_dim(extent: Any) -> int:
    """The extent itself: the first axis is the partition axis here."""
    ask().notice("nl.par_dim: nki takes the first axis as the partition; the mark has no effect")
    return indexing.whole_number(extent, "extent")


_TOKENS = {*OPERATORS, *(n for n, f in ACTIVATIONS.items() if f.is_documented)}

LANGUAGE: dict[str, Any] = {
    **{("bool_" if n == "bool" else n): n for n in DTYPES},
    **{n: Token(n) for n in sorted(_TOKENS)},
    **{n: Token(o) for n, o in {"max": "maximum", "min": "minimum"}.items()},
    **REGIONS,
    "ndarray": ndarray, "zeros": zeros, "ds": indexing.ds, "device_print": device_print, "par_dim": par_dim,
    "affine_range": loops.affine_range, "sequential_range": loops.sequential_range,
    "static_range": loops.static_range, "program_id": programs.program_id,
    "num_programs": programs.num_programs, "program_ndim": programs.program_ndim, "tile_size": tile_size,
}  # fmt: skip


def names(version: str) -> dict[str, Any]:
    """The names of `nki` for one asked version."""

    def jit(fn: Any = None, mode: str = "auto", **kwargs: Any) -> Any:
        """Make a function a kernel; usable bare, with arguments, or as a call."""
        if kwargs.get("platform_target") is not None:
            try:
                require("platform_target", version, "nki.jit")
            except NkilabError as error:
                raise_typed(error)
        options = {"mode": mode, **kwargs}
        if fn is None:
            return lambda f: _kernel(f, options)
        return _kernel(fn, options)

    def _kernel(function: Any, options: dict[str, Any]) -> Kernel:
        if isinstance(function, Kernel):
            return Kernel(
                function.function, SPELLING, version, {**function.options, **options}, function.grid
            )
        return Kernel(function, SPELLING, version, options)

    def simulate(kernel: Any) -> Callable[..., Any]:
        """A function that runs a kernel on NumPy arrays or torch tensors."""
        try:
            require("simulate", version, "nki.simulate")
        except NkilabError as error:
            raise_typed(error)
        held = kernel if isinstance(kernel, Kernel) else _kernel(kernel, {})

        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                return ask().simulate(held, args, kwargs)
            except NkilabError as error:
                raise_typed(error)

        return run

    def _gone(name: str) -> Callable[..., NoReturn]:
        def refused(*args: Any, **kwargs: Any) -> NoReturn:
            # Beta 1 has the name, but in neuronxcc.nki; 0.1 is the first version of this spelling
            try:
                require(name, "0.6" if version in ("", "beta1") else version, f"nki.{name}")
            except NkilabError as error:
                raise_typed(error)
            raise AssertionError(f"{name} is accepted by {version}")

        return refused

    return {"jit": jit, "simulate": simulate, "tensor": Tensor,
            **{n: _gone(n) for n in ("simulate_kernel", "baremetal", "benchmark", "profile")}}  # fmt: skip
