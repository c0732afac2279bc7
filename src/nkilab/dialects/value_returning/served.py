"""The names that are served under `neuronxcc.nki`, by module; loaded where a script imports one of them."""

from __future__ import annotations

from typing import Any

from ..annotations import TYPING, TensorAnnotation
from ..enums import ENUMS, beta1_dge_mode
from ..foreign import keep_from_host
from ..gate import hold_members
from ..history import BETA1
from . import compiler, host, isa, language, run_time, scalars, top
from . import program_ids as programs
from .tensor import Tensor

_ENUMS = {**ENUMS, "dge_mode": beta1_dge_mode}


def _isa() -> dict[str, Any]:
    words = ("affine_select", "dma_copy", "memset", "iota", "get_nc_version", "tensor_engine",
             "vector_engine", "scalar_engine", "gpsimd_engine", "unknown_engine", "dma_engine")  # fmt: skip
    own = {word: getattr(isa, word) for word in words}
    own |= {"fp32": language.fp32, "builtin_custom_op": programs.builtin_custom_op,
            "tensor_copy_dynamic_src": run_time.tensor_copy_dynamic_src,
            "tensor_copy_dynamic_dst": run_time.tensor_copy_dynamic_dst,
            "_tiled_offloaded_memcpy": programs.tiled_offloaded_memcpy,
            "_tiled_offloaded_fma": programs.tiled_offloaded_fma}  # fmt: skip
    return {**isa.SURFACES, **own, **_ENUMS}


def tables(version: str) -> dict[str, dict[str, Any]]:
    """Names per module, whatever version has them."""
    return {
        "neuronxcc": {},
        "neuronxcc.nki": top.names(version),
        "neuronxcc.nki.language": language.NAMES,
        "neuronxcc.nki.language.constants": host.CONSTANTS,
        "neuronxcc.nki.isa": _isa(),
        "neuronxcc.nki.isa.constants": _ENUMS,
        "neuronxcc.nki.compiler": compiler.NAMES,
        "neuronxcc.nki.nccl": programs.COLLECTIVES,
        "neuronxcc.nki._private": {},
        "neuronxcc.nki._private.private_api": programs.PRIVATE,
        "neuronxcc.nki.typing": {**TYPING, "immutable": TensorAnnotation, "scalar": scalars.scalar},
    }


hold_members(Tensor, language.NAMES, BETA1)
keep_from_host(Tensor, language.NAMES)
