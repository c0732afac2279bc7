"""Tensors of HBM in the layouts of a mapping: parts of their ranks as axes, in an order of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...errors import UnsupportedError
from ..artefacts.packing import sides
from ..language.spec import Placement, Spec
from ..tree.expr import ZERO, Expr, expr
from ..tree.nodes import HBM, Alloc, At, Buffer, Cut, Kernel, View, statements
from ..tree.rewrite import Change, copied
from ..written.ranks import Digit, Ranks


def laid_out(spec: Spec, kernel: Kernel) -> Kernel:
    """A tree whose tensors of HBM lie as a mapping places them; the same where all lie as declared.

    Args:
        spec: with all extents.
    """
    tensors = (*spec.cascade.inputs, *spec.cascade.outputs)
    every = sides(spec, spec.cascade, dict.fromkeys(tensors, "float32"), tensors)
    for tensor in (s.tensor for s in every if s.order != tuple(range(len(s.order)))):
        places = (p for p in spec.placements.values() if (p.tensor, p.component) == (tensor, "HBM"))
        kernel = _laid_out(spec, kernel, next(places))
    return kernel


def _laid_out(spec: Spec, kernel: Kernel, placed: Placement) -> Kernel:
    """A tree with one tensor in the layout of a place."""
    tensor, axes = placed.tensor, Ranks(spec).hbm_axes(placed)
    ranks, shape = spec.cascade.tensors[tensor].ranks, tuple(d.extent for d in axes)
    allocated = [s.buffer for s in statements(kernel.body) if isinstance(s, Alloc)]
    buffers = {
        id(b): replace(b, shape=shape, base=None) for b in allocated if (b.tensor, b.memory) == (tensor, HBM)
    }

    def view(declared: View) -> View:
        if (declared.buffer.tensor, declared.buffer.memory) != (tensor, HBM):
            return declared
        buffer = buffers.setdefault(id(declared.buffer), replace(declared.buffer, shape=shape, base=None))
        return _view(declared, buffer, ranks, axes)

    body = copied(kernel.body, Change({}, view, buffers))
    outputs = tuple(buffers.get(id(b), b) for b in kernel.outputs)
    arguments = tuple(replace(a, shape=shape) if a.name == tensor else a for a in kernel.arguments)
    return replace(kernel, arguments=arguments, body=body, outputs=outputs)


def _view(declared: View, buffer: Buffer, ranks: Sequence[str], axes: Sequence[Digit]) -> View:
    """A view of a tensor as declared, in its layout."""
    if declared.folded is not None or declared.is_turned:
        raise UnsupportedError(f"{buffer.tensor} in HBM is read in blocks that its layout cuts")
    first = len(declared.index) - len(ranks)  # axes of one in front
    index: list[At | Cut] = [At(ZERO)] * len(axes)
    cuts = [[-1]] * first  # which axes stand for each cut, the outermost first
    for rank, at in zip(ranks, declared.index[first:], strict=True):
        own = sorted((n for n, d in enumerate(axes) if d.base == rank), key=lambda n: -axes[n].stride)
        for n in own:
            index[n] = _along(axes[n], at, n == own[0])
        cuts += [[n for n in own if isinstance(index[n], Cut)]] if isinstance(at, Cut) else []
    lying = [-1] * first + [n for n, i in enumerate(index) if isinstance(i, Cut)]
    order: list[int | Expr] = []
    for place in declared.order or range(len(cuts)):
        order += [lying.index(n) for n in cuts[place]] if isinstance(place, int) else [place]
    is_plain = order == [*range(len(lying))]
    return replace(
        declared,
        buffer=buffer,
        index=(*declared.index[:first], *index),
        order=() if is_plain else tuple(order),
    )


def _along(digit: Digit, at: At | Cut, is_outer: bool) -> At | Cut:
    """The positions along a part of a rank, of those along all of it."""
    start, count = (at.start, at.count.value) if isinstance(at, Cut) else (at.at, 1)
    extent = expr(digit.extent).value or 1
    here = start // digit.stride if digit.stride > 1 else start
    if not is_outer:
        here = ZERO if start.divides(digit.stride * extent) else here % extent
    if count is None or (isinstance(at, Cut) and at.step != 1):
        raise UnsupportedError(f"parts of {digit.base} are read across their ends")
    if count <= digit.stride:
        return At(here) if isinstance(at, At) or digit.stride > 1 else Cut(here, expr(count))
    return Cut(here, expr(min(-(-count // digit.stride), extent)))
