"""Pages of what instructions are given by name: operators, activation functions, data types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import KernelError
from ..isa import REGISTRY
from ..isa.activations import Activation
from ..isa.declare import Instruction
from ..isa.operators import NUMPY_NAMES, Operator
from ..isa.uses import Tile, chips_of, form_of, smallest_use
from ..machine import MACHINES
from ..tiles.convert import store
from ..tiles.dtypes import FLOAT32, TFLOAT32, DType, integer_bounds
from .choices import Choice, choices
from .content import Block, Bullets, Page, Section, Text, listed, sentence, table
from .instruction import DIFFERENCES, engine_name
from .meanings import ACTIVATION_MEANINGS, OPERATOR_MEANINGS

TOKENS_SOURCE = 'NKI API common fields, "Supported math operators" and "Supported activation functions"'
ROUNDING = (
    "A float32 result is rounded once, on the write, to the nearest value, of two equally near the even one."
)


def operator_page(op: Operator) -> Page:
    """What an operator computes, on which engines and chips, and which instructions take it."""
    works = "on bit patterns of integers" if op.is_bitvec else "in float32, rounded once on the write"
    facts = [
        f"inputs: {'one' if op.is_unary else 'two'}",
        f"computes: {works}",
        f"reduces: {'yes' if op.reduces else 'no'}",
        f"engines listed: {', '.join(map(engine_name, op.engines))}",
        f"chips: {', '.join(m.name for m in MACHINES.values() if m.generation >= op.since)}",
    ]
    numpy = sorted(name for name, meant in NUMPY_NAMES.items() if meant == op.name)
    if numpy:
        facts.append(f"NumPy functions that spell it in Beta 1: {listed(numpy)}")
    takers = listed(_takers(op))
    if takers:
        facts.append(f"taken by: {takers}")
    facts.append(f"source: {TOKENS_SOURCE}")
    opening = Section("", (Text(sentence(OPERATOR_MEANINGS[op.name])), Bullets(tuple(facts))))
    return Page(op.name, "operator", (opening, *silent(op.name)))


def activation_page(function: Activation) -> Page:
    """What a function computes, the range in which it is documented, and which instructions take it."""
    facts = [f"valid input: {valid_range(function)}"]
    if function.is_documented:
        facts.append(f"taken by: {listed(_takers(function))}")
    else:
        facts.append(f"taken by: `nl.{function.name}` alone; nki.isa.activation does not list it")
    facts.append(
        "bits: the mathematical function in float64, rounded to float32; the hardware's are not published"
    )
    facts.append(f"source: {TOKENS_SOURCE}")
    opening = Section("", (Text(sentence(ACTIVATION_MEANINGS[function.name])), Bullets(tuple(facts))))
    return Page(function.name, "activation function", (opening, *silent(function.name)))


@cache
def _takers(token: Operator | Activation) -> list[str]:
    """Instructions with an attribute that may be this token in some legal use on some chip."""
    return [name for name, cls in REGISTRY.items() if any(_takes(cls, a, token) for a in cls.attributes)]


def _takes(cls: type[Instruction], attribute: str, token: Operator | Activation) -> bool:
    declared = cls.attributes[attribute]
    if (
        token.name not in declared.allowed.split(", ")
        or declared.canonical(attribute, token.name) is not token
    ):
        return False
    use = smallest_use(cls)
    integers = {f"{name}.dtype": "int32" for name, tile in use.items() if isinstance(tile, Tile)}
    # an operator of one input takes no second operand
    dropped: dict[str, Any] = {name: None for name, spec in cls.operands.items() if spec.may_be_number}
    changes: list[dict[str, Any]] = [{}, integers, dropped, {**integers, **dropped}]
    return any(_is_legal(cls, {attribute: token.name, **change}) for change in changes)


def _is_legal(cls: type[Instruction], changes: dict[str, Any]) -> bool:
    use = smallest_use(cls, changes)
    for machine in chips_of(cls):
        with suppress(KernelError):
            form_of(cls, machine, use)
            return True
    return False


def valid_range(function: Activation) -> str:
    """The documented input range, in powers of two and multiples of pi where it is one."""
    if function.low == -np.inf and function.high == np.inf:
        return "any"
    low, high = _bound(function.low), _bound(function.high)
    return f"magnitude from {low} to {high}" if function.is_by_magnitude else f"{low} to {high}"


def _bound(value: float) -> str:
    for word, number in (("pi", np.pi), ("pi / 2", np.pi / 2)):
        if abs(value) == number:
            return "-" * (value < 0) + word
    exponent = np.log2(value) if value > 0 else 0.5
    return f"`2**{exponent:.0f}`" if exponent == round(exponent) else f"{value:g}"


def silent(word: str) -> tuple[Section, ...]:
    """A section with what nkilab chose about a word, where the question has it as code."""
    return _silence([row for row in choices() if word in re.findall(r"`(\w+)`", row[0])])


def _silence(choices: Sequence[Choice]) -> tuple[Section, ...]:
    if not choices:
        return ()
    rows = table(("question", "what nkilab does"), choices)
    return (Section("Where public text is silent", (rows, Text(f"All choices: `{DIFFERENCES}`."))),)


def dtype_page(dtype: DType) -> Page:
    """Size, range, resolution and rounding of a data type."""
    concerned = [row for row in choices() if _asks_of(row[0], dtype)]
    return Page(dtype.name, "data type", (Section("", dtype_facts(dtype)), *_silence(concerned)))


def dtype_facts(dtype: DType) -> tuple[Block, ...]:
    """The paragraphs about a data type."""
    return tuple(_dtype_blocks(dtype))


def _asks_of(question: str, dtype: DType) -> bool:
    """Whether a question is about writing a type."""
    if " written to an integer" in question:
        return dtype.is_integer
    words = set(re.findall(r"\w+", question))
    family = {dtype.name, dtype.name.split("_")[0]}
    return question.startswith(("Overflow of", "NaN payload in", f"{dtype.name} in memory")) and bool(
        words & family
    )


def _dtype_blocks(dtype: DType) -> Iterator[Block]:
    if dtype.is_packed:
        part = dtype.name.removesuffix("_x4")
        yield Text(f"Four numbers of {part} in one element, the first in the lowest bits.")
        yield Bullets((f"bytes: {dtype.itemsize}", f"bits of each number: {dtype.itemsize * 2}",
                       *_float_facts(ml_dtypes.finfo(getattr(ml_dtypes, part)))))  # fmt: skip
        yield Text("Only the microscaling instructions compute on it.")
        return
    size = f"bytes: {dtype.itemsize}"
    if dtype.kind == "b":
        yield Text("True or False.")
        yield Bullets((size, "as a number: 1 and 0", "a float written to it: True where it is not 0"))
        return
    if dtype.is_integer:
        low, high = integer_bounds(dtype)
        yield Text(f"{'Signed' if dtype.kind == 'i' else 'Unsigned'} integer of {8 * dtype.itemsize} bits.")
        yield Bullets((size, f"range: {low} to {high}"))
        yield Text(f"{ROUNDING} What is out of range saturates.")
        return
    if not dtype.mantissa_bits:
        yield Text(
            "A power of two without sign, which scales a group of a microscaling tensor; there is no zero."
        )
        info = ml_dtypes.finfo(dtype.storage)
        yield Bullets(
            (size, f"range: `2**{np.log2(float(info.min)):.0f}` to `2**{np.log2(float(info.max)):.0f}`")
        )
        return
    yield Text(f"Floating point in {8 * dtype.itemsize} bits.")
    yield Bullets((size, *_float_facts(ml_dtypes.finfo(dtype.storage), dtype), *_overflow(dtype)))
    yield Text(ROUNDING if dtype is not FLOAT32 else "What engines compute in; the write rounds nothing.")


def _overflow(dtype: DType) -> list[str]:
    """What the largest float32 becomes where it is out of range, found by writing it."""
    cell = np.zeros(1, dtype.storage)
    with np.errstate(over="ignore"):
        store(cell, np.float32(np.finfo(np.float32).max), dtype)
    became = float(cell.astype(np.float32)[0])
    word = "infinity" if np.isinf(became) else "NaN" if np.isnan(became) else "the largest finite"
    return [] if dtype is FLOAT32 else [f"overflow becomes: {word}"]


def _float_facts(info: ml_dtypes.finfo, dtype: DType | None = None) -> list[str]:
    """Bits and range; tfloat32 has those of float32 but for its mantissa, and a hole of 13 bits."""
    mantissa = dtype.mantissa_bits if dtype is not None else int(info.nmant)
    largest = float(info.max)
    if dtype is TFLOAT32:
        largest = (2 - 2.0**-mantissa) * 2.0**127
    infinite, nan = np.array([np.inf, np.nan], np.float32).astype(np.dtype(info.dtype)).astype(np.float32)
    has_infinity, has_nan = bool(np.isinf(infinite)), bool(np.isnan(nan))
    kinds_of_values = [word for word, has in (("infinity", has_infinity), ("NaN", has_nan)) if has]
    return [
        f"sign, exponent and mantissa bits: {int(float(info.min) < 0)}, {int(info.nexp)}, {mantissa}",
        f"largest finite: {largest:.10g}",
        f"smallest normal: {float(info.smallest_normal):.7g}",
        f"from 1 to the next: `2**-{mantissa}`",
        f"has: {' and '.join(kinds_of_values) if kinds_of_values else 'neither infinity nor NaN'}",
    ]
