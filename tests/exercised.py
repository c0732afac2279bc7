"""Which names of NKI our tests run where they assert values, from the syntax trees of the tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from nkilab.dialects.history import history
from nkilab.isa.activations import ACTIVATIONS
from nkilab.isa.operators import OPERATORS

TESTS = Path(__file__).parent
# How tests.dialects.spellings calls the modules: spelling, and module with a dot.
SPELLED = {
    f"{module}{digit}": (spelling, below)
    for digit, spelling in {"1": "beta1", "2": "nki"}.items()
    for module, below in {"nl": "language.", "nisa": "isa.", "nki": "", "ncc": "compiler."}.items()
}
# Words of a file that asserts values.
ASSERTIONS = (
    "assert_array_equal",
    "assert_allclose",
    "assert_array_almost_equal",
    "array_equal",
    "np.testing",
)
# Tables whose names a test runs through, by the name it imports.
TABLES = {"ACTIVATIONS": ACTIVATIONS, "OPERATORS": OPERATORS}


@cache
def exercised() -> dict[str, frozenset[str]]:
    """Names in the tables of `history` per spelling."""
    names_by_dialect: dict[str, set[str]] = {"beta1": set(), "nki": set()}
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text()
        if path.name.startswith("test_") and any(word in text for word in ASSERTIONS):
            for spelling, name in names_in(ast.parse(text), text):
                names_by_dialect[spelling].add(name)
    return {spelling: frozenset(names) for spelling, names in names_by_dialect.items()}


def names_in(tree: ast.Module, text: str) -> Iterator[tuple[str, str]]:
    """Spelling and name of what the functions of a file use that are not there to be refused."""
    bound = dict(bindings(tree))
    if not bound:
        return
    lines = text.splitlines()
    spellings = {spelling for spelling, _ in bound.values()}
    imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
    constants = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    constants |= {name for table in imported & set(TABLES) for name in TABLES[table]}
    for function in tree.body:
        function_text = "\n".join(lines[function.lineno - 1 : function.end_lineno])
        if "# refused" in function_text:
            continue
        for node in ast.walk(function):
            yield from names_of(node, bound, constants)
            if isinstance(node, ast.Attribute):
                for spelling in spellings:
                    yield from known(spelling, f"tensor.{node.attr}")


def names_of(
    node: ast.AST, bound: dict[str, tuple[str, str]], constants: set[str]
) -> Iterator[tuple[str, str]]:
    """What one node of a syntax tree uses."""
    match node:
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id=root), attr=middle), attr=last) if (
            root in bound
        ):
            spelling, prefix = bound[root]
            yield from known(spelling, f"{prefix}{middle}.{last}")
        case ast.Attribute(value=ast.Name(id=root), attr=name) if root in bound:
            spelling, prefix = bound[root]
            yield from known(spelling, prefix + name)
        case ast.Subscript(value=ast.Name(id=root), slice=ast.Constant(value=str(name))) if root in bound:
            spelling, prefix = bound[root]
            yield from known(spelling, prefix + name)
        case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name(id=root), *_]) if root in bound:
            spelling, prefix = bound[root]
            for name in constants:
                yield from known(spelling, prefix + name)
        case ast.Call(args=[ast.Attribute(value=ast.Name(id=root), attr=middle), *_]) if root in bound:
            # a whole object, as nisa.engine or nl.tile_size, whose members are compared
            spelling, prefix = bound[root]
            for name in constants:
                yield from known(spelling, f"{prefix}{middle}.{name}")


def known(spelling: str, name: str) -> Iterator[tuple[str, str]]:
    if name in history():
        yield spelling, name


def bindings(tree: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    """Names of a file that stand for a module of NKI: the spelling, and the module with a dot."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "tests.dialects.spellings":
            for alias in node.names:
                if alias.name in SPELLED:
                    yield alias.asname or alias.name, SPELLED[alias.name]
        elif isinstance(node, ast.ImportFrom) and node.module == "nkilab.dialects.dst_first.tensor":
            yield "Tensor", ("nki", "tensor.")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname and alias.name.startswith(("nki.", "neuronxcc.nki.")):
                    yield alias.asname, module_named(alias.name)
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                for name, value in zip(names, values, strict=False):
                    if isinstance(name, ast.Name) and isinstance(value, ast.Name) and value.id in SPELLED:
                        yield name.id, SPELLED[value.id]
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Subscript(slice=ast.Constant(value=str(module)))
            ):
                if module.partition(".")[0] in ("nki", "neuronxcc"):
                    yield name, module_named(module)


def module_named(module: str) -> tuple[str, str]:
    """The spelling of a module of NKI, and the module with a dot: "nki.isa" is ("nki", "isa.")."""
    root, _, below = module.replace("neuronxcc.nki", "neuronxcc").partition(".")
    return "nki" if root == "nki" else "beta1", f"{below}." if below else ""
