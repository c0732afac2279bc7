"""Copies and sums of Beta 1 at addresses that are known when the kernel runs."""

from __future__ import annotations

from typing import Any

from ...errors import RuleError
from ...isa.elementwise import TensorCopy
from ...tiles.dtypes import as_dtype
from ...tiles.tile import SBUF
from ...tiles.views import broadcast
from ...trace.builder import record
from ...trace.session import current
from ..enums import engine as engines
from ..places import placed
from .functions import filled, hbm_side, inside_or_masked, tile_of
from .grids import box_of
from .subscripts import cropped, inside_bounds
from .tensor import Tensor, fresh, settled
from .transfers import copy_row, dma_attributes

FIXED = "is not indexed with a tile"


def _engine(value: Any) -> tuple[Any, ...]:
    declared = TensorCopy.attributes
    return tuple(a.canonical(n, value if n == "engine" else a.default) for n, a in declared.items())


@placed("tensor_copy_dynamic_src", "isa.tensor_copy_dynamic_src")
def tensor_copy_dynamic_src(
    src: Any, *, mask: Any = None, dtype: Any = None, engine: Any = engines.unknown
) -> Tensor:
    """A copy of a part of a tile, at an offset within each partition that another tile's element gives.

    Raises:
        RuleError: if src is not indexed with a tile.
    """
    tile = inside_or_masked(settled(src) if isinstance(src, Tensor) else tile_of(src), mask)
    if not isinstance(tile, Tensor) or not tile.indices:
        raise RuleError(
            f"src {FIXED}", hint="copy it with nisa.tensor_copy", source="nki.isa.tensor_copy_dynamic_src"
        )
    element_type = None if dtype is None else as_dtype(dtype)
    operands = [None, tile]
    return fresh(
        current(), TensorCopy, operands, _engine(engine), (), dtype=element_type, mask=mask, memory=SBUF,
        takes_indices=True,
    )  # fmt: skip


@placed("tensor_copy_dynamic_dst", "isa.tensor_copy_dynamic_dst")
def tensor_copy_dynamic_dst(
    *, dst: Any, src: Any, mask: Any = None, dtype: Any = None, engine: Any = engines.unknown
) -> None:
    """Copy a tile to a part of another, at an offset within each partition that a tile's element gives.

    Raises:
        RuleError: if dst is not indexed with a tile, or dtype is not its type.
    """
    target, source = tile_of(dst), tile_of(src)
    if not isinstance(target, Tensor) or not target.indices:
        raise RuleError(
            f"dst {FIXED}", hint="copy to it with nisa.tensor_copy", source="nki.isa.tensor_copy_dynamic_dst"
        )
    if dtype is not None and as_dtype(dtype) is not target.layout.dtype:
        raise RuleError(f"dtype is {as_dtype(dtype)}; dst holds {target.layout.dtype}")
    rest = None
    if mask is not None:
        box, rest = box_of(mask, target.shape)
        if box is None:
            return
        target, source = cropped(target, box), cropped(source, box)
    record(current(), TensorCopy, [target, inside_bounds(source)], _engine(engine), (), rest)


def atomic_rmw(dst: Any, value: Any, op: Any, *, mask: Any = None) -> None:
    """dst = op(dst, value) in HBM, at rows that a tile of indices chooses; op adds.

    Raises:
        RuleError: if dst is not indexed with a tile, or op is not add.
    """
    session = current()
    attributes = dma_attributes(dst_rmw_op=op)
    target, tile = hbm_side("dst", "atomic_rmw", dst), tile_of(value)
    if not target.indices:
        raise RuleError(
            f"dst {FIXED}", hint="index its rows: dst[idx_tile, i_f]", source="nki.language.atomic_rmw"
        )
    if not isinstance(tile, Tensor):
        tile = filled(session, tile, target.layout.dtype, target.shape)
    if tile.layout.size < target.layout.size:
        tile = broadcast(inside_or_masked(tile, mask), target.shape)
    copy_row(session, target, tile, mask, attributes)
