"""The same program under other constants of its chip."""

from __future__ import annotations

from ..errors import UsageError
from ..machine import Machine
from .program import Program


def recosted(program: Program, machine: Machine) -> Program:
    """The same rows with the costs that another set of constants gives their forms.

    Raises:
        UsageError: if the constants belong to another chip; its kernels may differ.
        KernelError: if a form exceeds a limit that the constants lower.
    """
    if machine.name != program.machine.name:
        raise UsageError(f"the program is for {program.machine.name}, the constants are of {machine.name}")
    if machine is program.machine:
        return program
    forms = [type(form)(machine, form.layouts, form.attribute_values) for form in program.forms]
    result = program.with_forms(forms, program.form_column)
    result.machine = machine
    return result
