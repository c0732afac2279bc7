"""Pages of `nkilab explain`: instructions and chips, made from their declarations."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from inspect import cleandoc, signature
from typing import Any

from .dialects.dst_first.modules import ISA
from .dialects.serve import tables
from .errors import UsageError
from .isa import REGISTRY
from .isa.declare import Instruction
from .machine import MACHINES, Machine
from .views.metrics import METRICS


def explanation(name: str) -> str:
    """The page of an instruction, a metric or a chip.

    Raises:
        UsageError: if there is no page of this name.
    """
    word = name.removeprefix("nki.isa.").removeprefix("nisa.")
    if word in REGISTRY:
        return instruction_page(REGISTRY[word])
    if word in MACHINES:
        return chip_page(MACHINES[word])
    if word in METRICS:
        metric = METRICS[word]
        return f"{word} [{metric.unit}]\n\n{metric.definition}"
    near = get_close_matches(word, [*REGISTRY, *MACHINES, *METRICS], 3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"instructions are {', '.join(REGISTRY)}"
    raise UsageError(f"there is no page of {name}", hint=hint)


def instruction_page(cls: type[Instruction]) -> str:
    """Signature in each spelling, operands, limits per chip, rules, source."""
    old: Callable[..., Any] | None = tables("neuronxcc", "")["neuronxcc.nki.isa"].get(cls.name)
    lines = [
        cls.name,
        "",
        cleandoc(cls.__doc__ or ""),
        "",
        f"  nki            {cls.name}{_plain_signature(ISA[cls.name])}",
        f"  neuronxcc.nki  {cls.name}{_plain_signature(old)}" if old else "  neuronxcc.nki  does not have it",
        "",
        "operands",
    ]
    for name, operand in cls.operands.items():
        kind = "written" if operand.is_written else "read"
        number = ", or a number" if operand.may_be_number else ""
        shape = "any shape" if operand.axes == ("*",) else f"[{', '.join(operand.axes)}]"
        lines.append(f"  {name:12} {kind:8} {shape:10} in {' or '.join(operand.memories)}{number}")
    if cls.attributes:
        lines.append("attributes")
        lines += [f"  {name:12} {attribute.allowed}" for name, attribute in cls.attributes.items()]
    if cls.values:
        lines.append("values")
        lines += [f"  {name:12} {value.allowed}" for name, value in cls.values.items()]
    lines.append("limits")
    for limit in cls.limits:
        most = ", ".join(f"{m.limit(limit.constant)} on {m.name}" for m in MACHINES.values())
        lines.append(f"  {limit.axis.rstrip('*')} at most {most}")
    if cls.rules or cls.call_rules:
        lines.append("refused")
        lines += [f"  {r.sentence}" + (f" ({', '.join(r.chips)})" if r.chips else "") for r in cls.rules]
        lines += [f"  {r.sentence}" for r in cls.call_rules]
    lines.append(f"source: {cls.source}")
    return "\n".join(lines)


def _plain_signature(function: Callable[..., Any]) -> str:
    parts = []
    for p in signature(function).parameters.values():
        if p.kind is p.VAR_KEYWORD:
            continue
        if p.kind is p.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        shown = getattr(p.default, "name", p.default)
        required = repr(p.default) == "required" or p.default is p.empty
        parts.append(p.name if required else f"{p.name}={shown!r}")
    return f"({', '.join(parts)})"


def chip_page(machine: Machine) -> str:
    """Every number about a chip, with how sure it is and its source."""
    lines = [f"{machine.name}, NeuronCore-v{machine.generation}", ""]
    for name, fact in machine.facts().items():
        value = f"{fact.value:g}"
        lines.append(f"  {name:28} {value:>12}  {fact.certainty}: {fact.source}")
    return "\n".join(lines)
