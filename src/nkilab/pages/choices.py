"""What nkilab chose where public text is silent: the rows of docs/differences.md about an instruction."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from ..errors import FileError
from ..isa import REGISTRY
from ..isa.declare import Instruction

PACKAGE = Path(__file__).resolve().parent.parent
# The wheel holds the file beside the package's modules, a source tree in its folder of documents.
_PLACES = (PACKAGE / "differences.md", PACKAGE.parent.parent / "docs" / "differences.md")

Choice = tuple[str, str]
# How questions begin that concern instructions they do not name.
THEMES: tuple[tuple[str, Callable[[type[Instruction]], bool]], ...] = (
    ("Random ", lambda cls: cls.registers == "random"),
    ("VectorE's accumulator registers", lambda cls: cls.registers == "vector"),
    ("Instructions of VectorE and ScalarE that scan", lambda cls: _gathers(cls)),
    ("Arithmetic on int32 and uint32 in SBUF", lambda cls: "gpsimd" in cls.engines and _takes(cls, "power")),
    ("The same on VectorE, or with an operand", lambda cls: "gpsimd" in cls.engines and _takes(cls, "power")),
    ("Bits of activation functions", lambda cls: _takes(cls, "gelu")),
    ("Inputs outside a function's documented range", lambda cls: _takes(cls, "gelu")),
    ("`maximum` and `minimum` with a NaN", lambda cls: _takes(cls, "maximum")),
    ("Which DMA engine or descriptor mode", lambda cls: "dma" in cls.engines),
    (
        "float32 matmul",
        lambda cls: (
            cls.accumulates
            and any("float32" in spec.dtypes for spec in cls.operands.values() if not spec.is_written)
        ),
    ),
    ("The destination overlaps what earlier matmuls", lambda cls: cls.accumulates),
    ("Reading a PSUM tile", lambda cls: cls.accumulates),
    ("Transpose on TensorE", lambda cls: "transpose" in cls.name and "tensor" in cls.engines),
)


def _gathers(cls: type[Instruction]) -> bool:
    """Whether an instruction carries something from element to element of a row."""
    family = cls.__module__.rpartition(".")[2]
    return family in ("scans", "statistics") or cls.registers in ("vector", "scalar")


def _takes(cls: type[Instruction], word: str) -> bool:
    return any(word in attribute.allowed.split(", ") for attribute in cls.attributes.values())


@cache
def choices() -> tuple[Choice, ...]:
    """All questions with the choice made.

    Raises:
        FileError: if the document is missing.
    """
    path = next((place for place in _PLACES if place.exists()), None)
    if path is None:
        raise FileError("differences.md is not installed", hint="install nkilab again")
    rows = [line.strip().strip("|").split(" | ") for line in path.read_text("utf-8").split("\n")]
    rows_of_choices = [(row[0].strip(), row[1].strip()) for row in rows if len(row) == 2]
    return tuple((question, choice) for question, choice in rows_of_choices if question != "Question")


def choices_about(cls: type[Instruction]) -> list[Choice]:
    """The rows whose question names an instruction, or an attribute of it and no other, or its theme."""
    return [(question, choice) for question, choice in choices() if _concerns(cls, question)]


def _concerns(cls: type[Instruction], question: str) -> bool:
    if any(question.startswith(theme) and concerns(cls) for theme, concerns in THEMES):
        return True
    words = {word for span in re.findall(r"`([^`]+)`", question) for word in re.findall(r"\w+", span)}
    named = words & set(REGISTRY)
    return cls.name in named if named else bool(words & {name for name in cls.parameters if "_" in name})
