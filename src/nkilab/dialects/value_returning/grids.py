"""Index grids of Beta 1: affine index expressions, and the masks that comparing them gives.

An index is start + sum of step_d * i_d over the axes of its broadcast shape, so a tensor indexed with
grids is a strided view. Loop variables and program ids are plain integers here.
"""

from __future__ import annotations

from functools import partialmethod
from typing import Any, NoReturn

import numpy as np

from ...errors import NkilabNote, UnsupportedError, UseError
from ...tiles.tile import View
from ...trace.affine import Affine, OfIndices
from ...trace.session import current
from ...trace.source import place_of, user_frame
from ..indexing import whole_number
from ..places import placed
from ..tile_size import tile_size
from .syntax import asked_in, span_of


def common_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that index grids broadcast to together.

    Raises:
        UseError: if they do not.
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = " and ".join(str(list(s)) for s in shapes)
        raise UseError(
            f"index grids of shapes {listed} do not broadcast",
            hint="place their axes with None: i[:, None], j[None, :]",
        ) from None


# a tuple: a union written where it is asked for is made anew each time
_INTEGERS = (int, np.integer)


class Index(OfIndices):
    """An affine index grid.

    Args:
        shape: its axes, each either one or the size of a range.
        start: value at the origin.
        steps: change of the value along each axis.
    """

    __slots__ = ("shape", "start", "steps")
    __array_ufunc__ = None

    def __init__(self, shape: tuple[int, ...], start: int | Affine, steps: tuple[int, ...]) -> None:
        self.shape = shape
        self.start = start
        self.steps = steps

    @placed("index grid")
    def __getitem__(self, key: Any) -> Index:
        """Place the axes of the grid among new axes of one, by None and full slices."""
        key = key if isinstance(key, tuple) else (key,)
        shape: list[int] = []
        steps: list[int] = []
        axis = 0
        for subscript in key:
            if subscript is None:
                shape.append(1)
                steps.append(0)
            elif isinstance(subscript, slice) and subscript == slice(None) and axis < len(self.shape):
                shape.append(self.shape[axis])
                steps.append(self.steps[axis])
                axis += 1
            else:
                raise UseError(
                    "an index grid takes None and full slices as subscripts: nl.arange(n)[:, None]"
                )
        return Index((*shape, *self.shape[axis:]), self.start, (*steps, *self.steps[axis:]))

    @placed("index grid")
    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise UseError(
            "an index grid cannot be assigned to", hint="write it to a tile with nki.isa.iota",
            key="err_cannot_assign_to_index",
        )  # fmt: skip

    @placed("bool")
    def __bool__(self) -> bool:
        raise UseError(
            "the truth of an index grid is not defined", hint="use mask=",
            key="err_control_flow_condition_depending_on_arange",
        )  # fmt: skip

    @placed("index grid")
    def _combined(self, other: Any, sign: int) -> Any:
        if isinstance(other, Index):
            shape = common_shape(self.shape, other.shape)
            mine, theirs = aligned_steps(self, shape), aligned_steps(other, shape)
            steps = tuple(a + sign * b for a, b in zip(mine, theirs, strict=True))
            return Index(shape, self.start + sign * other.start, steps)
        if isinstance(other, _INTEGERS):
            return Index(self.shape, self.start + sign * _plain(other), self.steps)
        return NotImplemented

    def __add__(self, other: Any) -> Any:
        return self._combined(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._combined(other, -1)

    def __rsub__(self, other: Any) -> Any:
        return (self * -1) + other

    def __neg__(self) -> Index:
        return self * -1

    @placed("index grid")
    def __mul__(self, other: Any) -> Any:
        if isinstance(other, _INTEGERS):
            factor = _plain(other)
            return Index(self.shape, self.start * factor, tuple(s * factor for s in self.steps))
        if isinstance(other, Index):
            raise UnsupportedError(
                "the product of two index grids is not affine", hint="write it to a tile with nki.isa.iota"
            )
        return NotImplemented

    __rmul__ = __mul__

    @placed("index grid")
    def __floordiv__(self, other: Any) -> Index:
        return self * 0 + self._quotient(other)

    @placed("index grid")
    def __mod__(self, other: Any) -> Index:
        return self - self._quotient(other) * other

    def _quotient(self, other: Any) -> int:
        """The quotient by a number above 0, where it is one for all indices: it is affine then alone."""
        ends = [s * (size - 1) for size, s in zip(self.shape, self.steps, strict=True)]
        low, high = (self.start + sum(pick(end, 0) for end in ends) for pick in (min, max))
        if isinstance(other, _INTEGERS) and other > 0 and low // other == high // other:
            return int(low // other)
        raise UnsupportedError(
            "// and % of an index grid are not affine", hint="split the range so that each part is affine",
            key="err_unsupported_expression_in_mask",
        )  # fmt: skip

    def values(self) -> np.ndarray:
        """The indices themselves, of `shape`."""
        ndim = len(self.shape)
        total = np.full((1,) * ndim, self.start, np.int64)
        for axis, (size, step) in enumerate(zip(self.shape, self.steps, strict=True)):
            if step:
                total = total + (np.arange(size) * step).reshape(
                    [-1 if a == axis else 1 for a in range(ndim)]
                )
        return np.broadcast_to(total, self.shape)

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest index."""
        reach = [(n - 1) * s for n, s in zip(self.shape, self.steps, strict=True)]
        return self.start + sum(min(r, 0) for r in reach), self.start + sum(max(r, 0) for r in reach)

    @placed("index grid")
    def _compared(self, other: Any, compare: Any) -> Any:
        if isinstance(other, Index):
            common_shape(self.shape, other.shape)
        elif not isinstance(other, _INTEGERS):
            return NotImplemented
        difference = self - other
        return Mask(_truths(difference, compare), difference, compare.__name__)

    __lt__ = partialmethod(_compared, compare=np.less)
    __le__ = partialmethod(_compared, compare=np.less_equal)
    __gt__ = partialmethod(_compared, compare=np.greater)
    __ge__ = partialmethod(_compared, compare=np.greater_equal)

    def __eq__(self, other: Any) -> Any:
        return self._compared(other, np.equal)

    def __ne__(self, other: Any) -> Any:
        return self._compared(other, np.not_equal)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        terms = [f"{s}*i{a}" for a, s in enumerate(self.steps) if s]
        return f"index[{', '.join(map(str, self.shape))}]: {' + '.join([str(self.start), *terms])}"


def _plain(number: Any) -> Any:
    return number if type(number) is Affine else int(number)


def _truths(difference: Index, compare: Any) -> np.ndarray:
    """Where a difference compares true with 0: the same in all iterations that its start stands for."""
    start = difference.start
    if type(start) is not Affine:
        return compare(difference.values(), 0)

    def truths(at: int) -> np.ndarray:
        return compare(Index(difference.shape, at, difference.steps).values(), 0)

    # equality may hold between two values of which it holds for neither
    is_ordered = compare not in (np.equal, np.not_equal)
    start.narrow(lambda low, high: low == high or (is_ordered and bool((truths(low) == truths(high)).all())))
    return truths(start.value)


class RunTimeNumber:
    """A number that is known only when the kernel runs. Abstract: `scalars.Scalar` is the one kind."""


class Mask:
    """Where an instruction reads and writes: a boolean array over index grids.

    Args:
        where: the booleans.
        difference: left minus right side, if it is a single comparison.
        comparison: name of that comparison with 0, as in nki.language.
    """

    __slots__ = ("comparison", "difference", "where")
    __array_ufunc__ = None

    def __init__(self, where: np.ndarray, difference: Index | None = None, comparison: str = "") -> None:
        self.where = where
        self.difference = difference
        self.comparison = comparison

    @placed("mask")
    def __and__(self, other: Any) -> Mask:
        if isinstance(other, bool | np.bool_):
            # a comparison of loop variables alone, which are integers here
            return Mask(self.where & other)
        if not isinstance(other, Mask):
            return NotImplemented
        common_shape(self.where.shape, other.where.shape)
        return Mask(self.where & other.where)

    __rand__ = __and__

    @placed("mask")
    def _not_joined(self, *others: Any) -> NoReturn:
        raise UseError(
            "masks are joined with & alone", hint="make one call for each mask, or choose with nl.where",
            key="err_unsupported_expression_in_mask",
        )  # fmt: skip

    __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _not_joined

    @placed("bool")
    def __bool__(self) -> bool:
        """True as an operand of `and` in `mask=`, where `box_of` joins it to the last operand.

        Raises:
            UseError: anywhere else.
        """
        asked = asked_in(user_frame())
        if asked.by != "mask":
            raise UseError(
                "the truth of a mask is not defined", hint="join masks with & and pass them as mask=",
                key="err_control_flow_condition_depending_on_arange",
            )  # fmt: skip
        session = current()
        session.keyed.setdefault(("and", asked.code), {}).setdefault(asked.span, {})[asked.at] = self
        session.where = (asked.code.co_filename, asked.span[0] or 0)
        message = "mask= joins masks with `and`, which Python does not define; read as &, write &"
        session.warn(message, category=NkilabNote)
        return True

    def box(self, shape: tuple[int, ...]) -> tuple[tuple[slice, ...] | None, np.ndarray | None]:
        """The rectangle of `shape` that the mask lets through, and what of it is still masked.

        Returns:
            (slices, None) if the mask is that rectangle; (slices, booleans over the rectangle) if not;
            (None, None) if nothing is let through.
        """
        try:
            where = np.broadcast_to(self.where, shape)
        except ValueError:
            raise UseError(
                f"the mask has shape {list(self.where.shape)}; the tile it masks has {list(shape)}"
            ) from None
        if where.all():
            return tuple(slice(0, n) for n in shape), None
        slices = []
        for axis in range(len(shape)):
            hits = np.flatnonzero(where.any(axis=tuple(a for a in range(len(shape)) if a != axis)))
            if not len(hits):
                return None, None
            slices.append(slice(int(hits[0]), int(hits[-1]) + 1))
        inside = where[tuple(slices)]
        return tuple(slices), None if inside.all() else np.ascontiguousarray(inside)


Box = tuple[slice, ...]
# what a comparison gives: of index grids a mask, of integers a bool
TRUTHS = (Mask, bool, np.bool_)


def box_of(mask: Any, shape: tuple[int, ...]) -> tuple[Box | None, np.ndarray | None]:
    """`Mask.box` of what a user gave as mask=: a mask, or a truth value where only integers were compared.

    Raises:
        UseError: if it is something else.
    """
    if isinstance(mask, bool | np.bool_):
        mask = Mask(np.asarray(bool(mask)))
    if isinstance(mask, View | RunTimeNumber):
        what = (
            "a tile, whose elements are" if isinstance(mask, View) else "a comparison of a scalar, which is"
        )
        raise UseError(
            f"mask is {what} known only when the kernel runs",
            hint="choose elements with nl.where or nisa.tensor_copy_predicated",
            key="err_unsupported_expression_in_mask",
        )
    if not isinstance(mask, Mask):
        raise UseError(
            f"mask is of type {type(mask).__name__}; it must be a comparison of index grids",
            hint="write mask=(i_p < rows) with i_p = nl.arange(128)[:, None]",
        )
    return _with_the_joined(mask).box(shape)


def _with_the_joined(mask: Mask) -> Mask:
    """`mask` and the earlier operands of the `and` that it ends, in the call of the user's that runs now."""
    frame = user_frame()
    joined = current().keyed.get(("and", frame.f_code))
    for other in joined.get(span_of(frame), {}).values() if joined else ():
        mask = mask & other
    return mask


def aligned_steps(index: Index, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Steps of `index` along the axes of a broadcast `shape`."""
    missing = len(shape) - len(index.shape)
    return (0,) * missing + tuple(s if n != 1 else 0 for n, s in zip(index.shape, index.steps, strict=True))


@placed("arange")
def arange(*args: Any) -> Index:
    """The indices start, start + step, ... as a grid of one axis; give it more with None: arange(n)[:, None].

    Raises:
        UseError: if the bounds are no whole numbers, or leave no index.
    """
    if not 1 <= len(args) <= 3:
        raise UseError(
            f"{len(args)} bounds are given; arange takes an end, a start and an end, or these and a step"
        )
    run = _run(*(whole_number(a, "a bound") for a in args))
    return Index((len(run),), run.start, (run.step,))


def _run(*bounds: int) -> range:
    if bounds[2:] == (0,):
        raise UseError("the step of an index grid is 0; it must be another whole number")
    run = range(*bounds)
    if not run:
        raise UseError(
            f"an index grid from {run.start} to {run.stop} by {run.step} is empty; it must hold an "
            f"index or more"
        )
    return run


def _named_grid(axis: int, meaning: str) -> property:
    def grid(self: Grid) -> Index:
        if axis >= len(self):
            raise UseError(
                f"the index grid has {len(self)} axes; it has no {meaning}",
                hint="write a slice more in the subscript of nl.mgrid",
            ).located(place_of(user_frame()), "mgrid")
        return self[axis]

    return property(grid, doc=f"The {meaning}.")


class Grid(tuple[Any, ...]):
    """The grids that `mgrid` gives, one per axis, also by the names p, x, y, z, w."""

    p = _named_grid(0, "partition grid")
    x = _named_grid(1, "free grid")
    y = _named_grid(2, "second free grid")
    z = _named_grid(3, "third free grid")
    w = _named_grid(4, "fourth free grid")


class MultiGrid:
    """`nl.mgrid`: dense grids by slice syntax, mgrid[0:128, 0:512]."""

    @placed("mgrid")
    def __getitem__(self, key: Any) -> Grid:
        """One grid per slice, each varying along its own axis."""
        key = key if isinstance(key, tuple) else (key,)
        if not all(isinstance(s, slice) and s.stop is not None for s in key):
            raise UseError(
                "a subscript of mgrid is no slice with an end", hint="write nl.mgrid[0:128, 0:512]"
            )
        bounds = ([0 if s.start is None else s.start, s.stop, 1 if s.step is None else s.step] for s in key)
        runs = [_run(*(whole_number(b, "a bound") for b in three)) for three in bounds]
        # as NumPy's: each grid has all axes, and varies along its own
        shape = tuple(map(len, runs))
        steps = (tuple(r.step if a == axis else 0 for a in range(len(runs))) for axis, r in enumerate(runs))
        return Grid(Index(shape, run.start, own) for run, own in zip(runs, steps, strict=True))


mgrid = MultiGrid()


def gemm_grid() -> Grid:
    """The grids of a product on TensorE, which are those of its moving operand."""
    return mgrid[0 : tile_size.pmax, 0 : tile_size.gemm_moving_fmax]


def gemm_stationary_grid() -> Grid:
    """The grids of a stationary operand on TensorE."""
    return mgrid[0 : tile_size.pmax, 0 : tile_size.gemm_stationary_fmax]
