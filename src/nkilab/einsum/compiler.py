"""Compiling: a cascade, or a specification, becomes a kernel with its source."""

from __future__ import annotations

from collections.abc import Mapping

from ..machine import machine_named
from .emit.neuronxcc import NeuronxccPrinter
from .emit.nki import NkiPrinter
from .language.ast import Cascade
from .language.extents import sized
from .plan.lower import lower

PRINTERS = {"nki": NkiPrinter, "neuronxcc": NeuronxccPrinter}


def source_of(
    cascade: Cascade, sizes: Mapping[str, int], dtypes: Mapping[str, str], dialect: str = "nki", name: str = "kernel",
    target: str = "trn2",
) -> str:  # fmt: skip
    """The text of a kernel."""
    kernel, _ = lower(
        sized(cascade, sizes), dtypes, machine_named(target), name, f"Computes {', '.join(cascade.outputs)}."
    )
    return PRINTERS[dialect](kernel).text()
