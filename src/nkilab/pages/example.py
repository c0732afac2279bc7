"""The worked example of a declaration as lines of Python."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from ..dialects import enums
from ..isa.activations import ACTIVATIONS
from ..isa.declare import Instruction
from ..isa.operators import OPERATORS
from ..tiles.dtypes import DTYPES

LINE = 100
# Rows of an array, and elements of a row, that are shown before the rest is counted.
ROWS, COLUMNS = 4, 8


def example_code(cls: type[Instruction]) -> str:
    """Operands given, the call in the spelling of `nki`, and what it writes."""
    example = cls.example
    lines = [
        f"{name} = {_value_text(cls, name, value)}{_typed(cls, name)}"
        for name, value in example.operands.items()
    ]
    if cls.module == "collectives":
        lines.append("# every rank of the group brings the same")
        lines.append(called(f"ncc.{cls.name}", _of_a_group(cls)))
    else:
        lines.append(called(f"nisa.{cls.name}", _arguments(cls)))
    lines += [
        f"# {name}: {_value_text(cls, name, value)}{_typed(cls, name, '')}"
        for name, value in example.expected.items()
    ]
    lines += [f"# registers, {name}: {array(value)}" for name, value in example.registers.items()]
    return "\n".join(lines)


def _value_text(cls: type[Instruction], name: str, value: Any) -> str:
    """An array; packed elements in hexadecimal digits, two or one for each of the four numbers."""
    dtype = DTYPES.get(cls.example.dtypes.get(name, ""))
    return array(value, 2 * dtype.itemsize if dtype is not None and dtype.is_packed else 0)


def _typed(cls: type[Instruction], name: str, sign: str = "  # ") -> str:
    dtype = cls.example.dtypes.get(name)
    if dtype is None:
        return ""
    return f"{sign}{dtype}" if sign else f" ({dtype})"


def _arguments(cls: type[Instruction]) -> list[str]:
    """Arguments of the call: by position as long as none is left out, then by name."""
    example = cls.example
    known = {**example.operands, **example.expected}
    words_made: list[str] = []
    by_name = False
    for name in cls.parameters:
        if name == cls.list_name:
            words_made.append(f"{name}=[{', '.join(k for k in known if k.startswith(f'{name}['))}]")
        elif name in known:
            words_made.append(f"{name}={name}" if by_name else name)
            continue
        elif name in example.attributes:
            words_made.append(f"{name}={spelled(name, example.attributes[name])}")
        by_name = True
    return words_made


def _of_a_group(cls: type[Instruction]) -> list[str]:
    """Arguments of a collective: lists of tensors, and the group in place of what a row has of it."""
    example = cls.example
    _, *ranks = example.attributes["members"]
    is_ring = "implicit" in cls.name
    words = {
        f"src{n}": f"srcs{n}_by_channel=[[src{n}]]" if is_ring else f"srcs{n}=[src{n}]" for n in ("", 0, 1)
    }
    words |= {
        "dst": "dsts_by_channel=[[dst]]" if is_ring else "dsts=[dst]",
        "metadata": "metadata_tensor=metadata",
        "members": f"replica_group=ncc.ReplicaGroup([{ranks}])",
    }
    if cls.name == "collective_permute":
        words["members"] = f"source_target_pairs=[{', '.join(map(str, ((0, 1), (1, 0))))}]"
    listed = [words[name] for name in cls.parameters if name in words]
    chosen = [
        name for name in cls.parameters if name in example.attributes and name not in ("ranks", "members")
    ]
    return listed + [f"{name}={spelled(name, example.attributes[name])}" for name in chosen]


def spelled(name: str, value: Any) -> str:
    """A value of the parameter `name` as a user writes it: members of nki.isa, names of nki.language."""
    word = getattr(value, "name", value)
    if isinstance(word, str) and hasattr(getattr(enums, name, None), word):
        return f"nisa.{name}.{word}"
    return f"nl.{word}" if isinstance(word, str) and word in {**OPERATORS, **ACTIVATIONS} else repr(word)


def called(name: str, arguments: Sequence[str]) -> str:
    """A call or signature; over several lines where one would be longer than 100 characters."""
    line = f"{name}({', '.join(arguments)})"
    if len(line) <= LINE:
        return line
    # an argument stays on one line, and the star with what follows it
    joined = ", ".join(part.replace(" ", "\0") for part in arguments).replace("*, ", "*,\0")
    body = fill(joined, LINE - 4, initial_indent="    ", subsequent_indent="    ", break_long_words=False)
    return f"{name}(\n{body},\n)".replace("\0", " ")


def array(value: Any, digits: int = 0) -> str:
    """Nested lists or a number, what is long cut and counted; in so many hexadecimal digits if any."""
    if not isinstance(value, list | tuple):
        if digits:
            return f"0x{value:0{digits}x}"
        return f"{value:g}" if isinstance(value, float) else str(value)
    rows = [array(item, digits) for item in value]
    most = ROWS if isinstance(value[0], list | tuple) else COLUMNS
    if len(rows) > 2 * most:
        rows = [*rows[:most], f"... {len(value) - most} more"]
    return f"[{', '.join(rows)}]"
