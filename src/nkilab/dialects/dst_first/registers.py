"""Virtual registers, and the loops whose bounds and conditions they hold.

The kernel runs as Python, so that a loop goes round as often as its registers say; where only shapes are
known they say nothing, and the loop is refused.

Source: nki.isa.register_alloc; NKI dynamic loops; nki.language.fori_loop, while_loop (NKI 0.6).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import SpellingError, UnsupportedError, UseError
from ...isa.registers import RegisterLoad, RegisterMove, RegisterStore
from ...tiles.dtypes import INT32
from ...tiles.indirect import numbers_in
from ...tiles.tile import SEQUENCER, View, layout
from ...trace.builder import record
from ...trace.origins import arguments_behind
from ...trace.session import current, running
from ...trace.source import place_of, user_frame
from ..history import NEWEST, order
from ..indexing import whole_number
from ..loops import LoopRange
from ..places import placed
from .tensor import Tensor

# in `Session.keyed`: how often lines go round, by "file.py:41", and the lines that asked
TRIPS, ASKED = "trips", "trips asked"
_CELL = layout((1,), (1,), INT32, SEQUENCER, None, 0)


class VirtualRegister(View):
    """An int32 that a sequencer holds: an offset of an access, the bound of a loop or its condition."""

    __slots__ = ("__weakref__",)

    def describe(self) -> str:
        """One line for messages."""
        return "a register"

    @property
    def value(self) -> int:
        """What it holds by now.

        Raises:
            UnsupportedError: if only shapes are known.
            UnwrittenError: if nothing has written it.
        """
        session = running()
        if not self.storage.is_known and (session is None or not session.has_data):
            raise UnsupportedError(
                "the value of a register decides what runs, and only shapes are known here",
                hint=f"{_what_to_give(self)}; or say how often the line goes round: --trips FILE.py:LINE=N",
            )
        return int(numbers_in(self)[0])

    def _in_python(self, word: str) -> int:
        session = running()
        if session is not None and order(session.version or NEWEST) >= order("0.7"):
            raise SpellingError(
                f"a register is used in {word}, which NKI 0.7 does not have: its value is not known "
                "while the kernel is traced",
                hint="use nl.fori_loop, nl.while_loop or an access with scalar_offset",
                source="nki.isa.VirtualRegister",
            ).located(place_of(user_frame()), word)
        try:
            return self.value
        except (UnsupportedError, UseError) as error:
            raise error.located(place_of(user_frame()), word) from None

    def __bool__(self) -> bool:
        trips = None if self.storage.is_known else _trips()
        return self._in_python("if or while") != 0 if trips is None else trips.goes_on()

    def __int__(self) -> int:
        return self._in_python("int()")

    def __repr__(self) -> str:
        return f"<register: {self.value if self.storage.is_known else 'not written'}>"


def _what_to_give(register: VirtualRegister) -> str:
    """What is to be known for a register's value to be: the arguments that it stems from, by name."""
    session = running()
    names = arguments_behind(session.program, register.storage.number) if session is not None else ()
    if not names:
        return "give the argument that it is loaded from as data: --arg name=@file.npy"
    options = " ".join(f"--arg {name}=@{name}.npy" for name in names)
    return f"it is computed from {' and '.join(names)}; give data: {options}"


class Trips:
    """How often a line goes round where only shapes are known, as the user says."""

    def __init__(self, place: str, count: int) -> None:
        self.place, self.count = place, count
        self.iteration = 0

    def goes_on(self) -> bool:
        """Whether there is another iteration; after the last one it begins anew."""
        self.iteration = self.iteration + 1 if self.iteration < self.count else 0
        return self.iteration > 0


def _trips() -> Trips | None:
    """What the user says about the line that asks; None if nothing."""
    session, place = running(), place_of(user_frame())
    count = session.keyed.get(TRIPS, {}).get(place) if session is not None else None
    if session is None or count is None:
        return None
    session.keyed[ASKED].add(place)
    known = session.keyed.get((TRIPS, place))
    if known is None:
        known = session.keyed[TRIPS, place] = Trips(place, count)
        session.program.notes.append(f"{place} goes round {count} times, as --trips says")
    return known


@placed("register_alloc")
def register_alloc(x: Any = None) -> VirtualRegister:
    """A new register; `x` is what it holds at first: an integer, a tensor of one element, or None."""
    register = VirtualRegister(current().new_storage((1,), INT32, SEQUENCER, "tile"), 0, _CELL)
    if isinstance(x, Tensor):
        record(current(), RegisterLoad, [register, x], (), ())
    elif isinstance(x, VirtualRegister):
        record(current(), RegisterMove, [register, x], (), ())
    elif x is not None:
        record(current(), RegisterMove, [register, whole_number(x, "x")], (), ())
    return register


def _register(value: Any, name: str) -> VirtualRegister:
    if not isinstance(value, VirtualRegister):
        raise UseError(
            f"{name} is of type {type(value).__name__}; it must be a register",
            hint="allocate it with nisa.register_alloc()",
        )
    return value


@placed("register_move")
def register_move(dst: Any, src: Any = None, imm: Any = None) -> None:
    """Put an integer or another register's value into the register dst; NKI 0.1 and 0.2 call it imm."""
    source = imm if src is None else src
    if source is None or (src is not None and imm is not None):
        raise SpellingError("src is not given" if source is None else "src and imm are both given; give one")
    value = source if isinstance(source, VirtualRegister) else whole_number(source, "src")
    record(current(), RegisterMove, [_register(dst, "dst"), value], (), ())


@placed("register_load")
def register_load(dst: Any, src: Any) -> None:
    """Load a tensor of one element, in SBUF or HBM, into the register dst."""
    record(current(), RegisterLoad, [_register(dst, "dst"), src], (), ())


@placed("register_store")
def register_store(dst: Any, src: Any) -> None:
    """Store the register src to a tensor of one element, in SBUF or HBM."""
    register = register_alloc(src) if isinstance(src, int) else _register(src, "src")
    record(current(), RegisterStore, [dst, register], (), ())


class DynamicRange(LoopRange):
    """Iterations that the device counts: one loop instruction, however often it goes round."""


def _bound(value: Any, what: str) -> int:
    return value.value if isinstance(value, VirtualRegister) else whole_number(value, what)


def _step(step: Any) -> int:
    if isinstance(step, VirtualRegister):
        raise UseError("the step of a range is a register; it must be a whole number known before the run")
    count = whole_number(step, "the step of a range")
    if count < 1:
        raise UseError(f"the step of a range is {count}; it must be at least 1")
    return count


@placed("dynamic_range")
def dynamic_range(start: Any, stop: Any = None, step: Any = 1) -> DynamicRange:
    """Iterations from start up to stop, not included; the bounds are integers or registers."""
    first, last = (0, start) if stop is None else (start, stop)
    by = _step(step)
    unknown = [b for b in (first, last) if isinstance(b, VirtualRegister) and not b.storage.is_known]
    trips = _trips() if unknown else None
    if trips is not None:
        return DynamicRange("dynamic", 0, trips.count * by, by)
    return DynamicRange("dynamic", _bound(first, "start"), _bound(last, "stop"), by)


@placed("fori_loop")
def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any], Any], step: Any = 1) -> None:
    """Call body_fun(i) for i from lower up to upper, not included; i is a register of its own each time."""
    for i in dynamic_range(lower, upper, step):
        body_fun(register_alloc(int(i)))


@placed("while_loop")
def while_loop(init: Any, body_fun: Callable[[Any], Any]) -> None:
    """Call body_fun(r) while the register r is not 0: first init, then what the body returns."""
    register = _register(init, "init")
    session = current()
    program, outer = session.program, session.position
    loop, iteration = len(program.positions), 0
    session.keyed["loop", loop] = "dynamic"
    trips = None if register.storage.is_known else _trips()
    try:
        while register.value != 0 if trips is None else trips.goes_on():
            session.position = len(program.positions)
            program.marks.loops[loop] = "dynamic"
            program.positions.append((outer, loop, iteration))
            register = _register(body_fun(register_alloc(register)), "the value that the body returns")
            iteration += 1
    finally:
        session.position = outer


ISA_NAMES = {
    "register_alloc": register_alloc, "register_move": register_move, "register_load": register_load,
    "register_store": register_store, "VirtualRegister": VirtualRegister,
}  # fmt: skip
LANGUAGE_NAMES = {"dynamic_range": dynamic_range, "fori_loop": fori_loop, "while_loop": while_loop}
