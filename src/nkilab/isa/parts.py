"""What a declaration states besides its members: steps of its cost, its worked example, a fresh result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..tiles.dtypes import DType


@dataclass(frozen=True)
class Step:
    """What one engine does for an instruction: one bar in the profiler.

    Args:
        engine: "tensor", "vector", "scalar", "gpsimd" or "dma".
        label: opcode as the vendor's profiler names it.
        busy_ns: how long the engine accepts nothing else.
        latency_ns: from then until the result is visible; DMA: hops on the way of a collective.
        hidden_ns: of what runs beside the work of its engine, how long it keeps the next of its kind waiting.
        descriptors: DMA only: elements of the transfer list.
        descriptor_bytes: DMA only: contiguous bytes each moves.
        link_bytes_per_ns: DMA only: the most that the links of a collective carry; 0 for no limit.
        table: scalar only: the function table that must be loaded.
        is_wide: vector only: whether it runs in a performance mode, more than an element a cycle.
        passes: tensor only: how often it streams its moving tile; weights load from the begin of the last on.
        array_tile: tensor only: a bit for each [32, 32] of the systolic array that it occupies; 0 for all.
        widening: factor on the interval where the cost is assumed, 1 where it has a source.
    """

    engine: str
    label: str
    busy_ns: float = 0.0
    latency_ns: float = 0.0
    hidden_ns: float = 0.0
    descriptors: int = 0
    descriptor_bytes: int = 0
    link_bytes_per_ns: float = 0.0
    table: str = ""
    is_wide: bool = False
    passes: float = 1.0
    array_tile: int = 0
    widening: float = 1.0


@dataclass(frozen=True)
class Example:
    """Numbers written by hand, not by `compute`: shown on the page and checked by the tests.

    Args:
        given: operands read, by name: nested lists or a number.
        expected: operands written, by name.
        attributes: attributes and values, by name, as a user spells them.
        dtypes: types of operands that are not float32.
        registers: what the first lanes of fields of its register file hold afterwards, by field.
    """

    given: Mapping[str, Any]
    expected: Mapping[str, Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    registers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fresh:
    """A result that does not exist yet: what a value-returning call creates."""

    shape: tuple[int, ...]
    dtype: DType
    memory: str
