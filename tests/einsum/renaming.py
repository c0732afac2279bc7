"""Cascades under other names, and the text of kernels without theirs."""

from __future__ import annotations

import io
import keyword
import tokenize
from collections.abc import Mapping
from dataclasses import replace

from nkilab.einsum.language.ast import (
    Access,
    Affine,
    Cascade,
    Condition,
    Einsum,
    Gather,
    Iterate,
    Scalar,
    Tensor,
)

KEPT = {"nl", "nisa", "nki", "neuronxcc", "min", "range", "float", "isa", "language"}


def renamed_cascade(
    cascade: Cascade, tensors: Mapping[str, str], ranks: Mapping[str, str]
) -> tuple[Cascade, dict[str, str]]:
    """A cascade with other tensors and ranks; rank variables follow."""
    names = dict(ranks) | {r.lower(): new.lower() for r, new in ranks.items()}

    def index(i: Affine | Gather) -> Affine | Gather:
        return i.renamed(names) if isinstance(i, Affine) else Gather(access(i.access))

    def access(a: Access) -> Access:
        return Access(tensors[a.tensor], tuple(map(index, a.indices)))

    def operand(o: Access | Scalar) -> Access | Scalar:
        return access(o) if isinstance(o, Access) else o

    def einsum(e: Einsum) -> Einsum:
        c = e.condition
        condition = Condition(c.left.renamed(names), c.relation, c.right.renamed(names)) if c else None
        return replace(
            e, output=access(e.output), operands=tuple(map(operand, e.operands)), condition=condition, text=""
        )

    steps = tuple(
        Iterate(names.get(s.variable, s.variable), tuple(map(einsum, s.body)))
        if isinstance(s, Iterate)
        else einsum(s)
        for s in cascade.steps
    )
    declared = {
        tensors[t.name]: Tensor(tensors[t.name], tuple(ranks[r] for r in t.ranks))
        for t in cascade.tensors.values()
    }
    outputs = tuple(tensors[t] for t in cascade.outputs)
    sizes = {ranks[r]: n for r, n in cascade.sizes.items()}
    return Cascade(declared, steps, outputs, cascade.scalars, sizes), names


def shape_of(source: str) -> list[str]:
    """The tokens of a kernel, its own names left out: one name may serve two loops, or two names."""
    shape = []
    after_dot = False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            continue
        text = token.string
        if token.type == tokenize.STRING and len(text) > 20:
            continue
        is_own = (
            token.type == tokenize.NAME and not keyword.iskeyword(text) and text not in KEPT and not after_dot
        )
        if is_own:
            text = "name"
        after_dot = token.string == "."
        # commas that close a broken line come and go with its length
        if text == ")" and shape and shape[-1] == ",":
            shape.pop()
        shape.append(text)
    return shape
