"""Modules of users' files: what a file is called within its package, and its import under that name."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from importlib import import_module, util
from pathlib import Path
from types import ModuleType
from warnings import catch_warnings, simplefilter

from msgspec import Struct

from .disk import INSTALLED, is_same, read_bytes
from .errors import UsageError
from .tracebacks import is_users_file

# Packages that nkilab serves; a folder of such a name is no package of a kernel's.
SERVED = ("nki", "neuronxcc")


class Home(Struct, frozen=True):
    """Where a file's module is found."""

    name: str  # of the module, with dots below a package
    root: Path  # the folder on the path that the name begins in
    is_package: bool  # whether the module belongs to a package, so that Python imports it by its name

    @classmethod
    def of(cls, path: Path, top: Path | None) -> Home:
        """The home of a file whose outermost package is a folder; of a file in no package if that is None."""
        if top is None:
            return cls(path.stem, path.parent, is_package=False)
        module = path.parent if path.stem == "__init__" else path.with_suffix("")
        return cls(".".join(module.parts[len(top.parent.parts) :]), top.parent, is_package=True)


def home_of(path: Path) -> Home:
    """The home of a file of kernels: in the package that it lies in, or that its imports take for one.

    Folders with an `__init__.py` are a package. Others are where the file, or one that it imports from
    there, has imports that begin in them: `from ..common import g`, or `from kernels.common import g`.

    Raises:
        UsageError: if a folder can be no package, though imports take it for one.
    """
    path = Path(os.path.abspath(path))
    top = _outermost_regular(path)
    relative, absolute = _taken_for_packages(path)
    if absolute is not None:
        top = absolute
    elif relative is None and top is not None and _is_taken(top):
        top = None
    if relative is not None and (top is None or relative in top.parents):
        top = _checked(path, relative)
    return Home.of(path, top)


def home_of_script(path: Path) -> Home:
    """The home of a script: as `python3` has it, but for one with relative imports, which fail there."""
    path = Path(os.path.abspath(path))
    is_relative = any(isinstance(node, ast.ImportFrom) and node.level for node in _imports(path))
    return home_of(path) if is_relative else Home.of(path, None)


def _outermost_regular(path: Path) -> Path | None:
    """The outermost of the folders above a file that are packages by their `__init__.py`."""
    top = None
    for folder in path.parents:
        if not (folder / "__init__.py").is_file() or not _can_be_package(folder):
            break
        top = folder
    return top


def _is_taken(top: Path) -> bool:
    """Whether the name of a package is that of an installed one that is loaded."""
    file = file_of(sys.modules.get(top.name))
    return bool(file) and not _is_users(file) and Path(file).parent != top


def _can_be_package(folder: Path) -> bool:
    return folder.name not in ("", *SERVED) and "." not in folder.name


def _checked(path: Path, top: Path) -> Path:
    """The outermost package of a file, of whose folders each can be one."""
    for folder in path.parents:
        if not _can_be_package(folder):
            raise UsageError(
                f"{path} has relative imports, and its folder {folder.name or folder} can be no package",
                hint="give the folder a name without dots that is not nki or neuronxcc",
            )
        if folder == top:
            break
    return top


def _taken_for_packages(path: Path) -> tuple[Path | None, Path | None]:
    """The outermost folders that relative and absolute imports begin in, of a file and what it reaches."""
    begun: list[tuple[bool, Path]] = []
    waiting, seen = [path], {path}
    while waiting:
        file = waiting.pop()
        for node, package, names in [(n, *place) for n in _imports(file) for place in _own(file, n)]:
            begun.append((bool(getattr(node, "level", 0)), package))
            waiting += sorted(reached := set(_files(package, names)) - seen)
            seen |= reached
    relative, absolute = ([p for is_relative, p in begun if is_relative is kind] for kind in (True, False))
    return min(relative, key=_depth, default=None), min(absolute, key=_depth, default=None)


def _depth(folder: Path) -> int:
    return len(folder.parts)


def _imports(file: Path) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports of a file; none of one that is no Python, which its import tells."""
    try:
        with catch_warnings():
            simplefilter("ignore")
            tree = ast.parse(read_bytes(file))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def _own(file: Path, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[Path, list[str]]]:
    """Folders above a file that an import begins in, each with a name that it asks for below."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield from _named(file, alias.name.split("."))
        return
    words = node.module.split(".") if node.module else []
    for alias in node.names:
        if not node.level:
            yield from _named(file, [*words, alias.name])
        elif node.level <= len(file.parents):
            yield file.parents[node.level - 1], [*words, alias.name]


def _named(file: Path, words: list[str]) -> Iterator[tuple[Path, list[str]]]:
    """The folder above a file that an absolute import names, if what it asks for is there."""
    first, *others = words
    for folder in file.parents:
        if folder.name == first and _can_be_package(folder) and any(_files(folder, others[:1])):
            yield folder, others
            return


def _files(package: Path, names: list[str]) -> Iterator[Path]:
    """The files that an import of a name below a package runs."""
    folder = package
    if (folder / "__init__.py").is_file():
        yield folder / "__init__.py"
    for name in names:
        yield from (file for file in (folder / f"{name}.py", folder / name / "__init__.py") if file.is_file())
        folder /= name


def imported(path: Path, home: Home) -> ModuleType:
    """The module of a file; it is run once in a process.

    Raises:
        UsageError: if its package is found elsewhere, or it is no Python file.
    """
    known = sys.modules.get(home.name)
    if known is not None and is_same(file_of(known) or os.devnull, path):
        return known
    if not home.is_package:
        return executed(path, home.name)
    module = import_module(home.name)
    if not is_same(file_of(module) or os.devnull, path):
        raise UsageError(
            f"{path} is {home.name} in its package, and Python finds another one: {file_of(module)}",
            hint=f"rename the folder {home.root / home.name.partition('.')[0]}, or uninstall the other one",
        )
    return module


def executed(path: Path | str, name: str) -> ModuleType:
    """The module of a file that belongs to no package, under a name that is its own unless it is taken.

    Raises:
        UsageError: if it is no Python file.
    """
    spec = util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file", hint="pass FILE.py:KERNEL")
    module = util.module_from_spec(spec)
    known = sys.modules.setdefault(name, module)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        # as an import does: the next one runs it anew
        if known is module:
            del sys.modules[name]
        raise
    return module


def put_in_front(path: Path, home: Home) -> None:
    """Have a file's imports find what a fresh process would: the modules of its package, and of its folder.

    What an earlier kernel imported under the same names from elsewhere is forgotten.
    """
    folder = path.resolve().parent
    near = {entry.removesuffix(".py") for entry in os.listdir(home.root)}
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        if top in near and _is_elsewhere(top, module, home.root):
            del sys.modules[name]
    sys.path.insert(0, str(home.root) if home.is_package else str(folder))
    if home.is_package and str(folder) not in sys.path:
        sys.path.append(str(folder))


def _is_elsewhere(top: str, module: ModuleType, root: Path) -> bool:
    """Whether a module is a user's from elsewhere, and a folder has another one of its name."""
    if not ((root / f"{top}.py").is_file() or (root / top).is_dir()):
        return False
    file = file_of(module)
    places = [file] if file else [str(place) for place in getattr(module, "__path__", ())]
    own = root.resolve()
    return any(_is_users(place) and own not in Path(place).resolve().parents for place in places)


def users_file(module: ModuleType) -> str:
    """The file of a module of the user's; "" of any other."""
    file = file_of(module)
    return os.path.realpath(file) if file and _is_users(file) else ""


def _is_users(file: str) -> bool:
    return is_users_file(file) and not file.startswith(INSTALLED)


def file_of(module: ModuleType | None) -> str:
    """The file of a module; "" of one without a file, or of none."""
    return getattr(module, "__file__", None) or ""
