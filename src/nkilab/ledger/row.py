"""What the ledger holds per measurement."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

KINDS = ("kernel", "instruction", "collective")
SPLITS = ("fit", "judge", "context")
TRUSTS = ("A", "B", "C", "D")


@dataclass(frozen=True)
class Source:
    """Where measurements were published.

    Args:
        name: what rows call it.
        ref: repository and file, or page.
        commit: full or abbreviated; "" for a page.
        link: address.
    """

    name: str
    ref: str
    commit: str = ""
    link: str = ""


@dataclass(frozen=True)
class Call:
    """One call of a kernel.

    Args:
        kernel: "module.function" of `ledger.kernels`, or "FILE.py:KERNEL" beside the ledger.
        args: positional arguments, as written.
    """

    kernel: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Row:
    """One measurement of one kernel.

    Args:
        id: unique name.
        family: what it is ranked with.
        kernel: what calls that name none call.
        calls: most rows have one.
        keywords: keyword arguments of every call.
        chip: name of the chip.
        dialect: spelling and version that the measured kernel had.
        options: how it was compiled and measured: dge, middle_end, capture, ...; of a launch on several ranks
            how many `ranks`, and `topology`, how many of them share a chip and a node.
        measured: by quantity, in the quantity's unit; the first is the one that the row stands for.
        source: where it was published.
        hardware: instance and cores.
        trust: A official tool output or device clock with exact source, B self-reported or decoded with exact
            source, C partly uncertain, D bounds only.
        split: "fit" rows may be used to fit constants, "judge" rows never, "context" rows neither.
        noise: relative spread of repeated measurements.
        kind: "kernel", "instruction" for what isolates a single instruction or transfer, or "collective" for
            one of several ranks.
        label: opcode that an instruction row looks at.
        units: per call, how many of what is measured it holds, where a quantity is a difference of calls.
        notes: what else is known.
        contradicts: rows that cannot all be right together with this one.
        reason: why the model may be off by more than 35 %; "" if it may not.
        line: of the file it was read from.
    """

    id: str
    family: str
    kernel: str
    calls: tuple[Call, ...]
    measured: dict[str, float]
    source: Source
    chip: str
    dialect: str
    trust: str
    split: str
    noise: float
    kind: str = "kernel"
    keywords: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    hardware: str = ""
    label: str = ""
    units: tuple[int, ...] = ()
    notes: str = ""
    contradicts: tuple[str, ...] = ()
    reason: str = ""
    line: int = 0

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
