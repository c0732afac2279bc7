"""A specification as text again: YAML that means the same cascade, types and extents."""

from __future__ import annotations

from collections.abc import Mapping

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


def yaml_of(cascade: Cascade, dtypes: Mapping[str, str], kernel_name: str) -> str:
    """The YAML text of a cascade."""
    lines = ["einsum:", "    declaration:"]
    lines += [f"        {t.name}: [{', '.join(t.ranks)}]" for t in cascade.tensors.values()]
    lines.append("    expressions:")
    for step in cascade.steps:
        if isinstance(step, Iterate):
            lines.append(f"        - iterate: {step.variable}")
            lines.append("          body:")
            lines += [f"              - '{expression(e)}'" for e in step.body]
        else:
            lines.append(f"        - '{expression(step)}'")
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
