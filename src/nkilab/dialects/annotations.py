"""`nki.typing`: annotations of parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class TensorAnnotation:
    """`nt.tensor[128, 512]`: a tensor; it has no effect at run time."""

    def __class_getitem__(cls, shape: Any) -> type:
        return cls


class MutableAnnotation(TensorAnnotation):
    """`nt.mutable_tensor`: a tensor that the kernel may write, in place."""


def is_mutable(function: Callable[..., Any], parameter: str) -> bool:
    """Whether a parameter of a kernel is annotated as one that may be written."""
    annotation = getattr(function, "__annotations__", {}).get(parameter)
    if isinstance(annotation, str):
        return annotation.partition("[")[0].rpartition(".")[2] in ("mutable_tensor", "mutable")
    return isinstance(annotation, type) and issubclass(annotation, MutableAnnotation)
