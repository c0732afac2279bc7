"""Functions of Beta 1 over program instances and hardware queues, and those that nkilab does not model."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ...errors import RuleError, UnsupportedError, UseError
from ...isa.between_cores import CoreBarrier, Sendrecv
from ...isa.declare import Instruction
from ...isa.elementwise import TensorCopy, TensorScalar, TensorTensor
from ...isa.operators import OPERATORS, operator_named
from ...tiles.dtypes import FLOAT32, as_dtype
from ...tiles.tile import SBUF
from ...trace.session import TURNS, Session, TurnsNeeded, ask, current
from ...trace.source import Site
from ..generated_functions import surface
from ..history import BETA1
from ..indexing import whole_number
from ..places import placed
from ..program_ids import num_programs
from ..rendezvous import rendezvous_finish
from .creation import ndarray, sbuf
from .functions import load, store, whole_tile
from .tensor import Tensor, fresh, settled
from .transfers import PLAIN_DMA, copy_row


def all_reduce(
    x: Any, op: Any, program_axes: Any, *, dtype: Any = None, mask: Any = None,
    parallel_reduce: bool = True, asynchronous: bool = False,
) -> Tensor:  # fmt: skip
    """A tile reduced over the program instances along axes of the grid, in their order, in float32.

    Instances on two cores are reduced on each core, then the two sums, which the cores exchange.

    Raises:
        RuleError: if op may not reduce.
    """
    operator = operator_named(op)
    if not operator.reduces:
        raise RuleError(f"op is {operator}; it may not reduce")
    for word, is_usual in (("parallel_reduce", parallel_reduce), ("asynchronous", not asynchronous)):
        if not is_usual:
            ask().notice(f"nl.all_reduce ignores {word}: the instances take turns, and the result is there")
    axes = program_axes if isinstance(program_axes, tuple | list) else (program_axes,)
    axes = tuple(sorted({whole_number(a, "a program axis") for a in axes}))
    session, tile = current(), whole_tile(x)
    element_type = tile.layout.dtype if dtype is None else as_dtype(dtype)
    if any(num_programs(a) > 1 for a in axes):
        tile = _over_instances(session, tile, operator, axes)
    return fresh(
        session, TensorCopy, [None, tile], ("unknown",), (), dtype=element_type, mask=mask, memory=SBUF
    )


def _over_instances(session: Session, tile: Tensor, operator: Any, axes: tuple[int, ...]) -> Tensor:
    """The tiles of all instances along some axes of the grid, reduced in their order, core by core."""
    turns = session.keyed.get(TURNS)
    if turns is None:
        raise TurnsNeeded
    # what the others read stays as it is now
    kept = settled(fresh(session, TensorCopy, [None, tile], ("unknown",), (), memory=SBUF))
    what = f"all_reduce of {kept.layout} with {operator} over program axes {list(axes)}"
    number, (total, *others) = turns(kept, axes, what)
    for other in others:
        total = _both(session, total, other, operator, tile)
    if 1 + len(others) == prod(num_programs(axis) for axis in axes):
        return total
    theirs, partner = ndarray(total.shape, total.dtype, buffer=sbuf), 1 - session.rank
    values = (partner, partner, f"{number} of {what}")
    rendezvous_finish(session, Sendrecv, [total, theirs], ("dma",), values, ())
    first, second = (theirs, total) if session.rank else (total, theirs)
    return _both(session, first, second, operator, tile)


def _both(session: Session, first: Tensor, second: Tensor, operator: Any, tile: Tensor) -> Tensor:
    dtype = tile.layout.dtype if operator.is_bitvec else FLOAT32
    parts = [None, first, second]
    return settled(fresh(session, TensorTensor, parts, (operator, "unknown"), (), dtype=dtype, memory=SBUF))


@placed("_tiled_offloaded_memcpy")
def tiled_offloaded_memcpy(src: Any, dst: Any, dtype: Any = None) -> None:
    """Copy src to dst by DMA; both have one shape, and the type of dst is the result's.

    Raises:
        RuleError: if the shapes differ.
    """
    _same_shape(src, dst)
    if dtype is not None and as_dtype(dtype) is not dst.layout.dtype:
        raise RuleError(f"dtype is {as_dtype(dtype)}; dst holds {dst.layout.dtype}")
    copy_row(current(), settled(dst), settled(src), None, PLAIN_DMA)


def _same_shape(src: Any, dst: Any) -> None:
    for name, side in (("src", src), ("dst", dst)):
        if not isinstance(side, Tensor):
            raise UseError(f"{name} is of type {type(side).__name__}; it must be a tensor")
    if src.shape != dst.shape:
        raise RuleError(f"src is {list(src.shape)} and dst {list(dst.shape)}; they must have one shape")


@placed("_tiled_offloaded_fma")
def tiled_offloaded_fma(*srcs: Any, scales: Any, dst: Any) -> None:
    """dst = scales[0] * srcs[0] + scales[1] * srcs[1] + ..., HBM tensors of one shape, in float32.

    The hardware adds while it moves; here each tile passes through SBUF.

    Raises:
        RuleError: if the shapes differ, or there is not one scale for each source.
    """
    tensors = list(srcs[0]) if len(srcs) == 1 and isinstance(srcs[0], list | tuple) else list(srcs)
    if len(scales) != len(tensors):
        raise RuleError(f"there are {len(tensors)} sources and {len(scales)} scales; each source has one")
    for tensor in tensors:
        _same_shape(tensor, dst)
    most = current().machine.limit("partitions")
    flat = [_rows(t) for t in (*tensors, dst)]
    for start in range(0, flat[-1].shape[0], most):
        tiles = [t[start : min(start + most, t.shape[0])] for t in flat]
        store(tiles[-1], _weighted_sum(tiles[:-1], scales))


def _rows(tensor: Tensor) -> Tensor:
    """An HBM tensor as [rows, elements]; one axis becomes a column."""
    if len(tensor.shape) == 2:
        return tensor
    return tensor.reshape((-1, tensor.shape[-1] if len(tensor.shape) > 1 else 1))


def _weighted_sum(tiles: list[Tensor], scales: Any) -> Tensor:
    session = current()
    total: Tensor | None = None
    for tile, scale in zip(tiles, scales, strict=True):
        times = (OPERATORS["multiply"], False, None, False, "unknown")
        part = settled(load(tile, dtype=np.float32))
        if scale != 1:
            part = settled(fresh(session, TensorScalar, [None, part, float(scale), None], times, ()))
        if total is not None:
            plus = (OPERATORS["add"], "unknown")
            part = settled(fresh(session, TensorTensor, [None, total, part], plus, (), dtype=FLOAT32))
        total = part
    assert total is not None
    return total


def _unmodelled(name: str, reason: str, hint: str = "") -> Callable[..., Any]:
    @placed(name)
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError(f"{name} {reason}", hint=hint)

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Refused: {name} {reason}."
    return refuse


builtin_custom_op = _unmodelled(
    "builtin_custom_op", "runs compiled code of the vendor's, which nkilab does not have",
    "write the operation with instructions of nki.isa",
)  # fmt: skip


def _rendezvous(
    session: Session, cls: type[Instruction], operands: list[Any], attributes: tuple[Any, ...],
    values: tuple[Any, ...], extras: tuple[Any, ...], where: Site | None = None,
) -> None:  # fmt: skip
    """What a call does at which the programs of several cores meet."""
    tiles = [whole_tile(o) if isinstance(o, Tensor) else o for o in operands]
    rendezvous_finish(session, cls, tiles, attributes, values, extras, where)


_WHOLE = "is a kernel of the vendor's whose source is not public"
# What public kernels import from `nki._private.private_api`, and why it does not run here.
PRIVATE: dict[str, Any] = {
    # as `nki` spells them from 0.1 on, where they are public
    "sendrecv": surface(
        Sendrecv, ("src", "dst", "send_to_rank", "recv_from_rank", "pipe_id"), _rendezvous, version=BETA1
    ),
    "core_barrier": surface(CoreBarrier, ("data", "cores", "engine"), _rendezvous, version=BETA1),
    "cc_div": _unmodelled("cc_div", "has no published meaning"),
    "do_while": _unmodelled(
        "do_while", "has no published meaning", "write a loop over nki.typing.scalar instead"
    ),
    **{
        name: _unmodelled(name, _WHOLE)
        for name in (
            "attention_kernel", "column_tiled_mm_kernel", "mlp_fused_add_kernel", "mlp_kernel",
            "qkv_fused_add_kernel", "qkv_kernel", "row_tiled_mm_kernel",
        )
    },
}  # fmt: skip
COLLECTIVES: dict[str, Any] = {
    name: _unmodelled(
        f"nccl.{name}", "has no published meaning", f"write the kernel for nki, with nki.collectives.{name}"
    )
    for name in ("all_gather", "all_reduce", "all_to_all", "collective_permute", "reduce_scatter")
}
