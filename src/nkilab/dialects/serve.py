"""The modules that are served under the vendor's names, by table."""

from __future__ import annotations

from difflib import get_close_matches
from types import ModuleType
from typing import Any

from ..errors import SpellingError
from ..trace.source import place_of, user_frame
from .annotations import MutableAnnotation, TensorAnnotation
from .dst_first import modules as dst_first
from .enums import dge_mode, engine, matmul_perf_mode, nc_version, oob_mode, reduce_cmd
from .value_returning import compiler, isa, language, top

_ENUMS = {"engine": engine, "reduce_cmd": reduce_cmd, "dge_mode": dge_mode, "oob_mode": oob_mode,
          "nc_version": nc_version, "matmul_perf_mode": matmul_perf_mode}  # fmt: skip


_TYPING = {"tensor": TensorAnnotation, "mutable_tensor": MutableAnnotation, "mutable": MutableAnnotation}


def _beta1_isa() -> dict[str, Any]:
    words = ("affine_select", "dma_copy", "memset", "iota", "get_nc_version", "tensor_engine",
             "vector_engine", "scalar_engine", "gpsimd_engine", "unknown_engine")  # fmt: skip
    own = {word: getattr(isa, word) for word in words}
    return {**isa.SURFACES, **own, **_ENUMS}


def tables(spelling: str, version: str) -> dict[str, dict[str, Any]]:
    """Names per module for one spelling ("neuronxcc" or "nki") and asked version."""
    if spelling == "neuronxcc":
        return {
            "neuronxcc": {},
            "neuronxcc.nki": top.names(version),
            "neuronxcc.nki.language": language.NAMES,
            "neuronxcc.nki.isa": _beta1_isa(),
            "neuronxcc.nki.isa.constants": _ENUMS,
            "neuronxcc.nki.compiler": compiler.NAMES,
            "neuronxcc.nki.typing": _TYPING,
        }
    return {
        "nki": dst_first.names(version),
        "nki.language": dst_first.LANGUAGE,
        "nki.isa": dst_first.ISA,
        "nki.isa.constants": _ENUMS,
        "nki.typing": _TYPING,
    }


class MissingNameError(SpellingError, AttributeError):
    """A served module has no such name."""


class ServedModule(ModuleType):
    """A module made from a table; unknown names are refused with the nearest known one."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        known = [n for n in vars(self) if not n.startswith("_")]
        near = get_close_matches(name, known, 1)
        raise MissingNameError(
            f"nkilab serves no name {name} here" + ("" if near else f"; it has {', '.join(sorted(known))}"),
            hint=f"did you mean {near[0]}?" if near else "",
        ).located(place_of(user_frame()), self.__name__)


def module_tree(root: str, version: str) -> dict[str, ModuleType]:
    """All modules of one spelling by full name, each set as an attribute of its parent.

    Args:
        root: "neuronxcc" or "nki".
        version: NKI version asked for, or "".
    """
    return modules_from(tables(root, version))


def modules_from(served: dict[str, dict[str, Any]]) -> dict[str, ModuleType]:
    """Modules made from tables of names, linked to their parents."""
    tree: dict[str, ModuleType] = {}
    for name, table in served.items():
        module: ModuleType = ServedModule(name, f"{name}, served by nkilab")
        module.__dict__.update(table)
        module.__path__ = []  # a package, so that its parts import
        tree[name] = module
    for name, module in tree.items():
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(tree[parent], child, module)
    return tree


ROOTS = ("neuronxcc", "nki")
