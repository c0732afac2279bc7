"""Loop ranges: plain Python iteration that knows its position in the program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType
from typing import Any

from ..errors import SpellingError, UseError, did_you_mean
from ..trace.affine import FEWEST, REPEATS, Affine, Repeats, TraceAgain
from ..trace.repeats import Plan, shared_tiles
from ..trace.session import Session, ask, current
from ..tracebacks import leave_out_ours
from .indexing import whole_number
from .places import placed
from .uniform import only_goes_through_ranges, shared_by, steps_of, takes_evenly, text_at


class LoopIndex(int):
    """A loop index: an int that knows its loop."""

    loop: int  # number of the loop in the order of entry; each entry of a `for` statement is a loop
    kind: str  # "affine", "sequential" or "static"

    def __new__(cls, value: int, loop: int, kind: str) -> LoopIndex:
        index = super().__new__(cls, value)
        index.loop = loop
        index.kind = kind
        return index

    @property
    def name(self) -> str:
        """A word for the loop, unique in its program."""
        return f"loop{self.loop}"


class LoopRange:
    """Iterations of one loop; a fresh iteration starts at each `for`."""

    def __init__(self, kind: str, *bounds: Any) -> None:
        self.kind = kind
        if len(bounds) == 1 and type(bounds[0]) is int:
            self._range = range(bounds[0])
            return
        if not 1 <= len(bounds) <= 3:
            raise UseError(
                f"{len(bounds)} bounds are given; a range has an end, a start and an end, or these and a step"
            )
        words = ("the end",) if len(bounds) == 1 else ("the start", "the end", "the step")
        numbers = [whole_number(b, f"{word} of a range") for word, b in zip(words, bounds, strict=False)]
        if numbers[2:] == [0]:
            raise UseError("the step of a range is 0; it must be another whole number")
        self._range = range(*numbers)

    def __len__(self) -> int:
        return len(self._range)

    def __iter__(self) -> Iterator[Any]:
        try:
            session = current()
        except UseError as error:
            leave_out_ours(error)
            raise
        repeats = session.keyed.get(REPEATS)
        plan = None if repeats is None else plan_of(session, repeats, sys._getframe(1), len(self._range))
        return self._run(session, plan)

    def _run(self, session: Session, plan: Plan | None) -> Iterator[Any]:
        program = session.program
        outer = session.position
        loop = len(program.positions)
        session.keyed["loop", loop] = self.kind
        program.marks.loops[loop] = self.kind
        if self.kind == "static":
            program.unrolled.append(loop)
        try:
            for value in self._range if plan is None else plan.iterations(self._range, is_counted=True):
                session.position = len(program.positions)
                program.positions.append((outer, loop, value if plan is None else plan.value))
                yield value if type(value) is Affine else LoopIndex(value, loop, self.kind)
                # what waits belongs to this iteration
                session.flush()
        finally:
            session.position = outer


class PlainRange:
    """`range` of a kernel whose iterations may follow from others: it is gone through, and no more."""

    def __init__(self, *bounds: Any) -> None:
        self._range = range(*bounds)

    def __iter__(self) -> Iterator[Any]:
        session = current()
        plan = plan_of(session, session.keyed[REPEATS], sys._getframe(1), len(self._range))
        return iter(self._range) if plan is None else plan.iterations(self._range, is_counted=False)


def with_ranges(function: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel's function with `PlainRange` for `range`, where its text only goes through ranges."""
    if not isinstance(function, FunctionType) or "range" in function.__globals__:
        return function
    code = function.__code__
    if function.__closure__ or steps_of(code).stores or not only_goes_through_ranges(code):
        return function
    names = {**function.__globals__, "range": PlainRange}
    other = FunctionType(code, names, function.__name__, function.__defaults__)
    other.__kwdefaults__ = function.__kwdefaults__
    return other


def plan_of(session: Session, repeats: Repeats, frame: FrameType, count: int) -> Plan | None:
    """How to go through the loop that begins in the user's frame; None for one iteration after another."""
    if count < FEWEST:
        return None
    name = (frame.f_code, frame.f_lasti)
    if not repeats.is_used and len(session.program) > repeats.patience:
        raise TraceAgain
    if name in repeats.refused or not repeats.pays(name, count):
        return None
    text = text_at(frame)
    shared = None if text is None else shared_by(frame, text)
    if text is None or shared is None:
        repeats.refused.add(name)
        return None
    repeats.takes_evenly = takes_evenly
    return Plan(session, repeats, name, shared_tiles(shared))


def device_loops(session: Session, row: int) -> tuple[int, ...]:
    """The loops around a row whose iterations the device counts, the outermost first."""
    program, loops_on_device = session.program, []
    position = program.position_of(row)
    while position > 0:
        position, loop, _ = program.positions[position]
        if session.keyed.get(("loop", loop)) == "dynamic":
            loops_on_device.append(loop)
    return tuple(reversed(loops_on_device))


_BOUNDS = ("start", "stop", "step")
# keywords that no stub lists and published kernels of Beta 1 give
_ADVICE = ("directives", "precise_schedule")


@placed("affine_range")
def affine_range(*args: Any, **kwargs: Any) -> LoopRange:
    """Iterations that may run in any order, but for reductions; bounds as of `range`."""
    return LoopRange("affine", *_bounds(args, kwargs))


@placed("sequential_range")
def sequential_range(*args: Any, **kwargs: Any) -> LoopRange:
    """Iterations that run in order; bounds as of `range`."""
    return LoopRange("sequential", *_bounds(args, kwargs))


@placed("static_range")
def static_range(*args: Any, **kwargs: Any) -> LoopRange:
    """Iterations that are unrolled in order; bounds as of `range`."""
    return LoopRange("static", *_bounds(args, kwargs))


def _bounds(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Bounds given by position or as start=, stop=, step=; what advises the compiler is noticed."""
    if not kwargs:
        return args
    for word in kwargs.keys() - set(_BOUNDS):
        if word not in _ADVICE:
            raise SpellingError(
                f"there is no keyword {word}; it takes {', '.join(_BOUNDS)}",
                hint=did_you_mean(word, (*_BOUNDS, *_ADVICE)),
            )
        ask().notice(f"a range ignores {word}=; it advises the vendor's compiler")
    named = dict(zip(_BOUNDS, args, strict=False))
    twice = sorted(named.keys() & kwargs.keys())
    if twice or len(args) > len(_BOUNDS):
        raise UseError(f"{twice[0]} is given twice" if twice else f"{len(args)} bounds are given")
    named |= {word: kwargs[word] for word in _BOUNDS if word in kwargs}
    if not named:
        return args
    start, stop = named.get("start", 0), named.get("stop")
    return (0, start, named.get("step", 1)) if stop is None else (start, stop, named.get("step", 1))
