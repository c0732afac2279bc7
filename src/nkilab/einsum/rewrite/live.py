"""What outputs depend on, and why other Einsums are left out."""

from __future__ import annotations

from dataclasses import replace

from ..language.ast import Cascade, Kind, Step


def live(cascade: Cascade) -> tuple[Cascade, list[str]]:
    """A cascade without the Einsums that no output depends on, and the tensors that went with them."""
    needed = set(cascade.outputs)
    while True:
        more = {t for e in cascade.einsums if e.name in needed for t in e.reads} - needed
        if not more:
            break
        needed |= more
    steps: list[Step] = []
    for step in cascade.steps:
        body = [e for e in step.body if e.name in needed]
        steps += [step.with_body(body)] if body else []
    gone = [t for t in cascade.written if t not in needed]
    tensors = {name: t for name, t in cascade.tensors.items() if name not in gone}
    return replace(cascade, tensors=tensors, steps=tuple(steps)), gone


def why_left_out(name: str, before: Cascade, after: Cascade) -> str:
    """Why an Einsum of a cascade is not computed once rewrites are through."""
    sums = {d.origin for d in after.derived.values() if d.kind is Kind.SUM}
    reader = next((e for e in before.einsums if name in e.reads and e.name in sums), None)
    if reader is None:
        if name in live(before)[1]:
            return "no output depends on it"
        is_scan = any(e.recurrence for e in after.einsums)
        return "it is a part of a scan" if is_scan else "others have its values"
    return f"what {reader.name} does not sum over is multiplied after the sum"
