"""Serving the vendor's module names: a finder that stands last, and what switches it on."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from . import api
from .dialects.gate import LIBRARIES, importing_frame, missing_library, refuse_module
from .dialects.serve import ROOTS, module_tree
from .dialects.versions import version_named
from .errors import UsageError
from .frameworks.jax_calls import staged
from .frameworks.shims import SHIM_ROOTS, extend_logging, host_tree, shim_tree
from .frameworks.traces import observe_jax
from .trace.source import place_of
from .tracebacks import public


class ServedLoader(Loader):
    """Loads a module that was made beforehand.

    Args:
        module: the module.
    """

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: its names are set."""


class ServedFinder(MetaPathFinder):
    """Finds the names of NKI, and for scripts those of the ecosystem, after everything installed.

    Args:
        version: NKI version asked for, or "".
        serves_shims: whether to serve what host scripts import besides NKI.
    """

    def __init__(self, version: str, *, serves_shims: bool) -> None:
        self.version = version
        self._serves_shims = serves_shims
        self._trees: dict[str, dict[str, ModuleType]] = {}

    @public
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a served module, or None."""
        root = fullname.partition(".")[0]
        if root not in ROOTS and not (self._serves_shims and root in SHIM_ROOTS):
            return None
        if root not in self._trees:
            self._trees[root] = self._tree_of(root)
        module = self._trees[root].get(fullname)
        if module is None:
            if fullname in LIBRARIES:
                return _library(fullname)
            if not fullname.startswith(tuple(f"{library}." for library in LIBRARIES)):
                refuse_module(fullname, self._trees[fullname.partition(".")[0]])
            return None
        return ModuleSpec(fullname, ServedLoader(module), origin="nkilab", is_package=True)

    def _tree_of(self, root: str) -> dict[str, ModuleType]:
        """The modules served under a root."""
        if root not in ROOTS:
            return shim_tree(root, self.version)
        if root == "neuronxcc":
            extend_logging()
        return (host_tree if self._serves_shims else module_tree)(root, self.version)


def _library(name: str) -> ModuleSpec | None:
    """The spec of a library of the vendor's that the user has on the path.

    Raises:
        MissingLibraryError: if an import asks for it and there is none; others get None.
    """
    folders = [str(Path(folder, *name.split(".")[:-1])) for folder in sys.path]
    spec = PathFinder.find_spec(name, folders)
    if spec is None and (frame := importing_frame()) is not None:
        raise missing_library(name).located(place_of(frame), "import")
    return spec


# What a distribution that really provides a name has in its folder; placeholders on public registries do not.
_CONTENTS = {"nki": ("language", "isa"), "neuronxcc": ("nki.", "nki/language", "nki/isa")}


def installed_elsewhere(root: str) -> str:
    """Where another distribution provides a served name, or ""; a placeholder counts as absent."""
    where = provider_of(root)
    return where if where and not is_placeholder(root) else ""


def check_free(hint: str) -> None:
    """Refuse to serve names that another distribution provides.

    Args:
        hint: what to do where one does.

    Raises:
        UsageError: if one does.
    """
    for root in ROOTS:
        where = installed_elsewhere(root)
        if where:
            raise UsageError(
                f"{root} is installed at {where}; nkilab serves the name only where nobody else does",
                hint=hint,
            )


def provider_of(root: str) -> str:
    """Where a module of this name is installed, or ""."""
    spec = PathFinder.find_spec(root)
    if spec is None:
        return ""
    return spec.origin or ", ".join(spec.submodule_search_locations or [])


def is_placeholder(root: str) -> bool:
    """Whether what is installed under this name is a package that has none of the parts of NKI."""
    spec = PathFinder.find_spec(root)
    if spec is None or spec.submodule_search_locations is None:
        return False
    folders = [Path(location) for location in spec.submodule_search_locations]
    return not any(next(f.glob(f"{part}*"), None) for f in folders for part in _CONTENTS[root])


def switch_on(version: str = "", *, serves_shims: bool = False, in_front: bool = False) -> ServedFinder:
    """Serve the names in this process from here on.

    Args:
        version: NKI version asked for; whatever some version accepts if "".
        serves_shims: whether to serve what host scripts import besides NKI.
        in_front: whether to serve them even where another distribution provides the names.

    Raises:
        UsageError: if there is no such version.
    """
    asked = version_named(version) if version else ""
    api.WORLD.staging = staged
    observe_jax()
    finder = ServedFinder(asked, serves_shims=serves_shims)
    # last, after everything installed, unless a placeholder would be found in its place
    comes_first = in_front or any(map(is_placeholder, ROOTS))
    sys.meta_path.insert(0 if comes_first else len(sys.meta_path), finder)
    return finder


@contextmanager
def _others_set_aside() -> Iterator[None]:
    """Keep what is served already out of the way of a block, and bring it back: finders and modules."""
    finders = [f for f in sys.meta_path if type(f).__module__.startswith(f"{__package__}.")]
    modules = _served_modules()
    for finder in finders:
        sys.meta_path.remove(finder)
    for name in modules:
        del sys.modules[name]
    try:
        yield
    finally:
        # a block that is open when the interpreter ends finds neither
        if sys.meta_path is not None:
            sys.meta_path.extend(finders)
            sys.modules.update(modules)


def _served_modules() -> dict[str, ModuleType]:
    """Modules that a finder serves, by name."""
    roots = {*ROOTS, *SHIM_ROOTS}
    named = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in roots}
    loaders = {name: getattr(getattr(m, "__spec__", None), "loader", None) for name, m in named.items()}
    return {name: module for name, module in named.items() if isinstance(loaders[name], ServedLoader)}


def switch_off(finder: ServedFinder) -> None:
    """Stop serving and forget the modules served."""
    if sys.meta_path is None:
        return
    if finder in sys.meta_path:
        sys.meta_path.remove(finder)
    for name in _served_modules():
        del sys.modules[name]


@public
def activate(nki: str = "", target: str = "") -> AbstractContextManager[None]:
    """Serve the names `nki` and `neuronxcc` inside a block.

    Args:
        nki: version asked for; whatever some version accepts if "".
        target: chip; see `nkilab.api.machine_for`.

    Raises:
        UsageError: if another distribution provides the names, or the version or chip does not exist.
    """
    check_free("use an environment without it")
    api.machine_for(None, target)
    return _served("" if nki is None or nki == "" else version_named(nki), target)


@contextmanager
def _served(version: str, target: str) -> Iterator[None]:
    with _others_set_aside(), ExitStack() as stack:
        finder = switch_on(version)
        stack.callback(switch_off, finder)
        stack.enter_context(api.chosen(version=finder.version, target=target or api.settings().target))
        yield
