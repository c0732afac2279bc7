"""A transformation of the compiler: what names no engine goes where there is least to do.

The middle end of Beta 1 spreads copies, and operators with a number per partition, over VectorE and
ScalarE: profiles of published attention kernels have some hundred of 142 copies on ScalarE, and those of silu
and AdamW in NKIBench all such operators. Each goes, in program order, to the engine on which it would end
first if all that stands before it ran without waits.
"""

from __future__ import annotations

import numpy as np

from ..errors import NkilabError
from ..isa.declare import Instruction
from ..isa.elementwise import TensorCopy, TensorScalar
from ..trace.program import Program
from .slots import ENGINES

_CHOICES = ("vector", "scalar")


def balanced(program: Program) -> Program:
    """A program with an engine chosen for all that may go to either; itself if there is nothing."""
    forms = list(program.forms)
    choices = [_choices(forms, number) for number in range(len(program.forms))]
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


def _choices(forms: list[Instruction], number: int) -> list[int]:
    """Numbers of the forms that a form may be compiled to; those that are new are added to `forms`."""
    form = forms[number]
    others: list[Instruction | None]
    match form:
        case TensorCopy(engine="unknown"):
            others = [_copy_on(form, engine) for engine in _CHOICES]
        case TensorScalar(engine="unknown", runs_on="vector"):
            others = [form, form.on_scalar_engine()]
        case _:
            return []
    if None in others:
        return []
    forms.extend(other for other in others if other is not None)
    return list(range(len(forms) - len(others), len(forms)))


def _copy_on(form: TensorCopy, engine: str) -> TensorCopy | None:
    try:
        return TensorCopy(form.machine, form.layouts, (engine,))
    except NkilabError:
        return None
