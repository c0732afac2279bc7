"""Transfers between tensors of Beta 1, both given: nl.store and nisa.dma_copy."""

from __future__ import annotations

from typing import Any

from ...errors import NkilabError, UseError
from ...isa.data_movement import DmaCopy
from ...trace.builder import record
from ...trace.session import Session
from ...trace.source import place_of, user_frame
from .grids import box_of
from .subscripts import cropped, inside_bounds
from .tensor import Tensor


def dma_attributes(**options: Any) -> tuple[Any, ...]:
    """Attributes of a dma_copy, canonical: those given, the others as declared.

    Raises:
        RuleError: if a word given is none of those allowed.
    """
    return tuple(a.canonical(n, options.get(n, a.default)) for n, a in DmaCopy.attributes.items())


PLAIN_DMA = dma_attributes()


def copy_row(session: Session, dst: Any, src: Any, mask: Any, attributes: tuple[Any, ...]) -> None:
    """Append a dma_copy; a mask over the larger rank crops both sides.

    Raises:
        UseError: if one of them is no tensor, or reaches outside what the mask lets through.
    """
    try:
        sides = _cropped(dst, src, mask)
    except NkilabError as error:
        raise error.located(place_of(user_frame()), "dma_copy") from None
    if sides is not None:
        dst, src, rest = sides
        record(session, DmaCopy, [dst, src], attributes, (), rest)


def _cropped(dst: Any, src: Any, mask: Any) -> tuple[Any, Any, Any] | None:
    """Both sides where a mask lets something through, and what of it is no rectangle; None if nothing is."""
    for name, side in (("dst", dst), ("src", src)):
        if not isinstance(side, Tensor):
            raise UseError(f"{name} is of type {type(side).__name__}; it must be a tensor")
    if mask is None:
        return inside_bounds(dst), inside_bounds(src), None
    box, rest = box_of(mask, dst.shape if len(dst.shape) >= len(src.shape) else src.shape)
    if box is None:
        return None
    dst, src = _crop_side(dst, box), _crop_side(src, box)
    return inside_bounds(dst), inside_bounds(src), rest


def _crop_side(side: Tensor, box: tuple[slice, ...]) -> Tensor:
    fitted = box if len(side.shape) == len(box) else box[: len(side.shape)]
    return cropped(side, tuple(b if n != 1 else slice(0, 1) for b, n in zip(fitted, side.shape)))
