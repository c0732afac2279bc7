"""A transformation of the compiler: instructions that name no engine get one.

The middle end of Beta 1 spreads copies over VectorE and ScalarE on trn2: profiles of published attention
kernels have some hundred of 142 copies on ScalarE. Each goes, in program order, to the engine on which it
would end first if all that stands before it ran without waits. On trn1 copies go to ScalarE, which is the
faster of the two there, and so does tensor_scalar where an ACTIVATE can do it, data * scale + bias: in
published profiles of products VectorE is idle, and in those of silu and AdamW ScalarE is busy for as many
instructions (NKIBench).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import NkilabError
from ..isa.activations import ACTIVATIONS
from ..isa.declare import NUMBER, Instruction
from ..isa.elementwise import TensorCopy, TensorScalar
from ..isa.scalar_engine import Activation
from ..tiles.tile import Layout
from ..trace.program import Program
from .slots import ENGINES


def balanced(program: Program) -> Program:
    """A program with an engine chosen for what names none; itself if there is no choice."""
    forms = list(program.forms)
    choose = _on_scalar if program.machine["scalar_engine_first"] else _either
    choices: list[list[int]] = []
    # what was chosen before stays in the table, and is no choice again
    is_used = np.bincount(program.form_column, minlength=len(forms)) > 0
    for form, used in zip(program.forms, is_used.tolist(), strict=True):
        others = choose(form) if used else []
        choices.append(list(range(len(forms), len(forms) + len(others))))
        forms += others
    if not any(choices):
        return program
    busy = [sum(step.busy_ns for step in form.steps) for form in forms]
    engine = [ENGINES.index(form.steps[0].engine) for form in forms]
    load = [0.0] * len(ENGINES)
    chosen = program.form_column.tolist()
    for row, number in enumerate(chosen):
        if choices[number]:
            chosen[row] = number = min(choices[number], key=lambda n: load[engine[n]] + busy[n])
        load[engine[number]] += busy[number]
    return program.with_forms(forms, np.array(chosen, np.int32))


def _either(form: Instruction) -> list[Instruction]:
    """A copy on VectorE and on ScalarE, if it names no engine and both can do it."""
    if not isinstance(form, TensorCopy) or form.engine != "unknown":
        return []
    copies = [_on_engine(TensorCopy, form, form.layouts, (engine,)) for engine in ("vector", "scalar")]
    legal = [other for other in copies if other is not None]
    return legal if len(legal) > 1 else []


def _on_scalar(form: Instruction) -> list[Instruction]:
    """A copy or a tensor_scalar on ScalarE, if it names no engine and ScalarE can do it."""
    match form:
        case TensorCopy(engine="unknown"):
            other = _on_engine(TensorCopy, form, form.layouts, ("scalar",))
        case TensorScalar(engine="unknown", runs_on="vector"):
            other = _activate(form)
        case _:
            return []
    return [] if other is None else [other]


def _activate(form: TensorScalar) -> Instruction | None:
    """The ACTIVATE that does what a tensor_scalar does, data * scale + bias; None if none does."""
    match form.op0.name, form.op1.name if form.op1 is not None else None:
        case ["multiply", None]:
            scale, bias = form.operand0, None
        case ["add", None]:
            scale, bias = NUMBER, form.operand0
        case ["multiply", "add"] if not form.reverse1:
            scale, bias = form.operand0, form.operand1
        case _:
            return None
    if isinstance(scale, Layout) and isinstance(bias, Layout):
        # an ACTIVATE names them in the other order
        return None
    # a number to add is a constant of the compiler's, one per partition
    layouts = (form.dst, form.data, bias if isinstance(bias, Layout) else None, scale, None)
    return _on_engine(Activation, form, layouts, (ACTIVATIONS["copy"], None, "idle"))


def _on_engine(
    cls: type[Instruction], form: Instruction, layouts: Sequence[Any], attributes: tuple[Any, ...]
) -> Instruction | None:
    """An instruction in the place of a form; None if the chip has none such."""
    try:
        return cls(form.machine, layouts, attributes)
    except NkilabError:
        return None
