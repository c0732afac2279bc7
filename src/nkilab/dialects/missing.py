"""Names that do not exist: what is told of them, with the name that means the same or looks like it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import EnumMeta
from typing import Any, NoReturn

from ..errors import SpellingError, nearest
from ..trace.source import place_of, user_frame

# What NumPy, PyTorch, JAX and mathematics call otherwise than `nki.language`, by its word.
_ALIASES = {
    "abs": "absolute fabs",
    "arctan": "atan arctangent",
    "ceil": "ceiling",
    "copy": "clone contiguous asarray array deepcopy",
    "divide": "div true_divide truediv floor_divide",
    "exp": "exponential exponent",
    "expand_dims": "unsqueeze newaxis",
    "equal": "eq",
    "float32": "float64 double float_ single float fp64 complex64 complex128",
    "greater": "gt",
    "greater_equal": "ge gte",
    "int32": "int64 long int int_",
    "invert": "bitwise_not",
    "less": "lt",
    "less_equal": "le lte",
    "log": "ln logarithm",
    "matmul": "dot mm bmm matrix_multiply",
    "max": "amax reduce_max",
    "mean": "avg average",
    "maximum": "fmax",
    "min": "amin reduce_min",
    "minimum": "fmin",
    "mod": "remainder",
    "multiply": "mul times",
    "negative": "neg",
    "not_equal": "ne",
    "power": "pow float_power",
    "prod": "product",
    "reciprocal": "inverse",
    "sigmoid": "expit logistic",
    "silu": "swish",
    "subtract": "sub minus",
    "sum": "add_reduce reduce_sum",
    "transpose": "T mT t swapaxes permute transpose2d",
    "uint32": "uint64",
    "where": "select",
    "zeros": "empty",
}
_WORD_OF = {alias: word for word, aliases in _ALIASES.items() for alias in aliases.split()}
# Members of arrays that change the type of their elements.
CASTS = ("astype", "to", "type", "cast")
# Members of arrays that give a number or an array to the host.
TO_HOST = ("item", "tolist", "numpy", "cpu", "detach", "nonzero")
NUMBER_HINT = (
    "keep it a tile: instructions take a column [P, 1] where they take a number; "
    "print the tile to see its elements"
)
# Names of a table that are listed where none is near.
_LISTED = 12


class MissingMemberError(SpellingError, AttributeError):
    """A module, a tensor or an enumeration has no such name."""


def counterpart(name: str, words: Collection[str]) -> str:
    """The word of `nki.language` that means what others call by a name, or ""."""
    word = name if name in words else _WORD_OF.get(name, "")
    return word if word in words else ""


def alternatives_to(name: str, known: Iterable[str]) -> tuple[str, str]:
    """What a message says of a name that does not exist: which there are, if they are few, and the hint."""
    names = sorted(n for n in known if not n.startswith("_"))
    word = counterpart(name, names)
    if word:
        return "", f"use {word}"
    # a name that is a part of another is near too
    near = nearest(name, names, alike=0.8) or nearest(name, names, most=3)
    near = near or [n for n in names if len(n) > 2 and (n in name or name in n)][:3]
    if near:
        return "", f"did you mean {' or '.join(near)}?"
    return (
        (f"; it has {', '.join(names)}", "") if len(names) <= _LISTED else ("", "nkilab ops lists every name")
    )


def refuse_name(owner: str, name: str, known: Iterable[str], problem: str = "", hint: str = "") -> NoReturn:
    """Refuse a name, and tell the nearest known ones.

    Args:
        owner: what has no such name, for messages.
        name: the name.
        known: those that exist.
        problem: the sentence; that `owner` has no such name if "".
        hint: what to do; one about the nearest names if "".

    Raises:
        MissingMemberError: always, but for names with an underscore in front, which Python asks for.
    """
    if name.startswith("_"):
        raise AttributeError(f"{owner} has no attribute {name!r}")
    listed, hint = ("", hint) if hint else alternatives_to(name, known)
    plain = problem or f"{owner} has no {name}"
    raise MissingMemberError(plain + listed, hint=hint).located(place_of(user_frame()), owner)


class NamedMeta(EnumMeta):
    """Of enumerations that tell the nearest member where one does not exist."""

    def __getattr__(cls, name: str) -> Any:
        members: dict[str, Any] = cls.__dict__.get("_member_map_", {})
        refuse_name(cls.__name__, name, members)
