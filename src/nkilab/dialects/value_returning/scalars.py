"""`nki.typing.scalar`: an element of a tile as a number of the device, for the condition of a do-while.

The kernel runs as Python, so that a loop goes round as often as its elements say. Not documented, our
choice: an element is read by a `register_load`, and floats keep their fraction in comparisons.

Source: NKI API errors, err_while_loop_requires_unconditional_entry (SDK 2.24).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import UnsupportedError, UseError
from ...isa.registers import RegisterLoad
from ...tiles.dtypes import INT32
from ...tiles.tile import SEQUENCER, layout
from ...trace.builder import record
from ...trace.session import Session, current
from ...trace.source import user_frame
from ..places import placed
from .grids import RunTimeNumber
from .syntax import asked_in
from .tensor import Tensor, settled

_CELL = layout((1,), (1,), INT32, SEQUENCER, None, 0)


class Scalar(RunTimeNumber):
    """A number that is known when the kernel runs on the device."""

    def __init__(self, value: Any, is_constant: bool = False) -> None:
        self.value = value
        self.is_constant = is_constant

    def __bool__(self) -> bool:
        """True while a do-while loop goes on.

        Raises:
            UseError: outside of a while loop, or in one that is not entered by a constant.
        """
        return _holds(self)

    def __repr__(self) -> str:
        return f"<scalar: {self.value}>"

    __hash__ = None  # type: ignore[assignment]


@placed("while")
def _holds(scalar: Scalar) -> bool:
    asked = asked_in(user_frame())
    loop = (asked.code, asked.span)
    entered = current().keyed.setdefault("entered", set())
    value = bool(scalar.value)
    if scalar.is_constant or asked.by == "":
        is_entered = True
    elif asked.by != "while":
        raise UseError(
            "a branch depends on a value that is known only when the kernel runs",
            hint="compute both branches and choose with nl.where",
            key="err_dynamic_control_flow_not_supported",
        )
    else:
        is_entered = loop in entered
    if not is_entered:
        raise UseError(
            "the loop looks at a value of the device before its first iteration",
            hint="start with cond = nt.scalar(True) and compute cond at the end of the body",
            key="err_while_loop_requires_unconditional_entry",
        )
    (entered.add if value else entered.discard)(loop)
    return value


def _computing(name: str, reverse: bool = False) -> Callable[[Scalar, Any], Any]:
    compute = getattr(operator, name)

    def method(self: Scalar, other: Any) -> Any:
        if not isinstance(other, Scalar | int | float | np.generic):
            return NotImplemented
        value = other.value if isinstance(other, Scalar) else other
        return Scalar(compute(value, self.value) if reverse else compute(self.value, value))

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Scalar, f"__{_name}__", _computing(_name))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod"):
    setattr(Scalar, f"__r{_name}__", _computing(_name, reverse=True))


@placed("scalar")
def scalar(value: Any) -> Scalar:
    """A number of the device: a constant, or the one element of a tile.

    Raises:
        UseError: if it is a tile of several elements, or something else.
        UnsupportedError: if only shapes are known.
    """
    if isinstance(value, Scalar):
        return value
    if isinstance(value, bool | int | float | np.generic):
        return Scalar(value, is_constant=True)
    if not isinstance(value, Tensor):
        raise UseError(
            f"value is of type {type(value).__name__}; it must be a number or a tile of one element"
        )
    session = current()
    tile = settled(value)
    if tile.layout.size != 1:
        raise UseError(f"value is {tile.describe()}; it must have one element", hint="index one: tile[0, 0]")
    return Scalar(_element(session, tile))


def _element(session: Session, tile: Tensor) -> Any:
    if not session.has_data:
        raise UnsupportedError(
            "the element decides what runs, and only shapes are known here",
            hint="give the argument that it comes from as data: --arg name=@file.npy",
        )
    register = Tensor(session.new_storage((1,), INT32, SEQUENCER, "tile"), 0, _CELL)
    record(session, RegisterLoad, [register, tile], (), ())
    return np.asarray(tile).reshape(-1)[0].item()
