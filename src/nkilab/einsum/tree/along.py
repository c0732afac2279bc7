"""Which axes of a statement's operands go together, and where the positions of one lie in each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import TypeVar

from . import nodes
from .expr import ZERO, Expr, Whole, expr
from .nodes import HBM, At, Buffer, Cut, MatMul, Reduce, Statement, Transpose, View

Kept = TypeVar("Kept")

# operands whose elements a statement goes through one by one, and those with one number per partition
DATA = ("dst", "src", "left", "right", "truth")
COLUMNS = ("operand0", "operand1", "scale", "bias", "total", "otherwise")
ELEMENTWISE = (
    nodes.Copy, nodes.Fill, nodes.Combine, nodes.Scale, nodes.ScaleCombine, nodes.Activate, nodes.Invert,
    nodes.Select, nodes.Choose, nodes.Load, nodes.Store, nodes.Move,
)  # fmt: skip


def windowed(buffer: Buffer) -> Buffer:
    """What a buffer has windows of; itself if it has its own elements."""
    return buffer.base if buffer.window and buffer.base else buffer


def strides(buffer: Buffer) -> list[Expr]:
    """Elements between neighbours along each axis."""
    if buffer.window:
        steps = strides(windowed(buffer))
        return [sum((s * c for s, c in zip(steps, row, strict=True)), ZERO) for row in buffer.window]
    steps, step = [], expr(1)
    for extent in reversed(buffer.shape):
        steps.append(step)
        step = step * extent
    return steps[::-1]


def axes_of(view: View) -> list[tuple[Expr, Expr]]:
    """Step and count along each axis of a view, as it is turned, ordered, repeated or seen in blocks."""
    steps = strides(view.buffer)
    steps = [ZERO] * (len(view.index) - len(steps)) + steps
    own = [(s, i) for s, i in zip(steps, view.index, strict=True) if isinstance(i, Cut)]
    axes = [(s * cut.step, cut.count) for s, i in own for cut in i.axes]
    # a number alone is repeated as a row of one
    axes = axes if axes or view.repeat is None else [(expr(1), expr(1))]

    def folded(axis: tuple[Expr, Expr], rows: Whole) -> list[tuple[Expr, Expr]]:
        return [(axis[0], expr(rows)), (axis[0] * rows, axis[1] // rows)]

    return in_order(view, axes, folded, lambda count: (ZERO, count))


def in_order(
    view: View, cuts: Sequence[Kept], folded: Callable[[Kept, Whole], Sequence[Kept]],
    repeated: Callable[[Expr], Kept],
) -> list[Kept]:  # fmt: skip
    """What is known of the axes of a view, as it is seen in blocks, ordered, turned and repeated.

    Args:
        cuts: of its cut axes, as they lie.
        folded: of an axis that is seen in blocks of so many partitions: of the partitions, and of the blocks.
        repeated: of an axis along which all is repeated so often.
    """
    axes = list(cuts)
    if view.folded is not None:
        axis, rows = view.folded
        axes[:0] = folded(axes.pop(sum(isinstance(i, Cut) for i in view.index[:axis])), rows)
    if view.order:
        axes = [axes[n] if isinstance(n, int) else repeated(n) for n in view.order]
    axes = axes[::-1] if view.is_turned else axes
    return axes if view.repeat is None else [repeated(view.repeat), *axes]


@dataclass(frozen=True)
class Along:
    """Where the positions of an axis lie in a buffer."""

    axis: int | None  # that has them one by one, or their blocks; None where the partitions alone have them
    lanes: int  # positions of a block, which lie on the partitions; 0 where none do
    base: Expr  # the first position that the buffer has

    def start(self, view: View) -> Expr:
        """The first position that a view has."""
        first = view.index[self.axis or 0]
        at = first.start if isinstance(first, Cut) else first.at
        return self.base + at * (self.lanes if self.lanes and self.axis is not None else 1)

    def count(self, view: View) -> Expr:
        """How many positions a view has."""
        index = view.index[self.axis or 0]
        if self.lanes and self.axis is not None:
            if isinstance(index, Cut):
                return index.count * self.lanes
            index = view.index[0]
        return index.count if isinstance(index, Cut) else expr(1)

    def part(self, view: View, moved: Expr, count: Expr) -> View:
        """A view of so many positions, which begin so much later."""
        index, at = list(view.index), self.axis or 0
        old, step = index[at], self.lanes if self.axis is not None else 0
        if not step:
            assert isinstance(old, Cut)
            index[at] = Cut(old.start if self.lanes else old.start + moved, count)
        elif isinstance(old, At):
            index[at] = At(old.at + moved // step)
        else:
            index[at] = Cut(old.start + moved // step, floored(count, step))
        return replace(view, index=tuple(index))


def floored(value: Expr, divisor: int) -> Expr:
    """The quotient of an expression and a number, taken apart as far as it can be."""
    whole = Expr(tuple((f, c // divisor) for f, c in value.terms if c % divisor == 0))
    rest = Expr(tuple((f, c) for f, c in value.terms if c % divisor))
    named = [abs(c) for f, c in rest.terms if f]
    if not named:
        return whole + (rest.value or 0) // divisor
    common = gcd(*named, divisor)
    terms = sum((Expr(((f, c // common),)) for f, c in rest.terms if f), ZERO)
    return whole + (terms + sum(c for f, c in rest.terms if not f) // common) // (divisor // common)


def seen(view: View) -> list[int | None]:
    """The axes of a view's index in the order of what a statement does; None for repetitions."""
    axes: list[int | None] = [n for n, i in enumerate(view.index) if isinstance(i, Cut) for _ in i.axes]
    return in_order(view, axes, lambda axis, _: [axis, axis], lambda _: None)


def wide(view: View) -> list[int | None]:
    """Those of more than one position."""
    cuts = view.index
    return [n for n in seen(view) if n is None or getattr(cuts[n], "count", ZERO).value != 1]


def together(s: Statement) -> Iterator[dict[str, int | None]]:
    """Axes of operands, by the names of these, that a statement goes through together."""
    if isinstance(s, MatMul):
        dst, still, moving = seen(s.dst), seen(s.stationary), seen(s.moving)
        yield {"stationary": still[0], "moving": moving[0]}
        yield {"dst": dst[0], "stationary": still[-1]}
        if len(dst) == len(moving):
            yield from ({"dst": d, "moving": m} for d, m in zip(dst[1:], moving[1:], strict=True))
    elif isinstance(s, Transpose):
        yield from ({"dst": d, "src": n} for d, n in zip(wide(s.dst)[::-1], wide(s.src), strict=True))
    elif isinstance(s, Reduce):
        yield {"dst": 0, "src": 0}
    elif isinstance(s, ELEMENTWISE):
        views = {n: v for n in DATA if isinstance(v := getattr(s, n, None), View)}
        axes = [wide(v) for v in views.values()]
        if len({*map(len, axes)}) == 1:
            yield from (dict(zip(views, own, strict=True)) for own in zip(*axes, strict=True))
        yield {n: 0 for n in (*COLUMNS, "dst") if isinstance(getattr(s, n, None), View)}


def partners(s: Statement, name: str, own: Along, view: View) -> Iterator[tuple[str, list[Along]]]:
    """Other operands that go along with the positions of one, with where these may lie in each."""
    every, start = list(together(s)), own.start(view)
    blocks = next((d for d in every if own.lanes and d.get(name, -1) == own.axis), {})
    matching = (d for d in every if d.get(name, -1) == (0 if own.lanes else own.axis))
    for other, axis in ((n, a) for d in matching for n, a in d.items() if n != name and a is not None):
        places = _places(getattr(s, other), axis, own.lanes, blocks.get(other))
        yield other, [Along(o.axis, o.lanes, start - o.start(getattr(s, other))) for o in places]


def _places(view: View, axis: int, lanes: int, blocks: int | None) -> list[Along]:
    """Where positions along an axis of a view may lie: one by one, or on its partitions in blocks."""
    if view.buffer.memory == HBM or axis:
        return [Along(axis, 0, ZERO)]
    lanes = lanes or expr(view.buffer.shape[0]).value or 0
    points = [n for n, i in enumerate(view.index) if isinstance(i, At)]
    return [Along(place, lanes, ZERO) for place in ([blocks] if blocks is not None else [*points, None])]
