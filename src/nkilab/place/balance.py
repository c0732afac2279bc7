"""A transformation of the compiler: instructions that name no engine get one.

The middle end of Beta 1 spreads copies over VectorE and ScalarE on trn2: profiles of published attention
kernels have some hundred of 142 copies on ScalarE. Each goes, in program order, to the engine on which it
would end first if all that stands before it ran without waits. On trn1 copies go to ScalarE, which is the
faster of the two there, and so does tensor_scalar where an ACTIVATE can do it, data * scale + bias: in
published profiles of products VectorE is idle, and in those of silu and AdamW ScalarE is busy for as many
instructions (NKIBench).
"""

from __future__ import annotations

import numpy as np

from ..errors import NkilabError
from ..isa.declare import Instruction
from ..isa.elementwise import TensorCopy, TensorScalar
from ..trace.program import Program
from .slots import ENGINES


def balanced(program: Program) -> Program:
    """A program with an engine chosen for what names none; itself if there is no choice."""
    forms = list(program.forms)
    choose = _on_scalar if program.machine["scalar_engine_first"] else _either
    choices: list[list[int]] = []
    for form in program.forms:
        others = choose(form)
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
    made = [other for engine in ("vector", "scalar") if (other := _copy_on(form, engine)) is not None]
    return made if len(made) > 1 else []


def _on_scalar(form: Instruction) -> list[Instruction]:
    """A copy or a tensor_scalar on ScalarE, if it names no engine and ScalarE can do it."""
    match form:
        case TensorCopy(engine="unknown"):
            other: Instruction | None = _copy_on(form, "scalar")
        case TensorScalar(engine="unknown", runs_on="vector"):
            other = form.on_scalar_engine()
        case _:
            return []
    return [] if other is None else [other]


def _copy_on(form: TensorCopy, engine: str) -> Instruction | None:
    try:
        return TensorCopy(form.machine, form.layouts, (engine,))
    except NkilabError:
        return None
