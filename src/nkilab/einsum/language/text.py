"""A specification as text again: YAML that means the same cascade, types and extents."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from .ast import Cascade, Einsum, Iterate, Scalar

# how operators are spelled where that is not their name
SHORT = {"multiply": "mul"}


def expression(einsum: Einsum) -> str:
    """An Einsum as an expression, its numbers in full."""
    operands = " . ".join(
        f"const({o.value!r})" if isinstance(o, Scalar) and not o.name else str(o) for o in einsum.operands
    )
    operators = (("M", einsum.map_op), ("V", einsum.reduce_op))
    actions = "".join(f" {letter} {SHORT.get(name, name)}" for letter, name in operators if name)
    tail = f" if {einsum.condition} else {einsum.otherwise!r}" if einsum.condition else ""
    return f"{einsum.output} = {operands}{' ;;' + actions if actions else ''}{tail}"


def _block(variable: str, entries: list[str]) -> list[str]:
    """Entries as the body of a block; as they are without a variable."""
    return [f"- iterate: {variable}", "  body:", *(" " * 6 + e for e in entries)] if variable else entries


def yaml_of(cascade: Cascade, dtypes: Mapping[str, str], kernel_name: str) -> str:
    """The YAML text of a cascade."""
    lines = ["einsum:", "    declaration:"]
    lines += [f"        {t.name}: [{', '.join(t.ranks)}]" for t in cascade.tensors.values()]
    lines.append("    expressions:")
    for step in cascade.steps:
        entries = list[str]()
        for inner, own in groupby(step.body, key=lambda e: e.turning):
            entries += _block(inner, [f"- '{expression(e)}'" for e in own])
        variable = step.variable if isinstance(step, Iterate) else ""
        lines += [" " * 8 + line for line in _block(variable, entries)]
    for key, held in (("shape", cascade.sizes), ("scalars", cascade.scalars)):
        if held:
            lines.append(f"    {key}:")
            lines += [f"        {name}: {value!r}" for name, value in held.items()]
    types = [f"    {name}: {{dtype: {dtypes[name]}}}" for name in cascade.tensors if name in dtypes]
    lines += ["format:", *types] if dtypes else []
    lines += [
        "options:",
        f"    kernel-name: {kernel_name}",
        f"    cascade-outputs: [{', '.join(cascade.outputs)}]",
    ]
    return "\n".join(lines) + "\n"
