"""A specification as text again: YAML that means the same cascade, types and extents."""

from __future__ import annotations

from collections.abc import Mapping

from .ast import Cascade, Einsum, Iterate, Scalar


def expression(einsum: Einsum) -> str:
    """An Einsum as an expression."""
    operands = " . ".join(
        f"const({o.value:g})" if isinstance(o, Scalar) and not o.name else str(o) for o in einsum.operands
    )
    actions = "".join(
        f" {a} {_spelled(n, len(einsum.operands))}"
        for a, n in (("M", einsum.map_op), ("V", einsum.reduce_op))
        if n
    )
    tail = f" if {einsum.condition} else {einsum.otherwise:g}" if einsum.condition else ""
    return f"{einsum.output} = {operands}{' ;;' + actions if actions else ''}{tail}"


def _spelled(name: str, operands: int) -> str:
    return {"multiply": "mul", "add": "add"}.get(name, name)


def yaml_of(
    cascade: Cascade, dtypes: Mapping[str, str], kernel_name: str, any_layout: frozenset[str] = frozenset()
) -> str:
    """The YAML text of a cascade.

    Args:
        cascade: what it computes, and extents as far as known.
        dtypes: of tensors.
        kernel_name: of the function.
        any_layout: outputs that may be transposed.
    """
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
    if dtypes or any_layout:
        lines.append("format:")
    for name in (t for t in cascade.tensors if t in dtypes or t in any_layout):
        held_by = [f"dtype: {dtypes[name]}"] if name in dtypes else []
        held_by += ["layout: any-layout"] if name in any_layout else []
        lines.append(f"    {name}: {{{', '.join(held_by)}}}")
    lines += [
        "options:",
        f"    kernel-name: {kernel_name}",
        f"    cascade-outputs: [{', '.join(cascade.outputs)}]",
    ]
    return "\n".join(lines) + "\n"
