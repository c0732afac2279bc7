"""Mutants of a module: its syntax tree with one small change each, as a slip of the hand would make it.

Left alone is what decides nothing when the module runs: annotations, documentation, decorators, assertions
and `strict=`, which says of a zip what an assertion would.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "nkilab"
# a description shows the largest expression around the change that is no longer than this
_SHOWN = 60

_COMPARISONS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr, ast.MatMult: ast.Mult,
}  # fmt: skip
_NAMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """One change of one module.

    Args:
        path: of the module, below the package.
        place, variant: which node of the tree is replaced, and by which of its replacements.
        lines: those of the statement.
        is_in_function: whether it changes the code of a function, and nothing that defines it.
        what: function, text before and after; no two mutants of a module have the same.
    """

    path: str
    place: int
    variant: int
    lines: range
    is_in_function: bool
    what: str

    def __str__(self) -> str:
        return f"{self.path} {self.what}"

    @property
    def module(self) -> str:
        """The name that the module is imported by."""
        return ".".join(("nkilab", *Path(self.path).with_suffix("").parts)).removesuffix(".__init__")

    def tree(self) -> ast.Module:
        """The module with its change."""
        tree, places = _read(self.path)
        place = places[self.place]
        place.put(_replacements(place)[self.variant])
        return ast.fix_missing_locations(tree)


@dataclass(frozen=True)
class _Place:
    """A node and where it stands: in a field of its parent, or at a position of a list in that field."""

    node: ast.AST
    above: _Place | None
    field: str = ""
    position: int | None = None

    def put(self, other: ast.AST) -> None:
        """Have another node stand here."""
        assert self.above is not None
        if self.position is None:
            setattr(self.above.node, self.field, other)
        else:
            getattr(self.above.node, self.field)[self.position] = other

    def path(self) -> Iterator[_Place]:
        """This place and all above it."""
        here: _Place | None = self
        while here is not None:
            yield here
            here = here.above

    def is_in_function(self) -> bool:
        """Whether it is part of the body of a function, not of what its definition computes."""
        return any(
            isinstance(p.above.node, ast.FunctionDef) and p.field == "body" for p in self.path() if p.above
        )


def mutants_of(folder: str) -> list[Mutant]:
    """All mutants of the modules of a folder of the package, in the order of the text."""
    paths = sorted((PACKAGE / folder).rglob("*.py"))
    return [m for path in paths for m in _mutants(path.relative_to(PACKAGE).as_posix())]


def _mutants(path: str) -> Iterator[Mutant]:
    _, places = _read(path)
    names: Counter[str] = Counter()
    for number, place in enumerate(places):
        for variant, other in enumerate(_replacements(place)):
            what = _described(place, other)
            names[what] += 1
            again = f" ({names[what]})" if names[what] > 1 else ""
            yield Mutant(path, number, variant, _lines(place), place.is_in_function(), what + again)


def _read(path: str) -> tuple[ast.Module, list[_Place]]:
    tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
    return tree, list(_places(_Place(tree, None)))


def _places(place: _Place) -> Iterator[_Place]:
    """Every node that may change, from the top down."""
    yield place
    for field, value in ast.iter_fields(place.node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        several = isinstance(value, list)
        for position, node in enumerate(value if several else [value]):
            if isinstance(node, ast.AST) and not _is_idle(node):
                yield from _places(_Place(node, place, field, position if several else None))


def _is_idle(node: ast.AST) -> bool:
    """Whether nothing that a kernel's author sees depends on a node."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or isinstance(node, ast.Assert) or (isinstance(node, ast.keyword) and node.arg == "strict")


def _replacements(place: _Place) -> list[ast.AST]:
    """What may stand in place of a node by mistake."""
    match place.node:
        case ast.Constant(value=bool(value)):
            return [ast.Constant(not value)]
        case ast.Constant(value=int() | float() as value):
            return [ast.Constant(other) for other in dict.fromkeys((value + 1, value * 2)) if other != value]
        case ast.Compare(left, [op, *ops], comparators):
            return [ast.Compare(left, [_COMPARISONS[type(op)](), *ops], comparators)]
        case ast.BinOp(left, op, right):
            return [ast.BinOp(left, _OPERATORS[type(op)](), right)]
        case ast.BoolOp(op, values):
            return [ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)]
        case ast.UnaryOp(ast.Not() | ast.USub() | ast.Invert(), operand):
            return [operand]
        case ast.Name(id) if id in _NAMES:
            return [ast.Name(_NAMES[id])]
        case ast.Attribute(value, attr) if attr in _NAMES:
            return [ast.Attribute(value, _NAMES[attr])]
        case ast.stmt():
            return _statements(place)
    return _negated(place)


def _statements(place: _Place) -> list[ast.AST]:
    """What may stand in place of a statement of a function."""
    deleted: list[ast.AST] = [ast.Pass()] if place.is_in_function() else []
    match place.node:
        case ast.AugAssign(target, op, value):
            return [ast.AugAssign(target, _OPERATORS[type(op)](), value), *deleted]
        case ast.Assign() | ast.Expr(ast.Call()):
            return deleted
        case ast.Return(ast.expr() as value) if not isinstance(value, ast.Constant):
            return [ast.Return(ast.Constant(None))]
        case ast.Continue():
            return [ast.Break()]
        case ast.Break():
            return [ast.Continue()]
    return []


def _negated(place: _Place) -> list[ast.AST]:
    """The opposite of a condition that is no comparison."""
    if place.field == "test" and isinstance(place.node, ast.expr):
        return [ast.UnaryOp(ast.Not(), place.node)]
    return []


def _described(place: _Place, other: ast.AST) -> str:
    """The function, and the text around a change before and after it."""
    shown = place
    for above in place.path():
        if not isinstance(above.node, ast.expr) or len(ast.unparse(above.node)) > _SHOWN:
            break
        shown = above
    before = ast.unparse(shown.node)
    after = ast.unparse(other)
    if shown is not place:
        place.put(other)
        after = ast.unparse(shown.node)
        place.put(place.node)
    names = [p.node.name for p in place.path() if isinstance(p.node, ast.FunctionDef | ast.ClassDef)]
    return f"{'.'.join(reversed(names)) or 'module'}: {before} -> {after}"


def _lines(place: _Place) -> range:
    """The lines of the statement that a place is in, of a compound one those before its body."""
    statement = next(p.node for p in place.path() if isinstance(p.node, ast.stmt))
    body = getattr(statement, "body", None)
    last = max(body[0].lineno - 1, statement.lineno) if body else statement.end_lineno or statement.lineno
    return range(statement.lineno, last + 1)
