"""What the ledger holds per measurement."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

KINDS = ("kernel", "instruction", "collective")
SPLITS = ("fit", "judge", "context")
TRUSTS = ("A", "B", "C", "D")


@dataclass(frozen=True)
class Source:
    """Where measurements were published."""

    name: str  # what rows call it
    ref: str  # repository and file, or page
    commit: str = ""  # full or abbreviated; "" for a page
    link: str = ""  # address


@dataclass(frozen=True)
class Call:
    """One call of a kernel."""

    kernel: str  # "module.function" of `ledger.kernels`, or "FILE.py:KERNEL" beside the ledger
    args: tuple[Any, ...]  # positional arguments, as written


@dataclass(frozen=True)
class Row:
    """One measurement of one kernel."""

    id: str  # unique name
    family: str  # what it is ranked with
    kernel: str  # what calls that name none call
    calls: tuple[Call, ...]  # most rows have one
    # by quantity, in the quantity's unit; the first is the one that the row stands for
    measured: dict[str, float]
    source: Source  # where it was published
    chip: str  # name of the chip
    dialect: str  # spelling and version that the measured kernel had
    # A official tool output or device clock with exact source, B self-reported or decoded with exact source,
    # C partly uncertain, D bounds only
    trust: str
    split: str  # "fit" rows may be used to fit constants, "judge" rows never, "context" rows neither
    noise: float  # relative spread of repeated measurements
    # "kernel", "instruction" for what isolates a single instruction or transfer, or "collective" for one of
    # several ranks
    kind: str = "kernel"
    keywords: dict[str, Any] = field(default_factory=dict)  # keyword arguments of every call
    # how it was compiled and measured: dge, middle_end, capture, ...; of a launch on several ranks how many
    # `ranks`, and `topology`, how many of them share a chip and a node
    options: dict[str, Any] = field(default_factory=dict)
    hardware: str = ""  # instance and cores
    label: str = ""  # opcode that an instruction row looks at
    # per call, how many of what is measured it holds, where a quantity is a difference of calls
    units: tuple[int, ...] = ()
    notes: str = ""  # what else is known
    contradicts: tuple[str, ...] = ()  # rows that cannot all be right together with this one
    reason: str = ""  # why the model may be off by more than 35 %; "" if it may not
    line: int = 0  # of the file it was read from

    @property
    def structure(self) -> str:
        """What is left out together when constants are fitted without it: the kernel, whatever its shapes."""
        return self.calls[0].kernel

    @property
    def shape(self) -> str:
        """The structure and the arrays that it is called with: what rows of one grid share."""
        arrays = ["+".join(str(arg) for arg in call.args if str(arg).endswith("]")) for call in self.calls]
        return " ".join([self.structure, self.chip, *arrays])

    @property
    def metric(self) -> str:
        """The quantity that the row stands for."""
        return next(iter(self.measured))

    @property
    def value(self) -> float:
        """Its measured value."""
        return self.measured[self.metric]

    @property
    def setting(self) -> tuple[str, ...]:
        """What makes two rows measurements of one thing: kernel, shapes, types, chip, options."""
        parts = (self.calls, sorted(self.keywords.items()), self.metric, sorted(self.options.items()))
        return (self.kernel, self.chip, *map(repr, parts))
