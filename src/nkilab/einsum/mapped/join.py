"""Kernels of sections one after the other, as one: tensors between them lie in HBM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TypeVar

from ...errors import UnsupportedError
from ..language.ast import Cascade
from ..tree.nodes import HBM, Alloc, Buffer, Kernel, Loop, Statement, View

Held = TypeVar("Held", bound=Statement)


def joined(kernels: Sequence[Kernel], cascade: Cascade, name: str, title: str) -> Kernel:
    """One kernel of several.

    Args:
        kernels: in order; what one returns, later ones take by the tensor's name.
        cascade: of all of them.
        name, title: of the kernel.
    """
    arguments = {a.name: a for k in kernels for a in k.arguments}
    wanted = [*cascade.inputs, *(n for n in cascade.scalars if n in arguments)]
    made = {b.tensor: b for k in kernels for b in k.outputs}
    known = {a.name: a for a in arguments.values()}
    held = _Joined({*known, *made, name}, cascade.outputs)
    body = [s for k in kernels for s in held.body(k.body)]
    outputs = tuple(held.tensors[t] for t in cascade.outputs)
    # outputs are made at the head, whichever section writes them
    heads = [s for s in body if isinstance(s, Alloc) and s.buffer.memory == HBM]
    rest = [s for s in body if not (isinstance(s, Alloc) and s.buffer.memory == HBM)]
    return Kernel(name, tuple(known[n] for n in wanted), [*heads, *rest], outputs, title)


class _Joined:
    def __init__(self, taken: set[str], outputs: Sequence[str]) -> None:
        self.taken, self.outputs = taken, outputs
        self.tensors: dict[str, Buffer] = {}
        self.renamed: dict[int, Buffer] = {}
        self.kept: list[Buffer] = []

    def loop(self, loop: Loop) -> Loop:
        if loop.variable in self.taken:
            raise UnsupportedError(f"a loop and a tensor are both called {loop.variable}",
                                   hint="call the tensor something else")  # fmt: skip
        return replace(loop, body=self.body(loop.body))

    def body(self, body: list[Statement]) -> list[Statement]:
        """Statements with the buffers of the joined kernel."""
        found: list[Statement] = []
        for statement in body:
            if isinstance(statement, Loop):
                found.append(self.loop(statement))
            elif isinstance(statement, Alloc):
                found.append(Alloc(self.buffer(statement.buffer)))
            else:
                found.append(self.changed(statement))
        return found

    def changed(self, statement: Held) -> Held:
        held = {f.name: getattr(statement, f.name) for f in fields(statement)}
        views = {n: replace(v, buffer=self.buffer(v.buffer)) for n, v in held.items() if isinstance(v, View)}
        return replace(statement, **views) if views else statement

    def buffer(self, old: Buffer) -> Buffer:
        """The buffer of the joined kernel that stands for one of a section."""
        if id(old) not in self.renamed:
            self.kept.append(old)
            self.renamed[id(old)] = self.made(old)
        return self.renamed[id(old)]

    def made(self, old: Buffer) -> Buffer:
        if old.memory != HBM:
            name = old.name
            while name in self.taken:
                name += "_"
            return replace(old, name=name)
        if old.role not in ("input", "output") or old.name != old.tensor:
            return old
        if old.tensor not in self.tensors:
            role = old.role if old.role == "input" or old.tensor in self.outputs else "scratch"
            self.tensors[old.tensor] = replace(old, role=role)
        return self.tensors[old.tensor]
