"""`nki.typing`: annotations of parameters."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

from ..arrays import ArraySpec
from ..errors import SpellingError
from .places import placed


class TensorAnnotation:
    """`nt.tensor[128, 512]`: a tensor; it has no effect at run time.

    `nt.tensor[[128, 512], nl.float32]` stands for an array where a kernel of Beta 1 is measured;
    `nt.tensor[nt.mutable]` may be written.
    """

    def __class_getitem__(cls, key: Any) -> type | ArraySpec:
        match key:
            case type() if issubclass(key, MutableAnnotation):
                return key
            case (list() | tuple() as shape, dtype):
                return ArraySpec(tuple(shape), dtype)
        return cls


class MutableAnnotation(TensorAnnotation):
    """`nt.mutable_tensor`: a tensor that the kernel may write, in place."""


class ScalarAnnotation:
    """`nt.scalar`: a number; it has no effect at run time.

    In Beta 1 a call of it makes an element a number of the device, which registers are from 0.1 on.
    """

    @placed("scalar")
    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse to make a number.

        Raises:
            SpellingError: always.
        """
        raise SpellingError(
            "nki.typing.scalar annotates a parameter in nki; it is called in Beta 1 alone",
            hint="load the element into a register with nisa.register_load, and loop with nl.while_loop",
            source="nki.isa.VirtualRegister",
        )


# Names of `typing` that both spellings have.
TYPING = {"tensor": TensorAnnotation, "mutable_tensor": MutableAnnotation, "mutable": MutableAnnotation}


def is_mutable(function: Callable[..., Any], parameter: str) -> bool:
    """Whether a parameter of a kernel is annotated as one that may be written."""
    annotation = getattr(function, "__annotations__", {}).get(parameter)
    if isinstance(annotation, str):
        return not {"mutable_tensor", "mutable"}.isdisjoint(re.split(r"\W+", annotation))
    return isinstance(annotation, type) and issubclass(annotation, MutableAnnotation)
