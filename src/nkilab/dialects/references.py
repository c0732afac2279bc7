"""Kernels by name, as other processes find them: a kernel is pickled as the functions of its module are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import reduce
from importlib import import_module, util
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct

from ..errors import UsageError, reason_of
from ..packages import SERVED, Home, executed, home_of_script


class Reference(Struct, frozen=True):
    """A kernel of a module of a file."""

    module: str  # name
    name: str  # of the kernel below it, with dots in a class
    path: str  # of the file

    @classmethod
    def of(cls, function: Callable[..., Any], kind: type) -> Reference | None:
        """Where the kernel of a function is found; None if its name stands for something else."""
        module = sys.modules.get(function.__module__)
        name = getattr(function, "__qualname__", "")
        path = _file_of(module)
        kernel = _kernel_below(module, name, kind)
        if kernel is None or kernel.function is not function or not Path(path).is_file():
            return None
        return cls(function.__module__, name, path)

    def kernel(self, kind: type) -> Any:
        """The kernel in this process; its module is run if it was not.

        Raises:
            UsageError: if the module is gone, has no such kernel any more, or imports NKI where
                nobody serves it.
        """
        try:
            module = self._loaded() or self._imported()
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] not in SERVED:
                raise
            raise UsageError(
                f"{self.path} imports {error.name}, which nobody serves in this process",
                hint="start it by nkilab run, or with NKILAB=1",
            ) from None
        except OSError as error:
            if error.filename != self.path:
                raise
            raise UsageError(f"{self.path} cannot be read: {reason_of(error)}") from None
        kernel = _kernel_below(module, self.name, kind)
        if kernel is None:
            raise UsageError(f"{self.path} has no kernel {self.name} any more")
        return kernel

    def _loaded(self) -> ModuleType | None:
        """The module if this process has it; a worker that was spawned calls the script another name."""
        names = (self.module, "__main__", "__mp_main__", Path(self.path).stem)
        modules = (sys.modules.get(name) for name in names)
        return next((m for m in modules if _file_of(m) == self.path), None)

    def _imported(self) -> ModuleType:
        """The module, imported by its name, or run from its file where that is not on the path."""
        is_script = self.module in ("__main__", "__mp_main__")
        if not is_script and util.find_spec(self.module.split(".")[0]):
            return import_module(self.module)
        path = Path(self.path)
        home = home_of_script(path) if is_script else _home_under(path, self.module)
        folders = [str(folder) for folder in (home.root, path.parent) if str(folder) not in sys.path]
        sys.path += dict.fromkeys(folders)
        return import_module(home.name) if home.is_package else executed(path, home.name)


def _home_under(path: Path, name: str) -> Home:
    """The home of a file that another process imported under a name."""
    words = name.split(".")
    module = path.parent if path.stem == "__init__" else path.with_suffix("")
    if list(module.parts[-len(words) :]) != words or (module == path.with_suffix("") and len(words) == 1):
        return Home(name, path.parent, is_package=False)
    return Home(name, module.parents[len(words) - 1], is_package=True)


def _file_of(module: ModuleType | None) -> str:
    path = getattr(module, "__file__", None)
    return str(Path(path).resolve()) if path else ""


def _kernel_below(module: ModuleType | None, name: str, kind: type) -> Any:
    """The kernel under a name of a module, or of what wraps it; None if there is none."""
    kernel: Any = reduce(lambda value, part: getattr(value, part, None), name.split("."), module)
    while kernel is not None and not isinstance(kernel, kind):
        kernel = vars(kernel).get("kernel") if hasattr(kernel, "__dict__") else None
    return kernel
