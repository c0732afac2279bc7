"""A module imports only from lower levels, and heavy packages only through `_lazy.py`."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nkilab

ROOT = Path(nkilab.__file__).parent
# The first folder or module of a path has a level; it imports what stands on a lower line.
LEVELS = [
    "errors error_keys _lazy",
    "yaml_files program",
    "machine records heap progress",
    "tiles",
    "isa arrays benchmark",
    "trace arguments",
    "place dialects",
    "execute timing migrate",
    "cores",
    "checks views launches",
    "files pages",
    "api what_if",
    "ledger frameworks examples profiles checking",
    "hook",
    "runner doctor explain demo neuron_profile autostart ops ranks reports suites validate calibrate einsum "
    "stubs",
    "tune scripts projects",
    "commands",
    "cli",
    "__init__ __main__",
]
LEVEL = {name: number for number, names in enumerate(LEVELS) for name in names.split()}
HEAVY = {
    "numba",
    "llvmlite",
    "rich",
    "torch",
    "jax",
    "click",
    "islpy",
    "ruamel",
    "optuna",
    "distributed",
    "dask",
    "pyarrow",
    "perfetto",
}
# The modules of the program declare their options with click; nothing else imports them.
PROGRAM = {"cli.py", "program.py", "neuron_profile.py"}
# `nkilab.__version__` is a name of the package, not a module
PACKAGE_NAMES = {"__version__"}
MODULES = sorted(ROOT.rglob("*.py"))
modules = pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))


def home(path: Path) -> str:
    """The folder or module under the package that a file belongs to."""
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node


def targets(path: Path) -> Iterator[str]:
    """The folders and modules under the package that a file imports."""
    depth = len(path.relative_to(ROOT).parts)
    for node in imports(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.Import):
            yield from (name.split(".")[1] for name in names if name.startswith("nkilab."))
        elif node.level == depth:
            yield from [node.module.split(".")[0]] if node.module else names
        elif node.module and node.module.split(".")[0] == "nkilab" and not node.level:
            yield from node.module.split(".")[1:2] or names


def without_type_checking(tree: ast.Module) -> ast.Module:
    """The statements that run: what stands under `if TYPE_CHECKING` is for the type checker alone."""
    kept = [n for n in tree.body if not (isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")]
    return ast.Module(kept, [])


@modules
def test_every_module_has_a_level(path: Path) -> None:
    assert home(path) in LEVEL, f"give {home(path)} a line in LEVELS"


@modules
def test_imports_point_downward_and_siblings_do_not_meet(path: Path) -> None:
    own = home(path)
    if own == "__init__":
        return
    for target in targets(path):
        if target != own and target not in PACKAGE_NAMES:
            assert LEVEL[target] < LEVEL[own], (
                f"{path.relative_to(ROOT)} imports {target}, which is not below it"
            )


@modules
def test_imports_within_the_package_are_relative(path: Path) -> None:
    for node in imports(ast.parse(path.read_text())):
        roots = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        is_absolute = isinstance(node, ast.Import) or not node.level
        assert not (is_absolute and any(root.split(".")[0] == "nkilab" for root in roots)), ast.unparse(node)


@modules
def test_heavy_packages_are_imported_through_lazy_alone(path: Path) -> None:
    if path.name == "_lazy.py":
        return
    tree = without_type_checking(ast.parse(path.read_text()))
    is_program = path.name in PROGRAM or path.parent.name == "commands"
    heavy = HEAVY - {"click"} if is_program else HEAVY
    for node in imports(tree):
        roots = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        assert not {root.split(".")[0] for root in roots} & heavy, ast.unparse(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            given = node.args[0]
            name = given.value if isinstance(given, ast.Constant) else ""
            assert str(name).split(".")[0] not in HEAVY, ast.unparse(node)


@modules
def test_imports_stand_at_the_head(path: Path) -> None:
    if path.name == "_lazy.py":
        return
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = [ast.unparse(node) for node in imports(function)]
            assert not inner, f"{function.name} imports within itself: {inner[0]}"


@pytest.mark.parametrize("statement", ["import nkilab", "import nkilab.isa", "import nkilab.trace.session"])
def test_importing_nkilab_loads_nothing_heavy(statement: str) -> None:
    asked = f"{statement}, sys" if statement.startswith("import") else statement
    program = f"{asked}; print(*sorted({{m.split('.')[0] for m in sys.modules}} & {HEAVY!r}))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT.parent)},
    )
    assert done.stdout.split() == []


def test_every_lower_level_can_be_imported_alone() -> None:
    names = [name for line in LEVELS[:8] for name in line.split() if (ROOT / name).is_dir()]
    program = "\n".join(f"import nkilab.{name}" for name in names)
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": str(ROOT.parent)})
