"""The instruction set, one module per family. Importing this package registers every instruction."""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

from .declare import REGISTRY as REGISTRY  # noqa: E402
from .declare import Instruction as Instruction  # noqa: E402
