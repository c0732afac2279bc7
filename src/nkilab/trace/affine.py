"""Indices that stand for their values in several iterations, and what a launch knows of its loops."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable
from functools import partialmethod
from math import inf
from types import FrameType
from typing import Any, NoReturn

from ..errors import StartAgain
from ..tiles.tile import Layout

# In `Session.keyed`: the `Repeats` of a launch, where later iterations may follow from earlier ones.
REPEATS = "repeats"
# so many times a launch starts again before it is traced as it stands
MOST_STARTS = 32
# a loop of fewer iterations is run as it stands, and one whose further iterations have fewer rows
FEWEST, FEWEST_ROWS = 4, 24
# iterations that are run, at most, to find two of which others follow; and so often in a loop
MOST_RUN, MOST_PARTS = 3, 4
# rows of a launch on data that are traced from shapes first, if no iteration follows from others by then
PATIENCE = 256


class TraceAgain(StartAgain):
    """The value of an index is asked for that stands for several."""


class Repeats:
    """What a launch of a kernel knows of its loops, by earlier launches too.

    Args:
        is_wanted: whether iterations may follow from others at all.
        patience: rows after which a launch is given up if no iteration was found to follow by then.

    Attributes:
        refused: loops that are traced in full, by what names them.
        late: loops whose first iteration is unlike the others.
        lengths: rows of an iteration of a loop, when it was last looked at.
        is_broken: whether this launch asked for the value of an index that stands for several.
        is_used: whether an index of this launch stood for several.
        takes_evenly: whether a frame is about to take tiles by an index out of a list in which their numbers
            and offsets are those of the first and multiples of a step.
        is_of_list: indices that took some.
        patterns: views that access patterns made, in order: storage, offset, layout.
        begun: a slice of such a list whose start is known: frame, place and start.
        is_off: whether this launch runs as it stands.
        starts: how often this launch began.
        warned: which warnings it gave.
    """

    def __init__(self, *, is_wanted: bool = True, patience: float = inf) -> None:
        self.is_wanted = is_wanted
        self.patience = patience
        self.refused: set[Any] = set()
        self.late: set[Any] = set()
        self.lengths: dict[Any, int] = {}
        self.takes_evenly: Callable[[FrameType, Affine], bool] = lambda frame, index: False
        self.is_broken = self.is_used = self.is_off = False
        self.starts = 0
        self.is_of_list: set[LoopIndex] = set()
        self.patterns: list[tuple[int, int, Layout]] = []
        self.begun: tuple[FrameType, int, Affine] | None = None
        self.warned: set[tuple[str, int, str]] = set()

    def pays(self, name: Any, count: int) -> bool:
        """Whether so many iterations of a loop are worth the trouble, as long as they were last time."""
        rows = (count - 2) * self.lengths.get(name, FEWEST_ROWS)
        return not self.is_off and name not in self.refused and rows >= FEWEST_ROWS

    def begin_later(self, name: Any) -> None:
        """Take the first iteration of a loop for itself from now on; if that was tried, every one."""
        (self.refused if name in self.late else self.late).add(name)

    def of_launch(self) -> Repeats:
        """The same knowledge for one more launch, which adds to it; launches may run side by side."""
        other = Repeats(is_wanted=self.is_wanted)
        other.refused, other.late, other.lengths = self.refused, self.late, self.lengths
        return other

    def start_again(self) -> bool:
        """Whether the launch is to start again with what is refused by now, rather than as it stands."""
        self.is_broken = self.is_used = False
        self.begun = None
        self.is_of_list.clear()
        self.patterns.clear()
        self.starts += 1
        return self.starts < MOST_STARTS


class OfIndices:
    """A value that nobody changes, and that sums of indices may go into: index grids. Abstract."""

    __slots__ = ()


class LoopIndex:
    """One loop whose index stands for several values.

    Args:
        repeats: of the launch.
        name: of the loop, by which it is refused.
        values: that it may stand for.

    Attributes:
        done: how many of them have begun.
        count: how many it stands for at most, from the first one on; fewer as more is asked of it.
        is_over: whether iterations were written down that it stood for.
    """

    def __init__(self, repeats: Repeats, name: Any, values: range) -> None:
        self.repeats = repeats
        self.name = name
        self.values = values
        self.done, self.count = 0, len(values)
        self.is_over = False

    def standing(self) -> Affine:
        """The index of the next iteration, which stands for all from there on."""
        value = self.values[self.done]
        self.done += 1
        self.repeats.is_used = True
        return Affine(value, {self: 1})

    @property
    def rest(self) -> int:
        """From the value of this iteration to the last one that it stands for."""
        return (self.count - self.done) * self.values.step


class Affine:
    """An integer that stands for its values in all iterations that are left: a sum of indices and a number.

    It counts as an int. Sums and multiples are of its kind. Whatever else is asked is answered for this
    iteration, and from there on its indices stand for no others than those of the same answer.

    Args:
        value: in this iteration.
        terms: how often each index is in it.
    """

    __slots__ = ("terms", "value")
    __array_ufunc__ = None

    def __init__(self, value: int, terms: dict[LoopIndex, int]) -> None:
        self.value = value
        self.terms = terms

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return int

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest of its values."""
        reach = [count * index.rest for index, count in self.terms.items()]
        return self.value + sum(r for r in reach if r < 0), self.value + sum(r for r in reach if r > 0)

    def __index__(self) -> int:
        """The value in this iteration, where it takes evenly numbered tiles out of a list."""
        for index in self.terms:
            if index.repeats.takes_evenly(sys._getframe(1), self):
                index.repeats.is_of_list |= {*self.terms}
                return self.value
            break
        return self.settled()

    def inside(self, least: int, most: int) -> int:
        """The value in this iteration, in those that its indices then stand for between two numbers, too."""
        if least <= self.value <= most:
            self.narrow(lambda low, high: least <= low and high <= most)
            return self.value
        return self.settled()

    def narrow(self, is_alike: Callable[[int, int], bool]) -> None:
        """Have an index stand for fewer iterations, so that the least and the largest value are alike.

        Of several that index does which loses the smallest share.
        """
        if is_alike(*self.bounds):
            return
        kept = {index: count for index in self.terms if (count := self._count_alike(index, is_alike))}
        if not kept:
            self.settled()
            return
        index = max(kept, key=lambda index: (kept[index] - index.done) / (index.count - index.done))
        self._open(index)
        index.count = kept[index]

    def _count_alike(self, index: LoopIndex, is_alike: Callable[[int, int], bool]) -> int:
        """How many an index alone may stand for so that the values are alike; 0 if that is not up to it."""

        def differs(count: int) -> bool:
            index.count = count
            return not is_alike(*self.bounds)

        most = index.count
        count = bisect_left(range(most + 1), True, index.done, key=differs) - 1
        index.count = most
        return count if count >= index.done else 0

    def settled(self) -> int:
        """The value in this iteration, which is all that its indices stand for from there on."""
        for index in self.terms:
            self._open(index)
            if index.done < index.count:
                index.count = index.done
                index.repeats.refused.add(index.name)
        return self.value

    def _open(self, index: LoopIndex) -> None:
        """Start the launch again without an index whose further iterations were written down already."""
        if index.is_over:
            self.refuse()

    def refuse(self, *asked: Any) -> NoReturn:
        """Start the launch again with the loops of its indices as they stand."""
        for index in self.terms:
            index.repeats.refused.add(index.name)
            index.repeats.is_broken = True
        raise TraceAgain

    def _plus(self, other: Any, sign: int) -> Any:
        if isinstance(other, OfIndices):
            return NotImplemented
        if type(other) is not Affine:
            if not isinstance(other, int):
                self.refuse()
            return Affine(self.value + sign * int(other), self.terms)
        terms = dict(self.terms)
        for index, count in other.terms.items():
            terms[index] = terms.get(index, 0) + sign * count
        return _affine_of(self.value + sign * other.value, terms)

    def __add__(self, other: Any) -> Any:
        return self._plus(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._plus(other, -1)

    def __rsub__(self, other: Any) -> Any:
        return (self * -1)._plus(other, 1)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, OfIndices):
            return NotImplemented
        if type(other) is Affine or not isinstance(other, int):
            self.refuse()
        times = int(other)
        return _affine_of(self.value * times, {index: count * times for index, count in self.terms.items()})

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Affine:
        return self

    def _compared(self, other: Any, holds: Callable[[int], bool]) -> bool:
        """Whether its difference to `other` is as asked, if that is so in all iterations or in none."""
        difference = self._plus(other, -1)
        if difference is NotImplemented:
            return difference
        if type(difference) is int:
            return holds(difference)
        difference.narrow(lambda low, high: holds(low) == holds(high))
        return holds(difference.value)

    __lt__ = partialmethod(_compared, holds=lambda d: d < 0)
    __le__ = partialmethod(_compared, holds=lambda d: d <= 0)

    def __gt__(self, other: Any) -> bool:
        return not self <= other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __eq__(self, other: object) -> bool:
        # neither larger nor smaller in all iterations, or refused
        return self <= other and self >= other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return self != 0

    def __getattr__(self, name: str) -> NoReturn:
        self.refuse()


def _affine_of(value: int, terms: dict[LoopIndex, int]) -> Any:
    """A number, or a plain integer if no index is left in it."""
    left = {index: count for index, count in terms.items() if count}
    return Affine(value, left) if left else value


def _asking(name: str) -> Callable[..., object]:
    """A method of an integer, of the value in this iteration."""

    def asked(self: Affine, *others: object) -> object:
        numbers = (other.settled() if type(other) is Affine else other for other in others)
        return getattr(self.settled(), name)(*numbers)

    return asked


# what asks for the value itself, and what no integer answers
_ASKING = (
    "int", "float", "hash", "str", "repr", "format", "floordiv", "rfloordiv", "mod", "rmod", "truediv",
    "rtruediv", "pow", "rpow", "divmod", "rdivmod", "lshift", "rlshift", "rshift", "rrshift", "and", "rand",
    "or", "ror", "xor", "rxor", "invert", "abs", "round", "trunc", "floor", "ceil",
)  # fmt: skip
_REFUSED = (
    "complex", "array", "matmul", "rmatmul", "reduce", "reduce_ex", "copy", "deepcopy", "dir", "sizeof",
    "iter", "len", "getitem", "contains", "call", "enter", "await",
)  # fmt: skip
for _word in _ASKING:
    setattr(Affine, f"__{_word}__", _asking(f"__{_word}__"))
for _word in _REFUSED:
    setattr(Affine, f"__{_word}__", Affine.refuse)
