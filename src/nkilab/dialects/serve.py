"""The modules that are served under the vendor's names, by table."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from .annotations import MutableAnnotation, ScalarAnnotation, TensorAnnotation
from .dst_first import modules as dst_first
from .dst_first.tensor import Tensor
from .enums import (
    beta1_dge_mode,
    dge_mode,
    dma_engine,
    engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from .foreign import keep_from_host
from .gate import ServedModule, held_tables, hold_members
from .history import BETA1
from .value_returning import compiler, host, isa, language, run_time, scalars, top
from .value_returning import program_ids as programs
from .value_returning import tensor as returned

_ENUMS = {"engine": engine, "reduce_cmd": reduce_cmd, "dge_mode": dge_mode, "oob_mode": oob_mode,
          "nc_version": nc_version, "matmul_perf_mode": matmul_perf_mode}  # fmt: skip
_BETA1_ENUMS = {**_ENUMS, "dge_mode": beta1_dge_mode}


_TYPING = {"tensor": TensorAnnotation, "mutable_tensor": MutableAnnotation, "mutable": MutableAnnotation}
_BETA1_TYPING = {**_TYPING, "scalar": scalars.scalar}


def _beta1_isa() -> dict[str, Any]:
    words = ("affine_select", "dma_copy", "memset", "iota", "get_nc_version", "tensor_engine",
             "vector_engine", "scalar_engine", "gpsimd_engine", "unknown_engine", "dma_engine")  # fmt: skip
    own = {word: getattr(isa, word) for word in words}
    own |= {"fp32": language.fp32, "builtin_custom_op": programs.builtin_custom_op,
            "tensor_copy_dynamic_src": run_time.tensor_copy_dynamic_src,
            "tensor_copy_dynamic_dst": run_time.tensor_copy_dynamic_dst,
            "_tiled_offloaded_memcpy": programs.tiled_offloaded_memcpy,
            "_tiled_offloaded_fma": programs.tiled_offloaded_fma}  # fmt: skip
    return {**isa.SURFACES, **own, **_BETA1_ENUMS}


def tables(spelling: str, version: str) -> dict[str, dict[str, Any]]:
    """Names per module for one spelling ("neuronxcc" or "nki") as the version asked for has them."""
    return held_tables(every_table(spelling, version), version)


def every_table(spelling: str, version: str = "") -> dict[str, dict[str, Any]]:
    """Names per module for one spelling, whatever version has them."""
    if spelling == "neuronxcc":
        return {
            "neuronxcc": {},
            "neuronxcc.nki": top.names(version),
            "neuronxcc.nki.language": language.NAMES,
            "neuronxcc.nki.language.constants": host.CONSTANTS,
            "neuronxcc.nki.isa": _beta1_isa(),
            "neuronxcc.nki.isa.constants": _BETA1_ENUMS,
            "neuronxcc.nki.compiler": compiler.NAMES,
            "neuronxcc.nki.nccl": programs.COLLECTIVES,
            "neuronxcc.nki._private": {},
            "neuronxcc.nki._private.private_api": programs.PRIVATE,
            "neuronxcc.nki.typing": _BETA1_TYPING,
        }
    return {
        "nki": dst_first.names(version),
        "nki.language": dst_first.LANGUAGE,
        "nki.isa": dst_first.ISA,
        "nki.isa.constants": {**_ENUMS, "dma_engine": dma_engine},
        "nki.typing": {**_TYPING, "scalar": ScalarAnnotation},
        **dst_first.OTHER_MODULES,
    }


def module_tree(root: str, version: str) -> dict[str, ModuleType]:
    """All modules of one spelling by full name, each set as an attribute of its parent.

    Args:
        root: "neuronxcc" or "nki".
        version: NKI version asked for, or "".
    """
    return modules_from(tables(root, version), version)


def modules_from(served: dict[str, dict[str, Any]], version: str = "") -> dict[str, ModuleType]:
    """Modules made from tables of names, linked to their parents.

    Args:
        served: per module its names.
        version: that they are held to, or "".
    """
    tree: dict[str, ModuleType] = {}
    for name, table in served.items():
        module: ModuleType = ServedModule(name, version)
        module.__dict__.update(table)
        module.__path__ = []  # a package, so that its parts import
        tree[name] = module
    for name, module in tree.items():
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(tree[parent], child, module)
    return tree


ROOTS = ("neuronxcc", "nki")

for _cls, _words, _version in (
    (Tensor, dst_first.LANGUAGE, ""),
    (returned.Tensor, language.NAMES, BETA1),
):
    hold_members(_cls, _words, _version)
    keep_from_host(_cls, _words)
