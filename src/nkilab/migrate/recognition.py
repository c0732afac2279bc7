"""Which version of NKI a file is written for, from what it uses."""

from __future__ import annotations

import ast

from msgspec import Struct

from ..dialects.history import BETA1, NEWEST, VERSIONS, Event, at, history, order
from ..isa import REGISTRY
from ..isa.declare import Instruction
from .changes import MUST
from .rules import rule_changes
from .source import Source, Use


class Recognition(Struct, frozen=True):
    """What a file is written for.

    Args:
        spelling: "neuronxcc", "nki", or "" where it uses neither.
        version: taken for it; "" where it uses neither.
        accepted_by: every version that accepts all that it uses.
    """

    spelling: str
    version: str
    accepted_by: tuple[str, ...]


def recognised(source: Source, spelling: str = "") -> Recognition:
    """The spelling and version of a file: the newest version that accepts most of what it uses."""
    spellings = {u.spelling for u in source.uses} | _imported(source)
    chosen_spelling = spelling or ("neuronxcc" if "neuronxcc" in spellings else "nki" if spellings else "")
    if chosen_spelling != "nki":
        return Recognition(
            chosen_spelling, BETA1 if chosen_spelling else "", (BETA1,) if chosen_spelling else ()
        )
    numbered = [v for v in VERSIONS if v != BETA1]
    refused = {v: _refused(source, v) for v in numbered}
    fewest = min(refused.values())
    best = [v for v in numbered if refused[v] == fewest]
    # what all versions since have is taken for the newest whose stubs show that they do
    shown = [v for v in best if order(v) <= order(NEWEST)]
    return Recognition(chosen_spelling, (shown or best)[-1], tuple(v for v in numbered if not refused[v]))


def _imported(source: Source) -> set[str]:
    dotted = source.bindings.values()
    roots = {"neuronxcc" if d.startswith("neuronxcc") else d.partition(".")[0] for d in dotted}
    return roots & {"neuronxcc", "nki"}


def _refused(source: Source, version: str) -> int:
    """How many of the uses of `nki` in a file a version does not accept."""
    uses = [u for u in source.uses if u.spelling == "nki" and u.name in history()]
    bad = sum(not _accepts(u, version) for u in uses)
    # forms that this version left behind: what had to change on the way to it
    earliest = VERSIONS[1]
    left = (
        sum(c.severity == MUST for c in rule_changes(source, earliest, version)) if version != earliest else 0
    )
    return bad + left


def _accepts(use: Use, version: str) -> bool:
    event = at(use.name, version)
    if event is None:
        return False
    if use.call is None:
        return True
    return event.kind != "word" and (event.kind != "function" or _binds(use, event))


def _binds(use: Use, event: Event) -> bool:
    assert use.call is not None
    signature = event.signature
    if signature.is_open:
        return True
    keywords = [k.arg for k in use.call.keywords]
    known = all(k is None or k == "name" or signature.named(k) is not None for k in keywords)
    if not known or len(use.call.args) > len(signature.positional):
        return False
    arguments = [*zip(signature.positional, use.call.args, strict=False),
             *((k.arg, k.value) for k in use.call.keywords if k.arg)]  # fmt: skip
    cls = REGISTRY.get(use.name.removeprefix("isa."))
    return cls is None or all(_may_be(cls, name, value) for name, value in arguments)


def _may_be(cls: type[Instruction], name: str, value: ast.expr) -> bool:
    """Whether what is written may stand for a parameter: no number for a tile, no list for an operator."""
    operand = cls.operands.get(name)
    if isinstance(value, ast.Constant) and isinstance(value.value, int | float) and operand is not None:
        return operand.may_be_number
    return not (name in _OPERATORS and isinstance(value, ast.List | ast.Tuple | ast.Constant))


# Parameters of instructions that take an operator.
_OPERATORS = ("op", "reduce_op", "cmp_op", "comp_op0", "comp_op1")
