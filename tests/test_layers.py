"""A module imports only from lower levels, and heavy packages only through `_lazy.py`."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from .sources import ROOT, SOURCES, dotted, name_of, nodes, tree

# The first folder or module of a path has a level; it imports what stands on a lower line.
LEVELS = [
    "errors error_keys compiler_codes _lazy",
    "cycles disk tracebacks argument_checks workers",
    "yaml_files documents failures private_files packages",
    "code_cache",
    "machine records progress conformal",
    "tiles command_line",
    "isa arrays",
    "trace arguments",
    "place dialects",
    "execute timing migrate border",
    "cores tapes remembered",
    "checks views launches",
    "advice edits",
    "files pages",
    "kept_estimates",
    "estimates",
    "api",
    "ledger examples profiles checking",
    "reports",
    "frameworks",
    "hook ops sent_arrays",
    "runner doctor explain demo neuron_profile autostart ranks suites validate calibrate compare stubs",
    "tune scripts projects watching",
    "einsum",
    "torch jax",
    "advising",
    "commands",
    "cli",
    "__init__ __main__",
]
LEVEL = {name: number for number, names in enumerate(LEVELS) for name in names.split()}
# the same within the Einsum compiler; nests in `lower` and the planner need each other
EINSUM_LEVELS = [
    "language",
    "tree rewrite reference grades",
    "written hardware room chain tolerance",
    "plan lower",
    "emit checks sets probes",
    "roofline attempts timed sums",
    "reaching",
    "prove",
    "artefacts",
    "compiled",
    "report ranged mapped",
    "search",
    "compiler",
    "verb",
]
HEAVY = {
    "numba",
    "llvmlite",
    "rich",
    "torch",
    "jax",
    "click",
    "islpy",
    "opt_einsum",
    "ruamel",
    "optuna",
    "distributed",
    "dask",
    "pyarrow",
}
# The modules of the program declare their options with click; nothing else imports them.
PROGRAM = {"cli.py", "command_line.py", "neuron_profile.py"}
# `nkilab.__version__` is a name of the package, not a module
PACKAGE_NAMES = {"__version__"}


def home(path: Path, root: Path = ROOT) -> str:
    """The folder or module under the package that a file belongs to."""
    return path.relative_to(root).with_suffix("").parts[0]


def imports(trees: Iterable[ast.AST]) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in trees if isinstance(node, ast.Import | ast.ImportFrom)]


def targets(path: Path, root: Path = ROOT) -> Iterator[str]:
    """The folders and modules under the package that a file imports."""
    depth = len(path.relative_to(root).parts)
    for node in imports(nodes(path)):
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.Import):
            yield from (name.split(".")[1] for name in names if name.startswith("nkilab."))
        elif node.level == depth:
            yield from [node.module.split(".")[0]] if node.module else names
        elif node.module and node.module.split(".")[0] == "nkilab" and not node.level:
            yield from node.module.split(".")[1:2] or names


def roots_of(node: ast.Import | ast.ImportFrom) -> set[str]:
    """The packages that an import names."""
    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
    return {name.split(".")[0] for name in names}


def without_type_checking(module: ast.Module) -> ast.Module:
    """The statements that run: what stands under `if TYPE_CHECKING` is for the type checker alone."""
    kept = [n for n in module.body if not (isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")]
    return ast.Module(kept, [])


def test_every_module_has_a_level() -> None:
    for path in SOURCES:
        assert home(path) in LEVEL, f"give {home(path)} a line in LEVELS"


def test_imports_point_downward_and_siblings_do_not_meet() -> None:
    for path in SOURCES:
        own = home(path)
        met = set() if own == "__init__" else set(targets(path)) - {own} - PACKAGE_NAMES
        above = [target for target in met if LEVEL[target] >= LEVEL[own]]
        assert not above, f"{name_of(path)} imports {above}, not below it"


def test_rewrites_know_nothing_of_plans_nor_plans_of_what_is_made_of_them() -> None:
    root = ROOT / "einsum"
    level = {name: number for number, names in enumerate(EINSUM_LEVELS) for name in names.split()}
    for path in (p for p in SOURCES if root in p.parents and home(p, root) != "__init__"):
        own = home(path, root)
        met = set(targets(path, root)) - ({"plan", "lower"} if own in ("plan", "lower") else {own})
        above = [target for target in met if level[target] >= level[own]]
        assert not above, f"{name_of(path)} imports {above}, not below it"


def test_imports_within_the_package_are_relative() -> None:
    for path in SOURCES:
        for node in imports(nodes(path)):
            is_absolute = isinstance(node, ast.Import) or not node.level
            assert not (is_absolute and "nkilab" in roots_of(node)), f"{name_of(path)}: {ast.unparse(node)}"


def test_heavy_packages_are_imported_through_lazy_alone() -> None:
    for path in SOURCES:
        if path.name == "_lazy.py":
            continue
        is_program = path.name in PROGRAM or path.parent.name == "commands"
        heavy = HEAVY - {"click"} if is_program else HEAVY
        running = tuple(ast.walk(without_type_checking(tree(path))))
        for node in imports(running):
            assert not roots_of(node) & heavy, f"{name_of(path)}: {ast.unparse(node)}"
        for node in running:
            if isinstance(node, ast.Call) and dotted(node.func).endswith("import_module"):
                argument = node.args[0]
                name = argument.value if isinstance(argument, ast.Constant) else ""
                assert str(name).split(".")[0] not in HEAVY, f"{name_of(path)}: {ast.unparse(node)}"


def test_imports_stand_at_the_head() -> None:
    for path in SOURCES:
        functions = [n for n in nodes(path) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        for function in functions if path.name != "_lazy.py" else []:
            inner = [ast.unparse(node) for node in imports(ast.walk(function))]
            assert not inner, f"{name_of(path)}: {function.name} imports within itself: {inner[0]}"


@pytest.mark.parametrize(
    "statement",
    ["import nkilab", "import nkilab.isa", "import nkilab.trace.session", "import nkilab.torch, nkilab.jax"],
)
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
