"""Where in the user's source a value is asked for its truth: what `__bool__` alone cannot tell.

Python calls `__bool__` for `if a`, `while a`, `a and b` and others alike. The position of the bytecode that
runs in the user's frame leads to the node of the syntax tree.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType

from msgspec import Struct

from ..loop_text import read_file

Span = tuple[int | None, int | None, int | None, int | None]


class Asked(Struct, frozen=True):
    """A place where truth is asked."""

    by: str  # "if", "while", "mask" (an operand of `and` that is the mask= of a call), or "" for others
    span: Span  # of the statement or call: first and last line, first and last column
    at: int  # of the bytecode in its code object
    code: CodeType  # the function's


def span_of(frame: FrameType) -> Span:
    """First and last line, first and last column of the expression that runs in a frame."""
    return next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))


def asked_in(frame: FrameType) -> Asked:
    """Where the truth of a value is asked by the expression that runs in the user's frame."""
    span = span_of(frame)
    by, whole = _askers(read_file(frame.f_code.co_filename)[0]).get(span, ("", span))
    return Asked(by, whole, frame.f_lasti, frame.f_code)


@lru_cache(maxsize=64)
def _askers(tree: ast.Module) -> dict[Span, tuple[str, Span]]:
    """Per span of an expression in a file whose truth is asked: by what, and the span of that."""
    askers: dict[Span, tuple[str, Span]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.If() | ast.IfExp() | ast.While():
                by = "while" if isinstance(node, ast.While) else "if"
                # some versions of Python give the jump the place of the test, others that of the statement
                askers[_span(node.test)] = askers[_span(node)] = (by, _span(node))
            case ast.Call():
                masks = [keyword.value for keyword in node.keywords if keyword.arg == "mask"]
                joined = [m for m in masks if isinstance(m, ast.BoolOp) and isinstance(m.op, ast.And)]
                askers |= {_span(mask): ("mask", _span(node)) for mask in joined}
    return askers


def _span(node: ast.expr | ast.stmt) -> Span:
    # positions of bytecode count columns in bytes, as the tree does
    return (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)
