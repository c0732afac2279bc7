"""The modules that are served under the vendor's names, by table."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from .._lazy import part
from .annotations import TYPING, ScalarAnnotation
from .dst_first import modules as dst_first
from .dst_first.tensor import Tensor
from .enums import ENUMS, dma_engine
from .foreign import keep_from_host
from .gate import ServedModule, held_tables, hold_members


def tables(spelling: str, version: str) -> dict[str, dict[str, Any]]:
    """Names per module for one spelling ("neuronxcc" or "nki") as the version asked for has them."""
    return held_tables(every_table(spelling, version), version)


def every_table(spelling: str, version: str = "") -> dict[str, dict[str, Any]]:
    """Names per module for one spelling, whatever version has them."""
    if spelling == "neuronxcc":
        # a kernel of `nki` does without the many functions of the other spelling
        return part("dialects.value_returning.served").tables(version)
    return {
        "nki": dst_first.names(version),
        "nki.language": dst_first.LANGUAGE,
        "nki.isa": dst_first.ISA,
        "nki.isa.constants": {**ENUMS, "dma_engine": dma_engine},
        "nki.typing": {**TYPING, "scalar": ScalarAnnotation},
        **dst_first.OTHER_MODULES,
    }


def module_tree(root: str, version: str) -> dict[str, ModuleType]:
    """All modules of one spelling by full name, each set as an attribute of its parent.

    Args:
        root: "neuronxcc" or "nki".
        version: NKI version asked for, or "".
    """
    return modules_from(every_table(root, version), version)


def modules_from(served: dict[str, dict[str, Any]], version: str | None = None) -> dict[str, ModuleType]:
    """Modules made from tables of names, linked to their parents.

    Args:
        served: per module its names.
        version: the NKI version that they are held to, "" for all that have them; None to hold them to none.
    """
    tree: dict[str, ModuleType] = {}
    for name, table in served.items():
        module: ModuleType = ServedModule(name, version or "", {} if version is None else table)
        vars(module).update(table if version is None else {})
        module.__path__ = []  # a package, so that its parts import
        tree[name] = module
    for name, module in tree.items():
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(tree[parent], child, module)
    return tree


def extended(
    tree: dict[str, ModuleType], root: str, tables: dict[str, dict[str, Any]]
) -> dict[str, ModuleType]:
    """The modules of a root, with those of further tables, parents first, that it lacks."""
    added = modules_from({root: {}, **tables})
    for name in tables:
        if name not in tree:
            parent, _, child = name.rpartition(".")
            tree[name] = added[name]
            setattr(tree[parent], child, added[name])
    return tree


ROOTS = ("neuronxcc", "nki")

hold_members(Tensor, dst_first.LANGUAGE, "")
keep_from_host(Tensor, dst_first.LANGUAGE)
