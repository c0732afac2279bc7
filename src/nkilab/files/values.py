"""Attributes, values and layouts as JSON and back: a closed set of types, each with its tag.

null, true, false, text      stand for themselves
{"i": "12"}  {"f": "0x1.8p+1"}    int and float, exact
{"t": [...]}                 tuple
{"n": [type, bytes]}         NumPy scalar
{"op": name}  {"act": name}  entries of the tables of operators and activation functions
"""

from __future__ import annotations

from typing import cast

import ml_dtypes
import numpy as np

from ..errors import FileError
from ..isa.activations import ACTIVATIONS, Activation
from ..isa.declare import NUMBER
from ..isa.operators import OPERATORS, Operator
from ..tiles.dtypes import DTYPES, DType
from ..tiles.tile import Layout, layout

Json = object


def encoded(value: object) -> Json:
    """A value as JSON.

    Raises:
        FileError: if it is of a type that files do not hold.
    """
    match value:
        case None | bool() | str():
            return value
        case np.generic():
            return {"n": [value.dtype.name, value.tobytes().hex()]}
        case int():
            return {"i": str(int(value))}
        case float():
            return {"f": float(value).hex()}
        case tuple() | list():
            return {"t": [encoded(v) for v in value]}
        case Operator():
            return {"op": value.name}
        case Activation():
            return {"act": value.name}
        case DType():
            return {"dtype": value.name}
    raise FileError(f"a value of type {type(value).__name__} has no form in files: {value!r}")


def decoded(encoded: Json) -> object:
    """The value that JSON stands for; raises ValueError, KeyError or TypeError if it stands for none."""
    if encoded is None or isinstance(encoded, bool | str):
        return encoded
    ((tag, content),) = cast("dict[str, Json]", encoded).items()
    match tag:
        case "i":
            return int(cast(str, content))
        case "f":
            return float.fromhex(cast(str, content))
        case "t":
            return tuple(decoded(v) for v in cast("list[Json]", content))
        case "n":
            name, digits = cast("list[str]", content)
            return np.frombuffer(bytes.fromhex(digits), _numpy_type(name))[0]
        case "op":
            return OPERATORS[cast(str, content)]
        case "act":
            return ACTIVATIONS[cast(str, content)]
        case "dtype":
            return DTYPES[cast(str, content)]
    raise ValueError(f"tag {tag}")


def _numpy_type(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


def encoded_layout(layout: object) -> Json:
    """What a form holds for an operand: a layout, the marker of a number, or nothing."""
    if layout is None:
        return None
    if layout is NUMBER:
        return "number"
    assert isinstance(layout, Layout)
    return [
        list(layout.shape),
        list(layout.strides),
        layout.dtype.name,
        layout.memory,
        layout.partition_axis,
        layout.start_partition,
    ]


def decoded_layout(encoded: Json) -> object:
    """The operand that JSON stands for."""
    if encoded is None:
        return None
    if encoded == "number":
        return NUMBER
    shape, strides, dtype, memory, partition_axis, start = cast("list[object]", encoded)
    return layout(
        tuple(cast("list[int]", shape)), tuple(cast("list[int]", strides)), DTYPES[cast(str, dtype)],
        cast(str, memory), cast("int | None", partition_axis), cast(int, start),
    )  # fmt: skip
