"""Floating-point operations of TensorE, as the vendor's profiler counts them."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from ..isa.declare import Instruction
from ..isa.tensor_engine import NcTranspose
from ..machine import Machine
from ..tiles.dtypes import FLOAT32, DType
from ..tiles.tile import Layout
from ..trace.program import Program


class Flops(Struct, frozen=True):
    """Operations of a form, or of a program."""

    hardware: int = 0  # 2 * rows * columns * moving elements of every MATMUL instruction
    transposes: int = 0  # the part of `hardware` that only transposes
    once: int = 0  # of every product and transpose, whatever number of instructions it is
    transposes_once: int = 0  # the part of `once` that only transposes
    adjusted: int = 0  # `once` weighted by the time against bfloat16 (profile schema, adjusted_flops)
    adjusted_transposes: int = 0  # the part of `adjusted` that only transposes


def multiplications_of(form: Instruction) -> int:
    """MATMUL instructions that the vendor's counters see: a float32 product is two, LOW and HIGH.

    On trn1 a transpose of float32 is a product with the identity, and two (profiles of NKIBench).
    """
    labels = [step.label for step in form.steps if step.label.startswith("MATMUL")]
    is_product = isinstance(form, NcTranspose) and form.machine.generation == 2 and form.data.dtype is FLOAT32
    return len(labels) * (2 if is_product else 1)


def flops_of(form: Instruction) -> Flops:
    """Operations of one use of the array by a form."""
    if all(step.engine != "tensor" for step in form.steps) or getattr(form, "only_orders", False):
        return Flops()
    operands = list(zip(form.operands.values(), form.layouts, strict=True))
    dst = next(g for s, g in operands if s.is_written and isinstance(g, Layout))
    factors = [g for s, g in operands if not s.is_written and isinstance(g, Layout)]
    rows = factors[0].size // dst.partitions
    # four numbers of the contraction axis lie in one packed element
    once = 2 * rows * dst.size * (4 if factors[0].dtype.is_packed else 1)
    only_transposes = isinstance(form, NcTranspose) or bool(getattr(form, "is_transpose", False))
    counts = (
        once * multiplications_of(form),
        once,
        round(once * _weight(form.machine, factors[0].dtype, factors[1:])),
    )
    return Flops(*(part for own in counts for part in (own, own * only_transposes)))


def _weight(machine: Machine, stationary: DType, others: list[Layout]) -> float:
    """The time of a multiplication against that of bfloat16 operands.

    Source: profile schema, adjusted_flops; Neuron Explorer glossary, where float8 by bfloat16 counts 1.
    """
    if stationary is FLOAT32:
        return machine["fp32_passes"]
    if stationary.is_packed:
        return 0.25
    is_narrow = all(t.name.startswith("float8") for t in (stationary, *(g.dtype for g in others[:1])))
    return 0.5 if is_narrow and machine.generation >= 3 else 1.0


def flops_of_program(program: Program) -> Flops:
    """Operations of all rows."""
    calls = np.bincount(np.array(program.form_column, np.int64), minlength=len(program.forms)).tolist()
    per_form = [asdict(flops_of(form)) for form in program.forms]
    return Flops(
        **{
            name: sum(count * own[name] for count, own in zip(calls, per_form, strict=False))
            for name in Flops.__struct_fields__
        }
    )
